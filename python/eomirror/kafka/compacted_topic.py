"""
Reads one of our compacted topics to its end, so that no committed record is missed (EO-3).

The end of a read_committed consumer is the last stable offset, and another producer's open transaction hides our
committed records after it (fault F27)::

    lane 0 (dead)       lane 1               reader

    begin, write p0
                        write p1, commit
                                             consumer's end: before p0. p1 is committed, and not seen

So the end is the high watermark, requested with READ_UNCOMMITTED, and `eomirror.kafka.partition_reader` waits for open
transactions, at the latest for their timeout.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from eomirror.clock import Deadline
from eomirror.errors import ClusterError
from eomirror.records.control import ControlView, decode_control

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eomirror.kafka.session import ClusterSession

__all__ = ["CompactedTopicReader", "LogRecord", "control_view", "log_record"]


class LogRecord(NamedTuple):
    """A committed record with its offset and timestamp (ms since the epoch; 0 if not read)."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp: int = 0

    @property
    def where(self) -> str:
        """Topic-partition@offset, for messages."""
        return f"{self.topic}-{self.partition}@{self.offset}"


def control_view(records: Iterable[LogRecord]) -> ControlView:
    """
    Returns the combined content of a control topic.

    Args:
        records: All of them, oldest first.

    Raises:
        StateError: One is not readable.
    """
    return decode_control([(record.key, record.value, record.where) for record in records])


class CompactedTopicReader:
    """Reads state topics of one cluster through its session."""

    def __init__(self, cluster: ClusterSession) -> None:
        self._cluster = cluster
        self._admin = cluster.admin

    def read(
        self, topic: str, *, seconds: float = 60.0, wait_for_open: bool = True, renewed: bool = False
    ) -> tuple[int, list[LogRecord]]:
        """
        Returns all committed records of ``topic``, in log order per partition, after its partition count.

        Args:
            topic: A topic that exists.
            seconds: Maximum wait; must exceed the transaction timeout of other writers.
            wait_for_open: Wait for open transactions, so that they hide no committed record (EO-3).  Only a read that
                decides nothing may skip this: before old producers are fenced, a killed one's transaction stays open
                until its timeout.
            renewed: Whether each record restarts ``seconds``.

        Returns:
            The topic's partition count, and the records.

        Raises:
            UnreachableError: It did not come to its end in time, naming the partition that is held up, or broke off.
            MirrorError: The cluster refuses us.
        """
        records: list[LogRecord] = []
        partitions = self._read(topic, records.append, seconds, wait_for_open=wait_for_open, renewed=renewed)
        return partitions, records

    def records(self, topic: str, **how: Any) -> list[LogRecord]:
        """
        Returns all committed records of ``topic``, in log order per partition; none if it does not exist.

        Arguments and errors are those of `read`.
        """
        missing = self._admin.describe_topics([topic])[topic] is None
        return [] if missing else self.read(topic, **how)[1]

    def each(
        self,
        topic: str,
        take: Callable[[LogRecord], None],
        *,
        seconds: float = 60.0,
        wait_for_open: bool = True,
    ) -> None:
        """
        Passes all committed records of ``topic`` to ``take``; keeps none, so the topic may be large.

        Args:
            topic: A topic that exists.
            take: Called with each, in log order per partition.
            seconds: Maximum wait for the next record, or for an open transaction to end.
            wait_for_open: See `read`.

        Raises:
            UnreachableError: As `read`.
            MirrorError: The cluster refuses us.
        """
        self._read(topic, take, seconds, wait_for_open=wait_for_open, renewed=True)

    def _read(
        self,
        topic: str,
        take: Callable[[LogRecord], None],
        seconds: float,
        *,
        wait_for_open: bool = True,
        renewed: bool = False,
    ) -> int:
        """Reads to the end; returns the number of partitions."""
        facts = self._admin.describe_topics([topic])[topic]
        if facts is None:
            raise ClusterError(
                f"topic {topic} does not exist on the target",
                fix="run `eomirror plan CONFIG` to see what is missing",
            )
        names = [(topic, number) for number in range(facts.partitions)]
        starts = self._admin.offsets(names, at="earliest", read_committed=False)
        found = self._admin.offsets(names, at="latest", read_committed=not wait_for_open)
        deadline = None if renewed else Deadline(seconds, self._cluster.clock)
        with self._cluster.reader() as reader:
            reader.connect([topic])
            reader.read(
                {where: (starts[where], end) for where, end in found.items() if end > starts[where]},
                lambda _, message: take(log_record(message)),
                deadline=deadline,
                stall=seconds,
                to_end=True,
            )
        return facts.partitions

    def connect(self, topic: str) -> None:
        """Connects for `range`."""
        with self._cluster.reader() as reader:
            reader.connect([topic])

    def range(
        self, topic: str, partition: int, low: int, high: int, *, deadline: Deadline
    ) -> list[LogRecord]:
        """
        Returns the committed records of ``[low, high)`` of one partition, in log order.

        Raises:
            UnreachableError: The range was not read before the deadline, or the read broke off.
            MirrorError: The cluster refuses us.
        """
        records: list[LogRecord] = []
        with self._cluster.reader() as reader:
            reader.read(
                {(topic, partition): (low, high)},
                lambda _, message: records.append(log_record(message)),
                deadline=deadline,
            )
        return records


def log_record(message: Any) -> LogRecord:
    """Returns a message of confluent-kafka as a record."""
    return LogRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        message.timestamp()[1],
    )
