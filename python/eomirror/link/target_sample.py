"""Reads copies just far enough to classify their content (`eomirror.link.filled_targets.Held`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from eomirror._native import last_hop
from eomirror.clock import Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.errors import StateError
from eomirror.kafka.client_factory import create_client
from eomirror.kafka.errors import Action, classify_fetch, to_mirror_error
from eomirror.link.filled_targets import Held
from eomirror.records.mm2 import Mm2Names, decode_heartbeat
from eomirror.records.names import HOPS_HEADER

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Cluster

__all__ = ["TargetSample"]

# A copy with records of applications is read in full, and the start must not take for ever.
_SECONDS = 30.0
_WAIT_SECONDS = 0.1
_GONE = frozenset({Action.SOURCE_GAP, Action.SOURCE_TRUNCATED, Action.TOPIC_GONE})

_Where = tuple[str, int]


class TargetSample:
    """
    Reads committed records of copies; connects on first use.

    Args:
        client_id: Client id that brokers see.
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
        Returns the content of copies, as far as it can be read in half a minute.

        Args:
            copies: First offset to read, last stable offset, and high watermark of each copy.
            source_cluster_id: Count only records that were copied from this cluster; None for all.

        Raises:
            AuthorizationError: A copy may not be read.
            MirrorError: The cluster refuses the request.
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
                        if where in waiting and self._classified(
                            message, waiting[where], held, source_cluster_id
                        ):
                            del waiting[where]
                            consumer.incremental_unassign([TopicPartition(*where)])
            finally:
                # The next look assigns again.
                consumer.unassign()
            held.update(dict.fromkeys(waiting, Held.UNSEEN))
        for where, (_, stable, end) in copies.items():
            held.setdefault(where, Held.OPEN if stable < end else Held.NOTHING)
        return held

    def close(self) -> None:
        """Closes the consumer."""
        if self._consumer is not None:
            self._consumer.close()
            self._consumer = None

    def _assigned(self, begin: Mapping[_Where, int]) -> Any:
        if self._consumer is None:
            self._consumer = create_client(
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

    def _classified(
        self, message: Any, stable: int, held: dict[_Where, Held], source_cluster_id: str | None
    ) -> bool:
        """Classifies a copy by one message; returns True if no further message is needed."""
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
        # A record of an application or another cluster; a later one may be ours.
        held[where] = Held.OURS if ours else Held.RECORDS
        return ours or bool(message.offset() + 1 >= stable)


def _copied_from(message: Any) -> str | None:
    try:
        headers = message.headers() or []
    except (SystemError, UnicodeDecodeError):
        # The mirror writes only UTF-8 names, and the client shows no headers of such a record.
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
