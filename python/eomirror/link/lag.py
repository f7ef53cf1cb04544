"""Lag of topics and partitions, as commands and pages list it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.link.status import LinkStatus, PartitionStatus

__all__ = ["LagRow", "lag_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRow:
    """
    Lag of a topic or of a partition.

    Attributes:
        partition: Number of the partition; None for the whole topic.
        lag_records: Offsets between position and last stable offset; None if unknown.
        lag_seconds: Age of the oldest record that is not mirrored; None if unknown.
        rate: Mirrored records per second.
        records: Records mirrored since the link first ran; 0 if unknown.
        state: ``ok``, ``behind``, ``stopped``, ``problem`` or ``unknown``.
        problem: Reason; empty without one.
        fix: Recommended action.
    """

    link: str
    topic: str
    partition: int | None
    lag_records: int | None
    lag_seconds: float | None
    rate: float
    records: int
    state: str
    problem: str = ""
    fix: str = ""


def lag_rows(found: Iterable[LinkStatus], *, partitions: bool) -> list[LagRow]:
    """
    Returns the lag of mirrored topics or partitions, unknown and largest first.

    Args:
        found: Status of links.
        partitions: Return a row for each partition, not for each topic.
    """
    rows: list[LagRow] = []
    for item in found:
        parts: dict[tuple[str, int | None], list[PartitionStatus]] = {}
        for one in item.partitions:
            if not one.parked or one.problem:
                parts.setdefault((one.topic, one.partition if partitions else None), []).append(one)
        rows += [_row(item.link, topic, number, some) for (topic, number), some in parts.items()]
    rows.sort(key=lambda row: (-_order(row.lag_records), -_order(row.lag_seconds), row.link, row.topic))
    return rows


def _order(value: float | None) -> float:
    return float("inf") if value is None else value


def _row(link: str, topic: str, number: int | None, some: list[PartitionStatus]) -> LagRow:
    records = [one.lag_records for one in some]
    seconds = [one.lag_seconds for one in some]
    total = None if None in records else sum(filter(None, records))
    troubled = next((one for one in some if one.problem), None)
    if any(one.stopped for one in some):
        state = "stopped"
    elif troubled is not None:
        state = "problem"
    else:
        state = "unknown" if total is None else "behind" if total else "ok"
    return LagRow(
        link=link,
        topic=topic,
        partition=number,
        lag_records=total,
        lag_seconds=None if None in seconds else max(filter(None, seconds), default=0.0),
        rate=sum(one.rate for one in some),
        records=sum(one.records for one in some),
        state=state,
        problem="" if troubled is None else troubled.problem,
        fix="" if troubled is None else troubled.fix,
    )
