"""
Compares a copy with its original: missing, duplicate, reordered, altered and foreign records.

Pure: records come in, counts come out.  Records are matched by identity, which is the stamp that the demo's
producer wrote into them, or, where there is none, their content and its how-manieth occurrence::

    missing     an identity of the source that the target does not have
    duplicate   every further occurrence on the target of an identity
    reordered   how many records would have to move to restore the source's order: first occurrences that
                are not in the longest increasing subsequence
    altered     an occurrence whose key, value, headers, timestamp or timestamp type differ, byte for byte;
                the mirror's own provenance header does not count
    foreign     an identity that the source never committed, such as a record of an aborted transaction
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field, fields, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from eomirror.demo.traffic import Stamp
from eomirror.records.names import HOPS_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eomirror.demo.clients import ReadRecord

__all__ = [
    "Comparison",
    "Difference",
    "Revision",
    "SeenRecords",
    "compare_partition",
    "fingerprint",
]

_MOST_DETAILS = 20


@dataclass(frozen=True, slots=True)
class Difference:
    """
    One thing that is wrong.

    Attributes:
        kind: One of the words above.
        source_offset: Of the record on the source; None if it is not there.
        target_offset: Of the record on the target; None if it is not there.
        what: Names of the parts that differ, for an altered record.
    """

    kind: str
    partition: int
    source_offset: int | None
    target_offset: int | None
    what: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The counts, and the first differences."""

    source: int = 0
    target: int = 0
    missing: int = 0
    duplicate: int = 0
    reordered: int = 0
    altered: int = 0
    foreign: int = 0
    differences: tuple[Difference, ...] = ()

    @property
    def perfect(self) -> bool:
        """Returns true if the copy equals the original."""
        return not (self.missing or self.duplicate or self.reordered or self.altered or self.foreign)

    @property
    def line(self) -> str:
        """The verdict in one line; ``foreign`` is named only when there are any."""
        counts = (
            f"{self.missing:,} missing, {self.duplicate:,} duplicate, "
            f"{self.reordered:,} reordered, {self.altered:,} altered"
        )
        return f"{counts}, {self.foreign:,} foreign" if self.foreign else counts

    def plus(self, other: Comparison) -> Comparison:
        """Returns the sum of both."""
        total = Comparison(**_sums(self, other))
        return replace(total, differences=total.differences[:_MOST_DETAILS])


def compare_partition(
    partition: int, source: Sequence[ReadRecord], target: Sequence[ReadRecord]
) -> Comparison:
    """
    Compare one partition of the source with the same partition of the target.

    Args:
        source: Its committed records, in the order of their offsets.
        target: All records of the copy, in the same form.
    """
    place_of = {identity: place for place, identity in enumerate(_identities(source))}
    found: list[Difference] = []
    seen: set[Any] = set()
    places: list[int] = []
    firsts: list[int] = []
    for record, identity in zip(target, _identities(target), strict=True):
        place = place_of.get(identity)
        if place is None:
            found.append(Difference("foreign", partition, None, record.offset))
            continue
        original = source[place]
        if what := _parts_that_differ(original, record):
            found.append(Difference("altered", partition, original.offset, record.offset, what))
        if identity in seen:
            found.append(Difference("duplicate", partition, original.offset, record.offset))
            continue
        seen.add(identity)
        places.append(place)
        firsts.append(record.offset)
    moved = sorted(set(range(len(places))) - set(_longest_increasing(places)))
    found += [
        Difference("reordered", partition, source[places[index]].offset, firsts[index]) for index in moved
    ]
    found += [
        Difference("missing", partition, source[place].offset, None)
        for identity, place in place_of.items()
        if identity not in seen
    ]
    counts = Counter(difference.kind for difference in found)
    return Comparison(
        source=len(source), target=len(target), differences=tuple(found[:_MOST_DETAILS]), **counts
    )


def fingerprint(record: ReadRecord) -> int:
    """64 bits over everything in a record but its place and the mirror's provenance header."""
    state = blake2b(digest_size=8)
    state.update(struct.pack(">Bq", record.timestamp_type, record.timestamp))
    parts = [record.key, record.value]
    for name, value in _headers(record):
        parts += [name.encode(), value]
    for part in parts:
        state.update(struct.pack(">i", -1 if part is None else len(part)))
        state.update(part or b"")
    return int.from_bytes(state.digest(), "big")


@dataclass(frozen=True, slots=True, kw_only=True)
class Revision:
    """
    Compares the records that a reader saw with the final log.

    Attributes:
        retracted: Records that the reader saw, and that are gone.
        changed: Records that the reader saw, with other content at the same offset.
        inserted: Records that appeared behind the reader, where it had already read.
    """

    seen: int = 0
    retracted: int = 0
    changed: int = 0
    inserted: int = 0

    @property
    def stable(self) -> bool:
        """Returns true if no record that a reader saw was retracted."""
        return not (self.retracted or self.changed or self.inserted)

    def plus(self, other: Revision) -> Revision:
        """Returns the sum of both."""
        return Revision(**_sums(self, other))


@dataclass(slots=True)
class SeenRecords:
    """Records that a reader saw in one partition, in 16 bytes each."""

    offsets: array[int] = field(default_factory=lambda: array("Q"))
    fingerprints: array[int] = field(default_factory=lambda: array("Q"))

    def see(self, record: ReadRecord) -> None:
        """The reader was shown this record."""
        self.offsets.append(record.offset)
        self.fingerprints.append(fingerprint(record))

    def revised(self, final: Iterable[ReadRecord]) -> Revision:
        """Compare with all records that lie there in the end."""
        if not self.offsets:
            return Revision()
        shown = dict(zip(self.offsets, self.fingerprints, strict=True))
        last = max(self.offsets)
        kept = changed = inserted = 0
        for record in final:
            if record.offset > last:
                continue
            if record.offset not in shown:
                inserted += 1
            elif shown[record.offset] == fingerprint(record):
                kept += 1
            else:
                changed += 1
        return Revision(
            seen=len(self.offsets), retracted=len(shown) - kept - changed, changed=changed, inserted=inserted
        )


def _sums(one: Comparison | Revision, other: Comparison | Revision) -> dict[str, Any]:
    return {each.name: getattr(one, each.name) + getattr(other, each.name) for each in fields(one)}


def _identities(records: Sequence[ReadRecord]) -> list[tuple[int, ...]]:
    identities: list[tuple[int, ...]] = []
    occurrences: Counter[int] = Counter()
    for record in records:
        stamp = Stamp.of(record.headers)
        if stamp is not None:
            identities.append((stamp.partition, stamp.sequence, stamp.sent_us))
            continue
        content = fingerprint(record)
        occurrences[content] += 1
        identities.append((content, occurrences[content]))
    return identities


def _headers(record: ReadRecord) -> list[tuple[str, bytes | None]]:
    return [header for header in record.headers if header[0] != HOPS_HEADER]


def _parts_that_differ(original: ReadRecord, copy: ReadRecord) -> tuple[str, ...]:
    pairs = {
        "key": (original.key, copy.key),
        "value": (original.value, copy.value),
        "headers": (_headers(original), _headers(copy)),
        "timestamp": (original.timestamp, copy.timestamp),
        "timestamp type": (original.timestamp_type, copy.timestamp_type),
    }
    return tuple(name for name, (left, right) in pairs.items() if left != right)


def _longest_increasing(values: Sequence[int]) -> list[int]:
    """Indexes of a longest increasing subsequence, in O(n log n) (patience sorting)."""
    tails: list[int] = []  # index of the smallest end of a subsequence of each length
    ends: list[int] = []
    before: list[int] = []
    for index, value in enumerate(values):
        length = bisect_left(ends, value)
        before.append(tails[length - 1] if length else -1)
        if length == len(tails):
            tails.append(index)
            ends.append(value)
        else:
            tails[length] = index
            ends[length] = value
    chain = []
    index = tails[-1] if tails else -1
    while index >= 0:
        chain.append(index)
        index = before[index]
    return chain[::-1]
