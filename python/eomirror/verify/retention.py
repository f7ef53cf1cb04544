"""Finds common offsets in the offset map if retention has cut one log of a pair further than the other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror._native import PartitionMap
from eomirror.link.offset_map_reader import take_chunk
from eomirror.records.offset_map import read_offset_map_key
from eomirror.verify.verdict import needed_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.kafka.compacted_topic import LogRecord
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["RetentionBounds"]

# Ranges of all partitions together: 24 MB.
_KEPT_RANGES = 1_000_000
_LEAST_RANGES, _MOST_RANGES = 64, 65_536


class RetentionBounds:
    """
    Collects the decisive ranges from the records of the offset map.

    A later chunk overrules an earlier one where they disagree: the mirror was moved back, or its target was replaced.
    The kept state does not grow with the map: the first range of each partition, and a number of ranges before the
    beginnings of both logs, large enough that one is left when the last of them are overruled.

    Args:
        wanted: By source partition: its position, and the first source offset and target offset that can be compared.

    Attributes:
        replaced: Source partitions with chunks of an earlier topic of this name.
    """

    def __init__(self, wanted: Mapping[SourcePartition, tuple[Position, int, int]]) -> None:
        self._wanted = wanted
        self._most = min(_MOST_RANGES, max(_LEAST_RANGES, _KEPT_RANGES // max(1, len(wanted))))
        self._maps = {source: PartitionMap() for source in wanted}
        self.replaced: set[SourcePartition] = set()

    def take(self, record: LogRecord) -> None:
        """
        Adds the next record of the map's topic.

        Raises:
            StateError: It is not readable, or has an unknown version; names the record.
        """
        source, topic_id, _ = read_offset_map_key(record.key, where=record.where)
        if record.value is None or source not in self._wanted:
            return
        position, first_source, first_target = self._wanted[source]
        if topic_id != position.topic_id:
            self.replaced.add(source)
            return
        found = self._maps[source]
        take_chunk(found, record, position)
        if found.ranges() > 4 * self._most:
            found.keep_near(first_source, first_target, self._most)

    def ranges(self) -> dict[SourcePartition, tuple[tuple[int, int, int], ...]]:
        """Returns at most three ranges of each partition: see `needed_ranges`."""
        return {
            source: needed_ranges(self._maps[source].listed(), *ends)
            for source, (_, *ends) in self._wanted.items()
        }
