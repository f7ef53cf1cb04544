"""Builds the JSON of ``/api/v1``; the page is drawn from the same values. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from eomirror.lane.measures import Histogram
from eomirror.metrics.verdict import NO_ACTION
from eomirror.status.lag import lag_rows, topic_state
from eomirror.status.retention import RETENTION_FIX, retention_risk
from eomirror.status.standing_fence import standing_fence

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.metrics.verdict import Verdict
    from eomirror.status.live import LinkView
    from eomirror.status.snapshot import LinkSnapshot

__all__ = ["HIDDEN", "OPEN_SECONDS", "Judged", "link_body", "masked", "summary_body", "topic_body"]

#: Stands in place of a text that contains a secret.
HIDDEN = "hidden, because it contains a secret"

#: A transaction of the source that is open for longer than this is listed: shorter ones are work in progress.
OPEN_SECONDS = 5.0

_MOST_STOPS = 3

_DEAD_LETTER = "dead-letter"

# thousands of rows: `asdict` would take a tenth of a second
_ROW = ("topic", "lag_records", "lag_seconds", "rate", "records", "state", "problem", "fix")

_PARTITION = (
    "partition", "lane", "position", "source_lso", "lag_records", "lag_seconds", "open_records", "open_seconds",
    "rate", "records", "last_commit", "problem", "fix",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Judged:
    """
    A link with its verdict.

    Attributes:
        age_seconds: Time since it was read.
        before: Verdict of the last read that succeeded, if the topics cannot be read now; else None.
    """

    view: LinkView
    verdict: Verdict
    age_seconds: float
    before: Verdict | None = None


def summary_body(judged: Judged) -> dict[str, Any]:
    """Returns the summary of a link."""
    facts, status = judged.view.facts, judged.view.status
    topics = {item.topic for item in status.partitions if not item.parked}
    return {
        "link": facts.name,
        "source": facts.source,
        "target": facts.target,
        "state": status.state,
        "ended": status.ended,
        "verdict": judged.verdict.word,
        "reason": judged.verdict.text,
        "fix": judged.verdict.fix,
        "since": judged.verdict.since_ms,
        "failover": judged.verdict.failover,
        "lag_records": status.lag_records,
        "lag_seconds": status.lag_seconds,
        "known_lag_records": sum(item.lag_records or 0 for item in status.partitions if not item.parked),
        "held_back": sum(
            item.open_records or 0
            for item in status.partitions
            if not item.parked and (item.open_seconds or 0.0) >= OPEN_SECONDS
        ),
        "known_lost": status.known_lost,
        "source_seen_seconds": status.source_seen_seconds,
        "unknown_topics": len(
            {
                item.topic
                for item in status.partitions
                if not item.parked and not item.gone and item.lag_records is None
            }
        ),
        "records_per_second": status.rate,
        "topics": len(topics),
        "stopped_topics": len(status.stopped),
        "age_seconds": round(judged.age_seconds, 1),
        "kept_seconds": judged.view.kept_seconds,
        "live": judged.view.live is not None,
        "away": list(status.away),
        "before": None
        if judged.before is None
        else {"verdict": judged.before.word, "reason": judged.before.text},
        "todo": _todo(judged),
        "last_commit": max(
            (judged.view.commit_ms or 0, *(item.last_commit for item in status.partitions)), default=0
        )
        or None,
        "owner": status.owner,
    }


def _todo(judged: Judged) -> list[dict[str, str]]:
    """
    Returns what needs an action, the most urgent first.

    That is the verdict, then what it does not name: stopped topics, records that the source is about to delete, and
    what was wrong when the topics could be read.
    """
    verdict, status, before = judged.verdict, judged.view.status, judged.before
    found = []
    if verdict.word not in NO_ACTION:
        found.append({"what": verdict.text, "fix": verdict.fix})
    if before is not None and before.word not in NO_ACTION:
        # the target must answer first; what was wrong then is most likely wrong still
        found.append({"what": f"when it was last read: {before.text}", "fix": before.fix})
    if not status.ended:
        named = "stopped" in {verdict.word, "" if before is None else before.word}
        stops = status.stopped[int(named) :]
        found += [
            {"what": f"topic {stop['topic']} is stopped: {stop['reason']}", "fix": stop["fix"]}
            for stop in stops[:_MOST_STOPS]
        ]
        if (more := len(stops) - _MOST_STOPS) > 0:
            found.append({"what": f"{more} more topics are stopped", "fix": "see the problems of the link"})
        if status.fence is not None:
            # of a promoted link it keeps applications off the old source, and the page of the link shows it
            what, fix = standing_fence(status.link, status.fence)
            found.append({"what": what, "fix": fix})
    if verdict.word != "down" and (risk := retention_risk(status.retention)):
        found.append({"what": risk, "fix": RETENTION_FIX})
    return found


def link_body(judged: Judged) -> dict[str, Any]:
    """Returns everything about a link: summary, owner, lanes, topics, groups, gaps, verifications, events."""
    facts, status = judged.view.facts, judged.view.status
    return {
        **summary_body(judged),
        "naming": facts.naming,
        "plane": facts.plane,
        "generation": status.generation,
        "clock_offset_seconds": status.clock_offset_seconds,
        "problem": status.problem,
        "source_seconds": status.source_seconds,
        "target_seconds": status.target_seconds,
        "work": None if judged.view.live is None else _work(judged.view.live),
        "lanes": [{"lane": number, **lane} for number, lane in sorted(status.lanes.items())],
        "topic_rows": [
            {key: getattr(row, key) for key in _ROW} for row in lag_rows([status], partitions=False)
        ],
        "stopped": list(status.stopped),
        "gaps": list(status.gaps),
        "fence": status.fence,
        "retention": list(status.retention),
        "dead_letters": _dead_letters(judged.view),
        "hanging": list(status.hanging),
        "open_transactions": [
            {
                "topic": item.topic,
                "partition": item.partition,
                "from": item.source_lso,
                "offsets": item.open_records,
                "seconds": item.open_seconds,
            }
            for item in status.partitions
            if item.open_records and (item.open_seconds or 0.0) >= OPEN_SECONDS
        ],
        "drifted": list(status.drifted),
        "foreign": list(status.foreign),
        "restarts": list(status.restarts),
        "verifications": list(status.verifications),
        "tail": status.tail,
        "drill": status.drill,
        "groups": None if status.groups is None else asdict(status.groups),
        "events": [asdict(event) for event in reversed(status.events)],
    }


def topic_body(judged: Judged, topic: str) -> dict[str, Any] | None:
    """Returns one topic of a link with its partitions, those that lag most first; None if the link has it not."""
    status = judged.view.status
    rows = lag_rows([status], partitions=False, topics={topic})
    if not rows:
        return None
    parts = [item for item in status.partitions if item.topic == topic and (not item.parked or item.problem)]
    parts.sort(key=lambda item: (item.lag_records is not None, -(item.lag_records or 0), item.partition))
    return {
        **{key: getattr(rows[0], key) for key in (*_ROW, "target_topic")},
        "partitions": [
            {**{key: getattr(item, key) for key in _PARTITION}, "state": topic_state([item])}
            for item in parts
        ],
    }


def _dead_letters(view: LinkView) -> list[dict[str, Any]]:
    """Returns the topics with records that the target refused, by number since the link first ran, as far as known."""
    found: Counter[str] = Counter()
    for item in view.status.partitions:
        found[item.topic] += item.dropped.get(_DEAD_LETTER, 0)
    for topic in () if view.live is None else view.live.topics:
        # the driver knows those of its run before a read of the topics shows them
        found[topic.topic] = max(found[topic.topic], topic.work.dropped.get(_DEAD_LETTER, 0))
    return [{"topic": topic, "records": number} for topic, number in sorted(found.items()) if number]


def _work(live: LinkSnapshot) -> dict[str, Any]:
    """Returns the times of a running link's transactions, since its start."""
    durations, latency = Histogram(), Histogram()
    for lane in live.lanes:
        durations = durations.plus(lane.work.measures.durations)
        latency = latency.plus(lane.work.measures.latency)
    return {
        "transactions": sum(lane.work.committed for lane in live.lanes),
        "transaction_seconds": _mean(durations),
        "latency_seconds": _mean(latency),
        "commit_seconds": live.commit_ms / 1000,
        "throttled_seconds": sum(lane.throttled_seconds or 0.0 for lane in live.lanes),
        "source_age_seconds": live.source_age_seconds,
    }


def _mean(histogram: Histogram) -> float | None:
    count = sum(histogram.counts)
    return histogram.total / count if count else None


def masked(value: Any, holds_secret: Callable[[str], bool]) -> Any:
    """Returns a copy of a body in which each text that contains a secret is `HIDDEN`."""
    return _masked(value, holds_secret, {"": ""})


def _masked(value: Any, holds_secret: Callable[[str], bool], known: dict[str, str]) -> Any:
    # states and reasons repeat in thousands of rows
    if isinstance(value, str):
        shown = known.get(value)
        if shown is None:
            shown = known[value] = HIDDEN if holds_secret(value) else value
        return shown
    if isinstance(value, dict):
        return {key: _masked(item, holds_secret, known) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, holds_secret, known) for item in value]
    return value
