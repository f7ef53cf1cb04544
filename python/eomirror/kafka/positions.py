"""
Which of several position records of a partition is valid (rule 3).

Log order decides within a generation, because within a generation a partition belongs to one lane, and a lane
writes to one partition of the topic.  Between generations the higher one decides, also against log order: a lane
of an old generation may still commit until it is fenced.  The highest source offset never does: an accepted
gap, an adopted position or a restored source may move it back.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eomirror.formats.position import Position, decode_key, decode_position

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.kafka.compact_log import LogRecord
    from eomirror.types import SourcePartition

__all__ = ["valid_positions"]

_GENERATION = re.compile(rb'"generation": *(\d+)')


def valid_positions(records: Iterable[LogRecord]) -> Mapping[SourcePartition, Position]:
    """
    The valid position of every source partition.

    Args:
        records: The positions topic, in log order within each of its partitions.

    Raises:
        StateError: A record is corrupt or of an unknown version; nothing may start from a guess.
    """
    # of each (topic partition, key) one record counts: do not parse what compaction would remove
    newest: dict[tuple[int, bytes | None], LogRecord] = {}
    for record in records:
        key = record.partition, record.key
        before = newest.get(key)
        if before is None or record.value is None or _generation(record) >= _generation(before):
            newest[key] = record
    valid: dict[SourcePartition, Position] = {}
    for record in newest.values():
        source = decode_key(record.key, where=record.where)
        if isinstance(source, int) or record.value is None:
            continue
        position = decode_position(source, record.value, where=record.where)
        best = valid.get(source)
        if best is None or _rank(position) > _rank(best):
            valid[source] = position
    return valid


def _rank(position: Position) -> tuple[int, int, int, int]:
    # within a generation a partition has one lane; only a first position, of epoch 0, may stand elsewhere
    return position.generation, position.epoch, position.attempt, position.txn


def _generation(record: LogRecord) -> int:
    """Of a position's value, without parsing the rest; a value that does not say is refused when it is decoded."""
    found = _GENERATION.search(record.value or b"")
    return int(found[1]) if found else 0
