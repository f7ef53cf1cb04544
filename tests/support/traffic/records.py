"""Writes and reads records for the integration tests, independently of the package under test."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

# `get_watermark_offsets` names these and does not set them as retriable.
_NOT_LED_YET = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE)
# of a broker that stands still for as long as a client waits
_NO_ANSWER = (KafkaError._TRANSPORT, KafkaError._TIMED_OUT)

Record = tuple[bytes | None, bytes | None, int, tuple[tuple[str, bytes | None], ...]]


def create_topic(properties: Mapping[str, Any], name: str, partitions: int = 1, **configs: str) -> None:
    """Create a topic that keeps old timestamps, and wait until it is there."""
    admin = AdminClient(dict(properties))
    configs.setdefault("retention.ms", "-1")
    for future in admin.create_topics([NewTopic(name, partitions, 1, config=configs)]).values():
        future.result(30)

    def there() -> bool:
        found = admin.list_topics(timeout=10).topics.get(name)
        return found is not None and found.error is None

    wait_for(there)


def delete_topic(properties: Mapping[str, Any], name: str) -> None:
    """Delete a topic, and wait until it is gone: with a ZooKeeper, the controller knows it longer than the brokers."""
    admin = AdminClient(dict(properties))
    for future in admin.delete_topics([name]).values():
        future.result(30)

    def gone() -> bool:
        if name in admin.list_topics(timeout=10).topics:
            return False
        asked = admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name]
        return asked.exception(30) is None

    wait_for(gone)


def wait_for(condition: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Poll until ``condition`` holds; fails with its name otherwise.  A broker that does not answer is asked again."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            value = condition()
        except KafkaException as error:
            if error.args[0].code() not in _NO_ANSWER:
                raise
            value = None
        if value:
            return value
        time.sleep(0.1)
    raise AssertionError(f"did not come true within {seconds} s: {condition}")


def some_records(seed: int, count: int) -> list[Record]:
    """Records of every awkward shape: null and empty keys and values, repeated and null-valued headers."""
    rng = random.Random(seed)
    keys = (None, b"", b"k")
    values = (None, b"", b"value")
    records: list[Record] = []
    for number in range(count):
        key = rng.choice(keys)
        value = rng.choice(values)
        headers: tuple[tuple[str, bytes | None], ...] = ()
        if rng.random() < 0.3:
            headers = (("h", b"1"), ("h", None), ("other", b""), ("h", b"1"))
        records.append(
            (
                key + b"%d" % number if key else key,
                value + rng.randbytes(rng.randrange(60)) if value else value,
                1_600_000_000_000 + number,
                headers,
            )
        )
    return records


def lost_beyond_compaction(original: Sequence[Record], copy: Sequence[Record]) -> list[Record]:
    """
    Records of the original that compaction of the copy does not explain: of their key, the copy has nothing later.

    Source and target compact each at a time of its own, so neither has to hold what the other still holds.  Records
    must be distinct; the copy's, in its order, must be a part of the original.
    """
    place = {record: number for number, record in enumerate(original)}
    latest = {record[0]: place[record] for record in copy if record in place}
    held = set(copy)
    return [
        record
        for number, record in enumerate(original)
        if record not in held and (record[0] is None or latest.get(record[0], -1) < number)
    ]


def is_within(few: Sequence[Record], many: Sequence[Record]) -> bool:
    """Tells whether all of ``few`` are in ``many``, in the same order."""
    rest = iter(many)
    return all(one in rest for one in few)


def produce(
    properties: Mapping[str, Any],
    topic: str,
    partitions: int,
    records: Iterable[Record],
    *,
    transactional_id: str,
    per_transaction: int = 50,
    abort_every: int = 10,
) -> dict[int, list[Record]]:
    """Write records in transactions, every ``abort_every``-th aborted; what was committed, per partition."""
    producer = Producer({**properties, "transactional.id": transactional_id, "linger.ms": 1})
    producer.init_transactions(30)
    committed: dict[int, list[Record]] = {number: [] for number in range(partitions)}
    batch = list(records)
    for index, begin in enumerate(range(0, len(batch), per_transaction)):
        producer.begin_transaction()
        chunk = batch[begin : begin + per_transaction]
        for number, (key, value, timestamp, headers) in enumerate(chunk):
            producer.produce(
                topic, value, key, (begin + number) % partitions, timestamp=timestamp, headers=list(headers)
            )
        if abort_every and index % abort_every == abort_every - 1:
            producer.flush()
            producer.abort_transaction(30)
            continue
        producer.commit_transaction(30)
        for number, record in enumerate(chunk):
            committed[(begin + number) % partitions].append(record)
    return committed


def watermarks(properties: Mapping[str, Any], topic: str, number: int = 0) -> tuple[int, int]:
    """Log start and high watermark of a partition; a broker that has just started may not lead it yet."""
    consumer = Consumer({**properties, "group.id": "watermarks"})

    def asked() -> tuple[int, int] | None:
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), timeout=15)
        except KafkaException as error:
            if error.args[0].retriable() or error.args[0].code() in _NOT_LED_YET:
                return None
            raise
        return int(low), int(high)

    try:
        found: tuple[int, int] = wait_for(asked)
    finally:
        consumer.close()
    return found


def read_committed(properties: Mapping[str, Any], topic: str) -> dict[int, list[Record]]:
    """Every committed record of a topic, per partition, up to its end as of now."""
    consumer = Consumer(
        {
            **properties,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
        }
    )
    numbers = sorted(wait_for(lambda: consumer.list_topics(topic, timeout=15)).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    found: dict[int, list[Record]] = {number: [] for number in numbers}
    waiting = set(numbers)
    deadline = time.monotonic() + 60
    while waiting:
        if time.monotonic() > deadline:
            raise AssertionError(f"{topic}: no end of partitions {sorted(waiting)} within 60 s")
        for message in consumer.consume(5_000, 0.1):
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                waiting.discard(message.partition())
                continue
            found[message.partition()].append(
                (
                    message.key(),
                    message.value(),
                    message.timestamp()[1],
                    tuple(header for header in message.headers() or () if header[0] != "eomirror.hops"),
                )
            )
    consumer.close()
    return found
