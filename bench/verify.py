"""
Whether a copy is right, read from both clusters by a client that is neither mirror.

Of every record a 64-bit keyed hash of key, value, headers and timestamp is kept, in the order of its partition,
and the target's list is compared with the source's.  A timed run is stopped in the middle, so its copy has to be
a prefix of the source in every partition; a copy that ran to its end has to be all of it.  Since no two records
of a topic are equal (see workloads.py), an equal list means: none missing, duplicate, reordered or altered.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Ledger", "WrongCopyError", "check_copy", "content_hash", "read_ledger"]

_PROVENANCE_HEADER = "eomirror.hops"
_QUIET_SECONDS = 30.0
_HASH_SPAN = 1 << 64


class WrongCopyError(Exception):
    """A mirror wrote something else than a copy; no figure of it means anything."""


@dataclass(slots=True)
class Ledger:
    """
    All committed records of a topic.

    Attributes:
        hashes: Per partition, one for each record in its order.
        offsets: Per partition, where each record is.
        ends: Per partition, the offset after the last record or marker.
    """

    hashes: dict[int, array[int]] = field(default_factory=dict)
    offsets: dict[int, array[int]] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)

    @property
    def records(self) -> int:
        """How many."""
        return sum(map(len, self.hashes.values()))

    @property
    def unused_offsets(self) -> int:
        """Offsets that hold no committed record: transaction markers and aborted records."""
        return sum(self.ends.values()) - self.records

    def records_before(self, ends: Mapping[int, int]) -> int:
        """How many records stand before these offsets."""
        return sum(
            bisect_left(self.offsets[number], end) for number, end in ends.items() if number in self.offsets
        )


def content_hash(
    value: bytes | None, key: bytes | None = None, timestamp: object = None, headers: object = None
) -> int:
    """Returns the hash of a record's content, as ledgers hold it; it differs from process to process."""
    return hash((key, value, timestamp, headers)) % _HASH_SPAN


def read_ledger(
    servers: str,
    topic: str,
    partitions: int,
    make: Callable[[bytes], bytes] | None = None,
    *,
    timestamps: bool = True,
) -> Ledger:
    """
    Read what is committed of a topic, from the beginning to its last stable offsets.

    Args:
        servers: Brokers.
        topic: Topic.
        partitions: Its number of partitions.
        make: What a copy has in place of a value; None for the value itself.
        timestamps: Timestamps are content; False where each copy has its own.

    Raises:
        TimeoutError: Nothing arrived for half a minute.
        KafkaException: The cluster refuses.
    """
    ledger = Ledger(
        {number: array("Q") for number in range(partitions)},
        {number: array("q") for number in range(partitions)},
        dict.fromkeys(range(partitions), 0),
    )
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "client.id": "bench-verify",
            "group.id": "bench-verify",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "queued.max.messages.kbytes": 128 * 1024,
            # by default a full queue is left to itself for a second, and is empty long before
            "fetch.queue.backoff.ms": 5,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        _read_to_end(consumer, ledger, topic, make, timestamps=timestamps)
    finally:
        consumer.close()
    return ledger


def _read_to_end(
    consumer: Consumer,
    ledger: Ledger,
    topic: str,
    make: Callable[[bytes], bytes] | None,
    *,
    timestamps: bool,
) -> None:
    open_partitions = set(ledger.hashes)
    quiet_since = time.monotonic()
    while open_partitions:
        messages = consumer.consume(10_000, 0.2)
        if messages:
            quiet_since = time.monotonic()
        elif time.monotonic() - quiet_since > _QUIET_SECONDS:
            raise TimeoutError(
                f"{topic}: no end of partitions {sorted(open_partitions)} in {_QUIET_SECONDS:g} s"
            )
        for message in messages:
            number = message.partition()
            error = message.error()
            if error is not None:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  librdkafka's own name for it
                    raise KafkaException(error)
                ledger.ends[number] = message.offset()
                open_partitions.discard(number)
                continue
            headers = message.headers()
            if headers is not None:
                headers = tuple(pair for pair in headers if pair[0] != _PROVENANCE_HEADER) or None
            value = message.value()
            if make is not None and value is not None:
                value = make(value)
            timestamp = message.timestamp() if timestamps else None
            ledger.hashes[number].append(content_hash(value, message.key(), timestamp, headers))
            ledger.offsets[number].append(message.offset())


def check_copy(source: Ledger, target: Ledger, *, complete: bool) -> None:
    """
    Raise unless the target is a copy of the source.

    Args:
        source: What there was to copy.
        target: What was copied.
        complete: Whether all of it has to be there, or a prefix of every partition.

    Raises:
        WrongCopyError: It is not; tells the first difference of each partition that has one.
    """
    faults = []
    for number, wanted in sorted(source.hashes.items()):
        found = target.hashes.get(number, array("Q"))
        if found != wanted[: len(found)]:
            faults.append(f"partition {number}: {_first_difference(wanted, found)}")
        elif complete and len(found) < len(wanted):
            faults.append(f"partition {number}: {len(wanted) - len(found)} records missing at the end")
    if faults:
        shown = "\n  ".join(faults[:10])
        raise WrongCopyError(f"{len(faults)} partitions differ:\n  {shown}")


def _first_difference(wanted: array[int], found: array[int]) -> str:
    for index, (one, other) in enumerate(zip(wanted, found, strict=False)):
        if one != other:
            where = wanted.index(other) if other in wanted else None
            if where is None:
                return f"record {index} is altered, or is none of the source's"
            kind = "a duplicate" if where < index else "out of its order, or records before it are missing"
            return f"in place of record {index} there is record {where}: {kind}"
    return f"{len(found) - len(wanted)} records more than the source has"
