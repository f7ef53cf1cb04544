"""What a lane tells its driver: every partition that changed or whose end did, and no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.lane.stats import AttemptStats
from eomirror.plane.protocol import Serving
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import ORDERS, PAYMENTS, position, spec

if TYPE_CHECKING:
    from eomirror.lane.spec import PartitionProgress


class Plane:
    """What a plane tells of itself."""

    def __init__(self, ends: dict[SourcePartition, int]) -> None:
        self.ends = ends

    def log_ends(self) -> dict[SourcePartition, int]:
        return self.ends

    def serving(self) -> Serving:
        return Serving("client", "it is told", throttled=1.5, delayed="orders-3 waits")


def told(
    tally: AttemptStats,
    positions: dict[SourcePartition, int],
    ends: dict[SourcePartition, int],
    now: float = 1.0,
) -> list[PartitionProgress]:
    """Partitions in the next sign of life."""
    known = {source: position(source, offset, source_timestamp=1_000) for source, offset in positions.items()}
    said = tally.progress("idle", known, Plane(ends), stopped={}, now=now, wall_ms=5_000)
    assert said.serving == Serving("client", "it is told", 1.5, "orders-3 waits")
    return list(said.partitions)


def test_an_end_that_becomes_known_is_told_without_a_commit() -> None:
    """At the claim no end is known; an idle partition never commits, and still gets a lag."""
    tally = AttemptStats(spec(ORDERS, PAYMENTS), since_ms=0)
    at = {ORDERS: 10, PAYMENTS: 5}
    assert [item.lso for item in told(tally, at, {})] == [None, None]
    assert [(item.topic, item.lso, item.lag_seconds) for item in told(tally, at, {ORDERS: 10})] == [
        ("orders", 10, 0.0)
    ]
    assert [item.topic for item in told(tally, at, {ORDERS: 10, PAYMENTS: 9})] == ["payments"]


def test_an_end_that_grows_is_told_without_a_commit() -> None:
    """The source goes on while the lane stands: its lag must grow."""
    tally = AttemptStats(spec(ORDERS), since_ms=0)
    told(tally, {ORDERS: 10}, {ORDERS: 10})
    (item,) = told(tally, {ORDERS: 10}, {ORDERS: 30})
    assert (item.position, item.lso, item.lag_seconds) == (10, 30, 4.0)


def test_what_did_not_change_is_not_repeated() -> None:
    """200 idle partitions cost their lookup, not their message."""
    tally = AttemptStats(spec(ORDERS), since_ms=0)
    many = {SourcePartition("t", number): number for number in range(200)}
    assert len(told(tally, many, many)) == 200
    assert told(tally, many, many) == []


def test_reports_are_rarer_when_they_are_dear() -> None:
    """Four a second as a rule; half a percent of a core with more partitions; never none for long."""
    tally = AttemptStats(spec(ORDERS), since_ms=0)
    assert tally.due(100.0)
    told(tally, {}, {}, now=100.0)
    tally.took(0.001)
    assert not tally.due(100.2)
    assert tally.due(100.25)
    tally.took(0.004)
    assert not tally.due(100.7)
    assert tally.due(100.81)
    tally.took(0.5)
    assert not tally.due(101.9)
    assert tally.due(102.0)


def test_a_lane_in_which_nothing_happens_reports_rarely() -> None:
    """Every two seconds; a commit, or an end that has moved, brings the reports back."""
    tally = AttemptStats(spec(ORDERS), since_ms=0)
    for now in (1.0, 2.0, 3.0, 4.0, 5.0):
        told(tally, {ORDERS: 10}, {ORDERS: 10}, now=now)
    assert not tally.due(6.9)
    assert tally.due(7.0)
    tally.add([position(ORDERS, 11)], seconds=0.1, wall_ms=5_000)
    assert tally.due(5.25)
    told(tally, {ORDERS: 11}, {ORDERS: 12}, now=5.3)
    assert tally.due(5.6)
