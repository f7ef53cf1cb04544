"""
Decides about hanging transactions that a lane left on the target (KIP-664). Pure; docs/adr/0012.

A transaction ends in two steps: its coordinator records the outcome, then each partition leader writes a marker.  Kafka
4.3 skips the marker, for good, in a partition that has no leader at that moment.  The records there stay pending: a
`read_committed` reader sees neither them nor anything after them, and they take the outcome of the next transaction
that the same producer id ends there::

    coordinator             topic-0 (has no leader)       the lane's next transaction

    abort decided
    marker skipped          its records stay pending
    InitProducerId: fine
                                                          writes after them, commits
                            all records visible: duplicates

So an attempt searches for them once older attempts are fenced.  From then on any pending records of our producer id are
left over, because InitProducerId returns only after the last marker that will ever be written.  Partition leaders
report the producer and the first offset of an open transaction (`DescribeProducers`, KIP-664).

The outcome is derived from the fact that a transaction holds its data and its position (EO-1):

* Positions are readable, and the copy of a partition has pending records.  If a position names a record in the pending
  range (`Position.target_offset`), the transaction was committed.  If no position does, it was aborted or never ended.
* A positions partition has pending records.  They name the records that their transaction wrote elsewhere, which are
  either committed or aborted.  (A position that only advanced names a record of an earlier transaction, and proves
  nothing.  A speculative position may name an offset that its transaction never wrote; the producer of the record there
  decides.)  If those are pending too, one outcome for all is as good as the other: they are aborted and mirrored again.
  So positions are resolved first, and everything else follows from them.

A hanging transaction is ended by a transaction that includes the partitions and writes nothing, so readers of other
topics never see a record of ours.  Only a producer that has held the id since before the search may do so: an overtaken
attempt has stale information, and would end its successor's records.

One case cannot be repaired: our next transaction has already ended the hanging one the wrong way.  A lane commits, the
markers of some partitions are skipped, and the next transaction is aborted.  Then the position is wrong.  Either its
record is in the log but aborted (`lost_error`), or the position itself was aborted, and records of the lane are
committed after the one that the previous position names (`ahead_error`).  Every attempt checks both and stops the
topic: the user decides where to resume (EO-4).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eomirror.errors import DataLossError, UnreachableError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.plane.protocol import ProducerIdentity
    from eomirror.records.position import Position

__all__ = [
    "HangingClient",
    "OpenRange",
    "RecordState",
    "ahead_error",
    "copy_was_committed",
    "lost_error",
    "orphaned_error",
    "positions_were_committed",
    "state_was_committed",
    "unclear_error",
]


class HangingClient(Protocol):
    """Finds and ends hanging transactions on the target."""

    def open(self, partitions: Collection[tuple[str, int]]) -> Sequence[OpenRange]:
        """
        Returns open transactions in these partitions; none where the producer is unknown.

        Raises:
            UnreachableError: A partition has no leader that answers.
            MirrorError: The target refuses the request.
        """

    def records(self, found: OpenRange) -> Sequence[tuple[bytes | None, bytes | None]]:
        """Returns keys and values of all records of a range, of other producers too; for state topics only."""

    def record_states(self, records: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], RecordState]:
        """Returns the states of acknowledged records, one offset per partition."""

    def is_written_by(self, where: tuple[str, int], offset: int, writer: ProducerIdentity) -> bool:
        """Returns whether the offset holds a record of this producer, and not a marker or another producer's record."""

    def overwritten(
        self, records: Mapping[tuple[str, int], tuple[int, ProducerIdentity]]
    ) -> AbstractSet[tuple[str, int]]:
        """
        Returns partitions where the offset holds something else than a record of this producer.

        Only for partitions that `record_states` examined just before, and only where the log continues after the
        record.  A record that was deleted or compacted away proves nothing.
        """

    def committed_behind(
        self, records: Mapping[tuple[str, int], int], producer_ids: Callable[[], AbstractSet[int]]
    ) -> AbstractSet[tuple[str, int]]:
        """
        Returns partitions where committed records of these producers follow the given offset.

        Only for partitions that `record_states` examined just before.  The producer ids are requested only if the log
        continues after an offset.
        """

    def mapped_behind(self, positions: Collection[Position]) -> AbstractSet[tuple[str, int]]:
        """
        Returns copies where, by the offset map, records after the position's last one were committed and deleted since.

        Only for partitions that `record_states` examined just before.
        """

    def writers(self, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], AbstractSet[str]]:
        """Returns the transactional ids that wrote to partitions, as far as brokers remember: about a day."""

    def lanes(self, highest: int) -> Mapping[int, int]:
        """Returns producer id -> lane, for lanes up to this number."""

    def control_identity(self) -> ProducerIdentity | None:
        """Returns the newest identity of the link's control producer; None where the target does not tell it."""

    def release(self) -> None:
        """Closes connections; the next search opens new ones."""

    def end(
        self,
        lane: int | None,
        partitions: Collection[tuple[str, int]],
        *,
        commit: bool,
        held: ProducerIdentity | None = None,
    ) -> ProducerIdentity:
        """
        Takes over the transactional.id of a lane, or of the owner (None), and ends its producer's transactions there.

        Args:
            partitions: Partitions with hanging transactions.
            commit: Whether to commit or abort.
            held: Identity that must still hold the id, if the id is ours.

        Returns:
            The new identity of the id.

        Raises:
            FencedError: Another process has taken the id meanwhile.
            MirrorError: The target refuses, or does not answer in time.
        """


class RecordState(enum.Enum):
    """
    Result for a `read_committed` reader at the offset of an acknowledged record.

    COMMITTED: The record is visible. (At a speculative offset it may be a marker or another producer's record.)
    ABORTED: The record is there but not visible.
    PENDING: Its transaction is open.
    DELETED: Not there: deleted, compacted away or never written.
    UNREADABLE: We lack the Read ACL.
    """

    COMMITTED = "committed"
    ABORTED = "aborted"
    PENDING = "pending"
    DELETED = "deleted"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenRange:
    """
    A transaction that is open in a partition of the target, as its leader describes it.

    Attributes:
        epoch: Newest producer epoch that has written there.
        start: Offset of its first record.
        end: High watermark of the partition.
    """

    topic: str
    partition: int
    producer_id: int
    epoch: int
    start: int
    end: int

    @property
    def where(self) -> tuple[str, int]:
        """Topic and number."""
        return self.topic, self.partition


def copy_was_committed(position: Position, found: OpenRange) -> bool:
    """
    Returns whether the pending records in the copy of a source partition were committed.

    Args:
        position: Valid position of the partition.
        found: Open transaction of this position's producer, or of a later transaction of its lane.

    Raises:
        DataLossError: A part of it was committed, and the rest was not or is unknown; one end decides both.
    """
    last = position.target_offset
    if last is None or last < found.start:
        return False
    newer = found.producer_id != position.producer_id or found.epoch > position.producer_epoch
    if newer or found.end > last + 1:
        raise DataLossError(
            f"{position.source}: the target has hanging transactions: {found.topic}-{found.partition} is open "
            f"from offset {found.start} to {found.end}; up to {last} it was committed, and the rest was not, "
            "or is unknown",
            fix="stop the mirror, end it (kafka-transactions.sh abort), compare (`eomirror verify`), and choose a "
            f"resume offset: {_adopt(position)}",
            topic=position.topic,
        )
    return True


def state_was_committed(behind: Iterable[bool], *, in_doubt: bool) -> bool:
    """
    Returns whether pending records of a state topic were committed, derived from the positions of their partitions.

    Args:
        behind: For each record, whether its partition's position is past it.
        in_doubt: Result if they differ: several transactions, of which some were aborted.
    """
    told = set(behind)
    return in_doubt if len(told) > 1 else told == {True}


def positions_were_committed(last: Collection[RecordState], earlier: Collection[RecordState]) -> bool:
    """
    Returns whether pending positions were committed.

    A lane that continues has committed everything before.  So only the last of several transactions is in doubt, and a
    committed record of it proves its commit.  Losses elsewhere show in each position (`lost_error`).

    Args:
        last: States of the records that the last transaction wrote, one per partition.
        earlier: States of the records of the transactions before it.

    Raises:
        UnreachableError: The earlier ones were committed, and the last one was not or is unknown.
    """
    if RecordState.COMMITTED in last:
        return True
    # aborting them without proof could duplicate committed records; an aborted record of the last one is proof
    if RecordState.UNREADABLE in earlier or (
        RecordState.UNREADABLE in last and RecordState.ABORTED not in last
    ):
        raise unclear_error(
            "the positions",
            "only the copies tell whether they were committed, and we may not read them",
            fix="grant Read on the topics that `records_not_readable` names; this is retried",
        )
    if RecordState.COMMITTED in earlier:
        raise unclear_error(
            "the positions",
            "they belong to several transactions, and the outcome of the last one is unknown",
        )
    return False


def lost_error(position: Position) -> DataLossError:
    """Returns the error for committed records that the target dropped."""
    where = f"{position.target_topic}-{position.target_partition}"
    return DataLossError(
        f"{position.source}: the target dropped committed records: the position {position.offset} was committed with "
        f"record {position.target_offset} of {where}, and the record there is aborted. Either the copy was truncated "
        "or restored from an older state and then extended; or a broker skipped the end of a transaction, as Kafka 4.3 "
        "does in partitions that have no leader at that moment",
        fix=f"`eomirror verify` tells which records are missing; choose a resume offset: {_adopt(position)}",
        topic=position.topic,
    )


def ahead_error(position: Position) -> DataLossError:
    """Returns the error for a copy that holds more than its position says."""
    where = f"{position.target_topic}-{position.target_partition}"
    return DataLossError(
        f"{position.source}: the target dropped the position of committed records: records of this link are or "
        f"were in {where} after {position.target_offset}, the last one that position {position.offset} names. "
        "Either the positions were truncated or restored from an older state; or a broker skipped the end of a "
        "transaction, as Kafka 4.3 does in partitions that have no leader at that moment",
        fix="`eomirror verify` tells how far the copy goes; choose a resume offset: "
        f"--resume-at {position.source}=OFFSET",
        topic=position.topic,
    )


def orphaned_error(position: Position, found: OpenRange) -> UnreachableError:
    """Returns the error for a hanging transaction whose producer id no transactional.id of a lane owns."""
    where = f"{found.topic}-{found.partition}"
    return UnreachableError(
        f"{position.source}: a hanging transaction blocks {where} on the target from offset {found.start}; its "
        f"producer {found.producer_id} belongs to no lane; read_committed readers stop there",
        fix=f"kafka-transactions.sh abort --topic {found.topic} --partition {found.partition} --start-offset "
        f"{found.start}, then compare with `eomirror verify`; the topic is retried automatically",
        topic=position.topic,
    )


def unclear_error(
    where: str,
    why: str,
    *,
    fix: str = "this is retried; if it lasts, see kafka-transactions.sh find-hanging",
) -> UnreachableError:
    """Returns the error for a hanging transaction that cannot be ended at present."""
    return UnreachableError(f"a hanging transaction on the target in {where}: {why}", fix=fix)


def _adopt(position: Position) -> str:
    # only a position with records tells the first offset of its transaction
    began = position.prev if position.records and position.prev is not None else "OFFSET"
    return f"--resume-at {position.source}={began}"
