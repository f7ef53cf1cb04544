"""
What earlier transactions of a lane left open on the target, and what is done about it (pure; docs/adr/0012).

A transaction ends in two steps: its coordinator writes down the outcome, then the leaders of its partitions write a
marker each.  Kafka 4.3 leaves the marker out, for good, in a partition that has no leader at that moment.  What the
transaction wrote there stays open: nobody who reads `read_committed` sees it or anything behind it, and it takes the
outcome of whatever transaction the same producer id ends there next::

    coordinator             topic-0 (has no leader)       the lane's next transaction
    abort decided
    marker left out         records of it stay open
    InitProducerId: fine
                                                          writes behind them, commits
                            all of it is shown: duplicates

So an attempt looks for it once older attempts are fenced.  From then on what is open by our producer id was left over,
because InitProducerId returns when all markers are written that ever will be.  The leaders of the partitions say whose
an open transaction is and where it begins (`DescribeProducers`, KIP-664).

What was the outcome?  A transaction holds its data and its position (EO-1), so one tells of the other:

* Positions can be read, and the copy of a partition is open.  A position that names a record in the open range
  (`Position.target_offset`) is of the transaction that wrote it: committed.  Where no position does, what is
  open was aborted, or never ended.
* A positions partition is open.  The records in it name what their transaction wrote elsewhere: is that shown, or was
  it aborted?  (One that only advanced names what an earlier transaction wrote, and tells nothing.  One that
  foresaw a record which was never written names what stands there instead: who wrote it tells that.)  Where it is
  open as well, one outcome for all of it is as good as the other: it is aborted, and comes again.  So positions
  come first, and all else follows from them.

It is ended by a transaction that the partitions are part of and that writes nothing, so that nobody ever reads a record
of ours in a topic of others.  Only who still has the id since before the look may do so: what an attempt that was
overtaken has read is old, and would be done to what its successor wrote.

What cannot be ended any more is a transaction that our next one has ended already, the
wrong way: a lane commits, the markers of some partitions are left out, and the transaction behind it is aborted.  Then
the position lies.  The record that it names is in the log and is not shown (`lost_error`); or the position was dropped,
and records of the lane are shown behind the one that the position before it names (`ahead_error`).  Every attempt looks
for both, and stops the topic: to go back, or on, is for a person to decide (EO-4).
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
    """Sees and ends what is open in partitions of the target (`eomirror.recovery.hanging`)."""

    def open(self, partitions: Collection[tuple[str, int]]) -> Sequence[OpenRange]:
        """
        Open transactions in these partitions; none where nobody can tell whose they are.

        Raises:
            UnreachableError: A partition has no leader that answers.
            MirrorError: The target refuses us.
        """

    def records(self, found: OpenRange) -> Sequence[tuple[bytes | None, bytes | None]]:
        """Keys and values of all records of its range, of other producers too; for topics of ours."""

    def record_states(self, records: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], RecordState]:
        """What became of acknowledged records, one in each partition, by their offsets."""

    def is_written_by(self, where: tuple[str, int], offset: int, writer: ProducerIdentity) -> bool:
        """
        Returns whether a record of this producer stands at an offset, and not a marker, or what somebody else wrote.
        """

    def overwritten(
        self, records: Mapping[tuple[str, int], tuple[int, ProducerIdentity]]
    ) -> AbstractSet[tuple[str, int]]:
        """
        Partitions in which something else stands at an offset than a record of this producer.

        Of partitions that `record_states` was asked about just before, and only where something stands behind the
        record.  A
        record that was deleted or compacted away says nothing.
        """

    def committed_behind(
        self, records: Mapping[tuple[str, int], int], producer_ids: Callable[[], AbstractSet[int]]
    ) -> AbstractSet[tuple[str, int]]:
        """
        Partitions in which committed records of these producers stand behind a record, by its offset.

        Of partitions that `record_states` was asked about just before.  Who they are is asked only where something
        stands
        behind one.
        """

    def mapped_behind(self, positions: Collection[Position]) -> AbstractSet[tuple[str, int]]:
        """
        Copies in which deleted records stood, by the offset map, behind the last one that the position knows.

        Of partitions that `record_states` was asked about just before.
        """

    def writers(self, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], AbstractSet[str]]:
        """Transactional ids that have written to partitions, as far as brokers remember: about a day."""

    def lanes(self, highest: int) -> Mapping[int, int]:
        """Producer id -> lane, of the lanes up to this one."""

    def release(self) -> None:
        """Lets go of connections; the next look makes new ones."""

    def end(
        self,
        lane: int | None,
        partitions: Collection[tuple[str, int]],
        *,
        commit: bool,
        held: ProducerIdentity | None = None,
    ) -> ProducerIdentity:
        """
        Takes over a lane's transactional.id, or the owner's (None), and end what its producer has open there.

        Args:
            partitions: Where.
            commit: How.
            held: Of the id, if it is ours: then only if it is still.

        Returns:
            The id's identity from now on.

        Raises:
            FencedError: Somebody else has taken the id since, or took it at the same time.
            MirrorError: The target does not do it, or not in time.
        """


class RecordState(enum.Enum):
    """
    What a `read_committed` reader sees at an offset that a record was acknowledged at.

    COMMITTED: The record.  (Of an offset that was only foreseen: perhaps a marker, or what somebody else wrote.)
    ABORTED: Nothing, though the record is there: it was aborted.
    PENDING: Nothing yet.
    DELETED: Nothing, and nobody can tell: it was deleted or compacted away, or never written.
    UNREADABLE: We may not look.
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
        producer_id: Whose it is.
        epoch: The newest producer epoch that has written there.
        start: Its first record.
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
    Returns whether what is open in the copy of a source partition was committed.

    Args:
        position: The valid one of the partition.
        found: What the producer of this position, or of a later transaction of its lane, has open there.

    Raises:
        DataLossError: Some of it was, and what is behind was not, or cannot be told from it; whatever ends
            the first ends the other alike.
    """
    last = position.target_offset
    if last is None or last < found.start:
        return False
    newer = found.producer_id != position.producer_id or found.epoch > position.producer_epoch
    if newer or found.end > last + 1:
        raise DataLossError(
            f"{position.source}: the target left out how transactions ended: {found.topic}-{found.partition} is open "
            f"from offset {found.start} to {found.end}; up to {last} it was committed, and what is behind was not, "
            "or cannot be told from it",
            fix="stop the mirror, end it (kafka-transactions.sh abort), compare (`eomirror verify`), and say where "
            f"to go on: {_adopt(position)}",
            topic=position.topic,
        )
    return True


def state_was_committed(behind: Iterable[bool], *, in_doubt: bool) -> bool:
    """
    Returns whether what is open in a topic of ours was committed, by the positions of what it speaks of.

    Args:
        behind: Of each record, whether the position of its partition is behind it.
        in_doubt: What to do where they differ: several transactions, of which some were aborted.
    """
    told = set(behind)
    return in_doubt if len(told) > 1 else told == {True}


def positions_were_committed(last: Collection[RecordState], earlier: Collection[RecordState]) -> bool:
    """
    Returns whether the positions that are open were committed.

    A lane that goes on has committed what was before, so of several transactions only the last is in doubt, and a
    record of it that is shown proves it.  What it has lost elsewhere each position tells by itself (`lost_error`).

    Args:
        last: What became of the records that the last of their transactions wrote, one of each partition.
        earlier: Likewise of those before it.

    Raises:
        UnreachableError: Those before it were committed, and it was not, or nobody can tell.
    """
    if RecordState.COMMITTED in last:
        return True
    # to abort them on the chance would bring twice what was committed; a record of the last that is aborted tells of it
    if RecordState.UNREADABLE in earlier or (
        RecordState.UNREADABLE in last and RecordState.ABORTED not in last
    ):
        raise unclear_error(
            "the positions",
            "whether they were committed tells who reads the copies, and we may not",
            fix="grant Read on the topics that `records_not_readable` names; this is tried again",
        )
    if RecordState.COMMITTED in earlier:
        raise unclear_error(
            "the positions",
            "they are of several transactions, and of the last nobody can tell whether it was committed",
        )
    return False


def lost_error(position: Position) -> DataLossError:
    """Returns the error that names records which the target dropped behind the mirror's back."""
    where = f"{position.target_topic}-{position.target_partition}"
    return DataLossError(
        f"{position.source}: the target dropped what was committed: the position {position.offset} was committed with "
        f"record {position.target_offset} of {where}, and an aborted one stands there. Either the copy was truncated "
        "or restored from an older state and written on; or a broker left the end of a transaction out, as Kafka 4.3 "
        "does in partitions that have no leader at that moment",
        fix=f"`eomirror verify` tells which records are missing; say where to go on: {_adopt(position)}",
        topic=position.topic,
    )


def ahead_error(position: Position) -> DataLossError:
    """Returns the error that names a copy which holds more than its position says."""
    where = f"{position.target_topic}-{position.target_partition}"
    return DataLossError(
        f"{position.source}: the target dropped the position of what was committed: records of this link stand or "
        f"stood in {where} behind {position.target_offset}, the last one that position {position.offset} speaks of. "
        "Either the positions were truncated or restored from an older state; or a broker left the end of a "
        "transaction out, as Kafka 4.3 does in partitions that have no leader at that moment",
        fix="`eomirror verify` tells how far the copy goes; say where to go on: "
        f"--adopt {position.source}=OFFSET",
        topic=position.topic,
    )


def orphaned_error(position: Position, found: OpenRange) -> UnreachableError:
    """
    Returns the error that names a copy that is open by a producer id which the transactional.id of its lane has no
    more.
    """
    where = f"{found.topic}-{found.partition}"
    return UnreachableError(
        f"{position.source}: a transaction was left open on the target in {where}, from offset {found.start} on, by "
        f"producer {found.producer_id}, which no lane has any more: nobody reads what is behind it",
        fix=f"kafka-transactions.sh abort --topic {found.topic} --partition {found.partition} --start-offset "
        f"{found.start}, then compare with `eomirror verify`; the topic is tried again by itself",
        topic=position.topic,
    )


def unclear_error(
    where: str,
    why: str,
    *,
    fix: str = "this is tried again; if it lasts, see kafka-transactions.sh find-hanging",
) -> UnreachableError:
    """Something stays open, and cannot be ended now."""
    return UnreachableError(f"a transaction was left open on the target in {where}: {why}", fix=fix)


def _adopt(position: Position) -> str:
    # only a position that was committed with records tells where the transaction began
    began = position.prev if position.records and position.prev is not None else "OFFSET"
    return f"--adopt {position.source}={began}"
