"""
Explains jumps of offsets between records, on the client plane (EO-6).

Pure: time is an argument, and the log is read elsewhere.

librdkafka returns records only.  A missing offset may be a marker, an aborted record, or part of a hole in the log.  So
the batches of such a range are read through a connection of the native plane.  A topic without transactions has no
jumps, and its first one is examined before the commit.  A topic with transactions has one for each marker: the largest
jumps are examined, once a minute.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eomirror.types import SourcePartition

__all__ = ["OffsetGaps"]


_AGAIN_SECONDS = 60.0
# jumps per partition, and in all of one transaction
_MOST, _MOST_AT_ONCE = 8, 16


@dataclass(slots=True)
class _Waiting:
    due: float = float("-inf")
    jumps: list[tuple[int, int]] = field(default_factory=list)


class OffsetGaps:
    """
    Jumps of the partitions whose log was never compacted.

    Args:
        explain: Examines a range of the log.
    """

    def __init__(
        self, explain: Callable[[SourcePartition, int, int], tuple[list[tuple[int, int]], bool] | None]
    ) -> None:
        self._explain = explain
        self._partitions: dict[SourcePartition, _Waiting] = {}
        # a log that cannot be read delays an open transaction: it is skipped for a while, across attempts
        self._rests_until = float("-inf")

    def clear(self) -> None:
        """Forgets everything."""
        self._partitions.clear()

    def begin(self, source: SourcePartition) -> None:
        """Starts a partition whose log was never compacted."""
        self._partitions[source] = _Waiting()

    def look(
        self, jumps: Iterable[tuple[SourcePartition, Iterable[tuple[int, int]]]], now: float
    ) -> dict[SourcePartition, tuple[tuple[tuple[int, int], ...], bool]]:
        """
        Examines the jumps that are due.

        Args:
            jumps: Of the transaction to commit, by partition.
            now: Seconds.

        Returns:
            By partition, if there is a finding: holes in order, and whether the log was compacted, in which case they
            mean nothing.
        """
        left = _MOST_AT_ONCE
        found: dict[SourcePartition, tuple[tuple[tuple[int, int], ...], bool]] = {}
        for source, more in jumps:
            waiting = self._partitions.get(source)
            if waiting is None:
                continue
            waiting.jumps = heapq.nlargest(_MOST, (*waiting.jumps, *more), key=lambda jump: jump[1] - jump[0])
            if not waiting.jumps or now < max(waiting.due, self._rests_until) or len(waiting.jumps) > left:
                continue
            left -= len(waiting.jumps)
            explained = self._explained(source, sorted(waiting.jumps))
            if explained is None:
                self._rests_until = now + _AGAIN_SECONDS
                continue
            holes, compacted = explained
            waiting.jumps, waiting.due = [], now + _AGAIN_SECONDS
            if compacted:
                del self._partitions[source]
            if holes or compacted:
                found[source] = (tuple(holes), compacted)
        return found

    def _explained(
        self, source: SourcePartition, jumps: Iterable[tuple[int, int]]
    ) -> tuple[list[tuple[int, int]], bool] | None:
        """Returns None when a range could not be looked at; the jumps are kept for the next look."""
        holes: list[tuple[int, int]] = []
        compacted = False
        for start, end in jumps:
            answer = self._explain(source, start, end)
            if answer is None:
                return None
            holes += answer[0]
            compacted = compacted or answer[1]
        return holes, compacted
