"""
The checks that a lane passes before it fetches: control, positions, topics, and hanging transactions of its producers.

A new attempt passes all of them; partitions that are added later pass the last three.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.crash import crash_point
from eomirror.lane.errors import Outcome
from eomirror.lane.machine import Event
from eomirror.lane.spec import Ending
from eomirror.records.names import LinkNames
from eomirror.recovery.resolve_hanging import HangingResolver

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.errors import MirrorError
    from eomirror.lane.epoch import LaneEpoch
    from eomirror.lane.partitions import LanePartitions
    from eomirror.lane.ports import StateReader, TopicComparer
    from eomirror.lane.spec import AssignedPartition, Released
    from eomirror.lane.transaction import LaneTransaction
    from eomirror.records.position import Position
    from eomirror.recovery.hanging import HangingClient
    from eomirror.types import SourcePartition

__all__ = ["LaneStart"]

log = structlog.get_logger(__name__)


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

    def read_control(self) -> Event:
        """Reads control; the lane leaves if a newer generation stands there."""
        spec = self._epoch.spec
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
        self._take_positions(self._partitions.assigned)
        crash_point("lane.positions_read")
        return Event.POSITIONS_READ

    def compare_topics(self) -> Event:
        """Compares both clusters with the positions, and fetches the partitions that are sound."""
        if not self._started(tuple(self._partitions.positions)):
            return Event.HANGING_FOUND
        crash_point("lane.topics_compared")
        if not self._partitions.positions:
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

    def find_added(self, *more: AssignedPartition) -> bool:
        """Returns True if partitions are to be started: ``more`` ones, or ones that the driver has added."""
        self._added = self._partitions.new_among((*self._added, *more))
        return bool(self._added)

    def find_released(self, released: Released | None) -> bool:
        """Drops partitions that another lane gets; returns True if the driver waits for a claim without them."""
        if released is None:
            return False
        self._added = tuple(item for item in self._added if item.source not in released.sources)
        self._transaction.release(released)
        return True

    def adopt_partitions(self) -> Event:
        """Starts the added partitions."""
        added, self._added = self._added, ()
        self._partitions.assign(added)
        self._take_positions(added)
        if not self._started([item.source for item in added]):
            return Event.HANGING_FOUND
        return Event.GAPS_ACCEPTED if self._partitions.gaps else Event.PARTITIONS_READY

    def stop_topic(self, topic: str, error: MirrorError) -> None:
        """Stops a topic, and logs it unless it was stopped before."""
        if self._partitions.stop(topic, error):
            _log_stopped(topic, error)

    # -- pieces ----------------------------------------------------------------------------------

    def _take_positions(self, wanted: Sequence[AssignedPartition]) -> None:
        positions = self._state.read_positions()
        if max((one.generation for one in positions.values()), default=0) > self._newest:
            # partitions may have been moved between other lanes since this lane has read control
            self._newest = self._newest_of_run()
        self._partitions.take(
            wanted,
            positions,
            generation=self._newest,
            topic=self._names.positions_topic,
        )

    def _newest_of_run(self) -> int:
        """Returns the newest generation of this run; that of this attempt once its lane is of another one."""
        spec, newest = self._epoch.spec, self._state.read_control().generation
        if newest is None or (newest.of_lane(spec.lane), newest.run) != (self._mine, spec.run):
            return spec.generation
        return newest.generation

    @property
    def _mine(self) -> int:
        # a lane that got or gave partitions while it ran is of the generation that moved them
        return max(self._epoch.spec.generation, self._partitions.generation)

    def _started(self, sources: Sequence[SourcePartition]) -> bool:
        """Fetches sound partitions and stops unsound topics; False if hanging transactions must be resolved first."""
        positions, spec = self._partitions.positions, self._epoch.spec
        resumed = self._partitions.resume(
            wanted := [positions[one] for one in sources],
            self._topics.facts(wanted),
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
