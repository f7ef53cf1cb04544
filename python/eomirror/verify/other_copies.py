"""
Finds the records of an aggregate that other links wrote, in the offset maps of those links.

A link's offset map is written in the transactions of its records.  So once a copy's end is stable, the maps name every
record before it that any link has written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror._native import PartitionMap, encode_offset_map
from eomirror.link.offset_map_reader import take_chunk
from eomirror.link.other_links import OtherLinks
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import read_offset_map_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Link
    from eomirror.kafka.compacted_topic import CompactedTopicReader, LogRecord
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["OtherCopies"]

Partition = tuple[str, int]


class OtherCopies:
    """
    Reads what other links wrote into the copies of one link.

    Args:
        target: Connections to the target.
        states: Reader of the target's state topics.

    Attributes:
        any: True if the last look found such a link.
    """

    def __init__(self, link: Link, target: ClusterSession, states: CompactedTopicReader) -> None:
        self._link = link
        self._admin = target.admin
        self._states = states
        self._links = OtherLinks(link.name, target, event="other_link_unknown")
        self.any = False

    def look(
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
        found: dict[Partition, tuple[tuple[str, bytes], ...]] = {}
        for name, of in sorted(positions.items()):
            for partition, chunk in self._chunks(name, of):
                found[partition] = (*found.get(partition, ()), (name, chunk))
        self.any = bool(positions)
        return found

    def close(self) -> None:
        """Closes the reader."""
        self._links.close()

    def _chunks(
        self, link: str, positions: Mapping[SourcePartition, Position]
    ) -> list[tuple[Partition, bytes]]:
        """Returns one chunk for each source topic of another link, earlier topics of the same name included."""
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
