"""
Claims of processes: makes our own, and tells whether another's process is dead.

Only on the machine, boot and process namespace where a claim was made can anybody tell that its process is
dead; everywhere else the claim has to be watched (rule 10).  A process is named by its id and its start time,
because ids are used again.
"""

from __future__ import annotations

import os
import socket
from pathlib import Path

from eomirror.records.control import Claim

__all__ = ["is_dead", "own_claim"]


def own_claim(run: str, sequence: int, interval: float, *, released: bool, now_ms: int) -> Claim:
    """
    The claim of this process.

    Args:
        run: Run of the mirror.
        sequence: Grows with every renewal.
        interval: Seconds between renewals.
        released: Whether the link is given up.
        now_ms: Wall clock, for people.
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
    )


def _boot_identity() -> str:
    """Names this boot and process namespace, or nothing where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _started(pid: int) -> str | None:
    """When a living process started, in clock ticks since boot; None for a dead one (proc(5), /proc/PID/stat)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # the name in parentheses may hold anything, spaces and parentheses too
    fields = stat.rpartition(")")[2].split()
    state, started = fields[0], fields[19]
    return None if state in {"Z", "X"} else started


def _hidden(pid: int) -> bool:
    """Whether a living process of another user is not shown to us (proc(5), hidepid): a signal is refused then."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def is_dead(claim: Claim) -> bool:
    """Whether the claim's process is dead: known only where it ran, in the same boot and process namespace."""
    if not claim.boot or claim.boot != _boot_identity():
        return False
    started = _started(claim.pid)
    if started is None and _hidden(claim.pid):
        return False
    return started != claim.started
