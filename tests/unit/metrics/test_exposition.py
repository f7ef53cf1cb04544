"""What /metrics says, as an independent parser reads it: names, labels, values, escaped names, NaN for the unknown."""

from __future__ import annotations

import gzip
import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from eomirror.errors import UnreachableError
from eomirror.groups.followed_groups import GroupsSnapshot
from eomirror.lane.measures import DURATION_BOUNDS, LATENCY_BOUNDS, RECORDS_BOUNDS, Histogram, LaneMeasures
from eomirror.lane.spec import LaneProgress, StoppedTopic
from eomirror.metrics.collect import MOST_AGES, ProcessFacts, exposition
from eomirror.metrics.exposition import Exposition
from eomirror.metrics.families import FAMILIES, Family
from eomirror.metrics.verdict import Window
from eomirror.plane.protocol import Serving
from eomirror.records.kept_entries import TargetComparison
from eomirror.records.reports import DrillResult, LaneRestarts
from eomirror.status.derive import unread_status
from eomirror.status.live import LinkFacts, LinkView, running_view
from eomirror.status.model import (
    GroupsStatus,
    GroupStatus,
    Hanging,
    LaneStatus,
    LinkStatus,
    OwnerStatus,
    PartitionStatus,
    RetentionStatus,
    SchemasStatus,
)
from eomirror.status.snapshot import LinkSnapshot, TopicSnapshot
from eomirror.status.work import Counters, LaneWork, TopicWork
from support.fakes.status_records import fence, gap, stop, verified

if TYPE_CHECKING:
    from collections.abc import Iterable

EVIL = '<script>alert("x")</script>\\'
PROCESS = ProcessFacts("1.2.3", 4.5, 1000, 1_700_000_000.5, 12)
FACTS = LinkFacts("east->west", "east", "west", "prefix", "auto")
Found = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def filled(bounds: tuple[float, ...], *counts: int, total: float) -> Histogram:
    """A histogram with these counts in its first buckets."""
    return Histogram((*counts, *(0 for _ in range(len(bounds) + 1 - len(counts)))), total)


def snapshot(**changes: Any) -> LinkSnapshot:
    """A running link with a topic of an unusual name, 3 records behind."""
    measures = LaneMeasures(
        2,
        1,
        filled(DURATION_BOUNDS, 3, 1, total=0.03),
        filled(RECORDS_BOUNDS, 0, 0, 4, total=40),
        filled(LATENCY_BOUNDS, 4, total=0.02),
        6,
    )
    topic = TopicSnapshot(
        topic=EVIL,
        target_topic="east.x",
        partitions=(
            PartitionStatus(
                topic=EVIL,
                partition=0,
                target_topic="east.x",
                lane=0,
                position=7,
                source_lso=10,
                lag_records=3,
                lag_seconds=1.5,
            ),
            PartitionStatus(
                topic=EVIL,
                partition=1,
                target_topic="east.x",
                lane=0,
                position=4,
                source_lso=4,
                lag_records=0,
                lag_seconds=0.0,
            ),
        ),
        lag_records=3,
        lag_seconds=1.5,
        work=TopicWork(11, 110, {"hop": 2, "origin": 3, "dead-letter": 4}),
    )
    made = LinkSnapshot(
        link="east->west",
        state="running",
        counters=Counters(records=11),
        lag_records=3,
        lag_seconds=1.5,
        lanes=(
            LaneStatus(
                lane=0,
                state="idle",
                serving=Serving("native"),
                report=LaneProgress(lane=0, epoch=0, state="idle", memory_bytes=3_000),
                endings={"worker died": 2, "superseded": 1},
                work=LaneWork(4, measures),
            ),
        ),
        topics=(topic,),
        groups=GroupsSnapshot(
            followed=2,
            age_seconds=0.5,
            pending={"why": 3},
            skipped={"a": 1, "b": 1},
            rereads={"billing": 12},
        ),
        generation=9,
        run="r1",
        source_age_seconds=1.0,
        claim_age_seconds=2.0,
        spark_jobs=1,
    )
    return replace(made, **changes)


def read(views: Iterable[LinkView], *, openmetrics: bool = False, **series: bool) -> Found:
    """All samples, as the parser of prometheus-client reads them."""
    judged = [(view, Window().judge(view, 0.0)) for view in views]
    found = exposition(judged, PROCESS, now_ms=1_000_000, openmetrics=openmetrics, **series)
    parse = parse_openmetrics if openmetrics else parse_text
    samples: Found = {}
    for family in parse(found.text().decode()):
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            assert key not in samples, f"{key} stands twice"
            samples[key] = sample.value
    return samples


def value(samples: Found, name: str, **labels: str) -> float:
    """The value of one sample of the link."""
    return samples[f"eomirror_{name}", tuple(sorted({"link": "east->west", **labels}.items()))]


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_running_link_is_read_as_it_was_written(*, openmetrics: bool) -> None:
    """Every value, also under a name with quotes, markup and a backslash."""
    samples = read([running_view(FACTS, snapshot())], openmetrics=openmetrics)
    assert value(samples, "records_total", topic=EVIL) == 11
    assert value(samples, "bytes_total", topic=EVIL) == 110
    assert value(samples, "dropped_records_total", topic=EVIL, reason="origin") == 3
    assert value(samples, "loop_dropped_total", topic=EVIL) == 5
    assert value(samples, "dead_letters_total", topic=EVIL) == 4
    assert value(samples, "lane_memory_bytes", lane="0") == 3_000
    assert value(samples, "spark_jobs") == 1
    assert value(samples, "lag_records", topic=EVIL) == 3
    assert value(samples, "lag_seconds", topic=EVIL) == 1.5
    assert value(samples, "link_state", state="running") == 1
    assert value(samples, "link_state", state="waiting") == 0
    assert value(samples, "transactions_total", lane="0", outcome="committed") == 4
    assert value(samples, "transactions_total", lane="0", outcome="aborted") == 2
    assert value(samples, "transactions_total", lane="0", outcome="fenced") == 1
    assert value(samples, "transaction_duration_seconds_bucket", lane="0", le="0.005") == 3
    assert value(samples, "transaction_duration_seconds_bucket", lane="0", le="+Inf") == 4
    assert value(samples, "transaction_duration_seconds_sum", lane="0") == 0.03
    assert value(samples, "transaction_records_count", lane="0") == 4
    assert value(samples, "replication_latency_seconds_bucket", le="0.01") == 4
    assert value(samples, "replication_latency_left_out_total") == 6
    assert value(samples, "lane_restarts_total", reason="worker died") == 2
    assert value(samples, "lane_restarts_total", reason="rebuild") == 0
    assert value(samples, "superseded_total") == 1
    assert value(samples, "owner_generation") == 9
    assert value(samples, "groups", state="pending") == 3
    assert value(samples, "group_reread_records", group="billing") == 12
    assert samples["eomirror_build_info", (("version", "1.2.3"),)] == 1
    assert samples["process_start_time_seconds", ()] == 1_700_000_000.5


def test_a_lag_of_zero_is_known_only_while_the_source_answers() -> None:
    """A lane that has caught up and hears nothing more would show 0 for ever."""
    caught_up = TopicSnapshot(
        topic="t",
        target_topic="east.t",
        partitions=(
            PartitionStatus(
                topic="t",
                partition=0,
                target_topic="east.t",
                lane=0,
                position=4,
                source_lso=4,
                lag_records=0,
                lag_seconds=0.0,
            ),
        ),
        lag_records=0,
        lag_seconds=0.0,
    )
    link = snapshot(topics=(caught_up,), lag_records=0, lag_seconds=0.0)
    samples = read([running_view(FACTS, link)])
    assert (value(samples, "lag_seconds", topic="t"), value(samples, "lag_records", topic="t")) == (0, 0)
    for age in (None, 60.0):
        view = running_view(FACTS, replace(link, source_age_seconds=age))
        assert view.status.lag_seconds is None
        samples = read([view])
        assert math.isnan(value(samples, "lag_seconds", topic="t"))
        assert math.isnan(value(samples, "lag_records", topic="t"))


def test_partitions_are_exported_on_request_only() -> None:
    """Ten thousand partitions must not become thirty thousand series without a choice."""
    view = running_view(FACTS, snapshot())
    assert not [name for name, _ in read([view]) if name.startswith("eomirror_partition_")]
    samples = read([view], per_partition=True)
    assert value(samples, "partition_lag_records", topic=EVIL, partition="0") == 3
    assert value(samples, "partition_position", topic=EVIL, partition="1") == 4


def status(**changes: Any) -> LinkStatus:
    """A status that was read from topics."""
    partition = PartitionStatus(
        topic=EVIL, partition=0, target_topic="east.x", lane=0, position=5, source_lso=9, lag_records=4,
        lag_seconds=2.0, records=5, rate=0.0, last_commit=1, missing=6, dropped={"hop": 1, "dead-letter": 2},
        open_records=7, open_seconds=70.0,
    )  # fmt: skip
    made = LinkStatus(
        link="east->west",
        state="silent",
        owner=OwnerStatus(run="r", claim_age_seconds=33.0),
        generation=3,
        lanes={0: LaneStatus(lane=0, serving=Serving("client"))},
        partitions=(
            partition,
            replace(partition, partition=1, lag_records=0, lag_seconds=0.0),
            replace(partition, topic="bad", stopped=True, problem="gone", lag_records=None, lag_seconds=None),
            replace(partition, topic="parked", parked=True),
        ),
        stopped=(stop("bad"),),
        gaps=(gap("bad", 3, 8),),
        groups=GroupsStatus(
            followed=2,
            offsets=3,
            last_checkpoint=990_000,
            by_group=(GroupStatus(group=EVIL, offsets=3, last_checkpoint=980_000),),
        ),
        restarts=tuple(
            LaneRestarts(
                lane=lane,
                count=count,
                endings={"rebuild": count},
                ending="rebuild",
                reason="",
                run="r",
                timestamp=1,
            )
            for lane, count in ((0, 3), (1, 1))
        ),
        verifications=(
            verified(EVIL, "differs", unverified=9, differences={"missing": 2}, timestamp=940_000),
        ),
        drill=DrillResult(passed=True, rpo_records=0, rto_ms=0, host="h", timestamp=400_000),
        comparison=TargetComparison(
            standing=2,
            problems={"acls": "no right"},
            changed={"+": 1},
            changed_at=940_000,
            command="run",
            timestamp=1,
        ),
        drifted=("topic x",),
        retention=(
            RetentionStatus(topic=EVIL, partition=0, used=0.9, left_seconds=360.0, setting="retention.ms"),
            RetentionStatus(
                topic="sized", partition=1, used=0.85, left_seconds=None, setting="retention.bytes"
            ),
        ),
    )
    return replace(made, **changes)


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_link_without_a_mirror_is_read_from_its_topics(*, openmetrics: bool) -> None:
    """`serve` has no counters of a driver, but what the topics hold: gaps, stops, the age of the claim."""
    samples = read([LinkView(facts=FACTS, status=status(), read_seconds=0.2)], openmetrics=openmetrics)
    assert value(samples, "link_state", state="silent") == 1
    assert value(samples, "owner_claim_age_seconds") == 33
    assert value(samples, "records_total", topic=EVIL) == 10
    assert value(samples, "missing_offsets_total", topic=EVIL) == 12
    assert value(samples, "lag_records", topic=EVIL) == 4
    assert math.isnan(value(samples, "lag_seconds", topic="bad"))
    assert value(samples, "stopped_topics", reason="data_loss") == 1
    assert value(samples, "stopped_topics", reason="failed") == 0
    assert value(samples, "topic_stopped", topic="bad") == 1
    assert value(samples, "gap_records_total", topic="bad") == 5
    assert value(samples, "group_offset_age_seconds") == 10
    assert value(samples, "problem_partitions") == 1
    assert value(samples, "lanes", plane="client") == 1
    assert not [labels for _, labels in samples if ("topic", "parked") in labels]


def test_what_stands_in_control_is_exported() -> None:
    """Restarts, verifications and drills, whichever process wrote them."""
    samples = read([LinkView(facts=FACTS, status=status(), read_seconds=0.2)])
    assert value(samples, "lane_restarts_total", reason="rebuild") == 4
    assert value(samples, "lane_restarts_total", reason="worker died") == 0
    assert value(samples, "verified_topics", outcome="differs") == 1
    assert value(samples, "verified_topics", outcome="equal") == 0
    assert value(samples, "verified_topics", outcome="never") == 1
    assert value(samples, "verified_age_seconds", topic=EVIL) == 60
    assert value(samples, "unverified_records") == 9
    assert value(samples, "verify_differences", kind="missing") == 2
    assert value(samples, "verify_differences", kind="altered") == 0
    assert value(samples, "topic_differs", topic=EVIL) == 1
    assert (value(samples, "drill_age_seconds"), value(samples, "drill_passed")) == (600, 1)
    kept = [value(samples, f"target_{name}") for name in ("differences", "problems", "changed_age_seconds")]
    assert kept == [2, 1, 60]
    assert value(samples, "drifted_topics") == 1
    assert value(samples, "loop_dropped_total", topic=EVIL) == 2
    assert value(samples, "dead_letters_total", topic=EVIL) == 4
    nothing = read([LinkView(facts=FACTS, status=status(drill=None, verifications=()), read_seconds=0.2)])
    assert math.isnan(value(nothing, "drill_age_seconds"))
    assert value(nothing, "verified_topics", outcome="never") == 2
    assert not [name for name, _ in nothing if name == "eomirror_verified_age_seconds"]


def test_the_mirror_of_schemas_is_exported_where_there_is_one() -> None:
    """With the age of what was equal last, NaN if that never was."""
    schemas = SchemasStatus(state="conflict", subjects=4, pending=2, conflicts=1, age_seconds=7.5)
    samples = read([LinkView(facts=FACTS, status=status(schemas=schemas), read_seconds=0.2)])
    names = ("schema_subjects", "schema_changes_pending", "schema_conflicts", "schema_age_seconds")
    assert [value(samples, name) for name in names] == [4, 2, 1, 7.5]
    never = replace(schemas, age_seconds=None)
    samples = read([LinkView(facts=FACTS, status=status(schemas=never), read_seconds=0.2)])
    assert math.isnan(value(samples, "schema_age_seconds"))
    nothing = read([LinkView(facts=FACTS, status=status(), read_seconds=0.2)])
    assert not [name for name, _ in nothing if name.startswith("eomirror_schema")]


def test_open_transactions_of_the_source_are_counted_with_the_oldest() -> None:
    """They hold back the lag's end, so no lag shows them."""
    samples = read([LinkView(facts=FACTS, status=status(), read_seconds=0.2)])
    assert value(samples, "open_source_transactions", topic=EVIL) == 2
    assert value(samples, "oldest_open_source_transaction_seconds", topic=EVIL) == 70
    assert value(samples, "readiness_check", check="open transactions") == 2
    assert value(samples, "readiness", verb="promote") == 0


def test_readiness_is_that_of_the_command() -> None:
    """A running link that has caught up is ready for each; a stopped topic refuses a planned promotion only."""
    partition = replace(
        status().partitions[0], lag_records=0, lag_seconds=0.0, open_records=0, open_seconds=None
    )
    whole = status(state="running", partitions=(partition,), stopped=(), gaps=())
    for stopped, ready in (((), (1, 1, 1)), (status().stopped, (0, 0, 1))):
        samples = read([LinkView(facts=FACTS, status=replace(whole, stopped=stopped), read_seconds=0.2)])
        found = tuple(value(samples, "readiness", verb=verb) for verb in ("promote", "cutover", "failover"))
        assert found == ready
    assert value(samples, "readiness_check", check="stopped topics") == 2
    assert value(samples, "readiness_check", check="link") == 0


@pytest.mark.parametrize("state", ["promoted", "handed back"])
def test_a_link_that_has_ended_has_nothing_that_an_alert_would_wait_for(state: str) -> None:
    """Its source goes on without it: lag, open transactions and the age of a comparison would grow for ever."""
    waits = {
        f"eomirror_{name}"
        for name in (
            "lag_records", "lag_seconds", "partition_lag_records", "partition_lag_seconds", "topic_stopped",
            "open_source_transactions", "oldest_open_source_transaction_seconds", "verified_age_seconds",
        )
    }  # fmt: skip
    for now, expected in (("silent", waits), (state, set())):
        view = LinkView(
            facts=FACTS, status=status(state=now, verifications=(verified(EVIL),)), read_seconds=0.2
        )
        assert {name for name, _ in read([view], per_partition=True)} & waits == expected


def test_groups_are_exported_on_request_only() -> None:
    """Thousands of groups must not become series without a choice."""
    view = LinkView(facts=FACTS, status=status(), read_seconds=0.2)
    assert not [name for name, _ in read([view]) if name.startswith("eomirror_group_lag")]
    samples = read([view], per_group=True)
    assert math.isnan(value(samples, "group_lag_records", group=EVIL))
    assert value(samples, "group_checkpoint_age_seconds", group=EVIL) == 20


def test_what_is_left_of_the_retention_is_exported() -> None:
    """A log that is cut by its size has no time that is left."""
    samples = read([LinkView(facts=FACTS, status=status(), read_seconds=0.2)])
    assert value(samples, "retention_used_ratio", topic=EVIL) == 0.9
    assert value(samples, "retention_left_seconds", topic=EVIL) == 360
    assert value(samples, "retention_used_ratio", topic="sized") == 0.85
    assert [labels for name, labels in samples if name == "eomirror_retention_left_seconds"] == [
        (("link", "east->west"), ("topic", EVIL))
    ]


def test_a_running_mirror_shows_what_its_topics_hold() -> None:
    """With the counters of its driver, once the topics were read; nothing of them before, and none that are old."""
    before = read([running_view(FACTS, snapshot())])
    assert not {name for name, _ in before} & {"eomirror_gap_records_total", "eomirror_hanging_transactions"}
    view = running_view(FACTS, snapshot(), status(), 0.3)
    samples = read([view], per_group=True)
    assert value(samples, "link_read_seconds") == 0.3
    assert value(samples, "records_total", topic=EVIL) == 11
    assert value(samples, "gap_records_total", topic="bad") == 5
    assert value(samples, "hanging_transactions") == 0
    assert value(samples, "oldest_open_source_transaction_seconds", topic=EVIL) == 70
    assert value(samples, "lane_restarts_total", reason="worker died") == 2
    assert value(samples, "group_checkpoint_age_seconds", group=EVIL) == 20
    assert view.status.events == status().events
    unread = running_view(FACTS, snapshot(), status(state="unknown"), 0.3)
    assert not unread.has_topics
    assert unread.status.events == ()
    kept = running_view(
        FACTS, snapshot(), unread_status("east->west", status(), UnreachableError("away")), 0.0, 9.0
    )
    assert (kept.has_topics, kept.kept_seconds) == (False, 9.0)
    assert kept.status.events == status().events
    assert not [name for name, _ in read([kept]) if name.startswith("eomirror_gap_records")]


def test_what_the_run_before_left_in_the_topics_is_not_told_of_this_one() -> None:
    """Topics are read every ten seconds: after a take-over they name another owner, and other attempts."""
    claimed = LaneStatus(lane=0, epoch=1, attempt=1, host="old", pid=9, since=5)
    mine = OwnerStatus(run="r1", host="new", pid=7, released=False)
    lane = replace(snapshot().lanes[0], epoch=2, attempt=1)
    before = status(owner=replace(mine, run="r0", released=True), lanes={0: claimed})
    view = running_view(FACTS, snapshot(lanes=(lane,)), before, 0.3)
    assert view.status.owner == OwnerStatus(run="r1", claim_age_seconds=2.0)
    assert view.status.lanes[0].host is None
    after = status(owner=mine, lanes={0: replace(claimed, epoch=2)})
    view = running_view(FACTS, snapshot(lanes=(lane,)), after, 0.3)
    assert view.status.owner is not None
    assert view.status.owner.host == "new"
    assert view.status.lanes[0].host == "old"


def test_the_last_known_ends_count_only_while_the_driver_misses_the_source() -> None:
    """One failed request of the reader is no reason to tell a loss beside a lag that the lanes know."""
    topics = status(known_lost=40, source_seen_seconds=5.0, last_rate=3.0)
    found = running_view(FACTS, snapshot(), topics, 0.3).status
    assert (found.known_lost, found.source_seen_seconds, found.last_rate) == (None, None, None)
    found = running_view(FACTS, snapshot(away="cluster east: no answer"), topics, 0.3).status
    assert (found.known_lost, found.source_seen_seconds, found.last_rate) == (40, 5.0, 3.0)


def test_a_running_mirror_shows_since_when_a_topic_is_stopped() -> None:
    """Only its topics have the time of the stop."""
    halted = replace(snapshot().topics[0], stopped=StoppedTopic("it was created again", exit_code=4))
    recorded = (stop(EVIL, "it was created again", timestamp=77),)
    view = running_view(FACTS, snapshot(topics=(halted,)), status(stopped=recorded), 0.3)
    assert [(one.topic, one.timestamp) for one in view.status.stopped] == [(EVIL, 77)]


def test_a_running_mirror_shows_what_it_leaves_out() -> None:
    """Only the topics hold it: its lag is unknown, so the link must not look like one without lag."""
    parked = replace(
        status().partitions[0], topic="left", parked=True, problem="it lacks READ", fix="grant it", lag_records=None
    )  # fmt: skip
    view = running_view(FACTS, snapshot(), status(partitions=(*status().partitions, parked)), 0.3)
    assert view.status.lag_records is None
    verdict = Window().judge(view, 0.0)
    assert (verdict.word, verdict.fix) == ("unknown", "grant it")
    assert math.isnan(value(read([view]), "lag_records", topic="left"))
    quiet = replace(parked, problem="", fix="")
    assert running_view(FACTS, snapshot(), status(partitions=(quiet,)), 0.3).status.lag_records is not None


def test_a_cluster_that_does_not_answer_is_told_by_the_running_mirror() -> None:
    """By the driver's last error, with what to do; no topic has to be read for it."""
    view = running_view(FACTS, snapshot(away="cluster east: no answer", fix="check bootstrap.servers"))
    verdict = Window().judge(view, 0.0)
    assert (verdict.word, verdict.text, verdict.fix) == (
        "unknown", "cluster east: no answer", "check bootstrap.servers",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "topics", "text"),
    [
        ({"source_failing_seconds": 7.0}, {}, "cluster east has not answered for 7 s"),
        ({"claim_age_seconds": 12.0}, {}, "cluster west has not taken the link's claim for 12 s"),
        ({"claim_age_seconds": 12.0}, {"state": "unknown", "problem": "no way to west"}, "no way to west"),
        ({"source_failing_seconds": 7.0, "away": "slow"}, {"problem": "wrong password"}, "wrong password"),
        ({"source_failing_seconds": 7.0, "away": "no answer"}, {}, "no answer"),
        ({"claim_age_seconds": 6.0}, {"problem": "it was away a while ago"}, ""),
        ({"state": "waiting", "waiting": "no way to east", "fix": "wait"}, {}, "no way to east"),
    ],
)
def test_a_cluster_is_named_before_its_request_fails(
    changes: dict[str, Any], topics: dict[str, Any], text: str
) -> None:
    """A request takes half a minute to fail; what the reader of the topics met is more exact."""
    view = running_view(FACTS, snapshot(**changes), status(**topics), 0.3)
    assert view.status.problem == text


def test_a_reason_does_not_repeat_its_fix() -> None:
    """The page and the data show the fix apart; a report of the run has both in one text."""
    stopped = replace(snapshot().topics[0], stopped=StoppedTopic("it is gone", "make it", 4))
    halted = snapshot(topics=(stopped,))
    (stop,) = running_view(FACTS, halted).status.stopped
    assert (stop.reason, stop.fix) == ("it is gone", "make it")
    assert halted.stopped_topics == {EVIL: "it is gone\n  fix: make it"}


def test_a_link_that_another_mirror_took_is_counted() -> None:
    """Also if none of its lanes noticed it first."""
    samples = read([running_view(FACTS, snapshot(state="failed", error="taken", superseded=True))])
    assert value(samples, "superseded_total") == 2


def test_a_link_that_cannot_be_read_has_a_state_and_no_old_values() -> None:
    """An unreachable target: the state says so, and nothing else is claimed."""
    unknown = LinkStatus(link="east->west", state="unknown", problem="the target does not answer")
    samples = read([LinkView(facts=FACTS, status=unknown, read_seconds=4.0)])
    assert value(samples, "link_state", state="unknown") == 1
    names = {name for name, labels in samples if ("link", "east->west") in labels}
    assert names == {
        "eomirror_link_state",
        "eomirror_link_verdict",
        "eomirror_link_info",
        "eomirror_link_read_seconds",
    }


def test_every_family_is_exported_somewhere_and_no_other() -> None:
    """The reference lists what is exported: by `run`, by `serve`, or by both."""
    topic = snapshot().topics[0]
    held = tuple(replace(part, paused=True) for part in topic.partitions)
    schemas = SchemasStatus(state="mirrored")
    driver = snapshot(topics=(replace(topic, stopped=StoppedTopic("x"), partitions=held),), schemas=schemas)
    told = tuple(replace(part, changed={"transform[0]": 2}) for part in status().partitions)
    live = running_view(FACTS, driver, status(partitions=told), 0.1)
    held = (
        *status().partitions,
        replace(status().partitions[0], topic="held", paused=True, changed={"transform[0]": 1}),
    )
    hung = Hanging(topic="t", partition=0, producer_id=1, start=0, end=1, since=None, problem="", fix="")
    shown = status(hanging=(hung,), partitions=held, schemas=schemas)
    serve = LinkView(facts=FACTS, status=shown, read_seconds=0.1)
    for place, view in (("run", live), ("serve", serve)):
        verdict = Window().judge(view, 0.0)
        found = exposition([(view, verdict)], PROCESS, now_ms=0, per_partition=True, per_group=True)
        text = found.text().decode()
        exported = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        assert exported == {family.name for family in FAMILIES if place in family.places}


def test_a_topic_has_at_most_ten_series() -> None:
    """Cardinality is bounded: what grows with topics has few series for each."""
    usual = replace(status().partitions[0], open_records=0, open_seconds=None, missing=0)
    served = LinkView(facts=FACTS, status=status(partitions=(usual,)), read_seconds=0.1)
    for view in (running_view(FACTS, snapshot()), served):
        samples = read([view])
        assert sum(("topic", EVIL) in labels for _, labels in samples) <= 10


def test_a_scrape_of_5000_partitions_stays_below_2_mb() -> None:
    """In 500 topics with names of a usual length; each partition is exported."""
    topics = tuple(
        replace(
            snapshot().topics[0],
            topic=f"topic-with-a-usual-name-{number:04}",
            partitions=tuple(
                replace(
                    snapshot().topics[0].partitions[0],
                    topic=f"topic-with-a-usual-name-{number:04}",
                    partition=at,
                )
                for at in range(10)
            ),
            work=TopicWork(11, 110),
        )
        for number in range(500)
    )
    view = running_view(FACTS, snapshot(topics=topics), status(), 0.1)
    verdict = Window().judge(view, 0.0)
    assert (
        1_000_000
        < len(exposition([(view, verdict)], PROCESS, now_ms=0, per_partition=True).text())
        < 2_000_000
    )
    assert len(exposition([(view, verdict)], PROCESS, now_ms=0).text()) < 500_000


def test_a_scrape_of_5000_topics_stays_below_2_mb() -> None:
    """Every topic was verified, and each sample is written as briefly as it can be."""
    topics = tuple(
        replace(
            snapshot().topics[0],
            topic=f"topic-with-a-usual-name-{number:04}",
            partitions=(
                replace(
                    snapshot().topics[0].partitions[0],
                    topic=f"topic-with-a-usual-name-{number:04}",
                    lag_seconds=number / 7,
                ),
            ),
            work=TopicWork(11 * number, 1_234_567 * number),
        )
        for number in range(5_000)
    )
    compared = tuple(verified(each.topic, timestamp=940_000 - at) for at, each in enumerate(topics))
    view = running_view(FACTS, snapshot(topics=topics), status(verifications=compared), 0.1)
    verdict = Window().judge(view, 0.0)
    text = exposition([(view, verdict)], PROCESS, now_ms=1_000_000).text()
    assert 1_000_000 < len(text) < 2_000_000
    assert len(gzip.compress(text, 1)) < 300_000
    # on request only; compressed it is no larger than a page with pictures
    each = exposition([(view, verdict)], PROCESS, now_ms=1_000_000, per_partition=True).text()
    assert 2_000_000 < len(each) < 4_000_000
    assert len(gzip.compress(each, 1)) < 400_000
    # of the ages, those that decide
    ages = [line for line in text.decode().splitlines() if line.startswith("eomirror_verified_age_seconds{")]
    assert len(ages) == MOST_AGES
    assert max(float(line.rpartition(" ")[2]) for line in ages) == 65


def test_a_fence_of_the_source_is_exported_as_its_age() -> None:
    """A fence of this moment stands as well, and so does one of a host whose clock is ahead."""
    for at, seconds in ((400_000, 600), (1_000_000, 1), (2_000_000, 1)):
        stands = fence(timestamp=at)
        for view in (
            LinkView(facts=FACTS, status=status(fence=stands), read_seconds=0.2),
            running_view(FACTS, snapshot(), status(fence=stands), 0.1),
        ):
            samples = read([view])
            assert value(samples, "source_fenced_seconds") == seconds
            assert value(samples, "readiness_check", check="standing fence") == 1
    samples = read([LinkView(facts=FACTS, status=status(), read_seconds=0.2)])
    assert value(samples, "source_fenced_seconds") == 0
    assert value(samples, "readiness_check", check="standing fence") == 0


def test_control_characters_are_escaped_and_names_stay_apart() -> None:
    """A scrape that is read in a terminal changes nothing there; two names never become one series."""
    family = Family("eomirror_group_x", "gauge", "of a group", ("group",), ())
    names = ["a\x1b[2J", "a\x1b[2K", "a\x9b", "a\x00", "a\x7f", "a\nb", "ä"]
    for openmetrics in (False, True):
        page = Exposition(openmetrics=openmetrics)
        for name in names:
            page.add(family, 1, name)
        text = page.text().decode()
        assert all(each.isprintable() or each == "\n" for each in text)
        parse = parse_openmetrics if openmetrics else parse_text
        (found,) = parse(text)
        assert len({sample.labels["group"] for sample in found.samples}) == len(names)
