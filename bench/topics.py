"""Topics and their offsets, through the admin client."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

__all__ = ["Topics"]

_TIMEOUT_SECONDS = 30.0
# a controller takes 10,000 records in one request
_AT_ONCE = 500
# the last: metadata names the leader before the broker leads, which shows with a thousand new partitions
_NOT_YET = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.UNKNOWN_LEADER_EPOCH,
)


@dataclass(slots=True)
class Topics:
    """
    One cluster's topics.

    Attributes:
        servers: Its bootstrap servers.
    """

    servers: str
    _admin: AdminClient = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 3})

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until it can be used."""
        new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        self._admin.create_topics([new])[topic].result(_TIMEOUT_SECONDS)
        self.wait_for(topic, partitions, _TIMEOUT_SECONDS)

    def create_all(self, topics: Sequence[str], partitions: int) -> float:
        """Create topics in few requests; return the seconds until the last partition has a leader."""
        begun = time.monotonic()
        for first in range(0, len(topics), _AT_ONCE):
            new = [NewTopic(name, partitions, 1) for name in topics[first : first + _AT_ONCE]]
            for future in self._admin.create_topics(new).values():
                future.result(_TIMEOUT_SECONDS)
        while any(end < 0 for end in self.stable_ends([(topic, 0) for topic in topics]).values()):
            time.sleep(0.1)
        return time.monotonic() - begun

    def names(self) -> set[str]:
        """Names of all topics."""
        return set(self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics)

    def settings(self, topic: str) -> dict[str, str]:
        """Effective settings of a topic."""
        asked = ConfigResource(ResourceType.TOPIC, topic)
        found = self._admin.describe_configs([asked])[asked].result(_TIMEOUT_SECONDS)
        return {name: entry.value for name, entry in found.items()}

    def configure(self, topic: str, settings: Mapping[str, str]) -> None:
        """Set settings of a topic."""
        entries = [
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        for future in self._admin.incremental_alter_configs([resource]).values():
            future.result(_TIMEOUT_SECONDS)

    def stable_ends(self, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """Last stable offset of these partitions in one request; -1 of one that has no leader yet."""
        asked = {TopicPartition(*place): OffsetSpec.latest() for place in places}
        futures = self._admin.list_offsets(
            asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=_TIMEOUT_SECONDS
        )
        found = {}
        for place, future in futures.items():
            try:
                found[place.topic, place.partition] = int(future.result().offset)
            except KafkaException as error:
                if error.args[0].code() not in _NOT_YET:
                    raise
                found[place.topic, place.partition] = -1
        if any(end < 0 for end in found.values()):
            # what librdkafka has cached of a leader's epoch it does not look up again
            self.__post_init__()
        return found

    def delete(self, *topics: str) -> None:
        """Delete those of these topics that exist."""
        there = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
        found = [topic for topic in topics if topic in there]
        if found:
            for future in self._admin.delete_topics(found).values():
                future.result(_TIMEOUT_SECONDS)

    def delete_all(self, *, but: Collection[str]) -> None:
        """Delete every topic except these and Kafka's own."""
        there = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
        self.delete(*(topic for topic in there if topic not in but and not topic.startswith("__")))

    def wait_for(self, topic: str, partitions: int, seconds: float) -> None:
        """
        Wait until a topic exists with all its partitions led by a broker.

        Raises:
            TimeoutError: It does not in time.
        """
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            known = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics.get(topic)
            if known is not None and known.error is None and len(known.partitions) == partitions:
                led = [one.error is None and one.leader >= 0 for one in known.partitions.values()]
                if all(led):
                    return
            time.sleep(0.1)
        raise TimeoutError(f"topic {topic} does not exist with {partitions} partitions after {seconds:g} s")

    def partitions(self, topic: str) -> int:
        """How many partitions a topic has; 0 when there is no such topic."""
        known = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics.get(topic)
        return len(known.partitions) if known is not None and known.error is None else 0

    def stable_offsets(self, topic: str) -> dict[int, int]:
        """Last stable offset of every partition: what a read_committed consumer can see; {} without topic."""
        return self._offsets(topic, IsolationLevel.READ_COMMITTED)

    def end_offsets(self, topic: str) -> dict[int, int]:
        """High watermark of every partition; {} without topic."""
        return self._offsets(topic, IsolationLevel.READ_UNCOMMITTED)

    def _offsets(self, topic: str, isolation: IsolationLevel) -> dict[int, int]:
        asked = {
            TopicPartition(topic, number): OffsetSpec.latest() for number in range(self.partitions(topic))
        }
        until = time.monotonic() + _TIMEOUT_SECONDS
        while asked:
            futures = self._admin.list_offsets(
                asked, isolation_level=isolation, request_timeout=_TIMEOUT_SECONDS
            )
            try:
                return {place.partition: future.result().offset for place, future in futures.items()}
            except KafkaException as error:
                # a topic that was created this moment has no leader everybody knows of yet
                if error.args[0].code() not in _NOT_YET or time.monotonic() > until:
                    raise
                time.sleep(0.1)
        return {}
