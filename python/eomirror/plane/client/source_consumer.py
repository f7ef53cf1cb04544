"""The consumer of the client plane: its connection, how far each partition is fetched and committed, and log ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from eomirror.config.clients import consumer_properties
from eomirror.kafka.client_factory import ClientLog, create_client
from eomirror.plane.client.fetch_progress import FetchProgress
from eomirror.plane.client.position_checks import EndOffsets
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.config import Cluster
    from eomirror.plane.protocol import Advance
    from eomirror.records.names import LinkNames

__all__ = ["SourceConsumer"]

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

    def restart(self) -> None:
        """Forgets everything fetched."""
        self.lost = False
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
