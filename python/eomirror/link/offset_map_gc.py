"""
Finds chunks of the offset map that no reader can use any more, in the background of a lane.

Chunks below both log starts are at the beginning of the map's log, because they were written first.  So every ten
minutes a bounded part of the beginning is read.  The lane deletes the chunks that are found
(`eomirror.lane.offset_map_compaction`); this thread only reads, and the next look finds the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.lane.offset_map_compaction import unreadable
from eomirror.link.background_look import BackgroundLook
from eomirror.link.offset_map_reader import OffsetMapReader, chunk_of
from eomirror.records.offset_map import chunk_prefix, prefix_of_chunk

if TYPE_CHECKING:
    from collections.abc import Collection

    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["OffsetMapSweep"]

_FIRST_SECONDS = 60.0
_SECONDS = 600.0
# Per partition of the map's topic; about 3 MB.
_MOST_RECORDS = 20_000
_CLOSE_SECONDS = 2.0

_Range = tuple[int, int, int]


class OffsetMapSweep(BackgroundLook[tuple[int, bytes]]):
    """
    Scans the beginning of a link's offset map for one lane.

    Args:
        source: Connections to the source.
        target: Connections to the target.
    """

    def __init__(
        self, link: Link, source: ClusterSession, target: ClusterSession, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        super().__init__(
            link=link.name,
            event="offset_map_not_swept",
            first_seconds=_FIRST_SECONDS,
            seconds=_SECONDS,
            close_seconds=_CLOSE_SECONDS,
            clock=clock,
        )
        self._reads = link
        self._source = source
        self._target = target
        # Deleted by this lane, and perhaps not compacted away yet.
        self._deleted: frozenset[tuple[int, bytes]] = frozenset()

    def take(self) -> tuple[tuple[int, bytes], ...]:
        """Returns the map partition and key of each chunk that was found since the last call."""
        if not (found := super().take()):
            return ()
        deleted, self._deleted = self._deleted, frozenset(found)
        return tuple(each for each in found if each not in deleted)

    def look(self, positions: Collection[Position]) -> tuple[tuple[int, bytes], ...]:
        """
        Scans and waits; returns the map partition and key of each chunk.

        Raises:
            MirrorError: A cluster cannot be asked.
            StateError: A chunk is not readable.
        """
        by_source = {one.source: one for one in positions}
        copies = [(one.target_topic, one.target_partition) for one in positions]
        starts = self._source.admin.offsets(list(by_source), at="earliest", read_committed=False)
        target_starts = self._target.admin.offsets(copies, at="earliest", read_committed=False)
        windows = OffsetMapReader(self._reads, self._target).oldest(by_source, _MOST_RECORDS)
        by_prefix = {chunk_prefix(one.source, one.topic_id): one for one in positions}
        found: list[tuple[int, bytes]] = []
        for partition, records in windows.items():
            chunks: dict[SourcePartition, list[tuple[bytes, list[_Range]]]] = {}
            for record in records:
                position = by_prefix.get(prefix_of_chunk(record.key))
                if position is None:
                    continue
                held = chunks.setdefault(position.source, [])
                if record.value is None:
                    held.append((record.key or b"", []))
                    continue
                topic, number, ranges = chunk_of(record)
                # A chunk of another target topic: readers ignore it.
                if (topic, number) == (position.target_topic, position.target_partition):
                    held.append((record.key or b"", ranges))
            for one, log_of_it in chunks.items():
                position = by_source[one]
                keys = unreadable(
                    log_of_it,
                    source_start=starts[one],
                    target_start=target_starts[position.target_topic, position.target_partition],
                    last_target=position.target_offset,
                )
                found += [(partition, key) for key in keys]
        return tuple(found)
