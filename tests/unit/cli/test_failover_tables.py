"""What `eomirror failover` and its kin write on a terminal about a link."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eomirror.cli import failover
from eomirror.failover.promotion import PromotionReport
from eomirror.failover.readiness import Check, Level, Readiness
from eomirror.records.promotion import Cut, Promotion

READY = Readiness(
    link="l", verb="failover", ready=True, verdict="READY WITH LOSS 3", lost=3, lost_seconds=2.0, checks=()
)  # fmt: skip
REFUSED = replace(
    READY, ready=False, verdict="NOT READY", checks=(Check("link", Level.NO, "promoted already (planned, number 2)"),)
)  # fmt: skip
CUT = Cut(
    topic="orders", partition=0, topic_id="t", position=120, target_topic="orders", target_topic_id="u", target_end=90,
    timestamp=1, source_end=100,
)  # fmt: skip
PROMOTION = Promotion(
    number=1, planned=False, run="r", host="h", generation=4, source_cluster_id="a", target_cluster_id="b", cuts=(CUT,),
    started=0, timestamp=5_000, ends_at=1_000,
)  # fmt: skip


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (READY, "READY WITH LOSS 3: a failover would leave behind 3 source offsets, the oldest 2.0 s old"),
        (replace(READY, verdict="READY", lost=0), "READY: a failover would leave behind 0 source offsets"),
        (replace(READY, lost=None), "leave behind an unknown number of source offsets"),
        (replace(READY, at_least=True, lost_seconds=None), "leave behind at least 3 source offsets"),
        (
            replace(READY, verb="cutover", verdict="READY"),
            "READY: 3 source offsets are left to mirror before the promotion",
        ),
        (REFUSED, "NOT READY: link: promoted already (planned, number 2)"),
    ],
)
def test_the_verdict_is_one_sentence(found: Readiness, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A planned command leaves nothing behind, and a link that is not ready has another reason than its lag."""
    failover._draw_readiness(found, "readiness")
    assert capsys.readouterr().out.rstrip().endswith(text)


def report(readiness: Readiness, state: str, promotion: Promotion | None, **changes: Any) -> PromotionReport:
    return PromotionReport(
        link="l", verb=readiness.verb, dry_run=False, state=state, readiness=readiness, promotion=promotion, groups=(),
        refused_groups={}, milliseconds={}, **changes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("state", "text"),
    [("refused", "refused: nothing was changed"), ("failed", "failed: the link stays a mirror")],
)
def test_a_link_that_is_promoted_already_is_not_called_a_mirror(
    state: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second call is refused, and the link is promoted all the same."""
    failover._draw_promotion(report(REFUSED, state, None))
    assert capsys.readouterr().out.rstrip().endswith(text)


def test_an_end_that_was_only_seen_is_named_so_and_is_not_before_the_position(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Lanes have mirrored on since they told it."""
    failover._draw_promotion(report(READY, "promoted", PROMOTION))
    out = capsys.readouterr().out
    assert "SEEN END" in out
    assert out.split("\n orders")[1].split()[:4] == ["0", "120", "120", "0"]

    failover._draw_promotion(
        report(READY, "promoted", replace(PROMOTION, ends_at=None), write_pause_ms=1_240)
    )
    out = capsys.readouterr().out
    assert "SOURCE END" in out
    assert "applications could not write for 1.2 s" in out
    failover._draw_promotion(report(READY, "promoted", replace(PROMOTION, uncut=70, at_least=True)))
    assert "beyond the cut: at least 70, and what was written in the" in capsys.readouterr().out
