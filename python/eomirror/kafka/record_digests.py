"""Reads a range of one partition as offsets and digests, to compare two logs without keeping their records."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.errors import UnreachableError
from eomirror.kafka.client_factory import create_client
from eomirror.kafka.client_warmup import connect
from eomirror.kafka.errors import Action, classify_fetch, to_mirror_error
from eomirror.records.names import HOPS_HEADER

if TYPE_CHECKING:
    from eomirror.config import Cluster

__all__ = ["RecordDigest", "RecordDigestReader"]

_SECONDS = 60.0
_DIGEST_BYTES = 16


@dataclass(frozen=True, slots=True)
class RecordDigest:
    """
    A record of a log.

    Attributes:
        offset: Its offset.
        digest: Of its key, value, headers and timestamp: equal records have equal digests.
    """

    offset: int
    digest: bytes


class RecordDigestReader:
    """
    Consumer of one partition at a time.

    Args:
        uncommitted: Read pending and aborted records too: only to compare with the copy of a replicator that reads
            them, never to mirror (EO-12).
    """

    def __init__(
        self, cluster: Cluster, *, client_id: str, uncommitted: bool = False, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._name = cluster.alias
        self._clock = clock
        properties = consumer_properties(
            cluster, client_id=client_id, **{"fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 10}
        )
        if uncommitted:
            properties["isolation.level"] = "read_uncommitted"
        self._consumer = create_client(Consumer, cluster, properties)

    def read(
        self, topic: str, partition: int, low: int, high: int, *, most: int | None = None, timestamps: bool
    ) -> list[RecordDigest]:
        """
        Returns records of ``[low, high)``, ascending.

        Args:
            topic: A topic that exists.
            partition: Its number.
            low: First offset, at or after the log start.
            high: End offset; not beyond the end that this reader sees.
            most: Maximum number of records.
            timestamps: Whether timestamps are part of the digests.

        Raises:
            UnreachableError: No record arrived within a minute.
            MirrorError: The cluster refuses us.
        """
        records: list[RecordDigest] = []
        if low >= high:
            return records
        connect(self._consumer, [topic])
        self._consumer.assign([TopicPartition(topic, partition, low)])
        deadline = Deadline(_SECONDS, self._clock)
        try:
            while not deadline.passed:
                for message in self._consumer.consume(5_000, 0.05):
                    if not self._serves(message, topic, partition):
                        continue
                    offset, ended = message.offset(), message.error() is not None
                    if offset >= high:
                        return records
                    if ended:
                        # an older end: the log has grown since it was fetched
                        continue
                    deadline = Deadline(_SECONDS, self._clock)
                    records.append(RecordDigest(offset, _digest(message, timestamps=timestamps)))
                    if offset == high - 1 or len(records) == most:
                        return records
            raise UnreachableError(
                f"could not read {topic}-{partition} to offset {high} in time",
                fix=f"check that the brokers of {self._name} run, and whether a transaction is left open there: "
                "kafka-transactions.sh find-hanging",
            )
        finally:
            self._consumer.unassign()

    def _serves(self, message: Any, topic: str, partition: int) -> bool:
        """Returns whether the message is a record of this partition, or its end."""
        error = message.error()
        if error is not None and error.code() != KafkaError._PARTITION_EOF:
            if classify_fetch(error).action is not Action.RETRY:
                raise to_mirror_error(error, doing=f"read {topic}-{partition}", cluster=self._name)
            return False
        return (message.topic(), message.partition()) == (topic, partition)

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()


def _digest(message: Any, *, timestamps: bool) -> bytes:
    """Returns the digest of all parts that replicators copy; each part with its length, so that parts stay distinct."""
    found = hashlib.blake2b(digest_size=_DIGEST_BYTES)

    def add(part: bytes | None) -> None:
        found.update(b"-" if part is None else b"%d:" % len(part))
        found.update(part or b"")

    add(message.key())
    add(message.value())
    for name, value in message.headers() or ():
        # a link that was handed back may have written it into its copies, and its source differs
        if name != HOPS_HEADER:
            add(name.encode())
            add(value)
    if timestamps:
        add(b"%d" % message.timestamp()[1])
    return found.digest()
