"""Output of results: a table for people, JSON or YAML for programs, from the same values."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click
import orjson

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from rich.console import Console

    from eomirror.metrics.verdict import Verdict
    from eomirror.screen import FittedTable
    from eomirror.status.model import LinkStatus

__all__ = [
    "escape",
    "human_bytes",
    "human_count",
    "human_rate",
    "human_seconds",
    "human_things",
    "lag_text",
    "print_message",
    "print_result",
    "print_structured",
    "print_table",
    "stdout_console",
    "table",
    "verdict_lines",
    "wants_table",
]

# wider than any line
_NO_TERMINAL = 100_000


def escape(text: str) -> str:
    """Returns a text in which a console finds no markup."""
    from rich.markup import escape as escaped

    return escaped(text)


def wants_table(output: str | None) -> bool:
    """Returns True to draw a table: ``output`` asks for it, or is None and stdout is a terminal."""
    return output == "table" or (output is None and sys.stdout.isatty())


def print_structured(value: Any, output: str | None) -> None:
    """Writes ``value`` to stdout, as YAML or as indented JSON with the same values."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str)
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(orjson.loads(text), sort_keys=False, allow_unicode=True), nl=False)
        return
    click.echo(text)


def print_result(output: str | None, value: Any, draw: Callable[[], None]) -> None:
    """Writes a result to stdout: draws a table for people, or writes ``value``, or what it returns, for programs."""
    if wants_table(output):
        draw()
    else:
        print_structured(value() if callable(value) else value, output)


def print_message(text: str) -> None:
    """Writes a line to stderr, for people; ignores a stderr that cannot be written."""
    from eomirror.log import print_line

    print_line(text)


def stdout_console() -> Console:
    """
    Returns a console for tables and lines on stdout.

    Lines are cut to the width of a terminal only: in a file or a pipe a row stays one line, so that it can be searched.
    """
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _NO_TERMINAL)


def table(
    columns: Sequence[str],
    rows: Sequence[Mapping[str, Any]],
    *,
    right: Sequence[str] = (),
    whole: Sequence[str] = (),
    optional: Sequence[str] = (),
    words: Sequence[str] = (),
) -> FittedTable:
    """Returns a table that fits the terminal; see `eomirror.screen`."""
    from eomirror.screen import FittedTable

    return FittedTable(columns, rows, right=right, whole=whole, optional=optional, words=words)


def print_table(console: Console, rows: Sequence[Mapping[str, Any]], **fitted: Sequence[str]) -> None:
    """Draws rows under the columns of the first; draws nothing without rows.  ``fitted`` as in `table`."""
    if rows:
        console.print(table(list(rows[0]), rows, **fitted))


def human_count(number: float | None) -> str:
    """Returns a count with thousands separators; a dash for None."""
    return "-" if number is None else f"{number:,.0f}"


def lag_text(item: LinkStatus) -> str:
    """
    Returns the lag of a link in records and seconds; for one that has ended, that there is none.

    The lag counts to the last stable offsets, and a failover loses what stands behind them as well.
    """
    if item.ended:
        return "no lag: it no longer mirrors"
    text = f"lag {human_count(item.lag_records)} records, {human_seconds(item.lag_seconds)}"
    held = sum(one.open_records or 0 for one in item.partitions if not one.parked)
    return text + (f", and {human_things(held, 'offset')} behind open transactions" if held else "")


_COLOURS = {
    "ok": "green", "promoted": "green", "handed back": "green", "paused": "yellow", "starting": "yellow",
    "behind": "yellow",
}  # fmt: skip


def verdict_lines(item: LinkStatus, verdict: Verdict) -> list[str]:
    """Returns the verdict on a link with since when, its lag and what a failover would lose, and the fix, as markup."""
    from eomirror.clock import utc
    from eomirror.log import printable

    def line(text: str) -> str:
        return escape(printable(text).replace("\n", " "))

    colour = _COLOURS.get(verdict.word, "red")
    since = "" if verdict.since_ms is None else f" since {utc(verdict.since_ms)}"
    lines = [
        f"[bold]{escape(item.link)}[/bold]  [{colour}]{verdict.word.upper()}[/{colour}]{since}  {line(verdict.text)}",
        f"[dim]  {lag_text(item)}  {human_rate(item.rate)}  failover: {line(verdict.failover)}[/dim]",
    ]
    return [*lines, f"  fix: {line(verdict.fix)}"] if verdict.fix else lines


def human_things(number: int, thing: str) -> str:
    """Returns a count with its noun: ``1 group``, ``2 groups``."""
    return f"{human_count(number)} {thing}{'' if number == 1 else 's'}"


def human_rate(number: float | None) -> str:
    """Returns a rate per second, such as ``1.5k/s``; a dash for None."""
    if number is None:
        return "-"
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f}{unit}/s"
    return f"{number:.0f}/s"


def human_bytes(number: float) -> str:
    """Returns a size in B, kB, MB or GB (powers of ten)."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"


_MINUTE = 60


def human_seconds(seconds: float | None) -> str:
    """Returns a duration, such as ``2 min 5 s``; a dash for None."""
    if seconds is None:
        return "-"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    return (
        f"{minutes} min {rest} s" if minutes < _MINUTE else f"{minutes // _MINUTE} h {minutes % _MINUTE} min"
    )
