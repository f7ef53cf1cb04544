"""
The checks that a lane passes before it fetches: control, positions, topics, and hanging transactions of its producers.

A new attempt passes all of them; partitions that are added later pass the last three.  For these, positions and topics
are read in a thread while the lane goes on with the others: no lane writes a partition between its publication, or the
proof that its lane has given it (docs/adr/0035), and its first transaction here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from eomirror.crash import crash_point
from eomirror.lane.errors import Outcome
from eomirror.lane.machine import Event
from eomirror.lane.spec import Ending
from eomirror.records.names import LinkNames
from eomirror.recovery.resolve_hanging import HangingResolver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from concurrent.futures import Future

    from eomirror.errors import MirrorError
    from eomirror.lane.epoch import LaneEpoch
    from eomirror.lane.partitions import LanePartitions
    from eomirror.lane.ports import StateReader, TopicComparer
    from eomirror.lane.spec import AssignedPartition, Released
    from eomirror.lane.transaction import LaneTransaction
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position
    from eomirror.recovery.hanging import HangingClient
    from eomirror.recovery.resume import SourceFacts, TargetFacts
    from eomirror.types import SourcePartition

__all__ = ["AddedRead", "LaneStart"]

log = structlog.get_logger(__name__)


class AddedRead(NamedTuple):
    """
    Results of the reads for added partitions.

    Attributes:
        added: The partitions.
        positions: Valid positions of the link.
        control: Content of control; None if no position is of a newer generation than the lane knows of.
        facts: Both sides of each partition that has a position.
    """

    added: tuple[AssignedPartition, ...]
    positions: Mapping[SourcePartition, Position]
    control: ControlView | None
    facts: Mapping[SourcePartition, tuple[SourceFacts, TargetFacts]]


class LaneStart:
    """
    Carries out the commands of a lane that start its partitions.

    Args:
        epoch: Epoch of the lane.
        partitions: Partitions of the lane.
        transaction: Has the plane that fetches, and the producer.
        state: Reads the link's state topics.
        topics: Reads both clusters' topics.
        hanging_client: Finds and ends hanging transactions on the target; None for no search.
        later: Reads for added partitions while the lane goes on.
    """

    def __init__(
        self,
        epoch: LaneEpoch,
        partitions: LanePartitions,
        transaction: LaneTransaction,
        *,
        state: StateReader,
        topics: TopicComparer,
        hanging_client: HangingClient | None,
        later: Callable[[Callable[[], AddedRead]], Future[AddedRead]],
    ) -> None:
        self._epoch = epoch
        self._partitions = partitions
        self._transaction = transaction
        self._state = state
        self._topics = topics
        self._names = LinkNames(epoch.spec.link.state_name)
        self._hanging_client = hanging_client
        self._resolver = (
            HangingResolver(self._names, hanging_client, transaction.mm2_records.readers)
            if hanging_client
            else None
        )
        # of any layout of the link
        self._highest_lane = epoch.spec.lane
        # of any lane
        self._newest = epoch.spec.generation
        # partitions to start: added by a revision, or between two epochs
        self._added: tuple[AssignedPartition, ...] = ()
        self._later = later
        self._reading: tuple[tuple[AssignedPartition, ...], Future[AddedRead]] | None = None

    def read_control(self) -> Event:
        """Reads control; the lane leaves if a newer generation stands there."""
        spec, self._reading = self._epoch.spec, None
        if self._resolver is not None:
            mine = self._transaction.identity.producer_id
            number = spec.lane % self._state.state_topics().positions_partitions
            if self._resolver.find_hanging_state(
                {number}, lambda: {mine: spec.lane}, self._state.read_positions
            ):
                return Event.HANGING_FOUND
        newest = self._state.read_control().generation
        crash_point("lane.control_read")
        number = 0 if newest is None else newest.of_lane(spec.lane)
        if newest is None or (number, newest.run) != (self._mine, spec.run):
            seen = "none" if newest is None else f"{number} of run {newest.run}"
            self._epoch.outcome = Outcome(
                Ending.SUPERSEDED, f"control holds generation {seen}, not {self._mine}"
            )
            return Event.CONTROL_NEWER
        self._highest_lane, self._newest = newest.highest_lane, newest.generation
        return Event.CONTROL_OURS

    def read_positions(self) -> Event:
        """Reads the positions of all partitions."""
        positions = self._state.read_positions()
        control = self._state.read_control() if self._is_newer(positions) else None
        self._take_positions(self._partitions.assigned, positions, control)
        crash_point("lane.positions_read")
        return Event.POSITIONS_READ

    def compare_topics(self) -> Event:
        """Compares both clusters with the positions, and fetches the partitions that are sound."""
        positions = self._partitions.positions
        if not self._started(tuple(positions), self._topics.facts(tuple(positions.values()))):
            return Event.HANGING_FOUND
        crash_point("lane.topics_compared")
        if not positions:
            self._epoch.outcome = Outcome(Ending.FAILED, "all topics of the lane are stopped")
            return Event.NOTHING_LEFT
        return Event.TOPICS_COMPARED

    def resolve_hanging(self) -> Event:
        """Ends hanging transactions of the lane's producers."""
        assert self._resolver is not None, "only a search leads here"  # noqa: S101  for the type checker
        self._epoch.keep_id()
        lane = self._epoch.spec.lane
        ended = self._resolver.end({lane: self._transaction.identity})
        log.warning("hanging_transactions_ended", lane=lane, committed=ended)
        crash_point("lane.hanging_resolved")
        return Event.RESOLVED

    def add(self, more: Iterable[AssignedPartition]) -> None:
        """Records partitions to start, those that the lane does not have."""
        self._added = self._partitions.new_among((*self._added, *more))

    def find_added(self) -> bool:
        """Returns True if added partitions can be started; reads for them first, while the lane goes on."""
        if not self._added:
            self._reading = None
            return False
        if self._reading is None or (self._reading[0] != self._added and self._reading[1].done()):
            added = self._added
            self._reading = added, self._later(lambda: self._read(added))
        return self._reading[0] == self._added and self._reading[1].done()

    @property
    def reading(self) -> bool:
        """True while added partitions are read for."""
        return self._reading is not None and not self._reading[1].done()

    def find_released(self, released: Released | None) -> bool:
        """Drops partitions that another lane gets; returns True if the driver waits for a claim without them."""
        if released is None:
            return False
        self._added = tuple(item for item in self._added if item.source not in released.sources)
        self._transaction.release(released)
        return True

    def adopt_partitions(self) -> Event:
        """Starts the added partitions."""
        assert self._reading is not None, "they were found"  # noqa: S101  for the type checker
        (_, reading), self._reading, self._added = self._reading, None, ()
        added, positions, control, facts = reading.result()
        self._partitions.assign(added)
        self._take_positions(added, positions, control)
        if not self._started([item.source for item in added], facts):
            return Event.HANGING_FOUND
        crash_point("lane.adopted")
        return Event.GAPS_ACCEPTED if self._partitions.gaps else Event.PARTITIONS_READY

    def stop_topic(self, topic: str, error: MirrorError) -> None:
        """Stops a topic, and logs it unless it was stopped before."""
        if self._partitions.stop(topic, error):
            _log_stopped(topic, error)

    # -- pieces ----------------------------------------------------------------------------------

    def _read(self, added: tuple[AssignedPartition, ...]) -> AddedRead:
        """Reads for added partitions; runs beside the lane."""
        positions = self._state.read_positions()
        control = self._state.read_control() if self._is_newer(positions) else None
        known = [positions[item.source] for item in added if item.source in positions]
        return AddedRead(added, positions, control, self._topics.facts(known))

    def _is_newer(self, positions: Mapping[SourcePartition, Position]) -> bool:
        return max((one.generation for one in positions.values()), default=0) > self._newest

    def _take_positions(
        self,
        wanted: Sequence[AssignedPartition],
        positions: Mapping[SourcePartition, Position],
        control: ControlView | None,
    ) -> None:
        if control is not None:
            # partitions may have been moved between other lanes since this lane has read control
            self._newest = self._newest_of_run(control)
        self._partitions.take(
            wanted,
            positions,
            generation=self._newest,
            topic=self._names.positions_topic,
        )

    def _newest_of_run(self, control: ControlView) -> int:
        """Returns the newest generation of this run; that of this attempt if control is another run's."""
        spec, newest = self._epoch.spec, control.generation
        # its own lane's may be published, and the lane not be told of it yet
        return newest.generation if newest is not None and newest.run == spec.run else spec.generation

    @property
    def _mine(self) -> int:
        # a lane that got or gave partitions while it ran is of the generation that moved them
        return max(self._epoch.spec.generation, self._partitions.generation)

    def _started(
        self,
        sources: Sequence[SourcePartition],
        facts: Mapping[SourcePartition, tuple[SourceFacts, TargetFacts]],
    ) -> bool:
        """Fetches sound partitions and stops unsound topics; False if hanging transactions must be resolved first."""
        positions, spec = self._partitions.positions, self._epoch.spec
        resumed = self._partitions.resume(
            [positions[one] for one in sources],
            facts,
            accept_gaps=spec.link.on_gap == "accept",
            keyed=spec.link.keyed,
            run=spec.run,
            wall_ms=self._epoch.clock.wall_ms(),
        )
        for topic, error in resumed.stopped:
            _log_stopped(topic, error)
        compared = {one: positions[one] for one in sources if one in positions}
        if self._resolver is not None and self._find_hanging_copies(self._resolver, compared):
            return False
        self._transaction.plane.start([one for one in resumed.starts if one.source in positions])
        return True

    def _find_hanging_copies(
        self, resolver: HangingResolver, compared: Mapping[SourcePartition, Position]
    ) -> bool:
        """Returns whether hanging transactions must be resolved; else stops topics whose positions are wrong."""

        def stop(position: Position, error: MirrorError) -> None:
            self.stop_topic(position.topic, error)

        spec = self._epoch.spec
        topics, dead_letters = self._state.state_topics(), spec.link.on_refused == "dead-letter"
        mine = {self._transaction.identity.producer_id: spec.lane}
        found = resolver.find_hanging_copies(
            compared, topics=topics, dead_letters=dead_letters, mine=mine, lanes=self._lanes, stop=stop
        )
        if not found:
            left = [one for source, one in compared.items() if source in self._partitions.positions]
            resolver.stop_torn_topics(left, lanes=self._lanes, again=self._state.read_positions, stop=stop)
            resolver.release()
        return found

    def _lanes(self) -> Mapping[int, int]:
        """Returns producer id -> lane, for this lane and those that may have had its partitions before."""
        assert self._hanging_client is not None, "only a search leads here"  # noqa: S101  for the type checker
        return {
            **self._hanging_client.lanes(self._highest_lane),
            self._transaction.identity.producer_id: self._epoch.spec.lane,
        }


def _log_stopped(topic: str, error: MirrorError) -> None:
    log.error("topic_stopped", topic=topic, reason=error.message, fix=error.fix)
