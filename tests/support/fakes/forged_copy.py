"""A copy that no mirror made: what a verifier has to say about it is known beforehand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from eomirror.kafka.admin import ClusterAdmin
from eomirror.records.position import Position
from support.traffic.records import Record, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ForgedCopy"]


class ForgedCopy:
    """
    Topics on both sides, written by plain producers, and positions that claim that all is mirrored.

    Args:
        east: Cluster of the source.
        west: Cluster of the target.
        link: Name of the link; its topics are ``LINK.WORD``.
    """

    def __init__(self, east: Any, west: Any, link: str) -> None:
        self.link = link
        self.sides = {"east": dict(east.client_properties), "west": dict(west.client_properties)}
        self.admins = {side: AdminClient(properties) for side, properties in self.sides.items()}
        self.producers = {
            side: Producer({**properties, "linger.ms": 1}) for side, properties in self.sides.items()
        }

    def create(self, side: str, names: list[str], partitions: int = 1, **configs: str) -> None:
        """Create topics at once, and wait until they are there."""
        settings = {"retention.ms": "-1", **configs}
        wanted = [NewTopic(name, partitions, 1, config=settings) for name in names]
        for future in self.admins[side].create_topics(wanted).values():
            future.result(30)
        wait_for(lambda: set(names) <= set(self.admins[side].list_topics(timeout=10).topics))

    def write(self, side: str, topic: str, records: list[Record], partition: int = 0) -> None:
        """Write records as they are."""
        producer = self.producers[side]
        for key, value, timestamp, headers in records:
            producer.produce(topic, value, key, partition, timestamp=timestamp, headers=list(headers))
        assert producer.flush(30) == 0

    def transaction(self, side: str, topic: str, records: list[Record], *, commit: bool) -> None:
        """Write records in a transaction."""
        producer = Producer({**self.sides[side], "transactional.id": f"{topic}-{commit}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for key, value, timestamp, headers in records:
            producer.produce(topic, value, key, 0, timestamp=timestamp, headers=list(headers))
        producer.flush(30)
        if commit:
            producer.commit_transaction(30)
        else:
            producer.abort_transaction(30)

    def topic_id(self, side: str, topic: str) -> str:
        """Id of a topic."""
        found = self.admins[side].describe_topics(TopicCollection([topic]))[topic]
        return str(found.result(30).topic_id)

    def end(self, side: str, topic: str, partition: int = 0) -> int:
        """The high watermark."""
        where = TopicPartition(topic, partition)
        (found,) = self.admins[side].list_offsets({where: OffsetSpec.latest()}).values()
        return int(found.result(30).offset)

    def claim(self, config: Any, changes: Mapping[str, Callable[[Position], Position]] | None = None) -> None:
        """Write a position for every partition of every topic: everything is mirrored, unless changed by word."""
        admins = {side: ClusterAdmin(config.clusters[side], client_id="test") for side in self.sides}
        names = [name for name in admins["east"].topic_names() if name.startswith(f"{self.link}.")]
        sources = admins["east"].describe_topics(names)
        targets = admins["west"].describe_topics([f"east.{name}" for name in names])
        for name in names:
            source, target = sources[name], targets[f"east.{name}"]
            assert source is not None
            assert target is not None
            for partition in range(source.partitions):
                end = self.end("west", target.name, partition)
                position = Position(
                    topic=name, partition=partition, offset=self.end("east", name, partition),
                    source_cluster_id="", topic_id=source.topic_id, target_topic=target.name,
                    target_partition=partition, target_topic_id=target.topic_id, target_offset=end - 1 if end else None,
                    generation=1, lane=0, run="r", epoch=1, attempt=1, producer_id=1, producer_epoch=0, txn=1,
                    timestamp=1,
                )  # fmt: skip
                change = (changes or {}).get(name.removeprefix(f"{self.link}."))
                position = position if change is None else change(position)
                self.producers["west"].produce(
                    f"eomirror.{self.link}.positions", position.value(), position.key()
                )
        assert self.producers["west"].flush(30) == 0
        for admin in admins.values():
            admin.close()
