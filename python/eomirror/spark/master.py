"""Parses a Spark master's address: local or remote workers, and the number of concurrent tasks."""

from __future__ import annotations

import os
import re

from eomirror.errors import UsageError

__all__ = ["DEFAULT_MASTER", "check_slots", "is_local"]

#: Unused slots cost nothing, and the slots of a local master cannot grow.
DEFAULT_MASTER = "local[256]"

_LOCAL = re.compile(r"local(?:\[(?P<slots>\*|\d+)(?:,\s*\d+)?\])?")


def is_local(master: str) -> bool:
    """Returns True if all workers of this master are on the driver's machine, as children of its JVM."""
    return _LOCAL.fullmatch(master) is not None


def check_slots(master: str, lanes: int) -> None:
    """
    Refuses a local master with fewer slots than lanes; the slots of a cluster may grow.

    Raises:
        UsageError: Some lanes would never run.
    """
    found = _LOCAL.fullmatch(master)
    if found is None:
        return
    slots = found["slots"] or "1"
    count = (os.cpu_count() or 1) if slots == "*" else int(slots)
    if count < lanes:
        raise UsageError(
            f"spark.master={master} has {count} slots for {lanes} lanes, and each lane occupies a slot",
            fix=f"use {DEFAULT_MASTER} (unused slots cost nothing), or fewer lanes",
        )
