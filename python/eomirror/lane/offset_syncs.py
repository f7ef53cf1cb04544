"""
Decides when a partition needs a new MM2 offset sync. Pure.

A sync names one record on both sides.  For a later offset MM2's store answers the record's target offset + 1, so it is
exact only at syncs: each sync is one more exact offset.

The rule is that of MM2 (Kafka 4.3, OffsetSyncWriter.PartitionState.update).  A sync is due for the first record of an
attempt.  It is due when a source offset is not the successor of the last one (a marker, aborted or compacted data), and
when a target offset went back.  And it is due when a reader of the last sync would read `MAX_LAG` records again.

Ours differs in three ways.  A sync names the last record of its transaction, and is committed with it.  Records that
the rule leaves out get a sync once the lane has been quiet for `TAIL_SECONDS` (MM2: 60 s), so that a reader at the end
of a quiet partition is exact.  A transaction with syncs costs one more round trip: a lane that has caught up pays it
once per `TAIL_SECONDS` and defers the syncs in between.
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
        ranges: (first source offset, first target offset, records), growing; not empty.
    """

    source: SourcePartition
    ranges: Sequence[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class _Known:
    """Last mirrored record of a partition, and the target offset of its last sync; -1 before the first."""

    upstream: int
    downstream: int
    synced: int


_NOTHING = _Known(-1, -1, -1)


class OffsetSyncs:
    """
    Tracks what a lane has synced, by partition.

    `due` changes nothing; only `committed` applies it, so an aborted transaction changes nothing.
    """

    def __init__(self) -> None:
        self._known: dict[SourcePartition, _Known] = {}
        self._tails: set[SourcePartition] = set()
        # those that the rule demands a sync for
        self._owed: set[SourcePartition] = set()

    @property
    def tails(self) -> bool:
        """True if the last record of some partition has no sync."""
        return bool(self._tails)

    def due(self, mirrored: Iterable[Mirrored], *, quiet: bool, hold: bool = False) -> tuple[OffsetSync, ...]:
        """
        Returns the syncs of a transaction.

        Args:
            mirrored: Its records, one entry per partition.
            quiet: The transaction was begun for pending records only.
            hold: Defer the syncs to keep the transaction short.
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
        """Records the commit of a transaction that holds the syncs of `due` for the same arguments."""
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
        """Forgets uncommitted state when the lane recovers."""
        self._known.clear()
        self._tails.clear()
        self._owed.clear()

    def _after(self, item: Mirrored) -> _Known:
        """Returns the state of a partition after these records are committed."""
        known = self._known.get(item.source, _NOTHING)
        upstream, downstream = known.upstream, known.downstream
        due = known.synced < 0
        for source, target, count in item.ranges:
            due = due or source != upstream + 1 or target < downstream
            upstream, downstream = source + count - 1, target + count - 1
        # a reader of the last sync resumes one record after it
        due = due or downstream - (known.synced + 1) >= MAX_LAG
        return _Known(upstream, downstream, downstream if due else known.synced)
