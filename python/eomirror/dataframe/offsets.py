"""
Offsets of a streaming query as Spark keeps them, and how much of a log one micro-batch takes. Pure.

The form is that of Spark's Kafka connector, and the ids of the topics::

    {"orders": {"0": 1000, "1": 998}, "$ids": {"orders": "jXzcoJnOSbqyOrC0xMwiZA"}}

No topic has this name.  The ids tell a topic that was deleted and created again, and the copy on another cluster, from
the topic that the offsets speak of.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["IDS", "Name", "QueryOffsets", "ReadRange", "limited_by_bytes", "limited_by_rows", "split"]

#: Topic and partition.
Name = tuple[str, int]

#: Key of the topic ids.
IDS = "$ids"


class ReadRange(NamedTuple):
    """
    Offsets of one partition that a task reads.

    Attributes:
        end: Offset behind the last one.
        topic_id: Id of the topic; empty if the cluster tells none.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str = ""


@dataclass(frozen=True, slots=True)
class QueryOffsets:
    """
    Next offsets to read.

    Attributes:
        next: Next offset of each partition.
        ids: Id of each topic; without those of clusters that tell none.
    """

    next: Mapping[Name, int]
    ids: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_json(cls, document: Mapping[str, Any]) -> QueryOffsets:
        """Returns the offsets of a document; ids may be missing, as in those of Spark's Kafka connector."""
        ids = document.get(IDS, {})
        return cls(
            {
                (topic, int(number)): int(offset)
                for topic, inner in document.items()
                if topic != IDS
                for number, offset in inner.items()
            },
            dict(ids),
        )

    def as_json(self) -> dict[str, dict[str, Any]]:
        """Returns the document, in a stable order: Spark compares offsets as texts."""
        found: dict[str, dict[str, Any]] = {}
        for (topic, number), offset in sorted(self.next.items()):
            found.setdefault(topic, {})[str(number)] = offset
        ids = {topic: self.ids[topic] for topic in found if self.ids.get(topic)}
        return found | ({IDS: ids} if ids else {})


def limited_by_rows(starts: Mapping[Name, int], ends: Mapping[Name, int], most: int) -> dict[Name, int]:
    """Returns ends with at most so many offsets, shared in proportion; each waiting partition gets at least one."""
    return _shared(starts, ends, dict.fromkeys(ends, 1.0), most)


def limited_by_bytes(
    starts: Mapping[Name, int], ends: Mapping[Name, int], sizes: Mapping[Name, float], most: int
) -> dict[Name, int]:
    """
    Returns ends with about so many bytes, shared in proportion; each waiting partition gets at least one offset.

    Args:
        sizes: Bytes of an offset of each partition; a partition without a size counts as those that have one.
    """
    known = [size for size in sizes.values() if size > 0]
    usual = sum(known) / len(known) if known else 1.0
    return _shared(starts, ends, {name: sizes.get(name) or usual for name in ends}, most)


def _shared(
    starts: Mapping[Name, int], ends: Mapping[Name, int], weights: Mapping[Name, float], most: int
) -> dict[Name, int]:
    waiting = {name: end - starts[name] for name, end in ends.items() if end > starts[name]}
    total = sum(count * weights[name] for name, count in waiting.items())
    if total <= most:
        return dict(ends)
    share = most / total
    return {
        name: starts[name] + min(waiting[name], max(1, int(waiting[name] * share)))
        if name in waiting
        else end
        for name, end in ends.items()
    }


def split(ranges: Iterable[ReadRange], least: int) -> list[ReadRange]:
    """Returns ranges without empty ones, cut into at least so many where there are enough offsets."""
    ranges = [one for one in ranges if one.end > one.start]
    total = sum(one.end - one.start for one in ranges)
    if len(ranges) >= least or not total:
        return ranges
    found = []
    for one in ranges:
        count = one.end - one.start
        pieces = min(count, max(1, round(least * count / total)))
        cuts = [one.start + count * piece // pieces for piece in range(pieces + 1)]
        found += [one._replace(start=start, end=end) for start, end in pairwise(cuts)]
    return found
