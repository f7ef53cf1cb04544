"""``eomirror events``: shows the timeline of links from their topics."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from eomirror.cli import options
from eomirror.cli.render import print_message, print_table
from eomirror.cli.watch import View, watched
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from rich.console import Console

    from eomirror.status.model import LinkStatus

__all__ = ["events"]


@click.command(epilog="Example: eomirror events mirror.yaml --since 1h")
@options.config
@options.links
@click.option("--since", metavar="DURATION", help="Only events of the last 10m, 24h or the like.")
@options.overrides
@options.output()
def events(
    config: str, links: tuple[str, ...], since: str | None, overrides: tuple[str, ...], output: str | None
) -> int:
    """
    Show what happened to each link: owners, starts of lanes, stopped topics, gaps, pauses, promotions, comparisons.

    Reads the link's control and positions topics on the target; needs no running mirror. Owners, take-overs, outages,
    stops, pauses, generations and what failover did are kept for at least 7 days, or the newest 1,000 of them; of
    restarts, comparisons and starts of lanes only the last of each lane and topic is left.

    Exit codes: 0 done; 1 a link is unknown.
    """
    from eomirror.clock import SYSTEM_CLOCK, utc
    from eomirror.config import load_config

    begin = 0 if since is None else SYSTEM_CLOCK.wall_ms() - _milliseconds(since)

    def view(found: list[LinkStatus]) -> View:
        rows = [
            {"link": item.link, "time": utc(event.at), **asdict(event)}
            for item in found
            for event in item.events
            if event.at >= begin
        ]
        rows.sort(key=lambda row: row["at"])
        return View(body=lambda: {"events": rows}, draw=_draw, rows=rows)

    found = watched(load_config(config, overrides=overrides), links, view, output)
    for item in found:
        if item.unread:
            print_message(f"{item.link}: {item.problem}")
    return int(any(item.unread for item in found))


def _milliseconds(text: str) -> int:
    from eomirror.config.values import seconds_of

    seconds = seconds_of(text)
    if seconds is None:
        raise UsageError(f"--since {text}: not a duration", fix="use a duration such as 30s, 5m, 1h")
    return round(seconds * 1000)


def _draw(console: Console, rows: Sequence[dict[str, Any]]) -> None:
    from eomirror.log import printable

    if not rows:
        console.print("no events", style="dim")
    print_table(
        console,
        [
            {
                "TIME": row["time"],
                "LINK": row["link"],
                "EVENT": row["kind"],
                "TEXT": printable(row["text"]).replace("\n", " "),
            }
            for row in rows
        ],
        words=("TEXT",),
    )
