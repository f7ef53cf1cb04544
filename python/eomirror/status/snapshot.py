"""Snapshots of a running mirror, and the report of a run: plain values. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from eomirror.records.control import Pause, Stopped
from eomirror.status.model import GroupsStatus, LinkStatus, OwnerStatus
from eomirror.status.work import Counters, TopicWork

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.groups.followed_groups import GroupsSnapshot
    from eomirror.lane.spec import StoppedTopic
    from eomirror.records.reports import RefusedConfiguration
    from eomirror.status.goals import GoalProgress
    from eomirror.status.model import LaneStatus, PartitionStatus, SchemasStatus

__all__ = [
    "ASKED_SECONDS",
    "RATE_WINDOW_SECONDS",
    "LinkReport",
    "LinkSnapshot",
    "RunReport",
    "Snapshot",
    "TopicSnapshot",
    "max_known",
    "sum_known",
]

#: The source was asked if it answered within this time; the driver asks every 5 s.
ASKED_SECONDS = 15.0

#: Window of rates, in seconds.
RATE_WINDOW_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """
    State of a source topic.

    Attributes:
        topic: Name on the source.
        partitions: States of its partitions, by number.
        lag_records: Sum over partitions; None if one is unknown.
        lag_seconds: Maximum over partitions; None if one is unknown.
        stopped: Reason why the topic is stopped; None while it is mirrored.
        work: Work on it in this run.
        paused: True if lanes hold it (`eomirror pause`).
    """

    topic: str
    target_topic: str
    partitions: tuple[PartitionStatus, ...]
    lag_records: int | None
    lag_seconds: float | None
    stopped: StoppedTopic | None = None
    work: TopicWork = field(default_factory=TopicWork)
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSnapshot:
    """
    State of a link.

    Reason for its size: one field for each figure that is shown.

    Attributes:
        state: ``standby``, ``preparing``, ``waiting``, ``acquiring``, ``running``, ``paused``, ``stopping``, ``done``
            or ``failed``.
        error: Reason of its failure, without the fix.
        superseded: True if it failed because another mirror has taken it.
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
        goal_progress: Distance from these goals; None while a position is unknown, or without goals.
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
        refused_configuration: Changed configuration file that is refused; None for none.
        lag_unknown: Reason why ``lag_records`` is unknown, with the partitions; else empty.
        schemas: Mirror of schema registries; None if the link mirrors none.
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
    lanes: tuple[LaneStatus, ...] = ()
    topics: tuple[TopicSnapshot, ...] = ()
    goals: int = 0
    goals_reached: int = 0
    goal_progress: GoalProgress | None = None
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
    refused_configuration: RefusedConfiguration | None = None
    lag_unknown: str = ""
    schemas: SchemasStatus | None = None

    @property
    def stopped_topics(self) -> dict[str, str]:
        """Reason of each stopped topic, with its fix."""
        return {topic.topic: str(topic.stopped) for topic in self.topics if topic.stopped}

    @property
    def status(self) -> LinkStatus:
        """
        Status of the link, as far as the driver knows it.

        A lag of 0 is true only while the source answers: a lane that is caught up and hears nothing more would show it
        for ever.  So a lag of 0 is unknown when the source has not answered the driver within `ASKED_SECONDS`.  That of
        a run that ended as caught up is true as of its goals, which the source answered, however long Spark took to
        start.  No lane reads the end of a topic that is paused or stopped: its lag is unknown.
        """
        age = self.source_age_seconds
        asked = self.caught_up or (age is not None and age <= ASKED_SECONDS)
        partitions = tuple(
            replace(item, source_lso=None, lag_records=None, lag_seconds=None)
            if topic.paused or topic.stopped
            else item
            if item.lag_records or asked
            else replace(item, lag_records=None, lag_seconds=None)
            for topic in self.topics
            for item in topic.partitions
        )
        lag_records, lag_seconds = self.lag_of(partitions)
        followed = None if self.groups is None else self.groups.followed
        return LinkStatus(
            link=self.link,
            state=self.state,
            generation=self.generation,
            owner=OwnerStatus(run=self.run, claim_age_seconds=self.claim_age_seconds),
            lanes={lane.lane: lane for lane in self.lanes},
            lag_records=lag_records,
            lag_seconds=lag_seconds,
            rate=self.records_per_second,
            partitions=partitions,
            stopped=tuple(_stop(topic.topic, topic.stopped) for topic in self.topics if topic.stopped),
            groups=None
            if followed is None
            else GroupsStatus(followed=followed, offsets=0, last_checkpoint=None),
            paused=Pause(topics=self.paused, host="", timestamp=0) if self.paused else None,
            problem=self.error or self.waiting or self.away,
            fix=self.fix,
            refused_configuration=self.refused_configuration,
            schemas=self.schemas,
        )

    def lag_of(self, partitions: Sequence[PartitionStatus]) -> tuple[int | None, float | None]:
        """Returns the lag of these partitions of the link in records and in seconds; None if one is unknown."""
        held = all(topic.paused or topic.stopped for topic in self.topics) and bool(partitions)
        records = sum_known([item.lag_records for item in partitions])
        behind = max_known([item.lag_seconds for item in partitions])
        return (
            records if held or self.lag_records is not None else None,
            behind if held or self.lag_seconds is not None else None,
        )


def _stop(topic: str, stop: StoppedTopic) -> Stopped:
    """Returns a stop without its record, of which only the topics know run and time."""
    return Stopped(
        topic=topic,
        reason=stop.reason,
        fix=stop.fix,
        exit_code=stop.exit_code,
        lane=None,
        run="",
        timestamp=0,
    )


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
        offsets_left: Offsets between the positions and the goals of the run; None if unknown, or without goals.
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
    offsets_left: int | None = None
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
