"""
Finds chunks of the offset map that no reader can use any more, in the background of a lane.

Chunks below both log starts are at the beginning of the map's log, because they were written first.  So every ten
minutes a bounded part of the beginning is read.  The lane deletes the chunks that are found
(`eomirror.lane.offset_map_compaction`); this thread only reads, and the next look finds the rest.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import MirrorError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.lane.offset_map_compaction import unreadable
from eomirror.link.offset_map_reader import OffsetMapReader, chunk_of
from eomirror.records.offset_map import chunk_prefix, prefix_of_chunk

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Cluster, Link
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["OffsetMapSweep"]

log = structlog.get_logger(__name__)

_FIRST_SECONDS = 60.0
_SECONDS = 600.0
# Per partition of the map's topic; about 3 MB.
_MOST_RECORDS = 20_000
_CLOSE_SECONDS = 2.0

_Range = tuple[int, int, int]


class OffsetMapSweep:
    """
    Scans the beginning of a link's offset map for one lane.

    Args:
        client_id: Client id that brokers see.
    """

    def __init__(
        self, link: Link, source: Cluster, target: Cluster, *, client_id: str, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._link = link
        self._source = source
        self._target = target
        self._client_id = client_id
        self._clock = clock
        self._next = clock.monotonic() + _FIRST_SECONDS
        self._thread: threading.Thread | None = None
        self._found: tuple[tuple[int, bytes], ...] = ()
        # Deleted by this lane, and perhaps not compacted away yet.
        self._deleted: frozenset[tuple[int, bytes]] = frozenset()

    def begin(self, positions: Mapping[SourcePartition, Position]) -> None:
        """
        Starts a look in the background if one is due; returns at once.

        Args:
            positions: Positions that the lane has committed.
        """
        now = self._clock.monotonic()
        if now < self._next or self._thread is not None or not positions:
            return
        self._next = now + _SECONDS
        self._thread = threading.Thread(target=self._run, args=(dict(positions),), daemon=True)
        self._thread.start()

    def take(self) -> tuple[tuple[int, bytes], ...]:
        """Returns the map partition and key of each chunk that was found since the last call."""
        if self._thread is None or self._thread.is_alive():
            return ()
        self._thread = None
        found, self._found = self._found, ()
        deleted, self._deleted = self._deleted, frozenset(found)
        return tuple(each for each in found if each not in deleted)

    def look(self, positions: Mapping[SourcePartition, Position]) -> tuple[tuple[int, bytes], ...]:
        """
        Scans and waits; returns the map partition and key of each chunk.

        Raises:
            MirrorError: A cluster cannot be asked.
            StateError: A chunk is not readable.
        """
        reader = OffsetMapReader(self._link, self._target, clock=self._clock)
        source = ClusterAdmin(self._source, client_id=self._client_id, clock=self._clock)
        target = ClusterAdmin(self._target, client_id=self._client_id, clock=self._clock)
        try:
            starts = source.offsets(list(positions), at="earliest", read_committed=False)
            copies = [(one.target_topic, one.target_partition) for one in positions.values()]
            target_starts = target.offsets(copies, at="earliest", read_committed=False)
            windows = reader.oldest(positions, _MOST_RECORDS)
        finally:
            reader.close()
            source.close()
            target.close()
        by_prefix = {chunk_prefix(one.source, one.topic_id): one for one in positions.values()}
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
                position = positions[one]
                keys = unreadable(
                    log_of_it,
                    source_start=starts[one],
                    target_start=target_starts[position.target_topic, position.target_partition],
                    last_target=position.target_offset,
                )
                found += [(partition, key) for key in keys]
        return tuple(found)

    def close(self) -> None:
        """Waits a moment for a look that is under way, which closes its own clients."""
        if self._thread is not None:
            self._thread.join(_CLOSE_SECONDS)

    def _run(self, positions: Mapping[SourcePartition, Position]) -> None:
        try:
            self._found = self.look(positions)
        except MirrorError as error:
            # The only effect is a larger map.
            log.info("offset_map_not_swept", link=self._link.name, reason=error.message)
        else:
            log.debug("offset_map_swept", link=self._link.name, unreadable=len(self._found))
