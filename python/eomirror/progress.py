"""
Where a running mirror stands, put together from what its lanes say: pure, reports and time in, a picture out.

`Progress` collects; `Snapshot` is what a callback, the terminal and the metrics get; `RunReport` is what a run
leaves behind.  Counters are totals of the run: a lane counts from 0 in every attempt, and this module adds up.
"""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.lane.spec import LaneProgress, LaneReport, PartitionProgress

__all__ = [
    "RATE_WINDOW_SECONDS",
    "Counters",
    "LaneSnapshot",
    "LinkReport",
    "LinkSnapshot",
    "PartitionSnapshot",
    "Progress",
    "RunReport",
    "Snapshot",
    "TopicSnapshot",
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
    """

    transactions: int = 0
    records: int = 0
    bytes: int = 0
    dropped: int = 0

    def plus(self, other: Counters) -> Counters:
        """The sum of both."""
        return Counters(
            transactions=self.transactions + other.transactions,
            records=self.records + other.records,
            bytes=self.bytes + other.bytes,
            dropped=self.dropped + other.dropped,
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
        lag_seconds: Age of the oldest record not mirrored; 0 when there is none; None when not known.
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
    """

    lane: int
    state: str = "starting"
    epoch: int = 0
    attempt: int = 0
    retries: int = 0
    last_failure: str = ""
    commit_ms: float = 0.0
    counters: Counters = field(default_factory=Counters)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSnapshot:
    """
    A link.

    Attributes:
        link: Its name.
        state: ``preparing``, ``acquiring``, ``running``, ``stopping``, ``done`` or ``failed``.
        error: Why it failed.
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
    """

    link: str
    state: str
    error: str = ""
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
        return _sum_known([link.lag_records for link in self.links])

    @property
    def lag_seconds(self) -> float | None:
        """Largest over links; None when one is not known."""
        return _max_known([link.lag_seconds for link in self.links])

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
        error: Why it failed.
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
        exit_code: 0; or 4 or 1 when a run that had an end to reach (``until``) stopped topics on the way.
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


class Progress:
    """
    Collects what the lanes of one link say.  Not thread-safe: its owner holds a lock.

    Args:
        link: Name of the link.
    """

    def __init__(self, link: str) -> None:
        self.link = link
        self.state = "preparing"
        self.error = ""
        self.stopped_codes: dict[str, int] = {}
        self._stopped: dict[str, str] = {}
        self._lanes: dict[int, _Lane] = {}
        self._lane_of: dict[SourcePartition, int] = {}
        self._target_of: dict[str, str] = {}
        self._positions: dict[SourcePartition, PartitionProgress] = {}
        self._goals: dict[SourcePartition, int] = {}
        self._history: deque[tuple[float, int, int]] = deque()

    # -- what happens ----------------------------------------------------------------------------

    def assign(self, lane: int, source: SourcePartition, target_topic: str) -> None:
        """A lane mirrors this partition."""
        self._lane(lane)
        self._lane_of[source] = lane
        self._target_of[source.topic] = target_topic

    def aim(self, goals: Mapping[SourcePartition, int]) -> None:
        """``until="caught-up"`` waits for these positions; partitions that no lane mirrors do not count."""
        self._goals = {source: goal for source, goal in goals.items() if source in self._lane_of}

    def begin(self, lane: int, *, epoch: int, attempt: int) -> None:
        """A new attempt starts; its counters begin at 0."""
        self._lane(lane).begin(epoch, attempt)

    def say(self, lane: int, state: str) -> None:
        """The driver knows the lane's state better than the lane, because no worker runs it."""
        self._lane(lane).state = state

    def take(self, progress: LaneProgress, *, attempt: int, now: float) -> None:
        """
        A lane's sign of life.

        Args:
            progress: What it says.
            attempt: Attempt that says it; an older one than the present is ignored but for its positions.
            now: Monotonic seconds.
        """
        lane = self._lane(progress.lane)
        for item in progress.partitions:
            source = SourcePartition(item.topic, item.partition)
            known = self._positions.get(source)
            # positions are committed facts and only grow, but for a source that was recreated and adopted
            if (
                known is None
                or item.position >= known.position
                or (progress.epoch, attempt) >= lane.attempt_id
            ):
                self._positions[source] = item
        for topic, reason in progress.stopped_topics.items():
            self._stopped.setdefault(topic, reason)
        if (progress.epoch, attempt) != lane.attempt_id:
            return
        lane.state = progress.state
        lane.commit_ms = progress.commit_ms
        lane.current = Counters(
            transactions=progress.transactions,
            records=progress.records,
            bytes=progress.bytes,
            dropped=progress.dropped,
        )
        self._remember(now)

    def end(self, report: LaneReport, *, failure: str = "", now: float) -> None:
        """
        An attempt ended with a report.

        Args:
            report: The report; its totals are final.
            failure: Why it ended early; empty if it did not.
            now: Monotonic seconds.
        """
        lane = self._lane(report.lane)
        if (report.epoch, report.attempt) == lane.attempt_id:
            lane.current = Counters(
                transactions=max(report.transactions, lane.current.transactions),
                records=max(report.records, lane.current.records),
                bytes=lane.current.bytes,
                dropped=lane.current.dropped,
            )
        for topic, (code, reason) in report.stopped_topics.items():
            self._stopped[topic] = reason
            self.stopped_codes[topic] = max(code, self.stopped_codes.get(topic, 0))
        if failure:
            self.fail_attempt(report.lane, failure)
        self._remember(now)

    def fail_attempt(self, lane: int, failure: str) -> None:
        """An attempt ended early."""
        self._lane(lane).retries += 1
        self._lane(lane).last_failure = failure

    # -- what follows from it --------------------------------------------------------------------

    @property
    def caught_up(self) -> bool:
        """Whether every goal is reached, or its topic is stopped."""
        return all(self._reached(source, goal) for source, goal in self._goals.items())

    def committed(self, lane: int) -> bool:
        """Whether the lane's present attempt has committed anything."""
        return self._lane(lane).current.transactions > 0

    @property
    def retries(self) -> int:
        """Attempts that ended early."""
        return sum(lane.retries for lane in self._lanes.values())

    def snapshot(self, now: float) -> LinkSnapshot:
        """The picture at ``now`` (monotonic seconds)."""
        self._remember(now)
        counters = Counters.sum(lane.total for lane in self._lanes.values())
        by_topic: dict[str, list[PartitionSnapshot]] = {}
        for source, lane in sorted(self._lane_of.items()):
            by_topic.setdefault(source.topic, []).append(self._partition(source, lane))
        topics = tuple(self._topic(topic, tuple(partitions)) for topic, partitions in by_topic.items())
        live = [topic for topic in topics if not topic.stopped]
        then, records, size = self._history[0]
        seconds = max(now - then, 1e-3)
        measured = len(self._history) > 1
        commits = [lane.commit_ms for lane in self._lanes.values() if lane.commit_ms > 0]
        return LinkSnapshot(
            link=self.link,
            state=self.state,
            error=self.error,
            counters=counters,
            records_per_second=(counters.records - records) / seconds if measured else 0.0,
            bytes_per_second=(counters.bytes - size) / seconds if measured else 0.0,
            commit_ms=sum(commits) / len(commits) if commits else 0.0,
            lag_records=_sum_known([topic.lag_records for topic in live]),
            lag_seconds=_max_known([topic.lag_seconds for topic in live]),
            lanes=tuple(lane.snapshot(number) for number, lane in sorted(self._lanes.items())),
            topics=topics,
            goals=len(self._goals),
            goals_reached=sum(self._reached(source, goal) for source, goal in self._goals.items()),
        )

    # -- inside ----------------------------------------------------------------------------------

    def _lane(self, number: int) -> _Lane:
        return self._lanes.setdefault(number, _Lane())

    def _reached(self, source: SourcePartition, goal: int) -> bool:
        if source.topic in self._stopped:
            return True
        known = self._positions.get(source)
        return known is not None and known.position >= goal

    def _remember(self, now: float) -> None:
        counters = Counters.sum(lane.total for lane in self._lanes.values())
        self._history.append((now, counters.records, counters.bytes))
        # keep one entry at or before the window's start, so that the window is full
        while len(self._history) > 1 and self._history[1][0] <= now - RATE_WINDOW_SECONDS:
            self._history.popleft()

    def _topic(self, topic: str, partitions: tuple[PartitionSnapshot, ...]) -> TopicSnapshot:
        return TopicSnapshot(
            topic=topic,
            target_topic=self._target_of[topic],
            partitions=partitions,
            lag_records=_sum_known([item.lag_records for item in partitions]),
            lag_seconds=_max_known([item.lag_seconds for item in partitions]),
            stopped=self._stopped.get(topic, ""),
        )

    def _partition(self, source: SourcePartition, lane: int) -> PartitionSnapshot:
        known = self._positions.get(source)
        goal = self._goals.get(source)
        if known is None:
            return PartitionSnapshot(partition=source.partition, lane=lane, goal=goal)
        lag = None if known.lso is None else max(0, known.lso - known.position)
        return PartitionSnapshot(
            partition=source.partition,
            lane=lane,
            position=known.position,
            lso=known.lso,
            lag_records=lag,
            lag_seconds=0.0 if lag == 0 else known.lag_seconds,
            goal=goal,
        )


class _Lane:
    """A lane's work: what earlier attempts of this run left, and what the present one says."""

    __slots__ = ("attempt_id", "before", "commit_ms", "current", "last_failure", "retries", "state")

    def __init__(self) -> None:
        self.attempt_id = (0, 0)
        self.before = Counters()
        self.current = Counters()
        self.state = "starting"
        self.commit_ms = 0.0
        self.retries = 0
        self.last_failure = ""

    def begin(self, epoch: int, attempt: int) -> None:
        self.before = self.total
        self.current = Counters()
        self.attempt_id = (epoch, attempt)
        self.state = "starting"

    @property
    def total(self) -> Counters:
        return self.before.plus(self.current)

    def snapshot(self, number: int) -> LaneSnapshot:
        return LaneSnapshot(
            lane=number,
            state=self.state,
            epoch=self.attempt_id[0],
            attempt=self.attempt_id[1],
            retries=self.retries,
            last_failure=self.last_failure,
            commit_ms=self.commit_ms,
            counters=self.total,
        )


def _sum_known(values: list[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if len(known) == len(values) else None


def _max_known(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return max(known, default=0.0) if len(known) == len(values) else None
