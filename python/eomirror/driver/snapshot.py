"""What a running mirror shows of itself, and what a run leaves behind: plain values. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

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

#: Rates are averages over the last so many seconds.
RATE_WINDOW_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """
    Committed work.

    Attributes:
        transactions: Committed transactions.
        records: Mirrored records.
        bytes: Their keys, values and headers.
        dropped: Records dropped on purpose.
        copied_headers: Mirrored records that carried the provenance header of another record: an application had
            copied it, and they count as local.
    """

    transactions: int = 0
    records: int = 0
    bytes: int = 0
    dropped: int = 0
    copied_headers: int = 0

    def at_least(self, other: Counters) -> Counters:
        """The larger of each: of one attempt that has spoken twice."""
        return Counters(
            transactions=max(self.transactions, other.transactions),
            records=max(self.records, other.records),
            bytes=max(self.bytes, other.bytes),
            dropped=max(self.dropped, other.dropped),
            copied_headers=max(self.copied_headers, other.copied_headers),
        )

    def plus(self, other: Counters) -> Counters:
        """The sum of both."""
        return Counters(
            transactions=self.transactions + other.transactions,
            records=self.records + other.records,
            bytes=self.bytes + other.bytes,
            dropped=self.dropped + other.dropped,
            copied_headers=self.copied_headers + other.copied_headers,
        )

    @staticmethod
    def sum(several: Iterable[Counters]) -> Counters:
        """The sum of all."""
        total = Counters()
        for counters in several:
            total = total.plus(counters)
        return total


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSnapshot:
    """
    A source partition.

    Attributes:
        partition: Its number.
        lane: Lane that mirrors it.
        position: Next offset to fetch, as committed; None before its lane has said so.
        lso: Last stable offset of the source as last seen.
        lag_records: Offsets between both, markers counted; None when not known.
        lag_seconds: How long the oldest record not mirrored has been on the source, at most; 0 when there is none;
            None when not known.
        goal: Offset that ``until="caught-up"`` waits for; None when it waits for none.
    """

    partition: int
    lane: int
    position: int | None = None
    lso: int | None = None
    lag_records: int | None = None
    lag_seconds: float | None = None
    goal: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSnapshot:
    """
    A source topic.

    Attributes:
        topic: Its name.
        target_topic: Where it goes.
        partitions: One per partition, by number.
        lag_records: Sum over partitions; None when one is not known.
        lag_seconds: Largest over partitions; None when one is not known.
        stopped: Why it is not mirrored any more; empty while it is.
    """

    topic: str
    target_topic: str
    partitions: tuple[PartitionSnapshot, ...]
    lag_records: int | None
    lag_seconds: float | None
    stopped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSnapshot:
    """
    A lane.

    Attributes:
        lane: Its number.
        state: Of its machine while a worker runs it; ``starting``, ``waiting``, ``idle`` or ``ended`` otherwise.
        epoch: Number of its epoch.
        attempt: Number of the attempt in it.
        retries: Attempts of this run that ended early.
        last_failure: Why the last of them ended.
        commit_ms: How long its last commit took.
        counters: Its work in this run.
        plane: Which plane moves its bytes, ``native`` or ``client``; empty before it has said so.
        plane_reason: Why it is not the native one.
        throttled_seconds: For how long brokers' quotas have held it back since it opened its plane; None where that
            is not known.
        delayed: Which partitions of the source it cannot read for some time now, and why; empty where nothing is known.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSnapshot:
    """
    A link.

    Attributes:
        link: Its name.
        state: ``preparing``, ``waiting``, ``acquiring``, ``running``, ``stopping``, ``done`` or ``failed``.
        error: Why it failed.
        waiting: What it waits for before it can run, with the cluster's alias and address; it is tried again and again.
        counters: Its work in this run.
        records_per_second: Over the last `RATE_WINDOW_SECONDS`.
        bytes_per_second: Likewise.
        commit_ms: Mean over lanes of how long the last commit took.
        lag_records: Sum over topics that are not stopped; None when one is not known.
        lag_seconds: Largest over topics that are not stopped; None when one is not known.
        lanes: Its lanes.
        topics: Its topics, by name.
        goals: How many partitions ``until="caught-up"`` waits for in all.
        goals_reached: How many of them are there.
        groups: How it follows consumer groups; None where it does not.
    """

    link: str
    state: str
    error: str = ""
    waiting: str = ""
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
    groups: GroupsSnapshot | None = None

    @property
    def stopped_topics(self) -> dict[str, str]:
        """Topics that are not mirrored any more, and why."""
        return {topic.topic: topic.stopped for topic in self.topics if topic.stopped}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """
    The whole mirror at one moment.

    Attributes:
        seconds: Since the run began.
        links: In the order of the configuration.
    """

    seconds: float
    links: tuple[LinkSnapshot, ...]

    @property
    def counters(self) -> Counters:
        """Of all links."""
        return Counters.sum(link.counters for link in self.links)

    @property
    def records_per_second(self) -> float:
        """Of all links."""
        return sum(link.records_per_second for link in self.links)

    @property
    def bytes_per_second(self) -> float:
        """Of all links."""
        return sum(link.bytes_per_second for link in self.links)

    @property
    def lag_records(self) -> int | None:
        """Sum over links; None when one is not known."""
        return sum_known([link.lag_records for link in self.links])

    @property
    def lag_seconds(self) -> float | None:
        """Largest over links; None when one is not known."""
        return max_known([link.lag_seconds for link in self.links])

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkReport:
    """
    What a link did in a run.

    Attributes:
        link: Its name.
        outcome: ``caught up``, ``time over``, ``stopped`` or ``failed``.
        generation: Lane layout it ran; None if it never got that far.
        counters: Its work.
        lag_records: What was left, as last seen; None when not known.
        retries: Attempts of lanes that ended early.
        stopped_topics: Topics that it stopped mirroring, and why.
        error: Why it failed, or what it still waited for before it could begin.
    """

    link: str
    outcome: str
    generation: int | None = None
    counters: Counters = field(default_factory=Counters)
    lag_records: int | None = None
    retries: int = 0
    stopped_topics: Mapping[str, str] = field(default_factory=dict)
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """
    What a run did.

    Attributes:
        run: Its id, as in control and positions.
        seconds: How long it took.
        exit_code: 0; or 4 or 1 when a run that had an end to reach (``until``) stopped topics on the way, or ended
            before a link could begin.
        aborted: Whether a lane had to be cut off because it did not finish its transaction in time: its open
            transaction is aborted, nothing is lost.
        links: One per link.
    """

    run: str
    seconds: float
    exit_code: int = 0
    aborted: bool = False
    links: tuple[LinkReport, ...] = ()

    @property
    def counters(self) -> Counters:
        """Of all links."""
        return Counters.sum(link.counters for link in self.links)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def sum_known(values: Sequence[int | None]) -> int | None:
    """The sum; None when one is not known."""
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def max_known(values: Sequence[float | None]) -> float | None:
    """The largest; None when one is not known."""
    known = [value for value in values if value is not None]
    return max(known, default=0.0) if len(known) == len(values) else None
