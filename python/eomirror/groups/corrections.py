"""
Raises translated offsets to the log start of their partition.

Retention may have removed the copy of a record that the source still has.  An offset below the log start is out of
range, and a consumer with ``auto.offset.reset=latest`` then jumps to the end, past all remaining records.

The offset map is empty there and knows no offset; yet a group that has read everything resumes at the next record.
Java consumers also commit offset 0 of empty partitions, and such a group would have no offset on the other
side for as long as its partition stays empty.

A group at the end of one side resumes at the end of the other.  The ends are valid only in this order: first the last
stable offset of the copy, then the position.  If the position then names no record, every later record of the link
is at that offset or behind it.  In the other order, a record that is mirrored in between would be before it.

The offset map translates offsets of the old topic to the old copy.  It knows nothing about the present ones,
although their offsets have the same numbers: a consumer that used them would skip records, or read unrelated ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.errors import AuthorizationError, TopicError, UnreachableError
from eomirror.kafka.log_ends import existing_starts, skip_missing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eomirror.groups.translation import Name, Translation
    from eomirror.kafka.session import ClusterSession
    from eomirror.link.offset_map_reader import OffsetMapReader, Question
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["from_end_to_end", "from_log_start", "not_below", "replaced"]


def replaced(
    positions: Collection[Position], *, source: ClusterSession | None, target: ClusterSession
) -> dict[SourcePartition, str]:
    """
    Returns the partitions whose offsets cannot be translated for that reason, with a text.

    A topic that may not be seen is taken for unchanged.

    Args:
        positions: Positions of the queried partitions.
        source: The link's source; None to check only the target.

    Raises:
        ClusterError: A cluster cannot be asked.
    """
    found: dict[SourcePartition, str] = {}
    if not positions:
        return found
    sides = [(target, {each.source: (each.target_topic, each.target_topic_id) for each in positions})]
    if source is not None:
        sides.append((source, {each.source: (each.topic, each.topic_id) for each in positions}))
    for session, topics in sides:
        cluster = session.cluster
        seen, _ = session.admin.visible_topics(sorted({name for name, _ in topics.values()}))
        for partition, (name, topic_id) in topics.items():
            if name not in seen:
                continue
            facts = seen[name]
            if facts is None:
                found[partition] = f"topic {name} does not exist on {cluster.alias}"
            elif facts.topic_id != topic_id:
                found[partition] = (
                    f"topic {name} was deleted and created again on {cluster.alias}: the link's offsets "
                    "belong to the old topic"
                )
    return found


def from_end_to_end(
    reader: OffsetMapReader,
    questions: Sequence[Question],
    answers: Sequence[tuple[str, int]],
    *,
    reverse: bool,
) -> list[tuple[str, int]]:
    """
    Returns the answers, replaced for groups at the end of a partition without mirrored records.

    Args:
        reader: Offset map reader of the link.
        questions: Translated offsets.
        answers: Answers of the offset map.
        reverse: Offsets are on the target, answers on the source.

    Raises:
        StateError: A position is not readable.
        ClusterError: The target cannot be read.
    """
    found = list(answers)
    asked = [index for index, (kind, _) in enumerate(answers) if kind == "nothing"]
    if not asked:
        return found
    copies = {
        (position.target_topic, position.target_partition)
        for position in (questions[index].position for index in asked)
    }
    ends = skip_missing(reader.stable_ends, copies)
    positions = reader.positions()
    for index in asked:
        before = questions[index].position
        position = positions.get(before.source)
        end = ends.get((before.target_topic, before.target_partition))
        if position is None or end is None or position.target_offset is not None:
            continue
        if (position.topic_id, position.target_topic_id) != (before.topic_id, before.target_topic_id):
            continue
        here, there = (end, position.offset) if reverse else (position.offset, end)
        if questions[index].offset == here:
            found[index] = "next", there
    return found


def not_below(starts: Mapping[Name, int], where: Name, offset: int) -> int:
    """Returns the offset, or the log start if that is later; a partition without a known log start keeps its offset."""
    return max(offset, starts.get(where, offset))


def from_log_start(translations: Sequence[Translation], cluster: ClusterSession) -> list[Translation]:
    """
    Returns the translations, none of them below a log start.

    Args:
        cluster: Cluster that consumers move to.

    Raises:
        ClusterError: The cluster cannot be asked.
    """
    wanted = {(one.to_topic, one.to_partition) for one in translations if one.to_offset is not None}
    starts = _log_starts(cluster, wanted) if wanted else {}
    if not any(starts.values()):
        return list(translations)
    return [_raised(starts, one) for one in translations]


def _raised(starts: Mapping[Name, int], one: Translation) -> Translation:
    if one.to_offset is None:
        return one
    start = not_below(starts, (one.to_topic, one.to_partition), one.to_offset)
    if start == one.to_offset:
        return one
    # The record itself was removed.
    return replace(one, to_offset=start, kind="next" if one.kind == "exact" else one.kind)


def _log_starts(cluster: ClusterSession, partitions: Collection[Name]) -> Mapping[Name, int]:
    return existing_starts(
        cluster.admin,
        partitions,
        # A topic that may not be seen does not affect the others.
        passing=(AuthorizationError, TopicError, UnreachableError),
    )
