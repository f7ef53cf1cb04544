"""
Clocks, sleep, random numbers and ids; no other module reads clocks or draws random numbers.

Decision code takes time as an argument; adapters take a `Clock`.  Durations come from the monotonic clock, so that a
change of the wall clock has no effect (fault F34).  Wall time is only written for people to read.
"""

from __future__ import annotations

import random
import secrets
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = [
    "SYSTEM_CLOCK",
    "Clock",
    "Deadline",
    "SystemClock",
    "Term",
    "jitter",
    "new_run_id",
    "new_token",
    "utc",
]


def utc(milliseconds: float) -> str:
    """Returns a time as ISO 8601 in UTC, such as ``2026-11-27T14:05:09Z``; its number if no calendar has it."""
    try:
        return f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    except (OverflowError, OSError, ValueError):
        return f"{milliseconds:.0f} ms"


class Clock(Protocol):
    """Source of time."""

    def monotonic(self) -> float:
        """Returns seconds since an arbitrary start; never goes back."""

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch."""

    def sleep(self, seconds: float) -> None:
        """Blocks this thread."""


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        """Returns seconds since an arbitrary start; never goes back."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Returns milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Blocks this thread."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


class Term(Protocol):
    """Condition that ends a wait, such as a `Deadline`."""

    @property
    def passed(self) -> bool:
        """True once the wait is to end."""


class Deadline:
    """Deadline for all steps of an operation."""

    __slots__ = ("_at", "_clock")

    def __init__(self, seconds: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds

    def remaining(self) -> float:
        """Returns the seconds left, never below 0."""
        return max(0.0, self._at - self._clock.monotonic())

    @property
    def passed(self) -> bool:
        """True if no time is left."""
        return self._clock.monotonic() >= self._at


def new_run_id() -> str:
    """
    Returns an id for a run of a mirror; ids sort by start time.

    48 bits of milliseconds, then 40 random bits, in hexadecimal (the layout of ULID and UUIDv7, shorter).
    """
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(5)}"


def new_token() -> str:
    """Returns a secret of 256 random bits, in hexadecimal."""
    return secrets.token_hex(32)


def jitter(seconds: float, share: float = 0.2) -> float:
    """Returns ``seconds`` changed randomly by up to +-``share``, so that lanes do not act at the same time."""
    return seconds * (1 + share * (2 * random.random() - 1))
