"""
Records how far the source of one link reaches, for the day on which it does not answer (docs/adr/0019).

Lanes report the last stable offset of each partition with their progress.  The owner writes it to control with the next
renewal of its claim: one record a topic, whenever an end has moved, and one record with the time as of which all ends
hold.  From these a failover without the source bounds the records that it leaves behind.

That time is the time of the oldest end.  An end holds as of the last report of its lane, and it may have none: the lane
waits for the target or is started again, or the topic is paused or stopped.  The driver asks the source for such ends.

Control is read by every starting lane, so it must not fill with ends: `_TOPICS_A_SECOND` limits the records.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import ClusterError, TopicError
from eomirror.kafka.admin_client import skip_missing
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.control import SourceEnds, SourceSeen
from eomirror.records.names import LinkNames
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.lane.spec import LaneProgress

__all__ = ["EndRecords"]

log = structlog.get_logger(__name__)

# A link of 1,000 topics writes its ends every 50 s.
_TOPICS_A_SECOND = 20.0
# Lanes report several times a second, with very many partitions every two seconds.
_RECENT_SECONDS = 4.0
# A paused link of 20,000 partitions asks for their ends every 20 s.
_PARTITIONS_A_SECOND = 1000.0
_NEVER = float("-inf")


class EndRecords:
    """
    Keeps the ends of the source in control up to date with the lanes' reports.  Thread-safe.

    Args:
        link: The link.
        age: Returns the seconds since the source answered last; None before it did.
        clock: Source of timestamps.
        assigned: Returns the lane of each partition of the link, also of those that are paused or stopped.
    """

    def __init__(
        self,
        link: Link,
        age: Callable[[], float | None],
        clock: Clock,
        *,
        assigned: Callable[[], Mapping[SourcePartition, int]],
    ) -> None:
        self._topic = LinkNames(link.state_name).control_topic
        self._age = age
        self._clock = clock
        self._assigned = assigned
        self._lock = threading.Lock()
        self._ends: dict[str, dict[int, int]] = {}
        self._changed: set[str] = set()
        self._lanes: dict[int, _LaneEnds] = {}
        # Time (monotonic) as of which ends are known that no lane reads: of its last report, or of our request.
        self._unread: dict[SourcePartition, float] = {}
        self._next = self._next_request = 0.0
        self._seen: int | None = None

    def update(self, attempt: tuple[int, int], progress: LaneProgress) -> None:
        """
        Takes the ends of a lane's report.

        Args:
            attempt: Epoch and number of the lane's attempt.
            progress: The report.
        """
        with self._lock:
            lane = self._lanes.setdefault(progress.lane, _LaneEnds())
            if attempt < lane.attempt:
                return
            heard = lane.heard
            self._unread.update(dict.fromkeys(lane.take(attempt, progress, self._clock.monotonic()), heard))
            for item in progress.partitions:
                if item.lso is not None:
                    self._set(SourcePartition(item.topic, item.partition), item.lso)

    def ask(self, offsets: Callable[..., Mapping[tuple[str, int], int]]) -> None:
        """
        Asks the source for the ends that no lane has reported lately; logs the error of a request that fails.

        Args:
            offsets: `eomirror.kafka.admin.ClusterAdmin.offsets` of the source.
        """
        now = self._clock.monotonic()
        unknown = self._unknown(now)
        deleted: set[str] = set()

        def ends(partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
            try:
                return offsets(partitions, at="latest", read_committed=True)
            except TopicError as error:
                deleted.add(error.topic)
                raise

        try:
            found = skip_missing(ends, unknown)
        except ClusterError as error:
            log.info("source_ends_unknown", topic=self._topic, partitions=len(unknown), reason=error.message)
            return
        with self._lock:
            for (topic, number), end in found.items():
                self._set(SourcePartition(topic, number), end)
            for source in unknown:
                # Of a topic that does not exist no record waits.
                if source in found or source.topic in deleted:
                    self._unread[source] = now

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Passes the records that control lacks to ``commit``, possibly none.

        If ``commit`` raises, the error is raised and the same records are due again.
        """
        now = self._clock.monotonic()
        age = self._age()
        assigned = self._assigned()
        with self._lock:
            due: Mapping[str, dict[int, int]] = {}
            if age is not None and now >= self._next:
                due = {topic: dict(self._ends[topic]) for topic in sorted(self._changed)}
            as_of = min((self._as_of(source, lane) for source, lane in assigned.items()), default=_NEVER)
            written = bool(due) or (bool(self._ends) and not self._changed)
        seen = None
        if age is not None and as_of > _NEVER and written:
            seen = self._clock.wall_ms() - int(max(age, now - as_of) * 1000)
        records = [self._record(SourceEnds(topic=topic, ends=ends)) for topic, ends in due.items()]
        if seen is not None and seen != self._seen:
            records.append(self._record(SourceSeen(timestamp=seen)))
        commit(records)
        with self._lock:
            self._seen = seen if seen is not None else self._seen
            if due:
                self._next = now + len(self._ends) / _TOPICS_A_SECOND
            self._changed -= {topic for topic, ends in due.items() if ends == self._ends[topic]}

    # -- inside ----------------------------------------------------------------------------------

    def _unknown(self, now: float) -> list[SourcePartition]:
        assigned = self._assigned()
        with self._lock:
            if now < self._next_request:
                return []
            found = sorted(
                source
                for source, lane in assigned.items()
                if now - self._as_of(source, lane) > _RECENT_SECONDS
            )
            self._next_request = now + len(found) / _PARTITIONS_A_SECOND
            return found

    def _set(self, source: SourcePartition, end: int) -> None:
        ends = self._ends.setdefault(source.topic, {})
        if ends.get(source.partition) != end:
            ends[source.partition] = end
            self._changed.add(source.topic)

    def _as_of(self, source: SourcePartition, lane: int) -> float:
        """Returns the time as of which the end of a partition is known, monotonic seconds."""
        found = self._unread.get(source, _NEVER)
        reported = self._lanes.get(lane)
        return max(found, reported.heard) if reported is not None and reported.reads(source) else found

    def _record(self, record: SourceEnds | SourceSeen) -> MetadataRecord:
        return MetadataRecord(self._topic, 0, record.key(), record.value())


class _LaneEnds:
    """
    Tracks the partitions whose ends the current attempt of a lane reads.

    Attributes:
        attempt: Epoch and number of that attempt.
        heard: Time of its last report, monotonic seconds.
    """

    __slots__ = ("_known", "_stopped", "attempt", "heard")

    def __init__(self) -> None:
        self.attempt = (0, 0)
        self.heard = _NEVER
        self._known: set[SourcePartition] = set()
        self._stopped: frozenset[str] = frozenset()

    def take(self, attempt: tuple[int, int], progress: LaneProgress, now: float) -> set[SourcePartition]:
        """Takes a report; returns the partitions that the lane has read until now, and does not read any more."""
        stopped = frozenset(progress.stopped_topics)
        same = (attempt, stopped) == (self.attempt, self._stopped)
        # Most reports name a few partitions of thousands.
        named = [SourcePartition(item.topic, item.partition) for item in progress.partitions]
        before = set(filter(self.reads, named if same else self._known))
        if attempt > self.attempt:
            # Its first report has all partitions that it mirrors.
            self.attempt = attempt
            self._known.clear()
        self._stopped = stopped
        for source, item in zip(named, progress.partitions, strict=True):
            (self._known.discard if item.lso is None else self._known.add)(source)
        if not progress.delayed:
            self.heard = now
        return {source for source in before if not self.reads(source)}

    def reads(self, source: SourcePartition) -> bool:
        """Returns True if the attempt has read the end of a partition, and goes on to."""
        return source in self._known and source.topic not in self._stopped
