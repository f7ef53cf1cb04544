"""
Which of several position records of a partition is valid (rule 3).

Log order decides within a generation, because within a generation a partition belongs to one lane, and a lane
writes to one partition of the topic.  Between generations the higher one decides, also against log order: a lane
of an old generation may still commit until it is fenced.  The highest source offset never does: an adopted
position or a restored source may move it back.

But a lane never moves a position back within a generation (rule 4).  A record that does was restored or copied by
somebody, and whoever believed it would mirror everything since then a second time: it is refused.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eomirror.errors import StateError
from eomirror.formats.position import Position, decode_key, decode_position

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from eomirror.kafka.compact_log import LogRecord
    from eomirror.types import SourcePartition

__all__ = ["valid_positions"]

_GENERATION = re.compile(rb'"generation": *(\d+)')
_OFFSET = re.compile(rb'"offset": *(\d+)')
_EPOCH = re.compile(rb'"epoch": *(\d+)')


def valid_positions(
    records: Iterable[LogRecord], *, overruled: Collection[SourcePartition] = ()
) -> Mapping[SourcePartition, Position]:
    """
    The valid position of every source partition.

    Args:
        records: The positions topic, in log order within each of its partitions.
        overruled: Partitions whose positions do not matter, because the user gives others; left out.

    Raises:
        StateError: A record is corrupt, of an unknown version, or goes back; nothing may start from a guess.
    """
    # of each (topic partition, key) one record counts: do not parse what compaction would remove
    newest: dict[tuple[int, bytes | None], LogRecord] = {}
    for record in records:
        key = record.partition, record.key
        before = newest.get(key)
        if before is None or record.value is None or _supersedes(record, before):
            if before is not None and _goes_back(before, record):
                _refuse(before, record, overruled)
            newest[key] = record
    valid: dict[SourcePartition, Position] = {}
    for record in newest.values():
        source = decode_key(record.key, where=record.where)
        if isinstance(source, int) or record.value is None or source in overruled:
            continue
        position = decode_position(source, record.value, where=record.where)
        best = valid.get(source)
        if best is None or _rank(position) > _rank(best):
            valid[source] = position
    return valid


def _rank(position: Position) -> tuple[int, int, int, int]:
    # within a generation a partition has one lane; only a first position, of epoch 0, may stand elsewhere
    return position.generation, position.epoch, position.attempt, position.txn


def _generation(record: LogRecord) -> int | None:
    """Of a position's value, without parsing the rest; None when it does not say."""
    found = _GENERATION.search(record.value or b"")
    return int(found[1]) if found else None


def _supersedes(record: LogRecord, before: LogRecord) -> bool:
    """By generation; a value that does not say is taken for the newest, so that it is refused when it is decoded."""
    generation = _generation(record)
    return generation is None or generation >= (_generation(before) or 0)


def _goes_back(before: LogRecord, record: LogRecord) -> bool:
    offsets = _OFFSET.search(before.value or b""), _OFFSET.search(record.value or b"")
    if offsets[0] is None or offsets[1] is None or int(offsets[1][1]) >= int(offsets[0][1]):
        return False
    # a position that was set before the lane ran, such as an adopted one, is of epoch 0
    epoch = _EPOCH.search(record.value or b"")
    return epoch is not None and int(epoch[1]) > 0 and _generation(record) == _generation(before)


def _refuse(before: LogRecord, record: LogRecord, overruled: Collection[SourcePartition]) -> None:
    source = decode_key(record.key, where=record.where)
    if source in overruled:
        return
    raise StateError(
        f"{record.where}: the position of {source} goes back behind the one at {before.where}; no lane writes such "
        "a record, so somebody restored or copied it",
        fix=f"find out who writes to this topic, then say where the mirror stood: --adopt {source}=OFFSET",
    )
