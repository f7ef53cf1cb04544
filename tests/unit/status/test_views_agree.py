"""A link as its running mirror shows it and as its topics show it: the same lag, and the same loss of a failover."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from eomirror.errors import UnreachableError
from eomirror.lane.spec import StoppedTopic
from eomirror.metrics.collect import ProcessFacts, exposition
from eomirror.metrics.verdict import Verdict, Window
from eomirror.plane.protocol import Serving
from eomirror.records.control import Pause
from eomirror.status.derive import unread_status
from eomirror.status.lag import lag_rows
from eomirror.status.live import LinkFacts, LinkView, running_view
from eomirror.status.model import LaneStatus, LinkStatus, OwnerStatus, PartitionStatus
from eomirror.status.snapshot import LinkSnapshot, TopicSnapshot
from support.fakes.status_records import stop

FACTS = LinkFacts("a->b", "a", "b", "prefix", "auto")
WAITS, CALM = 1_848, 5
LOSES = "loses at most 1,848 records, 18.1 s"


def partition(topic: str, **changes: Any) -> PartitionStatus:
    """A partition of a topic, as the topics show it; it is caught up."""
    made = PartitionStatus(
        topic=topic, partition=0, target_topic=f"a.{topic}", lane=0, position=CALM, source_lso=CALM, lag_records=0,
        lag_seconds=0.0, records=CALM, rate=0.0, last_commit=1, open_records=0,
    )  # fmt: skip
    return replace(made, **changes)


def test_no_figure_of_a_partition_is_lost_on_its_way_into_the_view() -> None:
    driver = partition("t", lag_unknown="why", copied_headers=3, gone=True, parked=True, lag_seconds=9.0)
    recorded = partition(
        "t", records=7, rate=1.5, last_commit=8, problem="p", fix="f", open_records=2, open_seconds=3.0, missing=4,
        dropped={"hop": 1}, changed={"transform[0]": 2},
    )  # fmt: skip
    only_recorded = (
        "records", "rate", "last_commit", "problem", "fix", "open_records", "open_seconds", "missing", "dropped",
        "changed",
    )  # fmt: skip
    topic = TopicSnapshot(
        topic="t", target_topic="a.t", partitions=(driver,), lag_records=None, lag_seconds=None
    )
    seen = running_view(FACTS, driver_says(topic), topics_say(recorded)).status.partitions
    assert seen == (replace(driver, **{name: getattr(recorded, name) for name in only_recorded}),)


def waiting(topic: str, **changes: Any) -> PartitionStatus:
    """One with records that wait."""
    waits = {"source_lso": CALM + WAITS, "lag_records": WAITS, "lag_seconds": 18.1}
    return partition(topic, **{**waits, **changes})


def topics_say(*partitions: PartitionStatus, **changes: Any) -> LinkStatus:
    """What the topics show of a link that runs."""
    lags = [item.lag_records for item in partitions]
    ages = [item.lag_seconds for item in partitions]
    made = LinkStatus(
        link="a->b", state="running", owner=OwnerStatus(run="r"), partitions=partitions,
        lag_records=None if None in lags else sum(each or 0 for each in lags),
        lag_seconds=None if None in ages else max(each or 0.0 for each in ages),
    )  # fmt: skip
    return replace(made, **changes)


def driver_says(*topics: TopicSnapshot, **changes: Any) -> LinkSnapshot:
    """What the driver of its mirror shows: `eomirror.status.progress` knows no lag of what no lane reads."""
    going = [topic for topic in topics if not topic.paused and not topic.stopped]
    made = LinkSnapshot(
        link="a->b", state="running", run="r", topics=topics, source_age_seconds=1.0, claim_age_seconds=1.0,
        lanes=(LaneStatus(lane=0, state="idle", serving=Serving(plane="native")),),
        lag_records=sum(topic.lag_records or 0 for topic in going) if going else None,
        lag_seconds=max((topic.lag_seconds or 0.0 for topic in going), default=None),
    )  # fmt: skip
    return replace(made, **changes)


def driven(topic: str, **changes: Any) -> PartitionStatus:
    """A partition as the driver knows it."""
    made = PartitionStatus(topic=topic, partition=0, target_topic=f"a.{topic}", lane=0, position=CALM)
    return replace(made, **changes)


def mirrored(topic: str) -> TopicSnapshot:
    """A topic that its lane mirrors; it is caught up."""
    part = driven(topic, source_lso=CALM, lag_records=0, lag_seconds=0.0)
    return TopicSnapshot(
        topic=topic, target_topic=f"a.{topic}", partitions=(part,), lag_records=0, lag_seconds=0.0
    )


def held(topic: str) -> TopicSnapshot:
    """A topic that lanes hold: none reads its end."""
    part = driven(topic, paused=True, lag_unknown="all topics are paused")
    return TopicSnapshot(
        topic=topic, target_topic=f"a.{topic}", partitions=(part,), lag_records=None, lag_seconds=None, paused=True
    )  # fmt: skip


def judged(view: LinkView) -> Verdict:
    """The verdict of one look."""
    return Window().judge(view, 0.0)


def sample(view: LinkView, name: str, **labels: str) -> float:
    """One sample of its metrics; NaN if it is unknown, or there is none."""
    process = ProcessFacts("1", 1.0, 1, 1.0, 1)
    text = exposition([(view, judged(view))], process, now_ms=1_000_000).text().decode()
    found = [
        each.value
        for family in text_string_to_metric_families(text)
        for each in family.samples
        if each.name == f"eomirror_{name}" and labels.items() <= each.labels.items()
    ]
    return found[0] if found else math.nan


@pytest.mark.parametrize("every", [True, False])
def test_a_pause_hides_nothing_from_either_view(*, every: bool) -> None:
    """No lane reads the end of what is paused: the lag of its topics is that of the last read of the topics."""
    pause = Pause(topics=".*" if every else "audit", host="h", timestamp=5)
    state = "paused" if every else "running"
    calm = () if every else (partition("orders"),)
    topics = topics_say(*calm, waiting("audit", paused=True), state=state, paused=pause)
    going = () if every else (mirrored("orders"),)
    driver = driver_says(*going, held("audit"), state=state, paused=pause.topics)
    for view in both(driver, topics):
        assert (view.status.lag_records, view.status.lag_seconds) == (WAITS, 18.1)
        found = judged(view)
        assert (found.word, found.failover) == ("paused" if every else "ok", LOSES)
        assert sample(view, "lag_records", topic="audit") == WAITS
        assert sample(view, "lag_seconds", topic="audit") == 18.1
        assert sample(view, "failover_loss_records") == WAITS
        assert sample(view, "topic_paused", topic="audit") == 1
    unread = running_view(FACTS, driver)
    assert unread.status.lag_records is None
    assert judged(unread).failover.startswith("unknown for topic audit")
    assert math.isnan(sample(unread, "failover_loss_records"))


def both(driver: LinkSnapshot, topics: LinkStatus) -> list[LinkView]:
    """The view of `serve` and the commands, and that of `run`."""
    return [
        LinkView(facts=FACTS, status=topics, read_seconds=0.1),
        running_view(FACTS, driver, topics, 0.1),
    ]


def test_an_open_transaction_is_part_of_the_loss_in_both_views() -> None:
    """Neither promises that nothing is lost before it has looked; the lag counts to the last stable offset."""
    topics = topics_say(partition("orders", open_records=WAITS, open_seconds=18.1))
    driver = driver_says(mirrored("orders"))
    for view in both(driver, topics):
        assert view.status.lag_records == 0
        assert judged(view).failover == LOSES
        assert sample(view, "failover_loss_records") == WAITS
        assert sample(view, "failover_loss_seconds") == 18.1
        assert sample(view, "lag_records", topic="orders") == 0
    unread = running_view(FACTS, driver)
    assert unread.status.lag_records == 0
    assert judged(unread).failover.startswith("unknown: what open transactions")
    assert math.isnan(sample(unread, "failover_loss_records"))


@pytest.mark.parametrize("lag", [None, WAITS])
def test_a_stopped_topic_has_the_same_lag_in_both_views(lag: int | None) -> None:
    """What a lane read before it left the topic says nothing of what waits there."""
    left = waiting("audit", stopped=True, problem="created again", lag_records=lag)
    topics = topics_say(
        partition("orders"), left, stopped=(stop("audit", "created again", "adopt it", timestamp=5),)
    )
    (part,) = mirrored("audit").partitions
    part = replace(part, stopped=True, problem="created again", fix="adopt it")
    halted = replace(
        mirrored("audit"), partitions=(part,), stopped=StoppedTopic("created again", "adopt it", 4)
    )
    driver = driver_says(mirrored("orders"), halted)
    first, second = both(driver, topics)
    assert (judged(first).text, judged(first).fix) == (judged(second).text, judged(second).fix)
    assert judged(first).failover == judged(second).failover
    assert first.status.lag_records == second.status.lag_records == lag
    for view in (first, second):
        assert math.isnan(sample(view, "failover_loss_records")), "more may be lost"
        found = sample(view, "lag_records", topic="audit")
        assert math.isnan(found) if lag is None else found == lag


@pytest.mark.parametrize("last_rate", [None, 385.0])
def test_without_the_source_both_views_state_the_known_loss_and_no_whole_number(
    last_rate: float | None,
) -> None:
    """A number in metrics would look like all that is lost."""
    gone = partition("orders", lag_records=None, lag_seconds=None, source_lso=None, open_records=None)
    topics = topics_say(
        gone, away=("source",), problem="no way to a", known_lost=WAITS, source_seen_seconds=60.0, last_rate=last_rate
    )  # fmt: skip
    driver = driver_says(mirrored("orders"), source_failing_seconds=60.0, source_age_seconds=60.0)
    first, second = both(driver, topics)
    assert judged(first).word == judged(second).word == "source away"
    assert judged(first).failover == judged(second).failover
    assert judged(first).failover.startswith("loses at least 1,848 records, and what was written since")
    assert ("about 23,000 records" in judged(first).failover) is (last_rate is not None)
    for view in (first, second):
        assert math.isnan(sample(view, "failover_loss_records"))


@pytest.mark.parametrize("state", ["promoted", "handed back"])
def test_a_link_that_has_ended_has_no_loss_in_metrics(state: str) -> None:
    """What is written to the old source would look like a loss that grows."""
    view = LinkView(facts=FACTS, status=topics_say(waiting("orders"), state=state), read_seconds=0.1)
    assert math.isnan(sample(view, "failover_loss_records"))


def test_a_target_that_is_away_is_named_and_what_was_mirrored_stays() -> None:
    """The other cluster is well; a number of records that drops to 0 would look like a copy that is gone."""
    topics = unread_status(
        "a->b", topics_say(partition("orders")), UnreachableError("no way to b", fix="look")
    )
    driver = driver_says(mirrored("orders"), claim_age_seconds=60.0)
    served = LinkView(facts=FACTS, status=topics, kept_seconds=9.0)
    for view in (served, running_view(FACTS, driver, topics, kept_seconds=9.0)):
        found = judged(view)
        assert (found.word, found.text.removeprefix("cluster b is away: ")) == ("target away", "no way to b")
        assert "cluster a" not in found.text + found.fix + found.failover
        assert "source, a" not in found.failover
        assert [row.records for row in lag_rows([view.status], partitions=False)] == [CALM]
        if view is not served:
            assert sample(view, "source_unreachable_seconds") == 0
            assert sample(view, "readiness_check", check="source") == 0
            assert sample(view, "readiness_check", check="link") == 2
            assert sample(view, "readiness", verb="failover") == 0


def test_a_promoted_link_is_not_told_to_run_what_would_be_refused() -> None:
    """The runbook has the steps in their order; `failback` comes after the reversal."""
    found = judged(LinkView(facts=FACTS, status=topics_say(partition("orders"), state="promoted")))
    assert "readiness CONFIG --runbook" in found.fix
    assert "failback" not in found.fix
