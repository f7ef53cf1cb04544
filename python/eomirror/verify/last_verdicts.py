"""Keeps the latest verdicts of a followed link's partitions over all rounds, stopped ones included. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eomirror.verify.verdict import PartitionVerdict

__all__ = ["LastVerdicts"]


class LastVerdicts:
    """
    Tracks the last whole verdict of each partition.

    A signal ends a round at any partition.  The verdicts of earlier rounds about the partitions that it did not reach
    remain valid, above all their differences.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, int, str, int], PartitionVerdict] = {}

    def merge(self, now: PartitionVerdict) -> PartitionVerdict:
        """Returns the verdict to report, given the verdict of this round."""
        one = now.scope
        where = (one.source.topic, one.source.partition, one.target.topic, one.target.partition)
        if now.whole:
            self._last[where] = now
        return now if now.whole or now.differs else self._last.get(where, now)
