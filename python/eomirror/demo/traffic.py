"""
Traffic of the demo: transactions of records in every awkward shape, each record with a stamp.

The stamp (one header) says which partition a record belongs to, the how-manieth committed record of that
partition it is, when it was sent, and a checksum of its key and value.  So a reader of the target can tell by
itself whether something is missing, twice, out of order or damaged, without asking the source.

Everything follows from the seed, except for times.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["STAMP_HEADER", "Ledger", "Record", "Stamp", "TrafficPlan", "Transaction", "mix"]

STAMP_HEADER = "demo-stamp"

Headers = tuple[tuple[str, bytes | None], ...]

_STAMP = struct.Struct(">HQQI")
_MASK = (1 << 64) - 1
# younger than segment.ms (7 days): otherwise mixed timestamps would roll a segment with every batch
_OLDEST_MS = 2 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Record:
    """A record as an application sees it; ``timestamp`` in ms since the epoch."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Headers
    timestamp: int


@dataclass(frozen=True, slots=True)
class Stamp:
    """
    Stamp of a record: its origin and number.

    Attributes:
        sequence: How many committed records of its partition come before it.
        sent_us: Monotonic clock of the machine when it was sent, in microseconds.
        checksum: CRC-32 of key and value, null told from empty.
    """

    partition: int
    sequence: int
    sent_us: int
    checksum: int

    def encode(self) -> bytes:
        """The header's value."""
        return _STAMP.pack(self.partition, self.sequence, self.sent_us, self.checksum)

    @classmethod
    def of(cls, headers: Sequence[tuple[str, bytes | None]]) -> Self | None:
        """The stamp among a record's headers; None if there is none that can be read."""
        for name, value in headers:
            if name == STAMP_HEADER and value is not None and len(value) == _STAMP.size:
                return cls(*_STAMP.unpack(value))
        return None

    def fits(self, partition: int, key: bytes | None, value: bytes | None) -> bool:
        """Returns true if a record with this stamp has its original place and content."""
        return self.partition == partition and self.checksum == checksum(key, value)


def checksum(key: bytes | None, value: bytes | None) -> int:
    """CRC-32 of a key and a value; null, empty and a moved boundary between the two all differ."""
    head = struct.pack(">ii", -1 if key is None else len(key), -1 if value is None else len(value))
    return zlib.crc32(value or b"", zlib.crc32(key or b"", zlib.crc32(head)))


@dataclass(frozen=True, slots=True)
class Transaction:
    """Records to write together, and whether to commit them."""

    records: tuple[Record, ...]
    commit: bool


@dataclass(slots=True)
class Ledger:
    """
    The producer's own count of what it did: the first of three witnesses, beside both clusters.

    Attributes:
        sequences: Committed records per partition; the next record's sequence.
        aborted_records: Records in transactions that were aborted on purpose.
    """

    sequences: list[int]
    transactions: int = 0
    aborted_records: int = 0
    aborted_transactions: int = 0

    @property
    def records(self) -> int:
        """Committed records."""
        return sum(self.sequences)

    def enter(self, transaction: Transaction) -> None:
        """Count a transaction that has ended as it was meant to."""
        if not transaction.commit:
            self.aborted_transactions += 1
            self.aborted_records += len(transaction.records)
            return
        self.transactions += 1
        for record in transaction.records:
            self.sequences[record.partition] += 1


@dataclass(frozen=True, slots=True)
class TrafficPlan:
    """
    Number, sizes and order of the transactions to write.

    Attributes:
        seed: Everything but times follows from it.
        abort_every: One in so many is aborted; 0 for none.
    """

    seed: int
    partitions: int
    per_transaction: int = 50
    abort_every: int = 10
    _offset: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        if self.abort_every:
            object.__setattr__(self, "_offset", mix(self.seed, 0, 0) % self.abort_every)

    def new_ledger(self) -> Ledger:
        """An empty ledger for this plan."""
        return Ledger([0] * self.partitions)

    def transaction(self, number: int, ledger: Ledger, *, sent_us: int, wall_ms: int) -> Transaction:
        """
        The transaction of that number.

        Args:
            number: Counted from 0, aborted ones included.
            ledger: What was committed so far; gives the sequences.
            sent_us: Monotonic clock, for the stamps.
            wall_ms: Wall clock, for the timestamps.
        """
        following = list(ledger.sequences)
        records = []
        for place in range(self.per_transaction):
            noise = mix(self.seed, number + 1, place)
            partition = noise % self.partitions
            records.append(_record(noise, partition, following[partition], sent_us, wall_ms))
            following[partition] += 1
        aborted = self.abort_every > 0 and number % self.abort_every == self._offset
        return Transaction(tuple(records), commit=not aborted)


def mix(seed: int, number: int, place: int) -> int:
    """64 bits that look random and follow from the arguments (the finalizer of SplitMix64)."""
    state = (seed * 0x9E3779B97F4A7C15 + number * 0xD1B54A32D192ED03 + place * 0x8CB92BA72F3D8DD7) & _MASK
    state = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    state = ((state ^ (state >> 27)) * 0x94D049BB133111EB) & _MASK
    return state ^ (state >> 31)


def _record(noise: int, partition: int, sequence: int, sent_us: int, wall_ms: int) -> Record:
    key: bytes | None = b"customer-%d" % (noise >> 40 & 0x3FF)
    match noise >> 8 & 7:
        case 0:
            key = None
        case 1:
            key = b""
    value: bytes | None
    match noise >> 12 & 15:
        case 0:
            value = None
        case 1:
            value = b""
        case _:
            value = orjson.dumps(
                {
                    "order": f"{partition}-{sequence}",
                    "cents": noise & 0xFFFF,
                    "note": "x" * (noise >> 50 & 63),
                }
            )
    stamp = Stamp(partition, sequence, sent_us, checksum(key, value))
    headers: Headers = ((STAMP_HEADER, stamp.encode()),)
    match noise >> 16 & 3:
        case 0:
            headers = (("trace", b"a"), *headers, ("trace", b"b"), ("trace", b"a"))
        case 1:
            headers = (*headers, ("null", None), ("empty", b""), ("null", None))
    set_by_hand = noise >> 20 & 3 == 0
    timestamp = wall_ms - (noise >> 24) % _OLDEST_MS if set_by_hand else wall_ms
    return Record(partition, key, value, headers, timestamp)
