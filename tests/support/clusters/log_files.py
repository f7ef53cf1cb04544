"""The log files of brokers, read without a client: markers and aborted batches too, as they lie on the disk."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["HEADER_BYTES", "LogBatch", "batches", "partition_batches"]

# Of a record batch: base offset, length of what follows, leader epoch, magic, checksum, attributes, last offset delta,
# first and last timestamp, producer id, producer epoch, first sequence, number of records.
_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_BEGINS = 12
_CODEC, _TRANSACTIONAL, _CONTROL = 0x07, 0x10, 0x20
# of the only record of a marker: behind length, attributes, both deltas, the key's length and its version
_TYPE_AT = 7

HEADER_BYTES = _HEADER.size
"""What stands before the records of a batch."""


class LogBatch(NamedTuple):
    """
    One batch.

    Attributes:
        at: Where its records begin in the file.
        offset: First offset.
        count: Number of records.
        oldest: Timestamp in ms of its first record; of a marker, the time at which the broker wrote it.
        producer: Producer id and epoch.
        transactional: True for a part of a transaction.
        marker: ``commit`` or ``abort``; empty if it holds records.
        records: As they stand in the file.
        compressed: True if `records` are.
    """

    at: int
    offset: int
    count: int
    oldest: int
    producer: tuple[int, int]
    transactional: bool
    marker: str
    records: bytes
    compressed: bool


def batches(log: Path) -> Iterator[LogBatch]:
    """The whole batches of a segment: a broker may be writing another one."""
    data, at = log.read_bytes(), 0
    while at + _HEADER.size <= len(data):
        offset, length, _, _, _, attributes, _, oldest, _, *producer, _, count = _HEADER.unpack_from(data, at)
        end = at + _LENGTH_BEGINS + length
        if not length or end > len(data):
            break
        begin, marker = at + _HEADER.size, ""
        if attributes & _CONTROL:
            marker = "commit" if data[begin + _TYPE_AT : begin + _TYPE_AT + 2] == b"\0\x01" else "abort"
        yield LogBatch(
            begin, offset, count, oldest, (producer[0], producer[1]), bool(attributes & _TRANSACTIONAL), marker,
            data[begin:end], bool(attributes & _CODEC),
        )  # fmt: skip
        at = end


def partition_batches(cluster: Any, topic: str, partition: int = 0) -> Iterator[LogBatch]:
    """The batches of a partition, from the disk of the cluster's first broker."""
    folder = cluster.brokers[0].folder / "data" / f"{topic}-{partition}"
    for segment in sorted(folder.glob("*.log")):
        yield from batches(segment)
