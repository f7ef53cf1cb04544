"""Decides when a lane commits its open transaction. Pure: ages are arguments."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["CommitTrigger", "OpenTransaction"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
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

    def due(self, transaction: OpenTransaction) -> bool:
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

    def max_wait(self, transaction: OpenTransaction) -> float:
        """Returns the maximum wait for more records, seconds: until the cut is due in any case."""
        left = self.interval - transaction.seconds
        if transaction.drained and transaction.records > 0:
            left = min(left, self.interval_min - transaction.since_last)
        return max(0.0, left)

    def takes_more(self, transaction: OpenTransaction) -> bool:
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
