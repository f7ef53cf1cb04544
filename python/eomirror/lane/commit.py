"""
Grants the permit to commit, and builds the state records of a transaction. Pure.

Only `grant` makes a `CommitPermit`, and only after every check that EO-4, EO-5 and EO-7 require.  The runner commits
only with a permit in hand; there is no boolean to forget.

They speculate on what the commit will record (`eomirror.lane.commit.speculative_records`), which saves a round trip.
Each round of a transaction computes all of them again, so only changed records are sent: first against the round
before, then against the permit.  Within a transaction too, the last record of a key wins (EO-3).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from eomirror.errors import TransactionFailedError
from eomirror.plane.protocol import Account, Advance, Flushed, MetadataRecord, ProducerIdentity, Seen, Serving
from eomirror.records.control import Gap
from eomirror.records.offset_map import offset_map_key, offset_map_partition
from eomirror.records.position import AttemptClaim
from eomirror.recovery.resume import copy_cut_error

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.errors import DataLossError
    from eomirror.lane.spec import LaneSpec
    from eomirror.records.names import StateTopics
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = [
    "CommitPermit",
    "CopiesCutError",
    "SpeculativeState",
    "TopicsChangedError",
    "TransactionStamp",
    "behind_gap",
    "claim_of",
    "grant",
    "speculative_records",
    "state_records",
]

_MISSING = object()


class SpeculativeState:
    """
    State records that the open transaction holds so far.

    Attributes:
        stamp: Stamp of the transaction; None before its first flush.
    """

    __slots__ = ("_written", "stamp")

    def __init__(self) -> None:
        self.stamp: TransactionStamp | None = None
        self._written: dict[tuple[str, int, bytes], bytes | None] = {}

    def forget(self) -> None:
        """Starts a new transaction."""
        self.stamp = None
        self._written.clear()

    def changed(self, records: Sequence[MetadataRecord]) -> list[MetadataRecord]:
        """
        Returns those of ``records`` that the transaction does not hold yet, and marks them as written.

        Args:
            records: Each with a key of its own.
        """
        said = self._written
        fresh = [
            one for one in records if said.get((one.topic, one.partition, one.key), _MISSING) != one.value
        ]
        said.update({(one.topic, one.partition, one.key): one.value for one in fresh})
        return fresh


# positions, accounts with ranges for the offset map, accounts with dead letters
_Described = tuple["tuple[Position, ...]", tuple[Account, ...], tuple[Account, ...]]


class TopicsChangedError(TransactionFailedError):
    """A topic of the open transaction no longer has the id that its positions name (EO-5)."""


class CopiesCutError(TransactionFailedError):
    """
    Copies lost records that the target had acknowledged (EO-5); nothing of the open transaction may commit.

    Args:
        errors: One for each topic; the lane stops them all.
    """

    def __init__(self, errors: Sequence[DataLossError]) -> None:
        super().__init__("; ".join(error.message for error in errors))
        self.errors = tuple(errors)


@dataclass(frozen=True, slots=True)
class TransactionStamp:
    """
    Values that all positions of one transaction share.

    Attributes:
        generation: Lane layout.
        run: Run of the mirror.
        epoch: Spark task of the lane.
        attempt: Attempt within the epoch.
        txn: Number of the transaction in this attempt.
        timestamp: Wall clock, ms.
    """

    generation: int
    lane: int
    run: str
    epoch: int
    attempt: int
    identity: ProducerIdentity
    txn: int
    timestamp: int

    @classmethod
    def of(cls, spec: LaneSpec, identity: ProducerIdentity, *, txn: int, timestamp: int) -> TransactionStamp:
        """Returns the stamp of a transaction of this attempt."""
        return cls(
            generation=spec.generation,
            lane=spec.lane,
            run=spec.run,
            epoch=spec.epoch,
            attempt=spec.attempt,
            identity=identity,
            txn=txn,
            timestamp=timestamp,
        )


class CommitPermit:
    """
    Proof of the right to commit one transaction.

    Attributes:
        positions: Positions that the transaction will hold.
        chunks: Accounts with ranges for the offset map.
        dead_letters: Accounts with dead letters.
        gaps: Holes of the source's log that the transaction skips, as the user accepts (EO-6).
    """

    __slots__ = ("chunks", "dead_letters", "gaps", "positions")
    _made_by_grant: ClassVar[object] = object()

    def __init__(self, described: _Described, gaps: tuple[Gap, ...], *, key: object) -> None:
        if key is not CommitPermit._made_by_grant:
            raise TypeError("only eomirror.lane.commit.grant makes a CommitPermit")
        self.positions, self.chunks, self.dead_letters = described
        self.gaps = gaps


def grant(
    flushed: Flushed,
    current: Mapping[SourcePartition, Position],
    *,
    source_ids: Mapping[str, str | None],
    target_ids: Mapping[str, str | None],
    stamp: TransactionStamp,
) -> CommitPermit:
    """
    Checks that a transaction may be committed, and returns the permit with what it will record.

    Args:
        flushed: The transaction; all of its data is acknowledged.
        current: Last committed positions.
        source_ids: Topic ids on the source, requested after the last fetch of this transaction.
        target_ids: Topic ids on the target, requested at the same time.
        stamp: Values that its positions share.

    Raises:
        TopicsChangedError: A topic was replaced (EO-5); the transaction must not commit.
        CopiesCutError: A copy ends before records that were committed to it (EO-5); the transaction must not commit.
        TransactionFailedError: A position would not grow (EO-4), which is a bug or a broken client. Or no marker
            follows the last record of a copy (EO-5); the next attempt finds out why.
    """
    for source in flushed.advances:
        _check_identity(current[source], source_ids, target_ids)
    _check_copies(flushed, current)
    gaps = tuple(
        _hole(source, hole, stamp)
        for source, advance in flushed.advances.items()
        for hole in advance.seen.holes
    )
    return CommitPermit(_described(flushed, current, stamp), gaps, key=CommitPermit._made_by_grant)  # noqa: SLF001  the one maker


def speculative_records(
    speculated: Flushed,
    current: Mapping[SourcePartition, Position],
    stamp: TransactionStamp,
    topics: StateTopics,
) -> Sequence[MetadataRecord]:
    """
    Returns the records that `state_records` will return if the speculation is right.

    They are written before the data is acknowledged, which saves a round trip per transaction.  They permit nothing:
    the runner compares them with the permit's records byte for byte, and writes those that differ.  The last record of
    a key wins, within a transaction too (EO-3).
    """
    return _records(_described(speculated, current, stamp), topics)


def state_records(permit: CommitPermit, topics: StateTopics) -> Sequence[MetadataRecord]:
    """Returns the position, offset-map and dead-letter records of a permitted transaction."""
    return _records((permit.positions, permit.chunks, permit.dead_letters), topics)


def claim_of(stamp: TransactionStamp, serving: Serving, *, host: str, pid: int) -> AttemptClaim:
    """Returns the claim of an attempt; it is committed before the first data, so that an audit knows the producer."""
    return AttemptClaim(
        lane=stamp.lane,
        generation=stamp.generation,
        run=stamp.run,
        epoch=stamp.epoch,
        attempt=stamp.attempt,
        producer_id=stamp.identity.producer_id,
        producer_epoch=stamp.identity.producer_epoch,
        host=host,
        pid=pid,
        timestamp=stamp.timestamp,
        plane=serving.plane,
        plane_reason=serving.reason,
        transaction_protocol=serving.protocol,
    )


def behind_gap(before: Position, gap: Gap, stamp: TransactionStamp) -> Position:
    """Returns the position after an accepted gap; its leader epoch belonged to a record that no longer exists."""
    writer_id, writer_epoch = before.target_writer or (None, None)
    return before.moved_to(
        gap.end,
        target_producer_id=writer_id,
        target_producer_epoch=writer_epoch,
        prev=gap.start,
        generation=stamp.generation,
        lane=stamp.lane,
        run=stamp.run,
        epoch=stamp.epoch,
        attempt=stamp.attempt,
        producer_id=stamp.identity.producer_id,
        producer_epoch=stamp.identity.producer_epoch,
        timestamp=gap.timestamp,
    )


def _hole(source: SourcePartition, hole: tuple[int, int], stamp: TransactionStamp) -> Gap:
    start, end = hole
    return Gap(
        topic=source.topic,
        partition=source.partition,
        start=start,
        end=end,
        reason="no batch of the source's log has these offsets",
        run=stamp.run,
        timestamp=stamp.timestamp,
    )


def _described(
    flushed: Flushed, current: Mapping[SourcePartition, Position], stamp: TransactionStamp
) -> _Described:
    accounts = {account.source: account for account in flushed.accounts}
    positions = []
    for source, advance in flushed.advances.items():
        before = current[source]
        account = accounts.get(source)
        if advance.offset <= before.offset or (
            account is not None and account.first_source_offset < before.offset
        ):
            raise TransactionFailedError(
                f"EO-4: {source} would go from {before.offset} to {advance.offset}"
                + (f" with records from {account.first_source_offset}" if account is not None else "")
            )
        positions.append(_next_position(before, advance, account, stamp))
    missing = accounts.keys() - flushed.advances.keys()
    if missing:
        raise TransactionFailedError(f"EO-1: records of {sorted(missing)} without a position")
    chunks = tuple(account for account in flushed.accounts if account.offset_map)
    return tuple(positions), chunks, tuple(account for account in flushed.accounts if account.dead_letters)


def _records(described: _Described, topics: StateTopics) -> list[MetadataRecord]:
    positions, chunks, dead_letters = described
    records = [
        MetadataRecord(
            topics.positions, position.lane % topics.positions_partitions, position.key(), position.value()
        )
        for position in positions
    ]
    ids = {position.source: position.topic_id for position in positions}
    records += [
        MetadataRecord(
            topics.offset_map,
            offset_map_partition(account.source, topics.offset_map_partitions),
            offset_map_key(account.source, ids[account.source], account.first_source_offset),
            account.offset_map,
        )
        for account in chunks
    ]
    said = {position.source: position for position in positions}
    for account in dead_letters:
        position = said[account.source]
        records += [
            MetadataRecord(
                topics.dead_letter,
                0,
                letter.record_key(),
                letter.record_value(
                    topic_id=position.topic_id, run=position.run, timestamp=position.timestamp
                ),
            )
            for letter in account.dead_letters
        ]
    return records


def _check_identity(
    position: Position, source_ids: Mapping[str, str | None], target_ids: Mapping[str, str | None]
) -> None:
    found = source_ids.get(position.topic)
    if found != position.topic_id:
        raise TopicsChangedError(
            f"EO-5: source topic {position.topic} had id {position.topic_id} and now has {found}"
        )
    found = target_ids.get(position.target_topic)
    if found != position.target_topic_id:
        raise TopicsChangedError(
            f"EO-5: target topic {position.target_topic} had id {position.target_topic_id} and now has {found}"
        )


def _check_copies(flushed: Flushed, current: Mapping[SourcePartition, Position]) -> None:
    """Compares the target offset of each partition's first record with the last committed one (EO-5)."""
    cut: dict[str, DataLossError] = {}
    in_doubt = ""
    for account in flushed.accounts:
        if account.placed:
            in_doubt = _check_placed(account, current[account.source], cut) or in_doubt
            continue
        before, first = current.get(account.source), account.first_target_offset
        if before is None or first is None or before.target_offset is None:
            continue
        last = before.target_offset
        if first <= last:
            cut.setdefault(before.topic, copy_cut_error(before, first))
        elif first == last + 1 and before.target_writer is not None:
            in_doubt = f"{account.target_topic}-{account.target_partition}@{last}"
    if cut:
        raise CopiesCutError(tuple(cut.values()))
    if in_doubt:
        # A marker follows the last record of a lane's transaction.  Either a broker left the marker out, or the
        # record is lost and the marker took its offset.  The next attempt finds out which
        # (`eomirror.recovery.resolve_hanging`), because the records of this one follow.
        raise TransactionFailedError(f"EO-5: no marker follows the record {in_doubt} of the target")


def _check_placed(account: Account, before: Position, cut: dict[str, DataLossError]) -> str:
    """Does the same for each target partition of records placed by key; returns one in doubt, if any."""
    in_doubt = ""
    known = {one.target_partition: one for one in before.by_copy()}
    for partition, first, _ in account.placed:
        one = known.get(partition)
        if one is None or one.target_offset is None:
            continue
        if first <= one.target_offset:
            cut.setdefault(before.topic, copy_cut_error(one, first))
        elif first == one.target_offset + 1:
            in_doubt = f"{account.target_topic}-{partition}@{one.target_offset}"
    return in_doubt


def _next_position(
    before: Position, advance: Advance, account: Account | None, stamp: TransactionStamp
) -> Position:
    leader_epoch, epoch_offset = advance.leader_epoch, advance.epoch_offset
    if leader_epoch is None and before.leader_epoch is not None and account is None:
        # without records the epoch is unknown: the epoch of an earlier offset still holds there,
        # and without it a log that was restored from an older one and then extended would go unnoticed (fault F19)
        leader_epoch = before.leader_epoch
        epoch_offset = before.offset if before.epoch_offset is None else before.epoch_offset
    # an advance without records keeps the last record of the position before it
    written = account is not None and account.target_offset is not None
    writer_id, writer_epoch = (None, None) if written else (before.target_writer or (None, None))
    return replace(
        before,
        target_producer_id=writer_id,
        target_producer_epoch=writer_epoch,
        offset=advance.offset,
        prev=before.offset,
        leader_epoch=leader_epoch,
        epoch_offset=epoch_offset,
        target_partition=account.target_partition
        if account is not None and account.placed
        else before.target_partition,
        target_offset=before.target_offset
        if account is None or account.target_offset is None
        else account.target_offset,
        generation=stamp.generation,
        lane=stamp.lane,
        run=stamp.run,
        epoch=stamp.epoch,
        attempt=stamp.attempt,
        producer_id=stamp.identity.producer_id,
        producer_epoch=stamp.identity.producer_epoch,
        txn=stamp.txn,
        records=account.records if account else 0,
        bytes=account.bytes if account else 0,
        dropped=dict(account.dropped) if account else {},
        copied_headers=account.copied_headers if account else 0,
        changed=dict(account.changed) if account else {},
        timestamp=stamp.timestamp,
        source_timestamp=before.source_timestamp
        if account is None or account.source_timestamp is None
        else account.source_timestamp,
        total_records=before.total_records + (account.records if account else 0),
        total_copied_headers=before.total_copied_headers + (account.copied_headers if account else 0),
        total_dropped=_sum(before.total_dropped, account.dropped) if account else before.total_dropped,
        total_changed=_sum(before.total_changed, account.changed) if account else before.total_changed,
        digest=account.digest if account else "",
        **_history(before, advance.seen),
        batch_committed=False,
        keyed={**before.keyed, **{str(number): last for number, _, last in account.placed}}
        if account is not None and account.placed
        else before.keyed,
        extra={},
    )


def _sum(before: Mapping[str, int], more: Mapping[str, int]) -> Mapping[str, int]:
    """Returns the sum of two counts by reason; ``before`` itself if nothing is added, as in most transactions."""
    return {**before, **{why: before.get(why, 0) + count for why, count in more.items()}} if more else before


def _history(before: Position, seen: Seen) -> dict[str, Any]:
    """Returns what the next position records of the log before it; a value that the plane has not seen stays."""
    told: dict[str, Any] = {}
    if seen.batch is not None or seen.record is not None:
        batch, record = seen.batch, seen.record
        told = {
            "batch_offset": None if batch is None else batch.offset,
            "batch_crc": None if batch is None else batch.crc,
            "batch_timestamp": None if batch is None else batch.timestamp,
            "record_offset": None if record is None else record.offset,
            "record_digest": "" if record is None else record.before + record.after,
        }
    if seen.missing is not None:
        told["missing"] = seen.missing
    return {**told, "compacted": before.compacted or seen.compacted}
