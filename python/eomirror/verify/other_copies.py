"""
Finds out in offset maps which link wrote the records of a copy.

A link's offset map is written in the transactions of its records.  So once a copy's end is stable, the maps name every
record before it that any link has written.  That tells the sources of an aggregate apart, and with equal names both
ways the copies that are older than the header: they were made while there was no link back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror._native import PartitionMap, encode_offset_map
from eomirror.link.offset_map_reader import take_chunk
from eomirror.link.other_links import OtherLinks
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import read_offset_map_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.config import Link
    from eomirror.kafka.compacted_topic import CompactedTopicReader, LogRecord
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["OtherCopies"]

Partition = tuple[str, int]


class OtherCopies:
    """
    Reads what links wrote into topics of one cluster.

    Args:
        link: The link that is verified.
        cluster: Connections to the cluster.
        states: Reader of the cluster's state topics.

    Attributes:
        any: True if the last look found such a link.
    """

    def __init__(self, link: Link, cluster: ClusterSession, states: CompactedTopicReader) -> None:
        self._link = link
        self._admin = cluster.admin
        self._states = states
        self._links = OtherLinks(link.name, cluster, event="other_link_unknown")
        self.any = False

    def read(
        self, copies: Mapping[Partition, tuple[str, str]], *, source_cluster_id: str
    ) -> dict[Partition, tuple[tuple[str, bytes], ...]]:
        """
        Returns the other links of each copy: state name, and a chunk of the offset map that names its records.

        A link that mirrors the same source partition is left out: its records are duplicates.

        Args:
            copies: Topic id and source topic of each copy, by its partition.
            source_cluster_id: Id of the link's source.

        Raises:
            StateError: A map is not readable.
            ClusterError: The target does not answer.
        """
        positions: dict[str, dict[SourcePartition, Position]] = {}
        for each in self._links.written(but=self._link.state_name):
            at = each.position
            topic_id, topic = copies.get((at.target_topic, at.target_partition), ("", ""))
            ours = (at.source_cluster_id, at.topic) == (source_cluster_id, topic)
            if topic_id == at.target_topic_id and topic and not ours:
                positions.setdefault(each.link, {})[at.source] = at
        self.any = bool(positions)
        return self._by_copy(positions)

    def returned(
        self, sources: Mapping[Partition, tuple[str, str]], *, target_cluster_id: str
    ) -> dict[Partition, tuple[tuple[str, bytes], ...]]:
        """
        Returns the reverse links of each source partition: state name, and a chunk of the map that names its records.

        Args:
            sources: Topic id and copy of each source partition.
            target_cluster_id: Id of the link's target, from which a reverse link mirrors.

        Raises:
            StateError: A map is not readable.
            ClusterError: The cluster does not answer.
        """
        positions: dict[str, dict[SourcePartition, Position]] = {}
        for each in self._links.written(but=self._link.state_name):
            at = each.position
            known = sources.get((at.target_topic, at.target_partition), ("", ""))
            if (at.source_cluster_id, at.target_topic_id, at.topic) == (target_cluster_id, *known):
                positions.setdefault(each.link, {})[at.source] = at
        return self._by_copy(positions)

    def own(self, positions: Iterable[Position]) -> dict[Partition, tuple[bytes, ...]]:
        """
        Returns the chunks of the link's own map for each of its copies.

        Raises:
            StateError: The map is not readable.
            ClusterError: The cluster does not answer.
        """
        of = {each.source: each for each in positions}
        found = self._by_copy({self._link.state_name: of})
        return {partition: tuple(chunk for _, chunk in named) for partition, named in found.items()}

    def _by_copy(
        self, positions: Mapping[str, Mapping[SourcePartition, Position]]
    ) -> dict[Partition, tuple[tuple[str, bytes], ...]]:
        found: dict[Partition, tuple[tuple[str, bytes], ...]] = {}
        for name, of in sorted(positions.items()):
            for partition, chunk in self._chunks(name, of):
                found[partition] = (*found.get(partition, ()), (name, chunk))
        return found

    def _chunks(
        self, link: str, positions: Mapping[SourcePartition, Position]
    ) -> list[tuple[Partition, bytes]]:
        """Returns one chunk for each source topic of a link, earlier topics of the same name included."""
        topic = LinkNames(link).offset_map_topic
        if self._admin.describe_topics([topic])[topic] is None:
            return []
        maps: dict[tuple[SourcePartition, str], PartitionMap] = {}

        def take(record: LogRecord) -> None:
            source, topic_id, _ = read_offset_map_key(record.key, where=record.where)
            if record.value is not None and source in positions:
                take_chunk(maps.setdefault((source, topic_id), PartitionMap()), record, positions[source])

        self._states.each(topic, take)
        chunks = []
        for (source, _), of in maps.items():
            at = positions[source]
            if of.ranges():
                copy = at.target_topic, at.target_partition
                chunks.append((copy, encode_offset_map(*copy, of.listed())))
        return chunks
