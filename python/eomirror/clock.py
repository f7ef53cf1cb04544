"""
The only module that reads clocks, sleeps, or draws random numbers and ids.

Decision code takes time as an argument; adapters take a `Clock`.  Durations come from the monotonic
clock, so that a wall clock that is set back or forward changes nothing (fault F34); wall time is only
ever written down for people.
"""

from __future__ import annotations

import random
import secrets
import time
from typing import Protocol

__all__ = ["SYSTEM_CLOCK", "Clock", "Deadline", "SystemClock", "Term", "jitter", "new_run_id", "new_token"]


class Clock(Protocol):
    """Where time comes from."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""

    def sleep(self, seconds: float) -> None:
        """Block this thread."""


class SystemClock:
    """The machine's own clocks."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        return time.monotonic()

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return time.time_ns() // 1_000_000

    def sleep(self, seconds: float) -> None:
        """Block this thread."""
        time.sleep(seconds)


SYSTEM_CLOCK = SystemClock()


class Term(Protocol):
    """When something is to end."""

    @property
    def passed(self) -> bool:
        """Whether it is."""


class Deadline:
    """One deadline that serves every step of an operation."""

    __slots__ = ("_at", "_clock")

    def __init__(self, seconds: float, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._at = clock.monotonic() + seconds

    def remaining(self) -> float:
        """Seconds left, never below 0."""
        return max(0.0, self._at - self._clock.monotonic())

    @property
    def passed(self) -> bool:
        """Whether no time is left."""
        return self._clock.monotonic() >= self._at


def new_run_id() -> str:
    """
    An id for one run of a mirror that sorts by start time.

    48 bits of milliseconds, then 40 random bits, in hexadecimal (the layout of ULID and UUIDv7, shorter).
    """
    return f"{time.time_ns() // 1_000_000:012x}{secrets.token_hex(5)}"


def new_token() -> str:
    """A secret of 256 random bits, in hexadecimal."""
    return secrets.token_hex(32)


def jitter(seconds: float, share: float = 0.2) -> float:
    """``seconds`` spread by +-``share``, so that lanes do not act in step."""
    return seconds * (1 + share * (2 * random.random() - 1))
