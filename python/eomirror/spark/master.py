"""A Spark master's address: whether its workers are local, and how many tasks it runs at a time."""

from __future__ import annotations

import os
import re

from eomirror.errors import UsageError

__all__ = ["DEFAULT_MASTER", "check_slots", "is_local"]

#: Slots cost nothing until used, and a local master cannot grow.
DEFAULT_MASTER = "local[256]"

_LOCAL = re.compile(r"local(?:\[(?P<slots>\*|\d+)(?:,\s*\d+)?\])?")


def is_local(master: str) -> bool:
    """Returns whether all workers of this master are on the driver's machine, as children of its JVM."""
    return _LOCAL.fullmatch(master) is not None


def check_slots(master: str, lanes: int) -> None:
    """
    Refuse a local master with fewer slots than lanes; a cluster's slots come and go.

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
            f"spark.master={master} has {count} slots for {lanes} lanes, and a lane holds its slot",
            fix=f"use {DEFAULT_MASTER} (a slot costs nothing until it is used), or fewer lanes",
        )
