"""
What `eomirror verify` compares and what it concludes: pure, facts in and a scope or a verdict out.

A position says that the source up to an offset became the target up to another one, in one transaction.  So the
two ranges that end there must hold the same records.  What lies behind the position is lag, not a defect.  Where
they begin follows from the log starts: what retention has deleted on either side cannot be compared, and the
offset map tells which source offset the first comparable target offset came from.

Compacted topics are compared by the last record of every key: order and superseded records are not.  Timestamps
are left out where the target's broker sets them (``message.timestamp.type=LogAppendTime`` there); append times of
the source are ordinary timestamps of the copy.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.formats.position import Position

__all__ = ["LinkVerdict", "PartitionFacts", "PartitionVerdict", "Range", "Scope", "Shown", "scope"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """
    What is known of a source partition and its copy.

    Attributes:
        position: As committed.
        source_id: Id that the source topic has now; None when it is gone.
        target_id: Likewise of the target topic.
        source_start: Log start of the source partition.
        source_stable: Its last stable offset.
        target_start: Log start of the target partition.
        target_stable: Its last stable offset, asked before the positions were read: records before it that no
            position speaks of are not the link's.
        mapped: Ranges of the offset map (source, target, count), growing; empty where it was not read.
        from_start: Whether the link mirrors from the beginning of the partition.
        compacted: Whether one of the topics is compacted.
        timestamps: Whether the target keeps the timestamps it is given.
    """

    position: Position
    source_id: str | None
    target_id: str | None
    source_start: int
    source_stable: int
    target_start: int
    target_stable: int
    mapped: Sequence[tuple[int, int, int]] = ()
    from_start: bool = True
    compacted: bool = False
    timestamps: bool = True


@dataclass(frozen=True, slots=True)
class Range:
    """
    Offsets of one partition.

    Attributes:
        topic: Its topic.
        partition: Its number.
        start: First offset.
        end: One past the last that is compared.
        tail: One past the last that is read, to excuse what compaction did.
    """

    topic: str
    partition: int
    start: int
    end: int
    tail: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """
    What is compared of one partition.

    Attributes:
        source: On the source.
        target: On the target.
        lag: Source offsets behind the position, markers included: not mirrored yet.
        not_comparable: Offsets of source and target that are not compared, because of retention or ``start``.
        by_key: The last record of every key is compared.
        timestamps: Timestamps are compared.
        problem: Why nothing can be compared; empty if something can.
    """

    source: Range
    target: Range
    lag: int = 0
    not_comparable: tuple[int, int] = (0, 0)
    by_key: bool = False
    timestamps: bool = True
    problem: str = ""


def scope(facts: PartitionFacts) -> Scope:
    """Say what can be compared."""
    position = facts.position
    source_end = position.offset
    target_end = max(
        facts.target_stable,
        facts.target_start,
        -1 if position.target_offset is None else position.target_offset + 1,
    )
    source_start, target_start, problem = _starts(facts)
    if facts.source_id != position.topic_id:
        now = "is gone" if facts.source_id is None else "was created anew"
        problem = f"source topic {position.topic} {now} since the position was committed"
    elif facts.target_id != position.target_topic_id:
        now = "is gone" if facts.target_id is None else "was created anew"
        problem = f"target topic {position.target_topic} {now} since the position was committed"
    if problem:
        source_start, target_start = source_end, target_end
    source_start, target_start = min(source_start, source_end), min(target_start, target_end)
    tails = (facts.source_stable, facts.target_stable) if facts.compacted else (source_end, target_end)
    return Scope(
        source=Range(position.topic, position.partition, source_start, source_end, max(tails[0], source_end)),
        target=Range(
            position.target_topic,
            position.target_partition,
            target_start,
            target_end,
            max(tails[1], target_end),
        ),
        lag=max(0, facts.source_stable - source_end),
        not_comparable=(source_start, target_start),
        by_key=facts.compacted,
        timestamps=facts.timestamps,
        problem=problem,
    )


def _starts(facts: PartitionFacts) -> tuple[int, int, str]:
    """First offsets of source and target that must hold the same record, and why there are none."""
    at_beginning = facts.from_start and facts.target_start == 0
    if at_beginning and (not facts.mapped or facts.source_start <= facts.mapped[0][0]):
        if (
            not facts.mapped
            and facts.source_start > 0
            and facts.position.records != facts.position.total_records
        ):
            return (
                0,
                0,
                "the source's log begins later than its copy, and the offset map tells no common offset",
            )
        return facts.source_start, facts.target_start, ""
    for source, target, count in facts.mapped:
        skipped = max(0, facts.source_start - source, facts.target_start - target)
        if skipped < count:
            return source + skipped, target + skipped, ""
    if facts.mapped or facts.position.target_offset is None:
        # all that was mirrored is gone on one side, or nothing was
        return facts.position.offset, facts.target_stable, ""
    return 0, 0, "one log begins later than the other, and the offset map tells no common offset"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """
    A difference with its records.

    Attributes:
        kind: ``missing``, ``duplicate``, ``reordered``, ``altered`` or ``foreign``.
        source_offset: Where the source's record is, if there is one.
        target_offset: Where the target's record is, if there is one.
        parts: Which parts of an altered record differ.
        source: The source's record: key, value, headers, timestamp; None where it was not fetched.
        target: Likewise.
    """

    kind: str
    source_offset: int | None
    target_offset: int | None
    parts: tuple[str, ...] = ()
    source: dict[str, Any] | None = None
    target: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionVerdict:
    """
    What was found out about one partition.

    Attributes:
        scope: What was compared.
        matched: Records (or, by key, keys) that agree.
        differences: By kind.
        source: Counts of what was read: records, bytes, aborted, control, left_out, position.
        target: Likewise.
        shown: The first differences.
    """

    scope: Scope
    matched: int = 0
    differences: dict[str, int] = field(default_factory=dict)
    source: dict[str, int] = field(default_factory=dict)
    target: dict[str, int] = field(default_factory=dict)
    shown: tuple[Shown, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether the copy is not the original, or cannot be told to be."""
        return bool(self.scope.problem) or any(self.differences.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkVerdict:
    """
    What was found out about a link.

    Attributes:
        link: Its name.
        plane: ``native`` or ``client``: who read.
        reason: Why not the native plane, if so.
        partitions: One for each that has a position.
        waiting: Source topics that the link matches and has no position of.
    """

    link: str
    plane: str
    reason: str = ""
    partitions: tuple[PartitionVerdict, ...] = ()
    waiting: tuple[str, ...] = ()

    @property
    def differs(self) -> bool:
        """Whether any partition does."""
        return any(partition.differs for partition in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """For ``-o json``."""
        body = asdict(self)
        body["verdict"] = "differs" if self.differs else "equal"
        for told, partition in zip(body["partitions"], self.partitions, strict=True):
            told["verdict"] = "differs" if partition.differs else "equal"
        return body


def altered_parts(source: dict[str, Any], target: dict[str, Any]) -> tuple[str, ...]:
    """Which parts of two records differ."""
    return tuple(part for part in ("key", "value", "headers", "timestamp") if source[part] != target[part])
