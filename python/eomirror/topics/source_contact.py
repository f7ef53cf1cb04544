"""Tracks when a link's source last answered. Pure: time is an argument."""

from __future__ import annotations

__all__ = ["PATIENCE_SECONDS", "SourceContact"]

#: A question that waits for longer than this counts as one without an answer.
PATIENCE_SECONDS = 5.0


class SourceContact:
    """
    Tracks the answers of a source to one thread's questions; other threads may read.

    Every ``now`` is in monotonic seconds.
    """

    __slots__ = ("_answered", "_asked", "_failing")

    def __init__(self) -> None:
        self._answered: float | None = None
        self._asked: float | None = None
        self._failing: float | None = None

    def asked(self, now: float) -> None:
        """Records a question."""
        self._asked = now

    def answered(self, now: float) -> None:
        """Records the answer."""
        self._answered, self._asked, self._failing = now, None, None

    def failed(self, asked: float) -> None:
        """Records that a question, asked at that time, has no answer."""
        self._asked = None
        if self._failing is None:
            self._failing = asked

    def age(self, now: float) -> float | None:
        """Returns the seconds since the last answer; None before the first."""
        answered = self._answered
        return None if answered is None else max(0.0, now - answered)

    def failing(self, now: float) -> float:
        """
        Returns the seconds since the first question without an answer; 0 if the last one was answered.

        A question that waits for longer than `PATIENCE_SECONDS` counts: a request fails only after half a minute.
        """
        failing, asked = self._failing, self._asked
        if failing is None and asked is not None and now - asked > PATIENCE_SECONDS:
            failing = asked
        return 0.0 if failing is None else max(0.0, now - failing)
