"""
Compares the logs of a source with what the positions of a link say of them, for callers without a lane (EO-5).

`eomirror.recovery.resume.decide_resume` judges ids and ends, as for a lane.  The batch, or the record, before a
position is then looked up: a log that was restored and written on has the same ids and may have any end.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import structlog

from eomirror._native import digest_behind
from eomirror.clock import Deadline
from eomirror.errors import AuthorizationError
from eomirror.kafka.log_ends import skip_missing
from eomirror.link.hanging import target_hanging_client
from eomirror.plane.protocol import BatchMark, is_compacting
from eomirror.recovery.hanging import RecordState
from eomirror.recovery.resume import Resume, SourceFacts, TargetFacts, decide_resume

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from eomirror.config import Link
    from eomirror.kafka.cluster_metadata import TopicFacts
    from eomirror.kafka.session import ClusterSession
    from eomirror.plane.protocol import RecordMark
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = [
    "ChangedSource",
    "SourceState",
    "changed_ends",
    "changed_sources",
    "end_marks",
    "other_batches",
    "states_before",
]

log = structlog.get_logger(__name__)

_Where = TypeVar("_Where", bound=tuple[str, int])

_SECONDS = 30.0
# of a copy, which is not looked at here
_ANY_END = 2**63 - 1


class SourceState(enum.StrEnum):
    """Difference between the log of a source, or of its copy, and what a position says."""

    GONE = "gone"
    RECREATED = "recreated"
    SHORTER = "shorter"
    REPLACED = "replaced"
    GAP = "gap"
    UNPROVEN = "unproven"
    COPY = "copy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSource:
    """
    A source partition whose log is not what the position says.

    Attributes:
        position: The position.
        state: How it differs.
        log_start: First offset of the log; 0 without one.
        end: Its end, open transactions included; 0 without one.
        found: What is there in place of the batch or record before the position, or is wrong with the copy.

    ``unproven``: a promotion has set the position by the end of the copy alone, or a reversal has set it, and no batch
    of the source is known.
    """

    position: Position
    state: SourceState
    log_start: int = 0
    end: int = 0
    found: str = ""

    @property
    def source(self) -> SourcePartition:
        """The source partition."""
        return self.position.source

    @property
    def parts(self) -> bool:
        """True if the log, or its copy, may hold other records than were mirrored, or lack some, in the same topic."""
        return self.state in {
            SourceState.SHORTER,
            SourceState.REPLACED,
            SourceState.UNPROVEN,
            SourceState.COPY,
        }

    def __str__(self) -> str:
        where, offset = self.source, self.position.offset
        return {
            SourceState.GONE: f"{where} does not exist any more; it was mirrored up to offset {offset}",
            SourceState.RECREATED: f"{where} was deleted and created again; it was mirrored up to offset {offset}",
            SourceState.SHORTER: f"{where} ends at offset {self.end}, and was mirrored up to {offset}",
            SourceState.REPLACED: f"{where} is not the log that was mirrored up to offset {offset}: {self.found}",
            SourceState.UNPROVEN: f"{where} was mirrored up to offset {offset} as far as its copy shows",
            SourceState.COPY: f"the copy of {where} is not what was mirrored up to offset {offset}: {self.found}",
            SourceState.GAP: f"{where} begins at offset {self.log_start}, and was mirrored up to {offset}",
        }[self.state]


def changed_sources(
    link: Link,
    source: ClusterSession,
    positions: Iterable[Position],
    *,
    moved_by: str = "",
    unproven: Collection[SourcePartition] = (),
    copies: Mapping[SourcePartition, str] | None = None,
) -> dict[SourcePartition, ChangedSource]:
    """
    Returns the partitions whose logs are not what these positions say; what a broker does not tell is not among them.

    Args:
        source: Connections to the source.
        moved_by: Run of a promotion, which may have moved positions to the ends of their copies.
        unproven: Partitions whose positions a reversal has moved to where the logs part.
        copies: What is wrong with copies; empty for nothing.

    Raises:
        ClusterError: The source does not answer.
    """
    wanted = list(positions)
    if not wanted:
        return {}
    topics = source.admin.describe_topics(sorted({one.topic for one in wanted}))
    there = [one.source for one in wanted if _has_leader(topics[one.topic], one.source)]
    starts, ends = _offsets(source, there, at="earliest"), _offsets(source, there, at="latest")
    policies = _policies(source, [name for name, facts in topics.items() if facts is not None])
    found: dict[SourcePartition, ChangedSource] = {}
    batches: dict[SourcePartition, BatchMark] = {}
    records: dict[SourcePartition, RecordMark] = {}
    for one in wanted:
        facts = topics[one.topic]
        silent = facts is not None and one.source not in ends
        known = SourceFacts(
            None if facts is None or one.partition >= facts.partitions else facts.topic_id,
            starts.get(one.source, 0),
            ends.get(one.source, 0),
            silent=silent,
            policy=policies.get(one.topic),
        )
        decision = decide_resume(one, known, _as_named(one), accept_gaps=False)
        moved = one.source in unproven or (
            moved_by and one.epoch == 0 and one.run == moved_by and one.target_offset is not None
        )
        state = None if isinstance(decision, Resume) else _state(one, known)
        torn = (copies or {}).get(one.source, "")
        # of an older state of the copy the source may have deleted the records since
        if torn and not silent and state in {None, SourceState.GAP}:
            state = SourceState.COPY
        elif moved and not silent and state is None:
            state = SourceState.UNPROVEN
        if state is not None:
            found[one.source] = ChangedSource(
                position=one,
                state=state,
                log_start=known.log_start,
                end=known.high_watermark,
                found=torn if state is SourceState.COPY else "",
            )
        elif silent or not isinstance(decision, Resume):
            continue
        elif (batch := decision.history.batch) is not None:
            batches[one.source] = batch
        elif (record := decision.history.record) is not None:
            records[one.source] = record
    by_source = {one.source: one for one in wanted}
    committed = [one for one in wanted if one.batch_committed and one.source in batches]
    undone = _undone(link, source, {one.source: one.offset for one in committed})
    others = {**undone, **other_batches(link, source, batches), **_other_records(source, records)}
    for where, text in others.items():
        found[where] = ChangedSource(
            position=by_source[where],
            state=SourceState.REPLACED,
            log_start=starts[where],
            end=ends[where],
            found=text,
        )
    return found


def end_marks(
    link: Link, cluster: ClusterSession, ends: Mapping[_Where, int]
) -> dict[_Where, BatchMark | None]:
    """
    Returns the batch before each offset, for `changed_ends`; None if the log ends there or before.

    There is none of a compacted topic, of what retention has deleted, or if a broker does not tell.

    Args:
        cluster: Connections to the cluster of these partitions.

    Raises:
        ClusterError: It does not answer.
    """
    starts = _offsets(cluster, list(ends), at="earliest")
    policies = _policies(cluster, sorted({topic for topic, _ in starts}))
    wanted = {
        where: end - 1
        for where, end in ends.items()
        if end > starts.get(where, end) and where[0] in policies and not is_compacting(policies[where[0]])
    }
    told = _batches(link, cluster, wanted)
    return {where: None if batch is None else BatchMark(*batch) for where, batch in told.items()}


def states_before(
    link: Link, cluster: ClusterSession, ends: Mapping[_Where, int]
) -> Mapping[tuple[str, int], RecordState]:
    """
    Returns the state of the record before each offset; none at the beginning of a log.

    Raises:
        ClusterError: The cluster does not answer.
    """
    asked = {(where[0], where[1]): end - 1 for where, end in ends.items() if end > 0}
    if not asked:
        return {}
    client = target_hanging_client(link, cluster)
    try:
        return client.record_states(asked)
    finally:
        client.release()


def changed_ends(
    link: Link, source: ClusterSession, ends: Mapping[SourcePartition, tuple[int, BatchMark | None]]
) -> set[SourcePartition]:
    """
    Returns the partitions whose log ends before an offset, or holds another batch than its mark says.

    Args:
        source: Connections to the source.
        ends: An offset, and the batch that was before it; None if that is not known.

    Raises:
        ClusterError: The source does not answer.
    """
    starts, now = _offsets(source, list(ends), at="earliest"), _offsets(source, list(ends), at="latest")
    shorter = {where for where, (end, _) in ends.items() if where in now and now[where] < end}
    marks = {
        where: mark
        for where, (_, mark) in ends.items()
        if where in now and where not in shorter and mark is not None and mark.offset >= starts.get(where, 0)
    }
    return shorter | other_batches(link, source, marks).keys()


def _offsets(
    source: ClusterSession, partitions: Collection[tuple[str, int]], *, at: str
) -> Mapping[tuple[str, int], int]:
    return skip_missing(lambda asked: source.admin.offsets(asked, at=at, read_committed=False), partitions)


def _as_named(position: Position) -> TargetFacts:
    """Returns facts of a copy that is as the position says."""
    return TargetFacts(position.target_topic_id, _ANY_END)


def _has_leader(facts: TopicFacts | None, source: SourcePartition) -> bool:
    return (
        facts is not None and source.partition < facts.partitions and source.partition not in facts.leaderless
    )


def _state(position: Position, facts: SourceFacts) -> SourceState:
    if facts.topic_id is None:
        return SourceState.GONE
    if facts.topic_id != position.topic_id:
        return SourceState.RECREATED
    return SourceState.SHORTER if position.offset > facts.high_watermark else SourceState.GAP


def _policies(source: ClusterSession, topics: Collection[str]) -> Mapping[str, str | None]:
    """Returns the `cleanup.policy` of topics; none that may not be read, whose marks then prove nothing."""
    try:
        configs = source.admin.topic_configs(list(topics)) if topics else {}
    except AuthorizationError as error:
        log.warning("source_not_compared", reason=error.message)
        return {}
    return {
        topic: policy.value
        for topic, settings in configs.items()
        if (policy := settings.get("cleanup.policy")) is not None
    }


def other_batches(link: Link, source: ClusterSession, marks: Mapping[_Where, BatchMark]) -> dict[_Where, str]:
    """Returns what is in place of the batches of these marks, where it is something else."""
    found = {}
    for where, batch in _batches(link, source, {where: mark.offset for where, mark in marks.items()}).items():
        mark = marks[where]
        if batch is None:
            found[where] = f"there is no batch at offset {mark.offset}, where one was mirrored"
        elif batch != (mark.offset, mark.crc, mark.timestamp):
            found[where] = (
                f"the batch at offset {mark.offset} begins at {batch[0]} and has checksum {batch[1]}, where "
                f"{mark.crc} was mirrored"
            )
    return found


def _batches(
    link: Link, source: ClusterSession, offsets: Mapping[_Where, int]
) -> dict[_Where, tuple[int, int, int] | None]:
    """Returns the batch at each offset, None where there is none; empty if the cluster cannot be asked."""
    if not offsets:
        return {}
    client = target_hanging_client(link, source)
    try:
        told = client.batches({where: offset for where, offset in offsets.items()})  # noqa: C416  of the wider type
    finally:
        client.release()
    if told is None:
        log.warning(
            "source_not_compared",
            link=link.name,
            reason=f"the extension's client cannot serve cluster {source.cluster.alias}: only the ends are compared",
        )
        return {}
    return {where: told[where] for where in offsets}


def _undone(link: Link, source: ClusterSession, ends: Mapping[_Where, int]) -> dict[_Where, str]:
    """
    Returns what has become of committed records before these offsets, where they are committed no more.

    A log that loses the marker of a transaction, and not all of its records, shows the rest as open.  An operator who
    ends that may abort it: the batches are the same then.
    """
    words = {RecordState.PENDING: "in an open transaction", RecordState.ABORTED: "aborted"}
    states = states_before(link, source, ends)
    return {
        where: f"the record at offset {end - 1} was committed, and is {words[state]}"
        for where, end in ends.items()
        if (state := states.get(where)) in words
    }


def _other_records(
    source: ClusterSession, marks: Mapping[SourcePartition, RecordMark]
) -> dict[SourcePartition, str]:
    """Returns what is in place of the records of these marks, where it is something else."""
    if not marks:
        return {}
    asked = {(where.topic, where.partition): mark.offset for where, mark in marks.items()}
    with source.reader() as reader:
        reader.connect(sorted({where.topic for where in marks}))
        messages = reader.first(asked, deadline=Deadline(_SECONDS, source.clock))
    found = {}
    for where, mark in marks.items():
        message = messages.get((where.topic, where.partition))
        if message is None or message.offset() != mark.offset:
            found[where] = f"there is no record at offset {mark.offset}, where one was mirrored"
        elif (digest := digest_behind(mark.before, message)) != mark.after:
            found[where] = f"record {mark.offset} has digest {digest}, where {mark.after} was mirrored"
    return found
