"""Lag of topics and partitions, as commands and pages list it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from eomirror.status.model import LinkStatus, PartitionStatus

__all__ = ["LagRow", "lag_rows", "topic_state", "total_lag"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRow:
    """
    Lag of a topic or of a partition.

    Attributes:
        partition: Number of the partition; None for the whole topic.
        lag_records: Offsets between position and last stable offset; None if unknown, or if the link has ended.
        lag_seconds: Age of the oldest record that is not mirrored; None if unknown, or if the link has ended.
        rate: Mirrored records per second.
        records: Records mirrored since the link first ran; 0 if unknown.
        target_topic: Copy.
        partitions: Number of partitions.
        state: See `topic_state`; of a link that has ended, ``promoted`` or ``handed back``.
        problem: Reason; empty without one.
        fix: Recommended action.
        open_records: Offsets behind the last stable offset, which open transactions of the source hold back; None if
            unknown, or if the link has ended.
    """

    link: str
    topic: str
    partition: int | None
    target_topic: str
    partitions: int
    lag_records: int | None
    lag_seconds: float | None
    rate: float
    records: int
    state: str
    problem: str = ""
    fix: str = ""
    open_records: int | None = None


def lag_rows(
    found: Iterable[LinkStatus], *, partitions: bool, topics: Collection[str] = (), parked: bool = False
) -> list[LagRow]:
    """
    Returns the lag of mirrored topics or partitions, unknown and largest first, links that have ended last.

    Args:
        found: Status of links.
        partitions: Return a row for each partition, not for each topic.
        topics: Only these topics; empty for all.
        parked: Return those that the link does not mirror any more, too.
    """
    rows: list[LagRow] = []
    ended: set[str] = set()
    for item in found:
        parts: dict[tuple[str, int | None], list[PartitionStatus]] = {}
        for one in item.partitions:
            if (parked or not one.parked or one.problem) and (not topics or one.topic in topics):
                parts.setdefault((one.topic, one.partition if partitions else None), []).append(one)
        rows += [_row(item, topic, number, some) for (topic, number), some in parts.items()]
        if item.ended:
            ended.add(item.link)
    rows.sort(
        key=lambda row: (
            row.link in ended, -_order(row.lag_records), -_order(row.lag_seconds), row.link, row.topic,
        )
    )  # fmt: skip
    return rows


def topic_state(partitions: Sequence[PartitionStatus]) -> str:
    """
    Returns the state of a topic, or of one partition.

    ``gone`` (the source has it no more), ``stopped``, ``problem`` (nothing stops it, but it cannot go on), ``parked``,
    ``paused``, ``unknown`` (its lag is) or ``ok``.  Records that wait are no state: the verdict of the link tells if
    they become more.
    """
    there = [one for one in partitions if not one.gone]
    if not there:
        return "gone"
    # lists are faster for the one partition that most topics have
    if any([one.stopped for one in there]):  # noqa: C419
        return "stopped"
    if any([one.problem for one in there]):  # noqa: C419
        return "problem"
    if all([one.parked for one in there]):  # noqa: C419
        return "parked"
    if all([one.paused for one in there]):  # noqa: C419
        return "paused"
    return "unknown" if any([one.lag_records is None for one in there]) else "ok"  # noqa: C419


def total_lag(partitions: Iterable[PartitionStatus]) -> tuple[int | None, float | None]:
    """
    Returns the lag of partitions together, in records and in seconds.

    Each is None if that of one partition is unknown.
    """
    records: int | None = 0
    seconds: float | None = 0.0
    # one plain pass: a scrape of thousands of topics spends its time here
    for one in partitions:
        if one.lag_records is None:
            records = None
        elif records is not None:
            records += one.lag_records
        if one.lag_seconds is None:
            seconds = None
        elif seconds is not None and one.lag_seconds > seconds:
            seconds = one.lag_seconds
    return records, seconds


def _order(value: float | None) -> float:
    return float("inf") if value is None else value


def _row(link: LinkStatus, topic: str, number: int | None, some: list[PartitionStatus]) -> LagRow:
    # what the link back of a promoted link writes would look like a lag that grows
    total, seconds = (None, None) if link.ended else total_lag(some)
    troubled = next((one for one in some if one.problem), None)
    return LagRow(
        link=link.link,
        topic=topic,
        partition=number,
        target_topic=some[0].target_topic,
        partitions=len(some),
        lag_records=total,
        lag_seconds=seconds,
        rate=sum([one.rate for one in some]),
        records=sum([one.records for one in some]),
        state=link.state if link.ended else topic_state(some),
        problem="" if troubled is None else troubled.problem,
        fix="" if troubled is None else troubled.fix,
        open_records=None
        if link.ended or any([one.open_records is None for one in some])  # noqa: C419  as above
        else sum([one.open_records or 0 for one in some]),
    )
