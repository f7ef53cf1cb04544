"""Turns an answer of the offset map into a translation for people and programs. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eomirror.errors import TopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from eomirror.config import Link
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["Translation", "never_mirrored", "refuse_nameless", "translation", "voided"]

# The answer of a map that was not asked.
_NOTHING = ("nothing", -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Translation:
    """
    Translation of one offset to the other side of a link.

    Attributes:
        group: The consumer group at this offset; empty for a plain offset.
        topic: Topic on the side of the question.
        partition: Partition there.
        offset: Next offset to read there.
        to_topic: Topic on the other side.
        to_partition: Partition there.
        to_offset: Next offset to read there; None if it is unknown.  Never guessed.
        kind: ``exact``: the record at ``to_offset`` is that record.  ``next``: no record of the link is at
            ``offset`` (a marker, aborted, compacted or dropped data, or the end), or retention removed it on the other
            side; resuming at ``to_offset`` neither skips nor repeats an existing mirrored record.
            ``earlier``, for a group whose equal names are written on both sides: resuming there skips none, and
            reads some again.  ``unknown``: see ``reason``.
        reason: Reason for an unknown offset; empty otherwise.
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
        """Returns the fields for ``-o json``."""
        return asdict(self)


def refuse_nameless(group: str | None) -> None:
    """
    Refuses the empty group name, which cannot be queried (`eomirror.kafka.consumer_groups`).

    Raises:
        UsageError: The name is empty.
    """
    if group == "":
        raise UsageError("the name of a group is empty", fix="name one, such as --group billing")


def translation(
    link: str,
    position: Position,
    offset: int,
    answer: tuple[str, int],
    *,
    group: str = "",
    reverse: bool = False,
    void: str = "",
) -> Translation:
    """
    Turns an answer of the map into a translation.

    Args:
        link: Name of the link.
        position: Position of the source partition.
        offset: Offset of the question.
        answer: Kind and offset, as `eomirror._native.PartitionMap` gives them.
        group: The group at ``offset``, if any.
        reverse: From target to source.
        void: Reason that no answer is valid; empty if one is.
    """
    kind, at = answer
    known = kind in {"exact", "next"} and not void
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
        reason="" if known else void or _reason(kind, at, reverse=reverse),
    )


def voided(
    link: Link,
    asked: Iterable[tuple[str, tuple[str, int], int]],
    positions: Mapping[tuple[str, int], Position],
    reasons: Mapping[SourcePartition, str],
    *,
    reverse: bool,
) -> list[Translation]:
    """
    Returns unknown translations for partitions whose position is not valid.

    Args:
        asked: Groups (or empty), partitions and offsets in them.
        positions: By the partition on the side of the question.
        reasons: Reason for each partition without a valid answer; the others are skipped.
        reverse: From target to source.
    """
    return [
        translation(link.name, positions[name], offset, _NOTHING, group=group, reverse=reverse, void=reason)
        for group, name, offset in asked
        if (reason := reasons.get(positions[name].source))
    ]


def never_mirrored(
    link: Link,
    asked: Iterable[tuple[tuple[str, int], int]],
    known: Collection[tuple[str, int]],
    *,
    group: str,
) -> list[Translation]:
    """
    Returns unknown translations for partitions that the link should mirror but has no position for.

    Such as a new partition, or one without a leader.  Leaving them out would be worse: a consumer that assigns the
    listed partitions would never read them.

    Args:
        asked: Partitions of its source and offsets in them.
        known: Partitions that have a position.
        group: The group at these offsets.
    """
    return [
        Translation(
            link=link.name,
            group=group,
            topic=topic,
            partition=partition,
            offset=offset,
            to_topic=_target_topic(link, topic),
            to_partition=partition,
            to_offset=None,
            kind="unknown",
            reason="the link has no position of this partition: it was never mirrored",
        )
        for (topic, partition), offset in asked
        if (topic, partition) not in known and link.mirrors(topic)
    ]


def _target_topic(link: Link, topic: str) -> str:
    try:
        return link.target_topic(topic)
    except TopicError:
        # The topic has no legal name there, and the link leaves it out.
        return ""


def _reason(kind: str, at: int, *, reverse: bool) -> str:
    if kind == "nothing":
        return "no record of this partition was mirrored yet"
    if kind == "before":
        return f"the first record that the map knows is at {at}"
    if reverse:
        return f"beyond the target's last stable offset, {at}"
    return f"not mirrored yet: the link is at {at}"
