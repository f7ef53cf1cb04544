"""
When MirrorMaker 2's readers need a new offset sync of a partition (pure).

A sync names one record on both sides.  MM2's own store of syncs answers for an offset behind it with the record's
target offset + 1, and is exact at its syncs only, so that each one more is one more offset that its readers know.
The rule is that of MM2 (Kafka 4.3, OffsetSyncWriter.PartitionState.update): the first record of a lane's attempt, a
record whose source offset does not follow the one before (a marker, aborted or compacted data), one whose target
offset went back, and one that is so far behind the last sync that a reader would read `MAX_LAG` records again.

Ours differs in two ways, both of which give readers more: the record of a sync is the last one of its
transaction, and it is committed with it; and what the rule leaves out is written once the lane has been quiet
for `TAIL_SECONDS` (MM2: 60 s), so that a reader at the end of a quiet partition is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.formats.mm2 import OffsetSync

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eomirror.types import SourcePartition

__all__ = ["MAX_LAG", "TAIL_SECONDS", "Mirrored", "OffsetSyncs"]

#: MM2's default of ``offset.lag.max``, records.
MAX_LAG = 100

#: How long after its transaction the last record of a quiet partition gets its sync, seconds.
TAIL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Mirrored:
    """
    Records of one source partition in one transaction.

    Attributes:
        source: The source partition.
        ranges: (first source offset, first target offset, records), growing; not empty.
    """

    source: SourcePartition
    ranges: Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class _Known:
    """The last mirrored record of a partition, and the target offset of the last sync; -1 before the first."""

    upstream: int
    downstream: int
    synced: int


_NOTHING = _Known(-1, -1, -1)


class OffsetSyncs:
    """
    What a lane has synced, by partition.

    `due` says what a transaction should hold; only `committed` makes it true, so that an aborted one changes nothing.
    """

    def __init__(self) -> None:
        self._known: dict[SourcePartition, _Known] = {}
        self._tails: set[SourcePartition] = set()

    @property
    def tails(self) -> bool:
        """Whether some partition's last record is without a sync."""
        return bool(self._tails)

    def due(self, mirrored: Iterable[Mirrored], *, quiet: bool) -> tuple[OffsetSync, ...]:
        """
        Syncs for a transaction.

        Args:
            mirrored: What it holds, one entry for each partition.
            quiet: It was begun for what is left over, because there was nothing else to do.
        """
        syncs = [
            OffsetSync(item.source.topic, item.source.partition, after.upstream, after.downstream)
            for item, after in ((item, self._after(item)) for item in mirrored)
            if after.synced == after.downstream
        ]
        if quiet:
            for source in sorted(self._tails):
                known = self._known[source]
                syncs.append(OffsetSync(source.topic, source.partition, known.upstream, known.downstream))
        return tuple(syncs)

    def committed(self, mirrored: Iterable[Mirrored], *, quiet: bool) -> None:
        """A transaction with what `due` said for the same arguments was committed."""
        if quiet:
            for source in self._tails:
                known = self._known[source]
                self._known[source] = _Known(known.upstream, known.downstream, known.downstream)
            self._tails.clear()
        for item in mirrored:
            after = self._known[item.source] = self._after(item)
            if after.synced == after.downstream:
                self._tails.discard(item.source)
            else:
                self._tails.add(item.source)

    def forget(self) -> None:
        """The lane begins again from what the target says."""
        self._known.clear()
        self._tails.clear()

    def _after(self, item: Mirrored) -> _Known:
        """What is known of a partition once these records are committed."""
        known = self._known.get(item.source, _NOTHING)
        upstream, downstream = known.upstream, known.downstream
        due = known.synced < 0
        for source, target, count in item.ranges:
            due = due or source != upstream + 1 or target < downstream
            upstream, downstream = source + count - 1, target + count - 1
        # a reader of the last sync would go on one record behind it
        due = due or downstream - (known.synced + 1) >= MAX_LAG
        return _Known(upstream, downstream, downstream if due else known.synced)
