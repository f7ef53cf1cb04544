"""Snapshots: what the lanes said, added up."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from eomirror.cli.progress import _fields, lanes_line, progress_line
from eomirror.lane.spec import Ending, LaneProgress, LaneReport, PartitionProgress, StoppedTopic
from eomirror.plane.protocol import Serving
from eomirror.records.control import Pause
from eomirror.status.progress import SILENT_SECONDS, Progress
from eomirror.status.snapshot import Snapshot
from eomirror.status.work import Counters
from eomirror.types import SourcePartition


def said(lane: int, *partitions: tuple[str, int, int, int], epoch: int = 1, **facts: Any) -> LaneProgress:
    """Progress with (topic, partition, position, lso)."""
    items = tuple(
        PartitionProgress(topic=topic, partition=partition, position=position, lso=lso, lag_seconds=1.5)
        for topic, partition, position, lso in partitions
    )
    return LaneProgress(lane=lane, epoch=epoch, state="OPEN", partitions=items, **facts)


def progress() -> Progress:
    """Two lanes, two topics."""
    made = Progress("a->b")
    for lane, topic, partition in ((0, "orders", 0), (1, "orders", 1), (0, "pay", 0)):
        made.assign(lane, SourcePartition(topic, partition), f"a.{topic}")
    made.begin(0, epoch=1, attempt=1)
    made.begin(1, epoch=1, attempt=1)
    return made


def test_lag_is_summed_over_partitions_and_not_guessed() -> None:
    """A topic whose partitions are not all known has no lag yet; age is the oldest."""
    made = progress()
    made.update(said(0, ("orders", 0, 10, 15), ("pay", 0, 7, 7)), attempt=1, now=1)
    before = made.snapshot(1)
    assert [topic.lag_records for topic in before.topics] == [None, 0]
    assert before.lag_records is None
    made.update(said(1, ("orders", 1, 100, 103)), attempt=1, now=1)
    after = made.snapshot(1)
    assert (after.lag_records, after.lag_seconds) == (8, 1.5)
    assert [topic.lag_seconds for topic in after.topics] == [1.5, 0.0]
    assert (
        orjson.loads(orjson.dumps(Snapshot(seconds=1, links=(after,)).as_dict()))["links"][0]["lag_records"]
        == 8
    )


def test_counters_go_on_over_attempts() -> None:
    """A lane counts from 0 in each attempt; the run's totals never fall."""
    made = progress()
    made.update(said(0, records=10, transactions=2, bytes=100, dropped=1, copied_headers=2), attempt=1, now=1)
    report = LaneReport(lane=0, epoch=1, attempt=1, ending=Ending.REBUILD, records=12, transactions=3)
    made.end(report, failure="rebuild: lost", now=2)
    made.begin(0, epoch=1, attempt=2)
    assert made.snapshot(2).counters.records == 12
    made.update(said(0, records=5, transactions=1, bytes=50), attempt=2, now=3)
    made.update(said(0, records=11, transactions=2), attempt=1, now=3)
    found = made.snapshot(3)
    assert (found.counters.records, found.counters.transactions, found.counters.bytes) == (17, 4, 150)
    assert (found.lanes[0].retries, found.lanes[0].last_failure, found.lanes[0].attempt) == (
        1,
        "rebuild: lost",
        2,
    )


def test_an_epoch_that_goes_on_behind_its_report_is_counted() -> None:
    """Once, whichever of the two lines is heard first."""
    made = progress()
    made.begin(0, epoch=1, attempt=1)
    made.update(said(0, records=10, transactions=2, bytes=100, dropped=1, copied_headers=2), attempt=1, now=1)
    made.end(LaneReport(lane=0, epoch=1, attempt=1, ending=Ending.EPOCH, records=10, transactions=2), now=2)
    made.update(said(0, records=13, transactions=3, bytes=130, dropped=1, copied_headers=2), attempt=1, now=2)
    made.begin(0, epoch=2, attempt=1)
    assert made.snapshot(2).counters.records == 13
    made.update(said(0, epoch=2, records=5, transactions=1, bytes=50), attempt=1, now=3)
    made.update(said(0, records=15, transactions=4, bytes=150, dropped=1, copied_headers=2), attempt=1, now=3)
    made.update(said(0, records=14, transactions=3, bytes=140, dropped=1, copied_headers=2), attempt=1, now=3)
    assert made.snapshot(3).counters == Counters(
        transactions=5, records=20, bytes=200, dropped=1, copied_headers=2
    )


def test_an_epoch_that_goes_on_while_the_next_one_fails_is_counted() -> None:
    """It does not hear of that, and commits; what is said by an attempt of long ago is not believed."""
    made = progress()
    made.update(said(0, records=10, transactions=2), attempt=1, now=1)
    for attempt in (1, 2, 3):
        made.begin(0, epoch=2, attempt=attempt)
        made.fail_attempt(0, "no worker")
    made.update(said(0, records=13, transactions=3), attempt=1, now=2)
    assert made.snapshot(2).counters == Counters(transactions=3, records=13)
    made.begin(0, epoch=2, attempt=4)
    made.update(said(0, epoch=2, records=5, transactions=1), attempt=4, now=3)
    assert made.snapshot(3).counters == Counters(transactions=4, records=18)
    for epoch in range(3, 20):
        made.begin(0, epoch=epoch, attempt=1)
    made.update(said(0, records=99, transactions=9), attempt=1, now=4)
    assert made.snapshot(4).counters == Counters(transactions=4, records=18)


def test_an_epoch_that_goes_on_knows_the_lag_until_the_next_one_speaks() -> None:
    """A change of epochs shows no hole; what an attempt says behind its successor's first word is old."""
    made = progress()
    made.update(said(1, ("orders", 1, 5, 5)), attempt=1, now=1)
    made.update(said(0, ("orders", 0, 10, 12), ("pay", 0, 1, 1)), attempt=1, now=1)
    made.end(LaneReport(lane=0, epoch=1, attempt=1, ending=Ending.EPOCH), now=1)
    made.begin(0, epoch=2, attempt=1)
    made.update(said(0, ("orders", 0, 11, 14)), attempt=1, now=1)
    assert made.snapshot(1).lag_records == 3
    made.update(said(0, ("orders", 0, 14, 15), epoch=2), attempt=1, now=1)
    made.update(said(0, ("orders", 0, 13, 99)), attempt=1, now=1)
    assert made.snapshot(1).lag_records == 1
    made.set_lane_state(0, "idle")
    made.update(said(0, epoch=2), attempt=1, now=1)
    assert made.snapshot(1).lanes[0].state == "idle"


def test_rates_are_averages_over_the_window() -> None:
    """1,000 records a second look like that, and fall to 0 within the window when they stop."""
    made = progress()
    assert made.snapshot(0).records_per_second == 0
    for second in range(1, 21):
        made.update(said(0, records=1000 * second, bytes=5000 * second), attempt=1, now=second)
    steady = made.snapshot(20)
    assert 900 <= steady.records_per_second <= 1100
    assert 4500 <= steady.bytes_per_second <= 5500
    for second in range(21, 32):
        made.snapshot(second)
    assert made.snapshot(32).records_per_second == 0


def test_goals_are_reached_by_positions_or_given_up_with_their_topic() -> None:
    """Caught up means every goal, but a stopped topic cannot hold the run."""
    made = progress()
    made.set_goals(
        {SourcePartition("orders", 0): 10, SourcePartition("pay", 0): 5, SourcePartition("other", 9): 1}
    )
    made.update(said(0, ("orders", 0, 10, 20)), attempt=1, now=1)
    assert not made.caught_up
    assert (made.snapshot(1).goals, made.snapshot(1).goals_reached) == (2, 1)
    gone = StoppedTopic("offsets are gone", exit_code=4)
    report = LaneReport(lane=0, epoch=1, attempt=1, ending=Ending.REBUILD, stopped_topics={"pay": gone})
    made.end(report, now=2)
    assert made.caught_up
    assert made.stopped == {"pay": gone}
    found = made.snapshot(2)
    assert found.stopped_topics == {"pay": "offsets are gone"}
    assert found.lag_records is None


def test_what_stood_behind_an_open_transaction_is_told_until_it_is_mirrored() -> None:
    """A run that has caught up to the last stable offset has not mirrored it."""
    made = progress()
    orders, pay = SourcePartition("orders", 0), SourcePartition("pay", 0)
    made.set_goals({orders: 10, pay: 5}, {orders: 511, pay: 5})
    made.update(said(0, ("orders", 0, 10, 10), ("pay", 0, 9, 9)), attempt=1, now=1)
    assert made.snapshot(1).behind_open == {"orders-0": 501}
    # the transaction has ended meanwhile
    made.update(said(0, ("orders", 0, 411, 411)), attempt=1, now=2)
    assert made.snapshot(2).behind_open == {"orders-0": 100}
    made.update(said(0, ("orders", 0, 512, 512)), attempt=1, now=3)
    assert made.snapshot(3).behind_open == {}


def test_an_older_attempt_cannot_move_a_position_back() -> None:
    """Late words of a worker that was given up are history."""
    made = progress()
    made.begin(0, epoch=2, attempt=1)
    made.update(said(0, ("orders", 0, 50, 50), epoch=2), attempt=1, now=1)
    made.update(said(0, ("orders", 0, 40, 50)), attempt=1, now=2)
    assert made.snapshot(2).topics[0].partitions[0].position == 50


def lag_of(made: Progress, now: float) -> tuple[int | None, float | None]:
    """Lag of partition 0 of orders."""
    (found,) = [topic.partitions[0] for topic in made.snapshot(now).topics if topic.topic == "orders"]
    return found.lag_records, found.lag_seconds


def aged(position: int, lso: int | None, age: float | None) -> LaneProgress:
    """Lane 0 about orders-0, with the age of its last mirrored record."""
    item = PartitionProgress(topic="orders", partition=0, position=position, lso=lso, lag_seconds=age)
    return LaneProgress(lane=0, epoch=1, state="idle", partitions=(item,))


def test_lag_in_seconds_is_how_long_a_partition_has_been_behind() -> None:
    """The last record of an idle topic is days old; a new one is not, before it is mirrored."""
    made = progress()
    made.update(aged(10, 10, 0.0), attempt=1, now=1)
    made.update(said(0), attempt=1, now=100)
    assert lag_of(made, 100) == (0, 0.0)
    made.update(aged(10, 11, 86_400.0), attempt=1, now=100.25)
    assert lag_of(made, 100.25) == (1, 0.25)
    assert lag_of(made, 103) == (1, 3.0)


def test_lag_in_seconds_is_never_more_than_the_age_by_timestamp() -> None:
    """A busy partition is never seen at its end, but mirrors records of a moment ago."""
    made = progress()
    made.update(aged(10, 10, 0.0), attempt=1, now=1)
    made.update(aged(500, 520, 0.05), attempt=1, now=90)
    assert lag_of(made, 90) == (20, 0.05)


def test_lag_in_seconds_before_the_end_was_ever_seen() -> None:
    """The age by timestamp is all that is known; without a mirrored record not even that."""
    made = progress()
    made.update(aged(10, 500, None), attempt=1, now=1)
    assert lag_of(made, 1) == (490, None)
    made.update(aged(20, 500, 3600.0), attempt=1, now=2)
    assert lag_of(made, 2) == (480, 3600.0)


def test_an_attempt_that_ended_early_leaves_no_lag_behind() -> None:
    """No lane looks at the source while it stands: "lag 0" would be a guess; late words change nothing."""
    made = progress()
    made.update(aged(10, 10, 0.0), attempt=1, now=1)
    made.end(LaneReport(lane=0, epoch=1, attempt=1, ending=Ending.REBUILD), failure="no commit", now=2)
    assert lag_of(made, 2) == (None, None)
    made.update(aged(10, 10, 0.0), attempt=1, now=2.1)
    assert lag_of(made, 2.1) == (None, None)
    assert made.snapshot(2.1).lag_records is None
    made.begin(0, epoch=1, attempt=2)
    made.update(aged(10, None, 500.0), attempt=2, now=8)
    assert lag_of(made, 8) == (None, None)
    made.update(aged(10, 40, 500.0), attempt=2, now=9)
    # it has been behind since it was last seen at the end, in the attempt before
    assert lag_of(made, 9) == (30, 8.0)


def test_a_lost_worker_leaves_no_lag_behind() -> None:
    """The same without a report."""
    made = progress()
    made.update(aged(10, 10, 0.0), attempt=1, now=1)
    made.fail_attempt(0, "the worker was lost")
    assert lag_of(made, 2) == (None, None)


def test_a_silent_lane_has_no_lag_unless_it_is_at_rest() -> None:
    """A commit that hangs says nothing for seconds; a lane that ended in order left its last word."""
    made = progress()
    made.update(aged(10, 10, 0.0), attempt=1, now=1)
    assert lag_of(made, 1 + SILENT_SECONDS) == (0, 0.0)
    assert lag_of(made, 1.1 + SILENT_SECONDS) == (None, None)
    made.set_lane_state(0, "ended")
    assert lag_of(made, 1.1 + SILENT_SECONDS) == (0, 0.0)


def test_a_link_that_failed_has_no_lag_while_other_links_go_on() -> None:
    """Its lanes have ended in good order, at the end of their sources; since then no lane looks at these."""
    made = progress()
    made.update(said(0, ("orders", 0, 10, 10), ("pay", 0, 7, 7)), attempt=1, now=1)
    made.update(said(1, ("orders", 1, 100, 100)), attempt=1, now=1)
    made.phase.state, made.phase.error = "failed", "another mirror owns the link"
    for lane in (0, 1):
        made.set_lane_state(lane, "ended")
    shown = made.snapshot(1000)
    assert (shown.lag_records, shown.lag_seconds) == (None, None)
    assert [topic.lag_records for topic in shown.topics] == [None, None]


def test_a_line_says_how_many_topics_are_stopped() -> None:
    """A link that goes on without a topic does not look healthy."""
    made = progress()
    made.update(said(0, ("orders", 0, 10, 10)), attempt=1, now=1)
    assert "stopped" not in progress_line(made.snapshot(1))
    made.update(said(0, stopped_topics={"pay": StoppedTopic("recreated")}), attempt=1, now=1)
    assert ", 1 topic stopped" in progress_line(made.snapshot(1))
    made.update(said(0, stopped_topics={"orders": StoppedTopic("gone")}), attempt=1, now=1)
    assert ", 2 topics stopped" in progress_line(made.snapshot(1))


def test_a_link_that_has_not_seen_its_topics_has_no_lag_yet() -> None:
    """Nothing is assigned while it prepares; a link that runs without a topic has none to lag behind."""
    made = Progress("a->b")
    assert (made.snapshot(1).lag_records, made.snapshot(1).lag_seconds) == (None, None)
    made.phase.state = "running"
    assert (made.snapshot(1).lag_records, made.snapshot(1).lag_seconds) == (0, 0.0)


def test_a_lane_says_which_plane_serves_and_how_long_quotas_held_it_back() -> None:
    """For people in a line, for programs in the snapshot."""
    made = progress()
    assert lanes_line(made.snapshot(1)) == ""
    made.update(said(0, serving=Serving("native", throttled=2.0)), attempt=1, now=1)
    made.update(said(1, serving=Serving("client", "the link says so")), attempt=1, now=1)
    snapshot = made.snapshot(1)
    assert [lane.serving.throttled for lane in snapshot.lanes] == [2.0, None]
    assert lanes_line(snapshot) == (
        "lane 0 on the native plane; lane 1 on the client plane: the link says so; "
        "throttled by broker quotas for 2.0 s"
    )


def test_a_lane_says_what_it_cannot_read_for_as_long_as_it_runs() -> None:
    """The line of a link names it; an attempt that has ended waits for nothing."""
    made = progress()
    made.update(
        said(0, serving=Serving("native", delayed="orders-3 cannot be read for 12 s: no leader")),
        attempt=1,
        now=1,
    )
    assert lanes_line(made.snapshot(1)) == (
        "lane 0 on the native plane; lane 0: orders-3 cannot be read for 12 s: no leader"
    )
    made.update(said(0, serving=Serving("native")), attempt=1, now=2)
    assert lanes_line(made.snapshot(2)) == "lane 0 on the native plane"
    made.update(said(0, serving=Serving("native", delayed="orders-3 cannot be read")), attempt=1, now=3)
    report = LaneReport(lane=0, epoch=1, attempt=1, ending=Ending.REBUILD)
    made.end(report, failure="rebuild: lost", now=4)
    assert "orders-3" not in lanes_line(made.snapshot(4))


def test_a_lag_that_is_unknown_says_why() -> None:
    """By partition: its lane is starting, silent, failed, delayed, or has read no end; or the link does not run."""
    idle = Progress("a->b")
    assert idle.snapshot(1).lag_unknown == "the link is preparing"
    made = progress()
    made.phase.state = "running"
    starting = made.snapshot(1)
    assert starting.lag_unknown == (
        "orders-0, pay-0: lane 0 is starting: its worker has not reported yet; "
        "orders-1: lane 1 is starting: its worker has not reported yet"
    )
    made.update(said(0, ("orders", 0, 10, 15), ("pay", 0, 7, 7)), attempt=1, now=1)
    made.update(said(1, ("orders", 1, 100, 103)), attempt=1, now=1)
    known = made.snapshot(1)
    assert (known.lag_records, known.lag_unknown) == (8, "")
    made.update(said(0), attempt=1, now=13)
    silent = made.snapshot(13)
    assert (silent.lag_records, silent.lag_unknown) == (None, "orders-1: lane 1 has not reported for 12 s")
    assert "(unknown: orders-1: lane 1 has not reported for 12 s)" in progress_line(silent)
    assert _fields(silent)["lag_unknown"] == silent.lag_unknown
    made.update(said(1, serving=Serving("native", delayed="orders-1 has no leader")), attempt=1, now=13)
    made.fail_attempt(1, "rebuild: lost")
    assert made.snapshot(13).lag_unknown == "orders-1: lane 1 restarts after a failure: rebuild: lost"
    made.begin(1, epoch=1, attempt=2)
    assert "lane 1 is starting" in made.snapshot(13).lag_unknown
    made.update(said(1, serving=Serving("native", delayed="orders-1 has no leader")), attempt=2, now=13)
    assert made.snapshot(13).lag_unknown == "orders-1: lane 1 is delayed: orders-1 has no leader"
    made.update(said(1), attempt=2, now=13)
    assert made.snapshot(13).lag_unknown == "orders-1: lane 1 has not read the end on the source yet"
    made.pause = Pause(topics="", host="h", timestamp=1)
    assert made.snapshot(13).lag_unknown == "all topics are paused"


def test_a_topic_that_is_paused_has_no_lag_while_its_lane_mirrors_another() -> None:
    """What the lane read before the pause would stay as the end of the topic, whatever is written there."""
    made = progress()
    made.state = "running"
    made.update(said(0, ("orders", 0, 10, 15), ("pay", 0, 7, 7)), attempt=1, now=1)
    made.update(said(1, ("orders", 1, 100, 103)), attempt=1, now=1)
    made.pause = Pause(topics="pay", host="h", timestamp=1)
    made.begin(0, epoch=1, attempt=2)
    made.update(said(0, ("orders", 0, 12, 15)), attempt=2, now=2)
    found = made.snapshot(2)
    orders, pay = found.topics
    assert (orders.lag_records, pay.paused, pay.lag_records) == (6, True, None)
    assert (pay.partitions[0].position, pay.partitions[0].lag_unknown) == (7, "its topic is paused")
    assert (found.lag_records, found.lag_unknown) == (6, "")


def test_a_line_names_few_of_many_partitions_without_a_lag() -> None:
    """A link of thousands of partitions has one line."""
    made = Progress("a->b")
    made.phase.state = "running"
    for number in range(50):
        made.assign(number // 10, SourcePartition("orders", number), "a.orders")
    told = made.snapshot(1).lag_unknown
    assert told.startswith("orders-0, orders-1, orders-2 and 7 more: lane 0 is starting")
    assert told.endswith("; and 2 more reasons")


@pytest.mark.parametrize("ending", ["silent", "failed attempt", "no end"])
def test_the_lag_that_ended_a_run_is_kept_however_the_lanes_end(ending: str) -> None:
    """An end that is unknown when all goals are reached is the goal."""
    made = progress()
    made.phase.state = "running"
    made.set_goals({SourcePartition("orders", 0): 15, SourcePartition("orders", 1): 103})
    made.update(said(0, ("orders", 0, 15, 15), ("pay", 0, 7, 7)), attempt=1, now=1)
    end: Any = None if ending == "no end" else 105
    made.update(said(1, ("orders", 1, 104, end)), attempt=1, now=1)
    made.update(said(0), attempt=1, now=8)
    assert made.caught_up
    if ending == "failed attempt":
        made.fail_attempt(1, "rebuild: lost")
    assert made.snapshot(8).lag_records is None
    made.conclude()
    left = 1 if ending == "silent" else 0
    for now in (8, 18):
        found = made.snapshot(now)
        assert (found.lag_records, found.lag_unknown, found.caught_up) == (left, "", True)
    made.phase.state = "failed"
    assert made.snapshot(18).lag_unknown.endswith("the link has failed")


def test_a_snapshot_of_quiet_topics_is_the_same_as_a_new_one() -> None:
    """Topics without lag are drawn once; whatever changes their figures is shown at once all the same."""
    made = progress()
    made.update(said(0, ("orders", 0, 5, 5), ("pay", 0, 3, 3)), attempt=1, now=1.0)
    made.update(said(1, ("orders", 1, 2, 2)), attempt=1, now=1.0)
    first = made.snapshot(2.0)
    assert [topic.lag_records for topic in first.topics] == [0, 0]
    assert all(new is old for new, old in zip(made.snapshot(3.0).topics, first.topics, strict=True))

    made.update(said(0, ("pay", 0, 3, 9)), attempt=1, now=4.0)
    orders, pay = made.snapshot(4.0).topics
    assert orders is first.topics[0]
    assert pay.lag_records == 6
    made.stopped["orders"] = StoppedTopic("it was recreated")
    assert made.snapshot(4.5).topics[0].stopped == StoppedTopic("it was recreated")
    made.resume(["orders"])
    assert made.snapshot(4.5).topics[0].stopped is None
    made.pause = Pause(topics="orders", host="h", timestamp=1)
    assert made.snapshot(4.5).topics[0].lag_records is None
    made.pause = None
    made.fail_attempt(1, "it died")
    assert made.snapshot(4.5).topics[0].lag_records is None
    made.update(said(1, ("orders", 1, 2, 2)), attempt=1, now=4.6)
    assert made.snapshot(4.6 + SILENT_SECONDS + 1).lag_records is None
