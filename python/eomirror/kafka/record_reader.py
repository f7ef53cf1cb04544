"""Reads committed messages of one partition through librdkafka: for `verify` where the native plane cannot serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.kafka.errors import Action
from eomirror.kafka.partition_reader import GONE, PartitionReader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.config import Cluster
    from eomirror.kafka.session import ClusterSession

__all__ = ["CommittedPartition", "TimestampReader"]

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


_SECONDS = 10.0


class CommittedPartition:
    """
    Consumer of one partition at a time.

    Args:
        cluster: The cluster to read.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._reader = PartitionReader(cluster, client_id=client_id, clock=clock)

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Starts this partition at ``offset``."""
        self._reader.start(topic, partition, offset)

    def read(self, most: int, seconds: float) -> tuple[list[Any], int | None]:
        """
        Returns messages in order, and the end offset of the partition if it was reached.

        Raises:
            MirrorError: The partition cannot be read.
        """
        messages: list[Any] = []
        reached: int | None = None
        for message in self._reader.poll(most, seconds):
            if message.error() is None:
                messages.append(message)
            else:
                reached = message.offset()
        return messages, reached

    def one(self, topic: str, partition: int, offset: int) -> dict[str, Any] | None:
        """
        Returns the record at an offset, unchanged; None if it does not exist.

        Raises:
            UnreachableError: The broker does not answer within 10 s.
            MirrorError: The cluster refuses us.
        """
        where = topic, partition
        found = self._reader.first({where: offset}, deadline=Deadline(_SECONDS, self._clock), passing=GONE)
        message = found.get(where)
        if message is None or message.offset() != offset:
            return None
        return {
            "offset": offset,
            "key": message.key(),
            "value": message.value(),
            "headers": _headers(message),
            "timestamp": message.timestamp()[1],
        }

    def close(self) -> None:
        """Closes the consumer."""
        self._reader.close()


def _headers(message: Any) -> list[tuple[str, bytes | None]]:
    """Returns printable headers: the client decodes their names, and fails if they are not UTF-8."""
    try:
        return message.headers() or []
    except (SystemError, UnicodeDecodeError):
        return [("(headers whose names are not UTF-8)", None)]
