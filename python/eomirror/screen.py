"""
Draws a live frame at the bottom of a terminal, below the log lines, and tables that fit a terminal.

All text that this process writes to stderr through `eomirror.log.LossyStream` goes above the frame: log lines,
messages, and output of libraries on ``sys.stderr``.  A frame never exceeds the terminal: its lines are cut at the
right, and its last lines are left out.

The cursor rests in the first column of the row below the picture, so that the ``^C`` that a terminal echoes is erased
with it.  Terminals wrap the lines that stand when their window becomes narrower: the number of rows to erase is
calculated from the width of each line and the present width of the window.

A row of a table is a row of the screen.  Numbers are never cut.  If room is short, names lose their middle, because
similar names differ at either end; then optional columns are left out.  Columns of sentences wrap between words.
Without a terminal only names are shortened that are longer than any topic's; a group id may have thousands of letters.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.log import LossyStream, divert, is_dumb, print_line, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from rich.console import ConsoleOptions, RenderableType

__all__ = ["FittedTable", "LiveFrame", "LiveOutput", "shortened", "terminal_size"]

_USUAL = (80, 24)


def terminal_size(stream: TextIO) -> tuple[int, int]:
    """Returns columns and rows of a stream's terminal; 80 and 24 if unknown."""
    try:
        size = os.get_terminal_size(stream.fileno())
    except (OSError, ValueError):
        return _USUAL
    return size.columns or _USUAL[0], size.lines or _USUAL[1]


class LiveFrame:
    """
    Frame that is redrawn in place.  Any number of threads may draw and write.

    On a stream that does not interpret control sequences it draws nothing, and `live` is False.

    Args:
        stream: Terminal; None for stderr.
        stays: Leave the last picture on the screen at the end.
    """

    def __init__(self, stream: TextIO | None = None, *, stays: bool = False) -> None:
        chosen = stream if stream is not None else sys.stderr
        # of a frame below another one: its own text must not go above the other
        while isinstance(chosen, LossyStream):
            chosen = chosen.inner
        self._stream = chosen
        self._stays = stays
        self._lock = threading.RLock()
        self._lines: list[str] = []
        self._widths: list[int] = []
        self._undo = contextlib.ExitStack()
        self.live = False

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows of the terminal."""
        return terminal_size(self._stream)

    def draw(self, picture: RenderableType) -> None:
        """Replaces the picture."""
        if not self.live:
            return
        lines, widths = self._rendered(picture)
        with self._lock:
            erase = self._erasing()
            self._lines, self._widths = lines, widths
            self._put(erase + self._picture())

    def write(self, text: str) -> None:
        """Writes whole lines above the picture."""
        with self._lock:
            ended = text if text.endswith("\n") else f"{text}\n"
            self._put(self._erasing() + ended + self._picture())

    def __enter__(self) -> Self:
        if not is_dumb(self._stream):
            self.live = True
            self._undo.enter_context(divert(self._stream, self.write))
            errors = sys.stderr
            if errors is not self._stream and not isinstance(errors, LossyStream) and errors.isatty():
                # frame on stdout and messages on stderr share one terminal
                self._undo.enter_context(divert(errors, self.write))
            if not isinstance(errors, LossyStream):
                self._undo.enter_context(contextlib.redirect_stderr(cast("TextIO", LossyStream(errors))))
        return self

    def __exit__(self, *_: object) -> None:
        self._undo.close()
        with self._lock:
            if self.live and not self._stays:
                self._put(self._erasing())
            self._lines, self._widths = [], []
            self.live = False

    def _rendered(self, picture: RenderableType) -> tuple[list[str], list[int]]:
        columns, rows = self.size
        console = Console(
            file=io.StringIO(), width=columns, height=rows, force_terminal=True, highlight=False
        )
        drawn = console.render_lines(picture, pad=False)
        # the cursor needs a row of its own
        most = max(1, rows - 1)
        if len(drawn) > most:
            hidden = len(drawn) - most + 1
            drawn = [*drawn[: most - 1], [Segment(f"... and {hidden} more lines"[:columns])]]
        drawn = [_without_blank_end(line) for line in drawn]
        lines = []
        for line in drawn:
            with console.capture() as captured:
                console.print(Segments(line), end="", soft_wrap=True)
            lines.append(captured.get())
        return lines, [Segment.get_line_length(line) for line in drawn]

    def _erasing(self) -> str:
        if not self.live:
            return ""
        columns, rows = self.size
        taken = sum(max(1, -(-width // columns)) for width in self._widths)
        # row by row: tmux treats "erase below" in the first row as "clear", and keeps the erased lines in its history
        return "\r\x1b[2K" + "\x1b[1A\x1b[2K" * min(taken, rows - 1)

    def _picture(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    def _put(self, text: str) -> None:
        # a terminal that has hung up must not end the program
        with contextlib.suppress(OSError):
            self._stream.write(text)
            self._stream.flush()


class LiveOutput:
    """
    Progress on stderr: pictures in a frame on a terminal, lines elsewhere.

    Args:
        draw_seconds: Least time between two pictures.
        line_seconds: Least time between two lines.
        at_once: Show the first picture or line at once, not after this time.
        clock: Measures these times.
    """

    def __init__(
        self,
        *,
        draw_seconds: float = 0.0,
        line_seconds: float = 0.0,
        at_once: bool = True,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.frame = LiveFrame()
        self._clock = clock
        self._draw_seconds = draw_seconds
        self._line_seconds = line_seconds
        self._shown = float("-inf") if at_once else clock.monotonic()

    def __enter__(self) -> Self:
        self.frame.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.frame.__exit__()

    def show(self, picture: Callable[[], RenderableType], write: Callable[[], None]) -> None:
        """Draws a picture, or calls ``write``; does nothing shortly after the last time."""
        now = self._clock.monotonic()
        if now - self._shown < (self._draw_seconds if self.frame.live else self._line_seconds):
            return
        self._shown = now
        if self.frame.live:
            self.frame.draw(picture())
        else:
            write()

    def show_line(self, text: Callable[[], str]) -> None:
        """Shows a line; cut to the width of a terminal, whole elsewhere, so that a log file can be searched."""
        self.show(
            lambda: Text(printable(text()), no_wrap=True, overflow="ellipsis"), lambda: print_line(text())
        )


def _without_blank_end(line: list[Segment]) -> list[Segment]:
    """Returns a line without trailing blanks, which some terminals wrap and others do not."""
    kept = list(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    return kept


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
