"""How long a transaction has been open, what is in it, and how long an advance has waited; time comes in (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.lane.machine import LaneState, OpenTransaction

if TYPE_CHECKING:
    from eomirror.lane.plane import Pumped

__all__ = ["TransactionWatch"]

# an advance without records is committed within a second (rule 4)
_ADVANCE_SECONDS = 0.8
# so long ago the target was there when it answered
_ANSWERED_SECONDS = 5.0
# of the transaction timeout
_OVERDUE = 0.9


class TransactionWatch:
    """Watches the transactions of one lane, one after the other; every ``now`` is in monotonic seconds."""

    __slots__ = ("_advance_since", "_bytes", "_opened", "_opened_before", "_records")

    def __init__(self) -> None:
        self._opened = self._opened_before = float("-inf")
        self._records = self._bytes = 0
        self._advance_since: float | None = None

    def open(self, now: float) -> None:
        """A transaction is being begun."""
        self._opened_before, self._opened = self._opened, now
        self._records = self._bytes = 0

    def add(self, pumped: Pumped) -> None:
        """So much went into it."""
        self._records += pumped.records
        self._bytes += pumped.bytes

    def committed(self) -> None:
        """It is committed, and what had moved before it with it."""
        self._advance_since = None

    def seconds(self, now: float) -> float:
        """How long ago the last transaction was begun; infinite before the first."""
        return now - self._opened

    def facts(self, now: float, pumped: Pumped, *, leaving: bool) -> OpenTransaction:
        """
        What the cut depends on.

        Args:
            now: Of this look.
            pumped: What the plane did last.
            leaving: The lane is to hand back.
        """
        return OpenTransaction(
            seconds=now - self._opened,
            since_last=now - self._opened_before,
            records=self._records,
            bytes=self._bytes,
            drained=pumped.drained,
            enough=pumped.enough,
            leaving=leaving,
        )

    def answered_lately(self, now: float) -> bool:
        """Whether the target has taken a transaction so lately that it is most likely still there."""
        return now - self._opened < _ANSWERED_SECONDS

    def advance_due(self, now: float, *, moved: bool) -> bool:
        """
        Whether positions that moved without records have waited long enough (rule 4).

        Args:
            now: Of this look.
            moved: Whether there are any.
        """
        if not moved:
            self._advance_since = None
            return False
        if self._advance_since is None:
            self._advance_since = now
        return now - self._advance_since >= _ADVANCE_SECONDS

    def overdue(self, now: float, state: LaneState, timeout: float) -> bool:
        """
        Whether what was sent lay open for so long that it was too much: fenced or unanswered, it is the same.

        Args:
            now: Of this look.
            state: Of the lane when it gave up.
            timeout: After which the target aborts a transaction, seconds.
        """
        sent = state in {LaneState.SEALING, LaneState.COMMITTING}
        return sent and now - self._opened >= _OVERDUE * timeout
