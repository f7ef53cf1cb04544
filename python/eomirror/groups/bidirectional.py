"""
Translates offsets between two sides that both write a topic of equal name. Pure.

Both links bring the other side's records into the same partition, and each keeps only the order of its own.  So a
consumer that has read one side up to an offset has read a prefix of each origin's records, and on the other side the
two prefixes end at different offsets.  `Bound` is one link's answer; `settle` takes the first record that
was not read, so that none is skipped, and counts the later ones that were read::

    east, read to here: | e1 w1 e2 | w2 e3          e: written on east, w: written on west
    west:                 w1 w2 e1 e2 e3            resumes at w2; e1 and e2 are read again

Answers of both offset maps go in, an offset comes out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.records.position import Position

__all__ = ["Bound", "Settled", "bound_of_copies", "bound_of_originals", "settle"]


@dataclass(frozen=True, slots=True)
class Bound:
    """
    Progress of a consumer through the records of one origin, in offsets of the side that it moves to.

    Attributes:
        unread: No unread record of this origin is before this offset.
        read: Every read record of this origin is before this offset.
        exact: True if the record at ``unread`` is the very next record of the consumer.
    """

    unread: int
    read: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """
    Resume offset of a consumer.

    Attributes:
        offset: No unread record is before this offset.
        again: Number of records at or after it that were read; an upper bound if not all were inspected.
        exact: True if the record there is the very next record of the consumer.
    """

    offset: int
    again: int
    exact: bool


def bound_of_copies(
    answer: tuple[str, int], first: int | None, position: Position, stable_end: int
) -> Bound | None:
    """
    Returns the bound from the link that copies records from the side that was read.

    Args:
        answer: Answer of the link's map for the consumer's offset.
        first: For an answer ``before``: offset of the first record that the map knows.
        position: Position of the link.
        stable_end: Last stable offset of the side that the consumer moves to, read before the position, so that later
            copies are behind it.

    Returns:
        None if the link has not mirrored that far.
    """
    # Behind the link's last record: all following copies will be behind the end.
    last = position.target_offset is not None and answer[1] == position.target_offset + 1
    return _bound(answer, first, stable_end, last=last)


def bound_of_originals(
    answer: tuple[str, int], first: int | None, position: Position | None, offset: int
) -> Bound | None:
    """
    Returns the bound from the opposite link, which copies records from the side that the consumer moves to.

    Args:
        answer: Answer of the opposite link's map in reverse, for the consumer's offset.
        first: As for `bound_of_copies`.
        position: Position of the opposite link, read before its map; None if it has no position of the partition.
        offset: Offset of the consumer.

    Returns:
        None if the offset is beyond the last stable offset.
    """
    if position is None:
        return Bound(0, 0)
    # Behind the last copy: records that the link has skipped since are not of that side.
    last = position.target_offset is None or offset > position.target_offset
    return _bound(answer, first, position.offset, last=last)


def _bound(answer: tuple[str, int], first: int | None, end: int, *, last: bool) -> Bound | None:
    kind, at = answer
    if kind == "nothing":
        return Bound(end, 0)
    if kind == "before":
        return None if first is None else Bound(first, 0)
    if kind == "exact":
        return Bound(at, at, exact=True)
    return Bound(max(at, end) if last else at, at) if kind == "next" else None


def settle(copies: Bound, originals: Bound, records: Sequence[tuple[int, bool]], *, whole: bool) -> Settled:
    """
    Returns the first record that was not read.

    Args:
        copies: Bound of the records that were written on the side that was read.
        originals: Bound of the records that were written on the side that the consumer moves to.
        records: Offset of every record between ``unread`` and ``read`` of both, ascending, and True for a copy.
        whole: True if these are all of them; else only the first ones.
    """
    low, high = min(copies.unread, originals.unread), max(copies.read, originals.read)
    if low >= high:
        return Settled(
            low, 0, (copies.exact and low == copies.read) or (originals.exact and low == originals.read)
        )
    start: int | None = None
    again = 0
    for offset, is_copy in records:
        read = offset < (copies.read if is_copy else originals.read)
        if start is None:
            start = None if read else offset
        else:
            again += read
    looked_to = records[-1][0] + 1 if records and not whole else high if whole else low
    if start is None:
        start = looked_to
    return Settled(start, again + high - looked_to, exact=False)
