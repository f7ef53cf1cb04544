"""An offset to translate, its translation, and the reason for an unknown one. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

__all__ = ["Asked", "Name", "OtherRecords", "Translation", "translated", "unknown_reason", "unreadable"]

#: Topic and partition.
Name = tuple[str, int]


class Asked(NamedTuple):
    """
    An offset to translate.

    Attributes:
        name: Topic and partition on the side of the question.
        offset: Next offset to read there.
        group: The consumer group at this offset; empty for a plain offset.
        metadata: Commit metadata of the group.
    """

    name: Name
    offset: int
    group: str = ""
    metadata: str = ""


class OtherRecords(NamedTuple):
    """
    Records that another link has written into a copy.

    Attributes:
        link: State name of the link; of several, the one whose record is first.
        first: Offset of its first record that the copy still has, or an earlier one.
    """

    link: str
    first: int


# not frozen: 1,000 groups in 100 partitions are 100,000 of these, and a frozen one takes 1 us longer to make
@dataclass(slots=True, kw_only=True)
class Translation:
    """
    Translation of one offset to the other side of a link.

    Attributes:
        group: The consumer group at this offset; empty for a plain offset.
        topic: Topic on the side of the question.
        offset: Next offset to read there.
        to_topic: Topic on the other side.
        to_offset: Next offset to read there; None if it is unknown.  Never guessed.
        kind: ``exact``: the record at ``to_offset`` is that record.  ``next``: no record of the link is at
            ``offset`` (a marker, aborted, compacted or dropped data, or the end), or retention removed it on the other
            side; resuming at ``to_offset`` neither skips nor repeats an existing mirrored record.
            ``earlier``, for a group whose equal names are written on both sides: resuming there skips none, and
            reads some again.  ``unknown``: see ``reason``.
        reason: Reason for an unknown offset; empty otherwise.
        again: Upper bound of the records that ``earlier`` reads again.
        metadata: Commit metadata of the group.
        others: Records of other links in the topic on the other side; None for none, or if they were not looked for.
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
    again: int = 0
    metadata: str = ""
    others: OtherRecords | None = None

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``; `GroupPartition` has the two that only groups have."""
        hidden = {"again", "metadata", "others"}
        return {name: value for name, value in asdict(self).items() if name not in hidden}


def unreadable(link: str, group: str, reason: str) -> Translation:
    """Returns the row of a group whose offsets cannot be read: it has no topic, and the reason."""
    return translated(
        link, Asked(("", -1), -1, group), ("", -1), reason=f"its offsets cannot be read: {reason}"
    )


def translated(
    link: str, asked: Asked, there: Name, at: int | None = None, *, kind: str = "unknown", reason: str = ""
) -> Translation:
    """
    Returns the translation of an offset.

    Args:
        there: Topic and partition on the other side.
        at: Offset there; None with the ``reason`` if it is unknown.
    """
    return Translation(
        link=link,
        group=asked.group,
        topic=asked.name[0],
        partition=asked.name[1],
        offset=asked.offset,
        to_topic=there[0],
        to_partition=there[1],
        to_offset=at,
        kind=kind,
        reason=reason,
        metadata=asked.metadata,
    )


def unknown_reason(kind: str, at: int, *, reverse: bool = False) -> str:
    """
    Returns the reason that the offset map gives no offset; empty if it gives one.

    Args:
        kind: Kind of its answer, as `eomirror._native.PartitionMap` gives it.
        at: Offset of its answer.
        reverse: From target to source.
    """
    if kind in {"exact", "next"}:
        return ""
    if kind == "nothing":
        return "no record of this partition was mirrored yet"
    if kind == "before":
        return f"it is before the first mirrored record, which is at {at}"
    if reverse:
        return f"beyond the target's last stable offset, {at}"
    return f"not mirrored yet: the link is at {at}"
