"""Reads last stable offsets of very many partitions for progress, a share of them at a time."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.types import SourcePartition

__all__ = ["EndOffsets"]

#: Lookups per call; librdkafka searches the list of all its topics for each.
MAX_LOOKUPS = 500


class EndOffsets:
    """
    Tracks the ends of partitions.

    An end-of-partition event reports the end of a caught-up partition at no cost.  The others need a lookup, and
    librdkafka (2.16, `rd_kafka_get_watermark_offsets`) compares the name with those of all topics, one by one: with
    every partition in every call, ten times the topics take a hundred times as long.  So each call looks up
    `MAX_LOOKUPS` of them in turn, and repeats known ends of the rest.  With 10,000 lagging partitions, an end is at
    most twenty reports old.

    Args:
        look: Returns the end of a partition in its last fetch; None before the first.
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
        Returns the known end of each partition.

        Args:
            committed: Position of each partition; an older end is ignored.
            events: Ends from end-of-partition events; an open transaction of the source may follow them.
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
            if looks == MAX_LOOKUPS:
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
