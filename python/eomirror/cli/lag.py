"""``eomirror lag``: shows the lag of topics or partitions, the largest first."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from eomirror.cli import options
from eomirror.cli.render import (
    human_count,
    human_rate,
    human_seconds,
    print_message,
    print_result,
    print_table,
    stdout_console,
)
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from eomirror.status.lag import LagRow

__all__ = ["lag"]


@click.command(epilog="Example: eomirror lag mirror.yaml --partitions")
@options.config
@options.links
@click.option(
    "--topic", "topics", multiple=True, metavar="TOPIC", help="Only this source topic; may be repeated."
)
@click.option("--top", type=click.IntRange(1), help="Only so many rows, the largest lag first.")
@click.option("--partitions", is_flag=True, help="One row for each partition, not for each topic.")
@options.overrides
@options.output()
def lag(
    config: str,
    links: tuple[str, ...],
    topics: tuple[str, ...],
    top: int | None,
    partitions: bool,
    overrides: tuple[str, ...],
    output: str | None,
) -> int:
    """
    Show the lag of each topic in records and seconds, unknown and largest first.

    Reads the target's eomirror topics and the source's end offsets; needs no running mirror. A dash means unknown: the
    source does not answer, or a problem is shown instead.

    Exit codes: 0 done; 1 a link is unknown.
    """
    from eomirror.config import load_config
    from eomirror.status.lag import lag_rows
    from eomirror.status.link_readers import LinkReaders

    with LinkReaders(load_config(config, overrides=overrides), links) as readers:
        found = readers.read(strict=True)
    rows = lag_rows(found, partitions=partitions, topics=topics)
    missing = sorted(set(topics) - {row.topic for row in rows})
    # a link that cannot be read may mirror it
    if missing and not any(item.unread for item in found):
        raise UsageError(
            f"--topic {missing[0]}: no link mirrors it", fix="give the name that the topic has on the source"
        )
    rows = rows[:top]
    print_result(output, {"lag": [asdict(row) for row in rows]}, lambda: _draw(rows, partitions=partitions))
    for item in found:
        if item.problem:
            print_message(f"{item.link}: {item.problem}")
    return int(any(item.unread for item in found))


def _draw(rows: list[LagRow], *, partitions: bool) -> None:
    console = stdout_console()
    if not rows:
        console.print("no topic is mirrored yet", style="dim")
    held = any(row.open_records for row in rows)
    print_table(
        console,
        [
            {
                "LINK": row.link,
                "TOPIC": row.topic,
                **({"P": row.partition} if partitions else {}),
                "LAG": human_count(row.lag_records),
                "LAG s": human_seconds(row.lag_seconds),
                **({"BEHIND OPEN": human_count(row.open_records)} if held else {}),
                "RATE": human_rate(row.rate),
                "STATE": row.state,
            }
            for row in rows
        ],
        right=("P", "LAG", "LAG s", "BEHIND OPEN", "RATE"),
        optional=("RATE",),
    )
