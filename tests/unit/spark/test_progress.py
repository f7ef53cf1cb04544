"""Snapshots: what the lanes said, added up."""

from __future__ import annotations

from typing import Any

import orjson

from eomirror.lane.spec import Ending, LaneProgress, LaneReport, PartitionProgress
from eomirror.progress import Progress, Snapshot
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
    made.take(said(0, ("orders", 0, 10, 15), ("pay", 0, 7, 7)), attempt=1, now=1)
    before = made.snapshot(1)
    assert [topic.lag_records for topic in before.topics] == [None, 0]
    assert before.lag_records is None
    made.take(said(1, ("orders", 1, 100, 103)), attempt=1, now=1)
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
    made.take(said(0, records=10, transactions=2, bytes=100, dropped=1), attempt=1, now=1)
    report = LaneReport(lane=0, epoch=1, attempt=1, ending=Ending.REBUILD, records=12, transactions=3)
    made.end(report, failure="rebuild: lost", now=2)
    made.begin(0, epoch=1, attempt=2)
    assert made.snapshot(2).counters.records == 12
    made.take(said(0, records=5, transactions=1, bytes=50), attempt=2, now=3)
    made.take(said(0, records=11, transactions=2), attempt=1, now=3)
    found = made.snapshot(3)
    assert (found.counters.records, found.counters.transactions, found.counters.bytes) == (17, 4, 150)
    assert (found.lanes[0].retries, found.lanes[0].last_failure, found.lanes[0].attempt) == (
        1,
        "rebuild: lost",
        2,
    )


def test_rates_are_averages_over_the_window() -> None:
    """1,000 records a second look like that, and fall to 0 within the window when they stop."""
    made = progress()
    assert made.snapshot(0).records_per_second == 0
    for second in range(1, 21):
        made.take(said(0, records=1000 * second, bytes=5000 * second), attempt=1, now=second)
    steady = made.snapshot(20)
    assert 900 <= steady.records_per_second <= 1100
    assert 4500 <= steady.bytes_per_second <= 5500
    for second in range(21, 32):
        made.snapshot(second)
    assert made.snapshot(32).records_per_second == 0


def test_goals_are_reached_by_positions_or_given_up_with_their_topic() -> None:
    """Caught up means every goal, but a stopped topic cannot hold the run."""
    made = progress()
    made.aim({SourcePartition("orders", 0): 10, SourcePartition("pay", 0): 5, SourcePartition("other", 9): 1})
    made.take(said(0, ("orders", 0, 10, 20)), attempt=1, now=1)
    assert not made.caught_up
    assert (made.snapshot(1).goals, made.snapshot(1).goals_reached) == (2, 1)
    report = LaneReport(
        lane=0, epoch=1, attempt=1, ending=Ending.REBUILD, stopped_topics={"pay": (4, "offsets are gone")}
    )
    made.end(report, now=2)
    assert made.caught_up
    assert made.stopped_codes == {"pay": 4}
    found = made.snapshot(2)
    assert found.stopped_topics == {"pay": "offsets are gone"}
    assert found.lag_records is None


def test_an_older_attempt_cannot_move_a_position_back() -> None:
    """Late words of a worker that was given up are history."""
    made = progress()
    made.begin(0, epoch=2, attempt=1)
    made.take(said(0, ("orders", 0, 50, 50), epoch=2), attempt=1, now=1)
    made.take(said(0, ("orders", 0, 40, 50)), attempt=1, now=2)
    assert made.snapshot(2).topics[0].partitions[0].position == 50
