"""
Tables that fit the terminal: one screen row per table row.

Numbers are never cut.  If room is short, names lose their middle, because similar names differ at either end; then
optional columns are left out.  Columns of sentences wrap between words.  Without a terminal only names are shortened
that are longer than any topic's; a group id may have thousands of letters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from eomirror.log import printable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from rich.console import Console, ConsoleOptions

__all__ = ["FittedTable", "shortened"]

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
