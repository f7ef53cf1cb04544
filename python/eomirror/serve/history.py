"""
Keeps lag, rate and commit time of a link and of its topics for the last hour and day, in memory. Pure.

A value per 10 s for an hour and one per 5 minutes for a day take 4 bytes each: 10 kB for a link, 8 kB for a topic.  A
process keeps at most `MOST_TOPICS` topics, those with the largest lag of the hour, so 50 links with 5,000 partitions
take at most 19 MB, and one link with 200 topics takes 1.9 MB.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.serve.body import Judged

__all__ = [
    "LINES",
    "MOST_TOPICS",
    "PERIODS",
    "SAMPLE_SECONDS",
    "Lines",
    "LinkSeries",
    "Series",
    "topics_each",
]

#: Lines of a link; a topic has all but the last.
LINES = ("lag_records", "lag_seconds", "rate", "commit_seconds")

#: Period -> line -> its values, the newest last; None is unknown.
Lines: TypeAlias = "Mapping[str, Mapping[str, Sequence[float | None]]]"

#: Seconds between two values of the finer ring.
SAMPLE_SECONDS = 10

#: Name -> seconds of one value, and number of values.
PERIODS = {"hour": (SAMPLE_SECONDS, 360), "day": (300, 288)}

#: Topics that one process keeps.
MOST_TOPICS = 2_000

_MOST_OF_A_LINK = 200
_FEWEST_OF_A_LINK = 20
_CARRIED_SECONDS = 40
# several rates within one value are averaged; of lags and times the largest counts
_AVERAGED = LINES.index("rate")


def topics_each(links: int) -> int:
    """Returns the number of topics that each of so many links may keep."""
    return max(_FEWEST_OF_A_LINK, min(_MOST_OF_A_LINK, MOST_TOPICS // max(1, links)))


class _Ring:
    """
    Values at regular times, the oldest overwritten; NaN is unknown.

    A value stands for the times after it until the next one, for `_CARRIED_SECONDS` or one step at most: a link that
    is read every 12 s has no gap every minute.
    """

    __slots__ = ("_added", "_carried", "_newest", "_puts", "_slots", "_step", "_values")

    def __init__(self, step: int, slots: int, columns: int) -> None:
        self._step, self._slots = step, slots
        self._carried = max(1, _CARRIED_SECONDS // step)
        self._values = [array("f", [math.nan]) * slots for _ in range(columns)]
        # the newest slot, the last one to which values were added, and how many were
        self._newest = self._added = -1
        self._puts = 0

    def put(self, now: float, values: Sequence[float | None]) -> None:
        """Adds values at a time, which does not go back."""
        self._move(now)
        self._puts = self._puts + 1 if self._added == self._newest else 1
        self._added, slot = self._newest, self._newest % self._slots
        for number, (column, value) in enumerate(zip(self._values, values, strict=True)):
            before, after = column[slot], math.nan if value is None else value
            if self._puts == 1 or math.isnan(before):
                column[slot] = after
            elif number == _AVERAGED:
                column[slot] = before if math.isnan(after) else before + (after - before) / self._puts
            else:
                column[slot] = before if math.isnan(after) else max(before, after)

    def read(self, now: float) -> list[list[float | None]]:
        """Returns the values of each column up to now, oldest first, from the first that is known on."""
        self._move(now)
        begin = (self._newest + 1) % self._slots
        found = [[*column[begin:], *column[:begin]] for column in self._values]
        known = [
            next((at for at, one in enumerate(values) if not math.isnan(one)), self._slots)
            for values in found
        ]
        return [
            [None if math.isnan(one) else round(one, 3) for one in values[min(known) :]] for values in found
        ]

    def largest(self, column: int) -> float:
        """Returns the largest value of a column; -1 if none is known."""
        return max((one for one in self._values[column] if not math.isnan(one)), default=-1.0)

    def _move(self, now: float) -> None:
        slot = int(now // self._step)
        for passed in range(max(self._newest + 1, slot - self._slots + 1), slot + 1):
            carried = self._added >= 0 and passed - self._added <= self._carried
            for column in self._values:
                column[passed % self._slots] = column[self._added % self._slots] if carried else math.nan
        self._newest = max(self._newest, slot)


class Series:
    """Values of one link or topic, for an hour and for a day.  Not thread-safe."""

    __slots__ = ("_columns", "_rings")

    def __init__(self, columns: int) -> None:
        self._columns = columns
        self._rings = {name: _Ring(*shape, columns) for name, shape in PERIODS.items()}

    def put(self, now: float, values: Sequence[float | None]) -> None:
        """Adds values at a time in monotonic seconds; None is unknown."""
        for ring in self._rings.values():
            ring.put(now, values)

    def lines(self, now: float) -> Lines:
        """Returns the values of each line for each of `PERIODS`."""
        return {
            name: dict(zip(LINES[: self._columns], ring.read(now), strict=True))
            for name, ring in self._rings.items()
        }

    def peak(self) -> float:
        """Returns the largest lag of the hour in records; -1 if none is known."""
        return self._rings["hour"].largest(0)


class LinkSeries:
    """
    Values of one link and of those of its topics that lag most.  Not thread-safe.

    A topic that has found a place keeps it until another one lags more than it did in the last hour.

    Args:
        most_topics: Number of topics.
    """

    def __init__(self, most_topics: int) -> None:
        self._most = most_topics
        self._link = Series(len(LINES))
        self._topics: dict[str, Series] = {}

    def add(self, link: Judged, now: float) -> None:
        """Adds the values of a moment, in monotonic seconds."""
        status, work = link.status, link.work
        # 0 is the time of a commit that was not heard of
        commit = None if work is None else work.commit_seconds or None
        rate = None if status.unread else status.rate
        self._link.put(now, (status.lag_records, status.lag_seconds, rate, commit))
        lines = {
            row.topic: (row.lag_records, row.lag_seconds, None if status.unread else row.rate)
            for row in link.topic_rows
        }
        for topic, series in self._topics.items():
            series.put(now, lines.get(topic, (None, None, None)))
        for topic in self._placed({topic: values[0] or 0 for topic, values in lines.items()}):
            self._topics[topic] = Series(len(LINES) - 1)
            self._topics[topic].put(now, lines[topic])

    def link(self, now: float) -> Lines:
        """Returns the lines of the link, as `Series.lines` does."""
        return self._link.lines(now)

    def topic(self, topic: str, now: float) -> Lines | None:
        """Returns the lines of a topic; None for one that is not kept."""
        found = self._topics.get(topic)
        return None if found is None else found.lines(now)

    def _placed(self, lags: Mapping[str, float]) -> list[str]:
        """Returns the topics that get a place; those that lose theirs are forgotten."""
        free = self._most - len(self._topics)
        fresh = sorted(lags.keys() - self._topics.keys(), key=lambda topic: (-lags[topic], topic))
        placed, waiting = fresh[:free], fresh[free:]
        if not waiting or not lags[waiting[0]]:
            return placed
        peaks = sorted((series.peak(), topic) for topic, series in self._topics.items())
        for topic, (peak, least) in zip(waiting, peaks, strict=False):
            if lags[topic] <= peak:
                break
            del self._topics[least]
            placed.append(topic)
        return placed
