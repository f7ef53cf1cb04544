"""How results are written: a table for people, JSON or YAML for programs, from the same values."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

import click
import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import Console

    from eomirror.cli.fitted_table import FittedTable

__all__ = [
    "human_bytes",
    "human_count",
    "human_rate",
    "human_seconds",
    "human_things",
    "output_option",
    "print_structured",
    "say",
    "stdout_console",
    "table",
    "wants_table",
]

# wider than any line
_NO_TERMINAL = 100_000

output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json", "yaml"]),
    default=None,
    help="Form of the output; table on a terminal, else json.",
)


def wants_table(output: str | None) -> bool:
    """Whether to draw a table: as asked, or because stdout is a terminal."""
    return output == "table" or (output is None and sys.stdout.isatty())


def print_structured(value: Any, output: str | None) -> None:
    """Write ``value`` to stdout as YAML when asked for, else as indented JSON: the same values in both."""
    text = orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_NON_STR_KEYS, default=str)
    if output == "yaml":
        import yaml

        click.echo(yaml.safe_dump(orjson.loads(text), sort_keys=False, allow_unicode=True), nl=False)
        return
    click.echo(text)


def say(text: str) -> None:
    """A line on stderr, for people; what cannot be written there ends nothing."""
    from eomirror.log import LossyStream, printable

    print(printable(text), file=cast("TextIO", LossyStream(sys.stderr)), flush=True)


def stdout_console() -> Console:
    """
    Returns a console for tables and lines on stdout.

    A terminal has a width.  A file or a pipe has none: who searches it finds a name and what is said of it in one line.
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
    """A plain table for the terminal; see `eomirror.cli.fitted_table`."""
    from eomirror.cli.fitted_table import FittedTable

    return FittedTable(columns, rows, right=right, whole=whole, optional=optional, words=words)


def human_count(number: float | None) -> str:
    """A count with thousands separators; a dash for what is not known."""
    return "-" if number is None else f"{number:,.0f}"


def human_things(number: int, thing: str) -> str:
    """A count and what it counts: ``1 group``, ``2 groups``."""
    return f"{human_count(number)} {thing}{'' if number == 1 else 's'}"


def human_rate(number: float | None) -> str:
    """Something per second, short."""
    if number is None:
        return "-"
    for unit, size in (("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.1f}{unit}/s"
    return f"{number:.0f}/s"


def human_bytes(number: float) -> str:
    """An amount of data, in powers of ten."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number:.0f} B"


_MINUTE = 60


def human_seconds(seconds: float | None) -> str:
    """A duration, short; a dash for what is not known."""
    if seconds is None:
        return "-"
    if seconds < _MINUTE:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), _MINUTE)
    return (
        f"{minutes} min {rest} s" if minutes < _MINUTE else f"{minutes // _MINUTE} h {minutes % _MINUTE} min"
    )
