"""Turns views of links into samples of metrics. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.failover.machine import Verb
from eomirror.failover.readiness import Facts, Level, assess
from eomirror.lane.measures import DURATION_BOUNDS, LATENCY_BOUNDS, RECORDS_BOUNDS, Histogram
from eomirror.lane.spec import Ending
from eomirror.metrics.exposition import Exposition
from eomirror.metrics.families import LANE_FAMILIES, PREFIX, by_name
from eomirror.metrics.verdict import VERDICTS
from eomirror.records.events import RECENT_TAKE_OVER_MS, TAKE_OVER
from eomirror.records.position import QUERY_RULE
from eomirror.status.lag import total_lag
from eomirror.status.live import STATES
from eomirror.status.model import rule_counts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.metrics.families import Sink
    from eomirror.metrics.verdict import Verdict
    from eomirror.status.live import LinkView
    from eomirror.status.model import LinkStatus, PartitionStatus, SchemasStatus
    from eomirror.status.snapshot import LinkSnapshot

__all__ = ["MOST_AGES", "ProcessFacts", "collect", "exposition", "stop_reason"]

_EARLY_ENDINGS = tuple(
    str(ending) for ending in Ending if ending not in {Ending.EPOCH, Ending.STOPPED, Ending.SUPERSEDED}
)
_LOOP_REASONS = ("hop", "origin")
_DEAD_LETTER = "dead-letter"
_DIFFERENCES = ("missing", "duplicate", "reordered", "altered", "foreign")
#: Topics whose age since their last `verify` is exported.
MOST_AGES = 500
_LEVELS = {Level.OK: 0, Level.WARN: 1, Level.NO: 2}
_DATA_LOSS, _SUPERSEDED, _CONFIGURATION = 4, 5, 78


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """
    Figures of a process.

    Attributes:
        version: Release of eomirror.
        cpu_seconds: User and system CPU time.
        memory_bytes: Resident memory.
        started: Start, seconds since the epoch.
        open_files: Open file descriptors; None if unknown.
    """

    version: str
    cpu_seconds: float
    memory_bytes: int
    started: float
    open_files: int | None


def stop_reason(exit_code: int) -> str:
    """Returns the class of the error that stopped a topic, by its exit code."""
    named = {_DATA_LOSS: "data_loss", _SUPERSEDED: "superseded", _CONFIGURATION: "configuration"}
    return named.get(exit_code, "failed")


def exposition(
    views: Iterable[tuple[LinkView, Verdict]],
    process: ProcessFacts,
    *,
    now_ms: int,
    per_partition: bool = False,
    per_group: bool = False,
    openmetrics: bool = False,
) -> Exposition:
    """
    Returns the metrics of links and of this process.

    Args:
        views: The links, each with its verdict.
        process: This process.
        now_ms: Wall clock, for the age of checkpoints.
        per_partition: Also export the lag and the position of each partition.
        per_group: Also export lag and age of the first `eomirror.status.model.MOST_GROUPS` groups.
        openmetrics: Write OpenMetrics instead of format 0.0.4.
    """
    out = Exposition(openmetrics)
    collect(out, views, process, now_ms=now_ms, per_partition=per_partition, per_group=per_group)
    return out


def collect(
    out: Sink,
    views: Iterable[tuple[LinkView, Verdict]],
    process: ProcessFacts,
    *,
    now_ms: int,
    per_partition: bool = False,
    per_group: bool = False,
) -> None:
    """Adds the metrics of links and of this process to a sink; arguments are those of `exposition`."""
    out.add(_FAMILIES["build_info"], 1, process.version)
    for view, verdict in views:
        _Link(out, view, verdict).collect(now_ms, per_partition=per_partition, per_group=per_group)
    out.add(by_name["process_cpu_seconds_total"], process.cpu_seconds)
    out.add(by_name["process_resident_memory_bytes"], process.memory_bytes)
    out.add(by_name["process_start_time_seconds"], process.started)
    if process.open_files is not None:
        out.add(by_name["process_open_fds"], process.open_files)


_FAMILIES = {name.removeprefix(PREFIX): family for name, family in by_name.items()}


class _Link:
    """Adds the samples of one link."""

    def __init__(self, out: Sink, view: LinkView, verdict: Verdict) -> None:
        self._out = out
        self._verdict = verdict
        self._view = view
        self._name = view.facts.name

    def collect(self, now_ms: int, *, per_partition: bool, per_group: bool) -> None:
        facts, status = self._view.facts, self._view.status
        self._add("link_info", 1, facts.source, facts.target, facts.naming, facts.plane)
        for state in STATES:
            self._add("link_state", int(state == status.state), state)
        for word in VERDICTS:
            self._add("link_verdict", int(word == self._verdict.word), word)
        if self._view.read_seconds is not None:
            self._add("link_read_seconds", self._view.read_seconds)
        if status.state == "unknown":
            # its topics could not be read: nothing else is known, and an old value would look like a new one
            return
        if status.generation is not None:
            self._add("owner_generation", status.generation)
        self._add("owner_claim_age_seconds", None if status.owner is None else status.owner.claim_age_seconds)
        planes = Counter(lane.serving.plane for lane in status.lanes.values())
        for plane in ("native", "client"):
            self._add("lanes", planes[plane], plane)
        self._topics(status, per_partition=per_partition)
        self._schemas(status.schemas)
        self._readiness(status)
        live = self._view.live
        if live is None:
            self._only_from_topics(status, now_ms)
        else:
            self._from_driver(live)
        if live is None or self._view.has_topics:
            self._from_topics(status, now_ms)
            if per_group and status.groups is not None:
                self._groups(status, now_ms)

    def _topics(self, status: LinkStatus, *, per_partition: bool) -> None:
        by_topic: dict[str, list[PartitionStatus]] = {}
        for item in status.partitions:
            if not item.parked or item.problem:
                by_topic.setdefault(item.topic, []).append(item)
        for topic, items in by_topic.items():
            self._topic(topic, items)
            # what the link back of a promoted link writes would look like a lag that grows
            if not status.ended:
                self._waiting(topic, items, per_partition=per_partition)
            for item in items if per_partition else ():
                self._add("partition_position", item.position, topic, str(item.partition))
        reasons = Counter(stop_reason(stop.exit_code) for stop in status.stopped)
        for reason in ("data_loss", "configuration", "superseded", "failed"):
            self._add("stopped_topics", reasons[reason], reason)
        if not status.ended:
            for stop in status.stopped:
                self._add("topic_stopped", 1, stop.topic)
        for topic in sorted({item.topic for item in status.partitions if item.paused}):
            self._add("topic_paused", 1, topic)

    def _schemas(self, schemas: SchemasStatus | None) -> None:
        if schemas is not None:
            self._add("schema_subjects", schemas.subjects)
            self._add("schema_changes_pending", schemas.pending)
            self._add("schema_conflicts", schemas.conflicts)
            self._add("schema_age_seconds", schemas.age_seconds)

    def _waiting(self, topic: str, items: list[PartitionStatus], *, per_partition: bool) -> None:
        records, seconds = total_lag(items)
        self._add("lag_records", records, topic)
        self._add("lag_seconds", seconds, topic)
        for item in items if per_partition else ():
            self._add("partition_lag_records", item.lag_records, topic, str(item.partition))
            self._add("partition_lag_seconds", item.lag_seconds, topic, str(item.partition))
        if held := [item for item in items if item.open_records]:
            ages = [item.open_seconds for item in held if item.open_seconds is not None]
            self._add("open_source_transactions", len(held), topic)
            self._add("oldest_open_source_transaction_seconds", max(ages, default=None), topic)

    def _topic(self, topic: str, items: list[PartitionStatus]) -> None:
        if self._view.live is None:
            dropped: Counter[str] = Counter()
            for item in items:
                dropped.update(item.dropped)
            self._add("records_total", sum(item.records for item in items), topic)
            self._dropped(topic, dropped)
        for _, rule, dropped_by, changed in rule_counts(items):
            self._add("transformed_records_total", dropped_by, topic, rule, "dropped")
            if rule != QUERY_RULE:
                # how many a query changed is not known
                self._add("transformed_records_total", changed, topic, rule, "changed")
        if missing := sum([item.missing for item in items]):
            self._add("missing_offsets_total", missing, topic)

    def _dropped(self, topic: str, dropped: Mapping[str, int]) -> None:
        if not dropped:
            return
        if letters := dropped.get(_DEAD_LETTER, 0):
            self._add("dead_letters_total", letters, topic)
        if loops := sum(dropped.get(reason, 0) for reason in _LOOP_REASONS):
            self._add("loop_dropped_total", loops, topic)

    def _readiness(self, status: LinkStatus) -> None:
        facts = Facts.of_status(status)
        for verb in Verb:
            found = assess(facts, verb, force=True)
            self._add("readiness", int(found.ready), verb.value)
            if verb is Verb.PROMOTE:
                for check in found.checks:
                    self._add("readiness_check", _LEVELS[check.level], check.name)
            if verb is Verb.FAILOVER and not status.ended:
                # a part of the loss would look like all of it
                whole = found.lost_age_seconds is None and not found.at_least and self._view.counts_open
                self._add("failover_loss_records", found.lost if whole else None)
                self._add("failover_loss_seconds", found.lost_seconds if whole else None)

    def _only_from_topics(self, status: LinkStatus, now_ms: int) -> None:
        self._add("source_unreachable_seconds", None if status.problem else 0)
        recent = now_ms - RECENT_TAKE_OVER_MS
        taken = sum(event.kind == TAKE_OVER and event.at >= recent for event in status.events)
        self._add("recent_take_overs", taken)
        endings: Counter[str] = Counter()
        for lane in status.restarts:
            endings.update(lane.endings)
        for reason in _EARLY_ENDINGS:
            self._add("lane_restarts_total", endings[reason], reason)
        groups = status.groups
        if groups is not None:
            self._add("groups", groups.followed, "followed")
            last = groups.last_checkpoint
            since = None if last is None else (now_ms - last) / 1000 + status.clock_offset_seconds
            self._add("group_offset_age_seconds", None if since is None else max(0.0, since))

    def _groups(self, status: LinkStatus, now_ms: int) -> None:
        for group in () if status.groups is None else status.groups.by_group:
            since = (now_ms - group.last_checkpoint) / 1000 + status.clock_offset_seconds
            self._add("group_lag_records", group.lag_records, group.group)
            self._add("group_checkpoint_age_seconds", max(0.0, since), group.group)

    def _from_topics(self, status: LinkStatus, now_ms: int) -> None:
        self._add("problem_partitions", sum(bool(item.problem) for item in status.partitions))
        gaps: Counter[str] = Counter()
        for gap in status.gaps:
            gaps[gap.topic] += gap.end - gap.start
        for topic, count in gaps.items():
            self._add("gap_records_total", count, topic)
        for row in status.retention:
            self._add("retention_used_ratio", row.used, row.topic)
            if row.left_seconds is not None:
                self._add("retention_left_seconds", row.left_seconds, row.topic)
        fence = status.fence
        # a fence of this second stands as well, and so does one of a host whose clock is ahead
        self._add(
            "source_fenced_seconds", 0 if fence is None else max(1, round((now_ms - fence.timestamp) / 1000))
        )
        self._add("hanging_transactions", len(status.hanging))
        self._add("drifted_topics", len(status.drifted))
        alike = status.comparison
        self._add("target_differences", None if alike is None else alike.standing)
        self._add("target_problems", None if alike is None else len(alike.problems))
        changed = 0 if alike is None else alike.changed_at
        self._add("target_changed_age_seconds", max(0.0, (now_ms - changed) / 1000) if changed else None)
        self._add("configuration_refused", int(status.refused_configuration is not None))
        drill = status.drill
        self._add("drill_age_seconds", None if drill is None else max(0.0, (now_ms - drill.timestamp) / 1000))
        self._add("drill_passed", None if drill is None else int(drill.passed))
        self._verified(status, now_ms)

    def _verified(self, status: LinkStatus, now_ms: int) -> None:
        mirrored = {item.topic for item in status.partitions if not item.parked and not item.gone}
        found = [one for one in status.verifications if one.result.topic in mirrored]
        compared = [one.result for one in found]
        outcomes = Counter(one.outcome for one in compared)
        for outcome in ("equal", "differs"):
            self._add("verified_topics", outcomes[outcome], outcome)
        self._add("verified_topics", len(mirrored) - len(compared), "never")
        self._add("unverified_records", sum(one.unverified for one in found))
        differences: Counter[str] = Counter()
        if not status.ended:
            # the oldest decide whether a copy must be compared again
            for one in sorted(compared, key=lambda one: (one.timestamp, one.topic))[:MOST_AGES]:
                self._add("verified_age_seconds", max(0, round((now_ms - one.timestamp) / 1000)), one.topic)
        for one in compared:
            differences.update(one.differences)
            if one.outcome == "differs":
                self._add("topic_differs", 1, one.topic)
        for kind in _DIFFERENCES:
            self._add("verify_differences", differences[kind], kind)

    def _from_driver(self, live: LinkSnapshot) -> None:
        self._add("source_last_seen_age_seconds", live.source_age_seconds)
        self._add("source_unreachable_seconds", live.source_failing_seconds)
        for topic in live.topics:
            self._add("records_total", topic.work.records, topic.topic)
            self._add("bytes_total", topic.work.bytes, topic.topic)
            self._dropped(topic.topic, topic.work.dropped)
            for reason, count in sorted(topic.work.dropped.items()):
                self._add("dropped_records_total", count, topic.topic, reason)
        self._add("copied_headers_total", live.counters.copied_headers)
        latency = Histogram()
        endings: Counter[str] = Counter()
        for lane in live.lanes:
            number, work = str(lane.lane), lane.work
            self._add("transactions_total", work.committed, number, "committed")
            self._add("transactions_total", work.measures.aborted, number, "aborted")
            self._add("transactions_total", work.measures.fenced, number, "fenced")
            self._histogram("transaction_duration_seconds", work.measures.durations, DURATION_BOUNDS, number)
            self._histogram("transaction_records", work.measures.records, RECORDS_BOUNDS, number)
            latency = latency.plus(work.measures.latency)
            endings.update(lane.endings)
            for family, read in LANE_FAMILIES:
                if (found := read(lane)) is not None:
                    self._out.add(family, found, self._name, number)
        self._histogram("replication_latency_seconds", latency, LATENCY_BOUNDS)
        left_out = sum(lane.work.measures.left_out for lane in live.lanes)
        self._add("replication_latency_left_out_total", left_out)
        # from 0 on, so that the first one is an increase
        for reason in _EARLY_ENDINGS:
            self._add("lane_restarts_total", endings[reason], reason)
        self._add("superseded_total", endings[Ending.SUPERSEDED] + int(live.superseded))
        self._add("spark_jobs", live.spark_jobs)
        self._add("delayed_lanes", sum(bool(lane.delayed) for lane in live.lanes))
        self._add("throttled_seconds", sum(lane.serving.throttled or 0.0 for lane in live.lanes))
        if (groups := live.groups) is not None:
            self._add("groups", groups.followed, "followed")
            self._add("groups", sum(groups.pending.values()), "pending")
            self._add("groups", sum(groups.skipped.values()), "skipped")
            self._add("group_offset_age_seconds", groups.age_seconds)
            for group, again in groups.rereads.items():
                self._add("group_reread_records", again, group)

    def _add(self, name: str, value: float | None, *labels: str) -> None:
        self._out.add(_FAMILIES[name], value, self._name, *labels)

    def _histogram(self, name: str, histogram: Histogram, bounds: tuple[float, ...], *labels: str) -> None:
        self._out.add_histogram(_FAMILIES[name], histogram, bounds, self._name, *labels)
