"""How results are written: a table for people, JSON or YAML for programs, from the same values."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, TextIO, cast

import click
import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "human_bytes",
    "human_count",
    "human_rate",
    "human_seconds",
    "human_things",
    "output_option",
    "print_structured",
    "say",
    "table",
    "wants_table",
]

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


def table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, right: Sequence[str] = ()) -> Any:
    """A plain table for the terminal; columns named in ``right`` are aligned to the right."""
    from rich import box
    from rich.table import Table

    from eomirror.log import printable

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for column in columns:
        drawn.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(printable(str(row.get(column, ""))) for column in columns))
    return drawn


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
