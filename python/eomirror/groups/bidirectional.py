"""
Equal names that are written on both sides of a pair of links: where a consumer of one side goes on on the other.

Both links bring the other side's records into the same partition, and each keeps only the order of its own.  So a
consumer that has read one side up to an offset has read a prefix of each origin's records, and on the other side the
two prefixes end at different places.  `Bound` is what one link says about them; `settle` takes the first record that
was not read, so that none is skipped, and counts what lies behind it and was read.

::

    east, read to here: | e1 w1 e2 | w2 e3          e: written on east, w: written on west
    west:                 w1 w2 e1 e2 e3            goes on at w2; e1 and e2 are read again

Pure: answers of both offset maps in, an offset out.
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
    How far a consumer has come with the records of one origin, in offsets of the side that it goes to.

    Attributes:
        unread: No record of this origin that it has not read lies before this offset.
        read: Every record of this origin that it has read lies before this offset.
        exact: Whether the record at ``unread`` is the very record at which it stood.
    """

    unread: int
    read: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """
    Where it goes on.

    Attributes:
        offset: No record that it has not read lies before this offset.
        again: How many records at or behind it were read; an upper bound where not all were looked at.
        exact: Whether the record there is the one at which it stood.
    """

    offset: int
    again: int
    exact: bool


def bound_of_copies(
    answer: tuple[str, int], first: int | None, position: Position, stable_end: int
) -> Bound | None:
    """
    What the link says that brings records from the side where it has read.

    Args:
        answer: Of the link's map, for the offset that it has read to.
        first: For an answer ``before``: where the first record is that the map knows.
        position: Of the link.
        stable_end: Of the side that it goes to, read before the position: what is mirrored later lies behind it.

    Returns:
        None where the link has not come so far.
    """
    kind, at = answer
    if kind == "nothing":
        return Bound(stable_end, 0)
    if kind == "before":
        return None if first is None else Bound(first, 0)
    if kind == "exact":
        return Bound(at, at, exact=True)
    if kind != "next":
        return None
    # behind the link's last record: what follows has yet to come, and will lie behind the end
    last = position.target_offset is not None and at == position.target_offset + 1
    return Bound(max(at, stable_end) if last else at, at)


def bound_of_originals(
    answer: tuple[str, int], first: int | None, position: Position | None, offset: int
) -> Bound | None:
    """
    What the opposite link says, which takes records from the side that the consumer goes to.

    Args:
        answer: Of the opposite link's map, asked in reverse for the offset that it has read to.
        first: For an answer ``before``: where the first record is that the map knows.
        position: Of the opposite link, read before its map; None: it has never looked at the partition.
        offset: Where it has read to.

    Returns:
        None where the offset lies beyond what can be read.
    """
    if position is None:
        return Bound(0, 0)
    kind, at = answer
    if kind == "nothing":
        return Bound(position.offset, 0)
    if kind == "before":
        return None if first is None else Bound(first, 0)
    if kind == "exact":
        return Bound(at, at, exact=True)
    if kind != "next":
        return None
    # behind the last copy: what the link has passed over since is no record of that side
    last = position.target_offset is None or offset > position.target_offset
    return Bound(max(at, position.offset) if last else at, at)


def settle(copies: Bound, originals: Bound, records: Sequence[tuple[int, bool]], *, whole: bool) -> Settled:
    """
    The first record that was not read.

    Args:
        copies: Of the records that were written where it has read.
        originals: Of the records that were written where it goes on.
        records: Offset of every record between ``unread`` and ``read`` of both, ascending, and whether it is a copy.
        whole: Whether that is all of them; else only the first ones.
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
