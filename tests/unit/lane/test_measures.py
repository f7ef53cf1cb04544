"""Histograms of a lane's transactions: buckets, sums, and what was observed since."""

from __future__ import annotations

from eomirror.lane.measures import Histogram, LaneMeasures, Tally
from eomirror.lane.stats import AttemptStats
from eomirror.plane.protocol import Serving
from support.fakes.lane_fakes import ORDERS, PAYMENTS, position, spec


def test_a_value_on_a_bound_is_below_it() -> None:
    """Prometheus' buckets include their upper bound."""
    tally = Tally((1.0, 10.0))
    for value in (0.5, 1.0, 1.5, 10.0, 11.0):
        tally.observe(value)
    assert tally.histogram() == Histogram((2, 2, 1), 24.0)


def test_sum_and_difference_of_histograms_are_inverse() -> None:
    """The driver adds differences: what it adds is what the attempt observed."""
    early, late = Histogram((1, 0), 1.0), Histogram((3, 2), 9.0)
    assert early.plus(late.since(early)) == late
    assert Histogram().plus(late) == late.plus(Histogram()) == late
    assert late.since(Histogram()) == late


class _Plane:
    def log_ends(self) -> dict[object, int]:
        return {}

    def serving(self) -> Serving:
        return Serving("native")


def test_an_attempt_measures_its_transactions() -> None:
    """Duration, size and latency of each, and the work of each partition; an advance has no latency."""
    stats = AttemptStats(spec(ORDERS, PAYMENTS), since_ms=9_000)
    written = position(ORDERS, 10, records=7, bytes=70, dropped={"filter": 2}, source_timestamp=9_000)
    advanced = position(PAYMENTS, 5, source_timestamp=1_000)
    stats.add([written, advanced], seconds=0.02, wall_ms=9_040)
    stats.measures.aborted += 1
    stats.measures.fenced += 1

    told = stats.progress(
        "idle", {ORDERS: written, PAYMENTS: advanced}, _Plane(), stopped={}, now=1.0, wall_ms=9_040
    )  # type: ignore[arg-type]

    measures = told.measures
    assert (measures.aborted, measures.fenced) == (1, 1)
    assert sum(measures.durations.counts) == sum(measures.records.counts) == sum(measures.latency.counts) == 1
    assert measures.durations.total == 0.02
    assert measures.records.total == 7
    assert measures.latency.total == 0.04
    orders, payments = told.partitions
    assert (orders.records, orders.bytes, orders.dropped) == (7, 70, {"filter": 2})
    assert (payments.records, payments.bytes, payments.dropped) == (0, 0, {})


def test_a_record_that_is_older_than_the_lane_has_no_latency() -> None:
    """A topic of last year that is mirrored today would show a year; it is counted apart."""
    stats = AttemptStats(spec(ORDERS), since_ms=9_000)
    for timestamp, wall_ms in ((1_000, 9_010), (8_999, 9_020), (9_000, 9_030), (9_050, 9_040)):
        written = position(ORDERS, 10, records=7, source_timestamp=timestamp)
        stats.add([written], seconds=0.02, wall_ms=wall_ms)
    told = stats.progress("idle", {ORDERS: written}, _Plane(), stopped={}, now=1.0, wall_ms=9_040)  # type: ignore[arg-type]

    assert sum(told.measures.latency.counts) == 2
    assert told.measures.latency.total == 0.03
    assert told.measures.left_out == 2
    twice = told.measures.plus(told.measures)
    assert (twice.left_out, twice.since(told.measures).left_out) == (4, 2)


def test_no_measures_are_the_empty_sum() -> None:
    """A lane that has not reported yet has observed nothing."""
    assert LaneMeasures().plus(LaneMeasures()) == LaneMeasures()
