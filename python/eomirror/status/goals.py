"""
Tracks how far a link is from the offsets that its run is to reach, and how long the rest takes. Pure.

Offsets are counted, not records: a lane passes markers, aborted records and the holes of a compacted topic without a
record to write.

The time left is that of the slowest lane, because a partition stays in its lane, which alone can copy it in order::

    lane 0   9,000,000 left at 300,000/s   30 s
    lane 1     100,000 left at 100,000/s    1 s      time left: 30 s

A lane that is done leaves its share of the machine to the others, so the estimate is often too high, seldom too low.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.types import SourcePartition

__all__ = ["GoalProgress", "Goals"]

# Transactions, epochs and restarts of a lane make shorter times uneven.
_WINDOW_SECONDS = 30.0
_LEAST_SECONDS = 3.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GoalProgress:
    """
    Distance of a link from its goals, without stopped topics.

    Attributes:
        offsets: Offsets between the positions at the start of the run and the goals.
        left: Offsets between the positions and the goals.
        seconds_left: Estimated time until the last goal is reached; None while it is unknown.
    """

    offsets: int
    left: int
    seconds_left: float | None


class Goals:
    """
    Holds the offsets that a run is to reach.

    Attributes:
        offsets: Goal of each partition.
        ends: End of the log of each partition whose goal stands before an open transaction.
    """

    __slots__ = ("_begun", "_counted", "_history", "ends", "offsets")

    def __init__(self) -> None:
        self.offsets: dict[SourcePartition, int] = {}
        self.ends: dict[SourcePartition, int] = {}
        # the first position that was reported in this run
        self._begun: dict[SourcePartition, int] = {}
        # what each lane had left, at the looks of the last `_WINDOW_SECONDS`
        self._history: deque[tuple[float, Counter[int]]] = deque()
        self._counted = 0

    def set(self, goals: Mapping[SourcePartition, int], ends: Mapping[SourcePartition, int]) -> None:
        """Sets the goals, and the ends of the same logs: an end that is larger stands behind an open transaction."""
        self.offsets = dict(goals)
        self.ends = {source: end for source, end in ends.items() if end > self.offsets.get(source, end)}

    def release(self, topics: Collection[str]) -> None:
        """Drops the goals of topics that the link mirrors no more."""
        for known in (self.offsets, self.ends):
            for source in [source for source in known if source.topic in topics]:
                del known[source]

    def look(
        self,
        now: float,
        positions: Mapping[SourcePartition, int],
        lanes: Mapping[SourcePartition, int],
        stopped: Collection[str],
    ) -> GoalProgress | None:
        """
        Returns the distance from the goals; None while a position is unknown, or without goals.

        Args:
            now: Monotonic seconds.
            positions: Committed positions, as far as lanes have reported them.
            lanes: Lane of each partition.
            stopped: Topics that no lane mirrors on.
        """
        counted = [source for source in self.offsets if source.topic not in stopped]
        if not self.offsets or any(source not in positions for source in counted):
            return None
        left: Counter[int] = Counter()
        offsets = 0
        for source in counted:
            goal, position = self.offsets[source], positions[source]
            offsets += max(0, goal - self._begun.setdefault(source, position))
            left[lanes[source]] += max(0, goal - position)
        if len(counted) != self._counted:
            # what a stopped topic had left was not copied, and is in no rate
            self._counted = len(counted)
            self._history.clear()
        self._history.append((now, left))
        # one look at or before the begin of that time stays
        while len(self._history) > 1 and self._history[1][0] <= now - _WINDOW_SECONDS:
            self._history.popleft()
        return GoalProgress(offsets=offsets, left=left.total(), seconds_left=self._seconds_left(now, left))

    def _seconds_left(self, now: float, left: Counter[int]) -> float | None:
        then, before = self._history[0]
        if not left.total():
            return 0.0
        if now - then < _LEAST_SECONDS:
            return None
        longest = 0.0
        for lane, offsets in left.items():
            rate = (before[lane] - offsets) / (now - then)
            if offsets and rate <= 0:
                return None
            longest = max(longest, offsets / rate if offsets else 0.0)
        return longest
