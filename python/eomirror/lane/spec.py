"""
What a lane is told, what it says while it runs, and how it ends. Pure.

These values cross process borders: the driver pickles a `LaneSpec` into a Spark task, progress and control
messages travel as JSON over the lane's channel, and the task's result is a `LaneReport`.  So they are plain
frozen values without clients, locks or open files.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from eomirror.config import Cluster, Link
    from eomirror.recovery.corrupt_batches import Damage
    from eomirror.types import SourcePartition

__all__ = [
    "AssignedPartition",
    "Ending",
    "GroupOffset",
    "LaneMailbox",
    "LaneProgress",
    "LaneReport",
    "LaneSpec",
    "PartitionProgress",
    "StopReason",
]


@dataclass(frozen=True, slots=True)
class AssignedPartition:
    """
    A source partition of a lane, and where its records go.

    Attributes:
        source: The source partition.
        topic_id: Id of the source topic when the driver looked; the lane stops the topic when it sees another.
        target_topic: Topic on the target; the partition number is the same.
        target_topic_id: Id of the target topic when the driver looked.
    """

    source: SourcePartition
    topic_id: str
    target_topic: str
    target_topic_id: str


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """
    Where a consumer group stands in one source partition.

    Attributes:
        group: The group.
        source: The source partition.
        upstream: Next source offset that it reads.
        downstream: Next target offset that it would read; None when that is not known.
        metadata: What it committed beside its offset.
    """

    group: str
    source: SourcePartition
    upstream: int
    downstream: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSpec:
    """
    All that one attempt of a lane needs to know.

    Attributes:
        link: Settings of the link.
        source: The source cluster.
        target: The target cluster.
        source_cluster_id: Id that the source cluster gave the driver.
        target_cluster_id: Likewise of the target.
        run: Run of the mirror.
        generation: Lane layout this attempt belongs to; it leaves when it reads a newer one (rule 2).
        lane: Number of the lane.
        epoch: Number of this Spark task of the lane, from 1.
        attempt: Attempt within the epoch, from 1.
        seconds: How long to run before handing back; already spread so that lanes do not act in step.
        partitions: What to mirror.
        overdue: How many attempts in a row before this one gave up a transaction that was open for too long.
        damaged: What earlier attempts of this epoch could not read.
    """

    link: Link
    source: Cluster
    target: Cluster
    source_cluster_id: str
    target_cluster_id: str
    run: str
    generation: int
    lane: int
    epoch: int
    attempt: int
    seconds: float
    partitions: tuple[AssignedPartition, ...]
    overdue: int = 0
    damaged: tuple[Damage, ...] = ()


class StopReason(enum.StrEnum):
    """Why the driver wants a lane to hand back, between two transactions."""

    SHUTDOWN = "shutdown"
    RECONFIGURE = "reconfigure"


class Ending(enum.StrEnum):
    """
    How an attempt of a lane ended; the driver's table says what follows.

    EPOCH: its time was over; the next epoch follows at once.
    STOPPED: the driver asked for it.
    REBUILD: something failed in a way that recovery heals; a new attempt follows after a backoff.
    UNAUTHORIZED: a right is missing, or who we are is refused; `LaneReport.error` says what to grant, and a mirror
        that runs on and on tries again until it is.
    SUPERSEDED: control shows a newer generation, or another producer took the id (rule 10).
    FAILED: only a person can help; `LaneReport.error` says how.
    """

    EPOCH = "epoch"
    STOPPED = "stopped"
    REBUILD = "rebuild"
    UNAUTHORIZED = "unauthorized"
    SUPERSEDED = "superseded"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """
    Where a source partition stands, as the lane last committed it.

    Attributes:
        topic: Source topic.
        partition: Source partition.
        position: Committed position: next offset to fetch.
        lso: Source's last stable offset as last seen by the lane's fetches; None before the first.
        lag_seconds: Age of the oldest record not mirrored yet, by its timestamp; 0 when caught up; None
            when not known.
    """

    topic: str
    partition: int
    position: int
    lso: int | None = None
    lag_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneProgress:
    """
    A lane's sign of life, at most a few times a second; counters are totals of this attempt.

    Attributes:
        lane: Lane number.
        epoch: Epoch number.
        state: State of the lane's machine, for people.
        transactions: Committed transactions.
        records: Mirrored records, committed.
        bytes: Their keys, values and headers.
        dropped: Records dropped on purpose, committed.
        copied_headers: Mirrored records that carried the provenance header of another record, committed.
        commit_ms: How long the last commit took, from the cut of the transaction to its end.
        partitions: Only partitions that changed since the last report.
        stopped_topics: Topics that this lane stopped mirroring, and why, such as a recreated source topic.
        stopped_codes: Exit code that each of them asks for.
        unauthorized_topics: Those of them that only lack a right, or a leader.
        plane: Which plane moves its bytes, ``native`` or ``client``; empty before the first producer.
        plane_reason: Why it is not the native one.
        throttled: For how many seconds brokers' quotas have held back that plane; None where that is not known.
        delayed: Which partitions of the source that plane cannot read for some time now, and why.
    """

    lane: int
    epoch: int
    state: str
    transactions: int = 0
    records: int = 0
    bytes: int = 0
    dropped: int = 0
    copied_headers: int = 0
    commit_ms: float = 0.0
    partitions: tuple[PartitionProgress, ...] = ()
    stopped_topics: dict[str, str] = field(default_factory=dict)
    stopped_codes: dict[str, int] = field(default_factory=dict)
    unauthorized_topics: tuple[str, ...] = ()
    plane: str = ""
    plane_reason: str = ""
    throttled: float | None = None
    delayed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReport:
    """
    Result of one attempt of a lane.

    Attributes:
        lane: Lane number.
        epoch: Epoch number.
        attempt: Attempt number.
        ending: How it ended.
        reason: One line for the log.
        error: Text for the user when ``ending`` is FAILED or UNAUTHORIZED: what, where, and what to do.
        exit_code: Exit code that the error asks for, as in contract.md.
        transactions: Committed transactions.
        records: Mirrored records, committed.
        stopped_topics: Topics that this lane stopped mirroring: topic -> (exit code, text for the user).
        unauthorized_topics: Those of them that only lack a right, or a leader.
        progressed: Whether anything was committed, so that the driver may reset its backoff.
        overdue: Whether it gave up a transaction that was open for longer than it may be.
        damaged: What it and the attempts before it could not read.
        goes_on: Whether the lane mirrors on in its process until another attempt comes for it
            (`eomirror.spark.handover`).
    """

    lane: int
    epoch: int
    attempt: int
    ending: Ending
    reason: str = ""
    error: str = ""
    exit_code: int = 0
    transactions: int = 0
    records: int = 0
    stopped_topics: dict[str, tuple[int, str]] = field(default_factory=dict)
    unauthorized_topics: frozenset[str] = frozenset()
    progressed: bool = False
    overdue: bool = False
    damaged: tuple[Damage, ...] = ()
    continues: bool = False


class LaneMailbox(Protocol):
    """
    The lane's line to the driver.  No call blocks for longer than a few milliseconds.

    A mailbox that has lost the driver says so by `stop`: a lane without a driver must not go on for long,
    because a new driver may already be fencing it (it would be safe, but useless).
    """

    def report(self, progress: LaneProgress) -> None:
        """Say where the lane stands; may be dropped when the line is busy."""

    def stop(self) -> StopReason | None:
        """Why the lane should hand back between two transactions, or None."""

    def added(self) -> tuple[AssignedPartition, ...]:
        """Partitions that a revision added to this lane since the last call (rule 2); already published in control."""

    def followed(self) -> tuple[GroupOffset, ...]:
        """Where groups stand, as the driver said since the last call."""

    def answer(self, offsets: tuple[GroupOffset, ...]) -> None:
        """Say which of them are committed as checkpoints, and which this lane cannot translate; not dropped."""

    def close(self) -> None:
        """Send what is left, and hang up; the attempt's report may be there already."""
