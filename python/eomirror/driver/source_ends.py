"""
Records how far the source of one link reaches, for the day on which it does not answer (docs/adr/0019).

The driver asks the source for the log ends of all partitions of the link, every few seconds.  The owner writes them to
control with the next renewal of its claim: one record a topic, whenever an end has moved, and one record with the time
as of which all ends hold.  From these a failover without the source bounds the records that it leaves behind.

An end is the high watermark.  What an open transaction holds back is not mirrored, and among it stand records of other
producers that the source has acknowledged; a transaction may also commit after the last look::

    records   0 1 2 3 [open] 5 6 7 8
                     ^ mirrored, last stable offset
                                     ^ end: a failover leaves 5 offsets behind

The partitions are those that discovery lists, and not only those that lanes have: of a topic that is left out, start
and end are recorded.  The time is that of the list, or of the request for the oldest end if that is older: a partition
without a leader holds it back.  Lanes report ends too, which raise what the driver knows, but not the time: a lane
reads no ends while it waits for its target or is started again, and none of topics that are paused or stopped.

Control is read by every starting lane, so it must not fill with ends: `_TOPICS_A_SECOND` limits the records.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING

from eomirror.plane.protocol import MetadataRecord
from eomirror.records.control import SourceEnds, SourceSeen
from eomirror.records.names import LinkNames
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.lane.spec import LaneProgress
    from eomirror.topics.source_topics import Listing

__all__ = ["EndRecords"]

# A link of 1,000 topics writes its ends every 50 s.
_TOPICS_A_SECOND = 20.0
# A link of 5,000 partitions asks for their ends every 20 s: a partition costs 40 us, so this is a hundredth of a core.
_PARTITIONS_A_SECOND = 250.0
# The rate at which applications write is that of this time.
_RATE_SECONDS = 60.0
# A broker answers from memory.
_REQUEST_SECONDS = 10.0


class EndRecords:
    """
    Keeps the ends of the source in control up to date.  Thread-safe.

    Args:
        link: The link.
        clock: Source of timestamps.
        assigned: Returns the partitions of the link, also those that are paused or stopped.
    """

    def __init__(
        self, link: Link, clock: Clock, *, assigned: Callable[[], Collection[SourcePartition]]
    ) -> None:
        self._topic = LinkNames(link.state_name).control_topic
        self._clock = clock
        self._assigned = assigned
        self._lock = threading.Lock()
        self._listing: Listing | None = None
        self._ends: dict[str, dict[int, int]] = {}
        # of partitions that no lane has
        self._starts: dict[str, dict[int, int]] = {}
        self._changed: set[str] = set()
        # Time of the last request that was answered, ms since the epoch.
        self._as_of: dict[SourcePartition, int] = {}
        self._next = self._next_request = 0.0
        self._seen: int | None = None
        # growth of all ends, in offsets, at the answers of the last minute or so
        self._grown = 0
        self._answered: dict[SourcePartition, int] = {}
        self._growth: deque[tuple[float, int]] = deque()

    def update(self, progress: LaneProgress) -> None:
        """Takes the ends of a lane's report, which may be older than an answer of the source."""
        with self._lock:
            for item in progress.partitions:
                known = self._ends.get(item.topic, {}).get(item.partition, -1)
                if item.lso is not None and item.lso > known:
                    self._set(SourcePartition(item.topic, item.partition), item.lso)

    def read(self, source: ClusterAdmin, listing: Listing | None) -> None:
        """
        Reads all ends from the source; a partition without an answer keeps its end and time.

        Args:
            source: Admin client of the source.
            listing: Partitions that the source had when discovery looked last; None if it has not looked.
        """
        now = self._clock.monotonic()
        if now < self._next_request:
            return
        assigned = set(self._assigned())
        listed = frozenset() if listing is None else listing.partitions
        if not (wanted := sorted(assigned | listed)):
            return
        self._next_request = now + len(wanted) / _PARTITIONS_A_SECOND
        as_of = self._clock.wall_ms()
        ends, missing = source.answered_offsets(wanted, at="latest", seconds=_REQUEST_SECONDS)
        starts: dict[tuple[str, int], int] = {}
        if beside := [where for where in wanted if where not in assigned and where in ends]:
            starts, _ = source.answered_offsets(beside, at="earliest", seconds=_REQUEST_SECONDS)
        with self._lock:
            self._listing = listing
            for (topic, number), end in ends.items():
                where = SourcePartition(topic, number)
                # what lanes report comes at other times, and would hide the growth since the answer before
                self._grown += max(0, end - self._answered.get(where, end))
                self._answered[where] = end
                self._set(where, end)
            self._growth.append((now, self._grown))
            # one look at or before the begin of that time stays
            while len(self._growth) > 1 and self._growth[1][0] <= now - _RATE_SECONDS:
                self._growth.popleft()
            # Of a partition that does not exist no record waits.
            self._as_of.update((SourcePartition(*where), as_of) for where in (*ends, *missing))
            self._forget_but(assigned | (listed - {SourcePartition(*where) for where in missing}))
            found: dict[str, dict[int, int]] = {}
            for (topic, number), start in starts.items():
                found.setdefault(topic, {})[number] = start
            topics = found.keys() | self._starts.keys()
            self._changed |= {each for each in topics if found.get(each) != self._starts.get(each)}
            self._starts = found

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Passes the records that control lacks to ``commit``, possibly none.

        If ``commit`` raises, the error is raised and the same records are due again.
        """
        now = self._clock.monotonic()
        assigned = self._assigned()
        with self._lock:
            due: Mapping[str, SourceEnds] = {}
            if now >= self._next:
                due = {topic: self._of(topic) for topic in sorted(self._changed)}
            listing = self._listing
            times = [self._as_of.get(source, 0) for source in assigned]
            if listing is not None:
                # A topic that was made since is not known, and may hold records.
                times += [listing.as_of, *(self._as_of.get(source, 0) for source in listing.partitions)]
            oldest = min(times, default=0)
            seen = oldest if oldest and (due or not self._changed) else None
        records = [self._record(ends) for ends in due.values()]
        if seen is not None and seen != self._seen:
            records.append(self._record(SourceSeen(timestamp=seen, rate=self._rate())))
        commit(records)
        with self._lock:
            self._seen = seen if seen is not None else self._seen
            if due:
                self._next = now + len(self._ends) / _TOPICS_A_SECOND
            self._changed -= {topic for topic, ends in due.items() if ends == self._of(topic)}

    # -- inside ----------------------------------------------------------------------------------

    def _rate(self) -> float | None:
        with self._lock:
            if len(self._growth) < 2:  # noqa: PLR2004  a rate lies between two looks
                return None
            (began, before), (ended, after) = self._growth[0], self._growth[-1]
        return round((after - before) / (ended - began), 1)

    def _set(self, source: SourcePartition, end: int) -> None:
        ends = self._ends.setdefault(source.topic, {})
        if ends.get(source.partition) != end:
            ends[source.partition] = end
            self._changed.add(source.topic)

    def _of(self, topic: str) -> SourceEnds:
        ends, starts = self._ends.get(topic, {}), self._starts.get(topic, {})
        return SourceEnds(
            topic=topic,
            ends=dict(ends),
            starts={number: starts[number] for number in starts if number in ends},
        )

    def _forget_but(self, partitions: Collection[SourcePartition]) -> None:
        """Removes the ends of other partitions: those of topics that were left out and are gone."""
        self._answered = {source: end for source, end in self._answered.items() if source in partitions}
        for topic, ends in self._ends.items():
            for number in [each for each in ends if SourcePartition(topic, each) not in partitions]:
                del ends[number]
                self._changed.add(topic)

    def _record(self, record: SourceEnds | SourceSeen) -> MetadataRecord:
        return MetadataRecord(self._topic, 0, record.key(), record.value())
