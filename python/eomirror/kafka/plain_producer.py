"""
Producers outside of every transaction, for best-effort records: heartbeats, offset syncs on the source, reports.

`PlainProducer` never waits: a record that cannot be sent in time is dropped, because the next one supersedes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from eomirror.config.clients import plain_producer_properties
from eomirror.config.rights import Right, account_of, told
from eomirror.errors import MirrorError
from eomirror.kafka.client_factory import create_client
from eomirror.kafka.errors import Action, classify_delivery, said, to_mirror_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.config import Cluster
    from eomirror.records.mm2 import OffsetSync

__all__ = ["PlainProducer", "SourceSyncs", "write_records"]

log = structlog.get_logger(__name__)

_DELIVERY_MS = 30_000
_QUEUED = 10_000
_CLOSE_SECONDS = 1.0


class PlainProducer:
    """
    Writes to partition 0 of one topic, idempotently, in order, without waiting.

    Args:
        topic: The topic; it must exist.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, topic: str) -> None:
        self._topic = topic
        properties = plain_producer_properties(cluster, client_id=client_id)
        properties.update(
            {
                "message.timeout.ms": _DELIVERY_MS,
                "queue.buffering.max.messages": _QUEUED,
                "on_delivery": self._on_delivery,
            }
        )
        self._complained = False
        self._cluster, self._properties = cluster, properties
        self._producer = create_client(Producer, cluster, properties)

    def send(self, key: bytes, value: bytes | None) -> None:
        """Sends a record, or a tombstone without a value; never waits, and never raises an error of the cluster."""
        try:
            self._producer.produce(self._topic, value, key, 0)
        except BufferError as raised:
            self._complain(str(raised))
        except KafkaException as raised:
            self._complain(_why(raised.args[0], self._cluster, self._topic))
            if raised.args[0].code() == KafkaError._FATAL:
                self._replace()
        self._producer.poll(0)

    def close(self, seconds: float = _CLOSE_SECONDS) -> None:
        """Sends queued records for at most this many seconds, and releases the client."""
        self._producer.flush(seconds)
        self._producer.purge()
        # its callback keeps this object, and this object it: left to the garbage collector, it would be found by that
        # of a forked child, which waits for ever for the client's threads that only the parent has
        del self._producer

    def _replace(self) -> None:
        """Replaces an idempotent producer after a fatal error, such as a log that lost its end."""
        try:
            fresh = create_client(Producer, self._cluster, self._properties)
        except MirrorError as error:
            self._complain(error.message)
            return
        self._producer.purge()
        self._producer = fresh

    def _on_delivery(self, error: Any, _message: Any) -> None:
        # called from C: an exception here would surface in an unrelated call
        if error is None:
            self._complained = False
        else:
            self._complain(_why(error, self._cluster, self._topic))

    def _complain(self, reason: str) -> None:
        if not self._complained:
            self._complained = True
            log.warning("record_not_sent", topic=self._topic, reason=reason)


def _why(error: KafkaError, cluster: Cluster, topic: str) -> str:
    """Returns why a record was not written; with the command, if a right is missing."""
    if classify_delivery(error).action is not Action.UNAUTHORIZED:
        return said(error)
    # brokers before 3.0 want the second for every idempotent producer
    needed = Right("Write", "topic", topic), Right("IdempotentWrite", "cluster")
    doing = f"write to topic {topic}"
    return told(to_mirror_error(error, doing=doing, cluster=account_of(cluster), right=needed))


def write_records(
    cluster: Cluster,
    topic: str,
    records: Sequence[tuple[bytes, bytes | None]],
    *,
    client_id: str,
    seconds: float,
) -> str:
    """
    Writes records to partition 0 of a topic, and waits until the cluster has them.

    Args:
        topic: The topic; it must exist.
        records: Key and value of each; a tombstone has none.
        seconds: Maximum wait.

    Returns:
        Reason that a record was not written; empty if all were.
    """
    failed: list[str] = []
    written = 0

    def delivered(error: Any, _message: Any) -> None:
        nonlocal written
        if error is None:
            written += 1
        else:
            failed.append(_why(error, cluster, topic))

    properties = plain_producer_properties(cluster, client_id=client_id)
    properties.update({"message.timeout.ms": int(seconds * 1000), "on_delivery": delivered})
    try:
        producer = create_client(Producer, cluster, properties)
        for key, value in records:
            producer.produce(topic, value, key, 0)
        producer.flush(seconds)
        producer.purge()
        producer.poll(0)
    except BufferError as raised:
        failed.append(str(raised))
    except KafkaException as raised:
        failed.append(_why(raised.args[0], cluster, topic))
    except MirrorError as error:
        failed.append(error.message)
    if not failed and written < len(records):
        failed.append("no broker answered in time")
    return failed[0] if failed else ""


class SourceSyncs:
    """
    Sends offset syncs to the source once their records are committed, never before.

    Args:
        topic: Topic of the syncs there.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, topic: str) -> None:
        self._producer = PlainProducer(cluster, client_id=client_id, topic=topic)

    def send(self, syncs: Sequence[OffsetSync]) -> None:
        """Sends syncs; a lost one is followed by the next of its partition."""
        for sync in syncs:
            self._producer.send(sync.key(), sync.value())

    def close(self) -> None:
        """Sends queued syncs, and closes the producer."""
        self._producer.close()
