"""
Values that a lane receives, reports, and returns at its end. Pure.

They cross process borders: the driver pickles a `LaneSpec` into a Spark task, progress and control messages travel as
JSON over the lane's channel, and the task returns a `LaneReport`.  So they are plain frozen values without clients,
locks or open files.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from eomirror.lane.measures import LaneMeasures
from eomirror.plane.protocol import Serving

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Cluster, Link
    from eomirror.errors import MirrorError
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
    "Released",
    "StopReason",
    "StoppedTopic",
]


@dataclass(frozen=True, slots=True)
class AssignedPartition:
    """
    A source partition of a lane, and its target topic.

    Attributes:
        topic_id: Id of the source topic in the driver's scan; the lane stops the topic when it sees another.
        target_topic: Topic on the target; the partition number is the same.
        target_topic_id: Id of the target topic in the driver's scan.
        generation: Generation that moved it to its lane; 0 if the lane had it from its own generation on.
    """

    source: SourcePartition
    topic_id: str
    target_topic: str
    target_topic_id: str
    generation: int = 0


class Released(NamedTuple):
    """
    Partitions that another lane gets while this one goes on with its others (docs/adr/0035).

    Attributes:
        sources: The partitions.
        generation: Generation that moves them.
    """

    sources: frozenset[SourcePartition]
    generation: int


@dataclass(frozen=True, slots=True)
class GroupOffset:
    """
    Offset of a consumer group in one source partition.

    Attributes:
        upstream: Next source offset that it reads.
        downstream: Next target offset that it would read; None if unknown.
        metadata: Metadata of its commit.
    """

    group: str
    source: SourcePartition
    upstream: int
    downstream: int | None = None
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSpec:
    """
    Everything that one attempt of a lane needs to know.

    Attributes:
        source_cluster_id: Id of the source cluster in the driver's scan.
        target_cluster_id: Id of the target cluster in the driver's scan.
        run: Run of the mirror.
        generation: Lane layout of this attempt; it leaves when it reads a newer one of its lane (EO-2).
        epoch: Number of this Spark task of the lane, from 1.
        attempt: Attempt within the epoch, from 1.
        seconds: Duration of the epoch, already spread so that lanes do not act in step.
        overdue: Consecutive earlier attempts that gave up a transaction that was open for too long.
        damaged: Batches that earlier attempts of this epoch could not read.
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

    def report(
        self, ending: Ending, reason: str = "", error: MirrorError | None = None, **facts: Any
    ) -> LaneReport:
        """Returns the result of this attempt; ``facts`` are further fields of the report."""
        return LaneReport(
            lane=self.lane,
            epoch=self.epoch,
            attempt=self.attempt,
            ending=ending,
            reason=reason,
            error=error,
            **facts,
        )


class StopReason(enum.StrEnum):
    """
    Reason of the driver to stop a lane between two transactions.

    MOVE: the epoch ends now, and the next begins on another worker; the lane keeps its partitions (docs/adr/0023).
    """

    SHUTDOWN = "shutdown"
    RECONFIGURE = "reconfigure"
    MOVE = "move"


class Ending(enum.StrEnum):
    """
    Kind of ending of an attempt; the driver's table decides the next step.

    EPOCH: its time was over; the next epoch follows at once.
    STOPPED: the driver stopped it.
    REBUILD: a failure that recovery repairs; a new attempt follows after a backoff.
    UNAUTHORIZED: an ACL is missing or the credentials are refused; `LaneReport.error` says what to grant, and a mirror
        without ``--until`` retries.
    SUPERSEDED: control shows a newer generation, or another producer took the id (EO-10).
    FAILED: the user must act; `LaneReport.error` says how.

    Of the others the lane makes no report, because its Spark job fails; the driver makes it.

    WORKER_DIED: the worker's process ended.
    TASK_RAISED: the lane raised an exception, which is a bug.
    CANCELLED: the job was cancelled from outside.
    ENGINE_GONE: the Spark context has stopped.
    """

    EPOCH = "epoch"
    STOPPED = "stopped"
    REBUILD = "rebuild"
    UNAUTHORIZED = "unauthorized"
    SUPERSEDED = "superseded"
    FAILED = "failed"
    WORKER_DIED = "worker died"
    TASK_RAISED = "task raised"
    CANCELLED = "cancelled"
    ENGINE_GONE = "engine gone"

    @property
    def crashed(self) -> bool:
        """True if the lane made no report."""
        return self in {Ending.WORKER_DIED, Ending.TASK_RAISED, Ending.CANCELLED, Ending.ENGINE_GONE}


@dataclass(frozen=True, slots=True)
class StoppedTopic:
    """
    Reason for which a topic is not mirrored.

    Attributes:
        reason: Message of the error, with topic, partition and range.
        fix: Fix of the error; may be empty.
        exit_code: Exit code of the error.
        retried: The topic only lacks an ACL or a serving leader, and is retried.
    """

    reason: str
    fix: str = ""
    exit_code: int = 1
    retried: bool = False

    @classmethod
    def of(cls, error: MirrorError) -> Self:
        """Returns the reason that an error gives."""
        return cls(error.message, error.fix, error.exit_code, error.topic_retried)

    def __str__(self) -> str:
        return f"{self.reason}\n  fix: {self.fix}" if self.fix else self.reason


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProgress:
    """
    Progress of a source partition, as last committed.

    Attributes:
        position: Next offset to fetch, committed.
        lso: Source's last stable offset in the lane's last fetch; None before the first.
        lag_seconds: Age of the oldest record not mirrored yet, by its timestamp; 0 when caught up; None if unknown.
        records: Records that this attempt mirrored, committed.
        bytes: Their keys, values and headers.
        dropped: Records that this attempt dropped by configuration, committed, by reason.
    """

    topic: str
    partition: int
    position: int
    lso: int | None = None
    lag_seconds: float | None = None
    records: int = 0
    bytes: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneProgress:
    """
    Progress of a lane, reported at most a few times a second; counters are totals of this attempt.

    Reason for its size: one field for each field of the message to the driver.

    Attributes:
        state: State of the lane's machine, for display.
        transactions: Committed transactions.
        records: Mirrored records, committed.
        bytes: Their keys, values and headers.
        dropped: Records dropped on purpose, committed.
        copied_headers: Committed records that carried the provenance header of another record.
        commit_ms: Duration of the last commit, from the cut of the transaction to its end.
        partitions: Only partitions that changed since the last report.
        stopped_topics: Topics that this lane stopped mirroring, such as a recreated source topic.
        serving: Its plane, and what holds it back.
        measures: Histograms and failed transactions of this attempt.
        memory_bytes: Resident memory of its worker; None if unknown.
        released: Newest generation that it has committed a claim of, without the partitions that left the lane by then.
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
    stopped_topics: dict[str, StoppedTopic] = field(default_factory=dict)
    serving: Serving = field(default_factory=Serving)
    measures: LaneMeasures = field(default_factory=LaneMeasures)
    memory_bytes: int | None = None
    released: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneReport:
    """
    Result of one attempt of a lane.

    Attributes:
        reason: One line for the log.
        error: What the user must fix when ``ending`` is FAILED or UNAUTHORIZED; else None.
        transactions: Committed transactions.
        records: Mirrored records, committed.
        stopped_topics: Topics that this lane stopped mirroring.
        progressed: Whether anything was committed, so that the driver may reset its backoff.
        overdue: Whether it gave up a transaction that was open for too long.
        damaged: Batches that it and earlier attempts could not read.
        continues: Whether the lane mirrors on in its process until another attempt resumes it
            (`eomirror.spark.handover`).
    """

    lane: int
    epoch: int
    attempt: int
    ending: Ending
    reason: str = ""
    error: MirrorError | None = None
    transactions: int = 0
    records: int = 0
    stopped_topics: dict[str, StoppedTopic] = field(default_factory=dict)
    progressed: bool = False
    overdue: bool = False
    damaged: tuple[Damage, ...] = ()
    continues: bool = False


class LaneMailbox(Protocol):
    """
    The lane's channel to the driver.  No call blocks for longer than a few milliseconds.

    A mailbox that has lost the driver reports it through `stop`: a lane without a driver must not continue for long,
    because a new driver may already be fencing it (safe, but useless work).
    """

    def report(self, progress: LaneProgress) -> None:
        """Reports progress; the report may be dropped when the channel is busy."""

    def stop(self) -> StopReason | None:
        """Returns the reason to stop between two transactions, or None."""

    def added(self) -> tuple[AssignedPartition, ...]:
        """Returns partitions added by revisions since the last call (EO-2); they are already published in control."""

    def released(self) -> Released | None:
        """
        Returns the partitions that left the lane since the last call; None for none.

        Those of `added` came later, or never reached the lane.
        """

    def followed(self) -> tuple[GroupOffset, ...]:
        """Returns the source offsets of groups that the driver reported since the last call."""

    def answer(self, offsets: tuple[GroupOffset, ...]) -> None:
        """Reports which offsets are committed as checkpoints, and which are unknown to this lane; never dropped."""

    def descriptor(self) -> int | None:
        """Returns the descriptor that can be read once there is news; None while there is something to send."""

    def close(self) -> None:
        """Sends the remaining messages and closes the channel; the attempt's report may be there already."""
