"""What the translation of one offset says: pure, an answer of the map in, words for people and programs out."""

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

# the answer of a map that was not asked
_NOTHING = ("nothing", -1)


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
            ``offset`` (a marker, aborted, compacted or dropped data, or the end), or retention took it on the other
            side; going on at ``to_offset`` neither skips nor repeats a mirrored record that is there.
            ``earlier``, of a group where equal names are written on both sides: going on there skips none, and
            reads some again.  ``unknown``: see ``reason``.
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


def refuse_nameless(group: str | None) -> None:
    """
    Nobody can be asked for the group without a name (`eomirror.kafka.consumer_groups`).

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
    Put an answer of the map into words.

    Args:
        link: Name of the link.
        position: Of the source partition.
        offset: What was asked about.
        answer: Kind and offset, as `eomirror._native.PartitionMap` gives them.
        group: The group that stands at ``offset``, if it was about one.
        reverse: From target to source.
        void: Why no answer holds; empty where one does.
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
    What nothing can be said of, although the link has a position.

    Args:
        link: The link.
        asked: Groups, if it was about one, partitions and offsets in them.
        positions: By the partition on the side that is asked from.
        reasons: Why no answer holds; partitions of which one does are left out.
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
    What is not known of partitions that the link should mirror, and of which it has no position.

    Such as a partition that was added a moment ago, or that has no leader.  To say nothing of it would be worse: a
    consumer that is assigned what it was told would never read it.

    Args:
        link: The link.
        asked: Partitions of its source and offsets in them.
        known: Partitions of which it has a position.
        group: The group that stands there.
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
        # it has no legal name there, and is left out by the link
        return ""


def _reason(kind: str, at: int, *, reverse: bool) -> str:
    if kind == "nothing":
        return "no record of this partition was mirrored yet"
    if kind == "before":
        return f"the first record that the map knows is at {at}"
    if reverse:
        return f"beyond the target's last stable offset, {at}"
    return f"not mirrored yet: the link stands at {at}"
