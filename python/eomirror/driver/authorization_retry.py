"""
Schedules retries of topics that lack an ACL or a partition leader. Pure.

A revoked ACL may be granted again, and brokers that hold all replicas of a partition may come back.  The mirror must
then resume the topic without a restart (fault F30).  A retry costs the topic's lanes a short stop between two
transactions, so the delay doubles with each retry.
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
    """Delay of one topic; ``until`` is the time of the next retry, None while the topic is mirrored on trial."""

    seconds: float
    until: float | None
    tried_at: float


class UnauthorizedTopics:
    """Tracks the topics of one link that lack an ACL or a leader.  Not thread-safe: the caller holds a lock."""

    def __init__(self) -> None:
        self._waits: dict[str, _Wait] = {}

    def stopped(self, topics: Iterable[str], now: float) -> list[str]:
        """
        Records topics that were stopped because of a missing ACL or leader.

        Args:
            topics: Stopped topics; those that already wait keep their delay.
            now: Monotonic seconds.

        Returns:
            The topics that did not wait before.
        """
        fresh = [topic for topic in topics if not self.waits(topic)]
        for topic in fresh:
            last = self._waits.get(topic)
            # a topic that was mirrored for longer than its delay had recovered: its delay starts again at the minimum
            again = last is not None and now - last.tried_at <= max(last.seconds, _LONGEST_SECONDS)
            seconds = min(_LONGEST_SECONDS, 2 * last.seconds) if again and last else _FIRST_SECONDS
            self._waits[topic] = _Wait(seconds, now + seconds, now)
        return fresh

    def due(self, now: float) -> list[str]:
        """Returns the topics to retry now, and ends their wait."""
        due = [topic for topic, wait in self._waits.items() if wait.until is not None and wait.until <= now]
        for topic in due:
            self._waits[topic] = replace(self._waits[topic], until=None, tried_at=now)
        return due

    def waits(self, topic: str) -> bool:
        """Returns True if the topic is stopped because of a missing ACL or leader."""
        wait = self._waits.get(topic)
        return wait is not None and wait.until is not None

    def __bool__(self) -> bool:
        return any(wait.until is not None for wait in self._waits.values())
