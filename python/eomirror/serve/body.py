"""A link with its verdict: pages are drawn from it, and it is the JSON of ``/api/v1``. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from eomirror.lane.measures import Histogram
from eomirror.metrics.verdict import NO_ACTION
from eomirror.records.promotion import standing_fence
from eomirror.status.lag import lag_rows, topic_state
from eomirror.status.model import as_json
from eomirror.status.retention import RETENTION_FIX, retention_risk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from eomirror.metrics.verdict import Verdict
    from eomirror.records.events import LinkEvent
    from eomirror.status.lag import LagRow
    from eomirror.status.live import LinkFacts, LinkView
    from eomirror.status.model import LinkStatus, PartitionStatus

__all__ = [
    "HIDDEN",
    "OPEN_SECONDS",
    "Judged",
    "Task",
    "Value",
    "Work",
    "link_body",
    "masked",
    "summary_body",
    "topic_body",
]

Value = TypeVar("Value")

#: Stands in place of a text that contains a secret.
HIDDEN = "hidden, because it contains a secret"

#: A transaction of the source that is open for longer than this is listed: shorter ones are work in progress.
OPEN_SECONDS = 5.0

_MOST_STOPS = 3

_DEAD_LETTER = "dead-letter"

_NUMBERS = {bool, int, float}

# JSON of a link, of the rows of its topics, and of what else there is: see `eomirror.status.model.as_json`
_SUMMARY = """
    link=name source=facts.source target=facts.target state=status.state ended=status.ended verdict=verdict.word
    reason=verdict.text fix=verdict.fix since=verdict.since_ms failover=verdict.failover lag_records=status.lag_records
    lag_seconds=status.lag_seconds known_lag_records held_back known_lost=status.known_lost
    source_seen_seconds=status.source_seen_seconds unknown_topics records_per_second=status.rate topics
    kept_seconds=view.kept_seconds away=status.away todo last_commit owner=status.owner
"""
_LINK = """
    naming=facts.naming plane=facts.plane generation=status.generation problem=status.problem
    clock_offset_seconds=status.clock_offset_seconds source_seconds=status.source_seconds
    target_seconds=status.target_seconds work stopped=status.stopped gaps=status.gaps fence=status.fence
    retention=status.retention hanging=status.hanging drifted=status.drifted foreign=status.foreign
    restarts=status.restarts verifications=status.verifications tail=status.tail drill=status.drill groups=status.groups
    comparison=status.comparison
    refused_configuration=status.refused_configuration events
"""
_ROW = "topic lag_records lag_seconds rate records state problem fix"
_PARTITION = """
    partition lane position source_lso lag_records lag_seconds open_records open_seconds rate records last_commit
    problem fix
"""
_OPEN = "topic partition from=source_lso offsets=open_records seconds=open_seconds"


@dataclass(frozen=True, slots=True)
class Task:
    """An action that a link needs, with the command."""

    what: str
    fix: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """
    Times of a running link's transactions, since its start.

    Attributes:
        transactions: Number of committed transactions.
        transaction_seconds: Mean duration; None without transactions.
        latency_seconds: Mean time from a record's timestamp to its commit; None if none was measured.
        commit_seconds: Mean duration of the last commit of each lane; 0 without one.
        throttled_seconds: Time that quotas have throttled the lanes.
        source_age_seconds: Time since the source last answered; None before.
    """

    transactions: int
    transaction_seconds: float | None
    latency_seconds: float | None
    commit_seconds: float
    throttled_seconds: float
    source_age_seconds: float | None


@dataclass(eq=False)
class Judged:
    """
    A link with its verdict; what is computed of it is kept.

    Attributes:
        age_seconds: Time since it was read, which `eomirror.serve.endpoints` updates.
        before: Verdict of the last read that succeeded, if the topics cannot be read now; else None.
    """

    view: LinkView
    verdict: Verdict
    age_seconds: float
    before: Verdict | None = None

    @property
    def facts(self) -> LinkFacts:
        """Configured facts of the link."""
        return self.view.facts

    @property
    def name(self) -> str:
        """Name of the link."""
        return self.view.facts.name

    @property
    def status(self) -> LinkStatus:
        """Its status."""
        return self.view.status

    @cached_property
    def topic_rows(self) -> list[LagRow]:
        """Its topics, those that lag most first."""
        return lag_rows([self.status], partitions=False)

    def partitions_of(self, topic: str) -> list[PartitionStatus]:
        """Returns the partitions of a topic, those that lag most first."""
        parts = [
            item
            for item in self.status.partitions
            if item.topic == topic and (not item.parked or item.problem)
        ]
        parts.sort(key=lambda item: (item.lag_records is not None, -(item.lag_records or 0), item.partition))
        return parts

    @property
    def held_back(self) -> int:
        """Offsets that old open transactions of the source hold back."""
        return sum(
            item.open_records or 0
            for item in self.status.partitions
            if not item.parked and (item.open_seconds or 0.0) >= OPEN_SECONDS
        )

    @cached_property
    def topics(self) -> int:
        """Number of mirrored topics."""
        return len({item.topic for item in self.status.partitions if not item.parked})

    @cached_property
    def unknown_topics(self) -> int:
        """Number of these topics whose lag is unknown."""
        parts = self.status.partitions
        return len(
            {item.topic for item in parts if not item.parked and not item.gone and item.lag_records is None}
        )

    @cached_property
    def known_lag_records(self) -> int:
        """Lag of the others."""
        return sum(item.lag_records or 0 for item in self.status.partitions if not item.parked)

    @cached_property
    def last_commit(self) -> int | None:
        """Time of the last commit, ms since the epoch; None if unknown."""
        commits = (item.last_commit for item in self.status.partitions)
        return max((self.view.commit_ms or 0, *commits), default=0) or None

    @cached_property
    def open_transactions(self) -> list[PartitionStatus]:
        """Partitions that an open transaction of the source holds back for more than `OPEN_SECONDS`."""
        parts = self.status.partitions
        return [item for item in parts if item.open_records and (item.open_seconds or 0.0) >= OPEN_SECONDS]

    @cached_property
    def dead_letters(self) -> dict[str, int]:
        """Topics with records that the target refused, by number since the link first ran, as far as known."""
        found: Counter[str] = Counter()
        for item in self.status.partitions:
            found[item.topic] += item.dropped.get(_DEAD_LETTER, 0)
        for topic in () if self.view.live is None else self.view.live.topics:
            # the driver knows those of its run before a read of the topics shows them
            found[topic.topic] = max(found[topic.topic], topic.work.dropped.get(_DEAD_LETTER, 0))
        return {topic: number for topic, number in sorted(found.items()) if number}

    @cached_property
    def body(self) -> dict[str, Any]:
        """The JSON of the link, as of its first use."""
        lanes = sorted(self.status.lanes.items())
        return {
            **summary_body(self),
            **as_json(self, _LINK),
            "lanes": [{"lane": number, **as_json(lane)} for number, lane in lanes],
            "topic_rows": as_json(self.topic_rows, _ROW),
            "dead_letters": [
                {"topic": topic, "records": number} for topic, number in self.dead_letters.items()
            ],
            "open_transactions": as_json(self.open_transactions, _OPEN),
        }

    @property
    def events(self) -> Sequence[LinkEvent]:
        """Events, newest first."""
        return self.status.events[::-1]

    @cached_property
    def work(self) -> Work | None:
        """Times of its transactions; None if this process does not run it."""
        if (live := self.view.live) is None:
            return None
        durations, latency = Histogram(), Histogram()
        for lane in live.lanes:
            durations = durations.plus(lane.work.measures.durations)
            latency = latency.plus(lane.work.measures.latency)
        return Work(
            transactions=sum(lane.work.committed for lane in live.lanes),
            transaction_seconds=_mean(durations),
            latency_seconds=_mean(latency),
            commit_seconds=live.commit_ms / 1000,
            throttled_seconds=sum(lane.serving.throttled or 0.0 for lane in live.lanes),
            source_age_seconds=live.source_age_seconds,
        )

    @cached_property
    def todo(self) -> list[Task]:
        """
        Actions that the link needs, the most urgent first.

        They are that of the verdict, then those that it does not name: for stopped topics, for records that the source
        is about to delete, and for what was wrong when the topics could be read.
        """
        verdict, status, before = self.verdict, self.status, self.before
        found = []
        if verdict.word not in NO_ACTION:
            found.append(Task(verdict.text, verdict.fix))
        if before is not None and before.word not in NO_ACTION:
            # the target must answer first; what was wrong then is most likely wrong still
            found.append(Task(f"when it was last read: {before.text}", before.fix))
        if not status.ended:
            named = "stopped" in {verdict.word, "" if before is None else before.word}
            stops = status.stopped[int(named) :]
            found += [
                Task(f"topic {stop.topic} is stopped: {stop.reason}", stop.fix)
                for stop in stops[:_MOST_STOPS]
            ]
            if (more := len(stops) - _MOST_STOPS) > 0:
                found.append(Task(f"{more} more topics are stopped", "see the problems of the link"))
            if status.fence is not None:
                # of a promoted link it keeps applications off the old source, and the page of the link shows it
                found.append(Task(*standing_fence(status.link, status.fence)))
        if verdict.word != "down" and (risk := retention_risk(status.retention)):
            found.append(Task(risk, RETENTION_FIX))
        return found


def summary_body(judged: Judged) -> dict[str, Any]:
    """Returns the summary of a link."""
    before = judged.before
    return {
        **as_json(judged, _SUMMARY),
        "stopped_topics": len(judged.status.stopped),
        "age_seconds": round(judged.age_seconds, 1),
        "live": judged.view.live is not None,
        "before": None if before is None else {"verdict": before.word, "reason": before.text},
    }


def link_body(judged: Judged) -> dict[str, Any]:
    """Returns everything about a link: summary, owner, lanes, topics, groups, gaps, verifications, events."""
    return {**judged.body, "age_seconds": round(judged.age_seconds, 1)}


def topic_body(row: LagRow, partitions: Sequence[PartitionStatus]) -> dict[str, Any]:
    """Returns one topic of a link with its partitions."""
    shown = [{**as_json(item, _PARTITION), "state": topic_state([item])} for item in partitions]
    return {**as_json(row, f"{_ROW} target_topic"), "partitions": shown}


def _mean(histogram: Histogram) -> float | None:
    count = sum(histogram.counts)
    return histogram.total / count if count else None


def masked(value: Value, holds_secret: Callable[[str], bool]) -> Value:
    """Returns a copy of a value in which each text that contains a secret is `HIDDEN`."""
    known: dict[str, bool] = {}

    def holds(text: str) -> bool:
        # states and reasons repeat in thousands of rows
        found = known.get(text)
        if found is None:
            found = known[text] = holds_secret(text)
        return found

    found: Value = _masked(value, holds)
    return found


def _masked(value: Any, holds_secret: Callable[[str], bool]) -> Any:
    """Returns the value itself if no text of it contains a secret."""
    if isinstance(value, str):
        return HIDDEN if value and holds_secret(value) else value
    if isinstance(value, dict):
        shown = {key: _masked(item, holds_secret) for key, item in value.items()}
        return shown if any(shown[key] is not item for key, item in value.items()) else value
    if isinstance(value, list | tuple):
        items = [_masked(item, holds_secret) for item in value]
        changed = any(item is not before for item, before in zip(items, value, strict=True))
        return (items if isinstance(value, list) else tuple(items)) if changed else value
    if not is_dataclass(value) or isinstance(value, type):
        return value
    hidden = {}
    for name in _names(type(value)):
        before = getattr(value, name)
        # most of thousands of rows are numbers
        if before is not None and type(before) not in _NUMBERS:
            after = _masked(before, holds_secret)
            if after is not before:
                hidden[name] = after
    return replace(value, **hidden) if hidden else value


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(item.name for item in fields(kind))
