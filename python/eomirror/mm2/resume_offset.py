"""
Decides the resume offset of one partition that MirrorMaker 2 has mirrored. Pure.

With exactly-once, MM2 commits the offset of the last record together with the record, so the offset is valid if
the copy ends with that record.  Without it, the offset is a lower bound, and the ends of the two logs have to give
the answer (`align`); if they do not give exactly one offset, none is guessed.

An at-least-once mirror commits its source offsets periodically (MM2: every minute), and restarts behind the last
committed one.  So its copy, read from the end, is a chain of *runs*::

    source   ... 97 98 99 100 101 102 103 104 105 106        committed: 99
    copy     ... 97 98 99 100 101 102 | 100 101 102 103
                 the run that passed 99     a run that began behind it, after a crash

Every run is the source in order.  The run in which the committed offset was passed may have begun anywhere before
it, and each later one began at the first record behind it.  The answer is the furthest record that any run reached.

All readings of the copy as such a chain are followed at once, record by record, and the furthest record of each is
kept.  If records are distinct, as timestamps make them, there is one reading.  If they repeat there may be several, and
then the logs do not tell which one is true.

A record of the copy that is not among the compared ones of the source is older than they are, if only such records are
before it; else no reading continues.  But if the source was not read to its end, it may be newer, of a run
that got further than the source was read, and was followed by another one::

    source   97 98 99 100 101 102 | not read: 103 ...        committed: 99
    copy     ... 5000 5001 5002 | 100 101

Then no reading continues at all, and more of the source has to be read.  The case that a record which is older than the
compared ones equals one of them, and no other compared one, is not considered.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from eomirror.kafka.record_digests import RecordDigest
    from eomirror.records.mm2 import OffsetSync
    from eomirror.types import SourcePartition

__all__ = [
    "Alignment",
    "Mm2PartitionFacts",
    "PartitionAdoption",
    "align",
    "furthest_sync",
    "judge",
    "refuse_unknown",
]

# Readings are followed up to this number: more mean that records repeat.
_MOST_READINGS = 2_000

# State of a run at a record before the compared ones; and state before the first run.
_OLDER = -1
_NOWHERE = -2


@dataclass(frozen=True, slots=True)
class Alignment:
    """
    Result of the comparison of two log ends.

    Attributes:
        candidates: Source offsets that may be the last mirrored one, ascending.  One: it is certain.  None: the copy
            does not end like the source.
        pairs: Source and target offset of the records of the last run, ascending; empty unless there is exactly one
            candidate.
    """

    candidates: tuple[int, ...]
    pairs: tuple[tuple[int, int], ...] = ()


def align(
    source: Sequence[RecordDigest],
    target: Sequence[RecordDigest],
    committed: int | None,
    *,
    from_start: bool = False,
    to_end: bool = True,
) -> Alignment:
    """
    Finds the source record that was mirrored last.

    Args:
        source: The source from some records before the committed offset on, at least as far as ``target`` has records.
        target: The end of the copy.
        committed: The last source offset that the mirror committed; None if it committed none.
        from_start: True if ``target`` is the whole copy, of which no record was deleted.
        to_end: True if ``source`` goes to the end of its log, so that no record of the copy can be newer.

    Returns:
        The candidates.  ``committed`` itself is one if the copy ends with its record.
    """
    behind = sum(record.offset <= (-1 if committed is None else committed) for record in source)
    reached = _reached(
        [record.digest for record in source],
        [record.digest for record in target],
        behind,
        from_start=from_start,
        to_end=to_end,
    )
    candidates = tuple(source[index].offset for index in reached)
    return Alignment(candidates, _last_run(source, target, reached[0]) if len(reached) == 1 else ())


def _reached(
    source: list[bytes],
    target: list[bytes],
    behind: int,
    *,
    from_start: bool,
    to_end: bool,
) -> list[int]:
    """
    Returns the source indexes that may be the furthest mirrored one.

    A reading is (late, at, furthest).  Early, before the last commit, runs begin at ``behind`` or before it; late,
    at ``behind`` only.  A run that is at the committed record, or further, may be the one in which it was committed.
    """
    places: dict[bytes, list[int]] = {}
    for index, digest in enumerate(source):
        places.setdefault(digest, []).append(index)
    readings = {(False, _NOWHERE, behind - 1)}
    for number, digest in enumerate(target):
        here = places.get(digest, [])
        anywhere = number == 0 and not from_start
        following: set[tuple[bool, int, int]] = set()
        for late, at, furthest in readings:
            if not here and to_end and not late and at < 0:
                # Behind a known record, an unknown one may be newer than the records that were read.
                following.add((late, _OLDER, furthest))
            for place in _places(here, at, behind, late=late, anywhere=anywhere):
                reached = max(furthest, place)
                following.add((late, place, reached))
                if place >= behind - 1:
                    following.add((True, place, reached))
        if len(following) > _MOST_READINGS:
            return _between(places, target, behind)
        readings = following
    return sorted({furthest for late, _, furthest in readings if late and furthest >= 0})


def _places(here: list[int], at: int, behind: int, *, late: bool, anywhere: bool) -> Iterator[int]:
    """Yields the possible indexes of the run after a record that equals those at ``here`` on the source."""
    for place in here:
        if (place == at + 1 and at != _NOWHERE) or anywhere or (place == behind if late else place <= behind):
            yield place


def _between(places: Mapping[bytes, list[int]], target: list[bytes], behind: int) -> list[int]:
    """
    Returns a superset of `_reached` without following every reading.

    It extends from the last possible end of a run to the furthest record that the copy holds.
    """
    ends = [place for place in places.get(target[-1], ()) if place >= behind - 1]
    held = {place for digest in set(target) for place in places.get(digest, ())}
    return sorted(place for place in held if ends and place >= ends[0])


def _last_run(
    source: Sequence[RecordDigest], target: Sequence[RecordDigest], reached: int
) -> tuple[tuple[int, int], ...]:
    """Returns the offsets of the last run's records, if it is the run that got furthest."""
    pairs: list[tuple[int, int]] = []
    for theirs, ours in zip(reversed(source[: reached + 1]), reversed(target), strict=False):
        if theirs.digest != ours.digest:
            break
        pairs.append((theirs.offset, ours.offset))
    return tuple(reversed(pairs))


#: Number of candidates to show; more do not help.
MOST_CANDIDATES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Mm2PartitionFacts:
    """
    Facts of a partition that MM2 has mirrored.

    Attributes:
        target_topic: Topic of its copy.
        committed: Source offset that MM2 committed last; None for none.
        contradicted: True if its source offsets contradict each other.
        transactional: True if MM2 committed that offset in the transaction of the record.
        synced: Furthest source offset of an offset sync whose two records are equal; None for none.
        source_start: Log start of the source partition.
        source_end: Its high watermark.
        has_committed: True if the source still has the record at ``committed``.
        target_end: High watermark of the copy.
        last: Offset of the last record of the copy; None if none was found.
        alignment: Comparison of the ends of the logs.
        chosen: Resume offset that the user chose; None for none.
    """

    source: SourcePartition
    target_topic: str
    committed: int | None
    contradicted: bool = False
    transactional: bool = False
    synced: int | None = None
    source_start: int
    source_end: int
    has_committed: bool
    target_end: int
    last: int | None
    alignment: Alignment
    chosen: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionAdoption:
    """
    Resume offset of one partition, with the evidence.

    Attributes:
        target_topic: Topic of its copy.
        committed: Source offset that MM2 committed last; None for none.
        resume: Source offset to resume at; None if it is unknown, or if no record was mirrored.
        target_offset: Offset of the last record of the copy; None for none.
        evidence: Proof of ``resume``; with ``resume`` None and no problem, the reason that nothing is adopted.
        problem: Reason that the resume offset is unknown; empty if it is known.
        candidates: Possible resume offsets, of which one may be right, if there is a problem.
        ranges: Source offset, target offset and record count of ranges that both logs hold.
    """

    source: SourcePartition
    target_topic: str
    committed: int | None
    resume: int | None
    target_offset: int | None = None
    evidence: str = ""
    problem: str = ""
    candidates: tuple[int, ...] = ()
    ranges: tuple[tuple[int, int, int], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        body = asdict(self)
        source, _ = body.pop("source"), body.pop("ranges")
        return {
            "topic": source[0],
            "partition": source[1],
            **body,
            "candidates": list(self.candidates),
        }


def furthest_sync(
    syncs: Iterable[OffsetSync], source: Sequence[RecordDigest], copy: Sequence[RecordDigest]
) -> int | None:
    """
    Returns the furthest source offset of a sync of this flow, which has mirrored that far; None for none.

    One topic of syncs may hold those of the opposite flow, about its own topic of the same name: they do not concern
    this one.  A sync of this flow names two equal records.
    """
    theirs = {record.offset: record.digest for record in source}
    ours = {record.offset: record.digest for record in copy}
    return max(
        (
            sync.upstream
            for sync in syncs
            if sync.upstream in theirs and theirs[sync.upstream] == ours.get(sync.downstream)
        ),
        default=None,
    )


def judge(facts: Mm2PartitionFacts) -> PartitionAdoption:
    """Decides the resume offset, or the problem that prevents it."""
    committed = facts.committed
    if facts.chosen is not None:
        return _resume(facts, facts.chosen, "chosen by hand")
    if facts.contradicted:
        return _problem(facts, "two source offsets of MM2 contradict each other", _behind(facts))
    if committed is None and facts.target_end == 0:
        return PartitionAdoption(
            source=facts.source,
            target_topic=facts.target_topic,
            committed=None,
            resume=None,
            evidence="MM2 has mirrored nothing of it: it begins as the link's `start` says",
        )
    if committed is not None and committed >= facts.source_end:
        return _problem(
            facts,
            f"MM2 has mirrored offset {committed}, but the source ends at {facts.source_end}: it was truncated, or "
            "its topic was recreated",
            (),
        )
    candidates = facts.alignment.candidates
    if facts.synced is not None and len(candidates) > 1:
        # The record of a sync was acknowledged: the copy goes at least that far.
        candidates = tuple(each for each in candidates if each >= facts.synced)
    if committed is not None and facts.transactional:
        return _exactly_once(facts, committed, candidates)
    if len(candidates) == 1:
        (last,) = candidates
        # Offsets between it and a commit beyond it were processed: markers, or records that were dropped on purpose.
        resume = last + 1 if committed is None else max(last, committed) + 1
        return _resume(facts, resume, f"the copy ends with the source's record {last}", last)
    if candidates:
        return _problem(
            facts,
            "records repeat: the end of the copy matches several places of the source",
            tuple(each + 1 for each in candidates),
        )
    if facts.last is None:
        return _problem(facts, "the copy has no record left to compare with the source", _behind(facts))
    return _problem(
        facts,
        "the copy does not end like the source: another producer writes to it, records were changed on the way, or "
        "retention and compaction removed what could be compared",
        _behind(facts),
    )


def _exactly_once(facts: Mm2PartitionFacts, committed: int, candidates: tuple[int, ...]) -> PartitionAdoption:
    together = "committed in the transaction of its record"
    if facts.last is None:
        return _resume(
            facts, committed + 1, f"{together}; the copy has no record left, so it is not confirmed"
        )
    if committed in candidates:
        return _resume(facts, committed + 1, f"{together}, with which the copy ends")
    if not facts.has_committed and all(last <= committed for last in candidates):
        return _resume(facts, committed + 1, f"{together}, which the source no longer has: not confirmed")
    return _problem(
        facts,
        f"MM2 committed offset {committed}, but the copy does not end with that record: another producer writes to it, "
        "records were changed on the way, or exactly-once was not on all the time",
        tuple(each + 1 for each in candidates) or _behind(facts),
    )


def _behind(facts: Mm2PartitionFacts) -> tuple[int, ...]:
    return (facts.source_start,) if facts.committed is None else (facts.committed + 1,)


def _resume(
    facts: Mm2PartitionFacts, resume: int, evidence: str, last: int | None = None
) -> PartitionAdoption:
    last = resume - 1 if last is None else last
    pairs = facts.alignment.pairs if facts.alignment.candidates == (last,) else ()
    return PartitionAdoption(
        source=facts.source,
        target_topic=facts.target_topic,
        committed=facts.committed,
        resume=resume,
        target_offset=facts.last,
        evidence=evidence,
        ranges=_ranges(pairs),
    )


def _problem(facts: Mm2PartitionFacts, problem: str, candidates: tuple[int, ...]) -> PartitionAdoption:
    return PartitionAdoption(
        source=facts.source,
        target_topic=facts.target_topic,
        committed=facts.committed,
        resume=None,
        target_offset=facts.last,
        problem=problem,
        candidates=candidates[:MOST_CANDIDATES],
    )


def _ranges(pairs: tuple[tuple[int, int], ...]) -> tuple[tuple[int, int, int], ...]:
    """Merges pairs that are consecutive on both sides into ranges."""
    found: list[tuple[int, int, int]] = []
    for source, target in pairs:
        if found and (source, target) == (found[-1][0] + found[-1][2], found[-1][1] + found[-1][2]):
            found[-1] = (found[-1][0], found[-1][1], found[-1][2] + 1)
        else:
            found.append((source, target, 1))
    return tuple(found)


def refuse_unknown(
    chosen: Collection[SourcePartition],
    targets: Mapping[str, str],
    partitions: Collection[SourcePartition],
    positioned: Collection[SourcePartition] = (),
) -> None:
    """
    Refuses chosen offsets that would have no effect. Pure.

    Args:
        chosen: Partitions whose resume offset the user chose.
        targets: Target topic of every source topic of the link.
        partitions: Partitions that have a copy and no position.
        positioned: Partitions that have a position.

    Raises:
        UsageError: The link does not mirror one of them, it has no copy, or it has a position; names it.
    """
    for source in sorted(set(chosen) - set(partitions)):
        if source.topic not in targets:
            raise UsageError(
                f"--at {source}: the link does not mirror this partition",
                fix="name a topic and partition that the link's topics match",
            )
        if source in positioned:
            raise UsageError(
                f"--at {source}: the link mirrors this partition already, and resumes at its own position",
                fix=f"leave it out; to move it all the same, `eomirror run CONFIG --resume-at {source}=OFFSET`",
            )
        raise UsageError(
            f"--at {source}: the source or {targets[source.topic]} on the target has no such partition, so that there "
            "is nothing to take over",
            fix=f"correct the number; a partition without a copy begins as the link's `start` says, or at another "
            f"offset with `eomirror run CONFIG --resume-at {source}=OFFSET`",
        )
