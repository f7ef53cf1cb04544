"""
Compares a plan with the link's positions: topics that a run would copy, and that it would no longer mirror. Pure.

Offsets are an upper bound of records: markers of transactions, aborted records and compacted ones have offsets, too.
The bytes are an estimate: the part of a log that its offsets are, of its size on the leader's disk, which holds markers
and compressed batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["DroppedTopic", "ExpectedCopy", "PartitionCopy", "SourceLogs", "TopicCopy", "expected_copy"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceLogs:
    """
    Logs of source partitions, as far as they are known.

    Attributes:
        starts: Log starts.
        ends: High watermarks.
        begins: Offsets at which partitions begin that the link has no position for.
        sizes: Bytes on the leader's disk.
    """

    starts: Mapping[SourcePartition, int]
    ends: Mapping[SourcePartition, int]
    begins: Mapping[SourcePartition, int]
    sizes: Mapping[SourcePartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCopy:
    """
    Records of one partition that a run would copy.

    Attributes:
        begins: First source offset; None if unknown.
        end: End of its log; None if unknown.
        bytes: Estimate; None if unknown.
    """

    partition: int
    begins: int | None
    end: int | None
    bytes: int | None

    @property
    def records(self) -> int | None:
        """Upper bound of the records; None if unknown."""
        return None if self.begins is None or self.end is None else max(0, self.end - self.begins)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCopy:
    """
    Records of one topic that a run would copy.

    Attributes:
        is_new: True if the link has no position for it.
    """

    topic: str
    target: str
    is_new: bool
    partitions: tuple[PartitionCopy, ...]

    @property
    def records(self) -> int | None:
        """Upper bound of the records; None if unknown."""
        return _total(one.records for one in self.partitions)

    @property
    def bytes(self) -> int | None:
        """Estimate of the bytes; None if unknown."""
        return _total(one.bytes for one in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {
            "topic": self.topic,
            "target": self.target,
            "new": self.is_new,
            "at_most_records": self.records,
            "estimated_bytes": self.bytes,
            "partitions": [
                {
                    "partition": one.partition,
                    "from": one.begins,
                    "to": one.end,
                    "at_most_records": one.records,
                    "estimated_bytes": one.bytes,
                }
                for one in self.partitions
            ],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class DroppedTopic:
    """
    A topic that the link mirrors and would mirror no more.

    Attributes:
        target: Its copy, which stays.
        records: Records that were mirrored so far.
        reason: Why.
    """

    topic: str
    target: str
    records: int
    reason: str

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {"topic": self.topic, "target": self.target, "records": self.records, "reason": self.reason}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedCopy:
    """
    Topics that a run would copy, and those that it would no longer mirror.

    Attributes:
        dropped: Topics that leave, sorted.
        topics: Topics that begin or go on, sorted.
        problem: Why nothing is known; empty otherwise.
        bytes_problem: Why bytes are not known; empty otherwise.
    """

    dropped: tuple[DroppedTopic, ...] = ()
    topics: tuple[TopicCopy, ...] = ()
    problem: str = ""
    bytes_problem: str = ""

    @property
    def records(self) -> int | None:
        """Upper bound of all records; None if unknown."""
        return None if self.problem else _total(one.records for one in self.topics)

    @property
    def bytes(self) -> int | None:
        """Estimate of all bytes; None if unknown."""
        return None if self.problem else _total(one.bytes for one in self.topics)

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {
            "at_most_records": self.records,
            "estimated_bytes": self.bytes,
            "topics": [one.as_dict() for one in self.topics],
            "problem": self.problem or None,
            "bytes_problem": self.bytes_problem or None,
        }


def expected_copy(
    targets: Mapping[str, str],
    partitions: Collection[SourcePartition],
    positions: Mapping[SourcePartition, Position],
    *,
    mirrored: Collection[SourcePartition],
    there: Collection[str],
    reason: Callable[[str], str],
    logs: SourceLogs,
) -> ExpectedCopy:
    """
    Compares the plan with the positions of the link.

    Args:
        targets: Target topic of every topic that would be mirrored.
        partitions: Source partitions of these.
        positions: Positions of the link; none before its first run.
        mirrored: Partitions that the link mirrors today.
        there: Topics of the source that have partitions, or may have.
        reason: Returns why a topic is not mirrored by its name; empty if it is.
    """
    current: dict[str, list[Position]] = {}
    for source in sorted(mirrored):
        if source in positions:
            current.setdefault(source.topic, []).append(positions[source])
    dropped = []
    for topic, some in current.items():
        copy = some[0].target_topic
        if topic not in targets:
            why = reason(topic) or ("" if topic in there else "it does not exist on the source any more")
        elif targets[topic] != copy:
            why = (
                f"its copy has the name {targets[topic]} in the file; a run stops it, until it is said where it begins "
                f"there: `eomirror run CONFIG --resume-at {topic}-{some[0].partition}=OFFSET`"
            )
        else:
            continue
        records = sum(one.total_records for one in some)
        dropped.append(DroppedTopic(topic=topic, target=copy, records=records, reason=why))
    renamed = {one.topic for one in dropped}
    topics: dict[str, list[PartitionCopy]] = {}
    for source in sorted(partitions):
        if source.topic in targets and source.topic not in renamed:
            topics.setdefault(source.topic, []).append(_partition(source, positions.get(source), logs))
    return ExpectedCopy(
        dropped=tuple(dropped),
        topics=tuple(
            TopicCopy(
                topic=topic,
                target=targets[topic],
                is_new=topic not in current,
                partitions=tuple(some),
            )
            for topic, some in topics.items()
        ),
    )


def _partition(source: SourcePartition, position: Position | None, logs: SourceLogs) -> PartitionCopy:
    start, end = logs.starts.get(source), logs.ends.get(source)
    begins = logs.begins.get(source) if position is None else position.offset
    if begins is not None and start is not None:
        # retention has passed the position
        begins = max(begins, start)
    size = logs.sizes.get(source)
    estimate = None
    if size is not None and begins is not None and start is not None and end is not None:
        estimate = round(size * max(0, end - begins) / (end - start)) if end > start else 0
    return PartitionCopy(partition=source.partition, begins=begins, end=end, bytes=estimate)


def _total(numbers: Iterable[int | None]) -> int | None:
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
