"""
Keeps the offset map small: merges a lane's chunks and drops unreadable ones. Pure.

The lane does it in its own transactions: the lane's fencing protects the map, and no key has a second writer.  The lane
merges only chunks that it committed in this attempt.  They are contiguous and not overwritten, so a merged chunk is
correct anywhere in the log.  A reset to an earlier position begins a new attempt.

A merged chunk has its own key (`merged_chunk_key`), and the keys of its parts are deleted after it.  So each key is
written by one transaction (perhaps twice: more records came, or a speculative chunk was wrong) and deleted by one.  Any
prefix of the log is therefore consistent::

    log      c0 c1 c2 [c3 M(c0..c2) -c0 -c1 -c2] c4        one transaction in brackets
    readers  apply c0 c1 c2 c3, and M again, which changes nothing; deleted keys change nothing either
    broker   compacts c0 c1 c2 away at some time; M holds the same ranges
    a crash  before the end of the transaction: it is aborted, and M never existed

The rate is bounded: once a minute, or when `MAX_CHUNKS` chunks have gathered, and at most `MAX_CHUNKS` in a
transaction.  A lane that stops merges its remaining chunks.  Chunks of a killed attempt (about a minute's worth) stay
until they are dropped.

Chunks below both log starts are found in the background (`eomirror.link.background_looks`, with `unreadable`) and
deleted in the lane's transactions too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror._native import decode_offset_map, encode_offset_map
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.offset_map import merged_chunk_key, offset_map_key, offset_map_partition

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from eomirror.plane.protocol import Account
    from eomirror.records.names import StateTopics
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["COMPACTION_SECONDS", "MAX_CHUNKS", "OffsetMapCompaction", "PlannedCompaction", "unreadable"]

#: Minimum seconds between two rounds, unless `MAX_CHUNKS` chunks have gathered.
COMPACTION_SECONDS = 60.0

#: Maximum number of chunks that one transaction merges or drops.
MAX_CHUNKS = 4_000

# chunks of a partition that justify a round; fewer when very many partitions share the memory
_WORTH = 500
_WORTH_AT_ALL = 16
_HELD = 50_000
# minimum between two rounds of a very busy lane
_LEAST_SECONDS = 1.0
# a merged chunk stays far below a topic's max.message.bytes: a range takes 3 to 6 bytes, 27 at worst
_MOST_RANGES = 10_000
# larger ones are left alone, and not held in memory
_LARGE_BYTES = 16_384

_Range = tuple[int, int, int]
_Chunk = tuple[int, bytes]
_NO_RECORDS: tuple[MetadataRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class PlannedCompaction:
    """
    Changes that one transaction makes to the map.

    Attributes:
        records: Records to write, in this order.
        merged: Number of merged chunks of each partition.
        dropped: Number of dropped chunks.
        now: Time of the plan, monotonic seconds.
    """

    records: Sequence[MetadataRecord]
    merged: Mapping[SourcePartition, int]
    dropped: int
    now: float


class _Tail:
    """Mergeable chunks of one partition, in order; a chunk without a value is too large to merge."""

    __slots__ = ("chunks", "identity")

    def __init__(self, identity: tuple[str, str, int]) -> None:
        self.identity = identity
        self.chunks: list[_Chunk] = []


class OffsetMapCompaction:
    """
    Tracks the chunks that a lane may merge.

    `plan` changes nothing; `committed` applies the plan.

    Args:
        partitions: Approximate number of partitions of the lane; they share the memory.
    """

    def __init__(self, partitions: int = 1) -> None:
        self._worth = max(_WORTH_AT_ALL, min(_WORTH, _HELD // max(1, partitions)))
        self._tails: dict[SourcePartition, _Tail] = {}
        self._ripe: set[SourcePartition] = set()
        self._held = 0
        self._unreadable: list[tuple[int, bytes]] = []
        self._at = float("-inf")
        self._leaving = False

    def forget(self) -> None:
        """Forgets uncommitted state when the lane recovers."""
        self._tails.clear()
        self._ripe.clear()
        self._held = 0
        self._unreadable.clear()
        self._leaving = False

    def release(self, sources: Iterable[SourcePartition]) -> None:
        """Forgets the chunks of partitions that another lane gets: if they return, others stand between."""
        for source in sources:
            tail = self._tails.pop(source, None)
            self._held -= 0 if tail is None else len(tail.chunks)
            self._ripe.discard(source)
        # a later look finds those of the other partitions again
        self._unreadable.clear()

    def due(self, now: float) -> bool:
        """
        Returns whether the next transaction should compact, or one should be begun for it.

        Args:
            now: Monotonic seconds.
        """
        if self._leaving:
            return True
        if not self._ripe and not self._unreadable:
            return False
        since = now - self._at
        return since >= COMPACTION_SECONDS or (self._held >= MAX_CHUNKS and since >= _LEAST_SECONDS)

    def leave(self) -> bool:
        """Returns whether a last transaction is worthwhile before the lane stops; True at most once."""
        worth = self._unreadable or any(len(tail.chunks) >= _WORTH_AT_ALL for tail in self._tails.values())
        self._leaving = not self._leaving and bool(worth)
        return self._leaving

    def drop(self, chunks: Iterable[tuple[int, bytes]]) -> None:
        """Adds unreadable chunks to delete: partition of the map and key."""
        self._unreadable.extend(chunks)

    def plan(self, topics: StateTopics, now: float) -> PlannedCompaction:
        """
        Returns the records that a transaction should write; changes nothing.

        Args:
            topics: The link's topics.
            now: Monotonic seconds.
        """
        if not self.due(now):
            return PlannedCompaction(_NO_RECORDS, {}, 0, now)
        gone = self._unreadable[:MAX_CHUNKS]
        left = MAX_CHUNKS - len(gone)
        records: list[MetadataRecord] = []
        deleted = [MetadataRecord(topics.offset_map, partition, key, None) for partition, key in gone]
        merged: dict[SourcePartition, int] = {}
        least = _WORTH_AT_ALL if self._leaving else self._worth
        for source, tail in sorted(self._tails.items(), key=lambda item: -len(item[1].chunks)):
            if len(tail.chunks) < least or left <= 0:
                break
            taken = tail.chunks[:left]
            left -= len(taken)
            merged[source] = len(taken)
            topic_id, target, number = tail.identity
            partition = offset_map_partition(source, topics.offset_map_partitions)
            for group, ranges in _groups(taken):
                key = merged_chunk_key(source, topic_id, group[0][0], len(group))
                value = encode_offset_map(target, number, ranges)
                records.append(MetadataRecord(topics.offset_map, partition, key, value))
                deleted += [
                    MetadataRecord(
                        topics.offset_map, partition, offset_map_key(source, topic_id, first), None
                    )
                    for first, _ in group
                ]
        # merged chunks come before deletions, so that a reader that sees a part of it misses nothing
        return PlannedCompaction([*records, *deleted], merged, len(gone), now)

    def committed(
        self, plan: PlannedCompaction, moved: Iterable[Position], chunks: Iterable[Account]
    ) -> None:
        """
        Records that the transaction of ``plan`` is committed.

        Args:
            moved: Positions that the transaction holds.
            chunks: Accounts whose ranges it holds; they can be merged from here on.
        """
        for source, count in plan.merged.items():
            del self._tails[source].chunks[:count]
            self._held -= count
            self._judge(source)
        del self._unreadable[: plan.dropped]
        if plan.records:
            self._at = plan.now
        self._leaving = False
        identities = {
            position.source: (position.topic_id, position.target_topic, position.target_partition)
            for position in moved
        }
        for account in chunks:
            self._add(account, identities[account.source])

    def _add(self, account: Account, identity: tuple[str, str, int]) -> None:
        tail = self._tails.get(account.source)
        if tail is None or tail.identity != identity:
            self._held -= 0 if tail is None else len(tail.chunks)
            tail = self._tails[account.source] = _Tail(identity)
        value = account.offset_map if len(account.offset_map) <= _LARGE_BYTES else b""
        tail.chunks.append((account.first_source_offset, value))
        self._held += 1
        self._judge(account.source)

    def _judge(self, source: SourcePartition) -> None:
        if len(self._tails[source].chunks) >= self._worth:
            self._ripe.add(source)
        else:
            self._ripe.discard(source)


def unreadable(
    chunks: Iterable[tuple[bytes, Sequence[_Range]]],
    *,
    source_start: int,
    target_start: int,
    last_target: int | None,
) -> list[bytes]:
    """
    Returns the keys of one partition's chunks that no reader can need.

    A chunk is dropped when it lies completely below both log starts, and only together with all chunks before it: an
    overwritten chunk must not become valid again.  Two chunks always stay: the last one before the log starts, which a
    hole may follow, and the one with the last record, so that an idle partition stays translatable.

    Args:
        chunks: Key and ranges in log order, from the beginning of the log; no ranges for one that is deleted.
        source_start: Log start of the source partition.
        target_start: Log start of the target partition.
        last_target: Target offset of the last mirrored record; None for none.
    """
    live: dict[bytes, Sequence[_Range]] = {}
    for key, ranges in chunks:
        live.pop(key, None)
        if ranges:
            live[key] = ranges
    found: list[tuple[int, bytes]] = []
    for key, ranges in live.items():
        source, target, count = ranges[-1]
        below = source + count <= source_start and target + count <= target_start
        if not below or last_target is None or target + count > last_target:
            break
        found.append((source, key))
    nearest = max(found, default=None)
    return [each[1] for each in found if each != nearest]


def _groups(chunks: Iterable[_Chunk]) -> Iterator[tuple[list[_Chunk], list[_Range]]]:
    """Yields neighbouring chunks that merge into one of a good size; a single chunk is left alone."""
    group: list[_Chunk] = []
    ranges: list[_Range] = []
    for first, value in chunks:
        here = decode_offset_map(value)[2] if value else []
        if not here or len(ranges) + len(here) > _MOST_RANGES:
            if len(group) > 1:
                yield group, ranges
            group, ranges = [], []
        if here:
            group.append((first, value))
            ranges += here
    if len(group) > 1:
        yield group, ranges
