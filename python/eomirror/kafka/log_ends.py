"""Starts and ends of logs, of those partitions that exist and have a leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import MirrorError, TopicError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.kafka.admin import ClusterAdmin

__all__ = ["existing_ends", "existing_starts", "skip_missing"]

# the topic does not exist, or a partition has no leader
_PASSING: tuple[type[MirrorError], ...] = (TopicError, UnreachableError)


def existing_ends(
    admin: ClusterAdmin,
    partitions: Collection[tuple[str, int]],
    *,
    read_committed: bool,
    passing: tuple[type[MirrorError], ...] = _PASSING,
) -> Mapping[tuple[str, int], int]:
    """Returns last stable offsets or, without ``read_committed``, high watermarks; see `skip_missing`."""
    return skip_missing(
        lambda some: admin.offsets(some, at="latest", read_committed=read_committed),
        partitions,
        passing=passing,
    )


def existing_starts(
    admin: ClusterAdmin,
    partitions: Collection[tuple[str, int]],
    *,
    passing: tuple[type[MirrorError], ...] = _PASSING,
) -> Mapping[tuple[str, int], int]:
    """Returns log starts; see `skip_missing`."""
    return skip_missing(
        lambda some: admin.offsets(some, at="earliest", read_committed=False), partitions, passing=passing
    )


def skip_missing(
    read: Callable[[Sequence[tuple[str, int]]], Mapping[tuple[str, int], int]],
    partitions: Collection[tuple[str, int]],
    *,
    passing: tuple[type[MirrorError], ...] = _PASSING,
) -> Mapping[tuple[str, int], int]:
    """
    Returns the answers for partitions, without the topics that fail.

    Args:
        read: Returns the answers for all, or raises an error that names the failing topic.
        partitions: Topic and number.
        passing: Errors that concern that topic alone: by default it does not exist, or a partition has no leader.

    Raises:
        MirrorError: Any other error of ``read``, and one that names none of these topics.
    """
    while partitions:
        try:
            return read(sorted(partitions))
        except passing as error:
            kept = {where for where in partitions if where[0] != error.topic}
            if len(kept) == len(partitions):
                raise
            partitions = kept
    return {}
