"""
Translates group offsets without the source, from the checkpoints that a running mirror has written. Pure.

A checkpoint holds both offsets of a group exactly, and was committed behind the records that it refers to.  Offsets
that a group committed after the last look at the source, or of records that were never mirrored, are in no checkpoint:
such a group resumes a little earlier, and skips no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.groups.translation import Asked, Translation, translated

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
        One per group and partition of the topics in which it has a checkpoint.
    """
    of_topic: dict[str, list[Position]] = {}
    for position in positions:
        of_topic.setdefault(position.target_topic, []).append(position)
    groups: dict[tuple[str, str], dict[int, Checkpoint]] = {}
    for one in checkpoints:
        groups.setdefault((one.group, one.topic), {})[one.partition] = one
    return [
        _of_checkpoint(link, group, position, last.get(position.target_partition))
        for (group, topic), last in groups.items()
        for position in of_topic.get(topic, ())
    ]


def _of_checkpoint(link: str, group: str, position: Position, one: Checkpoint | None) -> Translation:
    there = position.target_topic, position.target_partition
    if one is not None:
        asked = Asked(position.source, one.upstream, group, one.metadata)
        return translated(link, asked, there, one.downstream, kind="exact")
    asked = Asked(position.source, NO_OFFSET, group)
    if position.target_offset is None:
        # The copy has no record yet, so none can be skipped.
        return translated(link, asked, there, 0, kind="next")
    return translated(link, asked, there, reason=_NONE)
