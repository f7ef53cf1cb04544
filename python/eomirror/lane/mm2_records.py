"""
Records for MirrorMaker 2's readers that go into the data's own transaction, besides positions and offset map. Pure.

They are made when the data is acknowledged, and not foreseen: MM2's reader of syncs keeps every one that it sees, and
would keep a wrong one beside the later record that corrects it.  A transaction that holds some takes one more
round trip.  `Mm2Records.plan` changes nothing; what it said becomes true with `Mm2Records.committed`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from eomirror.lane.checkpoints import Checkpoints
from eomirror.lane.offset_syncs import TAIL_SECONDS, Mirrored, OffsetSyncs
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.mm2 import Mm2Names
from eomirror.records.names import ReadersTopics

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.lane.checkpoints import PlannedCheckpoints
    from eomirror.lane.spec import GroupOffset
    from eomirror.plane.protocol import Account
    from eomirror.records.mm2 import OffsetSync
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["Mm2Records", "Permitted", "Plan", "SyncSink"]

# how long a checkpoint waits for a transaction with data, seconds; longer and longer, up to the most, while what is
# left cannot be written: its copy was replaced, and the topic stops with its next record or when the driver looks
_CHECKPOINT_SECONDS = 0.2
_MOST_SECONDS = 30.0

# records
_LARGE = 1_000

_Ids = tuple["Mapping[str, str | None]", "Mapping[str, str | None]"]


class Permitted(Protocol):
    """What a transaction records: a `eomirror.lane.commit.CommitPermit`."""

    @property
    def positions(self) -> tuple[Position, ...]:
        """The positions that it holds."""

    @property
    def chunks(self) -> tuple[Account, ...]:
        """The accounts whose ranges it holds."""


class SyncSink(Protocol):
    """Where offset syncs go that are not written into the transaction."""

    def send(self, syncs: Sequence[OffsetSync]) -> None:
        """Send syncs of committed records, without waiting; what cannot be sent is superseded by the next."""

    def close(self) -> None:
        """Close the client."""


@dataclass(frozen=True, slots=True)
class Plan:
    """
    What goes with one transaction.

    Attributes:
        records: To be written into it.
        mirrored: The records that it mirrors, by partition.
        syncs: Offset syncs of these, wherever they go.
        checkpoints: Of followed groups.
        permitted: The transaction.
        quiet: It was begun for what is left over.
        hold: Its offset syncs are owed.
        now: When it was planned, monotonic seconds.
    """

    records: Sequence[MetadataRecord]
    mirrored: Sequence[Mirrored]
    syncs: Sequence[OffsetSync]
    checkpoints: PlannedCheckpoints | None
    permitted: Permitted
    quiet: bool
    hold: bool
    now: float


class Mm2Records:
    """
    What a lane writes for MM2's readers.

    Args:
        link: The link.
        sink: Where offset syncs go with ``offset_syncs: source``.
        partitions: How many partitions the lane has, about.
    """

    def __init__(self, link: Link, sink: SyncSink | None = None, *, partitions: int = 1) -> None:
        names = Mm2Names()
        self._place = link.offset_syncs
        self._syncs_topic = names.offset_syncs(link.source)
        self._sink = sink
        self._checkpoints_topic = names.checkpoints(link.source)
        self._syncs = OffsetSyncs()
        # where equal names are written on both sides one link's map cannot say where to go on: Java's client, which
        # asks nobody else, would skip what was written on the target first
        self._checkpoints = Checkpoints(partitions) if link.groups and not link.guard else None
        self._quiet_since: float | None = None
        self._quiet = False
        self._pause = _CHECKPOINT_SECONDS
        self._synced_at = float("-inf")

    def forget(self) -> None:
        """The lane begins again from what the target says."""
        self._syncs.forget()
        if self._checkpoints is not None:
            self._checkpoints.forget()
        self._quiet_since = None
        self._quiet = False
        self._pause = _CHECKPOINT_SECONDS

    def due(self, now: float) -> bool:
        """
        Whether a lane that has nothing else to do should begin a transaction for what is left over.

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
        """Whether the lane writes checkpoints."""
        return self._checkpoints is not None

    @property
    def readers(self) -> ReadersTopics:
        """Where it all goes, as far as that is in the data's transaction."""
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
        The driver says where groups stand.

        Args:
            offsets: What it says.
            positions: As committed.

        Returns:
            What became of earlier words: committed, or (without a target offset) not known to this lane.
        """
        if self._checkpoints is None:
            return ()
        if self._checkpoints.update(offsets, positions):
            self._pause = _CHECKPOINT_SECONDS
        return self._checkpoints.take_answers()

    def plan(
        self, permitted: Permitted, positions: Mapping[SourcePartition, Position], ids: _Ids, now: float
    ) -> Plan:
        """
        What a transaction should hold; changes nothing.

        Args:
            permitted: The transaction.
            positions: As committed before it.
            ids: Ids of source and target topics, asked for after the last fetch: those of the transaction's data and
                of `topics`.
            now: Monotonic seconds.
        """
        chunks = () if self._place == "off" else permitted.chunks
        mirrored = [Mirrored(account.source, account.ranges) for account in chunks]
        records_in_it = sum(count for item in mirrored for _, _, count in item.ranges)
        # a large transaction is one of a lane that is behind, where a round trip more is not felt
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
        return Plan(records, mirrored, syncs, checkpoints, permitted, self._quiet, hold, now)

    def committed(self, plan: Plan) -> None:
        """The transaction that ``plan`` was made for is committed."""
        self._syncs.committed(plan.mirrored, quiet=plan.quiet, hold=plan.hold)
        if plan.syncs:
            self._synced_at = plan.now
        if self._checkpoints is not None and plan.checkpoints is not None:
            self._checkpoints.committed(plan.checkpoints, plan.permitted.positions, plan.permitted.chunks)
        in_vain = plan.quiet and not plan.records and not plan.syncs
        self._pause = min(2 * self._pause, _MOST_SECONDS) if in_vain else _CHECKPOINT_SECONDS
        self._quiet_since = None
        self._quiet = False
        if self._sink is not None and plan.syncs:
            self._sink.send(plan.syncs)

    def aborted(self) -> None:
        """The transaction was not committed; what was left over is left over still."""
        self._quiet = False


def _sound(position: Position, ids: _Ids) -> bool:
    """Whether the topics of a position were asked for, and are still those that it speaks of (rule 5)."""
    on_source, on_target = ids
    return (
        on_source.get(position.topic) == position.topic_id
        and on_target.get(position.target_topic) == position.target_topic_id
    )
