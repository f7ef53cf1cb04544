"""
Moves partitions from lanes that have no slot on Spark to lanes that run, and back (docs/adr/0030).

Lanes themselves move only with a local master, to Spark once it is ready (`eomirror.spark.local_lanes`): no slot is
lost there, and no partition changes its lane.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import structlog

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

__all__ = ["PartitionMoves"]

log = structlog.get_logger(__name__)

# for a lane that gives partitions to finish its transaction; a later one is fenced
_REST_SECONDS = 3.0
# between two looks for a slot: a slot that another lane takes between two attempts is seen for a moment only
_AGAIN_SECONDS = 2.0


class _Move(NamedTuple):
    """
    A move of partitions between lanes.

    Attributes:
        to: New lane of each partition.
        givers: Lanes that had them.
        items: The partitions.
    """

    to: Mapping[SourcePartition, int]
    givers: tuple[int, ...]
    items: tuple[AssignedPartition, ...]


class PartitionMoves:
    """
    Moves partitions between the lanes of one link.  One thread calls `look`; the rest is thread-safe.

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

    def start(self, jobs: LaneJobs | MovingJobs) -> None:
        """Takes the jobs of the lanes."""
        self._jobs = jobs

    def stop(self) -> None:
        """Ends the jobs that wait for slots."""
        self._stopped.set()
        for lane in list(self.slots.lent):
            self._cancel(lane)

    def look(
        self, publish: Callable[[Mapping[SourcePartition, int], Collection[int]], Generation]
    ) -> tuple[int, Collection[SourcePartition]] | None:
        """
        Begins lanes again whose worker is gone, and moves partitions from lanes without a slot to others, and back.

        Args:
            publish: Publishes a move and fences the lanes that give; repeated with the same move until it returns.

        Returns:
            The new generation and what was moved; None if nothing moved.
        """
        with self.whole:
            return self._look(publish)

    def _look(
        self, publish: Callable[[Mapping[SourcePartition, int], Collection[int]], Generation]
    ) -> tuple[int, Collection[SourcePartition]] | None:
        now = self._clock.monotonic()
        for lane in self.slots.dead(now):
            # Spark may only begin its task again, on a slot that it does not have, and tell the driver nothing
            log.warning("lane_lost", link=self._link, lane=lane, reason="its connection to the driver broke")
            self._cancel(lane)
        self._tell_waiting(now)
        if self._stopped.is_set():
            return None
        if self._move is None:
            self._move = self._next(now)
        if (move := self._move) is None:
            return None
        generation = publish(move.to, move.givers)
        self._move = None
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
        return generation.generation, move.to.keys()

    @property
    def pending(self) -> bool:
        """True if partitions are between two lanes: a publication failed, and is repeated.  Read it under `whole`."""
        return self._move is not None

    # -- inside ----------------------------------------------------------------------------------

    def _next(self, now: float) -> _Move | None:
        due = self.slots.due(now)
        if due is None:
            # the owner gives new partitions to the lane that has the fewest
            due = next((lane for lane in list(self.slots.lent) if self._lanes[lane].partitions), None)
        if due is not None:
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
            self._lanes[lane].wait_at_rest(_REST_SECONDS)
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
            self._lanes[giver].wait_at_rest(_REST_SECONDS)
        return _Move(to, tuple(givers), tuple(items))

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
