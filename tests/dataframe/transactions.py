"""The transactions of a topic, as the broker's log files hold them: read without a client, aborted ones too."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Transaction", "transactions_of"]

# Of a record batch: base offset, length of what follows, leader epoch, magic, checksum, attributes, last offset delta,
# first and last timestamp, producer id, producer epoch, first sequence, number of records.
_BATCH = struct.Struct(">qiibIhiqqqhii")
_LENGTH_BEGINS = 12
_CODEC, _TRANSACTIONAL, _CONTROL = 0x07, 0x10, 0x20


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
    (broker,) = cluster.brokers
    found: dict[tuple[int, int], Transaction] = {}
    for number in range(partitions):
        # the epoch of each producer's transaction that has no marker yet; a marker has the next epoch
        begun: dict[int, tuple[int, int]] = {}
        for segment in sorted((broker.folder / "data" / f"{topic}-{number}").glob("*.log")):
            for attributes, producer, epoch, records in _batches(segment.read_bytes()):
                if attributes & _CONTROL:
                    ended = begun.pop(producer, None)
                    if ended is not None:
                        (kind,) = struct.unpack_from(">h", records[0][0], 2)
                        found[ended].outcomes[number] = "committed" if kind else "aborted"
                    continue
                assert attributes & _TRANSACTIONAL
                name = (producer, epoch)
                assert begun.setdefault(producer, name) == name, f"{name} before the end of {begun[producer]}"
                transaction = found.setdefault(name, Transaction())
                transaction.values += [value for _, value in records]
                transaction.outcomes.setdefault(number, "open")
    return found


def _batches(held: bytes) -> Iterator[tuple[int, int, int, list[tuple[bytes, bytes]]]]:
    at = 0
    while at < len(held):
        _, length, _, _, _, attributes, _, _, _, producer, epoch, _, count = _BATCH.unpack_from(held, at)
        assert not attributes & _CODEC
        records, place = [], at + _BATCH.size
        for _ in range(count):
            size, begin = _varint(held, place)
            records.append(_record(held, begin + 1))
            place = begin + size
        yield attributes, producer, epoch, records
        at += _LENGTH_BEGINS + length


def _record(held: bytes, at: int) -> tuple[bytes, bytes]:
    """Key and value of a record, from behind its attributes."""
    _, at = _varint(held, at)
    _, at = _varint(held, at)
    size, at = _varint(held, at)
    key = held[at : at + max(size, 0)]
    size, at = _varint(held, at + max(size, 0))
    return key, held[at : at + max(size, 0)]


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
