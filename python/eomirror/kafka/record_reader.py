"""Reads committed messages of one partition through librdkafka: for `verify` where the native plane cannot serve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.errors import UnreachableError
from eomirror.kafka.client_factory import create_client
from eomirror.kafka.errors import Action, classify_fetch, to_mirror_error

if TYPE_CHECKING:
    from eomirror.config import Cluster

__all__ = ["CommittedPartition"]

# retention has passed the offset, or the topic was deleted
_GONE = frozenset({Action.SOURCE_GAP, Action.SOURCE_TRUNCATED, Action.TOPIC_GONE})


class CommittedPartition:
    """
    Consumer of one partition at a time.

    Args:
        cluster: The cluster to read.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._name = cluster.alias
        self._clock = clock
        # the end of a partition is told by an empty answer, and the next partition waits for the answer of this one
        self._consumer = create_client(
            Consumer,
            cluster,
            consumer_properties(
                cluster, client_id=client_id, **{"fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 10}
            ),
        )
        self._at = ("", 0)

    def assign(self, topic: str, partition: int, offset: int) -> None:
        """Starts this partition at ``offset``."""
        self._at = (topic, partition)
        self._consumer.assign([TopicPartition(topic, partition, offset)])

    def read(self, most: int, seconds: float) -> tuple[list[Any], int | None]:
        """
        Returns messages in order, and the end offset of the partition if it was reached.

        Raises:
            MirrorError: The partition cannot be read.
        """
        messages, reached, error = self._consume(most, seconds)
        if error is not None:
            raise to_mirror_error(error, doing=f"read {self._at[0]}-{self._at[1]}", cluster=self._name)
        return messages, reached

    def _consume(self, most: int, seconds: float) -> tuple[list[Any], int | None, KafkaError | None]:
        """Returns messages of the partition, its end if reached, and an error that is not retriable."""
        messages: list[Any] = []
        reached: int | None = None
        for message in self._consumer.consume(most, seconds):
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                if (message.topic(), message.partition()) != self._at:
                    # of an earlier assignment: librdkafka's version barrier drops those, and so do we
                    continue
                if error is None:
                    messages.append(message)
                else:
                    reached = message.offset()
            elif classify_fetch(error).action is not Action.RETRY:
                return messages, reached, error
        return messages, reached, None

    def one(self, topic: str, partition: int, offset: int) -> dict[str, Any] | None:
        """
        Returns the record at an offset, unchanged; None if it does not exist.

        Raises:
            UnreachableError: The broker does not answer within 10 s.
            MirrorError: The cluster refuses us.
        """
        self.assign(topic, partition, offset)
        deadline = Deadline(10.0, self._clock)
        try:
            while not deadline.passed:
                messages, reached, error = self._consume(1, 0.1)
                if error is not None:
                    if classify_fetch(error).action in _GONE:
                        return None
                    raise to_mirror_error(error, doing=f"read {topic}-{partition}", cluster=self._name)
                if messages:
                    message = messages[0]
                    if message.offset() != offset:
                        return None
                    return {
                        "offset": offset,
                        "key": message.key(),
                        "value": message.value(),
                        "headers": _headers(message),
                        "timestamp": message.timestamp()[1],
                    }
                if reached is not None:
                    return None
        finally:
            self._consumer.unassign()
        raise UnreachableError(
            f"{topic}-{partition}@{offset} could not be read within 10 s",
            fix=f"check that the brokers of {self._name} run and can be reached",
        )

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()


def _headers(message: Any) -> list[tuple[str, bytes | None]]:
    """Returns printable headers: the client decodes their names, and fails if they are not UTF-8."""
    try:
        return message.headers() or []
    except (SystemError, UnicodeDecodeError):
        return [("(headers whose names are not UTF-8)", None)]
