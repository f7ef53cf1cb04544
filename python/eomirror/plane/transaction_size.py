"""
How much one transaction may hold, learnt from how fast the target takes it: pure.

Everything of a transaction has to be acknowledged before it can be committed, and the coordinator ends it after
its timeout.  Over a slow link a batch of 10,000 records may take longer than that; it is aborted, fetched again,
and aborted again, for ever.  So a transaction holds at most what the target has lately shown that it takes within a
fraction of that time.  A lane begins small and grows fourfold with every transaction that was quick::

    256 KiB -> 1 MiB -> 4 MiB -> 16 MiB -> ...       a local target: full size after a fifth of a second
    256 KiB -> 300 KiB -> ...                        a link of 1 MB/s: stays where its data takes 0.4 s
    256 KiB, given up; 64 KiB -> ...                 a link of 40 kB/s: what outlasts its timeout only teaches that

Whoever gives a transaction up ends its attempt, and a worker may be new with the next: so the driver counts, and an
attempt begins with a quarter of what the one before it began with.

A link that is long is not slow: where an answer takes 0.2 s, the smallest transaction is not acknowledged in less than
0.6 s (AddPartitionsToTxn, once more while the markers of the last transaction are written, Produce), and a larger one
hardly later.  So of the time that a transaction takes, only what grows with its bytes counts as time for the bytes; the
rest is the way, and the bytes may take as long as that.  Transactions of different size tell which is which::

    64 KiB in 0.70 s, 256 KiB in 0.72 s       0.69 s is the way: the next may hold 1 MiB, and then 4 MiB
    64 KiB in 1.70 s, 256 KiB in 6.50 s       0.10 s is the way, and 40 kB/s what the link carries

The line through the last of them is the one of Theil and Sen (the median of the slopes of all pairs), which a broker
that pauses now and then does not bend.  Before two of different size are known, the way is taken for two answers as
the commits see them; and who has long sent the least, and is slow all the same, sends twice of it once, to see.

Only transactions that used what they were allowed say something about the target; those of a lane that has caught
up are small because there is nothing more.  H. Theil, 1950, and P. K. Sen, "Estimates of the Regression Coefficient
Based on Kendall's Tau", J. Am. Stat. Assoc. 63, 1968.
"""

from __future__ import annotations

from collections import deque
from statistics import median
from typing import Self

__all__ = ["MOST_RECORDS", "Pace"]

#: Records of one fetch: what crosses into Rust in one call.
MOST_RECORDS = 10_000

_FIRST_BYTES = 256 * 1024
_LEAST_BYTES = 64 * 1024
_LEAST_FIRST_BYTES = 4 * 1024
_MOST_BYTES = 128 * 1024 * 1024
_GROWTH = 4.0
_SMOOTHING = 0.3

# how long the data of a transaction may take to be acknowledged: this, or so many commit intervals
_SECONDS = 0.4
_INTERVALS = 4
# an answer that takes longer than this says that the link is full, or its broker busy, and not how long the way is
_LONGEST_WAY = 1.0
# requests that data waits for, one after the other, as far as nothing better is known: AddPartitionsToTxn and Produce
_WAYS = 2
# two transactions of which the larger has so many times the bytes tell the way from the bytes
_APART = 1.5
# of so many transactions
_SEEN = 12
# what is risked to see: so many times the least
_PROBE = 2
# of the transaction timeout, what a long way may buy: as much again for the answers to the rest, and some to spare
_OF_TIMEOUT = 1 / 3


class Pace:
    """
    Learns the size of transactions.

    Args:
        seconds: How long the data of a transaction may take to be acknowledged.
        first: Bytes of the first transaction.
        most_seconds: What it may take where the way is long.

    Attributes:
        bytes: Keys, values and headers that a transaction may hold; the last fetch may go somewhat beyond.
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
        # how long the answer to a commit takes, as far as known
        self._answer = 0.0
        # what a transaction takes besides the time for its bytes, once known; and the last ones, bytes and seconds
        self._way: float | None = None
        self._last: deque[tuple[int, float]] = deque(maxlen=_SEEN)
        # nothing is known of the records: the first fetch takes one of them
        self._record_bytes = float(_FIRST_BYTES)
        self._seen = False

    @classmethod
    def of_link(
        cls, commit_interval: float, *, overdue: int = 0, transaction_timeout: float = float("inf")
    ) -> Self:
        """
        The pace of a lane whose link commits every so many seconds while it is behind.

        Args:
            commit_interval: The link's, in seconds.
            overdue: How many attempts in a row before this one gave up a transaction that was open for too long.
            transaction_timeout: The link's, in seconds: what takes longer is aborted, and comes again.
        """
        first = max(_LEAST_FIRST_BYTES, _FIRST_BYTES / _GROWTH**overdue)
        seconds = max(_SECONDS, _INTERVALS * commit_interval)
        return cls(seconds, first=first, most_seconds=_OF_TIMEOUT * transaction_timeout)

    def records(self, used: int) -> int:
        """How many records to fetch into a transaction that holds ``used`` bytes; at least one."""
        return max(1, min(MOST_RECORDS, int((self.bytes - used) / self._record_bytes)))

    def enough(self, used: int) -> bool:
        """Returns whether a transaction of ``used`` bytes is full."""
        return used >= self.bytes

    def fetched(self, records: int, size: int) -> None:
        """So many records had ``size`` bytes; larger ones are believed at once, smaller ones by and by."""
        if records > 0:
            seen = max(1.0, size / records)
            step = 1.0 if not self._seen or seen > self._record_bytes else _SMOOTHING
            self._seen = True
            self._record_bytes += step * (seen - self._record_bytes)

    def committed(self, seconds: float) -> None:
        """A commit was answered after so long: a faster one is believed at once, slower ones by and by."""
        seconds = min(seconds, _LONGEST_WAY)
        known = self._answer
        self._answer = min(seconds, known + _SMOOTHING * (seconds - known)) if known else seconds

    def acknowledged(self, used: int, seconds: float) -> None:
        """A transaction of ``used`` bytes was acknowledged, ``seconds`` after its first record was produced."""
        full = used >= self.bytes / 2
        # less than the least says nothing either way: no transaction is made smaller than that
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
        """What the way takes, and what both may take: the bytes as much as the way, or nearly all would be waiting."""
        way = _WAYS * self._answer if self._way is None else self._way
        way = min(way, self._most_seconds / 2)
        return way, min(way + max(self._seconds, min(way, _WAYS * _LONGEST_WAY)), self._most_seconds)

    def _learn(self, used: int, seconds: float) -> bool:
        """Draws the line through the last transactions; gives whether there have long been none of different size."""
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
