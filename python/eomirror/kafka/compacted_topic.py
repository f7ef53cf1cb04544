"""
Reads one of our compacted topics to its end, so that no committed record is missed (EO-3).

The end of a read_committed consumer is the last stable offset, and another producer's open transaction hides our
committed records after it (fault F27)::

    lane 0 (dead)       lane 1               reader

    begin, write p0
                        write p1, commit
                                             consumer's end: before p0. p1 is committed, and not seen

So the end is the high watermark, requested with READ_UNCOMMITTED.  Reading continues until the consumer reports the end
of the partition at or after it.  An earlier end of partition means that a transaction is still open: the reader waits,
at the latest for its timeout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.errors import ClusterError, UnreachableError
from eomirror.kafka.client_factory import create_client
from eomirror.kafka.client_warmup import connect
from eomirror.kafka.error_text import said
from eomirror.kafka.errors import Action, classify_fetch, to_mirror_error
from eomirror.records.control import ControlView, decode_control

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from eomirror.config import Cluster
    from eomirror.kafka.admin import ClusterAdmin

__all__ = ["CompactedTopicReader", "LogRecord", "control_view"]

log = structlog.get_logger(__name__)

# another reader, from the log's start as it is then, may get to the end
_AGAIN = frozenset({Action.REBUILD, Action.DAMAGED, Action.SOURCE_GAP, Action.SOURCE_TRUNCATED})


@dataclass(frozen=True, slots=True)
class LogRecord:
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
    """
    Reads state topics of one cluster; keeps its connections between reads.

    Args:
        admin: Reads the ends.
    """

    def __init__(
        self, cluster: Cluster, admin: ClusterAdmin, *, client_id: str, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._admin = admin
        self._clock = clock
        self._consumer = create_client(
            Consumer,
            cluster,
            consumer_properties(
                cluster,
                client_id=client_id,
                **{
                    # the end of a partition is only reported by an empty answer, which the broker holds back
                    # for this long; recovery waits for exactly that
                    "fetch.wait.max.ms": 10,
                    "fetch.queue.backoff.ms": 10,
                },
            ),
        )

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

    def each(self, topic: str, take: Callable[[LogRecord], None], *, seconds: float = 60.0) -> None:
        """
        Passes all committed records of ``topic`` to ``take``; keeps none, so the topic may be large.

        Args:
            topic: A topic that exists.
            take: Called with each, in log order per partition.
            seconds: Maximum wait for the next record, or for an open transaction to end.

        Raises:
            UnreachableError: As `read`.
            MirrorError: The cluster refuses us.
        """
        self._read(topic, take, seconds, renewed=True)

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
        ends = {number: end for (_, number), end in found.items() if end > starts[topic, number]}
        deadline = Deadline(seconds, self._clock)
        connect(self._consumer, [topic])
        # an absolute offset: librdkafka looks up a logical one on a timer of 500 ms when it knows no leader yet
        self._consumer.assign([TopicPartition(topic, number, starts[topic, number]) for number in ends])
        try:
            while ends:
                if deadline.passed:
                    held = ", ".join(f"{topic}-{number}" for number in sorted(ends))
                    raise UnreachableError(
                        f"could not read {held} to the end in time",
                        fix="see whether a transaction is left open there: kafka-transactions.sh find-hanging",
                    )
                if self._drain(topic, ends, take) and renewed:
                    deadline = Deadline(seconds, self._clock)
        finally:
            self._consumer.unassign()
        return facts.partitions

    def _drain(self, topic: str, ends: dict[int, int], take: Callable[[LogRecord], None]) -> int:
        """Takes available records, and removes finished partitions from ``ends``; returns the number of records."""
        count = 0
        for message in self._consumer.consume(10_000, 0.02):
            error = message.error()
            if error is None and message.topic() != topic:
                # of an earlier assignment: librdkafka's version barrier drops those, and so do we
                continue
            if error is None:
                count += 1
                take(
                    LogRecord(
                        topic,
                        message.partition(),
                        message.offset(),
                        message.key(),
                        message.value(),
                        message.timestamp()[1],
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                if message.topic() == topic and message.offset() >= ends.get(message.partition(), 0):
                    ends.pop(message.partition(), None)
            elif (verdict := classify_fetch(error)).action in _AGAIN:
                raise UnreachableError(
                    f"could not read {topic} on the target: {verdict.reason}: {said(error)}",
                    fix="see the log of the target's brokers",
                )
            elif verdict.action is not Action.RETRY:
                raise to_mirror_error(error, doing=f"read {topic}", cluster="target")
        return count

    def close(self) -> None:
        """Closes the consumer."""
        try:
            self._consumer.close()
        except (KafkaException, RuntimeError) as error:
            log.debug("reader_close_failed", error=str(error))
