"""
Named crash points, at which tests kill a process as kill -9 does.

``EOMIRROR_CRASH_POINT=name@flag`` kills the process at the point, once: it creates the file ``flag`` first, and a
process that finds the file continues.  ``name:n@flag`` kills at the n-th passage of a process.  Without the variable,
as in every user's run, a passage costs one comparison.  There is a point between each pair of steps of a protocol, so
that tests show that no prefix of the steps breaks a rule (fault F1).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path

__all__ = ["CRASH_POINTS", "FAILOVER_CRASH_POINTS", "crash_point"]

#: All crash points; a test kills at each of them, and an unknown name in the variable is an error.
CRASH_POINTS = (
    "owner.watched",
    "owner.initialized",
    "owner.control_read",
    "owner.positions_checked",
    "owner.published",
    "owner.fenced_some",
    "owner.fenced_all",
    "owner.revision_published",
    "owner.parked",
    "owner.move_published",
    "owner.move_claimed",
    "owner.move_fenced",
    "lane.initialized",
    "lane.control_read",
    "lane.positions_read",
    "lane.topics_compared",
    "lane.hanging_resolved",
    "lane.claim_written",
    "lane.claimed",
    "lane.adopted",
    "lane.begun",
    "lane.produced",
    "lane.flushed",
    "lane.state_written",
    "lane.map_compacted",
    "lane.committed",
)

#: Crash points of the commands that promote a link, reverse it and restore its orphans.
FAILOVER_CRASH_POINTS = (
    "failover.checked",
    "failover.fenced",
    "failover.drained",
    "failover.taken",
    "failover.ended",
    "failover.read",
    "failover.group_moved",
    "failover.groups_moved",
    "failover.recorded",
    "failover.reversal_noted",
    "failover.reversed",
    "failover.orphans_written",
    "failover.restored",
    "failover.recreation_noted",
    "failover.copy_back_noted",
    "failover.topics_deleted",
    "failover.copy_back_begun",
    "failover.copied_back",
    "failover.recreation_done",
)

_POINT, _, _FLAG = os.environ.get("EOMIRROR_CRASH_POINT", "").partition("@")
_NAME, _, _COUNT = _POINT.partition(":")
_state = {"left": int(_COUNT or 1)}
if _NAME and (_NAME not in (*CRASH_POINTS, *FAILOVER_CRASH_POINTS) or not _FLAG):
    raise ValueError(
        f"EOMIRROR_CRASH_POINT={_POINT}@{_FLAG}: write NAME@FILE, with one of "
        f"{', '.join((*CRASH_POINTS, *FAILOVER_CRASH_POINTS))}"
    )


def crash_point(name: str) -> None:
    """Kills this process with SIGKILL, if the environment names this point and the flag file does not exist."""
    if name != _NAME:
        return
    _state["left"] -= 1
    if _state["left"] == 0 and not Path(_FLAG).exists():
        Path(_FLAG).touch()
        os.kill(os.getpid(), signal.SIGKILL)
