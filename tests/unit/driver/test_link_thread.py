"""What a link's thread makes of what its lanes leave behind, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.clock import SYSTEM_CLOCK
from eomirror.driver.link import LinkThread


def link(*, silent: bool) -> LinkThread:
    """One whose channel falls silent in time, or does not."""
    tools: Any = SimpleNamespace(clock=SYSTEM_CLOCK)
    spec: Any = SimpleNamespace(
        link=SimpleNamespace(name="a->b", state_name="a.b"), run="r", source=None, target=None
    )
    idle: Any = lambda *_: None  # noqa: E731  of five kinds
    sessions: Any = SimpleNamespace(close=lambda: None)
    made = LinkThread(
        spec, sessions=sessions, discovery=idle, owner=idle, heart=idle, follower=idle, tools=tools
    )
    channel: Any = SimpleNamespace(wait_disconnected=lambda *_: silent)
    made._engine = SimpleNamespace(channel=channel)  # type: ignore[assignment]
    return made


@pytest.mark.parametrize("silent", [True, False])
def test_a_lane_that_does_not_rest_is_told_like_one_that_is_cut_off(*, silent: bool) -> None:
    """EO-10: a run that says that it ended well has nothing left that may still commit."""
    made = link(silent=silent)

    made.wait_disconnected(0)

    assert made.aborted is not silent
