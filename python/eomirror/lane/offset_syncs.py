"""
When MirrorMaker 2's readers need a new offset sync of a partition (pure).

A sync names one record on both sides.  MM2's own store of syncs answers for an offset behind it with the record's
target offset + 1, and is exact at its syncs only, so that each one more is one more offset that its readers know.
The rule is that of MM2 (Kafka 4.3, OffsetSyncWriter.PartitionState.update): the first record of a lane's attempt, a
record whose source offset does not follow the one before (a marker, aborted or compacted data), one whose target
offset went back, and one that is so far behind the last sync that a reader would read `MAX_LAG` records again.

Ours differs in three ways.  The record of a sync is the last one of its transaction, and it is committed with it.
What the rule leaves out is written once the lane has been quiet for `TAIL_SECONDS` (MM2: 60 s), so that a reader at the
end of a quiet partition is exact.  And a transaction with syncs takes one round trip more, which a lane that has caught
up pays once in `TAIL_SECONDS`: what is due in between is owed, and written with the next one that pays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.records.mm2 import OffsetSync
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

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
        # those of them for which the rule wants a sync
        self._owed: set[SourcePartition] = set()

    @property
    def tails(self) -> bool:
        """Whether some partition's last record is without a sync."""
        return bool(self._tails)

    def due(self, mirrored: Iterable[Mirrored], *, quiet: bool, hold: bool = False) -> tuple[OffsetSync, ...]:
        """
        Syncs for a transaction.

        Args:
            mirrored: What it holds, one entry for each partition.
            quiet: It was begun for what is left over, because there was nothing else to do.
            hold: It should not take longer than it must: nothing is written, what is due is owed.
        """
        if hold:
            return ()
        after = {item.source: self._after(item) for item in mirrored}
        wanted = {source for source, known in after.items() if known.synced == known.downstream}
        wanted |= self._tails if quiet else self._owed
        return tuple(
            OffsetSync(source.topic, source.partition, known.upstream, known.downstream)
            for source in sorted(wanted)
            for known in [after.get(source) or self._known[source]]
        )

    def committed(self, mirrored: Iterable[Mirrored], *, quiet: bool, hold: bool = False) -> None:
        """A transaction with what `due` said for the same arguments was committed."""
        mirrored = tuple(mirrored)
        written = {
            SourcePartition(sync.topic, sync.partition) for sync in self.due(mirrored, quiet=quiet, hold=hold)
        }
        for item in mirrored:
            after = self._after(item)
            if after.synced == after.downstream and item.source not in written:
                self._owed.add(item.source)
            before = self._known.get(item.source, _NOTHING)
            self._known[item.source] = replace(after, synced=before.synced)
            self._tails.add(item.source)
        for source in written:
            self._known[source] = replace(self._known[source], synced=self._known[source].downstream)
        self._tails -= written
        self._owed -= written

    def forget(self) -> None:
        """The lane begins again from what the target says."""
        self._known.clear()
        self._tails.clear()
        self._owed.clear()

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
