"""What /metrics says, as an independent parser reads it: names, labels, values, escaped names, NaN for the unknown."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from eomirror.driver.snapshot import (
    Counters,
    LaneSnapshot,
    LinkSnapshot,
    PartitionSnapshot,
    TopicSnapshot,
)
from eomirror.driver.work import LaneWork, TopicWork
from eomirror.groups.followed_groups import GroupsSnapshot
from eomirror.lane.measures import DURATION_BOUNDS, LATENCY_BOUNDS, RECORDS_BOUNDS, Histogram, LaneMeasures
from eomirror.link.status import GroupsStatus, LinkStatus, PartitionStatus
from eomirror.metrics.collect import ProcessFacts, exposition
from eomirror.metrics.families import FAMILIES
from eomirror.metrics.verdict import Window
from eomirror.metrics.view import LinkFacts, LinkView, running_view

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
    )
    topic = TopicSnapshot(
        topic=EVIL,
        target_topic="east.x",
        partitions=(
            PartitionSnapshot(partition=0, lane=0, position=7, lso=10, lag_records=3, lag_seconds=1.5),
            PartitionSnapshot(partition=1, lane=0, position=4, lso=4, lag_records=0, lag_seconds=0.0),
        ),
        lag_records=3,
        lag_seconds=1.5,
        work=TopicWork(11, 110, {"filter": 5}),
    )
    made = LinkSnapshot(
        link="east->west",
        state="running",
        counters=Counters(records=11),
        lag_records=3,
        lag_seconds=1.5,
        lanes=(
            LaneSnapshot(
                lane=0,
                state="idle",
                plane="native",
                endings={"worker died": 2, "superseded": 1},
                work=LaneWork(4, measures),
            ),
        ),
        topics=(topic,),
        groups=GroupsSnapshot(followed=2, age_seconds=0.5, pending={"why": 3}, skipped={"a": 1, "b": 1}),
        generation=9,
        run="r1",
        source_age_seconds=1.0,
        claim_age_seconds=2.0,
    )
    return replace(made, **changes)


def read(views: Iterable[LinkView], *, openmetrics: bool = False, per_partition: bool = False) -> Found:
    """All samples, as the parser of prometheus-client reads them."""
    judged = [(view, Window().judge(view, 0.0)) for view in views]
    found = exposition(
        judged, PROCESS, now_ms=1_000_000, openmetrics=openmetrics, per_partition=per_partition
    )
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
    assert value(samples, "dropped_records_total", topic=EVIL, reason="filter") == 5
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
    assert value(samples, "lane_restarts_total", reason="worker died") == 2
    assert value(samples, "lane_restarts_total", reason="rebuild") == 0
    assert value(samples, "superseded_total") == 1
    assert value(samples, "owner_generation") == 9
    assert value(samples, "groups", state="pending") == 3
    assert samples["eomirror_build_info", (("version", "1.2.3"),)] == 1
    assert samples["process_start_time_seconds", ()] == 1_700_000_000.5


def test_a_lag_of_zero_is_known_only_while_the_source_answers() -> None:
    """A lane that has caught up and hears nothing more would show 0 for ever."""
    caught_up = TopicSnapshot(
        topic="t",
        target_topic="east.t",
        partitions=(
            PartitionSnapshot(partition=0, lane=0, position=4, lso=4, lag_records=0, lag_seconds=0.0),
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
        lag_seconds=2.0, records=5, rate=0.0, last_commit=1, missing=6,
    )  # fmt: skip
    made = LinkStatus(
        link="east->west",
        state="silent",
        owner={"claim_age_seconds": 33.0},
        generation=3,
        lanes={0: {"plane": "client"}},
        partitions=(
            partition,
            replace(partition, partition=1, lag_records=0, lag_seconds=0.0),
            replace(partition, topic="bad", stopped=True, problem="gone", lag_records=None, lag_seconds=None),
            replace(partition, topic="parked", parked=True),
        ),
        stopped=({"topic": "bad", "reason": "gone", "fix": "", "exit_code": 4},),
        gaps=({"topic": "bad", "partition": 0, "from": 3, "to": 8, "at": 1},),
        groups=GroupsStatus(followed=2, offsets=3, last_checkpoint=990_000),
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
    live = running_view(
        FACTS, snapshot(topics=(replace(snapshot().topics[0], stopped="x", exit_code=1, paused=True),))
    )
    held = (*status().partitions, replace(status().partitions[0], topic="held", paused=True))
    hung = LinkView(facts=FACTS, status=status(hanging=({"problem": ""},), partitions=held), read_seconds=0.1)
    for place, view in (("run", live), ("serve", hung)):
        verdict = Window().judge(view, 0.0)
        text = exposition([(view, verdict)], PROCESS, now_ms=0, per_partition=True).text().decode()
        exported = {line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")}
        assert exported == {family.name for family in FAMILIES if place in family.places}


def test_a_topic_has_at_most_ten_series() -> None:
    """Cardinality is bounded: what grows with topics has few series for each."""
    for view in (running_view(FACTS, snapshot()), LinkView(facts=FACTS, status=status())):
        samples = read([view])
        assert sum(("topic", EVIL) in labels for _, labels in samples) <= 10
