"""
Makes the claim of this process and detects that the process of another claim is dead.

The death of a process can be detected only on the machine, boot and process namespace of its claim; everywhere else
the claim has to be watched (EO-10).  A claim names its process by id and start time, because ids are reused.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from eomirror.records.control import Claim

__all__ = ["is_dead", "own_claim"]


def own_claim(
    run: str,
    sequence: int,
    interval: float,
    *,
    released: bool,
    now_ms: int,
    command: str = "",
    alone: bool = False,
) -> Claim:
    """
    Returns the claim of this process.

    Args:
        run: Id of the mirror's run.
        sequence: Grows with every renewal.
        interval: Seconds between renewals.
        released: True if the link is released.
        now_ms: Wall clock, shown to people only.
        command: Command that owns the link; empty for a mirror.
        alone: True if other links of the run go on.
    """
    return Claim(
        run=run,
        host=socket.gethostname(),
        pid=os.getpid(),
        boot=_boot_identity(),
        started=_started(os.getpid()) or "",
        sequence=sequence,
        interval_ms=int(interval * 1000),
        released=released,
        timestamp=now_ms,
        command=command,
        alone=alone,
    )


def _boot_identity() -> str:
    """Returns an identity of this boot and process namespace; empty where the system has none."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """Returns a living process's start time in clock ticks since boot; None if dead (proc(5), /proc/PID/stat)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # the name in parentheses may hold anything, spaces and parentheses too
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return None if state in {"Z", "X"} else started


def _hidden(pid: int) -> bool:
    """Returns True if a living process of another user is invisible (proc(5), hidepid): the signal is then refused."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def is_dead(claim: Claim) -> bool:
    """Returns True if the claim's process is known to be dead; detectable in its own boot and namespace only."""
    if not claim.boot or claim.boot != _boot_identity():
        return False
    started = _started(claim.pid)
    if started is None and _hidden(claim.pid):
        return False
    return started != claim.started
