"""
Groups at the end of a partition of which no record was mirrored.

The offset map is empty there, and knows no offset; yet a group that has read all there is goes on at whatever comes
next.  Consumers of Java commit offset 0 of empty partitions, too, and such a group would have no place on the other
side for as long as its partition stays empty.

Where the group stands on one end, it goes on at the other.  Ends are only known in this order: first the last stable
offset of the copy, then the position.  A position that names no record by then says that whatever the link mirrors
comes at that offset or behind it.  The other way round, a record that is mirrored in between would lie before it.
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
    The same answers, but for those of a group at the end of a partition without mirrored records.

    Args:
        reader: Of the link.
        questions: What was asked.
        answers: What its map says.
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
