"""The consumer of the client plane: its connection, how far each partition is fetched and committed, and log ends."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from eomirror.config.clients import consumer_properties
from eomirror.kafka.client_factory import ClientLog, create_client
from eomirror.plane.client.position_checks import EndOffsets
from eomirror.plane.protocol import Advance
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.config import Cluster
    from eomirror.records.names import LinkNames

__all__ = ["ALL", "TURN", "FetchProgress", "Positions", "SourceConsumer"]

log = structlog.get_logger(__name__)


class SourceConsumer:
    """
    Fetches the partitions of one lane.

    Attributes:
        opened: The client; None before the first use and after the end.
        committed: Next offset to fetch of each partition, as last committed.
        reached: Next offset to fetch of each partition, as consumed.
        lost: True if a connection to the source was lost: the log may have changed.
    """

    def __init__(self, cluster: Cluster, *, lane: int, names: LinkNames) -> None:
        self.opened: Consumer | None = None
        self.committed: dict[SourcePartition, int] = {}
        self.reached = FetchProgress()
        self.lost = False
        # partitions that were dropped, of which librdkafka may still return messages
        self._dropped: set[SourcePartition] = set()
        self._cluster = cluster
        self._name = f"lane-{lane}"
        self._client_id = names.client_id(self._name)
        self._log_ends = EndOffsets(self._shown_end)

    def client(self) -> Consumer:
        """Returns the client; the first call creates it."""
        if self.opened is None:
            self.opened = create_client(
                Consumer,
                self._cluster,
                consumer_properties(
                    self._cluster,
                    client_id=self._client_id,
                    **{
                        # when librdkafka's queue is full it pauses a partition's fetches for this long; its
                        # default of 1 s is longer than we need to empty the queue
                        "fetch.queue.backoff.ms": 10,
                        # the default of 64 MiB is memory of every lane, and what has waited in it for so long is in no
                        # cache of the processor any more
                        "queued.max.messages.kbytes": 8 * 1024,
                    },
                )
                | {"error_cb": self._on_error, "logger": ClientLog(client=self._name)},
            )
        return self.opened

    def record_ends(self, ends: Sequence[tuple[str, int, int]]) -> None:
        """Records end-of-partition events."""
        for topic, partition, offset in ends:
            source = SourcePartition(topic, partition)
            if source in self.committed:
                self.reached.end(source, offset)

    def found(
        self, records: Iterable[tuple[str, int, int, int | None]], held: Collection[SourcePartition]
    ) -> Mapping[SourcePartition, Advance]:
        """Returns the known next offsets to fetch; see `FetchProgress.find`."""
        if self.opened is None or not self.committed:
            return {}
        return self.reached.find(self.opened, self.committed.keys(), records, held)

    def log_ends(self) -> Mapping[SourcePartition, int]:
        """Returns last stable offsets as fetches have shown them; partitions without one are left out."""
        if self.opened is None:
            return {}
        events = {source: end.offset for source, end in self.reached.ends.items()}
        return self._log_ends.ends(self.committed, events)

    def end_of(self, source: SourcePartition) -> int:
        """Returns the offset after the last consumed record of a partition."""
        (position,) = self.client().position([TopicPartition(*source)])
        return max(int(position.offset), self.committed.get(source, 0))

    def begin(self, source: SourcePartition, offset: int) -> None:
        """Records that a partition is fetched from an offset on."""
        self.committed[source] = offset
        self._dropped.discard(source)

    def stop(self, sources: Collection[SourcePartition]) -> None:
        """Drops those of these partitions that are fetched."""
        fetched = [source for source in sources if self.committed.pop(source, None) is not None]
        self.reached.drop(fetched)
        self._dropped.update(fetched)
        if self.opened is not None and fetched:
            self.opened.incremental_unassign([TopicPartition(*source) for source in fetched])

    def fetched(self, messages: list[Any]) -> list[Any]:
        """Returns the messages without those of dropped partitions."""
        if not self._dropped:
            return messages
        return [
            message
            for message in messages
            if SourcePartition(message.topic(), message.partition()) not in self._dropped
        ]

    def restart(self) -> None:
        """Forgets everything fetched."""
        self.lost = False
        self._dropped.clear()
        self.committed.clear()
        self.reached.clear()
        if self.opened is not None:
            self.opened.unassign()

    def close(self) -> None:
        """Closes the client."""
        if self.opened is not None:
            try:
                self.opened.close()
            except (KafkaException, RuntimeError) as error:
                log.debug("consumer_close_failed", error=str(error))
            self.opened = None

    def _on_error(self, error: KafkaError) -> None:
        """Handles an error of the client, mostly of its connections; librdkafka calls it within a call of ours."""
        log.debug("source_client_error", client=self._name, code=error.name())
        self.lost = True

    def _shown_end(self, source: SourcePartition) -> int | None:
        marks = self.client().get_watermark_offsets(TopicPartition(*source), cached=True)
        return None if marks is None or marks[1] < 0 else int(marks[1])


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

    def drop(self, sources: Collection[SourcePartition]) -> None:
        """Forgets partitions that are fetched no more."""
        for source in sources:
            self.ends.pop(source, None)
            self._asked.pop(source, None)
            self._ended.discard(source)
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
