"""Counts of a partition's comparison, and the offsets that retention has left on both sides of a pair."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eomirror._native import PartitionMap
from eomirror.link.offset_map_reader import take_chunk
from eomirror.records.offset_map import read_offset_map_key
from eomirror.verify.verdict import needed_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.kafka.compacted_topic import LogRecord
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["KINDS", "Found", "PartitionCounts", "RetentionBounds"]

#: Kinds of differences, worst first.
KINDS = ("missing", "duplicate", "reordered", "altered", "foreign")

#: Holes of a log that are kept at most.
MOST_HOLES = 100

#: A difference: its kind, and the source and target offsets of its records.
Found = tuple[str, int | None, int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCounts:
    """
    Counts of one partition.

    Attributes:
        matched: Records (or, by key, keys) that agree.
        differences: Count by kind.
        source: Counts of the source: records, bytes, aborted, control, left_out, position.
        target: The same of the target.
        found: The first differences.
        places: Target partition of each of ``found``, where records are placed by key; else empty.
        at: Source and target offset from which another comparison can resume; None while there is none.
        whole: True if the whole requested range is compared.
        holes: Ranges of source offsets that no batch of the log has, unless a batch shows that it was compacted.
    """

    matched: int = 0
    differences: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))
    source: dict[str, int] = field(default_factory=dict)
    target: dict[str, int] = field(default_factory=dict)
    found: tuple[Found, ...] = ()
    at: tuple[int, int] | None = None
    whole: bool = True
    holes: tuple[tuple[int, int], ...] = ()
    places: tuple[int | None, ...] = ()

    def plus(self, later: PartitionCounts, *, show: int) -> PartitionCounts:
        """Returns the sum of these counts and later ones; keeps at most ``show`` differences."""
        return PartitionCounts(
            matched=self.matched + later.matched,
            differences=_sum(self.differences, later.differences),
            source=_sum(self.source, later.source) | {"position": later.source.get("position", 0)},
            target=_sum(self.target, later.target) | {"position": later.target.get("position", 0)},
            found=(*self.found, *later.found)[:show],
            places=(*self.places, *later.places)[:show],
            # A side without any record read has not advanced.
            at=later.at if self.at is None or later.at is None else _furthest(self.at, later.at),
            whole=later.whole,
            holes=tuple(dict.fromkeys((*self.holes, *later.holes)))[:MOST_HOLES],
        )

    @classmethod
    def of(
        cls, counts: dict[str, Any], found: list[Found], at: tuple[int, int] | None, *, whole: bool
    ) -> PartitionCounts:
        """Makes the counts from `PartitionComparison`."""
        return cls(
            matched=counts["matched"],
            differences=counts["differences"],
            source=_numbers(counts["source"]),
            target=_numbers(counts["target"]),
            found=tuple(found),
            at=at,
            whole=whole,
            holes=tuple((start, end) for start, end in counts["source"]["holes"]),
        )


def _numbers(counts: dict[str, Any]) -> dict[str, int]:
    return {name: count for name, count in counts.items() if name != "holes"}


def _furthest(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return max(one[0], other[0]), max(one[1], other[1])


def _sum(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


# Ranges of all partitions together: 24 MB.
_KEPT_RANGES = 1_000_000
_LEAST_RANGES, _MOST_RANGES = 64, 65_536


class RetentionBounds:
    """
    Collects the decisive ranges from the records of the offset map.

    A later chunk overrules an earlier one where they disagree: the mirror was moved back, or its target was replaced.
    The kept state does not grow with the map: the first range of each partition, and a number of ranges before the
    beginnings of both logs, large enough that one is left when the last of them are overruled.

    Args:
        wanted: By source partition: its position, and the first source offset and target offset that can be compared.

    Attributes:
        replaced: Source partitions with chunks of an earlier topic of this name.
    """

    def __init__(self, wanted: Mapping[SourcePartition, tuple[Position, int, int]]) -> None:
        self._wanted = wanted
        self._most = min(_MOST_RANGES, max(_LEAST_RANGES, _KEPT_RANGES // max(1, len(wanted))))
        self._maps = {source: PartitionMap() for source in wanted}
        self.replaced: set[SourcePartition] = set()

    def take(self, record: LogRecord) -> None:
        """
        Adds the next record of the map's topic.

        Raises:
            StateError: It is not readable, or has an unknown version; names the record.
        """
        source, topic_id, _ = read_offset_map_key(record.key, where=record.where)
        if record.value is None or source not in self._wanted:
            return
        position, first_source, first_target = self._wanted[source]
        if topic_id != position.topic_id:
            self.replaced.add(source)
            return
        found = self._maps[source]
        take_chunk(found, record, position)
        if found.ranges() > 4 * self._most:
            found.keep_near(first_source, first_target, self._most)

    def ranges(self) -> dict[SourcePartition, tuple[tuple[int, int, int], ...]]:
        """Returns at most three ranges of each partition: see `needed_ranges`."""
        return {
            source: needed_ranges(self._maps[source].listed(), *ends)
            for source, (_, *ends) in self._wanted.items()
        }
