"""``eomirror lag`` and ``top``: show the lag of topics, largest first, once or redrawn below the verdicts of links."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.render import (
    human_count,
    human_rate,
    human_seconds,
    print_message,
    print_table,
    verdict_lines,
)
from eomirror.cli.watch import View, judge, watched
from eomirror.errors import UsageError
from eomirror.log import is_dumb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from eomirror.metrics.verdict import Verdict
    from eomirror.status.lag import LagRow
    from eomirror.status.model import LinkStatus

__all__ = ["lag", "top"]


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

    def view(found: list[LinkStatus]) -> View:
        rows = lag_rows(found, partitions=partitions, topics=topics)
        missing = sorted(set(topics) - {row.topic for row in rows})
        # a link that cannot be read may mirror it
        if missing and not any(item.unread for item in found):
            raise UsageError(
                f"--topic {missing[0]}: no link mirrors it",
                fix="give the name that the topic has on the source",
            )
        rows = rows[:top]
        return View(body=lambda: {"lag": [asdict(row) for row in rows]}, draw=_draw_lag, rows=rows)

    found = watched(load_config(config, overrides=overrides), links, view, output, sinks=not links)
    for item in found:
        if item.problem:
            print_message(f"{item.link}: {item.problem}")
    return int(any(item.unread for item in found))


@click.command(epilog="Example: eomirror top mirror.yaml")
@options.config
@options.links
@options.overrides
@options.output()
def top(config: str, links: tuple[str, ...], overrides: tuple[str, ...], output: str | None) -> int:
    """
    Watch links and the topics that lag most, until q or Ctrl-C.

    Arrows, Page Up, Page Down, Home and End move through the topics.

    Each link has one verdict (ok, behind, stalled, stopped, down, starting, source away and so on, as in
    docs/monitor.md), by the trend of the last minute, and what a failover would lose. Reads the target's topics and the
    source's end offsets; needs no running mirror. Without a terminal, or with -o, prints one look and ends.

    Exit codes: 0 done, or ended by q; 1 a link is unknown; 130 interrupted.
    """
    from eomirror.config import load_config
    from eomirror.status.lag import lag_rows

    loaded = load_config(config, overrides=overrides)
    verdict_of = judge(loaded)

    def view(found: list[LinkStatus]) -> View:
        judged = [(item, verdict_of(item)) for item in found]
        rows = lag_rows(found, partitions=False)

        def draw(console: Console, shown: Sequence[LagRow]) -> None:
            for item, verdict in judged:
                for line in verdict_lines(item, verdict):
                    console.print(line)
            _draw_lag(console, shown, optional=("RATE", "LINK"))

        return View(body=lambda: _body(judged, rows), draw=draw, rows=rows)

    watch = output is None and not is_dumb(sys.stdout)
    found = watched(loaded, links, view, output, watch=watch, strict=False, sinks=not links)
    return int(any(item.unread for item in found))


def _body(judged: list[tuple[LinkStatus, Verdict]], rows: list[LagRow]) -> dict[str, Any]:
    from eomirror.clock import utc

    return {
        "links": [
            {
                "link": item.link,
                "state": item.state,
                "verdict": verdict.word,
                "since": None if verdict.since_ms is None else utc(verdict.since_ms),
                "reason": verdict.text,
                "fix": verdict.fix,
                "failover": verdict.failover,
                "lag_records": item.lag_records,
                "lag_seconds": item.lag_seconds,
                "records_per_second": item.rate,
            }
            for item, verdict in judged
        ],
        "topics": [asdict(row) for row in rows],
    }


def _draw_lag(console: Console, rows: Sequence[LagRow], *, optional: Sequence[str] = ("RATE",)) -> None:
    """Draws the lag of topics or partitions."""
    if not rows:
        console.print("no topic is mirrored yet", style="dim")
    held = any(row.open_records for row in rows)
    partitions = any(row.partition is not None for row in rows)
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
        optional=optional,
    )
