"""
Which positions are older than tombstones live: pure (rule 6).

A compacted topic forgets a deleted key for good ``delete.retention.ms`` after its tombstone was cleaned.  A mirror that
comes back later is never told of the deletion, and the copy keeps the key.  The log shows a hole, as after any
compaction, so this is no gap: nothing more than a warning can be said.  https://kafka.apache.org/documentation/#compaction
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["Overslept", "overslept"]


@dataclass(frozen=True, slots=True)
class Overslept:
    """
    A topic that may have forgotten deletions since its position was written.

    Attributes:
        topic: On the source.
        seconds: Age of its oldest position that is behind.
        kept_seconds: How long tombstones live there.
    """

    topic: str
    seconds: float
    kept_seconds: float


def overslept(
    positions: Iterable[Position],
    *,
    kept_ms: Mapping[str, int],
    ends: Mapping[SourcePartition, int],
    young_from: Mapping[SourcePartition, int],
    now_ms: int,
) -> list[Overslept]:
    """
    Topics whose tombstones may be gone.

    A partition is sound if it has nothing new, or if nothing after its position is older than tombstones live.

    Args:
        positions: Of the partitions to look at.
        kept_ms: ``delete.retention.ms`` of compacted topics; others are not compacted.
        ends: Where partitions end.
        young_from: Offset of the first record that is younger than its topic's tombstones live; -1 if there is none.
        now_ms: Wall clock.
    """
    found: dict[str, Overslept] = {}
    for position in positions:
        kept = kept_ms.get(position.topic)
        age = now_ms - position.timestamp
        if kept is None or age <= kept or position.offset >= ends.get(position.source, 0):
            continue
        if 0 <= young_from.get(position.source, -1) <= position.offset:
            continue
        before = found.get(position.topic)
        seconds = max(age / 1000, before.seconds if before is not None else 0.0)
        found[position.topic] = Overslept(position.topic, seconds, kept / 1000)
    return [found[topic] for topic in sorted(found)]
