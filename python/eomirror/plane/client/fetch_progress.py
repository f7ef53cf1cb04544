"""
Tracks fetch positions past records, markers and aborted ranges (EO-4).

There are three sources.  The planner knows the last record that it was given.  An end-of-partition event reports the
end of a partition, past markers and aborted ranges.  And librdkafka's position moves when it returns a record, and past
control batches; it also has the leader epoch, which an end-of-partition event lacks.

librdkafka (2.16, `rd_kafka_position`) finds a partition by comparing its name with those of all topics, one by one:
2,000 topics take 92 ms (measured), and a transaction asks three times.  So a result is cached until the next consume.
With more than `ALL` partitions, only those with a new end and `TURN` of the others in turn are requested.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import TopicPartition

from eomirror.plane.protocol import Advance
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = ["ALL", "TURN", "FetchProgress", "Positions"]

#: Up to so many partitions are asked each time.
ALL = 500
#: Of more, so many are asked whose end was not told.
TURN = 50


class Positions(Protocol):
    """Part of `confluent_kafka.Consumer`."""

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Returns the application's next offset of each partition."""


class FetchProgress:
    """Tracks ends from events, and caches results since the last consume."""

    def __init__(self) -> None:
        self.ends: dict[SourcePartition, Advance] = {}
        self._asked: dict[SourcePartition, Advance] = {}
        self._ended: set[SourcePartition] = set()
        self._turn: deque[SourcePartition] = deque()
        self._found: dict[SourcePartition, Advance] | None = None

    def clear(self) -> None:
        """Forgets everything; other partitions are fetched from here on."""
        self.ends.clear()
        self._asked.clear()
        self._ended.clear()
        self._turn.clear()
        self._found = None

    def consumed(self) -> None:
        """Invalidates the cached result after a consume or a plan."""
        self._found = None

    def end(self, source: SourcePartition, offset: int) -> None:
        """Records an end-of-partition event."""
        self.ends[source] = Advance(offset, None)
        self._ended.add(source)
        self._found = None

    def find(
        self,
        consumer: Positions,
        partitions: Collection[SourcePartition],
        records: Iterable[tuple[str, int, int, int | None]],
        held: Collection[SourcePartition],
    ) -> Mapping[SourcePartition, Advance]:
        """
        Returns the known next offsets to fetch.

        Args:
            consumer: Returns positions.
            partitions: All fetched partitions.
            records: Per partition the offset after the last planned record, and its leader epoch.
            held: Partitions with consumed but unplanned records; only planned ones count for them.
        """
        if self._found is None:
            self._read_positions(consumer, partitions, held)
            found = {
                source: advance
                for source, advance in self.ends.items()
                if source in partitions and source not in held
            }
            for source, asked in self._asked.items():
                if source in partitions and source not in held:
                    found[source] = _later(found.get(source), asked)
            for topic, number, offset, epoch in records:
                # also of what is held: records are planned in their order, and those that are held come behind
                source = SourcePartition(topic, number)
                found[source] = _later(found.get(source), Advance(offset, epoch))
            self._found = found
        return self._found

    def _read_positions(
        self, consumer: Positions, partitions: Collection[SourcePartition], held: Collection[SourcePartition]
    ) -> None:
        if len(partitions) <= ALL:
            wanted: Sequence[SourcePartition] = list(partitions)
            self._ended.clear()
        else:
            if not self._turn:
                self._turn.extend(partitions)
            others = [self._turn.popleft() for _ in range(min(TURN, len(self._turn)))]
            wanted = list({*self._ended, *others})
            self._ended &= set(held)
        asked = [
            TopicPartition(source.topic, source.partition)
            for source in wanted
            if source in partitions and source not in held
        ]
        for position in consumer.position(asked) if asked else ():
            if position.offset >= 0:
                source = SourcePartition(position.topic, position.partition)
                self._asked[source] = Advance(position.offset, position.leader_epoch)


def _later(end: Advance | None, other: Advance) -> Advance:
    """Returns the later of the two, completed with the other's leader epoch if that is all that is known."""
    if end is None or end.offset <= other.offset:
        if end is not None and end.offset == other.offset and other.leader_epoch is None:
            return end
        return other
    if end.leader_epoch is not None or other.leader_epoch is None:
        return end
    return Advance(end.offset, other.leader_epoch, other.offset)
