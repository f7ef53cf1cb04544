"""
Tracks a lane's partitions, their positions and the stopped topics. Pure.

A broken partition stops its whole topic: positions of its other partitions can no longer be trusted.  Other topics of
the lane continue (EO-5, EO-6).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.errors import FencedError, MirrorError
from eomirror.lane.commit import behind_gap
from eomirror.lane.spec import StoppedTopic
from eomirror.plane.protocol import Flushed, Start
from eomirror.records.control import Gap
from eomirror.recovery.resume import Stop, decide_resume, placement_error

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.lane.commit import TransactionStamp
    from eomirror.lane.spec import AssignedPartition
    from eomirror.records.position import Position
    from eomirror.recovery.resume import Resume, SourceFacts, TargetFacts
    from eomirror.types import SourcePartition

__all__ = ["LanePartitions", "Resumed"]


@dataclass(frozen=True, slots=True)
class Resumed:
    """
    Result of comparing positions with both clusters.

    Attributes:
        starts: Fetch offsets of sound partitions.
        stopped: Topics that the comparison stopped, and why.
    """

    starts: Sequence[Start]
    stopped: Sequence[tuple[str, MirrorError]]


class LanePartitions:
    """
    The partitions of one lane.

    Args:
        assigned: Initial assignment.

    Attributes:
        positions: Committed positions, without stopped topics.
        gaps: Accepted gaps that the next claim records (EO-6).
        stopped: Stopped topics.
        targets: Target topics by source topic.
        generation: Newest generation that moved a partition to or from this lane; 0 for none (docs/adr/0030).
        released: The same, of moves from this lane.
    """

    def __init__(self, assigned: Iterable[AssignedPartition]) -> None:
        self.positions: dict[SourcePartition, Position] = {}
        self.gaps: list[Gap] = []
        self.stopped: dict[str, StoppedTopic] = {}
        self.targets: dict[str, str] = {}
        self.generation = self.released = 0
        self._assigned: dict[SourcePartition, AssignedPartition] = {}
        self.assign(assigned)

    @property
    def assigned(self) -> tuple[AssignedPartition, ...]:
        """All partitions of the lane, revisions included."""
        return tuple(self._assigned.values())

    def assign(self, added: Iterable[AssignedPartition]) -> None:
        """Adds partitions to the lane."""
        for item in added:
            self._assigned[item.source] = item
            self.targets[item.source.topic] = item.target_topic
            self.generation = max(self.generation, item.generation)

    def release(self, sources: Iterable[SourcePartition], generation: int) -> None:
        """
        Removes partitions that another lane gets, or that leave the link.

        Args:
            sources: The partitions; those that the lane does not have are skipped.
            generation: Generation that moved them.
        """
        for source in sources:
            self._assigned.pop(source, None)
            self.positions.pop(source, None)
        # one that comes back later is not stopped
        kept = {source.topic for source in self._assigned}
        self.stopped = {topic: stop for topic, stop in self.stopped.items() if topic in kept}
        self.generation = max(self.generation, generation)
        self.released = max(self.released, generation)

    def new_among(self, told: Iterable[AssignedPartition]) -> tuple[AssignedPartition, ...]:
        """Returns the partitions that the lane does not have; the last one of several for one partition counts."""
        by_source = {item.source: item for item in told}
        return tuple(item for source, item in by_source.items() if source not in self._assigned)

    def forget(self) -> None:
        """Forgets positions and gaps when the lane recovers."""
        self.positions.clear()
        self.gaps.clear()

    def take(
        self,
        wanted: Iterable[AssignedPartition],
        known: Mapping[SourcePartition, Position],
        *,
        generation: int,
        topic: str,
    ) -> None:
        """
        Adopts the positions that the target holds.

        Args:
            known: Valid position of every source partition of the link (EO-3).
            generation: Newest one that the lane knows of.
            topic: The positions topic, for messages.

        Raises:
            FencedError: A newer generation has written positions (EO-2).
            MirrorError: A partition has none.
        """
        newest = max((position.generation for position in known.values()), default=0)
        if newest > generation:
            raise FencedError(f"a position of generation {newest} exists")
        for item in wanted:
            position = known.get(item.source)
            if position is None:
                raise MirrorError(
                    f"{item.source}: control lists this partition, but it has no position in {topic}",
                    fix=f"choose a resume offset: --resume-at {item.source}=OFFSET",
                )
            self.positions[item.source] = position

    def resume(
        self,
        positions: Iterable[Position],
        facts: Mapping[SourcePartition, tuple[SourceFacts, TargetFacts]],
        *,
        accept_gaps: bool,
        keyed: bool = False,
        run: str,
        wall_ms: int,
    ) -> Resumed:
        """
        Compares positions with both clusters (EO-5, EO-6): returns fetch offsets, and stops unsound topics.

        Args:
            facts: Current state of both sides of each partition.
            accept_gaps: ``on_gap: accept``.
            keyed: ``partitions: keyed``.
            run: Id of the mirror's run, which accepts the gaps.
        """
        starts: list[Start] = []
        stopped: list[tuple[str, MirrorError]] = []
        for position in positions:
            decision = decide_resume(position, *facts[position.source], accept_gaps=accept_gaps)
            if replaced := placement_error(position, keyed=keyed):
                decision = Stop(replaced)
            if isinstance(decision, Stop):
                if self.stop(position.topic, decision.error):
                    stopped.append((position.topic, decision.error))
                continue
            count = facts[position.source][1].partitions if keyed else None
            starts.append(_start(position, decision, count))
            if decision.compacted and not position.compacted and position.source in self.positions:
                # every later position records it, even when the policy is changed back
                self.positions[position.source] = replace(position, compacted=True)
            if decision.accepted_gap is not None and position.topic not in self.stopped:
                self.gaps.append(_gap(position, decision.accepted_gap, run, wall_ms))
        # a later partition may have stopped the topic of an earlier one
        return Resumed([start for start in starts if start.source.topic not in self.stopped], stopped)

    def stop(self, topic: str, error: MirrorError) -> bool:
        """Stops a whole topic; returns whether it was running before."""
        fresh = topic not in self.stopped
        if fresh:
            self.stopped[topic] = StoppedTopic.of(error)
        for source in [source for source in self.positions if source.topic == topic]:
            del self.positions[source]
        self.gaps = [gap for gap in self.gaps if gap.topic != topic]
        return fresh

    def committed(self, positions: Iterable[Position]) -> None:
        """Records the positions of a committed transaction."""
        self.positions.update({position.source: position for position in positions})

    def moved_behind_gaps(self, stamp: TransactionStamp) -> list[tuple[Gap, Position]]:
        """Returns each gap to record with the position after it; one transaction commits both (EO-6)."""
        return [(gap, behind_gap(self.positions[gap.source], gap, stamp)) for gap in self.gaps]

    def without_stopped(self, flushed: Flushed) -> Flushed:
        """Removes advances of topics that were stopped while their last fetches were in flight."""
        advances = {
            source: advance for source, advance in flushed.advances.items() if source in self.positions
        }
        return Flushed(flushed.accounts, advances)


def _start(position: Position, decision: Resume, target_partitions: int | None) -> Start:
    return Start(
        position.source,
        decision.offset,
        decision.leader_epoch,
        position.target_topic,
        decision.epoch_offset,
        position.topic_id,
        position.target_topic_id,
        decision.history,
        target_partitions,
    )


def _gap(position: Position, span: tuple[int, int], run: str, wall_ms: int) -> Gap:
    start, end = span
    return Gap(
        topic=position.topic,
        partition=position.partition,
        start=start,
        end=end,
        reason="log start beyond the position",
        run=run,
        timestamp=wall_ms,
    )
