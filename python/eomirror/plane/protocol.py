"""
The plane contract: what a lane requires of the part that moves bytes. Pure.

Two planes implement it: the client plane over confluent-kafka, and the native plane.  The runner calls these methods
from one thread, in the order of `eomirror.lane.machine`.  A plane raises `LaneError`s and `MirrorError`s only; any
other exception is a bug.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self

from eomirror.errors import RecordRefusedError
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    import builtins
    from collections.abc import Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror._native import PartitionAccount
    from eomirror.records.dead_letter import DeadLetter

__all__ = [
    "SLICE_SECONDS",
    "Account",
    "Advance",
    "BatchMark",
    "CommitOutcome",
    "Flushed",
    "History",
    "Holes",
    "MetadataRecord",
    "Plane",
    "ProducerIdentity",
    "Pumped",
    "RangeRefusedError",
    "RecordMark",
    "RefusedRecord",
    "Rejection",
    "RejectionReason",
    "Seen",
    "SendPlan",
    "Serving",
    "SkippedRecord",
    "Start",
    "is_compacting",
    "is_near",
]

#: Longest wait of a lane that nothing ends but records: bounds its reaction to a stop.
SLICE_SECONDS = 0.1


def is_compacting(policy: str | None) -> bool:
    """Returns whether a ``cleanup.policy`` lets the log cleaner rewrite batches and remove records."""
    return policy is not None and "compact" in policy


# maximum number of offsets that are read again to compare a record
_NEAR_OFFSETS = 10_000


def is_near(record: int, following: int) -> bool:
    """
    Returns whether the last mirrored record is close enough to be fetched again for a comparison.

    Millions of records that the loop guard dropped may lie between it and the position: the client plane would read
    them again at each start and after each lost connection.
    """
    return following - record <= _NEAR_OFFSETS


class RejectionReason(enum.StrEnum):
    """
    Reason of a rejection; the value is the reason in a dead letter.

    SIZE: its batch is larger than the topic's max.message.bytes.
    CLIENT_SIZE: it is larger than this client may send.
    SEGMENT: it is larger than a segment of the topic.
    TIMESTAMP: outside of the topic's message.timestamp.before/after.max.ms.
    INVALID: the topic's rules refuse it, such as a record without a key in a compacted topic.
    DEAD_LETTER: the refused record is a dead letter, not a record of the source.
    """

    SIZE = "size"
    CLIENT_SIZE = "client-size"
    SEGMENT = "segment"
    TIMESTAMP = "timestamp"
    INVALID = "invalid"
    DEAD_LETTER = "letter"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRecord:
    """
    A single refused record.

    Attributes:
        offset: Source offset.
        timestamp: ms; -1 if it has none.
        keyless: Its key is null.
        batch_bytes: Maximum size of a batch of it alone, uncompressed.
    """

    offset: int
    timestamp: int
    keyless: bool
    batch_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejection:
    """
    A rejection of the target.

    Attributes:
        target_topic: Topic that refused.
        words: The broker's message.
        begin: Offset of the first record in question.
        end: Offset after the last one.
        record: The record, if only one was in question.
    """

    source: SourcePartition
    target_topic: str
    reason: RejectionReason
    words: str
    begin: int
    end: int
    record: RefusedRecord | None = None


class RangeRefusedError(RecordRefusedError):
    """The target refuses records of a partition; never shown to users: `RejectionPolicy` makes the final error."""

    def __init__(self, rejection: Rejection) -> None:
        super().__init__(
            f"{rejection.source}: the target refuses a record: {rejection.words}",
            topic=rejection.source.topic,
        )
        self.rejection = rejection


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """Producer id and epoch from InitProducerId or, with transaction protocol V2, from the previous EndTxn."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Serving:
    """
    The plane that moves a lane's bytes, and what holds it back.

    Attributes:
        plane: ``native`` or ``client``; empty before the first producer.
        reason: Why it is not the native one; empty if it is.
        throttled: Seconds for which brokers' quotas have throttled this lane (KIP-219); None if unknown.
        delayed: Source partitions that cannot be read at present, and why; empty if unknown.
        protocol: Transaction protocol on the target, ``V1`` or ``V2``; empty if unknown, as on the client plane.
    """

    plane: str = ""
    reason: str = ""
    throttled: float | None = None
    delayed: str = ""
    protocol: str = ""


class BatchMark(NamedTuple):
    """
    Identifies a batch of a log among all that could be at its offset.

    Attributes:
        offset: Base offset.
        crc: Checksum.
        timestamp: Largest timestamp, ms.
    """

    offset: int
    crc: int
    timestamp: int


class RecordMark(NamedTuple):
    """
    Identifies a record of a log among all that could be at its offset.

    Attributes:
        before: Chained digest before the record, hexadecimal.
        after: Chained digest after the record.
    """

    offset: int
    before: str
    after: str


class Holes(enum.StrEnum):
    """
    SendPlan of offsets that no batch of the source's log has (EO-6).

    COUNT: count them; the log is or was compacted, or may be.
    NAME: report the ranges and continue after them; the log was never compacted, and the user accepts gaps.
    STOP: stop the topic before the first of them.
    """

    COUNT = "count"
    NAME = "name"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class History:
    """
    Known state of a source's log before the position.

    Attributes:
        batch: Batch before the position; compared with the log unless ``holes`` is COUNT, because the log cleaner may
            rewrite a batch.
        record: Last mirrored record, if there is no ``batch``; compared in the same way.
        holes: SendPlan of holes from the position on.
        missing: Number of offsets without a batch so far.
    """

    batch: BatchMark | None = None
    record: RecordMark | None = None
    holes: Holes = Holes.COUNT
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """
    Observed state of a source's log before an offset.

    Attributes:
        batch: Batch before it; None if unknown.
        record: Last mirrored record; None if unknown, or if ``batch`` is known.
        missing: Number of offsets without a batch, as in `History.missing`; None if unknown.
        compacted: Whether a batch has shown that the log was compacted.
        holes: Ranges of offsets without a batch since the last commit, with `Holes.NAME`.
    """

    batch: BatchMark | None = None
    record: RecordMark | None = None
    missing: int | None = None
    compacted: bool = False
    holes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """
    Fetch offset of a source partition.

    Attributes:
        offset: First offset to fetch.
        leader_epoch: Of the record before it, to detect a diverging log (KIP-320); None if unknown.
        target_topic: Target of its records; the partition number stays, unless ``target_partitions`` is given.
        epoch_offset: Offset of ``leader_epoch``, if before ``offset``: fetching begins there, with only markers and
            aborted records in between.
        topic_id: Id of the source topic (EO-5); empty if unknown.
        target_topic_id: Id of the target topic; empty if unknown.
        history: Known state of the log before ``offset``.
        target_partitions: Number of partitions of the target topic, if its records are placed by key; None if they
            keep their partition.
    """

    source: SourcePartition
    offset: int
    leader_epoch: int | None
    target_topic: str
    epoch_offset: int | None = None
    topic_id: str = ""
    target_topic_id: str = ""
    history: History = field(default_factory=History)
    target_partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Pumped:
    """
    Result of one call of `Plane.pump`.

    Attributes:
        records: Records produced into the open transaction.
        bytes: Their keys, values and headers; on the native plane, their batches as sent.
        drained: No records are available: the sources have none, or their next answer is in flight.
        enough: The transaction has reached the size that the target takes in good time.
    """

    records: int
    bytes: int
    drained: bool
    enough: bool = False


@dataclass(frozen=True, slots=True)
class Advance:
    """
    Next offset to fetch of a partition, past markers, aborted ranges and dropped records (EO-4).

    Attributes:
        leader_epoch: Of the record before it; None if unknown.
        epoch_offset: Offset of ``leader_epoch``, if it is an earlier one.
        seen: Observed state of the log before it.
    """

    offset: int
    leader_epoch: int | None
    epoch_offset: int | None = None
    seen: Seen = field(default_factory=Seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """
    EO-7 for one source partition of the open transaction: fetched = acknowledged + dropped.

    Reason for its size: one field for each field of the core's account, which it copies.

    Attributes:
        records: Acknowledged records.
        bytes: Their keys, values and headers; on the native plane, their batches as sent: it never opens a batch that
            it passes on.
        dropped: Number of records dropped on purpose, by reason.
        copied_headers: Of ``records``, those that carry the provenance header of another record.
        changed: Of ``records``, those that rules of the transform changed, by rule.
        target_offset: Of the last record there; None if none was written.
        source_timestamp: Of the last record, ms; on the native plane, the largest; None if none was written.
        first_source_offset: Of the first fetched record.
        offset_map: Encoded ranges for the offset map; empty if none was written.
        digest: Chained xxh3-64 over the records, hexadecimal; empty on the native plane.
        ranges: Content of ``offset_map``: source offset, target offset, count; empty in a speculation.
        dead_letters: For records that were skipped because the target refuses them.
        first_target_offset: Of the first acknowledged record there; None if none was written.
        placed: Target partition, first and last target offset of each partition with records, if they are placed by
            key; then ``target_partition`` and the offsets beside it are those of the last record's partition, and
            there is no ``offset_map``.
    """

    source: SourcePartition
    target_topic: str
    target_partition: int
    records: int
    bytes: int
    dropped: Mapping[str, int]
    target_offset: int | None
    source_timestamp: int | None
    first_source_offset: int
    offset_map: builtins.bytes
    digest: str
    ranges: Sequence[tuple[int, int, int]] = ()
    copied_headers: int = 0
    changed: Mapping[str, int] = field(default_factory=dict)
    dead_letters: tuple[DeadLetter, ...] = ()
    first_target_offset: int | None = None
    placed: Sequence[tuple[int, int, int]] = ()

    @classmethod
    def of(cls, account: PartitionAccount, ranges: Sequence[tuple[int, int, int]] = ()) -> Self:
        """Returns an account of the extension as a value."""
        acknowledged = account.acked > 0
        return cls(
            source=SourcePartition(account.source_topic, account.source_partition),
            target_topic=account.target_topic,
            target_partition=account.target_partition,
            records=account.acked,
            bytes=account.bytes,
            dropped=account.dropped,
            target_offset=account.last_target_offset if acknowledged else None,
            source_timestamp=account.timestamp if acknowledged else None,
            first_source_offset=account.first_source_offset,
            offset_map=account.offset_map,
            digest=account.digest,
            ranges=ranges,
            copied_headers=account.copied_headers,
            changed=account.changed,
            first_target_offset=account.first_target_offset if acknowledged else None,
            placed=account.placed,
        )


@dataclass(frozen=True, slots=True)
class Flushed:
    """
    A transaction whose data is all acknowledged.

    Attributes:
        accounts: One per source partition with fetched records.
        advances: Next offset to fetch of every partition that moved, with or without records.
    """

    accounts: tuple[Account, ...]
    advances: Mapping[SourcePartition, Advance] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A state record that goes into the data's transaction; without a value it is a tombstone."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """
    Reason for skipping a record.

    Attributes:
        reason: Kind of rejection (`eomirror.plane.protocol.RejectionReason`).
        words: The broker's message.
        limit: The setting that it violates; empty if unknown.
    """

    reason: str
    words: str
    limit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SendPlan:
    """
    Plan for partitions with refused records (`eomirror.lane.poison_records`).

    Attributes:
        ranges: These partitions are sent in ranges, each acknowledged before the next: ``(end, records)``, up to that
            offset this many records at a time, ordered by end.
        left_out: Offsets to skip, and why; only of partitions in ``ranges``.
        batch_bytes: Maximum batch size from the next `Plane.open` on; None for the client's own.
        whole_dead_letters: Whether dead letters may hold the records themselves.
    """

    ranges: Mapping[SourcePartition, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    left_out: Mapping[SourcePartition, Mapping[int, SkippedRecord]] = field(default_factory=dict)
    batch_bytes: int | None = None
    whole_dead_letters: bool = True

    def range_at(self, source: SourcePartition, offset: int) -> tuple[int, int]:
        """Returns the latest end of the range that begins at an offset, and its maximum number of records."""
        spans = self.ranges[source]
        return next((span for span in spans if offset < span[0]), (offset + 1, spans[-1][1]))


class CommitOutcome(enum.Enum):
    """
    Outcome of a successful commit.

    CLEAN: one EndTxn was sent and answered; no copy of it can be in flight.
    SUSPECT: committed, but requests were repeated or connections broke (EO-9), or partitions have new leaders and
        markers may be missing (docs/adr/0012).
    """

    CLEAN = "clean"
    SUSPECT = "suspect"


class Plane(Protocol):
    """Moves bytes for one lane.  Not thread-safe."""

    def serving(self) -> Serving:
        """Returns which plane this is, why, and what holds it back."""

    def open(self) -> ProducerIdentity:
        """
        Replaces the producer, and runs InitProducerId with the new one.

        Raises:
            LaneError: As the coordinator answers.
            MirrorError: The target refuses us: ACLs, credentials, settings.
        """

    def start(self, starts: Sequence[Start]) -> None:
        """Begins to fetch these partitions, besides those already fetched."""

    def stop(self, sources: Collection[SourcePartition]) -> None:
        """
        Drops those of these partitions that are fetched, with all that was; the others are not disturbed.

        No transaction is open, and no range is held back (`set_send_plan`).  `start` begins them anew.
        """

    def restart(self) -> None:
        """Forgets everything fetched; `start` sets the new fetch offsets."""

    def set_send_plan(self, send_plan: SendPlan) -> None:
        """Sets how to send records from the next transaction on; the caller aborts an open one."""

    def await_records(self, seconds: float, other: int | None = None) -> bool:
        """
        Waits for records to mirror; returns True if there are any.  Needs no transaction.

        Args:
            seconds: Maximum time.
            other: Descriptor that the caller reads next: the wait ends once it can be read.  A plane that cannot watch
                it waits for `SLICE_SECONDS` at most.
        """

    def advances(self) -> Mapping[SourcePartition, Advance]:
        """Returns partitions whose next offset has moved since the last commit, with or without records."""

    def log_ends(self) -> Mapping[SourcePartition, int]:
        """
        Returns last stable offsets of the source as fetches have shown them, for progress; may be incomplete.

        The result is never changed afterwards: it is the object that the last call returned only if all are the same.
        """

    def pinned(self) -> AbstractSet[str]:
        """
        Returns source topics of the open transaction that are fetched and produced by topic id (EO-5).

        Before `flush` it is an expectation, after it a fact; see `eomirror.lane.transaction`.
        """

    def begin(self) -> ProducerIdentity:
        """Begins a transaction; returns the identity that its records carry."""

    def pump(self, seconds: float) -> Pumped:
        """Fetches, decides and produces the available records, waiting at most ``seconds`` for them."""

    def speculate(self) -> Flushed | None:
        """
        Returns the expected result of `flush` if no other producer writes to the target partitions; None if unknown.

        Called after the last `pump` of a transaction.  It is only compared with the result of `flush`, never trusted.
        """

    def flush(self, seconds: float) -> Flushed:
        """
        Waits for every acknowledgement, and balances the account (EO-7).

        Raises:
            TransactionFailedError: A record was not acknowledged in time, or the account does not balance.
            RangeRefusedError: The target refuses a record (`eomirror.lane.poison_records`); `pump` raises it too, and
                so does `commit` for a dead letter.
        """

    def has_more(self) -> bool:
        """
        Returns whether more records of the open transaction's partitions, and of no others, are available; never waits.

        Called for a flushed transaction: it may be pumped again, and is then flushed once more.
        """

    def write(self, records: Sequence[MetadataRecord]) -> None:
        """Produces state records into the open transaction."""

    def commit(self) -> CommitOutcome:
        """
        Commits.  The runner calls this only with a `CommitPermit` in hand.

        Raises:
            FencedError: A newer producer has our id.
            TransactionFailedError: It is certainly not committed.
            OutcomeUnknownError: It may be committed (EO-8).
        """

    def abort(self) -> None:
        """Aborts the open transaction, best effort. The producer must not be reused."""

    def close(self) -> None:
        """Closes all clients."""
