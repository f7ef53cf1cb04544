"""The transactions of a topic, as the broker's log files hold them: read without a client, aborted ones too."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from support.clusters.log_files import partition_batches

if TYPE_CHECKING:
    from support.clusters.log_files import LogBatch

__all__ = ["Transaction", "transactions_of"]


@dataclass(slots=True)
class Transaction:
    """
    What one producer id wrote under one epoch.

    Attributes:
        values: Values of its records.
        outcomes: Outcome in each partition that it wrote: ``committed``, ``aborted``, or ``open``.
    """

    values: list[bytes] = field(default_factory=list)
    outcomes: dict[int, str] = field(default_factory=dict)


def transactions_of(cluster: Any, topic: str, partitions: int) -> dict[tuple[int, int], Transaction]:
    """The transactions of a topic on a single broker, whose records are not compressed."""
    assert len(cluster.brokers) == 1
    found: dict[tuple[int, int], Transaction] = {}
    for number in range(partitions):
        # the epoch of each producer's transaction that has no marker yet; a marker has the next epoch
        begun: dict[int, tuple[int, int]] = {}
        for batch in partition_batches(cluster, topic, number):
            producer = batch.producer[0]
            if batch.marker:
                ended = begun.pop(producer, None)
                if ended is not None:
                    found[ended].outcomes[number] = "committed" if batch.marker == "commit" else "aborted"
                continue
            assert batch.transactional
            name = batch.producer
            assert begun.setdefault(producer, name) == name, f"{name} before the end of {begun[producer]}"
            transaction = found.setdefault(name, Transaction())
            transaction.values += _values(batch)
            transaction.outcomes.setdefault(number, "open")
    return found


def _values(batch: LogBatch) -> list[bytes]:
    assert not batch.compressed
    found, place = [], 0
    for _ in range(batch.count):
        size, begin = _varint(batch.records, place)
        found.append(_value(batch.records, begin + 1))
        place = begin + size
    return found


def _value(held: bytes, at: int) -> bytes:
    """Value of a record, from behind its attributes."""
    _, at = _varint(held, at)
    _, at = _varint(held, at)
    size, at = _varint(held, at)
    size, at = _varint(held, at + max(size, 0))
    return held[at : at + max(size, 0)]


def _varint(held: bytes, at: int) -> tuple[int, int]:
    """A signed number in zigzag form, and where the next field begins."""
    number = shift = 0
    while True:
        byte = held[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
