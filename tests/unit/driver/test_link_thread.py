"""What the lanes of a link make of what its lanes leave behind, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.clock import SYSTEM_CLOCK
from eomirror.driver.link_lanes import LinkLanes


def lanes(*, silent: bool) -> LinkLanes:
    """Those of a link whose channel falls silent in time, or does not."""
    unused: Any = SimpleNamespace(patient=True, clock=SYSTEM_CLOCK)
    made = LinkLanes("a->b", unused, unused, unused, check_owner=lambda: None, fail=lambda *_: None)
    channel: Any = SimpleNamespace(wait_disconnected=lambda *_: silent)
    made._engine = SimpleNamespace(channel=channel)  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("silent", [True, False])
def test_a_lane_that_does_not_rest_is_told_like_one_that_is_cut_off(*, silent: bool) -> None:
    """EO-10: a run that says that it ended well has nothing left that may still commit."""
    made = lanes(silent=silent)

    made.wait_disconnected(0)

    assert made.aborted is not silent
