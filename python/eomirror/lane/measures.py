"""
Histograms of a lane's transactions, measured where they are committed. Pure.

Both planes report positions and times in the same way, so one place measures for both.  The bounds are part of the
message to the driver and of the metrics that users rely on: a change of them is a change of both.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field

__all__ = [
    "DURATION_BOUNDS",
    "LATENCY_BOUNDS",
    "RECORDS_BOUNDS",
    "AttemptMeasures",
    "Histogram",
    "LaneMeasures",
    "Tally",
]

#: Upper bounds of the duration of a transaction, seconds.
DURATION_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
#: Upper bounds of the number of records of a transaction; 0 for one that only advances positions.
RECORDS_BOUNDS = (0.0, 1.0, 10.0, 100.0, 1_000.0, 10_000.0, 100_000.0, 1_000_000.0)
#: Upper bounds of the time from a record's timestamp to its commit on the target, seconds.
LATENCY_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


@dataclass(frozen=True, slots=True)
class Histogram:
    """
    Counts of observed values by bucket.

    Attributes:
        counts: Number of values in each bucket; the last one is above all bounds.  Empty for no values.
        total: Sum of all values.
    """

    counts: tuple[int, ...] = ()
    total: float = 0.0

    def plus(self, other: Histogram) -> Histogram:
        """Returns the histogram of the values of both."""
        if not self.counts or not other.counts:
            return other if other.counts else self
        counts = tuple(mine + theirs for mine, theirs in zip(self.counts, other.counts, strict=True))
        return Histogram(counts, self.total + other.total)

    def since(self, earlier: Histogram) -> Histogram:
        """Returns the values that were observed after ``earlier``, a state of the same histogram."""
        if not earlier.counts:
            return self
        counts = tuple(max(0, now - before) for now, before in zip(self.counts, earlier.counts, strict=True))
        return Histogram(counts, max(0.0, self.total - earlier.total))


class Tally:
    """
    Counts values into the buckets of a histogram.

    Args:
        bounds: Upper bounds of the buckets, ascending; a value equal to a bound is below it.
    """

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        """Counts a value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def histogram(self) -> Histogram:
        """Returns the counts so far."""
        return Histogram(tuple(self._counts), self._total)


@dataclass(frozen=True, slots=True)
class LaneMeasures:
    """
    Measurements of one attempt of a lane since its start.

    Attributes:
        aborted: Transactions that it aborted.
        fenced: Transactions that it had open when another producer fenced it.
        durations: Seconds from the begin of a committed transaction to its commit.
        records: Mirrored records of a committed transaction.
        latency: Seconds from a record's timestamp to its commit; one value for each transaction and partition, that
            of the last record.  Without values of records that are older than the lane's start.
        left_out: Number of these values: the record waited for the mirror, or its timestamp is not the time of its
            append.
    """

    aborted: int = 0
    fenced: int = 0
    durations: Histogram = field(default_factory=Histogram)
    records: Histogram = field(default_factory=Histogram)
    latency: Histogram = field(default_factory=Histogram)
    left_out: int = 0

    def plus(self, other: LaneMeasures) -> LaneMeasures:
        """Returns the sum of both."""
        return LaneMeasures(
            self.aborted + other.aborted,
            self.fenced + other.fenced,
            self.durations.plus(other.durations),
            self.records.plus(other.records),
            self.latency.plus(other.latency),
            self.left_out + other.left_out,
        )

    def since(self, earlier: LaneMeasures) -> LaneMeasures:
        """Returns the measurements after ``earlier``, a state of the same attempt."""
        return LaneMeasures(
            max(0, self.aborted - earlier.aborted),
            max(0, self.fenced - earlier.fenced),
            self.durations.since(earlier.durations),
            self.records.since(earlier.records),
            self.latency.since(earlier.latency),
            max(0, self.left_out - earlier.left_out),
        )


class AttemptMeasures:
    """
    Measures the transactions of an attempt.

    Args:
        since_ms: Wall clock when the lane began.

    Attributes:
        aborted: Aborted transactions.
        fenced: Transactions that another producer fenced.
        durations: Durations of committed transactions.
        sizes: Their numbers of records.
    """

    def __init__(self, since_ms: int) -> None:
        self.aborted = self.fenced = 0
        self.durations = Tally(DURATION_BOUNDS)
        self.sizes = Tally(RECORDS_BOUNDS)
        self._latency = Tally(LATENCY_BOUNDS)
        self._skipped = 0
        self._since_ms = since_ms

    def latency(self, timestamp: int, wall_ms: int) -> None:
        """Measures the time from a record's timestamp to its commit, both in ms since the epoch."""
        # A topic of last year that is mirrored today would show a year.  Of a record that is older than the lane it is
        # not known how long it has waited for the source, for the mirror to be started, or for its producer.
        if timestamp < self._since_ms:
            self._skipped += 1
        else:
            self._latency.observe(max(0.0, (wall_ms - timestamp) / 1000))

    def reported(self) -> LaneMeasures:
        """Returns the measures as the driver gets them."""
        return LaneMeasures(
            self.aborted,
            self.fenced,
            self.durations.histogram(),
            self.sizes.histogram(),
            self._latency.histogram(),
            self._skipped,
        )
