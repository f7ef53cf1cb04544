"""
Output of results: a table for people, JSON or YAML for programs, from the same values.

Numbers are never cut.  If room is short, names lose their middle, because similar names differ at either end; then
optional columns are left out.  Columns of sentences wrap between words.  Without a terminal only names are shortened
that are longer than any topic's; a group id may have thousands of letters.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

import click
import orjson
from rich import box
from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from eomirror.log import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions

    from eomirror.metrics.verdict import Verdict
    from eomirror.status.model import LinkStatus

__all__ = [
    "FittedTable",
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
    "shortened",
    "stdout_console",
    "table",
    "verdict_lines",
    "wants_table",
]

# names are not cut below this width while an optional column is shown
_READABLE = 16
_LEAST = 4
# sentences up to this width do not wrap while an optional column is shown
_SENTENCE = 40
# the longest name of a topic, and some
_LONGEST = 250
# cells of border and padding per column
_EDGES = 2
_ELLIPSIS = "…"


def shortened(text: str, width: int) -> str:
    """Returns text of at most ``width`` cells; longer text loses its middle."""
    if cell_len(text) <= width:
        return text
    if width <= 1:
        return _ELLIPSIS[:width]
    tail = (width - 1) // 2
    end = ""
    for character in reversed(text):
        if cell_len(character + end) > tail:
            break
        end = character + end
    head = width - 1 - cell_len(end)
    return set_cell_size(text, head).rstrip() + _ELLIPSIS + end


class FittedTable:
    """
    Rows under named columns.  Cells are plain text.

    Args:
        right: Columns aligned to the right, which are never cut.
        whole: Further columns that are never cut.
        optional: Columns that may be left out, the first one first.
        words: Columns of sentences, which wrap.
    """

    def __init__(
        self,
        columns: Sequence[str],
        rows: Sequence[Mapping[str, Any]],
        *,
        right: Sequence[str] = (),
        whole: Sequence[str] = (),
        optional: Sequence[str] = (),
        words: Sequence[str] = (),
    ) -> None:
        self._columns = list(columns)
        self._rows = [
            {column: _cell_text(str(row.get(column, "")), column) for column in self._columns} for row in rows
        ]
        self._right = frozenset(right)
        self._whole = self._right | frozenset(whole)
        self._optional = [column for column in optional if column in self._columns]
        self._words = frozenset(words)
        self._natural = {
            column: max(
                [
                    cell_len(column),
                    *(cell_len(line) for row in self._rows for line in row[column].split("\n")),
                ]
            )
            for column in self._columns
        }
        for column in self._natural.keys() - self._whole - self._words:
            self._natural[column] = min(self._natural[column], _LONGEST)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Table]:
        """Draws the table within the console's width; called by rich."""
        del console
        widths = self._fit(options.max_width)
        drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for column, width in widths.items():
            drawn.add_column(
                Text(shortened(column, width)),
                justify="right" if column in self._right else "left",
                width=width,
                overflow="fold",
            )
        for row in self._rows:
            drawn.add_row(*(self._cell(row[column], column, width) for column, width in widths.items()))
        yield drawn

    def _cell(self, text: str, column: str, width: int) -> Text:
        if column in self._words:
            return Text(text)
        return Text("\n".join(shortened(line, width) for line in text.split("\n")))

    def _fit(self, room: int) -> dict[str, int]:
        """Returns the width of each shown column."""
        shown = list(self._columns)
        optional = list(self._optional)
        while True:
            flexible = sorted(self._natural[column] for column in shown if column not in self._whole)
            fixed = sum(self._natural[column] for column in shown if column in self._whole)
            cap = _level(flexible, room - fixed - _EDGES * len(shown))
            sentences = [min(self._natural[column], _SENTENCE) for column in shown if column in self._words]
            if cap >= min(max(_READABLE, *sentences, 0), max(flexible, default=0)) or not optional:
                break
            shown.remove(optional.pop(0))
        cap = max(cap, _LEAST)
        return {
            column: self._natural[column] if column in self._whole else min(self._natural[column], cap)
            for column in shown
        }


def _cell_text(text: str, column: str) -> str:
    """Returns what a cell shows; the id of a group may hold a line feed, and stays on its row."""
    return printable(text.replace("\n", "\\n") if column == "GROUP" else text)


def _level(widths: Sequence[int], room: int) -> int:
    """Returns the largest width to cut columns to, so that all fit in ``room``; ``widths`` ascend."""
    for number, width in enumerate(widths):
        share = room // (len(widths) - number)
        if width > share:
            return share
        room -= width
    return max(widths, default=0)


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
    """Writes a result to stdout: draws a table for people, or writes ``value`` for programs."""
    if wants_table(output):
        draw()
    else:
        print_structured(value, output)


def print_message(text: str) -> None:
    """Writes a line to stderr, for people; ignores a stderr that cannot be written."""
    from eomirror.log import LossyStream, printable

    print(printable(text), file=cast("TextIO", LossyStream(sys.stderr)), flush=True)


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
    """Returns a table that fits the terminal; see `eomirror.cli.render`."""
    from eomirror.cli.render import FittedTable

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
