"""
Decides how a lane resumes from a position. Pure: facts in, decision out.

EO-5: a position names its topics by id, the source's leader epoch, and the last target offset.  EO-6: a gap is a log
start beyond the position; an offset jump inside fetched data is not a gap.

The order of checks matters: offsets of a recreated topic are unrelated to the position, so ids are compared before any
offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from eomirror.errors import DataLossError, MirrorError, StateError, TopicError, gap_error, truncated_error
from eomirror.plane.protocol import BatchMark, History, Holes, RecordMark, is_compacting, is_near

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.kafka.cluster_metadata import TopicFacts
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = [
    "Resume",
    "SourceFacts",
    "Stop",
    "TargetFacts",
    "copy_cut_error",
    "copy_overwritten_error",
    "cut_copies",
    "decide_resume",
    "gone_sources",
    "placement_error",
]


# options to adopt that an error lists: they fill three lines of a terminal
_MOST_OPTIONS = 12


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """
    Current state of a source partition.

    Attributes:
        topic_id: Id of the topic; None if it does not exist.
        log_start: First offset that exists.
        high_watermark: Offset after the last replicated record, open transactions included.
        refused: Error of the cluster for the topic; the other fields are meaningless then.
        silent: The partition has no leader, so ``log_start`` and ``high_watermark`` are unknown.
        policy: ``cleanup.policy`` of the topic; None if it may not be read.
        partitions: Number of partitions of the topic; 0 if unknown.
    """

    topic_id: str | None
    log_start: int
    high_watermark: int
    refused: MirrorError | None = None
    silent: bool = False
    policy: str | None = None
    partitions: int = 0


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """
    Current state of a target partition.

    Attributes:
        topic_id: Id of the topic; None if it does not exist.
        high_watermark: Offset after its last record.
        refused: Error of the cluster for the topic; the other fields are meaningless then.
        partitions: Number of partitions of the topic; 0 if unknown.
        ends: High watermarks by partition, if records are placed by key; empty if unknown.
    """

    topic_id: str | None
    high_watermark: int
    refused: MirrorError | None = None
    partitions: int = 0
    ends: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resume:
    """
    Decision to resume.

    Attributes:
        offset: First offset to fetch.
        leader_epoch: Epoch to validate against the source's log; None if unknown.
        epoch_offset: Offset to validate at, if before ``offset``; there are no records in between.
        accepted_gap: ``[start, end)`` that ``on_gap: accept`` skips; recorded in a transaction.
        history: Known state of the log before ``offset``.
        compacted: Whether the topic is or was compacted, as far as known; to be recorded.
    """

    offset: int
    leader_epoch: int | None
    accepted_gap: tuple[int, int] | None = None
    epoch_offset: int | None = None
    history: History = field(default_factory=History)
    compacted: bool = False


@dataclass(frozen=True, slots=True)
class Stop:
    """Decision to stop the partition's topic; other topics continue."""

    error: MirrorError


def decide_resume(
    position: Position, source: SourceFacts, target: TargetFacts, *, accept_gaps: bool
) -> Resume | Stop:
    """
    Decides how to resume from a committed position.

    Args:
        position: Valid position of the partition (EO-3).
        source: Current state of the source partition.
        target: Current state of the target partition.
        accept_gaps: ``on_gap: accept``.
    """
    decision = _decide(position, source, target, accept_gaps=accept_gaps)
    if isinstance(decision, Stop):
        return decision
    compacted = position.compacted or is_compacting(source.policy)
    history = _history(position, source, compacted=compacted, accept_gaps=accept_gaps)
    if decision.accepted_gap is not None:
        # the batch and the record before the position are deleted too
        history = replace(history, batch=None, record=None)
    return replace(decision, history=history, compacted=compacted)


def _history(position: Position, source: SourceFacts, *, compacted: bool, accept_gaps: bool) -> History:
    """Returns the known state of the log before a position, limited to marks that prove something."""
    if compacted or source.policy is None:
        return History(missing=position.missing)
    batch = record = None
    if position.batch_offset is not None and position.batch_offset >= source.log_start:
        batch = BatchMark(position.batch_offset, position.batch_crc or 0, position.batch_timestamp or 0)
    elif (
        position.record_offset is not None
        and position.record_offset >= source.log_start
        and is_near(position.record_offset, position.offset)
    ):
        half = len(position.record_digest) // 2
        record = RecordMark(
            position.record_offset, position.record_digest[:half], position.record_digest[half:]
        )
    return History(batch, record, Holes.NAME if accept_gaps else Holes.STOP, position.missing)


def _decide(
    position: Position, source: SourceFacts, target: TargetFacts, *, accept_gaps: bool
) -> Resume | Stop:
    refused = source.refused or target.refused
    if refused is not None:
        # a revoked ACL concerns this topic only
        return Stop(refused)
    if source.topic_id is None:
        return Stop(
            TopicError(
                f"{position.source}: the source topic is gone; it was mirrored up to offset {position.offset}",
                fix="nothing if it was deleted for good: its copy stays as it is, `eomirror verify` shows what it "
                f"holds, and no planned command waits for it; if `topics` names {position.topic}, take it out. Else "
                "restore it",
            )
        )
    if source.topic_id != position.topic_id:
        return Stop(_source_recreated(position, source.topic_id, source.partitions))
    stopped = _compare_target(position, target)
    if stopped is not None:
        return Stop(stopped)
    if source.silent:
        # The fetch waits for a leader without delaying other partitions.  That leader's first answer reports a gap or a
        # truncated log (KIP-320), which ends the attempt; the next one checks it here.
        return Resume(position.offset, position.leader_epoch, epoch_offset=position.epoch_offset)
    if position.offset > source.high_watermark:
        return Stop(truncated_error(position.source, position.offset, source.high_watermark))
    if position.offset < source.log_start:
        return _gap(position, source.log_start, accept_gaps=accept_gaps)
    if position.epoch_offset is not None and position.epoch_offset < source.log_start:
        # the record of the epoch is deleted
        return Resume(position.offset, None)
    return Resume(position.offset, position.leader_epoch, epoch_offset=position.epoch_offset)


def gone_sources(
    positions: Mapping[SourcePartition, Position], topics: Mapping[str, TopicFacts | None]
) -> set[SourcePartition]:
    """
    Returns the source partitions that do not exist any more, so that nothing of them is left to mirror.

    Their topic was deleted; or it was created again with fewer partitions, and the link mirrors the new one since
    (`--resume-at`).  A topic that was created again and not adopted is no such one: its records are on no copy (EO-5).

    Args:
        positions: Valid positions of the link.
        topics: Source topics as described, None for one that does not exist.  A topic that is missing here, such as one
            that an ACL hides, is unknown and not gone.
    """
    adopted = {
        position.topic
        for position in positions.values()
        if (facts := topics.get(position.topic)) is not None
        and facts.topic_id == position.topic_id
        and position.partition < facts.partitions
    }
    found = set()
    for source, position in positions.items():
        if source.topic not in topics:
            continue
        facts = topics[source.topic]
        if facts is None or (
            source.topic in adopted
            and source.partition >= facts.partitions
            and position.topic_id != facts.topic_id
        ):
            found.add(source)
    return found


def placement_error(position: Position, *, keyed: bool) -> MirrorError | None:
    """
    Returns the error of a link that has mirrored a partition with the other setting of ``partitions``.

    Args:
        keyed: True if the link places records by key now.
    """
    if keyed == bool(position.keyed) or not position.total_records:
        return None
    before, now = ("preserve", "keyed") if keyed else ("keyed", "preserve")
    return StateError(
        f"{position.source}: its records were mirrored into {position.target_topic} with partitions: {before}, and the "
        f"link says partitions: {now}: records of one key would be in several partitions, and verify could not tell "
        "them",
        fix=f"set partitions: {before}; or mirror into another topic, by a link of another `name`",
        topic=position.topic,
    )


def copy_cut_error(position: Position, end: int) -> DataLossError:
    """
    Returns the error for records that the target acknowledged and lost (EO-5).

    Args:
        position: Valid position of the partition.
        end: First lost target offset: the end of the copy, or the offset that the broker gave the next record.
    """
    where = f"{position.target_topic}-{position.target_partition}"
    last = position.target_offset
    assert last is not None, "a copy without records has none to lose"  # noqa: S101  for the type checker
    # the last transaction wrote its records in one piece, unless other producers write to the copy as well
    of_the_last = position.records > 0 and end > last - position.records
    begin = position.prev if of_the_last and position.prev is not None else None
    lost = (
        f"source offsets before {position.offset}"
        if begin is None
        else f"some of [{begin}, {position.offset})"
    )
    return DataLossError(
        f"{position.source}: the target was truncated or restored from an older state: records [{end}, {last}] of "
        f"{where} were acknowledged and are gone; they hold {lost} of {position.source}",
        fix="stop the mirror and compare with `eomirror verify`, which names the missing records; then choose a "
        f"resume offset: --resume-at {position.source}={'OFFSET' if begin is None else begin}",
        topic=position.topic,
    )


def copy_overwritten_error(position: Position) -> DataLossError:
    """Returns the error for a copy that holds another record at an acknowledged offset (EO-5)."""
    where = f"{position.target_topic}-{position.target_partition}"
    return DataLossError(
        f"{position.source}: the target was truncated or restored from an older state, and then extended: at offset "
        f"{position.target_offset} of {where} is not the record that was committed there with position "
        f"{position.offset}",
        fix="stop the mirror and compare with `eomirror verify`, which names the missing records; then choose a "
        f"resume offset: --resume-at {position.source}=OFFSET",
        topic=position.topic,
    )


def cut_copies(
    positions: Iterable[Position], ends: Mapping[tuple[str, int], int]
) -> dict[SourcePartition, int]:
    """
    Returns the ends of copies that lost records (EO-5).

    Args:
        positions: As committed before the ends were requested.
        ends: High watermarks of target partitions; copies without one are skipped.
    """
    found = {}
    for position in positions:
        end = ends.get((position.target_topic, position.target_partition))
        if end is not None and position.target_offset is not None and position.target_offset >= end:
            found[position.source] = end
    return found


def _source_recreated(position: Position, topic_id: str, partitions: int) -> DataLossError:
    # The same for all partitions of the topic, and only for those that exist: it is obeyed as it stands.
    there = range(partitions) if partitions else (position.partition,)
    options = " ".join(f"--resume-at {position.topic}-{number}=0" for number in there[:_MOST_OPTIONS])
    if len(there) > _MOST_OPTIONS:
        options += f" and so on up to {position.topic}-{there[-1]}"
    return DataLossError(
        f"{position.source}: the source topic was deleted and created again (id {position.topic_id} is now "
        f"{topic_id}); it was mirrored up to offset {position.offset} of the old one",
        fix="to mirror the new topic behind the old records, stop the mirror and start it once with a --resume-at for "
        f"each partition that exists: `eomirror run CONFIG {options}`; to start clean, delete topic "
        f"{position.target_topic} on the target first",
    )


def _compare_target(position: Position, target: TargetFacts) -> MirrorError | None:
    adopt = (
        f"to fill the new topic from the source's beginning: --resume-at {position.source}=0; to resume at the "
        f"mirror's position: --resume-at {position.source}={position.offset}"
    )
    if target.topic_id is None:
        return TopicError(f"{position.source}: the target topic {position.target_topic} is gone", fix=adopt)
    if target.topic_id != position.target_topic_id:
        return TopicError(
            f"{position.source}: the target topic {position.target_topic} was deleted and created again "
            f"(id {position.target_topic_id} is now {target.topic_id}); records mirrored before are not in it",
            fix=adopt,
        )
    if position.target_offset is not None and position.target_offset >= target.high_watermark:
        return copy_cut_error(position, target.high_watermark)
    for one in position.by_copy() if position.keyed else ():
        end = target.ends.get(one.target_partition)
        if end is not None and one.target_offset is not None and one.target_offset >= end:
            return copy_cut_error(one, end)
    return None


def _gap(position: Position, log_start: int, *, accept_gaps: bool) -> Resume | Stop:
    if accept_gaps:
        # the epoch belongs to a record that no longer exists: there is nothing left to compare it with
        return Resume(log_start, None, accepted_gap=(position.offset, log_start))
    return Stop(gap_error(position.source, position.offset, log_start))
