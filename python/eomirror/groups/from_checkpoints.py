"""
Translates group offsets without the source, from the checkpoints that a running mirror has written.

A checkpoint holds both offsets of a group exactly, and was committed behind the records that it refers to.  Offsets
that a group committed after the last look at the source, or of records that were never mirrored, are in no checkpoint:
such a group resumes a little earlier, and skips no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import structlog

from eomirror.errors import UnreachableError, UsageError
from eomirror.groups.log_start import from_log_start
from eomirror.groups.recreated_topic import replaced
from eomirror.groups.translation import Translation, voided

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eomirror.config import Cluster, Link
    from eomirror.link.offset_map_reader import OffsetMapReader
    from eomirror.records.mm2 import Checkpoint
    from eomirror.records.position import Position

__all__ = [
    "NO_OFFSET",
    "FindUnreachable",
    "checkpointed",
    "none_unreachable",
    "refuse_reverse_without_source",
    "translations",
]

log = structlog.get_logger(__name__)

#: Source offset of a group that has no checkpoint of a partition.
NO_OFFSET = -1

_NONE = (
    "the group has no checkpoint of this partition: it has read nothing of what was mirrored, or the source was gone "
    "before it was seen; begin at `earliest`"
)


class FindUnreachable(Protocol):
    """Finds the clusters that do not answer."""

    def __call__(self, links: Sequence[Link], /) -> Mapping[str, UnreachableError]:
        """Returns the errors of these links' sources that do not answer, by alias; raises if a target does not."""


def none_unreachable(_: Sequence[Link]) -> Mapping[str, UnreachableError]:
    """Returns an empty mapping, without asking."""
    return {}


def refuse_reverse_without_source(*, source_unavailable: bool, reverse: bool) -> None:
    """
    Refuses the way back without the source: the target's offsets are read, but the source is needed.

    Raises:
        UsageError: Both options were given.
    """
    if source_unavailable and reverse:
        raise UsageError(
            "the way back begins on the target, and needs the source",
            fix="leave out --source-gone or --reverse",
        )


def checkpointed(
    link: Link,
    reader: OffsetMapReader,
    target: Cluster,
    *,
    matches: Callable[[str], bool],
    client_id: str,
    error: UnreachableError | None = None,
) -> tuple[list[Translation], dict[tuple[str, str, int], str]]:
    """
    Returns the resume offsets of groups on the target; asks only the target.

    Args:
        reader: Offset map reader of the link.
        target: Target of the link.
        matches: Returns True for wanted groups.
        client_id: Client id that brokers see.
        error: Reason that the source was not asked; raised if there are no checkpoints either.

    Returns:
        One per group and partition of the topics in which it has a checkpoint; and its commit metadata by group, topic
        and partition of the source.

    Raises:
        UnreachableError: ``error``, with a fix; or the target cannot be reached.
        ClusterError: The target cannot be read.
    """
    # A link with loop guard needs both sides: one side's checkpoints would skip the other's records.
    found = [] if link.guard else [one for one in reader.checkpoints() if matches(one.group)]
    positions = reader.positions()
    copies = {each.target_topic for each in positions.values()}
    found = [one for one in found if one.topic in copies]
    if not found and error is not None:
        raise UnreachableError(
            f"{error.message}; and there are no checkpoints of these groups on {link.target}",
            fix="start at the offsets of an `eomirror offsets export` file, or from `earliest`; "
            "or retry when the source is back",
        ) from error
    if error is not None:
        log.warning("told_by_checkpoints", link=link.name, reason=error.message)
    found_offsets = translations(link.name, found, positions.values())
    asked = [(one.group, (one.topic, one.partition), one.offset) for one in found_offsets]
    named = {(source.topic, source.partition): position for source, position in positions.items()}
    reasons = replaced([named[name] for _, name, _ in asked], source=None, target=target, client_id=client_id)
    sound = [one for one in found_offsets if named[one.topic, one.partition].source not in reasons]
    return (
        from_log_start(sound, target, client_id=client_id)
        + voided(link, asked, named, reasons, reverse=False),
        _metadata(found, positions.values()),
    )


def translations(
    link: str, checkpoints: Iterable[Checkpoint], positions: Iterable[Position]
) -> list[Translation]:
    """
    Translates by checkpoints. Pure.

    Args:
        link: Name of the link.
        checkpoints: The newest of each group and partition, of topics of the link.
        positions: Positions of the link.
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


def _metadata(
    checkpoints: Iterable[Checkpoint], positions: Iterable[Position]
) -> dict[tuple[str, str, int], str]:
    here = {(each.target_topic, each.target_partition): each.source for each in positions}
    return {
        (one.group, *here[one.topic, one.partition]): one.metadata
        for one in checkpoints
        if (one.topic, one.partition) in here
    }


def _of_checkpoint(link: str, group: str, position: Position, one: Checkpoint | None) -> Translation:
    at: int | None = None
    kind = "unknown"
    if one is not None:
        kind, at = "exact", one.downstream
    elif position.target_offset is None:
        # The copy has no record yet, so none can be skipped.
        kind, at = "next", 0
    return Translation(
        link=link,
        group=group,
        topic=position.topic,
        partition=position.partition,
        offset=NO_OFFSET if one is None else one.upstream,
        to_topic=position.target_topic,
        to_partition=position.target_partition,
        to_offset=at,
        kind=kind,
        reason="" if at is not None else _NONE,
    )
