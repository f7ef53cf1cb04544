"""
Adds up what the attempts of a link's lanes report into counters that only grow. Pure.

An attempt reports totals since its own start.  Reports of several attempts of a lane may interleave (a lane mirrors on
after its epoch), so each attempt has its own last totals, and the counters grow by the difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eomirror.lane.measures import LaneMeasures
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.lane.spec import LaneProgress, PartitionProgress

__all__ = ["Counters", "LaneWork", "PartitionLoad", "TopicWork", "WorkLedger"]

# attempts of a lane whose last totals are kept
_RECENT = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """
    Counters of committed work.

    Attributes:
        records: Mirrored records.
        bytes: Size of keys, values and headers of the mirrored records.
        dropped: Records dropped by configuration.
        copied_headers: Mirrored records that carried the provenance header of another record: an application had
            copied it, and they count as local.
    """

    transactions: int = 0
    records: int = 0
    bytes: int = 0
    dropped: int = 0
    copied_headers: int = 0

    def at_least(self, other: Counters) -> Counters:
        """Returns the maximum of each counter; for two reports of one attempt."""
        return Counters(
            transactions=max(self.transactions, other.transactions),
            records=max(self.records, other.records),
            bytes=max(self.bytes, other.bytes),
            dropped=max(self.dropped, other.dropped),
            copied_headers=max(self.copied_headers, other.copied_headers),
        )

    def plus(self, other: Counters) -> Counters:
        """Returns the sum of both."""
        return Counters(
            transactions=self.transactions + other.transactions,
            records=self.records + other.records,
            bytes=self.bytes + other.bytes,
            dropped=self.dropped + other.dropped,
            copied_headers=self.copied_headers + other.copied_headers,
        )

    @staticmethod
    def sum(several: Iterable[Counters]) -> Counters:
        """Returns the sum of all."""
        total = Counters()
        for counters in several:
            total = total.plus(counters)
        return total


@dataclass(frozen=True, slots=True)
class TopicWork:
    """
    Work on one source topic in this run.

    Attributes:
        records: Mirrored records.
        bytes: Their keys, values and headers.
        dropped: Records dropped by configuration, by reason.
    """

    records: int = 0
    bytes: int = 0
    dropped: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartitionLoad:
    """
    Work on one partition, done and waiting.

    Attributes:
        lane: Lane that mirrors it.
        records: Records mirrored in this run.
        bytes: Their keys, values and headers.
        lag: Offsets that wait; None if unknown.
        behind: Upper bound of the seconds for which its oldest record waits; 0 if it has none, or if unknown.
    """

    lane: int
    records: int
    bytes: int
    lag: int | None
    behind: float


@dataclass(frozen=True, slots=True)
class LaneWork:
    """
    Work of one lane in this run.

    Attributes:
        committed: Committed transactions.
        measures: Its other transactions, and histograms of the committed ones.
    """

    committed: int = 0
    measures: LaneMeasures = field(default_factory=LaneMeasures)


class WorkLedger:
    """
    Counters of one link's work in this run.

    Attributes:
        topics: Work by source topic.
        lanes: Work by lane.
        partitions: Records and bytes by source partition, whichever lanes had it.
    """

    def __init__(self) -> None:
        self.topics: dict[str, TopicWork] = {}
        self.lanes: dict[int, LaneWork] = {}
        self.partitions: dict[SourcePartition, tuple[int, int]] = {}
        self._attempts: dict[int, dict[tuple[int, int], _Attempt]] = {}

    def update(self, progress: LaneProgress, *, attempt: int) -> None:
        """Adds what an attempt has done since its last report."""
        known = self._attempt(progress.lane, (progress.epoch, attempt))
        if progress.transactions < known.committed:
            # another attempt under the same id has begun at 0
            known.restart()
        lane = self.lanes.get(progress.lane, LaneWork())
        measures = lane.measures.plus(progress.measures.since(known.measures))
        self.lanes[progress.lane] = LaneWork(
            lane.committed + progress.transactions - known.committed, measures
        )
        known.committed, known.measures = progress.transactions, progress.measures
        for item in progress.partitions:
            source = SourcePartition(item.topic, item.partition)
            before = known.partitions.get(source)
            if (item.records or item.dropped) and item != before:
                self._add(item, before)
                known.partitions[source] = item

    def _add(self, item: PartitionProgress, before: PartitionProgress | None) -> None:
        topic = self.topics.get(item.topic, TopicWork())
        dropped = topic.dropped
        if item.dropped:
            earlier = {} if before is None else before.dropped
            more = {reason: count - earlier.get(reason, 0) for reason, count in item.dropped.items()}
            dropped = {reason: dropped.get(reason, 0) + count for reason, count in more.items()} | {
                reason: count for reason, count in dropped.items() if reason not in more
            }
        self.topics[item.topic] = TopicWork(
            topic.records + item.records - (0 if before is None else before.records),
            topic.bytes + item.bytes - (0 if before is None else before.bytes),
            dropped,
        )
        source = SourcePartition(item.topic, item.partition)
        records, size = self.partitions.get(source, (0, 0))
        self.partitions[source] = (
            records + item.records - (0 if before is None else before.records),
            size + item.bytes - (0 if before is None else before.bytes),
        )

    def _attempt(self, lane: int, number: tuple[int, int]) -> _Attempt:
        attempts = self._attempts.setdefault(lane, {})
        if number not in attempts:
            while len(attempts) >= _RECENT:
                del attempts[next(iter(attempts))]
            attempts[number] = _Attempt()
        return attempts[number]


class _Attempt:
    """Last totals of an attempt."""

    __slots__ = ("committed", "measures", "partitions")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        self.committed = 0
        self.measures = LaneMeasures()
        self.partitions: dict[SourcePartition, PartitionProgress] = {}
