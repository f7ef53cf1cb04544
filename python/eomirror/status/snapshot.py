"""Snapshots of a running mirror, and the report of a run: plain values. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from eomirror.status.work import LaneWork, TopicWork

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.groups.followed_groups import GroupsSnapshot

__all__ = [
    "RATE_WINDOW_SECONDS",
    "Counters",
    "LaneSnapshot",
    "LinkReport",
    "LinkSnapshot",
    "PartitionSnapshot",
    "RunReport",
    "Snapshot",
    "TopicSnapshot",
    "max_known",
    "sum_known",
]

#: Window of rates, in seconds.
RATE_WINDOW_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """
    Counters of committed work.

    Attributes:
        records: Mirrored records.
        bytes: Size of keys, values and headers of the mirrored records.
        dropped: Records dropped by configuration.
        copied_headers: Mirrored records that carried the provenance header of another record: an application had
            copied it, and they count as local.
    """

    transactions: int = 0
    records: int = 0
    bytes: int = 0
    dropped: int = 0
    copied_headers: int = 0

    def at_least(self, other: Counters) -> Counters:
        """Returns the maximum of each counter; for two reports of one attempt."""
        return Counters(
            transactions=max(self.transactions, other.transactions),
            records=max(self.records, other.records),
            bytes=max(self.bytes, other.bytes),
            dropped=max(self.dropped, other.dropped),
            copied_headers=max(self.copied_headers, other.copied_headers),
        )

    def plus(self, other: Counters) -> Counters:
        """Returns the sum of both."""
        return Counters(
            transactions=self.transactions + other.transactions,
            records=self.records + other.records,
            bytes=self.bytes + other.bytes,
            dropped=self.dropped + other.dropped,
            copied_headers=self.copied_headers + other.copied_headers,
        )

    @staticmethod
    def sum(several: Iterable[Counters]) -> Counters:
        """Returns the sum of all."""
        total = Counters()
        for counters in several:
            total = total.plus(counters)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """
    State of a source partition.

    Attributes:
        lane: Lane that mirrors it.
        position: Next offset to fetch, as committed; None until its lane has reported.
        lso: Last stable offset of the source, as last seen.
        lag_records: Offsets between position and ``lso``, including control batches; None if unknown.
        lag_seconds: Upper bound of the time that the oldest unmirrored record has been on the source; 0 if there is
            none; None if unknown.
        goal: Offset that ``until="caught-up"`` waits for; None for no wait.
        lag_unknown: Reason why ``lag_records`` is unknown; else empty.
    """

    partition: int
    lane: int
    position: int | None = None
    lso: int | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    goal: int | None = None
    lag_unknown: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """
    State of a source topic.

    Attributes:
        topic: Name on the source.
        partitions: States of its partitions, by number.
        lag_records: Sum over partitions; None if one is unknown.
        lag_seconds: Maximum over partitions; None if one is unknown.
        stopped: Reason why the topic is stopped; empty while it is mirrored.
        superseded: True if it failed because another mirror has taken it.
        fix: Recommended action for a stopped topic; may be empty.
        exit_code: Exit code of the error that stopped it; 0 while it is mirrored.
        work: Work on it in this run.
        paused: True if lanes hold it (`eomirror pause`).
    """

    topic: str
    target_topic: str
    partitions: tuple[PartitionSnapshot, ...]
    lag_records: int | None
    lag_seconds: float | None
    stopped: str = ""
    fix: str = ""
    exit_code: int = 0
    work: TopicWork = field(default_factory=TopicWork)
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSnapshot:
    """
    State of a lane.

    Reason for its size: one field for each figure that is shown.

    Attributes:
        state: State of its machine while a worker runs it; else ``starting``, ``waiting``, ``idle`` or ``ended``.
        attempt: Number of the attempt within the epoch.
        retries: Attempts of this run that ended early.
        last_failure: Reason of the last early end.
        commit_ms: Duration of its last commit.
        counters: Its work in this run.
        plane: Data plane of the lane, ``native`` or ``client``; empty until it has reported.
        plane_reason: Reason why the lane does not use the native plane.
        throttled_seconds: Time that broker quotas have throttled it since it opened its plane; None if unknown.
        delayed: Source partitions that it has not been able to read for some time, with the reason; else empty.
        endings: Attempts that ended early, by kind of ending.
        work: Its transactions in this run, with histograms.
        memory_bytes: Resident memory of its worker, as last reported; None if unknown or without a worker.
        silent_seconds: Time since the last report of an attempt that has stopped reporting, such as one whose process
            stands still; 0 while it reports, and before its first report.
    """

    lane: int
    state: str = "starting"
    epoch: int = 0
    attempt: int = 0
    retries: int = 0
    last_failure: str = ""
    commit_ms: float = 0.0
    counters: Counters = field(default_factory=Counters)
    plane: str = ""
    plane_reason: str = ""
    throttled_seconds: float | None = None
    delayed: str = ""
    endings: Mapping[str, int] = field(default_factory=dict)
    work: LaneWork = field(default_factory=LaneWork)
    memory_bytes: int | None = None
    silent_seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSnapshot:
    """
    State of a link.

    Reason for its size: one field for each figure that is shown.

    Attributes:
        state: ``preparing``, ``waiting``, ``acquiring``, ``running``, ``paused``, ``stopping``, ``done`` or
            ``failed``.
        error: Reason of its failure.
        waiting: Error that it waits for before it can run, with alias and address of the cluster; it is retried.
        away: Error of the driver's last question to a cluster while the link runs; empty if the last one of each kind
            was answered.
        fix: Recommended action for ``error``, ``waiting`` or ``away``; may be empty.
        counters: Its work in this run.
        records_per_second: Mean over the last `RATE_WINDOW_SECONDS`.
        bytes_per_second: Mean over the last `RATE_WINDOW_SECONDS`.
        commit_ms: Mean over lanes of the duration of the last commit.
        lag_records: Sum over topics that are neither stopped nor paused; None if one is unknown, or all are paused.
        lag_seconds: Maximum over the same topics; None if one is unknown, or all are paused.
        goals: Number of partitions that ``until="caught-up"`` waits for.
        goals_reached: Number of these that have reached their goal.
        behind_open: Partition -> offsets behind its goal that an open transaction of the source held back when the run
            began, and that are not mirrored.
        groups: State of the followed consumer groups; None if it follows none.
        generation: Generation of its lane layout; None before it is published.
        run: Id of the run, as in control and positions.
        source_age_seconds: Time since the source last answered the driver; None before the first answer.
        source_failing_seconds: Time since the source stopped answering; 0 while it answers.
        claim_age_seconds: Time since the driver last renewed its claim; None before the first renewal.
        paused: Regular expression of the topics that its lanes hold; empty for none.
        spark_jobs: Attempts of lanes that Spark runs, each a job of its own.
        caught_up: True if the run ends, or has ended, because all goals were reached; the lag is the one that ended it.
        lag_unknown: Reason why ``lag_records`` is unknown, with the partitions; else empty.
    """

    link: str
    state: str
    error: str = ""
    waiting: str = ""
    away: str = ""
    fix: str = ""
    superseded: bool = False
    counters: Counters = field(default_factory=Counters)
    records_per_second: float = 0.0
    bytes_per_second: float = 0.0
    commit_ms: float = 0.0
    lag_records: int | None = None
    lag_seconds: float | None = None
    lanes: tuple[LaneSnapshot, ...] = ()
    topics: tuple[TopicSnapshot, ...] = ()
    goals: int = 0
    goals_reached: int = 0
    behind_open: Mapping[str, int] = field(default_factory=dict)
    groups: GroupsSnapshot | None = None
    generation: int | None = None
    run: str = ""
    source_age_seconds: float | None = None
    source_failing_seconds: float = 0.0
    claim_age_seconds: float | None = None
    paused: str = ""
    spark_jobs: int = 0
    caught_up: bool = False
    lag_unknown: str = ""

    @property
    def stopped_topics(self) -> dict[str, str]:
        """Reason of each stopped topic."""
        return {topic.topic: topic.stopped for topic in self.topics if topic.stopped}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """
    State of the whole mirror.

    Attributes:
        seconds: Time since the start of the run.
        links: States of the links, in the order of the configuration.
    """

    seconds: float
    links: tuple[LinkSnapshot, ...]

    @property
    def counters(self) -> Counters:
        """Sum over links."""
        return Counters.sum(link.counters for link in self.links)

    @property
    def records_per_second(self) -> float:
        """Sum over links."""
        return sum(link.records_per_second for link in self.links)

    @property
    def bytes_per_second(self) -> float:
        """Sum over links."""
        return sum(link.bytes_per_second for link in self.links)

    @property
    def lag_records(self) -> int | None:
        """Sum over links; None if one is unknown."""
        return sum_known([link.lag_records for link in self.links])

    @property
    def lag_seconds(self) -> float | None:
        """Maximum over links; None if one is unknown."""
        return max_known([link.lag_seconds for link in self.links])

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON-compatible values."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """
    Result of a link in a run.

    Attributes:
        outcome: ``caught up``, ``time over``, ``stopped`` or ``failed``.
        generation: Generation of its lane layout; None if it did not get that far.
        counters: Its work.
        lag_records: Lag at the end, as last seen; None if unknown.
        lag_unknown: Reason why it is unknown; else empty.
        retries: Attempts of lanes that ended early.
        error: Reason of its failure, or the error that it still waited for before its start.
        behind_open: Partition -> offsets that an open transaction of the source holds back: a run that has caught up
            has not mirrored them.
    """

    link: str
    outcome: str
    generation: int | None = None
    counters: Counters = field(default_factory=Counters)
    lag_records: int | None = None
    lag_unknown: str = ""
    retries: int = 0
    stopped_topics: Mapping[str, str] = field(default_factory=dict)
    error: str = ""
    behind_open: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """
    Result of a run.

    Attributes:
        run: Id of the run, as in control and positions.
        exit_code: 0; or 4 or 1 if a run with ``until`` stopped topics, or ended before a link had started; or 4 if
            topics are stopped for data loss at the end of any other run.
        aborted: True if a lane was cancelled because it did not finish its transaction in time; its open transaction
            is aborted, and no record is lost.
    """

    run: str
    seconds: float
    exit_code: int = 0
    aborted: bool = False
    links: tuple[LinkReport, ...] = ()

    @property
    def counters(self) -> Counters:
        """Sum over links."""
        return Counters.sum(link.counters for link in self.links)

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields as JSON-compatible values."""
        return asdict(self)


def sum_known(values: Sequence[int | None]) -> int | None:
    """Returns the sum; None if a value is None."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def max_known(values: Sequence[float | None]) -> float | None:
    """Returns the maximum; None if a value is None."""
    known = [value for value in values if value is not None]
    return max(known, default=0.0) if len(known) == len(values) else None
