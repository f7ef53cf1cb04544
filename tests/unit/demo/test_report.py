"""What the demo prints: the verdict's exact words, percentiles, and what outages hide."""

from __future__ import annotations

import dataclasses
import io

import orjson
from rich.console import Console

from eomirror.demo.compare import Comparison, Difference, Revision
from eomirror.demo.report import (
    DemoReport,
    JudgedCopy,
    Kill,
    KillOutage,
    Latency,
    latency_outside,
    peak_rate,
    percentile,
    render,
)

GOOD = JudgedCopy(
    topic="east.orders",
    comparison=Comparison(source=900, target=900),
    revision=Revision(seen=900),
    latency=Latency(800, 20.0, 80.0, 120.0),
    latency_all=Latency(900, 25.0, 7000.0, 9000.0),
)
OFF = dataclasses.replace(
    GOOD, topic="at-least-once.orders", comparison=Comparison(source=900, target=1234, duplicate=334)
)
REPORT = DemoReport(
    seed=42,
    partitions=6,
    seconds=60.0,
    produced=900,
    source_transactions=18,
    aborted=100,
    aborted_transactions=2,
    transactions=77,
    throughput=1900.0,
    peak=15_000,
    kills=(
        Kill(10.0, 6, (0, 3), 8.5, 7.4),
        Kill(25.0, 6, (1,), 9.0, 8.0),
        Kill(40.0, 6, (2,), 7.5, 6.4),
    ),
    exactly_once=GOOD,
    at_least_once=OFF,
    phases=(("starting two clusters", 5.0),),
    folder="somewhere",
)


def drawn(report: DemoReport) -> str:
    """As on a terminal without colours."""
    text = io.StringIO()
    Console(file=text, width=110, color_system=None).print(render(report))
    return text.getvalue()


def test_a_perfect_copy_has_the_line_that_everybody_looks_for() -> None:
    """Exactly these words, on a line."""
    lines = [line.strip() for line in drawn(REPORT).splitlines()]
    assert "0 missing, 0 duplicate, 0 reordered, 0 altered" in lines
    assert REPORT.exit_code == 0


def test_the_other_copier_stands_beside_it() -> None:
    """What is prevented is seen in the same row."""
    row = next(line for line in drawn(REPORT).splitlines() if line.strip().startswith("duplicate"))
    assert row.split() == ["duplicate", "0", "334"]


def test_a_difference_is_shown_and_exits_3() -> None:
    """With the place on both sides."""
    bad = dataclasses.replace(
        GOOD,
        comparison=Comparison(
            source=900, target=900, altered=1, differences=(Difference("altered", 2, 40, 47, ("headers",)),)
        ),
    )
    report = dataclasses.replace(REPORT, exactly_once=bad)
    assert report.exit_code == 3
    assert "0 missing, 0 duplicate, 0 reordered, 1 altered" in drawn(report)
    assert "altered (headers): partition 2, source offset 40, target offset 47" in drawn(report)


def test_a_record_that_was_taken_back_exits_3() -> None:
    """Even when both sides are equal in the end."""
    report = dataclasses.replace(
        REPORT, exactly_once=dataclasses.replace(GOOD, revision=Revision(seen=900, retracted=2))
    )
    assert report.exit_code == 3
    assert "2 retracted" in drawn(report)


def test_a_source_that_lacks_what_the_producer_committed_exits_3() -> None:
    """The producer's own ledger is the third witness."""
    report = dataclasses.replace(REPORT, produced=901)
    assert report.exit_code == 3
    assert "the producer committed 901" in drawn(report)


def test_the_report_is_json() -> None:
    """Programs find the verdict, the counts and the times to recover."""
    body = orjson.loads(orjson.dumps(REPORT.as_dict()))
    assert body["verdict"] == "0 missing, 0 duplicate, 0 reordered, 0 altered"
    assert body["recovery_seconds"] == {"p50": 7.4, "max": 8.0}
    assert body["at_least_once"]["comparison"]["duplicate"] == 334
    assert body["phases"] == [{"phase": "starting two clusters", "seconds": 5.0}]


def test_latency_leaves_out_what_an_outage_touched() -> None:
    """A record is touched when it waited through any part of one."""
    second = 1_000_000
    sent = [1 * second, 4 * second, 5 * second, 9 * second]
    arrived = [1 * second + 20_000, 8 * second, 8 * second, 9 * second + 40_000]
    calm, everything = latency_outside([KillOutage(4.5, 8.5)], sent, arrived)
    assert (calm.records, calm.p50, calm.max) == (2, 40.0, 40.0)
    assert (everything.records, everything.max) == (4, 4000.0)


def test_percentiles_and_peaks_of_nothing_are_0() -> None:
    """A demo without kills has a report as well."""
    assert (percentile([], 0.5), peak_rate([]), Latency()) == (0.0, 0, Latency(0, 0.0, 0.0, 0.0))
    assert percentile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert peak_rate([0, 1, 2_000_000]) == 2
