"""Reads the timestamps of records at given offsets of one cluster, many partitions at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, TopicPartition

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.kafka.client_factory import create_client
from eomirror.kafka.errors import Action, classify_fetch

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.config import Cluster

__all__ = ["TimestampReader"]

_SECONDS = 10.0
# of a record only its timestamp is wanted: small fetches
_FETCH_BYTES = 65_536


class TimestampReader:
    """
    Consumer of single records.

    Args:
        cluster: The cluster to read.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        properties = consumer_properties(
            cluster,
            client_id=client_id,
            **{
                "fetch.wait.max.ms": 10,
                "max.partition.fetch.bytes": _FETCH_BYTES,
                "queued.min.messages": 1,
            },
        )
        self._consumer = create_client(Consumer, cluster, properties)

    def read(self, wanted: Iterable[tuple[str, int, int]]) -> dict[tuple[str, int, int], int]:
        """
        Returns timestamps (ms since 1970) of the first committed record at or after each offset.

        Args:
            wanted: Topic, partition and offset.

        Returns:
            By requested offset; an offset at the end, or without an answer within 10 s, is left out.
        """
        rounds: list[dict[tuple[str, int], int]] = []
        seen: dict[tuple[str, int], int] = {}
        for topic, number, offset in sorted(wanted):
            turn = seen.get((topic, number), 0)
            seen[topic, number] = turn + 1
            if turn == len(rounds):
                rounds.append({})
            rounds[turn][topic, number] = offset
        found: dict[tuple[str, int, int], int] = {}
        deadline = Deadline(_SECONDS, self._clock)
        for each in rounds:
            for name, stamp in self._round(each, deadline).items():
                found[*name, each[name]] = stamp
        return found

    def close(self) -> None:
        """Closes the consumer."""
        self._consumer.close()

    def _round(self, offsets: dict[tuple[str, int], int], deadline: Deadline) -> dict[tuple[str, int], int]:
        """Returns timestamps for one offset per partition."""
        waiting = set(offsets)
        found: dict[tuple[str, int], int] = {}
        self._consumer.assign(
            [TopicPartition(topic, number, offset) for (topic, number), offset in offsets.items()]
        )
        while waiting and not deadline.passed:
            for message in self._consumer.consume(100, 0.02):
                name = str(message.topic()), message.partition() or 0
                error = message.error()
                if name not in waiting:
                    continue
                if error is not None and error.code() != KafkaError._PARTITION_EOF:
                    if classify_fetch(error).action is not Action.RETRY:
                        # such as an offset that retention has overtaken: there is nothing to wait for
                        waiting.discard(name)
                    continue
                if message.offset() < offsets[name]:
                    # of the assignment before
                    continue
                waiting.discard(name)
                if error is None:
                    found[name] = message.timestamp()[1]
        self._consumer.unassign()
        return found
