"""Java's own consumer as a judge: what it reads of a topic, and the record that a group would read next."""

from __future__ import annotations

import re
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from support.links.moving.java import java_gateway
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["JavaJudge", "java_judge"]

# as ConsumerRecord.toString() has them; the values of these tests hold no comma and no parenthesis
_RECORD = re.compile(r"partition = (\d+),.*?offset = (\d+),.*? value = ([^,)]*)\)")
_SECONDS = 60.0


class JavaJudge:
    """
    Reads with ``KafkaConsumer``, read_committed.

    Args:
        gateway: A JVM with the Kafka jars.
    """

    def __init__(self, gateway: Any) -> None:
        self._jvm = gateway.jvm

    def read(self, properties: Mapping[str, Any], topic: str) -> dict[int, list[tuple[int, str]]]:
        """
        Offset and value of every committed record, per partition, in order.

        It waits for transactions that are ending: a coordinator writes their markers after it has answered.
        """
        self.await_markers(properties, topic)
        consumer = self._consumer(properties)
        try:
            partitions = {
                int(each.partition()): self._where(topic, int(each.partition()))
                for each in consumer.partitionsFor(topic)
            }
            consumer.assign(list(partitions.values()))
            consumer.seekToBeginning(list(partitions.values()))
            ends = consumer.endOffsets(list(partitions.values()))
            found: dict[int, list[tuple[int, str]]] = {number: [] for number in partitions}
            deadline = time.monotonic() + _SECONDS
            while any(int(consumer.position(where)) < int(ends[where]) for where in partitions.values()):
                assert time.monotonic() < deadline, f"{topic}: Java does not reach its end"
                for partition, offset, value in self._polled(consumer, list(partitions.values()), 0.2):
                    found[partition].append((offset, value))
            return found
        finally:
            consumer.close()

    def await_markers(self, properties: Mapping[str, Any], topic: str) -> None:
        """Wait until no transaction is open in a topic."""
        consumers = [
            self._consumer(properties, isolation=each) for each in ("read_committed", "read_uncommitted")
        ]
        try:
            where = [self._where(topic, int(each.partition())) for each in consumers[0].partitionsFor(topic)]

            def ended() -> bool:
                stable, high = (
                    [int(ends[one]) for one in where]
                    for ends in (each.endOffsets(where) for each in consumers)
                )
                return stable == high

            wait_for(ended, _SECONDS)
        finally:
            for each in consumers:
                each.close()

    def committed(self, properties: Mapping[str, Any], group: str, topic: str, number: int) -> int | None:
        """Committed offset of a group; None for none."""
        consumer = self._consumer(properties, group)
        try:
            where = self._where(topic, number)
            found = consumer.committed(self._jvm.java.util.Collections.singleton(where))
            offset = found[where]
            return None if offset is None else int(offset.offset())
        finally:
            consumer.close()

    # -- inside ------------------------------------------------------------------------------------

    def _polled(self, consumer: Any, partitions: list[Any], seconds: float) -> Iterator[tuple[int, int, str]]:
        """One call of the bridge for each partition, not for each record."""
        records = consumer.poll(self._jvm.java.time.Duration.ofMillis(int(seconds * 1000)))
        for where in partitions:
            for partition, offset, value in _RECORD.findall(str(records.records(where).toString())):
                yield int(partition), int(offset), value

    def _where(self, topic: str, number: int) -> Any:
        return self._jvm.org.apache.kafka.common.TopicPartition(topic, number)

    def _consumer(
        self, properties: Mapping[str, Any], group: str = "", isolation: str = "read_committed"
    ) -> Any:
        text = "org.apache.kafka.common.serialization.StringDeserializer"
        settings = self._jvm.java.util.Properties()
        for name, value in {
            **properties,
            "key.deserializer": text,
            "value.deserializer": text,
            "isolation.level": isolation,
            "enable.auto.commit": "false",
            "auto.offset.reset": "none",
            **({"group.id": group} if group else {}),
        }.items():
            settings.setProperty(name, str(value))
        return self._jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)


@contextmanager
def java_judge(version: str = "4.3") -> Iterator[JavaJudge]:
    """
    The judge while the block runs.

    Args:
        version: Of its Kafka client.
    """
    with java_gateway(version) as gateway:
        yield JavaJudge(gateway)
