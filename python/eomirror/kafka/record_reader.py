"""Reads committed messages of one partition through librdkafka: for `verify` where the native plane cannot serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.kafka.partition_reader import GONE, PartitionReader

if TYPE_CHECKING:
    from eomirror.config import Cluster

__all__ = ["CommittedPartition"]

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
