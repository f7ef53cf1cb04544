"""Reads the timestamps of records at given offsets of one cluster, many partitions at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.clock import Deadline
from eomirror.kafka.errors import Action

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.kafka.session import ClusterSession

__all__ = ["TimestampReader"]

# of a record only its timestamp is wanted: small fetches
_FETCH_BYTES = 65_536


class TimestampReader:
    """
    Reader of single records.

    Args:
        seconds: Maximum time of a `read`.
    """

    def __init__(self, cluster: ClusterSession, *, seconds: float = 10.0) -> None:
        self._cluster = cluster
        self._seconds = seconds

    def read(
        self, wanted: Iterable[tuple[str, int, int]], *, uncommitted: bool = False
    ) -> dict[tuple[str, int, int], int]:
        """
        Returns timestamps (ms since 1970) of the first committed record at or after each offset.

        Args:
            wanted: Topic, partition and offset.
            uncommitted: Count records of open and aborted transactions as well.

        Returns:
            By requested offset; an offset at the end, or without an answer in time, is left out.
        """
        rounds: list[dict[tuple[str, int], int]] = []
        seen: dict[tuple[str, int], int] = {}
        for topic, number, offset in sorted(wanted):
            turn = seen.get((topic, number), 0)
            seen[topic, number] = turn + 1
            if turn == len(rounds):
                rounds.append({})
            rounds[turn][topic, number] = offset
        found: dict[tuple[str, int, int], int] = {}
        deadline = Deadline(self._seconds, self._cluster.clock)
        tuning = {"max.partition.fetch.bytes": _FETCH_BYTES, "queued.min.messages": 1}
        with self._cluster.reader(uncommitted=uncommitted, tuning=tuning) as reader:
            for each in rounds:
                # an error, such as an offset that retention has overtaken, ends the wait for its partition
                for name, message in reader.first(
                    each, deadline=deadline, passing=tuple(Action), partial=True
                ).items():
                    found[*name, each[name]] = message.timestamp()[1]
        return found
