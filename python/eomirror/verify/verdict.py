"""
Decides which ranges `eomirror verify` compares, and the verdicts of comparisons. Pure.

A position says that the source up to an offset became the target up to another one, in one transaction.  So the
two ranges that end there must hold the same records.  Records behind the position are lag, not a defect.  The
beginnings follow from the log starts: records that retention has deleted on either side cannot be compared, and the
offset map gives the source offset of the first comparable target offset.

An aggregate holds the records of several links.  Those that the offset map of another link names are left out, so that
a record which no link has written is still found.

Where records are placed by key (`partitions: keyed`), a source partition has copies in all target partitions, and the
header ``eomirror.origin`` of each names its original.

Compacted topics are compared by the last record of every key; order and superseded records are ignored.  Timestamps
are ignored if the target's broker sets them (``message.timestamp.type=LogAppendTime`` there); append times of
the source are ordinary timestamps of the copy.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eomirror.records.position import Position

__all__ = [
    "CopyPartitionEnds",
    "LinkVerdict",
    "PartitionFacts",
    "PartitionVerdict",
    "Range",
    "Scope",
    "Shown",
    "are",
    "needed_ranges",
    "scope",
]


@dataclass(frozen=True, slots=True)
class CopyPartitionEnds:
    """
    Ends of one of several target partitions; as in `PartitionFacts`.

    Attributes:
        start: Log start.
        stable: Last stable offset, read before the positions.
        stable_now: Last stable offset, read after them.
    """

    partition: int
    start: int
    stable: int
    stable_now: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts:
    """
    Facts of a source partition and its copy.

    Reason for its size: one field for each fact of the two logs that `scope` compares.

    Attributes:
        position: The committed position.
        source_id: Present id of the source topic; None if it was deleted.
        target_id: Present id of the target topic; None if it was deleted.
        source_start: Log start of the source partition.
        source_stable: Its last stable offset.
        target_start: Log start of the target partition.
        target_stable: Its last stable offset, read before the positions: records before it that no
            position covers are not the link's.
        mapped: Ranges of the offset map (source, target, count), ascending: the first one, and the last ones before
            the beginnings of the compared ranges (`needed_ranges`); empty if it was not read.
        from_start: True if the link mirrors from the beginning of the partition.
        compacted: True if one of the topics is compacted.
        timestamps: True if the target keeps the timestamps of records.
        target_stable_now: The target's last stable offset, read after the positions; None if it was not read.
        expected_topic: Target topic that the configuration gives; empty to skip the check.
        bound: First source offset to compare; 0 for all.
        replaced: True if the target has records of an earlier source topic of this name.
        letters: Dead letters: offset of the source, digest of the record.
        adopted: Source and target offset from which the copy is the link's, if another replicator had mirrored
            before; None if all of it is the link's.
        placed: All partitions of the target topic, if records are placed by key; else empty.
        gone: True if the source has the partition no more (`eomirror.recovery.resume.gone_sources`).
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
    target_stable_now: int | None = None
    expected_topic: str = ""
    bound: int = 0
    replaced: bool = False
    letters: Sequence[tuple[int, str]] = ()
    adopted: tuple[int, int] | None = None
    placed: Sequence[CopyPartitionEnds] = ()
    gone: bool = False


@dataclass(frozen=True, slots=True)
class Range:
    """
    Offsets of one partition.

    Attributes:
        start: First offset.
        end: One past the last compared offset.
        tail: One past the last offset to read, to excuse effects of compaction.
    """

    topic: str
    partition: int
    start: int
    end: int
    tail: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """
    Comparable range of one partition.

    Attributes:
        lag: Source offsets behind the position, markers included: not mirrored yet.
        not_comparable: Offsets of source and target before the compared ranges, because of retention,
            ``start``, or a smaller request.
        by_key: True if the last record of every key is compared.
        timestamps: True if timestamps are compared.
        letters: Dead letters in the compared range, which excuse the source's records: offset, digest.
        others: Other links that write into this copy: name, and a chunk of the offset map with their records.
        own: Chunks of the link's offset map, if copies of the link may lack its header.
        returned: Reverse links, which write into the source partition: name, and a chunk of their offset map.
        problem: Reason that no record can be compared; empty if some can.
        placed: Compared ranges of all target partitions, if records are placed by key; then ``target`` has the
            partition -1, and its offsets are sums.
        gone: What the copy of a partition that the source has no more still holds, in words; empty for any other one.
            ``target`` is then the range that it holds, and nothing is compared.
    """

    source: Range
    target: Range
    lag: int = 0
    not_comparable: tuple[int, int] = (0, 0)
    by_key: bool = False
    timestamps: bool = True
    letters: tuple[tuple[int, str], ...] = ()
    others: tuple[tuple[str, bytes], ...] = ()
    own: tuple[bytes, ...] = ()
    returned: tuple[tuple[str, bytes], ...] = ()
    problem: str = ""
    placed: tuple[Range, ...] = ()
    gone: str = ""


def needed_ranges(
    ranges: Iterable[tuple[int, int, int]], source: int, target: int
) -> tuple[tuple[int, int, int], ...]:
    """
    Selects the at most three ranges of an offset map that decide the beginning of a comparison.

    Args:
        ranges: Source offset, target offset, count; in any order.
        source: First source offset that can be compared.
        target: First target offset that can be compared.
    """
    first = before_source = before_target = None
    for each in ranges:
        if first is None or each < first:
            first = each
        if each[0] < source and (before_source is None or each > before_source):
            before_source = each
        if each[1] < target and (before_target is None or each[1] > before_target[1]):
            before_target = each
    return tuple(sorted({each for each in (first, before_source, before_target) if each is not None}))


def scope(facts: PartitionFacts) -> Scope:
    """Returns the comparable range."""
    position = facts.position
    if facts.gone:
        return _gone_scope(facts)
    if position.keyed:
        return _placed_scope(facts)
    source_end = position.offset
    target_end = max(
        facts.target_stable,
        facts.target_start,
        -1 if position.target_offset is None else position.target_offset + 1,
    )
    source_start, target_start, problem = _starts(facts)
    problem = _mismatch(facts) or problem
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
        letters=tuple(each for each in sorted(facts.letters) if source_start <= each[0] < source_end),
        problem=problem,
    )


def _gone_scope(facts: PartitionFacts) -> Scope:
    """Returns what the copy of a partition that the source has no more still holds."""
    position = facts.position
    end = position.offset
    source = Range(position.topic, position.partition, end, end, end)
    number = -1 if position.keyed else position.target_partition
    copy = position.target_topic if position.keyed else f"{position.target_topic}-{number}"
    if facts.target_id != position.target_topic_id:
        now = "was deleted, too" if facts.target_id is None else "was created again since"
        return Scope(
            source=source, target=Range(position.target_topic, number, 0, 0, 0), gone=f"its copy {copy} {now}"
        )
    # The first look at ends has only copies of topics that exist.
    start, stop = facts.target_start, max(facts.target_start, facts.target_stable_now or 0)
    held = f"its copy {copy} holds offsets [{start}, {stop})"
    if position.keyed:
        start, stop = sum(part.start for part in facts.placed), sum(part.stable_now for part in facts.placed)
        held = f"its records are in {copy}"
    return Scope(
        source=source,
        target=Range(position.target_topic, number, start, stop, stop),
        gone=f"{held}; {position.total_records} records were mirrored, up to source offset {end}",
    )


def _placed_scope(facts: PartitionFacts) -> Scope:
    """Returns the comparable range of a partition whose records are placed by key."""
    position = facts.position
    last = {part.target_partition: part.target_offset for part in position.by_copy()}
    problem = _mismatch(facts)
    copied = {
        part.partition: (-1 if (at := last.get(part.partition)) is None else at) + 1 for part in facts.placed
    }
    short = [part for part in facts.placed if part.stable_now < copied[part.partition]]
    if short and not problem:
        part = short[0]
        problem = (
            f"partition {part.partition} of the target ends at {part.stable_now}, before the end of the copies "
            f"{copied[part.partition]}: it was truncated, restored from an older log, or a transaction hangs there"
        )
    if facts.compacted and not problem:
        problem = "one of the topics is compacted, and its records are placed by key: no record can be missed for sure"
    end = position.offset
    start = end if problem else min(max(facts.source_start, facts.bound), end)
    placed = tuple(
        Range(position.target_topic, part.partition, part.start, ends, ends)
        for part in facts.placed
        for ends in (max(part.stable, part.start, copied[part.partition]),)
    )
    total = sum(part.end for part in placed)
    return Scope(
        source=Range(position.topic, position.partition, start, end, end),
        target=Range(
            position.target_topic, -1, total if problem else sum(part.start for part in placed), total, total
        ),
        lag=max(0, facts.source_stable - end),
        not_comparable=(start, 0),
        timestamps=facts.timestamps,
        problem=problem,
        placed=placed,
    )


def _mismatch(facts: PartitionFacts) -> str:
    """Returns the reason that the position does not match the present topics; empty if it does."""
    position = facts.position
    copied = 0 if position.target_offset is None else position.target_offset + 1
    if facts.source_id != position.topic_id:
        now = "is gone" if facts.source_id is None else "was recreated"
        return f"source topic {position.topic} {now} since the position was committed"
    if facts.target_id != position.target_topic_id:
        now = "is gone" if facts.target_id is None else "was recreated"
        return f"target topic {position.target_topic} {now} since the position was committed"
    if facts.expected_topic not in ("", position.target_topic):
        return (
            f"the position names target topic {position.target_topic}, but the link's naming gives "
            f"{facts.expected_topic}"
        )
    if position.target_partition != position.partition and not position.keyed:
        return f"the position names partition {position.target_partition} of the target, which is another one"
    if facts.source_stable < position.offset:
        return (
            f"the source ends at {facts.source_stable}, before the position {position.offset}: it was truncated, or "
            "restored from an older log"
        )
    if facts.target_stable_now is not None and facts.target_stable_now < copied:
        return (
            f"the target ends at {facts.target_stable_now}, before the end of the copy {copied}: it was truncated, "
            "restored from an older log, or a transaction hangs there"
        )
    return ""


def _starts(facts: PartitionFacts) -> tuple[int, int, str]:
    """Returns the first offsets of source and target after which both must hold the same records, or the problem."""
    position = facts.position
    wanted = max(facts.source_start, facts.bound)
    adopted = facts.adopted if not facts.replaced and (wanted, facts.target_start) != (0, 0) else None
    whole = facts.from_start and not facts.replaced and adopted is None
    if facts.mapped or (adopted is not None and position.total_records == 0):
        # Records before a cut are before it on both sides, so that holds for the furthest of several cuts, too.
        first = (0, 0) if whole else facts.mapped[0][:2] if adopted is None else _first_known(facts, adopted)
        cuts = (first, _cut_at_source(facts.mapped, wanted), _cut_at_target(facts.mapped, facts.target_start))
        return max(cut[0] for cut in cuts), max(cut[1] for cut in cuts), ""
    if not facts.bound and whole and facts.target_start == 0:
        if facts.source_start > 0 and position.records != position.total_records:
            why = "the source's log begins later than its copy, and the offset map has no common offset"
            return 0, 0, why
        return facts.source_start, 0, ""
    if position.target_offset is None or facts.target_start > position.target_offset:
        # No record was mirrored, or all of them were deleted.
        return position.offset, facts.target_stable, ""
    return 0, 0, "one log begins later than the other, and the offset map has no common offset"


def _first_known(facts: PartitionFacts, adopted: tuple[int, int]) -> tuple[int, int]:
    """
    Returns the first known cut of a copy that another replicator has begun.

    The map has at most the last records of that replicator.  A log that begins among the others begins at a record
    whose offset on the other side is unknown.  A link may be handed back and adopted again, so that records
    which are not in the map are between others that are.
    """
    for side, start in enumerate((max(facts.source_start, facts.bound), facts.target_start)):
        ends = [each[side] + each[2] for each in facts.mapped if each[side] < start]
        if ends and max(ends) < start < adopted[side]:
            return adopted
    return min([each[:2] for each in facts.mapped[:1]] + [adopted])


def _cut_at_source(mapped: Sequence[tuple[int, int, int]], wanted: int) -> tuple[int, int]:
    """Returns the cut at a source offset: behind the last mapped record before it."""
    before = [each for each in mapped if each[0] < wanted]
    if not before:
        return wanted, 0
    source, target, count = before[-1]
    return wanted, target + min(wanted - source, count)


def _cut_at_target(mapped: Sequence[tuple[int, int, int]], wanted: int) -> tuple[int, int]:
    """Returns the cut at a target offset: behind the last mapped record before it."""
    before = [each for each in mapped if each[1] < wanted]
    if not before:
        return 0, wanted
    source, target, count = before[-1]
    return source + min(wanted - target, count), wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """
    A difference with its records.

    Attributes:
        kind: ``missing``, ``duplicate``, ``reordered``, ``altered`` or ``foreign``.
        source_offset: Offset of the source's record, if there is one.
        target_offset: Offset of the target's record, if there is one.
        parts: Differing parts of an altered record.
        source: The source's record: key, value, headers, timestamp; None if it was not fetched.
        target: The target's record; None if it was not fetched.
        target_partition: Partition of the target's record, where records are placed by key; else None.
    """

    kind: str
    source_offset: int | None
    target_offset: int | None
    parts: tuple[str, ...] = ()
    source: dict[str, Any] | None = None
    target: dict[str, Any] | None = None
    target_partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionVerdict:
    """
    Verdict about one partition.

    Attributes:
        scope: The compared range.
        matched: Records (or, by key, keys) that agree.
        differences: Count by kind.
        source: Counts of the source: records, bytes, aborted, control, left_out, position.
        target: The same of the target.
        shown: The first differences.
        whole: True if all of the scope was compared; False if the comparison was stopped.
        holes: Ranges of source offsets that no batch has, though the topic is not compacted: the source has lost a part
            of its log.  The copy may equal the rest; the verdict is about the copy, so it does not change.  Empty
            with the client plane, which does not see them.
        changed: How the log of the source, or the copy, is not what the position says; empty if it is.
    """

    scope: Scope
    matched: int = 0
    differences: dict[str, int] = field(default_factory=dict)
    source: dict[str, int] = field(default_factory=dict)
    target: dict[str, int] = field(default_factory=dict)
    shown: tuple[Shown, ...] = ()
    whole: bool = True
    holes: tuple[tuple[int, int], ...] = ()
    changed: str = ""

    @property
    def differs(self) -> bool:
        """True if the copy differs from the original, cannot be compared, or one of them is not what was mirrored."""
        return bool(self.scope.problem or self.changed) or any(self.differences.values())

    @property
    def word(self) -> str:
        """The verdict: ``gone``, ``differs``, ``equal``, or ``not compared`` if the compared part has no difference."""
        if self.scope.gone:
            return "gone"
        return _word(differs=self.differs, whole=self.whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkVerdict:
    """
    Verdict about a link.

    Attributes:
        plane: The plane that read: ``native`` or ``client``.
        reason: Reason against the native plane, if any.
        partitions: One for each that has a position.
        waiting: Source topics, or partitions of topics, that the link matches and has no position of.
        spark: Description of the Spark that compared it; empty if this process did.
    """

    link: str
    plane: str
    reason: str = ""
    partitions: tuple[PartitionVerdict, ...] = ()
    waiting: tuple[str, ...] = ()
    spark: str = ""

    @property
    def whole(self) -> bool:
        """True if the whole requested range was compared."""
        return all(partition.whole for partition in self.partitions)

    @property
    def differs(self) -> bool:
        """True if any partition differs."""
        return any(partition.differs for partition in self.partitions)

    @property
    def word(self) -> str:
        """The verdict, in the words of `PartitionVerdict.word`."""
        return _word(differs=self.differs, whole=self.whole)

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        body = asdict(self)
        body["verdict"] = self.word
        for told, partition in zip(body["partitions"], self.partitions, strict=True):
            told["verdict"] = partition.word
            told["scope"]["letters"] = len(partition.scope.letters)
            told["scope"]["others"] = sorted({name for name, _ in partition.scope.others})
            told["scope"]["returned"] = sorted({name for name, _ in partition.scope.returned})
            del told["scope"]["own"]
        return body


def are(word: str) -> str:
    """Returns a verdict behind "source and copy": ``differ``, ``are equal``, ``are not compared``."""
    return "differ" if word == "differs" else f"are {word}"


def _word(*, differs: bool, whole: bool) -> str:
    return "differs" if differs else "equal" if whole else "not compared"


def altered_parts(source: dict[str, Any], target: dict[str, Any]) -> tuple[str, ...]:
    """Returns the differing parts of two records."""
    return tuple(part for part in ("key", "value", "headers", "timestamp") if source[part] != target[part])
