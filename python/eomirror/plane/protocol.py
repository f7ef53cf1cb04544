"""
The plane contract: what a lane asks of the part that moves bytes. Pure.

Two planes serve it (design.md): the client plane over confluent-kafka, and the native plane.  The pump calls
these methods from one thread, in the order that `eomirror.lane.machine` gives.  A plane raises `LaneError`s
and `MirrorError`s only; whatever else comes out of it is a bug.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from eomirror.errors import RecordRefusedError

if TYPE_CHECKING:
    import builtins
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.records.dead_letter import DeadLetter
    from eomirror.types import SourcePartition

__all__ = [
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
    "Refusal",
    "RefusalReason",
    "RefusedRecord",
    "Seen",
    "Serving",
    "SkippedRecord",
    "Start",
    "Treatment",
    "is_compacting",
    "is_near",
]


def is_compacting(policy: str | None) -> bool:
    """Returns whether a ``cleanup.policy`` has the log cleaner write batches anew and leave out records."""
    return policy is not None and "compact" in policy


# so many offsets are read again at the most to compare a record
_NEAR_OFFSETS = 10_000


def is_near(record: int, following: int) -> bool:
    """
    Tells whether the last mirrored record is close enough to be fetched again for a comparison.

    Records that the loop guard dropped may lie between it and the position, millions of them: the client plane would
    read them again at each start and behind each lost connection.
    """
    return following - record <= _NEAR_OFFSETS


class RefusalReason(enum.StrEnum):
    """
    For what a record is refused; the value is the reason in a dead letter.

    SIZE: its batch is larger than the topic's max.message.bytes.
    CLIENT_SIZE: it is larger than this client may send.
    SEGMENT: it is larger than a segment of the topic.
    TIMESTAMP: outside of the topic's message.timestamp.before/after.max.ms.
    INVALID: the topic's rules refuse it, such as a compacted topic a record without a key.
    LETTER: not a record of the source, but the dead letter of one.
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
    The one record that is refused.

    Attributes:
        offset: Source offset.
        timestamp: ms; -1 when it has none.
        keyless: Its key is null.
        batch_bytes: Most that a batch of it alone can have, uncompressed.
    """

    offset: int
    timestamp: int
    keyless: bool
    batch_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """
    What the target refused.

    Attributes:
        target_topic: Topic that refused.
        ground: For what.
        words: The target's own words.
        begin: Offset of the first record in question.
        end: Offset behind the last one.
        record: The one record, where only one was in question.
    """

    source: SourcePartition
    target_topic: str
    reason: RefusalReason
    words: str
    begin: int
    end: int
    record: RefusedRecord | None = None


class RangeRefusedError(RecordRefusedError):
    """The target refuses records of a partition; never shown as it is, for `RefusalPolicy` decides what to say."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(
            f"{refusal.source}: the target refuses a record: {refusal.words}", topic=refusal.source.topic
        )
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class ProducerIdentity:
    """What InitProducerId gave us, or, under transaction protocol V2, the end of the transaction before."""

    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class Serving:
    """
    Which plane moves a lane's bytes.

    Attributes:
        plane: ``native`` or ``client``; empty before the first `Plane.open`.
        reason: Why it is not the native one; empty when it is.
    """

    plane: str = ""
    reason: str = ""


class BatchMark(NamedTuple):
    """
    Tells a batch of a log from every other that could stand at its offset.

    Attributes:
        offset: Its base offset.
        crc: Its checksum.
        timestamp: Its largest timestamp, ms.
    """

    offset: int
    crc: int
    timestamp: int


class RecordMark(NamedTuple):
    """
    Tells a record of a log from every other that could stand at its offset.

    Attributes:
        offset: Its offset.
        before: The chained digest before it, hexadecimal.
        after: The chained digest behind it.
    """

    offset: int
    before: str
    after: str


class Holes(enum.StrEnum):
    """
    How a plane treats offsets that no batch of the source's log has (EO-6).

    COUNT: counts them; the log is or was compacted, or may be.
    NAME: names the ranges and goes on behind them; the log was never compacted, and the user accepts gaps.
    STOP: stops the topic before the first of them.
    """

    COUNT = "count"
    NAME = "name"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class History:
    """
    What is known of a source's log before the position.

    Attributes:
        batch: The batch before the position; compared with the log where ``holes`` is not COUNT, because the log
            cleaner may write a batch anew.
        record: The last mirrored record, where there is no ``batch``; compared likewise.
        holes: How to treat holes from the position on.
        missing: Offsets that no batch had so far.
    """

    batch: BatchMark | None = None
    record: RecordMark | None = None
    holes: Holes = Holes.COUNT
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """
    What a plane has seen of a source's log before an offset.

    Attributes:
        batch: The batch before it; None when not known.
        record: The last mirrored record; None when not known, or where ``batch`` is.
        missing: Offsets that no batch had, as `History.missing` counts them; None when not known.
        compacted: Whether a batch has shown that the log was compacted.
        holes: Ranges of offsets that no batch has, since the last commit, with `Holes.NAME`.
    """

    batch: BatchMark | None = None
    record: RecordMark | None = None
    missing: int | None = None
    compacted: bool = False
    holes: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Start:
    """
    Where to begin to fetch a source partition.

    Attributes:
        offset: First offset to fetch.
        leader_epoch: Of the record before it, so that a diverging log is noticed (KIP-320); None when unknown.
        target_topic: Where its records go; the partition number stays.
        epoch_offset: Where ``leader_epoch`` is known, if that is before ``offset``: fetching begins there, and there
            are only markers and aborted records in between.
        topic_id: The source topic that is meant (EO-5); empty when not known.
        target_topic_id: Likewise of the target topic.
        history: What is known of the log before ``offset``.
    """

    source: SourcePartition
    offset: int
    leader_epoch: int | None
    target_topic: str
    epoch_offset: int | None = None
    topic_id: str = ""
    target_topic_id: str = ""
    history: History = field(default_factory=History)


@dataclass(frozen=True, slots=True)
class Pumped:
    """
    What one call of `Plane.pump` did.

    Attributes:
        records: Records produced into the open transaction.
        bytes: Their keys, values and headers; on the native plane, their batches as they travel.
        drained: Nothing is left at hand: the sources have no more, or their next answer is still on its way.
        enough: The transaction holds what the target takes in good time.
    """

    records: int
    bytes: int
    drained: bool
    enough: bool = False


@dataclass(frozen=True, slots=True)
class Advance:
    """
    The next offset to fetch of a partition, past markers, aborted ranges and dropped records (EO-4).

    Attributes:
        leader_epoch: Of the record before it; None when not known.
        epoch_offset: The offset that ``leader_epoch`` is known for, if that is an earlier one.
        seen: What was seen of the log before it.
    """

    offset: int
    leader_epoch: int | None
    epoch_offset: int | None = None
    seen: Seen = field(default_factory=Seen)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """
    Rule 7 for one source partition of the open transaction: fetched = acknowledged + dropped.

    Attributes:
        target_topic: Where its records went.
        records: Acknowledged records.
        bytes: Their keys, values and headers; on the native plane, their batches as they travel: a batch that is passed
            on is never opened.
        dropped: Dropped on purpose, by reason.
        copied_headers: Of ``records``, those that carry the provenance header of another record.
        target_offset: Of the last record there; None when none was written.
        source_timestamp: Of the last record, ms; on the native plane, the largest; None when none was written.
        first_source_offset: Of the first fetched record.
        offset_map: Encoded ranges for the offset map; empty when nothing was written.
        digest: Chained xxh3-64 over the records, hexadecimal; empty on the native plane.
        ranges: What ``offset_map`` holds: source offset, target offset, count; empty in a forecast, where nobody asks.
        dead_letters: Of the records that were left out because the target refuses them.
        first_target_offset: Of the first acknowledged record there; None when none was written.
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
    dead_letters: tuple[DeadLetter, ...] = ()
    first_target_offset: int | None = None


@dataclass(frozen=True, slots=True)
class Flushed:
    """
    A transaction whose data is all acknowledged.

    Attributes:
        accounts: One per source partition that records were fetched from.
        advances: Next offset to fetch of every partition that moved, with or without records.
    """

    accounts: tuple[Account, ...]
    advances: Mapping[SourcePartition, Advance] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MetadataRecord:
    """A record of ours that goes into the data's transaction; without a value it takes the key's record away."""

    topic: str
    partition: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """
    Why a record is left out.

    Attributes:
        reason: Kind of refusal (`eomirror.plane.protocol.RefusalReason`).
        words: The target's own words.
        limit: The setting that it breaks; empty when not known.
    """

    reason: str
    words: str
    limit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """
    How to send records of partitions in which the target refused something (`eomirror.lane.poison_records`).

    Attributes:
        ranges: Records of these go in ranges, each acknowledged before the next: ``(end, records)``, up to that offset
            so many at a time, in order of the ends.
        left_out: Offsets to leave out, and why; only of partitions in ``ranges``.
        batch_bytes: Largest batch to send, from the next `Plane.open` on; None for the client's own.
        whole_dead_letters: Whether dead letters may hold the records themselves.
    """

    ranges: Mapping[SourcePartition, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    left_out: Mapping[SourcePartition, Mapping[int, SkippedRecord]] = field(default_factory=dict)
    batch_bytes: int | None = None
    whole_dead_letters: bool = True

    def range_at(self, source: SourcePartition, offset: int) -> tuple[int, int]:
        """Where the range that begins at an offset ends at the latest, and how many records it may have."""
        spans = self.ranges[source]
        return next((span for span in spans if offset < span[0]), (offset + 1, spans[-1][1]))


class CommitOutcome(enum.Enum):
    """
    How a commit went, when it went well.

    CLEAN: one EndTxn was sent and answered; nothing of it can still travel.
    SUSPECT: committed, but requests were repeated or connections broke on the way (EO-9), or partitions have got
        new leaders, and what was committed may lack markers (docs/adr/0012).
    """

    CLEAN = "clean"
    SUSPECT = "suspect"


class Plane(Protocol):
    """Moves bytes for one lane.  Not safe for use from several threads."""

    def serving(self) -> Serving:
        """Which plane this is at the moment; changes with `open` only."""

    def throttled(self) -> float | None:
        """For how many seconds brokers' quotas have held this lane back (KIP-219); None where that is not known."""

    def delayed(self) -> str:
        """Which partitions of the source cannot be read for some time now, and why; empty where nothing is known."""

    def open(self) -> ProducerIdentity:
        """
        Throws away the producer, if there is one, and run InitProducerId with a new one.

        Raises:
            LaneError: As the coordinator answers.
            MirrorError: The target refuses us: rights, credentials, settings.
        """

    def start(self, starts: Sequence[Start]) -> None:
        """Begins to fetch these partitions, besides those that are fetched already."""

    def restart(self) -> None:
        """Forgets everything fetched; `start` gives the new beginning."""

    def treat(self, treatment: Treatment) -> None:
        """Sends records in this way from the next transaction on; one that is open is aborted next."""

    def await_records(self, seconds: float) -> bool:
        """Waits for something to mirror; True when there is.  Needs no transaction."""

    def advances(self) -> Mapping[SourcePartition, Advance]:
        """Partitions whose next offset moved since the last commit, though nothing of theirs was fetched."""

    def log_ends(self) -> Mapping[SourcePartition, int]:
        """Last stable offsets of the source as fetches have shown them, for progress; may be incomplete."""

    def pinned(self) -> AbstractSet[str]:
        """
        Source topics of the open transaction whose records are fetched and produced by topic id (EO-5).

        Before `flush` it is what is to be expected, after it a fact; see `eomirror.lane.topic_ids`.
        """

    def begin(self) -> ProducerIdentity:
        """Begins a transaction; the identity that its records carry."""

    def pump(self, seconds: float) -> Pumped:
        """Fetches, decide and produces what is at hand, waiting at most ``seconds`` for it."""

    def speculate(self) -> Flushed | None:
        """
        What `flush` will answer if nobody else writes to the target partitions; None when that cannot be told.

        Called after the last `pump` of a transaction.  Only ever compared with what `flush` says, never believed.
        """

    def flush(self, seconds: float) -> Flushed:
        """
        Waits until all that was produced is acknowledged, and balances the account (EO-7).

        Raises:
            TransactionFailedError: A record was not acknowledged in time, or the account is not even.
            RangeRefusedError: The target refuses a record (`eomirror.lane.poison_records`); so do `pump`, and `commit`
                for a dead letter.
        """

    def has_more(self) -> bool:
        """
        Returns whether more has come of partitions that the open transaction holds, and of no others; waits for
        nothing.

        Asked of a transaction that is sealed: it may be pumped into again, and is sealed once more then.
        """

    def write(self, records: Sequence[MetadataRecord]) -> None:
        """Produces records of ours into the open transaction."""

    def commit(self) -> CommitOutcome:
        """
        Commits.  The pump calls this with a `CommitPermit` in its hand, and not without.

        Raises:
            FencedError: A newer producer has our id.
            TransactionFailedError: It is certainly not committed.
            OutcomeUnknownError: It may be (EO-8).
        """

    def abort(self) -> None:
        """Aborts what is open, as well as that goes; the producer is not used again."""

    def close(self) -> None:
        """Closes all clients; leave nothing running."""
