"""Counts of a partition's comparison, which can be shown, saved, and resumed. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["KINDS", "Found", "PartitionCounts"]

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
