"""
Plans the records for MirrorMaker 2's readers that go into the data's own transaction. Pure.

They are built once the data is acknowledged, never speculatively: MM2's reader of offset syncs keeps every sync that it
sees, a wrong one too.  A transaction with such records takes one more round trip.  `Mm2Records.plan` changes nothing;
`Mm2Records.committed` applies the plan.

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
from typing import TYPE_CHECKING, Protocol

from eomirror.lane.checkpoints import Checkpoints
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.mm2 import OffsetSync
from eomirror.records.names import ReadersTopics
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.lane.checkpoints import PlannedCheckpoints
    from eomirror.lane.commit import CommitPermit
    from eomirror.lane.spec import GroupOffset
    from eomirror.records.position import Position

__all__ = [
    "MAX_LAG",
    "TAIL_SECONDS",
    "MirroredRanges",
    "Mm2RecordPlan",
    "Mm2Records",
    "OffsetSyncs",
    "SyncSink",
]

#: MM2's default of ``offset.lag.max``, records.
MAX_LAG = 100

#: How long after its transaction the last record of a quiet partition gets its sync, seconds.
TAIL_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class MirroredRanges:
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

    def due(
        self, mirrored: Iterable[MirroredRanges], *, quiet: bool, hold: bool = False
    ) -> tuple[OffsetSync, ...]:
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

    def committed(self, mirrored: Iterable[MirroredRanges], *, quiet: bool, hold: bool = False) -> None:
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

    def release(self, sources: Iterable[SourcePartition]) -> None:
        """Forgets partitions: an older sync behind one of their new lane would set MM2's readers back."""
        for source in sources:
            self._known.pop(source, None)
            self._tails.discard(source)
            self._owed.discard(source)

    def forget(self) -> None:
        """Forgets uncommitted state when the lane recovers."""
        self._known.clear()
        self._tails.clear()
        self._owed.clear()

    def _after(self, item: MirroredRanges) -> _Known:
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


# seconds that a checkpoint waits for a transaction with data; doubled up to the maximum while pending records cannot
# be written, because a copy was replaced: the topic stops with its next record, or at the driver's next scan
_CHECKPOINT_SECONDS = 0.2
_MOST_SECONDS = 30.0

# records
_LARGE = 1_000

_Ids = tuple["Mapping[str, str | None]", "Mapping[str, str | None]"]


class SyncSink(Protocol):
    """Sends offset syncs that are not part of the transaction."""

    def send(self, syncs: Sequence[OffsetSync]) -> None:
        """Sends syncs of committed records without waiting; a sync that cannot be sent is superseded by the next."""

    def close(self) -> None:
        """Closes the client."""


@dataclass(frozen=True, slots=True)
class Mm2RecordPlan:
    """
    MM2 records of one transaction.

    Attributes:
        records: Records to write into the transaction.
        mirrored: Mirrored records, by partition.
        syncs: Offset syncs, for either destination.
        permitted: The transaction.
        quiet: The transaction was begun for pending MM2 records only.
        hold: Its offset syncs are deferred.
        now: Time of the plan, monotonic seconds.
    """

    records: Sequence[MetadataRecord]
    mirrored: Sequence[MirroredRanges]
    syncs: Sequence[OffsetSync]
    checkpoints: PlannedCheckpoints | None
    permitted: CommitPermit
    quiet: bool
    hold: bool
    now: float


class Mm2Records:
    """
    Tracks the offset syncs and checkpoints that a lane writes.

    Args:
        sink: Receives offset syncs with ``offset_syncs: source``.
        partitions: Approximate number of partitions of the lane.
    """

    def __init__(self, link: Link, sink: SyncSink | None = None, *, partitions: int = 1) -> None:
        names = link.mm2_names
        self._place = link.offset_syncs
        self._syncs_topic = names.offset_syncs(link.source)
        self._sink = sink
        self._checkpoints_topic = names.checkpoints(link.source)
        self._syncs = OffsetSyncs()
        # where both clusters write one topic name, one link's map cannot tell the resume offset: Java's client, which
        # reads nothing else, would skip records that were written on the target first
        self._checkpoints = Checkpoints(partitions) if link.groups and not link.guard else None
        self._quiet_since: float | None = None
        self._quiet = False
        self._pause = _CHECKPOINT_SECONDS
        self._synced_at = float("-inf")

    def forget(self) -> None:
        """Forgets uncommitted state when the lane recovers."""
        self._syncs.forget()
        if self._checkpoints is not None:
            self._checkpoints.forget()
        self._quiet_since = None
        self._quiet = False
        self._pause = _CHECKPOINT_SECONDS

    def release(self, sources: Collection[SourcePartition]) -> None:
        """Forgets partitions that another lane gets."""
        self._syncs.release(sources)
        if self._checkpoints is not None:
            self._checkpoints.release(sources)

    def due(self, now: float) -> bool:
        """
        Returns whether an idle lane should begin a transaction for pending records.

        Args:
            now: Monotonic seconds.
        """
        ready = self._checkpoints is not None and self._checkpoints.ready
        if not ready and not self._syncs.tails:
            return False
        if self._quiet_since is None:
            self._quiet_since = now
        quiet = now - self._quiet_since
        self._quiet = (ready and quiet >= self._pause) or (bool(self._syncs.tails) and quiet >= TAIL_SECONDS)
        return self._quiet

    @property
    def follows(self) -> bool:
        """Returns whether the lane writes checkpoints."""
        return self._checkpoints is not None

    @property
    def readers(self) -> ReadersTopics:
        """The topics that are written within the data's transaction."""
        return ReadersTopics(
            self._checkpoints_topic if self.follows else "",
            self._syncs_topic if self._place == "target" else "",
        )

    @property
    def topics(self) -> set[str]:
        """Source topics whose ids must be compared before `plan`, besides those of the transaction's data."""
        return set() if self._checkpoints is None else self._checkpoints.topics

    def update(
        self, offsets: Iterable[GroupOffset], positions: Mapping[SourcePartition, Position]
    ) -> tuple[GroupOffset, ...]:
        """
        Records the source offsets of groups, as reported by the driver.

        Args:
            offsets: As reported.
            positions: Committed positions.

        Returns:
            Results of earlier offsets: committed, or (without a target offset) unknown to this lane.
        """
        if self._checkpoints is None:
            return ()
        if self._checkpoints.update(offsets, positions):
            self._pause = _CHECKPOINT_SECONDS
        return self._checkpoints.take_answers()

    def plan(
        self, permitted: CommitPermit, positions: Mapping[SourcePartition, Position], ids: _Ids, now: float
    ) -> Mm2RecordPlan:
        """
        Returns the MM2 records of a transaction; changes nothing.

        Args:
            positions: As committed before it.
            ids: Source and target topic ids, requested after the last fetch, of the transaction's topics and of
                `topics`.
            now: Monotonic seconds.
        """
        chunks = () if self._place == "off" else permitted.chunks
        mirrored = [MirroredRanges(account.source, account.ranges) for account in chunks]
        records_in_it = sum(count for item in mirrored for _, _, count in item.ranges)
        # a large transaction means that the lane lags; one more round trip does not matter there
        hold = not self._quiet and records_in_it < _LARGE and now - self._synced_at < TAIL_SECONDS
        syncs = self._syncs.due(mirrored, quiet=self._quiet, hold=hold)
        records = [
            MetadataRecord(self._syncs_topic, 0, sync.key(), sync.value())
            for sync in (syncs if self._place == "target" else ())
        ]
        checkpoints = None
        if self._checkpoints is not None:
            checkpoints = self._checkpoints.plan(
                permitted.positions, permitted.chunks, positions, lambda position: _sound(position, ids)
            )
            records += [
                MetadataRecord(self._checkpoints_topic, 0, one.key(), one.value())
                for one in checkpoints.checkpoints
            ]
        return Mm2RecordPlan(records, mirrored, syncs, checkpoints, permitted, self._quiet, hold, now)

    def committed(self, plan: Mm2RecordPlan) -> None:
        """Records that the transaction of ``plan`` is committed."""
        self._syncs.committed(plan.mirrored, quiet=plan.quiet, hold=plan.hold)
        if plan.syncs:
            self._synced_at = plan.now
        if self._checkpoints is not None and plan.checkpoints is not None:
            self._checkpoints.committed(plan.checkpoints, plan.permitted.positions, plan.permitted.chunks)
        nothing_written = plan.quiet and not plan.records and not plan.syncs
        self._pause = min(2 * self._pause, _MOST_SECONDS) if nothing_written else _CHECKPOINT_SECONDS
        self._quiet_since = None
        self._quiet = False
        if self._sink is not None and plan.syncs:
            self._sink.send(plan.syncs)

    def aborted(self) -> None:
        """Records that the transaction was aborted; its pending records stay pending."""
        self._quiet = False


def _sound(position: Position, ids: _Ids) -> bool:
    """Returns whether the ids of a position's topics were requested and still match (EO-5)."""
    on_source, on_target = ids
    return (
        on_source.get(position.topic) == position.topic_id
        and on_target.get(position.target_topic) == position.target_topic_id
    )
