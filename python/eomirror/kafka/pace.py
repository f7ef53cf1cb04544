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
0.4 s (AddPartitionsToTxn, Produce), and a larger one hardly later.  What an answer takes is seen at every commit, which
waits for little else, and data may take that much longer::

    256 KiB -> 1 MiB -> 4 MiB -> ...                 0.2 s from end to end and back: 0.8 s may pass
    64 KiB -> 64 KiB -> ...                          the same, if time on the way counted as time for the bytes

Only transactions that used what they were allowed say something about the target; those of a lane that has caught
up are small because there is nothing more.
"""

from __future__ import annotations

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
# requests that data waits for, one after the other: AddPartitionsToTxn and Produce
_WAYS = 2
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

    __slots__ = ("_least", "_most_seconds", "_record_bytes", "_seconds", "_seen", "_way", "bytes")

    def __init__(
        self, seconds: float, *, first: float = _FIRST_BYTES, most_seconds: float = float("inf")
    ) -> None:
        self.bytes = float(first)
        self._least = min(first, _LEAST_BYTES)
        self._seconds = seconds
        self._most_seconds = max(seconds, most_seconds)
        # how long an answer takes, as far as known
        self._way = 0.0
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
        """Whether a transaction of ``used`` bytes is full."""
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
        self._way = min(seconds, self._way + _SMOOTHING * (seconds - self._way)) if self._way else seconds

    def acknowledged(self, used: int, seconds: float) -> None:
        """A transaction of ``used`` bytes was acknowledged, ``seconds`` after its first record was produced."""
        way = _WAYS * self._way
        # the bytes themselves may take as long as the way: less would leave most of the time to waiting
        allowed = min(way + max(self._seconds, way), self._most_seconds)
        if seconds > allowed:
            self.bytes = max(self._least, min(self.bytes, used * allowed / seconds))
        elif used >= self.bytes / 2:
            fits = used * allowed / max(seconds, 1e-6)
            self.bytes = max(self.bytes, min(_MOST_BYTES, self.bytes * _GROWTH, fits))
