"""
Reads the states of acknowledged records: committed, aborted, pending or deleted.

A `read_committed` consumer starts at each record's offset.  It gets the record, a later one, or the end of the
partition.  If it does not get the record, a `read_uncommitted` consumer starts there too.  A record that only the
second one gets was aborted (KIP-98); a record that neither gets was deleted or compacted away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import Consumer, KafkaError, TopicPartition

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.errors import UnreachableError
from eomirror.kafka.client_factory import create_client
from eomirror.kafka.client_warmup import connect
from eomirror.kafka.errors import Action, classify_fetch, to_mirror_error
from eomirror.recovery.hanging import RecordState

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Cluster
    from eomirror.kafka.admin import ClusterAdmin

__all__ = ["RecordStateReader"]

log = structlog.get_logger(__name__)

_SECONDS = 60.0
# per partition and answer; a larger batch arrives too, one per answer
_FETCH_BYTES = 32 * 1024
# for whole ranges: over a long link each answer takes its time
_RANGE_BYTES = 1024 * 1024
# the offset no longer exists
_GONE = frozenset({Action.SOURCE_GAP, Action.TOPIC_GONE})

_Where = tuple[str, int]


class RecordStateReader:
    """Reads single records of one cluster."""

    def __init__(
        self, cluster: Cluster, admin: ClusterAdmin, *, client_id: str, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._client_id = client_id
        self._clock = clock

    def read(self, records: Mapping[_Where, int]) -> dict[_Where, RecordState]:
        """
        Returns the states of acknowledged records.

        Args:
            records: One offset per partition.

        Raises:
            UnreachableError: A partition has no leader that answers in time.
            MirrorError: The cluster refuses us; records of a topic without the Read ACL are `RecordState.DELETED`.
        """
        found = dict.fromkeys(records, RecordState.DELETED)
        topics = self._admin.describe_topics(sorted({topic for topic, _ in records}))
        there = {}
        for where, offset in records.items():
            facts = topics[where[0]]
            if facts is not None and where[1] < facts.partitions:
                there[where] = offset
        stable = self._admin.offsets(there, at="latest", read_committed=True) if there else {}
        decided = {where: offset for where, offset in there.items() if offset < stable[where]}
        found.update(dict.fromkeys(there.keys() - decided.keys(), RecordState.PENDING))
        shown = self._present(decided, "read_committed")
        found.update(dict.fromkeys(shown, RecordState.COMMITTED))
        hidden = self._present(
            {where: decided[where] for where in decided.keys() - shown}, "read_uncommitted"
        )
        found.update(dict.fromkeys(hidden, RecordState.ABORTED))
        return found

    def range(
        self, topic: str, partition: int, start: int, end: int
    ) -> list[tuple[bytes | None, bytes | None]]:
        """
        Returns keys and values of all records of ``[start, end)``, pending and aborted ones too, in log order.

        Raises:
            UnreachableError: No record arrived in time.
            MirrorError: The cluster refuses us.
        """
        records: list[tuple[bytes | None, bytes | None]] = []

        def take(_: _Where, message: Any) -> bool:
            if message.offset() < end and message.error() is None:
                records.append((message.key(), message.value()))
            return bool(message.offset() >= end - 1)

        self._each({(topic, partition): start}, "read_uncommitted", take, fetch_bytes=_RANGE_BYTES)
        return records

    # -- inside ----------------------------------------------------------------------------------

    def _present(self, records: Mapping[_Where, int], isolation: str) -> set[_Where]:
        """Returns the partitions whose record a reader of this isolation level gets at exactly its offset."""
        present: set[_Where] = set()

        def take(where: _Where, message: Any) -> bool:
            if message.error() is None and message.offset() == records[where]:
                present.add(where)
            return bool(message.error() is None or message.offset() > records[where])

        if records:
            self._each(records, isolation, take)
        return present

    def _each(
        self, starts: Mapping[_Where, int], isolation: str, take: Any, *, fetch_bytes: int = _FETCH_BYTES
    ) -> None:
        """Passes records and partition ends to ``take`` until it returns True for each partition."""
        consumer = self._consumer(isolation, fetch_bytes)
        waiting = set(starts)
        deadline = Deadline(_SECONDS, self._clock)
        try:
            connect(consumer, sorted({topic for topic, _ in starts}))
            consumer.incremental_assign([TopicPartition(*where, offset) for where, offset in starts.items()])
            while waiting:
                done = set()
                for message in consumer.consume(1_000, 0.05):
                    where = message.topic(), message.partition()
                    if message.error() is None:
                        # a range may be long
                        deadline = Deadline(_SECONDS, self._clock)
                    if where in waiting and self._enough(where, message, take):
                        done.add(where)
                waiting -= done
                if done:
                    consumer.incremental_unassign([TopicPartition(*where) for where in done])
                elif deadline.passed:
                    raise UnreachableError(
                        f"could not read {_first(waiting)} of the target in time",
                        fix="check that the brokers of the target run; see their logs",
                    )
        finally:
            consumer.close()

    def _enough(self, where: _Where, message: Any, take: Any) -> bool:
        error = message.error()
        if error is None or error.code() == KafkaError._PARTITION_EOF:
            return bool(take(where, message))
        verdict = classify_fetch(error)
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            log.warning(
                "record_not_readable",
                partition=_first({where}),
                reason="a transaction that the target dropped would go unnoticed",
                fix=f"grant Read on topic {where[0]} of the target",
            )
            return True
        if verdict.action in _GONE:
            return True
        if verdict.action is not Action.RETRY:
            raise to_mirror_error(error, doing=f"read {where[0]}-{where[1]}", cluster=self._cluster.alias)
        return False

    def _consumer(self, isolation: str, fetch_bytes: int) -> Any:
        properties = consumer_properties(
            self._cluster,
            client_id=self._client_id,
            **{
                "fetch.wait.max.ms": 10,
                "fetch.queue.backoff.ms": 10,
                "fetch.message.max.bytes": fetch_bytes,
                "queued.min.messages": 1,
            },
        )
        properties |= {"isolation.level": isolation}
        return create_client(Consumer, self._cluster, properties)


def _first(partitions: set[_Where]) -> str:
    topic, number = min(partitions)
    return f"{topic}-{number}"
