"""What the translation of one offset says: pure, an answer of the map in, words for people and programs out."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eomirror.formats.position import Position

__all__ = ["Translation", "translation"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """
    Where an offset of one side of a link is on the other.

    Attributes:
        link: Name of the link.
        group: The consumer group that stands there; empty when a plain offset was asked for.
        topic: Topic on the side that was asked about.
        partition: Partition there.
        offset: Next offset to read there.
        to_topic: Topic on the other side.
        to_partition: Partition there.
        to_offset: Next offset to read there; None when it is not known.  Never guessed.
        kind: ``exact``: the record at ``to_offset`` is that record.  ``next``: no record of the link is at
            ``offset`` (a marker, aborted, compacted or dropped data, or the end); going on at ``to_offset`` neither
            skips nor repeats a mirrored record.  ``earlier``, of a group where equal names are written on both sides:
            going on there skips none, and reads some again.  ``unknown``: see ``reason``.
        reason: Why it is unknown; empty otherwise.
    """

    link: str
    group: str = ""
    topic: str
    partition: int
    offset: int
    to_topic: str
    to_partition: int
    to_offset: int | None
    kind: str
    reason: str = ""

    def as_dict(self) -> dict[str, Any]:
        """For ``-o json``."""
        return asdict(self)


def translation(
    link: str,
    position: Position,
    offset: int,
    answer: tuple[str, int],
    *,
    group: str = "",
    reverse: bool = False,
) -> Translation:
    """
    Put an answer of the map into words.

    Args:
        link: Name of the link.
        position: Of the source partition.
        offset: What was asked about.
        answer: Kind and offset, as `eomirror._native.PartitionMap` gives them.
        group: The group that stands at ``offset``, if it was about one.
        reverse: From target to source.
    """
    kind, at = answer
    known = kind in {"exact", "next"}
    here: tuple[str, int] = position.source
    there = (position.target_topic, position.target_partition)
    if reverse:
        here, there = there, here
    return Translation(
        link=link,
        group=group,
        topic=here[0],
        partition=here[1],
        offset=offset,
        to_topic=there[0],
        to_partition=there[1],
        to_offset=at if known else None,
        kind=kind if known else "unknown",
        reason="" if known else _reason(kind, at, reverse=reverse),
    )


def _reason(kind: str, at: int, *, reverse: bool) -> str:
    if kind == "nothing":
        return "no record of this partition was mirrored yet"
    if kind == "before":
        return f"the first record that the map knows is at {at}"
    if reverse:
        return f"beyond the target's last stable offset, {at}"
    return f"not mirrored yet: the link stands at {at}"
