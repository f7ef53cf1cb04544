"""Time that a test plays."""

from __future__ import annotations

__all__ = ["PlayedClock"]


class PlayedClock:
    """
    A clock that only moves when its user sleeps, or the test moves it.

    Args:
        now: Where it stands, seconds.
    """

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def wall_ms(self) -> int:
        """The same in ms."""
        return int(self.now * 1000)

    def sleep(self, seconds: float) -> None:
        """Pass time."""
        self.now += seconds
