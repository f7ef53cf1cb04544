"""
Moves partitions from lanes that have no slot on Spark, or are behind, to lanes that run, and back.

A lane without a slot gives its partitions before the move is published, and is fenced behind it (docs/adr/0030).  One
that is behind goes on with its other partitions: the move is published, the lane is told, and the partitions wait until
a claim of it proves that it dropped them and still has its id (docs/adr/0035).  If that does not come in time, the lane
ends and is fenced as well.

A topic that leaves the link is parked in the same ways: its partitions get no other lane.

Lanes themselves move only with a local master, to Spark once it is ready (`eomirror.spark.local_lanes`): no slot is
lost there, and no partition changes its lane.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import structlog

from eomirror.crash import crash_point
from eomirror.driver.balance import Balance
from eomirror.driver.slots import Slots
from eomirror.link.assignment import lent
from eomirror.status.model import waits_for_slot

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from eomirror.clock import Clock
    from eomirror.driver.claim_renewal import LinkRecords
    from eomirror.driver.lane import LaneThread
    from eomirror.driver.link_progress import LinkProgress
    from eomirror.lane.spec import AssignedPartition
    from eomirror.records.control import Generation
    from eomirror.spark.jobs import LaneJobs
    from eomirror.spark.local_lanes import MovingJobs
    from eomirror.types import SourcePartition

__all__ = ["REST_SECONDS", "PartitionMoves"]

log = structlog.get_logger(__name__)

#: For a lane that gives partitions to finish its transaction; a later one is fenced.
REST_SECONDS = 3.0
# for one that goes on to prove that it has given them, while it runs: it mirrors all of them until its transaction ends
_CLAIM_SECONDS = 20.0
# between two looks for a slot: a slot that another lane takes between two attempts is seen for a moment only
_AGAIN_SECONDS = 2.0


class _Move(NamedTuple):
    """
    A move of partitions between lanes.

    Attributes:
        to: New lane of each partition; None for one that leaves the link.
        givers: Lanes that had them.
        items: The partitions, once they are taken.
        goes_on: True if the lanes that give go on with their other partitions.
        told: Published layout that these lanes are told of; None before.
        until: Time at which lanes that have not proved it end.
    """

    to: Mapping[SourcePartition, int | None]
    givers: tuple[int, ...]
    items: tuple[AssignedPartition, ...]
    goes_on: bool = False
    told: Generation | None = None
    until: float = 0.0


class _ClaimedMoves:
    """Newest generation that each lane has committed a claim of.  Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._newest: dict[int, int] = {}
        self._over = False

    def add(self, lane: int, generation: int) -> None:
        with self._changed:
            if generation > self._newest.get(lane, 0):
                self._newest[lane] = generation
                self._changed.notify_all()

    def end(self) -> None:
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def wait(self, lanes: Collection[int], generation: int, seconds: float) -> bool:
        """Waits until all of the lanes have claimed it; returns False after ``seconds``, or once the link ends."""
        with self._changed:
            self._changed.wait_for(lambda: self._over or self._have(lanes, generation), seconds)
            return self._have(lanes, generation)

    def _have(self, lanes: Collection[int], generation: int) -> bool:
        return all(self._newest.get(lane, 0) >= generation for lane in lanes)


class PartitionMoves:
    """
    Moves partitions between the lanes of one link.  Thread-safe.

    Args:
        link: Name of the link.
        lanes: Its lanes, which are added later.
        progress: Records which lane has a partition.
        records: Writes the timeline.
        clock: Measures waits.

    Attributes:
        slots: Lanes that run, wait, or have lent their partitions.
        whole: Held during a look.
    """

    def __init__(
        self,
        link: str,
        lanes: Mapping[int, LaneThread],
        *,
        progress: LinkProgress,
        records: LinkRecords,
        clock: Clock,
    ) -> None:
        self.slots = Slots()
        self.whole = threading.Lock()
        self._link = link
        self._lanes = lanes
        self._progress = progress
        self._records = records
        self._clock = clock
        self._jobs: LaneJobs | MovingJobs | None = None
        # lane of each partition whose lane has no slot
        self._home: dict[SourcePartition, int] = {}
        self._move: _Move | None = None
        # lanes of which the timeline says that they wait
        self._told: set[int] = set()
        self._stopped = threading.Event()
        self._claims = _ClaimedMoves()
        self._balance: Balance | None = None
        self._claiming = True

    def start(self, jobs: LaneJobs | MovingJobs, *, balance: bool = False, claiming: bool = True) -> None:
        """
        Takes the jobs of the lanes.

        Args:
            jobs: The jobs.
            balance: True if lanes that are behind give partitions to others.
            claiming: True if a lane that goes on claims a generation without the partitions that it gave.
        """
        self._jobs, self._claiming = jobs, claiming
        self._balance = Balance() if balance else None

    def stop(self) -> None:
        """Ends the jobs that wait for slots."""
        self._stopped.set()
        self._claims.end()
        for lane in list(self.slots.lent):
            self._cancel(lane)

    @property
    def needs(self) -> Mapping[SourcePartition, float]:
        """Bytes a second that partitions need, as far as measured; empty unless lanes are balanced."""
        return {} if self._balance is None else self._balance.needs

    def claimed(self, lane: int, generation: int) -> None:
        """Records the newest generation that an attempt of a lane has committed a claim of; 0 for none."""
        self._claims.add(lane, generation)

    def look(
        self, publish: Callable[..., Generation], *, elastic: bool | None = True
    ) -> tuple[int, Mapping[SourcePartition, int | None]] | None:
        """
        Begins lanes again whose worker is gone, and moves partitions from lanes without a slot to others, and back.

        Then it moves them from a lane that is behind to one that keeps up, if that pays.

        Args:
            publish: Publishes a move, and fences the lanes that give unless ``fence`` is False; repeated with the same
                move until it returns.
            elastic: False if Spark never lacks a slot: under a local master.  None to end a pending move only.

        Returns:
            The new generation, and the new lane of each partition that was moved; None if nothing moved.
        """
        with self.whole:
            if elastic is None and self._move is None:
                return None
            return self._look(publish, elastic=bool(elastic))

    def _look(
        self, publish: Callable[..., Generation], *, elastic: bool
    ) -> tuple[int, Mapping[SourcePartition, int | None]] | None:
        now = self._clock.monotonic()
        for lane in self.slots.dead(now) if elastic else ():
            # Spark may only begin its task again, on a slot that it does not have, and tell the driver nothing
            log.warning("lane_lost", link=self._link, lane=lane, reason="its connection to the driver broke")
            self._cancel(lane)
        if elastic:
            self._tell_waiting(now)
        if self._stopped.is_set():
            return None
        if self._move is None:
            self._move = (self._next(now) if elastic else None) or self._shift(now)
        if self._move is None:
            return None
        generation = self._published(self._move, publish, now)
        if generation is None:
            return None
        # with the partitions that were taken
        move, self._move = self._move, None
        for lane, thread in self._lanes.items():
            got = [
                replace(item, generation=generation.generation)
                for item in move.items
                if move.to[item.source] == lane
            ]
            self._progress.assign(lane, got)
            thread.moved(generation.of_lane(lane), got, lent=lane in self.slots.lent)
        log.info(
            "partitions_moved", link=self._link, generation=generation.generation, partitions=len(move.to)
        )
        return generation.generation, move.to

    @property
    def pending(self) -> bool:
        """True if partitions are between two lanes: a publication failed, and is repeated.  Read it under `whole`."""
        return self._move is not None

    def park(self, topics: Collection[str]) -> set[str]:
        """
        Begins to take topics that leave the link from their lanes; holds `whole`, and nothing is `pending`.

        The look that ends the move proves that no lane can mirror them any more.

        Returns:
            The topics that lanes had; no look is needed for the others.
        """
        lanes = self._lane_of()
        givers = {source: lane for source, lane in lanes.items() if source.topic in topics}
        if not givers:
            return set()
        # a lane without any partition has nothing to go on with
        left = {lane for source, lane in lanes.items() if source not in givers}
        concerned = tuple(sorted(set(givers.values())))
        to = dict.fromkeys(givers)
        goes_on = self._claiming and left.issuperset(concerned)
        items = [] if goes_on else [item for lane in concerned for item in self._lanes[lane].take(to)]
        for lane in () if goes_on else concerned:
            self._lanes[lane].wait_at_rest(REST_SECONDS)
        self._move = _Move(to, concerned, tuple(items), goes_on=goes_on)
        return {source.topic for source in givers}

    def parked(self, topics: Collection[str]) -> bool:
        """Returns True if no lane can mirror these topics any more."""
        with self.whole:
            return self._move is None and not any(source.topic in topics for source in self._lane_of())

    # -- inside ----------------------------------------------------------------------------------

    def _published(self, move: _Move, publish: Callable[..., Generation], now: float) -> Generation | None:
        """Returns the layout in which other lanes may get the partitions; None if a later look asks again."""
        if not move.goes_on:
            return publish(move.to, move.givers, fence=True)
        if move.told is None:
            move = self._move = self._tell_givers(move, publish(move.to, move.givers, fence=False), now)
        if self._proved(move):
            return move.told
        if now < move.until and set(move.givers) <= set(self.slots.running()):
            return None
        move = self._move = self._ended(move)
        return publish(move.to, move.givers, fence=True)

    def _next(self, now: float) -> _Move | None:
        due = self.slots.due(now)
        if due is None:
            # the owner gives new partitions to the lane that has the fewest
            due = next((lane for lane in list(self.slots.lent) if self._lanes[lane].partitions), None)
        if due is not None and not self._lanes[due].partitions:
            # its topics have left the link since
            self._cancel(due)
            self.slots.rests(due)
        elif due is not None:
            return self._lend(due)
        return None if (lane := self.slots.returning(now)) is None else self._return(lane)

    def _tell_waiting(self, now: float) -> None:
        waiting = self.slots.waiting(now)
        self._told &= {*waiting, *self.slots.lent}
        for lane in waiting:
            self._progress.set_lane_state(lane, "queued")
            if lane not in self._told:
                self._told.add(lane)
                text = waits_for_slot([lane], *self.slots.given())
                log.warning("lane_waits_for_slot", link=self._link, lane=lane, reason=text)
                self._records.lanes.tell("slot", text)

    def _lend(self, lane: int) -> _Move | None:
        to = lent(self._lane_of(), lane, self.slots.running())
        if not to:
            return None
        waits = lane in self.slots.lent
        if not waits:
            self.slots.lend(lane, self._clock.monotonic())
        for source in to:
            self._home.setdefault(source, lane)
        items = self._lanes[lane].take(to)
        if self._jobs is not None and not waits:
            getters = ", ".join(map(str, sorted(set(to.values()))))
            text = f"{waits_for_slot([lane], *self.slots.given())}; its partitions are lent to {getters}"
            log.warning("partitions_lent", link=self._link, lane=lane, reason=text)
            self._records.lanes.tell("slot", text)
            self._cancel(lane)
            self._lanes[lane].wait_at_rest(REST_SECONDS)
            self._jobs.thread(lambda: self._await_slot(lane), f"slot-{self._link}-{lane}").start()
        return _Move(to, (lane,), tuple(items))

    def _return(self, lane: int) -> _Move | None:
        log.info("lane_has_slot", link=self._link, lane=lane)
        self._records.lanes.tell("slot", f"lane {lane} has a slot, and gets its partitions back")
        self.slots.returned(lane)
        # a small job may wait for a slot again
        self._cancel(lane)
        now_at = self._lane_of()
        to = {source: lane for source, home in self._home.items() if home == lane and source in now_at}
        self._home = {source: home for source, home in self._home.items() if home != lane}
        if not to:
            self._lanes[lane].moved(None, ())
            return None
        givers = sorted({now_at[source] for source in to})
        items = [item for giver in givers for item in self._lanes[giver].take(to)]
        for giver in givers:
            self._lanes[giver].wait_at_rest(REST_SECONDS)
        return _Move(to, tuple(givers), tuple(items))

    def _shift(self, now: float) -> _Move | None:
        if self._balance is None or not self._balance.due(now):
            return None
        if self.slots.lent:
            self._balance.disturbed(now)
            return None
        shift = self._balance.look(self._progress.loads(), self.slots.running(), now)
        if shift is None:
            return None
        full, empty = (f"{load / 1e6:.1f} MB/s" for load in shift.loads)
        text = (
            f"lane {shift.giver} is behind with {full}: lane {shift.getter}, with {empty}, gets {len(shift.sources)} "
            f"of its partitions, with {shift.moved / 1e6:.1f} MB/s"
        )
        log.info("lanes_balanced", link=self._link, reason=text)
        self._records.lanes.tell("balance", text)
        return _Move(dict.fromkeys(shift.sources, shift.getter), (shift.giver,), (), goes_on=True)

    def _tell_givers(self, move: _Move, generation: Generation, now: float) -> _Move:
        """Takes the partitions of a published move from lanes that go on, and tells them."""
        number = generation.generation
        for getter in {lane for lane in move.to.values() if lane is not None}:
            # an attempt that begins from here on finds that generation in control
            self._lanes[getter].moved(number, ())
        taken = [item for giver in move.givers for item in self._lanes[giver].take(move.to, moved_by=number)]
        return move._replace(items=tuple(taken), told=generation, until=now + _CLAIM_SECONDS)

    def _proved(self, move: _Move) -> bool:
        """
        Waits a while until the lanes have proved that they gave the partitions; returns False if they have not yet.

        A lane whose claim of the generation is committed had its id behind the publication.  What initialises later
        reads the publication, and what did earlier is fenced by the attempt that claimed (EO-2).
        """
        number = 0 if move.told is None else move.told.generation
        proved = self._claims.wait(move.givers, number, REST_SECONDS)
        if proved:
            crash_point("owner.move_claimed")
        return proved

    def _ended(self, move: _Move) -> _Move:
        """Ends lanes that do not prove it, which are fenced then."""
        log.warning("lane_does_not_release", link=self._link, lanes=move.givers)
        for giver in move.givers:
            self._lanes[giver].take(())
        for giver in move.givers:
            self._lanes[giver].wait_at_rest(REST_SECONDS)
        return move._replace(goes_on=False)

    def _await_slot(self, lane: int) -> None:
        """Runs in a thread of its own while a lane has no slot: Spark begins a small job in its place if it has one."""
        while lane in self.slots.lent and not self._stopped.is_set():
            if self._jobs is not None and self._jobs.await_slot(self._link, lane):
                self.slots.found(lane, self._clock.monotonic())
            self._stopped.wait(_AGAIN_SECONDS)

    def _lane_of(self) -> dict[SourcePartition, int]:
        return {source: lane for lane, thread in self._lanes.items() for source in thread.partitions}

    def _cancel(self, lane: int) -> None:
        if self._jobs is not None:
            self._jobs.cancel(self._link, lane)
