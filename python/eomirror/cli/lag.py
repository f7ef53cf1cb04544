"""``eomirror lag``: shows the lag of topics or partitions, the largest first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click

from eomirror.cli import options
from eomirror.cli.link_readers import UNKNOWN, LinkReaders
from eomirror.cli.render import (
    human_count,
    human_rate,
    human_seconds,
    print_message,
    print_result,
    print_table,
    stdout_console,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from eomirror.link.status import LinkStatus, PartitionStatus

__all__ = ["LagRow", "lag", "lag_rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LagRow:
    """
    Lag of a topic or of a partition.

    Attributes:
        partition: Number of the partition; None for the whole topic.
        lag_records: Offsets between position and last stable offset; None if unknown.
        lag_seconds: Age of the oldest record that is not mirrored; None if unknown.
        rate: Mirrored records per second.
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
    state: str
    problem: str = ""
    fix: str = ""


@click.command(epilog="Example: eomirror lag mirror.yaml --partitions")
@options.config
@options.links
@click.option("--partitions", is_flag=True, help="One row for each partition, not for each topic.")
@options.overrides
@options.output()
def lag(
    config: str, links: tuple[str, ...], partitions: bool, overrides: tuple[str, ...], output: str | None
) -> int:
    """
    Show the lag of each topic in records and seconds, unknown and largest first.

    Reads the target's eomirror topics and the source's end offsets; needs no running mirror. A dash means unknown: the
    source does not answer, or a problem is shown instead.

    Exit codes: 0 done; 1 a link is unknown.
    """
    from eomirror.config import load_config

    with LinkReaders(load_config(config, overrides=overrides), links) as readers:
        found = readers.read(strict=True)
    rows = lag_rows(found, partitions=partitions)
    print_result(output, {"lag": [asdict(row) for row in rows]}, lambda: _draw(rows, partitions=partitions))
    for item in found:
        if item.problem:
            print_message(f"{item.link}: {item.problem}")
    return int(any(item.state == UNKNOWN for item in found))


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
        state=state,
        problem="" if troubled is None else troubled.problem,
        fix="" if troubled is None else troubled.fix,
    )


def _draw(rows: list[LagRow], *, partitions: bool) -> None:
    console = stdout_console()
    if not rows:
        console.print("no topic is mirrored yet", style="dim")
    print_table(
        console,
        [
            {
                "LINK": row.link,
                "TOPIC": row.topic,
                **({"P": row.partition} if partitions else {}),
                "LAG": human_count(row.lag_records),
                "LAG s": human_seconds(row.lag_seconds),
                "RATE": human_rate(row.rate),
                "STATE": row.state,
            }
            for row in rows
        ],
        right=("P", "LAG", "LAG s", "RATE"),
        optional=("RATE",),
    )
