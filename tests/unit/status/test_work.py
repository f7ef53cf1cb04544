"""Counters of a link grow by what its lanes' attempts report, and never twice."""

from __future__ import annotations

from typing import Any

from eomirror.lane.measures import Histogram, LaneMeasures
from eomirror.lane.spec import LaneProgress, PartitionProgress
from eomirror.status.work import LaneWork, TopicWork, WorkLedger


def told(
    transactions: int, records: int, *, epoch: int = 1, partition: int = 0, **facts: Any
) -> LaneProgress:
    """A report of lane 0 about one partition of topic t."""
    item = PartitionProgress(
        topic="t", partition=partition, position=records, records=records, bytes=records * 10, **facts
    )
    histogram = Histogram((transactions, 0), float(transactions))
    return LaneProgress(
        lane=0,
        epoch=epoch,
        state="idle",
        transactions=transactions,
        partitions=(item,),
        measures=LaneMeasures(transactions, 0, histogram, histogram, histogram),
    )


def test_a_report_that_is_repeated_counts_once() -> None:
    """Reports hold totals, and a report of many partitions comes in several messages."""
    ledger = WorkLedger()
    for _ in range(3):
        ledger.update(told(2, 7, dropped={"filter": 3}), attempt=1)
    assert ledger.topics == {"t": TopicWork(7, 70, {"filter": 3})}
    assert ledger.lanes[0].committed == 2
    assert ledger.lanes[0].measures.durations == Histogram((2, 0), 2.0)


def test_attempts_and_partitions_add_up() -> None:
    """An attempt that mirrors on after its epoch still reports, between reports of its successor."""
    ledger = WorkLedger()
    ledger.update(told(1, 5), attempt=1)
    ledger.update(told(1, 2, epoch=2), attempt=1)
    ledger.update(told(3, 9), attempt=1)
    ledger.update(told(2, 4, epoch=2, partition=1, dropped={"a": 1}), attempt=1)
    assert ledger.topics == {"t": TopicWork(15, 150, {"a": 1})}
    assert ledger.lanes[0].committed == 5
    assert ledger.lanes[0].measures.aborted == 5


def test_an_attempt_that_begins_again_under_its_id_adds_to_the_earlier_one() -> None:
    """Counters never go back."""
    ledger = WorkLedger()
    ledger.update(told(4, 8), attempt=1)
    ledger.update(told(1, 3), attempt=1)
    assert ledger.topics["t"].records == 11
    assert ledger.lanes[0].committed == 5


def test_a_lane_without_reports_has_no_work() -> None:
    """The ledger knows only lanes that reported."""
    assert WorkLedger().lanes.get(0, LaneWork()) == LaneWork()
