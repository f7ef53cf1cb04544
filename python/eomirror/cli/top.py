"""``eomirror top``: redraws links with their verdicts, and the topics that lag most."""

from __future__ import annotations

import io
import sys
from contextlib import ExitStack
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli import options
from eomirror.cli.keys import Keys, scrolled
from eomirror.cli.render import (
    human_count,
    human_rate,
    human_seconds,
    print_structured,
    print_table,
    stdout_console,
    verdict_lines,
    wants_table,
)

if TYPE_CHECKING:
    from rich.console import Console

    from eomirror.metrics.verdict import Verdict
    from eomirror.status.lag import LagRow
    from eomirror.status.model import LinkStatus

__all__ = ["top"]

_REDRAW_SECONDS = 2.0
# rows of the terminal that the links and the heads take, at least
_HEAD_ROWS = 8
_FEWEST_TOPICS = 5

Judged = list[tuple["LinkStatus", "Verdict"]]


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
    from rich.text import Text

    from eomirror.clock import SYSTEM_CLOCK, Deadline
    from eomirror.config import load_config
    from eomirror.metrics.verdict import Window
    from eomirror.screen import LiveFrame
    from eomirror.status.lag import lag_rows
    from eomirror.status.link_readers import LinkReaders
    from eomirror.status.live import LinkFacts, LinkView

    loaded = load_config(config, overrides=overrides)
    facts = {link.name: LinkFacts.of(link) for link in loaded.links}
    windows = {name: Window() for name in facts}
    frame, first = LiveFrame(sys.stdout, stays=True), 0
    with LinkReaders(loaded, links) as readers, ExitStack() as stack:
        try:
            if output is None and wants_table(output):
                frame.__enter__()
                keys = stack.enter_context(Keys())
            while True:
                found = readers.read()
                now = SYSTEM_CLOCK.monotonic()
                wall_ms = SYSTEM_CLOCK.wall_ms()
                judged = [
                    (
                        item,
                        windows[item.link].judge(LinkView(facts=facts[item.link], status=item), now, wall_ms),
                    )
                    for item in found
                ]
                rows = lag_rows(found, partitions=False)
                if frame.live:
                    until = Deadline(_REDRAW_SECONDS, SYSTEM_CLOCK)
                    while not until.passed:
                        columns, height = frame.size
                        heads = sum(3 if verdict.fix else 2 for _, verdict in judged)
                        most = max(_FEWEST_TOPICS, height - _HEAD_ROWS - heads)
                        first = scrolled(first, "", rows=len(rows), shown=most)
                        frame.draw(
                            Text.from_ansi(_drawn(judged, rows[first : first + most], columns=columns))
                        )
                        key = keys.wait(until.remaining())
                        if key == "quit":
                            return 0
                        first = scrolled(first, key, rows=len(rows), shown=most)
                    continue
                if wants_table(output):
                    _draw(judged, rows, stdout_console())
                else:
                    print_structured(_body(judged, rows), output)
                return int(any(item.unread for item in found))
        finally:
            frame.__exit__()


def _body(judged: Judged, rows: list[LagRow]) -> dict[str, Any]:
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


def _drawn(judged: Judged, rows: list[LagRow], *, columns: int) -> str:
    """Returns the tables as text, with colours."""
    from rich.console import Console

    console = Console(file=io.StringIO(), width=columns, force_terminal=True, highlight=False)
    with console.capture() as captured:
        _draw(judged, rows, console)
    return captured.get()


def _draw(judged: Judged, rows: list[LagRow], console: Console) -> None:
    for item, verdict in judged:
        for line in verdict_lines(item, verdict):
            console.print(line)
    held = any(row.open_records for row in rows)
    print_table(
        console,
        [
            {
                "LINK": row.link,
                "TOPIC": row.topic,
                "LAG": human_count(row.lag_records),
                "LAG s": human_seconds(row.lag_seconds),
                **({"BEHIND OPEN": human_count(row.open_records)} if held else {}),
                "RATE": human_rate(row.rate),
                "STATE": row.state,
            }
            for row in rows
        ],
        right=("LAG", "LAG s", "BEHIND OPEN", "RATE"),
        optional=("RATE", "LINK"),
    )
