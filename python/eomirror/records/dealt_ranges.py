"""Ranges of source offsets with whose orphans restorations have dealt, and what these leave. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import astuple, dataclass, replace
from typing import TYPE_CHECKING, Any

from eomirror.records.json_fields import text, whole
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

__all__ = ["DealtRange", "DealtRanges", "decoded_ranges", "encoded_ranges", "furthest", "rest", "united"]


@dataclass(frozen=True, slots=True)
class DealtRange:
    """
    Source offsets of one partition whose orphans a restoration has dealt with.

    Attributes:
        start: First offset.
        end: Offset behind the last.
        action: ``export``, ``merge`` or ``keep``.
        place: Topic or file that holds exported orphans; empty for none.
        records: Number of orphans that were found.
        host: Host on which the file is; empty for a topic.
        mark: Base offset, checksum and largest timestamp of the batch before ``end``: the range counts as long as the
            log has it.  None if that is not known, or was merged: then the position of the link tells.
    """

    start: int
    end: int
    action: str
    place: str = ""
    records: int = 0
    host: str = ""
    mark: tuple[int, int, int] | None = None


#: Ranges of each partition.
DealtRanges = Mapping[SourcePartition, tuple[DealtRange, ...]]


def rest(
    start: int, end: int, dealt: Iterable[DealtRange], by: Collection[str] | None = None
) -> list[tuple[int, int]]:
    """
    Returns what is left of a range of offsets without what was dealt with, ascending.

    Args:
        by: Actions that count; None for all.
    """
    left = [(start, end)] if start < end else []
    for done in dealt:
        if by is None or done.action in by:
            left = [
                piece
                for low, high in left
                for piece in ((low, min(high, done.start)), (max(low, done.end), high))
                if piece[0] < piece[1]
            ]
    return sorted(left)


def furthest(end: int, dealt: Iterable[DealtRange]) -> int:
    """Returns the end of the orphans of a partition: what was dealt with later may stand behind its reversal."""
    return max((end, *(one.end for one in dealt)))


def united(*ranges: DealtRanges) -> dict[SourcePartition, tuple[DealtRange, ...]]:
    """Returns all ranges, earlier ones first: without those that a later one of the same kind covers."""
    found: dict[SourcePartition, list[DealtRange]] = defaultdict(list)
    for some in ranges:
        for source, new in some.items():
            for each in new:
                same = [one for one in found[source] if (one.action, one.place) == (each.action, each.place)]
                found[source] = [one for one in found[source] if one not in same] + _joined([*same, each])
    return {source: tuple(each) for source, each in sorted(found.items())}


def _joined(ranges: Iterable[DealtRange]) -> list[DealtRange]:
    """
    Joins ranges of one kind that overlap or follow each other, of which the last one is the newest.

    One that goes further than a newer one, with another mark, is not joined: the log had another end then.
    """
    *earlier, newest = ranges
    apart = [
        one for one in earlier if one.end >= newest.end and one.end > newest.start and one.mark != newest.mark
    ]
    joined: list[DealtRange] = []
    for each in sorted(
        (one for one in (*earlier, newest) if one not in apart), key=lambda one: (one.start, -one.end)
    ):
        last = joined[-1] if joined else None
        if last is None or each.start > last.end:
            joined.append(each)
        elif each.end > last.end:
            # an overlap was counted in both
            records = (
                last.records + each.records if each.start == last.end else max(last.records, each.records)
            )
            joined[-1] = replace(last, end=each.end, records=records, host=each.host, mark=each.mark)
    return sorted((*apart, *joined), key=lambda one: (one.start, -one.end))


def encoded_ranges(ranges: DealtRanges) -> dict[SourcePartition, list[Any]]:
    """Returns the JSON form of the ranges of each partition."""
    return {source: [astuple(each) for each in some] for source, some in ranges.items()}


def decoded_ranges(topics: Mapping[str, Mapping[str, Any]]) -> dict[SourcePartition, tuple[DealtRange, ...]]:
    """Returns ranges by partition from their JSON form by topic; raises as `JsonType.read`."""
    return {
        SourcePartition(topic, int(partition)): tuple(
            # A later release may add fields.
            DealtRange(
                whole(start),
                whole(end),
                text(action),
                text(place),
                whole(records),
                text(host),
                _mark(*more[:1]),
            )
            for start, end, action, place, records, host, *more in some
        )
        for topic, partitions in topics.items()
        for partition, some in partitions.items()
    }


def _mark(value: Any = None) -> tuple[int, int, int] | None:
    if value is None:
        return None
    offset, crc, timestamp = value
    if type(timestamp) is not int:
        raise TypeError("mark")
    # a batch without timestamps has -1
    return whole(offset), whole(crc), timestamp
