"""Reads copies just far enough to tell what stands in them (`eomirror.link.filled_targets.Held`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from eomirror._native import last_hop
from eomirror.clock import Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.errors import StateError
from eomirror.kafka.client_factory import made
from eomirror.kafka.errors import Action, classify_fetch, to_mirror_error
from eomirror.link.filled_targets import Held
from eomirror.records.mm2 import Mm2Names, decode_heartbeat
from eomirror.records.names import HOPS_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Cluster

__all__ = ["CopyReader"]

# a copy of applications' records is read in full, and a start must end
_SECONDS = 30.0
_WAIT_SECONDS = 0.1
_GONE = frozenset({Action.SOURCE_GAP, Action.SOURCE_TRUNCATED, Action.TOPIC_GONE})

_Where = tuple[str, int]


class CopyReader:
    """
    Reads committed records of copies; connects when it is first asked.

    Args:
        cluster: The target cluster.
        client_id: What brokers see.
        clock: Where time comes from.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, clock: Clock) -> None:
        self._cluster = cluster
        self._client_id = client_id
        self._clock = clock
        self._consumer: Any = None

    def look(
        self, copies: Mapping[_Where, tuple[int, int, int]], *, source_cluster_id: str | None
    ) -> dict[_Where, Held]:
        """
        What stands in copies, as far as it can be read in half a minute.

        Args:
            copies: Where to begin in each, its last stable offset, and its high watermark.
            source_cluster_id: Count only records that were copied from this cluster; None for all.

        Raises:
            AuthorizationError: We may not read a copy.
            MirrorError: The cluster refuses us.
        """
        waiting = {where: stable for where, (begin, stable, _) in copies.items() if begin < stable}
        held: dict[_Where, Held] = {}
        if waiting:
            consumer = self._assigned({where: copies[where][0] for where in waiting})
            deadline = Deadline(_SECONDS, self._clock)
            try:
                while waiting and not deadline.passed:
                    for message in consumer.consume(10_000, _WAIT_SECONDS):
                        where = (message.topic(), message.partition())
                        if where in waiting and self._told(message, waiting[where], held, source_cluster_id):
                            del waiting[where]
                            consumer.incremental_unassign([TopicPartition(*where)])
            finally:
                # the next look assigns anew
                consumer.unassign()
            held.update(dict.fromkeys(waiting, Held.UNSEEN))
        for where, (_, stable, end) in copies.items():
            held.setdefault(where, Held.OPEN if stable < end else Held.NOTHING)
        return held

    def close(self) -> None:
        """Close the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _assigned(self, begin: Mapping[_Where, int]) -> Any:
        if self._consumer is None:
            self._consumer = made(
                Consumer,
                self._cluster,
                consumer_properties(
                    self._cluster,
                    client_id=self._client_id,
                    **{
                        "fetch.wait.max.ms": 10,
                        "fetch.queue.backoff.ms": 10,
                        "queued.max.messages.kbytes": 8192,
                    },
                ),
            )
        self._consumer.incremental_assign(
            [TopicPartition(topic, number, offset) for (topic, number), offset in begin.items()]
        )
        return self._consumer

    def _told(
        self, message: Any, stable: int, held: dict[_Where, Held], source_cluster_id: str | None
    ) -> bool:
        """Take down what a message says of its copy; whether that is all there is to know."""
        where = (message.topic(), message.partition())
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                return bool(message.offset() >= stable)
            if classify_fetch(error).action not in {*_GONE, Action.RETRY}:
                doing = f"read {where[0]}-{where[1]}"
                raise to_mirror_error(error, doing=doing, cluster=self._cluster.alias)
            return False
        if source_cluster_id is None:
            held[where] = Held.HEARTBEATS if _is_heartbeat(message) else Held.RECORDS
            return True
        ours = _copied_from(message) == source_cluster_id
        # an application's, or of another cluster; what comes behind it may be ours
        held[where] = Held.OURS if ours else Held.RECORDS
        return ours or bool(message.offset() + 1 >= stable)


def _copied_from(message: Any) -> str | None:
    try:
        headers = message.headers() or []
    except (SystemError, UnicodeDecodeError):
        # names that are no UTF-8 are none that the mirror writes, and the client shows none of the others
        return None
    found = next((value for name, value in reversed(headers) if name == HOPS_HEADER), None)
    return None if found is None else last_hop(found, message.topic(), message.key(), message.value())


def _is_heartbeat(message: Any) -> bool:
    name = Mm2Names().heartbeats
    if message.topic() != name and not message.topic().endswith(f".{name}"):
        return False
    try:
        decode_heartbeat(message.key(), message.value(), where=message.topic())
    except StateError:
        return False
    return True
