"""
Plain Kafka clients for the demo and its judge, apart from the mirror's own.

What tells whether the mirror is right must not share code with it: nothing here uses the lane, the planes or the
Rust core.  All of it speaks to clusters that the demo has started itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eomirror.demo.traffic import Record, Transaction

__all__ = [
    "AtLeastOnceCopier",
    "CommittedReader",
    "Offsets",
    "ReadRecord",
    "TrafficProducer",
    "create_topic",
    "read_partition",
]

_Answer = TypeVar("_Answer")

_ANSWER_SECONDS = 30.0
_POLL_SECONDS = 0.05
# of a broker that stood still, and was taken for dead meanwhile
_OTHER_EPOCH = frozenset({KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH})
_PASSING = frozenset(
    {
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        *_OTHER_EPOCH,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
    }
)
_CHUNK = 2000
# what matters is raised; the rest would run into the live display
_QUIET = {"log_level": 2}
_GROUP = "eomirror.demo.none"  # manual assignment; librdkafka wants a name all the same


@dataclass(frozen=True, slots=True)
class ReadRecord:
    """
    A record as a consumer got it.

    Attributes:
        key: None for null.
        value: None for a tombstone.
        headers: In order, repeated ones included.
        timestamp_type: 1 for CreateTime, 2 for LogAppendTime (librdkafka's numbers).
        timestamp: Milliseconds since the epoch.
    """

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_type: int
    timestamp: int


def create_topic(
    properties: Mapping[str, str], name: str, partitions: int, *, replicas: int = 1, **configs: str
) -> None:
    """
    Create a topic.

    Args:
        configs: Topic configurations, with ``_`` for each dot.

    Raises:
        ClusterError: The cluster refuses.
    """
    admin = AdminClient({**properties, **_QUIET})
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    futures = admin.create_topics(
        [NewTopic(name, partitions, replicas, config=settings)], operation_timeout=_ANSWER_SECONDS
    )
    try:
        futures[name].result(_ANSWER_SECONDS)
    except KafkaException as raised:
        raise ClusterError(
            f"topic {name} could not be created on {properties.get('bootstrap.servers')}: {raised.args[0].str()}",
            fix="delete a topic that is left from an earlier demo, or start over with new clusters",
        ) from raised


def delete_topics(properties: Mapping[str, Any], wanted: Callable[[str], bool]) -> None:
    """Deletes the topics whose names are wanted; raises ClusterError."""
    admin = AdminClient({**properties, **_QUIET})
    try:
        found = [name for name in admin.list_topics(timeout=_ANSWER_SECONDS).topics if wanted(name)]
        for future in (admin.delete_topics(found) if found else {}).values():
            future.result(_ANSWER_SECONDS)
    except KafkaException as raised:
        raise ClusterError(
            f"topics could not be deleted on {properties.get('bootstrap.servers')}: {raised.args[0].str()}",
            fix="delete them by hand; their names begin with drill- or eomirror.drill-",
        ) from raised


class Offsets:
    """End offsets of a topic's partitions: high watermarks and last stable offsets."""

    def __init__(self, properties: Mapping[str, str], *, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._admin = AdminClient({**properties, **_QUIET})

    def partitions(self, topic: str) -> int:
        """Returns the number of a topic's partitions, 0 for an unknown topic; raises ClusterError."""

        def ask() -> int:
            found = self._admin.list_topics(timeout=_ANSWER_SECONDS).topics.get(topic)
            return 0 if found is None or found.error is not None else len(found.partitions)

        return self._answer(topic, "the partitions", ask)

    def ends(self, topic: str, partitions: int, *, committed: bool) -> dict[int, int]:
        """Returns high watermarks, or last stable offsets with ``committed``; raises ClusterError."""
        level = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}

        def ask() -> dict[int, int]:
            futures = self._admin.list_offsets(asked, isolation_level=level, request_timeout=_ANSWER_SECONDS)
            return {
                where.partition: future.result(_ANSWER_SECONDS).offset for where, future in futures.items()
            }

        return self._answer(topic, "the ends", ask)

    def _answer(self, topic: str, what: str, ask: Callable[[], _Answer]) -> _Answer:
        """Returns what a broker answers; asks again while an error may pass."""
        deadline = Deadline(_ANSWER_SECONDS, self._clock)
        while True:
            try:
                return ask()
            except KafkaException as raised:
                # a new topic has no leader for a moment, and a broker may stand still
                if deadline.passed or raised.args[0].code() not in _PASSING:
                    raise ClusterError(
                        f"{what} of {topic} could not be read: {raised.args[0].str()}",
                        fix="see whether the broker is alive; its log is in the cluster's folder",
                    ) from raised
                if raised.args[0].code() in _OTHER_EPOCH:
                    # the client would go on asking with the epoch that it remembers
                    self._admin.list_topics(topic, timeout=_ANSWER_SECONDS)
            self._clock.sleep(_POLL_SECONDS)

    def open_transactions(self, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
        """
        Partitions that hold data of a transaction that has not ended: (last stable offset, high watermark).

        The high watermark is read first.  It only grows, so a last stable offset that is read later and is
        still below it proves that a transaction was open at the time of the second answer.
        """
        high = self.ends(topic, partitions, committed=False)
        stable = self.ends(topic, partitions, committed=True)
        return {number: (stable[number], high[number]) for number in high if stable[number] < high[number]}

    def settled_ends(self, topic: str, partitions: int, *, seconds: float = 30.0) -> dict[int, int]:
        """
        Last stable offsets, once no transaction is open.

        A commit has been answered before its markers are in all partitions, so a look right after it would
        miss records.  A transaction that stays open for so long is left out.
        """
        deadline = Deadline(seconds, self._clock)
        while self.open_transactions(topic, partitions) and not deadline.passed:
            self._clock.sleep(_POLL_SECONDS)
        return self.ends(topic, partitions, committed=True)


def _produce(producer: Producer, topic: str, record: Record | ReadRecord, **more: Any) -> None:
    headers = list(record.headers)
    producer.produce(
        topic, record.value, record.key, record.partition, timestamp=record.timestamp, headers=headers, **more
    )


class TrafficProducer:
    """
    An application that writes in transactions.

    Args:
        seconds: That a transaction may take.
    """

    def __init__(
        self,
        properties: Mapping[str, str],
        *,
        topic: str,
        transactional_id: str,
        seconds: float = _ANSWER_SECONDS,
    ) -> None:
        self._topic = topic
        self._seconds = seconds
        self._producer = Producer(
            {
                **properties,
                **_QUIET,
                "client.id": transactional_id,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": round(seconds * 1000),
                "linger.ms": 0,
            }
        )
        self._producer.init_transactions(seconds)

    def write(self, transaction: Transaction) -> None:
        """
        Write it, and end it as it says.

        Raises:
            ClusterError: The cluster refused; the outcome may be unknown, so the demo is over.
        """
        try:
            self._producer.begin_transaction()
            for record in transaction.records:
                _produce(self._producer, self._topic, record)
            if transaction.commit:
                self._producer.commit_transaction(self._seconds)
            else:
                # abort what the broker has, not only what waits here: a reader must really skip it
                self._producer.flush(self._seconds)
                self._producer.abort_transaction(self._seconds)
        except KafkaException as raised:
            raise ClusterError(
                f"traffic to {self._topic} failed: {raised.args[0].str()}",
                fix="see whether the source broker is alive; its log is in the demo's folder",
            ) from raised


class CommittedReader:
    """
    A read_committed consumer of all partitions of a topic, from given offsets on.

    Args:
        start: First offset by partition.
    """

    def __init__(self, properties: Mapping[str, str], topic: str, start: Mapping[int, int]) -> None:
        self._consumer = Consumer(
            {
                **properties,
                **_QUIET,
                "group.id": _GROUP,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, offset) for number, offset in start.items()])
        self.ended: dict[int, int] = {}  # partition -> offset of its newest end-of-partition event

    def poll(self, seconds: float) -> list[ReadRecord]:
        """
        Records that have arrived; waits for the first, at most ``seconds``.

        Raises:
            ClusterError: The broker refuses; an unreachable one is waited for.
        """
        # consume() alone would wait until its list is full; a lone record must be seen at once
        first = self._consumer.poll(seconds)
        if first is None:
            return []
        return [
            record
            for message in (first, *self._consumer.consume(_CHUNK, 0))
            if (record := self._take(message)) is not None
        ]

    def close(self) -> None:
        """Let go of the connections."""
        self._consumer.close()

    def _take(self, message: Any) -> ReadRecord | None:
        error = message.error()
        if error is None:
            kind, timestamp = message.timestamp()
            return ReadRecord(
                message.partition(),
                message.offset(),
                message.key(),
                message.value(),
                tuple(message.headers() or ()),
                kind,
                timestamp,
            )
        if error.code() == KafkaError._PARTITION_EOF:
            self.ended[message.partition()] = message.offset()
        elif not (error.retriable() or error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN)):
            raise ClusterError(
                f"reading failed: {error.str()}", fix="see the broker's log in the demo's folder"
            )
        return None


def read_partition(
    properties: Mapping[str, str], topic: str, partition: int, end: int, *, seconds: float = 120.0
) -> Iterator[ReadRecord]:
    """
    Every committed record of one partition from its beginning up to an offset.

    Args:
        end: Where to stop, as `Offsets.ends` told; markers before it count.

    Raises:
        ClusterError: The end was not reached in time.
    """
    deadline = Deadline(seconds)
    reader = CommittedReader(properties, topic, {partition: 0})
    try:
        while reader.ended.get(partition, 0) < end:
            if deadline.passed:
                raise ClusterError(
                    f"{topic}-{partition} could not be read up to offset {end} within {seconds:.0f} s",
                    fix="see whether a transaction is still open there (kafka-transactions.sh list)",
                )
            for record in reader.poll(_POLL_SECONDS):
                if record.offset >= end:
                    return
                yield record
    finally:
        reader.close()


class AtLeastOnceCopier:
    """
    A copier as most are written: an idempotent producer, and positions committed now and then.

    It loses nothing and keeps the order as long as it lives.  After a kill it starts at the last committed
    position and copies what came after it again.  It exists to be compared with; nothing but the demo uses it.

    Args:
        target_topic: Where to; it has as many partitions.
        positions: Next offset by partition.
    """

    def __init__(
        self,
        source: Mapping[str, str],
        target: Mapping[str, str],
        *,
        topic: str,
        target_topic: str,
        positions: Mapping[int, int],
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._reader = CommittedReader(source, topic, positions)
        self._producer = Producer(
            {
                **target,
                **_QUIET,
                "client.id": "eomirror.demo.at-least-once",
                "enable.idempotence": True,
                "linger.ms": 5,
            }
        )
        self._target_topic = target_topic
        self._positions = dict(positions)
        self._failure: KafkaError | None = None
        self._clock = clock

    def copy(self, seconds: float) -> None:
        """Copy whatever arrives, for so long."""
        deadline = Deadline(seconds, self._clock)
        while not deadline.passed:
            records = self._reader.poll(min(_POLL_SECONDS, deadline.remaining()))
            for record in records:
                self._produce(record)
                self._positions[record.partition] = record.offset + 1
            for partition, offset in self._reader.ended.items():
                # the tail may be markers and aborted records, which no record leads past
                self._positions[partition] = max(self._positions[partition], offset)
            self._producer.poll(0)

    def acknowledged(self) -> dict[int, int]:
        """
        Wait until the target has everything, then say which source offsets come next.

        Raises:
            ClusterError: A record was not delivered.
        """
        left = self._producer.flush(_ANSWER_SECONDS)
        if left or self._failure is not None:
            raise ClusterError(
                f"the at-least-once copier could not deliver: {self._failure or f'{left} left'}"
            )
        return dict(self._positions)

    def _produce(self, record: ReadRecord) -> None:
        while True:
            try:
                _produce(self._producer, self._target_topic, record, on_delivery=self._delivered)
            except BufferError:
                self._producer.poll(_POLL_SECONDS)
            else:
                return

    def _delivered(self, error: KafkaError | None, _: object) -> None:
        if error is not None:
            self._failure = error
