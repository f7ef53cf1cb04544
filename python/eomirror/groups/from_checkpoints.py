"""
Translates group offsets without the source, from the checkpoints that a running mirror has written. Pure.

A checkpoint holds both offsets of a group exactly, and was committed behind the records that it refers to.  Offsets
that a group committed after the last look at the source, or of records that were never mirrored, are in no checkpoint:
such a group resumes a little earlier, and skips no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.groups.translation import Translation

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.records.mm2 import Checkpoint
    from eomirror.records.position import Position

__all__ = ["NO_OFFSET", "from_checkpoints"]

#: Source offset of a group that has no checkpoint of a partition.
NO_OFFSET = -1

_NONE = (
    "the group has no checkpoint of this partition: it has read nothing of what was mirrored, or the source was gone "
    "before it was seen; begin at `earliest`"
)


def from_checkpoints(
    link: str, checkpoints: Iterable[Checkpoint], positions: Iterable[Position]
) -> list[Translation]:
    """
    Returns the offsets of groups on the target.

    Args:
        checkpoints: The newest of each group and partition; those of other links' topics are ignored.
        positions: Positions of the link.

    Returns:
        One per group and partition of the topics in which it has a checkpoint, sorted where a copy has one source.
    """
    copies: dict[str, list[Position]] = {}
    for position in sorted(positions, key=lambda one: one.source):
        copies.setdefault(position.target_topic, []).append(position)
    place = {topic: index for index, topic in enumerate(copies)}
    groups: dict[str, dict[str, dict[int, Checkpoint]]] = {}
    for one in checkpoints:
        if one.topic in place:
            groups.setdefault(one.group, {}).setdefault(one.topic, {})[one.partition] = one
    return [
        _of_checkpoint(link, group, position, topics[topic].get(position.target_partition))
        for group, topics in sorted(groups.items())
        for topic in sorted(topics, key=place.__getitem__)
        for position in copies[topic]
    ]


def _of_checkpoint(link: str, group: str, position: Position, one: Checkpoint | None) -> Translation:
    offset, at, kind, reason, metadata = NO_OFFSET, None, "unknown", _NONE, ""
    if one is not None:
        offset, at, kind, reason, metadata = one.upstream, one.downstream, "exact", "", one.metadata
    elif position.target_offset is None:
        # The copy has no record yet, so none can be skipped.
        at, kind, reason = 0, "next", ""
    return Translation(
        link=link,
        group=group,
        topic=position.topic,
        partition=position.partition,
        offset=offset,
        to_topic=position.target_topic,
        to_partition=position.target_partition,
        to_offset=at,
        kind=kind,
        reason=reason,
        metadata=metadata,
    )
