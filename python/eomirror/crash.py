"""
Named crash points: where tests make a process die as if by kill -9.

``EOMIRROR_CRASH_POINT=name@flag`` kills the process at the point, once: the file ``flag`` is made first, and
whoever finds it goes on.  ``name:n@flag`` waits for the n-th passage of a process.  Without the variable,
which is how every user runs, a passage is one comparison.  The points stand between each pair of steps of a
protocol, so that a test can show that no prefix of the steps breaks a rule (fault F1).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

__all__ = ["CRASH_POINTS", "crash_point"]

#: Every point there is; tests run through them all, and a typo in the variable is an error.
CRASH_POINTS = (
    "owner.watched",
    "owner.initialized",
    "owner.control_read",
    "owner.positions_checked",
    "owner.published",
    "owner.fenced_some",
    "owner.fenced_all",
    "owner.revision_published",
    "lane.initialized",
    "lane.control_read",
    "lane.positions_read",
    "lane.topics_compared",
    "lane.mended",
    "lane.claim_written",
    "lane.claimed",
    "lane.begun",
    "lane.produced",
    "lane.sealed",
    "lane.state_written",
    "lane.tidied",
    "lane.committed",
)

_POINT, _, _FLAG = os.environ.get("EOMIRROR_CRASH_POINT", "").partition("@")
_NAME, _, _COUNT = _POINT.partition(":")
_state = {"left": int(_COUNT or 1)}
if _NAME and (_NAME not in CRASH_POINTS or not _FLAG):
    raise ValueError(
        f"EOMIRROR_CRASH_POINT={_POINT}@{_FLAG}: say NAME@FILE, with one of {', '.join(CRASH_POINTS)}"
    )


def crash_point(name: str) -> None:
    """Die here with SIGKILL, if the environment asks for it and nobody has died here before."""
    if name != _NAME:
        return
    _state["left"] -= 1
    if _state["left"] == 0 and not Path(_FLAG).exists():
        Path(_FLAG).touch()
        os.kill(os.getpid(), signal.SIGKILL)
