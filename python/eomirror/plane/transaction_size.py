"""
Learns how much one transaction may hold from the target's speed. Pure.

All data of a transaction must be acknowledged before the commit, and the coordinator ends the transaction after its
timeout.  Over a slow link a batch of 10,000 records may take longer: it would be aborted, fetched and aborted again for
ever.  So a transaction holds at most what the target has recently acknowledged within a fraction of that time.  A lane
starts small and grows fourfold with every fast transaction::

    256 KiB -> 1 MiB -> 4 MiB -> 16 MiB -> ...       a local target: full size after a fifth of a second
    256 KiB -> 300 KiB -> ...                        a link of 1 MB/s: stays where its data takes 0.4 s
    256 KiB, given up; 64 KiB -> ...                 a link of 40 kB/s: only attempts that outlast the timeout tell

A lane that gives a transaction up ends its attempt, and the next one may run on a new worker.  So the driver counts,
and an attempt starts with a quarter of the previous attempt's first size.

A long link is not slow.  Where an answer takes 0.2 s, the smallest transaction is acknowledged after 0.6 s at best
(AddPartitionsToTxn, again while the markers of the last transaction are written, Produce), and a larger one hardly
later.  So only the time that grows with the bytes counts for the bytes.  The rest is latency, and the bytes may take as
long as the latency.  Transactions of different sizes separate the two::

    64 KiB in 0.70 s, 256 KiB in 0.72 s       latency 0.69 s: the next may hold 1 MiB, and then 4 MiB
    64 KiB in 1.70 s, 256 KiB in 6.50 s       latency 0.10 s, and the link carries 40 kB/s

The line through the latest transactions is the Theil-Sen estimate (median of the slopes of all pairs), which an
occasional pause of a broker does not bend.  Before two sizes are known, the latency is estimated as two answers to
commits.  A lane stuck at the minimum size doubles it once to probe whether size is the cause.

Only transactions that used their allowance count: those of a lane that has caught up are small because the source has
no more.  H. Theil, 1950, and P. K. Sen, "Estimates of the Regression Coefficient Based on Kendall's Tau", J. Am. Stat.
Assoc. 63, 1968.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Self

__all__ = ["MOST_RECORDS", "TransactionSize"]

#: Maximum records of one fetch, which cross into Rust in one call.
MOST_RECORDS = 10_000

_FIRST_BYTES = 256 * 1024
_LEAST_BYTES = 64 * 1024
_LEAST_FIRST_BYTES = 4 * 1024
_MOST_BYTES = 128 * 1024 * 1024
_GROWTH = 4.0
_SMOOTHING = 0.3

# maximum seconds until the data of a transaction is acknowledged: this, or this many commit intervals
_SECONDS = 0.4
_INTERVALS = 4
# a slower answer shows a full link or a busy broker, not the latency
_LONGEST_WAY = 1.0
# sequential requests before data is acknowledged, until measured: AddPartitionsToTxn and Produce
_WAYS = 2
# ratio of sizes from which two transactions separate latency and throughput
_APART = 1.5
# number of transactions kept
_SEEN = 12
# size of the probe, in multiples of the minimum
_PROBE = 2
# share of the transaction timeout for a long link: as much again for the other answers, and a reserve
_OF_TIMEOUT = 1 / 3


class TransactionSize:
    """
    Learns the size of transactions.

    Args:
        seconds: Maximum time for the data of a transaction to be acknowledged.
        first: Bytes of the first transaction.
        most_seconds: Maximum over a long link.

    Attributes:
        bytes: Maximum keys, values and headers of a transaction; the last fetch may exceed it slightly.
    """

    __slots__ = (
        "_answer", "_last", "_least", "_most_seconds", "_record_bytes", "_seconds", "_seen", "_way", "bytes",
    )  # fmt: skip

    def __init__(
        self, seconds: float, *, first: float = _FIRST_BYTES, most_seconds: float = float("inf")
    ) -> None:
        self.bytes = float(first)
        self._least = min(first, _LEAST_BYTES)
        self._seconds = seconds
        self._most_seconds = max(seconds, most_seconds)
        # seconds of the answer to a commit; 0 if unknown
        self._answer = 0.0
        # latency, once known; and the latest transactions, bytes and seconds
        self._way: float | None = None
        self._last: deque[tuple[int, float]] = deque(maxlen=_SEEN)
        # record sizes are unknown: the first fetch takes one record
        self._record_bytes = float(_FIRST_BYTES)
        self._seen = False

    @classmethod
    def for_link(
        cls, commit_interval: float, *, overdue: int = 0, transaction_timeout: float = float("inf")
    ) -> Self:
        """
        Returns the estimator of a link's lane.

        Args:
            commit_interval: The link's, in seconds.
            overdue: Consecutive earlier attempts that gave up a transaction that was open for too long.
            transaction_timeout: The link's, in seconds; a longer transaction is aborted and mirrored again.
        """
        first = max(_LEAST_FIRST_BYTES, _FIRST_BYTES / _GROWTH**overdue)
        seconds = max(_SECONDS, _INTERVALS * commit_interval)
        return cls(seconds, first=first, most_seconds=_OF_TIMEOUT * transaction_timeout)

    def records(self, used: int) -> int:
        """Returns the number of records to fetch into a transaction that holds ``used`` bytes; at least one."""
        return max(1, min(MOST_RECORDS, int((self.bytes - used) / self._record_bytes)))

    def enough(self, used: int) -> bool:
        """Returns whether a transaction of ``used`` bytes is full."""
        return used >= self.bytes

    def fetched(self, records: int, size: int) -> None:
        """Records the size of fetched records; larger ones count at once, smaller ones gradually."""
        if records > 0:
            seen = max(1.0, size / records)
            step = 1.0 if not self._seen or seen > self._record_bytes else _SMOOTHING
            self._seen = True
            self._record_bytes += step * (seen - self._record_bytes)

    def committed(self, seconds: float) -> None:
        """Records the duration of a commit; a faster one counts at once, slower ones gradually."""
        seconds = min(seconds, _LONGEST_WAY)
        known = self._answer
        self._answer = min(seconds, known + _SMOOTHING * (seconds - known)) if known else seconds

    def acknowledged(self, used: int, seconds: float) -> None:
        """Records that ``used`` bytes were acknowledged ``seconds`` after the first record was produced."""
        full = used >= self.bytes / 2
        # transactions below the minimum size prove nothing
        if used <= 0 or (not full and (used < self._least or seconds <= self._allowed()[1])):
            return
        blind = self._learn(used, seconds)
        way, allowed = self._allowed()
        fits = used * (allowed - way) / max(seconds - way, 1e-6)
        if seconds > allowed:
            self.bytes = max(self._least, min(self.bytes, fits))
            if blind and self.bytes <= self._least and _PROBE * seconds <= self._most_seconds:
                self.bytes *= _PROBE
        elif full:
            self.bytes = max(self.bytes, min(_MOST_BYTES, self.bytes * _GROWTH, fits))

    def _allowed(self) -> tuple[float, float]:
        """Returns the latency, and the time allowed in all: the bytes may take as long as the latency."""
        way = _WAYS * self._answer if self._way is None else self._way
        way = min(way, self._most_seconds / 2)
        return way, min(way + max(self._seconds, min(way, _WAYS * _LONGEST_WAY)), self._most_seconds)

    def _learn(self, used: int, seconds: float) -> bool:
        """Fits the line through the latest transactions; returns whether all of them had the same size."""
        self._last.append((used, seconds))
        last = list(self._last)
        slopes = [
            (took - before) / (size - smaller)
            for at, (size, took) in enumerate(last)
            for smaller, before in last[:at]
            if max(size, smaller) >= _APART * min(size, smaller)
        ]
        if slopes:
            each = max(0.0, median(slopes))
            self._way = max(0.0, median(took - each * size for size, took in last))
        return not slopes and len(last) == _SEEN
