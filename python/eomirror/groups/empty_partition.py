"""
Translates offsets of groups at the end of a partition without mirrored records.

The offset map is empty there and knows no offset; yet a group that has read everything resumes at the next record.
Java consumers also commit offset 0 of empty partitions, and such a group would have no offset on the other
side for as long as its partition stays empty.

A group at the end of one side resumes at the end of the other.  The ends are valid only in this order: first the last
stable offset of the copy, then the position.  If the position then names no record, every later record of the link
is at that offset or behind it.  In the other order, a record that is mirrored in between would be before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.kafka.admin_client import skip_missing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.link.offset_map_reader import OffsetMapReader, Question

__all__ = ["from_end_to_end"]


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
