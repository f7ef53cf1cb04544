"""Last stable offsets of very many partitions, for progress: looks at a share of them at a time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.types import SourcePartition

__all__ = ["LogEnds"]

#: Partitions that are looked at per call; librdkafka searches the list of all its topics for each.
LOOKS = 500


class LogEnds:
    """
    Remembers where partitions end.

    An end-of-partition event tells the end of a partition that is caught up, and costs nothing.  The others are
    asked for, and librdkafka (2.16, `rd_kafka_get_watermark_offsets`) compares the name of a partition with those of
    all topics, one by one: with every partition asked in every call, ten times the topics take a hundred times as
    long.  So each call asks `LOOKS` of them, in turn, and repeats what it knows of the rest: with 10,000 partitions
    that are behind, what is said of one is at most twenty reports old.

    Args:
        look: The end of a partition as the last fetch has shown it; None before the first.
    """

    def __init__(self, look: Callable[[SourcePartition], int | None]) -> None:
        self._look = look
        self._known: dict[SourcePartition, int] = {}
        self._turn: deque[SourcePartition] = deque()
        self._waiting: set[SourcePartition] = set()

    def ends(
        self, committed: Mapping[SourcePartition, int], events: Mapping[SourcePartition, int]
    ) -> dict[SourcePartition, int]:
        """
        The end of each partition, as far as it is known.

        Args:
            committed: Where each partition stands; an end that is older than that is none.
            events: Ends that end-of-partition events told; with them, an open transaction of the source is beyond.
        """
        found: dict[SourcePartition, int] = {}
        behind: dict[SourcePartition, int] = {}
        for source, offset in committed.items():
            end = events.get(source, -1)
            if end >= offset:
                found[source] = end
                continue
            behind[source] = offset
            if source not in self._waiting:
                self._waiting.add(source)
                self._turn.append(source)
        self._ask(behind)
        for source, offset in behind.items():
            end = self._known.get(source, -1)
            if end >= offset:
                found[source] = end
        return found

    def _ask(self, behind: Mapping[SourcePartition, int]) -> None:
        looks = 0
        for _ in range(len(self._turn)):
            if looks == LOOKS:
                return
            source = self._turn.popleft()
            if source not in behind:
                # caught up, or not ours any more
                self._waiting.discard(source)
                self._known.pop(source, None)
                continue
            looks += 1
            self._turn.append(source)
            end = self._look(source)
            if end is not None:
                self._known[source] = end
