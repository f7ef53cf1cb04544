"""The application of a trial, and a reader that remembers where every record is: also what compaction takes later."""

from __future__ import annotations

import random
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from confluent_kafka import Message

    from support.links.moving.judge import Log

__all__ = ["Application", "Tail", "read_on"]

_KEYS = 12  # few, so that compaction has something to do
_SECONDS = 60.0


class Application(WorkerThread):
    """
    Writes records of a unique value each: transactions, one in four aborted, and now and then without one.

    Args:
        properties: Client properties of the cluster.
        topic: Where to write.
        partitions: How many it has.
        name: Of the cluster; part of every value.
        seed: What it writes follows from it.
        per_second: Transactions per second.

    Attributes:
        ledger: Where each committed record is, per partition, as the broker acknowledged it.
        aborted: How many transactions were aborted.
    """

    def __init__(
        self, properties: Mapping[str, Any], topic: str, partitions: int, *, name: str, seed: str,
        per_second: float = 6.0,
    ) -> None:  # fmt: skip
        super().__init__(f"write {topic} on {name}")
        self.topic = topic
        self.ledger: dict[int, Log] = {number: {} for number in range(partitions)}
        self.aborted = 0
        self.side = name
        self._properties, self._partitions = dict(properties), partitions
        self._rng = random.Random(f"{seed}/{topic}/{name}")
        self._pause = 1 / per_second
        self._number = 0
        self._pending: list[Message] = []

    def work(self) -> None:
        """Write until told to stop."""
        settings = {**self._properties, "linger.ms": 1}
        owned = Producer({**settings, "transactional.id": f"{self.topic}.{self.side}"})
        plain = Producer({**settings, "enable.idempotence": True})
        owned.init_transactions(30)
        while not self.asked.wait(self._rng.uniform(0, 2 * self._pause)):
            if self._rng.random() < 0.15:
                self._write(plain)
                plain.flush(30)
                self._enter()
            else:
                self._transaction(owned)

    def _transaction(self, producer: Producer) -> None:
        producer.begin_transaction()
        self._write(producer)
        producer.flush(30)
        # an open transaction holds back what others wrote behind it
        if self._rng.random() < 0.3:
            time.sleep(self._rng.uniform(0, 0.2))
        if self._rng.random() < 0.25:
            producer.abort_transaction(30)
            self.aborted += 1
            self._pending.clear()
        else:
            producer.commit_transaction(30)
            self._enter()

    def _write(self, producer: Producer) -> None:
        for _ in range(self._rng.randrange(1, 12)):
            self._number += 1
            producer.produce(
                self.topic, f"{self.side}-{self._number}".encode(), b"k%d" % self._rng.randrange(_KEYS),
                partition=self._rng.randrange(self._partitions), on_delivery=self._delivered,
            )  # fmt: skip

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        assert error is None or error.code() in {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}, error
        if error is None:
            self._pending.append(message)

    def _enter(self) -> None:
        for message in self._pending:
            self.ledger[message.partition()][message.value()] = message.offset()
        self._pending.clear()


class Tail(WorkerThread):
    """
    Follows topics of one cluster, committed records only, as they come.

    Args:
        properties: Client properties of the cluster.
        topics: What to follow; a topic may appear later.

    Attributes:
        twice: Values that stand at more than one offset, with the topic.
    """

    def __init__(self, properties: Mapping[str, Any], topics: Iterable[str]) -> None:
        super().__init__("tail")
        self.twice: list[tuple[str, bytes]] = []
        self._logs: dict[tuple[str, int], Log] = {}
        self._at: dict[tuple[str, int], int] = {}
        self._topics = set(topics)
        self._consumer = Consumer(
            {
                **properties,
                "group.id": "moving.tail",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )

    def __exit__(self, *_: object) -> None:
        with closing(self._consumer):
            self.finish(_SECONDS)

    def log(self, topic: str, partition: int) -> Log:
        """Where each record of a partition is, or was before compaction took it."""
        return dict(self._logs.get((topic, partition), {}))

    def reached(self, topic: str, partition: int) -> int:
        """The furthest end of a partition that it has come to; 0 for none yet."""
        return self._at.get((topic, partition), 0)

    def work(self) -> None:
        """Follow until told to stop."""
        looked = 0.0
        while not self.asked.is_set():
            if self._topics and time.monotonic() > looked + 0.5:
                self._look()
                looked = time.monotonic()
            if not self._logs:
                time.sleep(0.2)
                continue
            for message in self._consumer.consume(2_000, 0.2):
                self._enter(message)

    def _look(self) -> None:
        known = self._consumer.list_topics(timeout=30).topics
        for topic in sorted(self._topics & known.keys()):
            parts = known[topic].partitions
            if parts:
                self._topics.discard(topic)
                self._logs.update({(topic, number): {} for number in parts})
                self._consumer.incremental_assign([TopicPartition(topic, number, 0) for number in parts])

    def _enter(self, message: Message) -> None:
        where = message.topic(), message.partition()
        if message.error() is not None:
            # the end of a partition lies behind its markers
            if message.error().code() == KafkaError._PARTITION_EOF:
                self._at[where] = message.offset()
            return
        log = self._logs[where]
        if log.setdefault(message.value(), message.offset()) != message.offset():
            self.twice.append((message.topic(), message.value()))


def read_on(
    properties: Mapping[str, Any], group: str, starts: Mapping[tuple[str, int], int], *, most: int = 300
) -> dict[tuple[str, int], Log]:
    """
    What a consumer reads that goes on at these offsets: so many records of each partition, or to its end.

    A record that it sees at two offsets is an error.
    """
    consumer = Consumer(
        {
            **properties,
            "group.id": group,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: dict[tuple[str, int], Log] = {where: {} for where in starts}
    waiting = set(starts)
    deadline = time.monotonic() + _SECONDS
    try:
        consumer.assign([TopicPartition(*where, offset) for where, offset in starts.items()])
        while waiting:
            assert time.monotonic() < deadline, f"no end of {sorted(waiting)}"
            for message in consumer.consume(1_000, 0.1):
                where = message.topic(), message.partition()
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    waiting.discard(where)
                elif where in waiting:
                    assert message.value() not in found[where], message.value()
                    found[where][message.value()] = message.offset()
                    if len(found[where]) >= most:
                        waiting.discard(where)
    finally:
        consumer.close()
    return found
