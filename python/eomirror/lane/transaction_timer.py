"""How long a transaction has been open, what is in it, and how long an advance has waited; time comes in (pure)."""

from __future__ import annotations

from eomirror.lane.machine import CutRule, LaneState, OpenTransaction
from eomirror.plane.protocol import Pumped

__all__ = ["TransactionTimer"]

# an advance without records is committed within a second (rule 4)
_ADVANCE_SECONDS = 0.8
# so long ago the target was there when it answered
_ANSWERED_SECONDS = 5.0
# of the transaction timeout
_OVERDUE = 0.9
# of a transaction that is begun and not pumped into
_NOTHING = Pumped(0, 0, drained=True)


class TransactionTimer:
    """
    Watches the transactions of one lane, one after the other; every ``now`` is in monotonic seconds.

    Args:
        cut: When they end.
    """

    __slots__ = (
        "_advance_since", "_bytes", "_committed", "_cut", "_opened", "_opened_before", "_pumped", "_records", "_rounds",
    )  # fmt: skip

    def __init__(self, cut: CutRule) -> None:
        self._cut = cut
        self._opened = self._opened_before = self._committed = float("-inf")
        self._records = self._bytes = self._rounds = 0
        self._pumped = _NOTHING
        self._advance_since: float | None = None

    def open(self, now: float) -> None:
        """A transaction is being begun."""
        self._opened_before, self._opened = self._opened, now
        self._records = self._bytes = self._rounds = 0
        self._pumped = _NOTHING

    def add(self, pumped: Pumped) -> None:
        """So much went into it."""
        self._pumped = pumped
        self._records += pumped.records
        self._bytes += pumped.bytes

    def committed(self, now: float) -> None:
        """It is committed, and what had moved before it with it."""
        self._advance_since = None
        self._committed = now

    def seconds(self, now: float) -> float:
        """How long ago the last transaction was begun; infinite before the first."""
        return now - self._opened

    def facts(self, now: float, *, leaving: bool) -> OpenTransaction:
        """
        What the cut depends on.

        Args:
            now: Of this look.
            leaving: The lane is to hand back.
        """
        return OpenTransaction(
            seconds=now - self._opened,
            since_last=now - self._opened_before,
            records=self._records,
            bytes=self._bytes,
            rounds=self._rounds,
            rested=self._opened - self._committed,
            drained=self._pumped.drained,
            enough=self._pumped.enough,
            leaving=leaving,
        )

    def max_wait(self, now: float) -> float:
        """For how long to wait for more at most, seconds; see `CutRule.max_wait`."""
        return self._cut.max_wait(self.facts(now, leaving=False))

    def cut_due(self, now: float, *, leaving: bool) -> bool:
        """Whether to send no more; see `CutRule.due`."""
        return self._cut.due(self.facts(now, leaving=leaving))

    def takes_more(self, now: float) -> bool:
        """Whether what is acknowledged takes more, if there is any; see `CutRule.takes_more`."""
        return self._cut.takes_more(self.facts(now, leaving=False))

    def add_round(self) -> None:
        """It takes more."""
        self._rounds += 1

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
        sent = state in {LaneState.FLUSHING, LaneState.COMMITTING}
        return sent and now - self._opened >= _OVERDUE * timeout
