"""The demo's picture of both sides, its report, and the exact words of its verdict."""

from __future__ import annotations

import dataclasses
import io

import orjson
import pytest
from rich.console import Console, RenderableType

from eomirror.demo.compare import Comparison, Difference, Revision
from eomirror.demo.report import CopyNow, DemoReport, JudgedCopy, Kill, Picture, render, verdict

GOOD = JudgedCopy(
    topic="east.orders", comparison=Comparison(source=900, target=900), revision=Revision(seen=900)
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
    kills=(
        Kill(10.0, 6, (0, 3), standby=False, recovery=3.5, naive_recovery=0.9),
        Kill(25.0, 6, (1,), standby=False, recovery=4.0, naive_recovery=0.8),
        Kill(40.0, 6, (2,), standby=True, recovery=1.5, naive_recovery=1.0),
    ),
    exactly_once=GOOD,
    at_least_once=OFF,
    folder="somewhere",
)


def drawn(shown: DemoReport | RenderableType, width: int = 80) -> str:
    """As on a terminal without colours."""
    text = io.StringIO()
    picture = render(shown) if isinstance(shown, DemoReport) else shown
    Console(file=text, width=width, color_system=None).print(picture)
    return text.getvalue()


@pytest.mark.parametrize("width", [80, 140])
def test_the_picture_has_a_row_for_each_side(width: int) -> None:
    """Figures of millions, and the longest states, are whole and on one row of a narrow terminal."""
    states = ("down 12.3 s, standby takes over", "down 12.3 s, restarted")
    copies = tuple(
        CopyNow(name=name, mirrored=1_234_567, behind=23_456, duplicates=9_876, lost=0, state=state)
        for name, state in zip(("eomirror", "naive copier"), states, strict=True)
    )
    rows = drawn(Picture(produced=1_258_023, aborted=12_345, copies=copies).draw(), width).splitlines()
    cells = [row.split() for row in rows if row.strip("─ ")]
    assert cells[0] == ["RECORDS", "BEHIND", "DUPLICATE", "LOST", "STATE"]
    assert cells[1][:2] == ["source", "1,258,023"]
    assert cells[2][:5] == ["eomirror", "1,234,567", "23,456", "9,876", "0"]
    assert cells[3][:3] == ["naive", "copier", "1,234,567"]
    assert len(cells) == 4
    if width > 80:
        assert all(any(row.rstrip().endswith(state) for row in rows) for state in states)


def test_a_perfect_copy_has_the_line_that_everybody_looks_for() -> None:
    """Exactly these words, on a line."""
    lines = [line.strip() for line in drawn(REPORT).splitlines()]
    assert "0 missing, 0 duplicate, 0 reordered, 0 altered" in lines
    assert REPORT.exit_code == 0


def test_the_other_copier_stands_beside_it() -> None:
    """What is prevented is seen in the same row, and after a kill both waited for the same: the next record."""
    rows = [line.split() for line in drawn(REPORT).splitlines()]
    assert ["duplicate", "0", "334"] in rows
    assert ["1", "10.0", "s", "2", "of", "6", "partitions", "start", "again", "3.5", "s", "0.9", "s"] in rows
    assert ["3", "40.0", "s", "1", "of", "6", "partitions", "standby", "1.5", "s", "1.0", "s"] in rows


def test_the_verdict_is_told_in_words() -> None:
    """Records, kills, the longest wait of each act, and what the naive copier did with the same."""
    text = " ".join(verdict(REPORT))
    assert text.startswith("verdict: exactly once ")
    assert "900 records were committed on the source, and 100 more were aborted" in text
    assert "The mirror was killed 3 times, each time in an open transaction" in text
    assert "waited at most 4.0 s when it was started again and 1.5 s with a standby" in text
    assert "wrote 334 records twice and lost 0" in text


def test_a_demo_without_kills_has_a_verdict() -> None:
    """It tells nothing of waits."""
    report = dataclasses.replace(REPORT, kills=())
    assert "waited" not in drawn(report)
    assert "The mirror was never killed." in " ".join(verdict(report))
    assert report.as_dict()["recovery_seconds"] == {"p50": 0.0, "max": 0.0}


@pytest.mark.parametrize("width", [80, 140])
def test_no_row_is_wider_than_the_terminal(width: int) -> None:
    """Sentences wrap between words; rows of tables stay whole."""
    assert max(len(line) for line in drawn(REPORT, width).splitlines()) <= width


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
    assert verdict(report)[0] == "verdict: NOT exactly once, the copy differs"
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
    assert body["recovery_seconds"] == {"p50": 3.5, "max": 4.0}
    assert body["at_least_once"]["comparison"]["duplicate"] == 334
