"""
How long to leave a coordinator alone after a commit: pure.

EndTxn is answered before the markers of the transaction are written.  Whoever registers partitions for the next
transaction in that time is sent away with CONCURRENT_TRANSACTIONS, and librdkafka asks again after 20 ms
(rdkafka_txnmgr.c), which is longer than the markers take.  Measured at 1,000 records/s on two lanes: two of
three transactions were sent away, and their first flush took 28 ms; after 5 ms of silence it took 9.7 ms.

So the next transaction waits a little.  How long depends on brokers and on the number of partitions, and is learnt::

    sent away     wait longer: half a millisecond, and a quarter more
    not sent away wait 1.5 % less

which settles where about one transaction in 16 is sent away.  A lane that is behind waits for nothing: by the time it
has fetched the next records, the pause is over.
"""

from __future__ import annotations

__all__ = ["MarkerPause"]

_LONGEST_SECONDS = 0.02
_STEP_SECONDS = 0.0005
_GROWTH = 1.25
_DECAY = 0.985


class MarkerPause:
    """
    Learns the pause of one producer.

    Attributes:
        seconds: From the answer to EndTxn to the first record of the next transaction.
    """

    __slots__ = ("_ended", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.002
        self._ended = float("-inf")

    def ended(self, now: float, *, sent_away: bool) -> None:
        """
        A transaction was committed.

        Args:
            now: Monotonic time of the answer.
            sent_away: Whether the coordinator refused its first registration of partitions.
        """
        self._ended = now
        if sent_away:
            self.seconds = min(_LONGEST_SECONDS, self.seconds * _GROWTH + _STEP_SECONDS)
        else:
            self.seconds *= _DECAY

    def left(self, now: float) -> float:
        """Seconds to wait before the next transaction's first record."""
        return max(0.0, self._ended + self.seconds - now)
