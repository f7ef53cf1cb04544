"""
Tells how near the source's retention is to the records that are not mirrored yet. Pure.

A lane that meets deleted records stops its topic.  Retention does not wait for a mirror, so what is left of it must be
known before, above all while no mirror runs.

* ``retention.ms``: a broker may delete a record once it is older.  Share: age of the oldest record that is not
  mirrored, of this time.
* ``retention.bytes``: the size of a log is not known here.  A log that begins at 0 was never cut.  Of another one each
  new record displaces an old one.  Share: offsets that are not mirrored, of all offsets of the log.

Brokers delete whole segments, so a record may stay longer than this, and never shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.status.model import RetentionStatus
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.status.model import PartitionStatus

__all__ = [
    "MOST_TOPICS",
    "RETENTION_FIX",
    "RetentionLimits",
    "retention_risk",
    "retention_rows",
    "retention_text",
    "risky_rows",
    "waiting_topics",
]

#: From this share on, records are about to be lost.
RETENTION_RISK = 0.8
#: Recommended action.
RETENTION_FIX = "have the mirror catch up, or raise the retention of the source topic until it has"
#: Topics whose retention a status looks at, those with the oldest records.
MOST_TOPICS = 500
# what waits for less is on its way
_WAITING_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """
    Limits after which the source deletes records of a topic.

    Attributes:
        seconds: ``retention.ms``, in seconds; None for no limit.
        by_size: True if ``retention.bytes`` limits it.
    """

    seconds: float | None
    by_size: bool

    @classmethod
    def of(cls, values: Mapping[str, str | None]) -> RetentionLimits:
        """Returns the limits from settings of a topic; without ``delete`` in its cleanup policy there are none."""
        if "delete" not in (values.get("cleanup.policy") or ""):
            return cls(None, by_size=False)
        milliseconds, size = (int(values.get(name) or -1) for name in ("retention.ms", "retention.bytes"))
        return cls(milliseconds / 1000 if milliseconds >= 0 else None, by_size=size >= 0)


def waiting_topics(partitions: Iterable[PartitionStatus]) -> list[str]:
    """Returns the topics with records that have waited for a minute or for an unknown time, at most `MOST_TOPICS`."""
    ages: dict[str, float] = {}
    for item in partitions:
        if _waits(item):
            ages[item.topic] = max(ages.get(item.topic, 0.0), item.lag_seconds or 0.0)
    return sorted(ages, key=lambda topic: (-ages[topic], topic))[:MOST_TOPICS]


def retention_rows(
    partitions: Iterable[PartitionStatus],
    starts: Mapping[SourcePartition, int],
    limits: Mapping[str, RetentionLimits],
) -> tuple[RetentionStatus, ...]:
    """
    Returns what is left of retention for each topic that waits, the largest share first.

    Args:
        partitions: Partitions of the link.
        starts: First offset of each source partition.
        limits: Limits of the topics that wait, as far as known.
    """
    worst: dict[str, RetentionStatus] = {}
    for item in partitions:
        limit = limits.get(item.topic)
        if limit is None or not _waits(item):
            continue
        row = _row(item, starts.get(SourcePartition(item.topic, item.partition), 0), limit)
        if row is not None and (item.topic not in worst or _order(row) < _order(worst[item.topic])):
            worst[item.topic] = row
    return tuple(sorted(worst.values(), key=_order))


def risky_rows(rows: Iterable[RetentionStatus]) -> list[RetentionStatus]:
    """Returns the rows of `retention_rows` whose records are about to be lost."""
    return [row for row in rows if row.used >= RETENTION_RISK]


def retention_risk(rows: Iterable[RetentionStatus]) -> str:
    """Returns the nearest loss, with the number of others, one line; empty if no record is about to be lost."""
    near = risky_rows(rows)
    if not near:
        return ""
    return retention_text(near[0]) + (f" (and {len(near) - 1} more)" if len(near) > 1 else "")


def retention_text(row: RetentionStatus) -> str:
    """Returns what a row of `retention_rows` means, one line."""
    left = row.left_seconds
    if row.used >= 1:
        when = "at any time"
    elif row.setting == "retention.ms" and left is not None:
        when = f"in {_duration(left)}"
    else:
        when = f"once its log has grown by {1 - row.used:.0%}"
    where = f"{row.topic}-{row.partition}"
    return f"{where}: the source may delete records that are not mirrored, {when} ({row.setting})"


def _duration(seconds: float) -> str:
    minutes = int(seconds // 60)
    hours, rest = divmod(minutes, 60)
    if hours >= 48:  # noqa: PLR2004  two days
        return f"{hours // 24} d {hours % 24} h"
    if hours:
        return f"{hours} h {rest} min"
    return f"{minutes} min" if minutes else f"{int(seconds)} s"


def _waits(item: PartitionStatus) -> bool:
    if item.parked or not item.lag_records:
        return False
    return item.lag_seconds is None or item.lag_seconds >= _WAITING_SECONDS


def _row(item: PartitionStatus, start: int, limit: RetentionLimits) -> RetentionStatus | None:
    shares: list[tuple[float, str]] = []
    left: float | None = None
    if limit.seconds is not None and item.lag_seconds is not None:
        left = limit.seconds - item.lag_seconds
        shares.append((item.lag_seconds / limit.seconds if limit.seconds else 1.0, "retention.ms"))
    if limit.by_size and item.source_lso is not None and 0 < start < item.source_lso:
        shares.append(((item.source_lso - item.position) / (item.source_lso - start), "retention.bytes"))
    if not shares:
        return None
    used, setting = max(shares)
    return RetentionStatus(
        topic=item.topic,
        partition=item.partition,
        used=round(min(1.0, used), 4),
        left_seconds=None if left is None else max(0.0, left),
        setting=setting,
    )


def _order(row: RetentionStatus) -> tuple[float, float, str, int]:
    left = row.left_seconds
    return -row.used, float("inf") if left is None else left, row.topic, row.partition
