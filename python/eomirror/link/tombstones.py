"""
Warns, when a link is taken, of compacted source topics that may have dropped tombstones since (EO-6).

A compacted topic forgets a deleted key for good ``delete.retention.ms`` after its tombstone was cleaned.  A mirror that
resumes later never sees the deletion, and the copy keeps the key.  The log shows a hole, as after any compaction, so
this is not a gap, and a warning is all that is possible.  https://kafka.apache.org/documentation/#compaction
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import MirrorError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.lane.spec import AssignedPartition
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["MissedTombstones", "missed_tombstones", "warn_of_lost_deletions"]


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


# Tombstones live longer than this in practice, and a mirror that was just restarted need not ask.
_LEAST_AGE_MS = 60_000

log = structlog.get_logger(__name__)


def warn_of_lost_deletions(
    link: str,
    source: ClusterAdmin,
    partitions: Iterable[AssignedPartition],
    positions: Mapping[SourcePartition, Position],
    now_ms: int,
) -> None:
    """
    Logs a warning for each topic whose position is older than delete.retention.ms; never fails.

    Args:
        partitions: Partitions that the link mirrors.
        positions: Positions of the link.
        now_ms: Wall clock; positions may carry the clock of another machine.
    """
    try:
        known = [positions[item.source] for item in partitions if item.source in positions]
        topics = _look(source, known, now_ms)
    except MirrorError as error:
        # A deleted topic or an unreachable cluster: the lane that mirrors it reports the error.
        log.info("deletions_not_checked", link=link, reason=error.message)
        return
    for item in topics:
        log.warning(
            "deletions_may_be_lost",
            link=link,
            topic=item.topic,
            position_age_seconds=round(item.seconds),
            reason=f"the position is older than delete.retention.ms ({item.kept_seconds:g} s): the source may have "
            "forgotten deleted keys that the copy still has",
            fix="compare the final state of each key on both sides; raise delete.retention.ms for longer pauses",
        )


def _look(source: ClusterAdmin, positions: Collection[Position], now_ms: int) -> list[MissedTombstones]:
    old = {position.source: position for position in positions if now_ms - position.timestamp > _LEAST_AGE_MS}
    names = [(item.topic, item.partition) for item in old]
    found = source.offsets(names, at="latest", read_committed=True)
    ends = {item: found[item.topic, item.partition] for item in old}
    kept: dict[str, int] = {}
    behind = sorted({item.topic for item, position in old.items() if position.offset < ends[item]})
    for topic, configs in source.topic_configs(behind).items():
        if "compact" in (configs["cleanup.policy"].value or ""):
            kept[topic] = int(configs["delete.retention.ms"].value or 0)
    young: dict[SourcePartition, int] = {}
    for topic, milliseconds in kept.items():
        of_topic = [name for name in names if name[0] == topic]
        first = source.offsets(of_topic, at=now_ms - milliseconds, read_committed=False)
        young |= {item: first[item.topic, item.partition] for item in old if item.topic == topic}
    return missed_tombstones(old.values(), kept_ms=kept, ends=ends, young_from=young, now_ms=now_ms)
