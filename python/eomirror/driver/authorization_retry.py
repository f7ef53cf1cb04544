"""
When topics that lack a right, or a leader that serves them, are tried again: pure, times in, topics out.

A right that was revoked may be granted again, brokers that hold all replicas of a partition come back, or can read
again what they hold, and nobody should have to restart the mirror for that (fault F30).
Trying costs the topic's lanes a short stop between two transactions, so the times between the tries double.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["UnauthorizedTopics"]

_FIRST_SECONDS = 5.0
_LONGEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Wait:
    """``until`` is when the topic is tried next; None while it is being tried."""

    seconds: float
    until: float | None
    tried_at: float


class UnauthorizedTopics:
    """Topics of one link that lack a right or a leader.  Not thread-safe: its owner holds a lock."""

    def __init__(self) -> None:
        self._waits: dict[str, _Wait] = {}

    def stopped(self, topics: Iterable[str], now: float) -> list[str]:
        """
        These topics were stopped for want of a right.

        Args:
            topics: Which ones; those that wait already go on waiting.
            now: Monotonic seconds.

        Returns:
            Those that did not wait before.
        """
        fresh = [topic for topic in topics if not self.waits(topic)]
        for topic in fresh:
            last = self._waits.get(topic)
            # one that was mirrored for longer than it had waited has got its right, and lost another one
            again = last is not None and now - last.tried_at <= max(last.seconds, _LONGEST_SECONDS)
            seconds = min(_LONGEST_SECONDS, 2 * last.seconds) if again and last else _FIRST_SECONDS
            self._waits[topic] = _Wait(seconds, now + seconds, now)
        return fresh

    def due(self, now: float) -> list[str]:
        """Topics that are to be tried now; they do not wait any more."""
        due = [topic for topic, wait in self._waits.items() if wait.until is not None and wait.until <= now]
        for topic in due:
            self._waits[topic] = replace(self._waits[topic], until=None, tried_at=now)
        return due

    def waits(self, topic: str) -> bool:
        """Whether the topic is stopped for want of a right."""
        wait = self._waits.get(topic)
        return wait is not None and wait.until is not None

    def __bool__(self) -> bool:
        return any(wait.until is not None for wait in self._waits.values())
