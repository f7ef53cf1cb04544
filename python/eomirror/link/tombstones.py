"""
Finds positions older than delete.retention.ms, where deletions may have been missed (EO-6). Pure.

A compacted topic forgets a deleted key for good ``delete.retention.ms`` after its tombstone was cleaned.  A mirror that
resumes later never sees the deletion, and the copy keeps the key.  The log shows a hole, as after any compaction, so
this is not a gap, and a warning is all that is possible.  https://kafka.apache.org/documentation/#compaction
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["MissedTombstones", "missed_tombstones"]


@dataclass(frozen=True, slots=True)
class MissedTombstones:
    """
    A topic that may have dropped tombstones since its position was written.

    Attributes:
        topic: Source topic.
        seconds: Age of its oldest position that lags.
        kept_seconds: Its delete.retention.ms in seconds.
    """

    topic: str
    seconds: float
    kept_seconds: float


def missed_tombstones(
    positions: Iterable[Position],
    *,
    kept_ms: Mapping[str, int],
    ends: Mapping[SourcePartition, int],
    young_from: Mapping[SourcePartition, int],
    now_ms: int,
) -> list[MissedTombstones]:
    """
    Returns the topics whose tombstones may have been dropped.

    A partition is safe if it has no new records, or if no record after its position is older than delete.retention.ms.

    Args:
        positions: Positions of the partitions to check.
        kept_ms: ``delete.retention.ms`` of compacted topics; others are not compacted.
        ends: Log ends of partitions.
        young_from: Offset of the first record younger than its topic's delete.retention.ms; -1 if there is none.
        now_ms: Wall clock.
    """
    found: dict[str, MissedTombstones] = {}
    for position in positions:
        kept = kept_ms.get(position.topic)
        age = now_ms - position.timestamp
        if kept is None or age <= kept or position.offset >= ends.get(position.source, 0):
            continue
        if 0 <= young_from.get(position.source, -1) <= position.offset:
            continue
        before = found.get(position.topic)
        seconds = max(age / 1000, before.seconds if before is not None else 0.0)
        found[position.topic] = MissedTombstones(position.topic, seconds, kept / 1000)
    return [found[topic] for topic in sorted(found)]
