"""
What holds of the partitions of a link that is followed, round after round, also where a round was stopped.

Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eomirror.verify.verdict import PartitionVerdict

__all__ = ["Standing"]


class Standing:
    """
    Remembers the last whole verdict of each partition.

    A signal ends a round wherever it is.  What earlier rounds found out about the partitions that it did not come to
    still holds: their differences above all.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, int, str, int], PartitionVerdict] = {}

    def of(self, now: PartitionVerdict) -> PartitionVerdict:
        """What is to be said, given what this round has found out."""
        one = now.scope
        where = (one.source.topic, one.source.partition, one.target.topic, one.target.partition)
        if now.whole:
            self._last[where] = now
        return now if now.whole or now.differs else self._last.get(where, now)
