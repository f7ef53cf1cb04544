"""Tracks when a link's source last answered. Pure: time is an argument."""

from __future__ import annotations

__all__ = ["SourceContact"]


class SourceContact:
    """
    Tracks the answers of a source to one thread's questions; other threads may read.

    Every ``now`` is in monotonic seconds.
    """

    __slots__ = ("_answered", "_failing")

    def __init__(self) -> None:
        self._answered: float | None = None
        self._failing: float | None = None

    def answered(self, now: float) -> None:
        """Records an answer."""
        self._answered, self._failing = now, None

    def failed(self, asked: float) -> None:
        """Records a question, asked at that time, without an answer."""
        if self._failing is None:
            self._failing = asked

    def age(self, now: float) -> float | None:
        """Returns the seconds since the last answer; None before the first."""
        answered = self._answered
        return None if answered is None else max(0.0, now - answered)

    def failing(self, now: float) -> float:
        """Returns the seconds since the first question without an answer; 0 if the last one was answered."""
        failing = self._failing
        return 0.0 if failing is None else max(0.0, now - failing)
