"""
Selects the valid position among several position records of a partition (EO-3). Pure.

Log order decides within a generation, because within a generation a partition belongs to one lane, and a lane
writes to one partition of the topic.  Between generations the higher one decides, also against log order: a lane
of an old generation may still commit until it is fenced.  The highest source offset never decides: an adopted
position or a restored source may move it back.

A lane never moves a position back within a generation (EO-4).  A record that does was restored or copied by another
tool, and a mirror that used it would mirror everything since then a second time: it is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from eomirror.errors import StateError
from eomirror.records.position import Position, decode_key, decode_position

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from eomirror.kafka.compacted_topic import LogRecord
    from eomirror.types import SourcePartition

__all__ = ["PositionSelection", "valid_positions"]


class _Claims(NamedTuple):
    """
    Fields of a record's value, read without the rest.

    Attributes:
        generation: Generation of the lane layout; None if the value has none.
        offset: Next source offset; None if the value has none.
        epoch: Epoch of the lane; None if the value has none.
    """

    record: LogRecord
    generation: int | None
    offset: int | None
    epoch: int | None


class PositionSelection:
    """
    Selects positions from records that arrive one after another.

    Args:
        overruled: Partitions whose positions are ignored, because the user gives others.
    """

    def __init__(self, overruled: Collection[SourcePartition] = ()) -> None:
        self._overruled = overruled
        # One record counts per (topic partition, key): fields of records that compaction would remove are not checked.
        self._newest: dict[tuple[int, bytes | None], _Claims] = {}
        self._decoded: dict[tuple[int, bytes | None], tuple[LogRecord, Position | None]] = {}

    def take(self, record: LogRecord) -> None:
        """
        Takes the next record in log order of its partition.

        Raises:
            StateError: It goes back.
        """
        key, claims = (record.partition, record.key), _claims(record)
        before = self._newest.get(key)
        if before is None or record.value is None or _supersedes(claims, before):
            if before is not None and _goes_back(before, claims):
                _refuse(before.record, record, self._overruled)
            self._newest[key] = claims

    def valid(self) -> Mapping[SourcePartition, Position]:
        """
        Returns the valid position of every source partition.

        Raises:
            StateError: A record is corrupt, or of an unknown version.
        """
        valid: dict[SourcePartition, Position] = {}
        for key, (record, *_) in self._newest.items():
            known = self._decoded.get(key)
            if known is None or known[0] is not record:
                known = self._decoded[key] = record, self._position(record)
            position = known[1]
            if position is None:
                continue
            best = valid.get(position.source)
            if best is None or _rank(position) > _rank(best):
                valid[position.source] = position
        return valid

    def _position(self, record: LogRecord) -> Position | None:
        """Returns the position of a record; None if it has none that counts."""
        source = decode_key(record.key, where=record.where)
        if isinstance(source, int) or record.value is None or source in self._overruled:
            return None
        return decode_position(source, record.value, where=record.where)


def valid_positions(
    records: Iterable[LogRecord], *, overruled: Collection[SourcePartition] = ()
) -> Mapping[SourcePartition, Position]:
    """
    Returns the valid position of every source partition.

    Args:
        records: The positions topic, in log order within each of its partitions.
        overruled: Partitions whose positions are ignored, because the user gives others.

    Raises:
        StateError: A record is corrupt, of an unknown version, or goes back; the link must not start from a guess.
    """
    selection = PositionSelection(overruled)
    for record in records:
        selection.take(record)
    return selection.valid()


def _rank(position: Position) -> tuple[int, int, int, int]:
    # Within a generation a partition has one lane; only a first position, of epoch 0, may be in another log partition.
    return position.generation, position.epoch, position.attempt, position.txn


def _claims(record: LogRecord) -> _Claims:
    """Reads only fields of the value itself: a nested field of a newer release may have the same name."""
    try:
        body = orjson.loads(record.value or b"null")
    except orjson.JSONDecodeError:
        body = None
    fields = body if isinstance(body, dict) else {}
    return _Claims(record, *(_whole(fields.get(name)) for name in ("generation", "offset", "epoch")))


def _whole(value: Any) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _supersedes(record: _Claims, before: _Claims) -> bool:
    """Compares generations; a value without one counts as the newest, so that decoding refuses it."""
    return record.generation is None or record.generation >= (before.generation or 0)


def _goes_back(before: _Claims, record: _Claims) -> bool:
    if before.offset is None or record.offset is None or record.offset >= before.offset:
        return False
    # A position that was set before the lane ran, such as an adopted one, is of epoch 0.
    return record.epoch is not None and record.epoch > 0 and record.generation == before.generation


def _refuse(before: LogRecord, record: LogRecord, overruled: Collection[SourcePartition]) -> None:
    source = decode_key(record.key, where=record.where)
    if source in overruled:
        return
    raise StateError(
        f"{record.where}: the position of {source} goes back behind the one at {before.where}; no lane writes such "
        "a record, so another tool restored or copied it",
        fix=f"find out who writes to this topic, then set the mirror's position: --resume-at {source}=OFFSET",
    )
