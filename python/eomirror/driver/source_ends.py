"""
Records how far the source of one link reaches, for the day on which it does not answer (docs/adr/0019).

Lanes report the last stable offset of each partition with their progress.  The owner writes it to control with the next
renewal of its claim: one record a topic, whenever an end has moved, and one record with the time at which the source
answered last.  From these a failover without the source bounds the records that it leaves behind.

Control is read by every starting lane, so it must not fill with ends: `_TOPICS_A_SECOND` limits the records.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from eomirror.plane.protocol import MetadataRecord
from eomirror.records.control import SourceEnds, SourceSeen
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.lane.spec import LaneProgress

__all__ = ["EndRecords"]

# A link of 1,000 topics writes its ends every 50 s.
_TOPICS_A_SECOND = 20.0


class EndRecords:
    """
    Keeps the ends of the source in control up to date with the lanes' reports.  Thread-safe.

    Args:
        link: The link.
        age: Returns the seconds since the source answered last; None before it did.
        clock: Source of timestamps.
    """

    def __init__(self, link: Link, age: Callable[[], float | None], clock: Clock) -> None:
        self._topic = LinkNames(link.state_name).control_topic
        self._age = age
        self._clock = clock
        self._lock = threading.Lock()
        self._ends: dict[str, dict[int, int]] = {}
        self._changed: set[str] = set()
        self._next = 0.0
        self._seen: int | None = None

    def update(self, progress: LaneProgress) -> None:
        """Takes the ends of a lane's report."""
        with self._lock:
            for item in progress.partitions:
                if item.lso is None:
                    continue
                ends = self._ends.setdefault(item.topic, {})
                if ends.get(item.partition) != item.lso:
                    ends[item.partition] = item.lso
                    self._changed.add(item.topic)

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Passes the records that control lacks to ``commit``, possibly none.

        If ``commit`` raises, the error is raised and the same records are due again.
        """
        now = self._clock.monotonic()
        age = self._age()
        with self._lock:
            due: Mapping[str, dict[int, int]] = {}
            if age is not None and now >= self._next:
                due = {topic: dict(self._ends[topic]) for topic in sorted(self._changed)}
        seen = (
            None
            if age is None or not (due or self._all_written())
            else self._clock.wall_ms() - int(age * 1000)
        )
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

    def _all_written(self) -> bool:
        with self._lock:
            return bool(self._ends) and not self._changed

    def _record(self, record: SourceEnds | SourceSeen) -> MetadataRecord:
        return MetadataRecord(self._topic, 0, record.key(), record.value())
