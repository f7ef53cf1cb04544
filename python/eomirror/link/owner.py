"""
The owner of a link: takes it, publishes lane layouts, keeps the claim alive (EO-2, EO-8, EO-9, EO-10).

The steps of `LinkOwner.acquire`, with a crash point between each two:

1. watch: read control, and wait until its claim is released, dead, or advances (then leave);
2. initialize: InitProducerId of the control producer, which fences an older owner's;
3. read control again, to its end: no other mirror can write it from here; leave if another mirror claimed the link;
4. check the positions against it (advisory: lanes of the old owner may still write), and other links that write on
   the source;
5. publish: generation + 1, our claim, and first positions of partitions that are new to control, in one transaction;
6. fence: InitProducerId for every lane id that any generation ever used;
7. adopt: the positions that the user overrules, and those of topics that were made again.  Not earlier: a lane that
   lived until it was fenced has committed under the same keys;
8. check other links again: of two links that feed each other, or write the same copies, and start at the same time, at
   least one sees the other's claim;
9. compare the logs of partitions that a reversal has begun, and of which no lane has written a record
   (`eomirror.link.start_checks`).

Lanes may start only after `acquire` has returned; each reads control and positions again.

`LinkOwner.retake` takes the same steps for a promotion, with the layout that control has: it asks the target only, so
that it works without the source.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.config.changes import with_live
from eomirror.crash import crash_point
from eomirror.errors import (
    FencedError,
    LaneError,
    MirrorError,
    NotReadyError,
    StoppedError,
    SupersededError,
)
from eomirror.link.assignment import Layout, by_lane, estimated_bytes, layout_of
from eomirror.link.claim import is_dead
from eomirror.link.control_producer import given_up, refuse_unwritable
from eomirror.link.first_positions import (
    Begin,
    FirstPositions,
    Predecessor,
    backlog,
    of_grown_topics,
    without_surplus,
)
from eomirror.link.owned_control import TRIES, OwnedControl
from eomirror.link.ownership import (
    CLAIM_INTERVAL_SECONDS,
    STANDBY_INTERVAL_SECONDS,
    ClaimDecision,
    check_positions,
    judge_claim,
    left,
    moved,
    next_generation,
    refuse_ended,
    revised,
    unpublished,
)
from eomirror.link.start_checks import (
    BEFORE,
    FENCED,
    NEW,
    NEW_COPIES,
    StartChecks,
    StartFacts,
    warn_of_lost_deletions,
)
from eomirror.link.start_rules import still_marking, unmoved
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.control import ControlView, HandedOver, Pause

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.lane.spec import AssignedPartition
    from eomirror.link.standby import StoodStill
    from eomirror.link.start_rules import ReverseLink
    from eomirror.records.control import Claim, Generation
    from eomirror.records.position import Position
    from eomirror.records.promotion import Promotion, Restoration, Resumption, Reversal
    from eomirror.records.recreation import CopyBack, Recreation
    from eomirror.recovery.hanging import HangingClient
    from eomirror.types import SourcePartition

__all__ = ["LinkOwner"]

log = structlog.get_logger(__name__)

_Taken = TypeVar("_Taken")

_LOOK_SECONDS = 0.5


class _Given(NamedTuple):
    """Arguments of `LinkOwner` that decide how it takes the link."""

    take_back: bool
    although_promoted: bool
    decided: Resumption | Reversal | None
    order: CopyBack | None
    begins: Mapping[SourcePartition, Begin]
    predecessors: Mapping[SourcePartition, Predecessor]
    by_backlog: bool


class LinkOwner:
    """
    Owns one link on behalf of one run of a mirror.  Thread-safe: calls are serialized.

    Args:
        run: Id of this run.
        take_over: Take the link even from a living owner; a mirror never takes it from a living command.
        take_back: Take the link although it was handed to another replicator; ``adopt`` then holds its resume offsets.
        although_promoted: Take the link although it is promoted.
        decided: Record of failover that is committed with the positions that ``adopt`` sets, such as the end of the
            link's promotion.
        order: Order that is committed with the layout, before any position.
        adopt: Resume offsets of partitions whose position is missing or is overruled.
        begins: How the caller found both logs of these, as far as it knows.
        predecessors: State of another replicator for the partitions that are adopted from it.
        on_event: Receives a short text for each step, for progress.
        into_filled: True if records stay in copies that the link has no position for.
        by_backlog: Assign all partitions to lanes again, by what each has left to copy.
        hanging_client: Makes the client for hanging transactions on the target (`eomirror.recovery.hanging_client`).
        command: Command that takes the link, which its claim names; empty for a mirror.

    Attributes:
        refused: As of `StartChecks`.
        published: True once a layout of this owner was committed: ``take_over`` has had its effect then (EO-10).
    """

    def __init__(
        self,
        link: Link,
        source: ClusterSession,
        target: ClusterSession,
        *,
        run: str,
        clock: Clock = SYSTEM_CLOCK,
        take_over: bool = False,
        take_back: bool = False,
        although_promoted: bool = False,
        decided: Resumption | Reversal | None = None,
        order: CopyBack | None = None,
        adopt: Mapping[SourcePartition, int] | None = None,
        begins: Mapping[SourcePartition, Begin] | None = None,
        predecessors: Mapping[SourcePartition, Predecessor] | None = None,
        on_event: Callable[[str], None] | None = None,
        into_filled: bool = False,
        by_backlog: bool = False,
        hanging_client: Callable[[Link, ClusterSession], HangingClient] | None = None,
        command: str = "",
    ) -> None:
        self.published = False
        self._link = link
        self._clock = clock
        self._judge = partial(judge_claim, run=run, take_over=take_over, is_dead=is_dead, command=command)
        self._given = _Given(
            take_back,
            although_promoted,
            decided,
            order,
            dict(begins or {}),
            dict(predecessors or {}),
            by_backlog,
        )
        self._adopt = dict(adopt or {})
        self._on_event = on_event or (lambda _: None)
        self._lock = threading.RLock()
        self._source_admin = source.admin
        client = None if hanging_client is None else hanging_client(link, target)
        self._control = OwnedControl(
            link,
            target,
            run=run,
            clock=clock,
            hanging_client=client,
            command=command,
            although_promoted=although_promoted,
        )
        self._checks = StartChecks(link, source, target, into_filled=into_filled, hanging_client=client)
        self.refused = self._checks.refused
        self._cluster_ids = ("", "")
        self._stopped: Callable[[], bool] = bool
        self._stood: StoodStill | None = None

    # -- taking the link -------------------------------------------------------------------------

    def acquire(
        self,
        lanes: int,
        partitions: Sequence[AssignedPartition],
        *,
        stopped: Callable[[], bool] = bool,
        stood: StoodStill | None = None,
    ) -> Layout:
        """
        Takes the link and publishes a lane layout; see the module's docstring for the steps.

        Args:
            lanes: Number of lanes.
            partitions: All partitions to mirror.
            stopped: Returns True if the run was asked to stop; called until the layout is published.
            stood: Claim that the caller has watched; None for none.

        Raises:
            StoppedError: ``stopped`` returned True.
            SupersededError: A living mirror owns the link.
            StateError: The state topics contradict each other.
            TopicError: Another link would bring the mirrored records back.
            MirrorError: A cluster refuses the request.
        """
        self._stopped = stopped
        self._stood = stood
        with self._lock:
            source = self._source_admin.describe_cluster()
            target = self._control.target_admin.describe_cluster()
            self._cluster_ids = self._checks.cluster_ids = source.cluster_id, target.cluster_id
            return self._taken(lambda met, fenced: self._acquire(lanes, partitions, met, fenced=fenced))

    def retake(self) -> tuple[ControlView, Mapping[SourcePartition, Position]]:
        """
        Takes the link with the lane layout that it has, from the target alone: no lane can commit any more.

        The layout gets the next generation, because a lane that starts again after it was fenced finds its own
        generation in control, and would mirror on.

        Returns:
            Control as it was read, with the new generation; and the final positions.

        Raises:
            SupersededError: A living mirror owns the link.
            NotReadyError: The link never ran, or is promoted.
            StateError: The state topics contradict each other.
            MirrorError: The target refuses the request.
        """
        with self._lock:
            return self._taken(self._retake)

    def _taken(self, take: Callable[[Claim | None, bool], _Taken]) -> _Taken:
        """Calls ``take`` with the first claim and True if this producer was fenced; repeats it after a lane's error."""
        met: ControlView | None = None
        fenced = False
        for attempt in range(TRIES):
            try:
                met = met or self._control.state.control(wait_for_open=False)
                self._refuse_ended(met)
                return take(met.claim, fenced)
            except FencedError as error:
                # Another mirror initialized between two of our steps; give way to it.
                fenced = True
                log.info("owner_fenced_while_taking", link=self._link.name, error=str(error))
                self._on_event("another mirror is taking the link; looking again")
            except SupersededError:
                raise
            except LaneError as error:
                fenced = False
                log.info("owner_retry", link=self._link.name, attempt=attempt, error=str(error))
                refuse_unwritable(self._link, self._control.target_admin)
                self._clock.sleep(0.2 * (attempt + 1))
        raise given_up(self._link, self._control.target_admin, "take the link", TRIES)

    def _retake(
        self, met: Claim | None, fenced: bool  # noqa: FBT001  as `_taken` calls it
    ) -> tuple[ControlView, Mapping[SourcePartition, Position]]:  # fmt: skip
        view, positions = self._entered(met, fenced=fenced)
        before = view.generation
        if before is None:
            raise NotReadyError(
                f"link {self._link.name} never ran: there is nothing to promote",
                fix="compare the name of the link with that of the run; to mirror: `eomirror run CONFIG`",
            )
        generation = next_generation(
            view,
            run=self._control.run,
            lanes=before.assignment.lanes,
            partitions=before.assignment.partitions,
            now_ms=self._clock.wall_ms(),
            above=max((position.generation for position in positions.values()), default=0),
        )
        self._on_event("publishing the next generation")
        self._control.publish_layout(generation, ())
        self._control.generation = generation
        self.published = True
        crash_point("owner.published")
        self._on_event("fencing all lanes")
        self._control.fence_lanes(generation.highest_lane)
        crash_point("owner.fenced_all")
        return replace(view, generation=generation), self._control.state.positions(
            wait_for_open=True, overruled=()
        )

    def _entered(
        self, met: Claim | None, *, fenced: bool
    ) -> tuple[ControlView, Mapping[SourcePartition, Position]]:
        """Takes the steps until the positions are checked: returns control, and positions that may still advance."""
        self._watch(met, fenced=fenced)
        crash_point("owner.watched")
        self._control.initialize()
        crash_point("owner.initialized")
        view = self._control.read()
        # Claims that became visible between the last look and our InitProducerId.
        if self._judge(met, view.claim, watched=float("inf")) is ClaimDecision.LEAVE:
            raise self._control.superseded(view)
        self._refuse_ended(view)
        self._control.producer.owner, self._control.producer.dated = view.claim, view.dated
        crash_point("owner.control_read")
        # Before the old lanes are fenced: their open transactions hide no newer generation.
        positions = self._control.state.positions(wait_for_open=False, overruled=self._adopt.keys())
        check_positions(
            self._link.name,
            view,
            positions,
            map_has_records=view.generation is None and self._control.state.map_has_records(),
        )
        return view, positions

    def _acquire(
        self, lanes: int, partitions: Sequence[AssignedPartition], met: Claim | None, *, fenced: bool
    ) -> Layout:
        view, positions = self._entered(met, fenced=fenced)
        self._link = still_marking(self._link, positions.values())
        above = max((position.generation for position in positions.values()), default=0)
        again = self._firsts(positions).begun_again(partitions, self._adopt)
        earlier = {positions[source].target_topic for source in again}
        positions = {source: one for source, one in positions.items() if source not in again}
        first_run = view.generation is None
        self._checks.refuse(
            BEFORE,
            StartFacts(
                items=partitions,
                starts=unmoved(positions, self._adopt),
                known=self._adopt,
                first_run=first_run,
            ),
        )
        crash_point("owner.positions_checked")
        self._on_event("publishing the lane layout")
        known = frozenset() if view.generation is None else view.generation.assignment.known
        offered = {item.source for item in partitions}
        self._adopt = without_surplus(
            self._link, self._source_admin, self._adopt, offered=offered, known=known
        )
        had = () if view.generation is None else view.generation.assignment.partitions
        grown = of_grown_topics(partitions, positions, had)
        if torn := unpublished(view, positions).keys() & offered:
            log.warning("publication_taken_up", link=self._link.name, partitions=sorted(map(str, torn)))
        known |= torn
        if not first_run:
            asked = StartFacts(items=partitions, known={*known, *self._adopt} - again)
            asked = asked.of_others(view, positions, but={*self._adopt, *grown})
            partitions = self._checks.without_refused(NEW_COPIES, asked)
        resume_at = {source: one.offset for source, one in positions.items()} | self._adopt
        generation = next_generation(
            view,
            run=self._control.run,
            lanes=lanes,
            partitions=[item.source for item in partitions],
            now_ms=self._clock.wall_ms(),
            above=above,
            without=again,
            backlog=backlog(self._source_admin, partitions, resume_at) if self._given.by_backlog else None,
            weights=estimated_bytes(positions.values()) if self._link.balance == "bytes" else None,
        )
        first, overruled = self._firsts(positions).published_and_adopted(
            generation, partitions, known, adopt=self._adopt, grown=grown, again=again, first_run=first_run
        )
        self._refuse_stopped()
        ordered = [] if self._given.order is None else self._control.records(self._given.order)
        # where one process stands by, others do
        interval = CLAIM_INTERVAL_SECONDS if self._stood is None else STANDBY_INTERVAL_SECONDS
        self._control.publish_layout(generation, [*ordered, *first], interval=interval)
        self._control.generation = generation
        self.published = True
        crash_point("owner.published")
        self._on_event("fencing lanes of older generations")
        self._control.fence_lanes(generation.highest_lane)
        crash_point("owner.fenced_all")
        overruled += self._control.forgotten(again - generation.assignment.known, earlier)
        if view.handed_over is not None:
            # With the positions, not with the generation: between the two the old positions are valid.
            overruled.append(MetadataRecord(self._control.names.control_topic, 0, HandedOver.key(), None))
        if self._given.decided is not None:
            overruled += self._control.records(self._given.decided)
        if overruled:
            self._on_event("adopting positions")
            self._control.producer.publish(overruled)
        waiting = [
            one
            for source, one in positions.items()
            if source in generation.assignment.partitions and source not in self._adopt
        ]
        self._adopt.clear()
        self._checks.refuse(
            FENCED, StartFacts(items=partitions, waiting=waiting, highest_lane=generation.highest_lane)
        )
        warn_of_lost_deletions(
            self._link.name, self._source_admin, partitions, positions, generation.timestamp
        )
        return layout_of(
            generation, partitions, self._cluster_ids,
            provenance_header=self._link.provenance_header, stopped=view.stopped, pause=view.pause,
        )  # fmt: skip

    def _refuse_stopped(self) -> None:
        if self._stopped():
            raise StoppedError(f"link {self._link.name}: stopped before it was taken")

    def _watch(self, met: Claim | None, *, fenced: bool) -> None:
        started = self._clock.monotonic()
        if self._stood is not None and self._stood.claim == met and not fenced:
            started = self._stood.since
        while True:
            self._refuse_stopped()
            view = self._control.state.control(wait_for_open=False)
            latest = view.claim
            decision = self._judge(met, latest, watched=self._clock.monotonic() - started, fenced=fenced)
            if decision is ClaimDecision.TAKE:
                return
            if decision is ClaimDecision.LEAVE:
                raise self._control.superseded(view)
            self._on_event(f"watching the claim of run {latest.run if latest else '?'}")
            self._clock.sleep(_LOOK_SECONDS)

    # -- keeping it ------------------------------------------------------------------------------

    def extend(
        self,
        partitions: Sequence[AssignedPartition],
        needs: Mapping[SourcePartition, float] | None = None,
        *,
        given_up: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[int, tuple[AssignedPartition, ...]]:
        """
        Adds partitions to lanes with a revision, which is published before any lane receives it.

        Args:
            partitions: The partitions.
            needs: Bytes a second that the link's partitions need, as far as known.
            given_up: Topics that another link of this run had, with its state name: this one goes on at its positions.

        Returns:
            The added partitions of each lane, without those that a check refuses, which are logged.

        Raises:
            SupersededError: Another mirror took the link.
            MirrorError: The target refuses the request.
        """
        # Not under the lock: a source that does not answer must not delay the claim's renewal.
        partitions = self._checks.without_refused(NEW, StartFacts(items=partitions))
        with self._lock:
            before = self._control.layout()
        had, known = before.assignment.partitions, before.assignment.known
        grown: set[SourcePartition] = set()
        positions: Mapping[SourcePartition, Position] = {}
        if any(item.source in known for item in partitions):
            # an older position of this link would make another one's look newer
            positions = self._control.state.positions(wait_for_open=True, overruled=())
            grown = of_grown_topics(partitions, positions, had)
        # Not under the lock either; only the calling thread adds partitions.  What was published by a call whose answer
        # was lost is in no lane, and another link may have carried it on since.
        offsets = {source: one.offset for source, one in positions.items() if source not in grown}
        partitions, given = self._checks.joining(partitions, known, offsets, given_up)
        with self._lock:
            fresh = [item for item in partitions if item.source not in had or item.source in given]
            if not fresh:
                return by_lane(before, partitions)
            self._refuse_closed()
            sources, now_ms = [item.source for item in fresh], self._clock.wall_ms()
            # partitions may have been moved meanwhile
            after = revised(self._control.layout(), sources, now_ms=now_ms, weights=needs)
            self._control.revise(
                after,
                lambda: self._firsts(positions, given).records(
                    after, fresh, known - grown, adopt={}, start="earliest"
                ),
            )
            crash_point("owner.revision_published")
            return by_lane(after, partitions)

    def forget(self, topics: Mapping[str, bytes]) -> None:
        """
        Forgets topics that have left the link with their copies: one of that name is new to it from here on.

        A call that failed is repeated with the same topics, until it returns.

        Args:
            topics: The topics, which `move` has parked: a lane that lived on would commit under the same keys.  With
                the key of the record of control that says so, which is deleted with the positions.

        Raises:
            SupersededError: Another mirror took the link.
            MirrorError: The target refuses the request.
        """
        with self._lock:
            self._refuse_closed()
            self._control.refuse_superseded()
            known = self._control.layout().assignment.known
        # Not under the lock: it must not delay the claim's renewal.
        positions = self._control.state.positions(wait_for_open=False, overruled=())
        sources = {one for one in known | positions.keys() if one.topic in topics}
        copies = {one.target_topic for one in positions.values() if one.topic in topics}
        crash_point("owner.parked")
        control = self._control.names.control_topic
        records = self._control.forgotten(sources, copies)
        records += [MetadataRecord(control, 0, key, None) for key in topics.values()]
        with self._lock:
            self._refuse_closed()
            after = left(self._control.layout(), sources, now_ms=self._clock.wall_ms())
            self._control.revise(after, lambda: records)

    def reconfigure(self, given: Link) -> None:
        """Takes changed settings, of which those in `eomirror.config.changes.LIVE` count."""
        with self._lock:
            self._link = with_live(self._link, given)

    def move(
        self, lanes: Mapping[SourcePartition, int | None], givers: Collection[int], *, fence: bool = True
    ) -> Generation:
        """
        Moves partitions to other lanes; returns the layout, after which those lanes may receive them.

        It is published before the lanes that had the partitions are fenced: an attempt that starts between the two
        reads control behind its own InitProducerId, and leaves.  A call that failed is repeated with the same
        arguments, until it returns (docs/adr/0030).

        Args:
            lanes: New lane of each partition; None for one that leaves the link.
            givers: Lanes that had them.
            fence: False if the lanes go on: the caller gives the partitions to no lane before each of them has proved
                that it dropped them, or this was called again with True (docs/adr/0035).

        Raises:
            SupersededError: Another mirror took the link.
            MirrorError: The target refuses the request.
        """
        with self._lock:
            self._refuse_closed()
            after = self._control.layout()
            if any(after.assignment.partitions.get(source) != lane for source, lane in lanes.items()):
                after = moved(after, lanes, givers=givers, now_ms=self._clock.wall_ms())
                self._control.revise(after, tuple)
            else:
                # published by a call that could not fence: meanwhile the lanes may be those of another mirror
                self._control.refuse_superseded()
            crash_point("owner.move_published")
        if fence:
            # Not under the lock: a slow coordinator must not delay the claim's renewal.
            self._control.fence_lanes(after.highest_lane, only=givers)
            crash_point("owner.move_fenced")
        return after

    def renew(
        self, notes: Sequence[MetadataRecord] = (), *, interval: float = CLAIM_INTERVAL_SECONDS
    ) -> None:
        """
        Renews the claim and commits ``notes`` with it.

        Args:
            interval: Seconds after which it is to be called again.

        Raises:
            SupersededError: Another mirror took the link.
        """
        with self._lock:
            if not self._control.closed:
                self._control.guarded(
                    lambda: self._control.producer.commit(
                        [self._control.claim(released=False, interval=interval), *notes]
                    )
                )

    def check(self) -> None:
        """
        Finds out why a lane was fenced; returns if this mirror did it, and the lane is rebuilt.

        Raises:
            SupersededError: Another mirror fenced the lane.
        """
        with self._lock:
            self._control.refuse_superseded()

    def release(self, notes: Sequence[MetadataRecord] = (), *, alone: bool = False) -> bool:
        """Releases the link, with ``notes``; returns False if not.  ``alone``: other links of the run go on."""
        with self._lock:
            if not self._control.producer.ready or self._control.generation is None or self._control.closed:
                return False
            try:
                self._control.producer.commit([*notes, self._control.claim(released=True, alone=alone)])
            except (LaneError, MirrorError) as error:
                log.info("claim_not_released", link=self._link.name, error=str(error))
                return False
            return True

    def hand_over(self, records: Sequence[MetadataRecord], *, replicator: str, place: str) -> None:
        """
        Hands the link to another replicator, with the state that it needs, in one transaction.

        No mirror can take the link in between: a newcomer's InitProducerId either fences this transaction, or comes
        after it and finds the link handed over.

        Args:
            records: Records that the other replicator reads.
            place: Topic that they go to.

        Raises:
            SupersededError: Another mirror took the link.
            MirrorError: The target refuses the request.
        """
        with self._lock:
            record = HandedOver(
                replicator=replicator, place=place, run=self._control.run, timestamp=self._clock.wall_ms()
            )
            handed_over = MetadataRecord(self._control.names.control_topic, 0, record.key(), record.value())
            self._control.guarded(
                lambda: self._control.producer.commit(
                    [*records, handed_over, self._control.claim(released=True)]
                )
            )

    def promote(
        self, promotion: Promotion, moved: Sequence[Position] = (), *, look: Callable[[], None] = lambda: None
    ) -> None:
        """
        Commits the promotion of the link and releases it, in one transaction; a pause ends with it.

        Args:
            moved: Positions of partitions whose cut is another than their position.
            look: Called before each try, after the control producer was initialized; raises if the link must not be
                promoted.  What changes this fences the control producer first, and so fails the commit.

        Raises:
            SupersededError: Another mirror took the link; it is not promoted.
            MirrorError: The target refuses the request.
        """

        def publish() -> None:
            look()
            resumed = MetadataRecord(self._control.names.control_topic, 0, Pause.key(), None)
            self._control.producer.publish(
                [*positions, *self._control.records(promotion), resumed, self._control.claim(released=True)]
            )

        with self._lock:
            count = self._control.state.positions_partitions() if moved else 1
            topic = self._control.names.positions_topic
            positions = [MetadataRecord(topic, one.lane % count, one.key(), one.value()) for one in moved]
            self._control.guarded(publish)

    def note(self, record: Reversal | Restoration | Recreation | CopyBack) -> None:
        """
        Commits a record of failover.

        Raises:
            SupersededError: Another mirror took the link.
            MirrorError: The target refuses the request.
        """
        with self._lock:
            self._control.guarded(lambda: self._control.producer.publish(self._control.records(record)))

    def close(self) -> None:
        """Closes the control producer."""
        with self._lock:
            self._control.close()

    # -- inside ----------------------------------------------------------------------------------

    def _refuse_closed(self) -> None:
        if self._control.closed:
            raise StoppedError(f"link {self._link.name}: stopped")

    def _refuse_ended(self, view: ControlView) -> None:
        given = self._given
        refuse_ended(self._link, view, take_back=given.take_back, although_promoted=given.although_promoted)

    def _firsts(
        self,
        positions: Mapping[SourcePartition, Position],
        given: Mapping[SourcePartition, ReverseLink] | None = None,
    ) -> FirstPositions:
        return FirstPositions(
            self._link, self._control.names, source=self._source_admin, target=self._control.target_admin,
            source_cluster_id=self._cluster_ids[0], run=self._control.run,
            identity=self._control.producer.identity(), now_ms=self._clock.wall_ms(),
            predecessors=self._given.predecessors, checks=self._checks, before=positions,
            begins=self._given.begins, given=given or {},
        )  # fmt: skip
