"""
How far the source's partitions were read, past records, markers and aborted ranges (EO-4).

Three things tell it.  The planner knows the last record that it was given.  An end-of-partition event tells the end
of a partition, past markers and aborted ranges alike.  And librdkafka's position moves when it hands out a record,
and past control batches; it also knows the leader epoch that an end-of-partition event does not tell.

librdkafka (2.16, `rd_kafka_position`) finds a partition by comparing its name with those of all topics, one by one:
asking for 2,000 topics takes 92 ms (measured), and a transaction asks three times.  So what was found holds until
something else is consumed; and with more than `ALL` partitions, only those are asked whose end was told since, and
`TURN` of the others in turn.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Protocol

from confluent_kafka import TopicPartition

from eomirror.plane.protocol import Advance
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

__all__ = ["ALL", "TURN", "Positions", "Reached"]

#: Up to so many partitions are asked each time.
ALL = 500
#: Of more, so many are asked whose end was not told.
TURN = 50


class Positions(Protocol):
    """What is asked of a `confluent_kafka.Consumer`."""

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """The next offset of each partition as the application has it."""


class Reached:
    """Remembers the ends that events told, and what was found since something was consumed last."""

    def __init__(self) -> None:
        self.ends: dict[SourcePartition, Advance] = {}
        self._asked: dict[SourcePartition, Advance] = {}
        self._told: set[SourcePartition] = set()
        self._turn: deque[SourcePartition] = deque()
        self._found: dict[SourcePartition, Advance] | None = None

    def clear(self) -> None:
        """Forgets everything; other partitions are fetched from now on."""
        self.ends.clear()
        self._asked.clear()
        self._told.clear()
        self._turn.clear()
        self._found = None

    def consumed(self) -> None:
        """Something was consumed or planned: what was found may be out of date."""
        self._found = None

    def end(self, source: SourcePartition, offset: int) -> None:
        """An end-of-partition event told the end of a partition."""
        self.ends[source] = Advance(offset, None)
        self._told.add(source)
        self._found = None

    def find(
        self,
        consumer: Positions,
        partitions: Collection[SourcePartition],
        records: Iterable[tuple[str, int, int, int | None]],
        held: Collection[SourcePartition],
    ) -> Mapping[SourcePartition, Advance]:
        """
        The next offset to fetch of every partition of which that is known.

        Args:
            consumer: Asked for positions.
            partitions: All that are fetched.
            records: Per partition the offset after the last planned record, and its leader epoch.
            held: Partitions that handed out records which were not planned yet; only those that were tell of them.
        """
        if self._found is None:
            self._ask(consumer, partitions, held)
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

    def _ask(
        self, consumer: Positions, partitions: Collection[SourcePartition], held: Collection[SourcePartition]
    ) -> None:
        if len(partitions) <= ALL:
            wanted: Sequence[SourcePartition] = list(partitions)
            self._told.clear()
        else:
            if not self._turn:
                self._turn.extend(partitions)
            others = [self._turn.popleft() for _ in range(min(TURN, len(self._turn)))]
            wanted = list({*self._told, *others})
            self._told &= set(held)
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
    """The later of the two, with the leader epoch of the other where that is all that is known."""
    if end is None or end.offset <= other.offset:
        if end is not None and end.offset == other.offset and other.leader_epoch is None:
            return end
        return other
    if end.leader_epoch is not None or other.leader_epoch is None:
        return end
    return Advance(end.offset, other.leader_epoch, other.offset)
