"""Tracks the age and size of a lane's open transaction, and the age of an advance. Pure: time is an argument."""

from __future__ import annotations

from eomirror.lane.commit_trigger import CommitTrigger, OpenTransaction
from eomirror.lane.machine import LaneState
from eomirror.plane.protocol import Pumped

__all__ = ["TransactionTimer"]

# an advance without records is committed within a second (EO-4)
_ADVANCE_SECONDS = 0.8
# an answer this recent means that the target is up
_ANSWERED_SECONDS = 5.0
# of the transaction timeout
_OVERDUE = 0.9
# of a transaction that is begun and not pumped into
_NOTHING = Pumped(0, 0, drained=True)


class TransactionTimer:
    """
    Tracks a lane's transactions, one after the other; every ``now`` is in monotonic seconds.

    Args:
        trigger: Decides when they end.
    """

    __slots__ = (
        "_advance_since",
        "_bytes",
        "_committed",
        "_opened",
        "_opened_before",
        "_pumped",
        "_records",
        "_rounds",
        "_trigger",
    )  # fmt: skip

    def __init__(self, trigger: CommitTrigger) -> None:
        self._trigger = trigger
        self._opened = self._opened_before = self._committed = float("-inf")
        self._records = self._bytes = self._rounds = 0
        self._pumped = _NOTHING
        self._advance_since: float | None = None

    def open(self, now: float) -> None:
        """Starts a transaction."""
        self._opened_before, self._opened = self._opened, now
        self._records = self._bytes = self._rounds = 0
        self._pumped = _NOTHING

    def add(self, pumped: Pumped) -> None:
        """Adds pumped records to the transaction."""
        self._pumped = pumped
        self._records += pumped.records
        self._bytes += pumped.bytes

    def committed(self, now: float) -> None:
        """Records the commit, which includes pending advances."""
        self._advance_since = None
        self._committed = now

    def seconds(self, now: float) -> float:
        """Returns the seconds since the last transaction began; infinite before the first."""
        return now - self._opened

    def facts(self, now: float, *, leaving: bool) -> OpenTransaction:
        """
        Returns the facts that the commit depends on.

        Args:
            leaving: The lane is to stop.
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
        """Returns the maximum wait for more records, seconds; see `CommitTrigger.max_wait`."""
        return self._trigger.max_wait(self.facts(now, leaving=False))

    def commit_due(self, now: float, *, leaving: bool) -> bool:
        """Returns whether to end the transaction; see `CommitTrigger.due`."""
        return self._trigger.due(self.facts(now, leaving=leaving))

    def takes_more(self, now: float) -> bool:
        """Returns whether an acknowledged transaction accepts more records; see `CommitTrigger.takes_more`."""
        return self._trigger.takes_more(self.facts(now, leaving=False))

    def add_round(self) -> None:
        """Counts a round that adds records to an acknowledged transaction."""
        self._rounds += 1

    def answered_lately(self, now: float) -> bool:
        """Returns whether the target took a transaction so recently that it is most likely up."""
        return now - self._opened < _ANSWERED_SECONDS

    def advance_due(self, now: float, *, moved: bool) -> bool:
        """
        Returns whether positions that moved without records have waited long enough (EO-4).

        Args:
            moved: Whether such positions exist.
        """
        if not moved:
            self._advance_since = None
            return False
        if self._advance_since is None:
            self._advance_since = now
        return now - self._advance_since >= _ADVANCE_SECONDS

    def overdue(self, now: float, state: LaneState, timeout: float) -> bool:
        """
        Returns whether a sent transaction was open for too long: a fenced and an unanswered one count alike.

        Args:
            state: State of the lane when it gave up.
            timeout: Transaction timeout of the target, seconds.
        """
        sent = state in {LaneState.FLUSHING, LaneState.COMMITTING}
        return sent and now - self._opened >= _OVERDUE * timeout
