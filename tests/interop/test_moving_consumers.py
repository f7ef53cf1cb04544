"""Consumers move at random moments, the mirror killed in between: a short run of `just moving-consumers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.links.moving.interrupted import ABORTED, BACK, RESET, InterruptedTrials
from support.links.moving.java import java_client
from support.links.moving.judge import Count
from support.links.moving.ours import OurTrials
from support.links.plane import plane_under_test

if TYPE_CHECKING:
    from pathlib import Path

    from support.clusters.rig import Rig

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_none_is_skipped_and_none_is_read_twice_there_and_back(
    east: Any, west: Any, tmp_path: Path, seed: int
) -> None:
    """0 and 0 where one side writes; where both write, 0 skipped, and what is read twice was announced."""
    sides = {"east": east.client_properties, "west": west.client_properties}
    trials = OurTrials(sides, tmp_path / "mirror", seed=seed, plane=plane_under_test(), tag="moving")

    run = trials.run(2, back=2)

    counts = {kind: count for (by, kind), count in run.counts.items() if by == "library"}
    assert len(counts) == 12
    whole = Count.total(counts.values())
    assert (whole.unanswered, whole.skipped, whole.beyond) == (0, 0, 0), run.wrong
    one_side = Count.total(count for kind, count in counts.items() if "both sides" not in kind)
    assert one_side.again == 0, run.wrong
    assert not [line for line in run.wrong if not line.startswith("library")]


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_java_skips_nothing_when_the_mirror_died_in_an_open_transaction(
    rig: Rig, tmp_path: Path, seed: int
) -> None:
    """From checkpoints that are aborted later it may read twice, and never skips; afterwards it is exact."""
    with java_client() as java:
        trials = InterruptedTrials(
            rig.source.direct, rig.target, tmp_path / "mirror",
            seed=seed, plane=plane_under_test(), tag="open", java=java,
        )  # fmt: skip
        run = trials.run(2)

    def total(*tellers: str) -> Count:
        return Count.total(count for (by, _), count in run.counts.items() if by in tellers)

    assert Count.total(run.counts.values()).skipped == 0, run.wrong
    assert total(ABORTED).places > 0, run.counts
    exact = total(BACK, RESET)
    assert exact.places > 0
    assert (exact.again, exact.unanswered) == (0, 0), run.wrong
    assert not [line for line in run.wrong if not line.startswith("java")]
