"""Tracks the age and size of a lane's open transaction, and the age of an advance. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass

from eomirror.lane.machine import LaneState
from eomirror.plane.protocol import Pumped

__all__ = ["CommitFacts", "CommitTrigger", "TransactionTimer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """
    Facts that decide when a transaction is cut.

    Attributes:
        seconds: Age of the transaction.
        since_last: Seconds since the previous transaction began; infinite for the first.
        records: Records produced into it.
        bytes: Their keys, values and headers.
        drained: The last fetch emptied the sources.
        leaving: The lane is to stop.
        enough: The plane has reached its size limit.
        rounds: Number of rounds that added records after an acknowledgement.
        rested: Seconds without an open transaction before it; infinite for the first.
    """

    seconds: float
    since_last: float
    records: int
    bytes: int
    drained: bool
    leaving: bool
    enough: bool = False
    rounds: int = 0
    rested: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitTrigger:
    """
    Decides when a transaction is cut.

    Attributes:
        interval: Maximum age of a transaction while the lane lags, seconds.
        interval_min: Minimum time from one transaction's begin to the next one's cut once the lane has caught up,
            seconds.
        max_records: Maximum records; produced records must fit into librdkafka's queue.
        max_bytes: Maximum bytes, so that memory is bounded and a transaction cannot outlast its timeout.
        most_rounds: Maximum number of rounds that add records after an acknowledgement.
    """

    interval: float
    interval_min: float
    max_records: int = 200_000
    max_bytes: int = 128 * 1024 * 1024
    most_rounds: int = 1

    def due(self, transaction: CommitFacts) -> bool:
        """
        Returns whether to cut now.

        A lane that lags fills its transaction, because each transaction costs two round trips and three state records.
        A lane that has caught up commits at once for its readers, but no more often than `interval_min`, because each
        transaction costs the brokers a marker per partition.  The interval counts from the previous transaction: the
        first record after a pause is sent immediately.  A second round is one pump.
        """
        if transaction.leaving or transaction.enough or transaction.seconds >= self.interval:
            return True
        if transaction.rounds > 0:  # what is acknowledged waits for no more than was there
            return True
        if transaction.records >= self.max_records or transaction.bytes >= self.max_bytes:
            return True
        return transaction.drained and transaction.since_last >= self.interval_min

    def max_wait(self, transaction: CommitFacts) -> float:
        """Returns the maximum wait for more records, seconds: until the cut is due in any case."""
        left = self.interval - transaction.seconds
        if transaction.drained and transaction.records > 0:
            left = min(left, self.interval_min - transaction.since_last)
        return max(0.0, left)

    def takes_more(self, transaction: CommitFacts) -> bool:
        """
        Returns whether an acknowledged transaction accepts records that have come since its last record was sent.

        Records right after the cut would wait for the end of this transaction and its markers, and then for a
        transaction of their own.  Here they wait for one Produce, and so do the records before them.  Records that were
        sent together arrive like this, in two or three answers, the first of them after a pause.  When transactions
        follow each other without a pause, each one takes the records that arrived during the previous one.
        """
        if transaction.leaving or transaction.enough or not transaction.drained:
            return False
        if transaction.rested < self.interval_min:
            return False
        if transaction.records >= self.max_records or transaction.bytes >= self.max_bytes:
            return False
        return transaction.rounds < self.most_rounds and transaction.seconds < self.interval / 2


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

    def facts(self, now: float, *, leaving: bool) -> CommitFacts:
        """
        Returns the facts that the commit depends on.

        Args:
            leaving: The lane is to stop.
        """
        return CommitFacts(
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
