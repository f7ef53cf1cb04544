"""
Copies of a link as a source that counts by the offsets of the link's source.

Positions say which partitions are copied and up to which source offset; the offset map says which record of the copy is
which of the source.  Both are on the cluster that is read.  Records of the copy that the link did not write are left
out.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from eomirror._native import PartitionMap
from eomirror.dataframe.offsets import ReadRange
from eomirror.dataframe.scan import CLIENT_ID, MirroredRange, connect
from eomirror.dataframe.source_topics import SAMPLE_BYTES, SAMPLE_SECONDS, chosen_names
from eomirror.errors import DataLossError, TopicError, UsageError
from eomirror.kafka.session import ClusterSession
from eomirror.kafka.topic_follower import TopicFollower
from eomirror.link.offset_map_reader import take_chunk
from eomirror.link.valid_positions import PositionSelection
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import chunk_prefix, prefix_of_chunk
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.dataframe.offsets import Name
    from eomirror.dataframe.options import SourceOptions
    from eomirror.records.position import Position

__all__ = ["MirroredTopics"]

_SECONDS = 60.0


class MirroredTopics:
    """
    Copies of a link on the cluster that the options name.

    Raises:
        UsageError: The cluster is no target of such a link.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._names = LinkNames(options.mirror)
        self._session = ClusterSession(options.cluster, client_id=CLIENT_ID)
        self._follower = TopicFollower(self._session, wait_for_open=True)
        self._selection = PositionSelection()
        self._positions: Mapping[SourcePartition, Position] = {}
        self._maps: dict[bytes, PartitionMap] = {}

    def partitions(self) -> Mapping[Name, str]:
        """Returns the source partitions that the options name, with the ids of their topics on the source."""
        self._refresh()
        topics = sorted({one.topic for one in self._positions})
        chosen = set(chosen_names(self._options, topics))
        if missing := sorted(chosen - set(topics)):
            raise TopicError(
                f"link {self._options.mirror} has no position of topic {missing[0]}: it was never mirrored",
                fix="name topics as they are called on the source of the link",
                topic=missing[0],
            )
        found = {
            (one.topic, one.partition): position.topic_id
            for one, position in self._positions.items()
            if one.topic in chosen
        }
        wanted = self._options.partitions
        return {name: known for name, known in found.items() if not wanted or name in wanted}

    def starts(self, names: Collection[Name]) -> dict[Name, int]:
        """Returns the source offsets of the first records that the copies still have."""
        copies = {name: self._copy(name) for name in names}
        first = (
            self._session.admin.offsets(set(copies.values()), at="earliest", read_committed=True)
            if copies
            else {}
        )
        found = {}
        for name, copy in copies.items():
            position = self._positions[SourcePartition(*name)]
            listed = [one for one in self._listed(name) if one[1] + one[2] > first[copy]]
            source, target, _ = listed[0] if listed else (position.offset, 0, 0)
            found[name] = source + max(0, first[copy] - target) if listed else source
        return found

    def ends(self, names: Collection[Name]) -> dict[Name, int]:
        """Returns the source offsets up to which the link has mirrored."""
        self._refresh()
        return {name: self._positions[SourcePartition(*name)].offset for name in names}

    def at_time(self, names: Collection[Name], milliseconds: int) -> dict[Name, int]:
        """Returns the source offsets of the first copied records at or after a time; -1 for none."""
        copies = {name: self._copy(name) for name in names}
        if not copies:
            return {}
        there = self._session.admin.offsets(set(copies.values()), at=milliseconds, read_committed=True)
        found = {}
        for name, copy in copies.items():
            later = [one for one in self._listed(name) if one[1] + one[2] > there[copy]]
            found[name] = -1
            if there[copy] >= 0 and later:
                source, target, _ = later[0]
                found[name] = source + max(0, there[copy] - target)
        return found

    def sizes(self, offsets: Mapping[Name, int]) -> dict[Name, float]:
        """Returns the bytes of one source offset, by a sample of each copy."""
        asked, names = [], {}
        for name, offset in offsets.items():
            mirrored = self.mirrored(ReadRange(*name, offset, self._positions[SourcePartition(*name)].offset))
            if mirrored.ranges:
                asked.append((*self._copy(name), mirrored.copy.start))
                names[self._copy(name)] = name
        if not asked:
            return {}
        sampled = connect(self._options.cluster).density(asked, SAMPLE_BYTES, SAMPLE_SECONDS)
        return {names[topic, number]: size / span for topic, number, size, span in sampled if span}

    def mirrored(self, wanted: ReadRange) -> MirroredRange:
        """
        Returns the copy of a range of source offsets.

        Raises:
            DataLossError: The range begins before the first record that the link has mirrored.
        """
        name = wanted.topic, wanted.partition
        position = self._positions[SourcePartition(*name)]
        copy_of = position.target_topic, position.target_partition
        listed = self._listed(name)
        if listed and wanted.start < listed[0][0] and self._options.fail_on_data_loss and wanted.start > 0:
            raise DataLossError(
                f"{wanted.topic}-{wanted.partition}: the first record that the map of link {self._options.mirror} "
                f"knows is at {listed[0][0]}, after the query's offset {wanted.start}",
                fix="to begin at the first record that was mirrored, set failOnDataLoss to false",
                topic=wanted.topic,
            )
        first = max(0, bisect_right(listed, wanted.start, key=lambda one: one[0]) - 1)
        ranges = []
        for source, target, count in listed[first:]:
            if source >= wanted.end:
                break
            begin, end = max(source, wanted.start), min(source + count, wanted.end)
            if begin < end:
                ranges.append((begin, target + begin - source, end - begin))
        ranges.sort(key=lambda one: one[1])
        start = ranges[0][1] if ranges else 0
        end = ranges[-1][1] + ranges[-1][2] if ranges else 0
        return MirroredRange(ReadRange(*copy_of, start, end, position.target_topic_id), ranges)

    def close(self) -> None:
        """Releases the connections."""
        self._session.close()

    def _refresh(self) -> None:
        """Reads what is new of positions, then of the map, which is never older than the positions."""
        news = self._follower.read(self._names.positions_topic, seconds=_SECONDS, missing=True)
        selection = PositionSelection() if news.restarted else self._selection
        for record in news.records:
            selection.take(record)
        self._selection, self._positions = selection, selection.valid()
        if not self._positions:
            raise UsageError(
                f"no link {self._options.mirror} has mirrored to this cluster",
                fix="set mirror.source to SOURCE.TARGET or the name of the link, and kafka.bootstrap.servers to its "
                "target; `eomirror status CONFIG` shows the links",
            )
        by_prefix = {chunk_prefix(one.source, one.topic_id): one for one in self._positions.values()}
        chunks = self._follower.read(self._names.offset_map_topic, seconds=_SECONDS, missing=True)
        if chunks.restarted:
            self._maps = {}
        for record in chunks.records:
            prefix = prefix_of_chunk(record.key)
            position = by_prefix.get(prefix)
            if position is not None and record.value is not None:
                take_chunk(self._maps.setdefault(prefix, PartitionMap()), record, position)

    def _listed(self, name: Name) -> list[tuple[int, int, int]]:
        position = self._positions[SourcePartition(*name)]
        known = self._maps.get(chunk_prefix(position.source, position.topic_id))
        return [] if known is None else known.listed()

    def _copy(self, name: Name) -> Name:
        position = self._positions.get(SourcePartition(*name))
        if position is None:
            raise TopicError(
                f"link {self._options.mirror} has no position of {name[0]}-{name[1]}",
                fix="name partitions that the link mirrors",
                topic=name[0],
            )
        return position.target_topic, position.target_partition
