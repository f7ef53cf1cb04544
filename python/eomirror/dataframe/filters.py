"""Parts of topics that the filters of a batch query leave to read. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.dataframe.offsets import Name

__all__ = ["Restriction"]

_FIRST, _LAST = -(2**63), 2**63 - 1


@dataclass(frozen=True, slots=True)
class Restriction:
    """
    The part of the topics that a query reads.

    Attributes:
        topics: Topics; None for all.
        numbers: Partitions; None for all.
        first: First offset.
        last: Last offset.
        first_time: First timestamp, in ms; None for all.
        last_time: Last timestamp, in ms; None for all.
    """

    topics: frozenset[str] | None = None
    numbers: frozenset[int] | None = None
    first: int = 0
    last: int = _LAST
    first_time: int | None = None
    last_time: int | None = None

    @property
    def times(self) -> tuple[int, int] | None:
        """First and last timestamp of the rows, in ms; None for all."""
        if self.first_time is None and self.last_time is None:
            return None
        return (
            _FIRST if self.first_time is None else self.first_time,
            _LAST if self.last_time is None else self.last_time,
        )

    def takes(self, name: Name) -> bool:
        """Returns True if rows of a partition are wanted."""
        return (self.topics is None or name[0] in self.topics) and (
            self.numbers is None or name[1] in self.numbers
        )

    def offsets(self, start: int, end: int) -> tuple[int, int]:
        """Returns the wanted part of a range of offsets."""
        start = max(start, self.first)
        return start, max(start, min(end, self.last + 1))

    def pushed(self, filters: Iterable[Any]) -> tuple[Restriction, list[Any]]:
        """
        Returns what is read with these filters, and the filters that Spark has to apply to the rows.

        A filter on a timestamp is returned as well: a timestamp of Spark has microseconds.
        """
        found, left = self, []
        for one in filters:
            narrowed, whole = found._with(one)
            found = narrowed or found
            if narrowed is None or not whole:
                left.append(one)
        return found, left

    def _with(self, one: Any) -> tuple[Restriction | None, bool]:
        """Returns the narrower restriction, None if the filter is another one; and True if nothing is left of it."""
        kind, column = type(one).__name__, getattr(one, "attribute", ())
        value = getattr(one, "value", None)
        values: frozenset[Any] = frozenset(value or ()) if kind == "In" else frozenset({value})
        if kind in {"EqualTo", "In"} and values and None not in values:
            if column == ("topic",):
                return replace(self, topics=_both(self.topics, values)), True
            if column == ("partition",):
                return replace(self, numbers=_both(self.numbers, values)), True
        if column == ("offset",) and isinstance(value, int):
            bounds = {
                "EqualTo": (value, value),
                "GreaterThan": (value + 1, _LAST),
                "GreaterThanOrEqual": (value, _LAST),
                "LessThan": (0, value - 1),
                "LessThanOrEqual": (0, value),
            }.get(kind)
            if bounds:
                return replace(self, first=max(self.first, bounds[0]), last=min(self.last, bounds[1])), True
        if column == ("timestamp",) and isinstance(value, datetime):
            return self._within(kind, _milliseconds(value)), False
        return None, False

    def _within(self, kind: str, at: int) -> Restriction | None:
        found = self
        if kind in {"EqualTo", "GreaterThan", "GreaterThanOrEqual"}:
            found = replace(found, first_time=at if found.first_time is None else max(found.first_time, at))
        if kind in {"EqualTo", "LessThan", "LessThanOrEqual"}:
            found = replace(found, last_time=at if found.last_time is None else min(found.last_time, at))
        return None if found is self else found


def _both(known: frozenset[Any] | None, more: frozenset[Any]) -> frozenset[Any]:
    return more if known is None else known & more


def _milliseconds(value: datetime) -> int:
    """Returns the millisecond in which a time lies; Spark's times without a zone are in UTC."""
    zoned = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
    since = zoned - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400_000) + (since.seconds * 1000) + since.microseconds // 1000
