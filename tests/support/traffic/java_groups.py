"""Offsets of groups as Java's AdminClient commits and reads them, with metadata and leader epochs."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from support.links.moving.java import java_gateway

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["JavaGroups", "java_groups"]


class JavaGroups:
    """
    Commits and reads offsets with ``Admin``.

    Args:
        gateway: A JVM with the Kafka jars.
    """

    def __init__(self, gateway: Any) -> None:
        self._jvm = gateway.jvm

    def commit(
        self,
        properties: Mapping[str, Any],
        group: str,
        offsets: Mapping[tuple[str, int], tuple[int, int | None, str | None]],
    ) -> None:
        """
        Commits offsets for a group without members.

        Args:
            offsets: Topic and partition -> offset, leader epoch or None, metadata or None.
        """
        optional = self._jvm.java.util.Optional
        wanted = self._jvm.java.util.HashMap()
        for (topic, number), (offset, epoch, metadata) in offsets.items():
            made = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(
                offset,
                optional.empty() if epoch is None else optional.of(epoch),
                metadata,
            )
            wanted.put(self._jvm.org.apache.kafka.common.TopicPartition(topic, number), made)
        with self._admin(properties) as admin:
            admin.alterConsumerGroupOffsets(group, wanted).all().get()

    def offsets(self, properties: Mapping[str, Any], group: str) -> dict[tuple[str, int], tuple[int, str]]:
        """Returns offset and metadata of each partition."""
        with self._admin(properties) as admin:
            found = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
            return {
                (str(where.topic()), int(where.partition())): (
                    int(found[where].offset()),
                    str(found[where].metadata()),
                )
                for where in found
            }

    @contextmanager
    def _admin(self, properties: Mapping[str, Any]) -> Iterator[Any]:
        settings = self._jvm.java.util.Properties()
        settings.setProperty("bootstrap.servers", str(properties["bootstrap.servers"]))
        admin = self._jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        try:
            yield admin
        finally:
            admin.close()


@contextmanager
def java_groups(version: str = "4.3") -> Iterator[JavaGroups]:
    """
    Java's AdminClient while the block runs.

    Args:
        version: Of Kafka.
    """
    with java_gateway(version) as gateway:
        yield JavaGroups(gateway)
