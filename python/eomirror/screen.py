"""
Draws a live frame at the bottom of a terminal, below the log lines.

All text that this process writes to stderr through `eomirror.log.LossyStream` goes above the frame: log lines,
messages, and output of libraries on ``sys.stderr``.  A frame never exceeds the terminal: its lines are cut at the
right, and its last lines are left out.

The cursor rests in the first column of the row below the picture, so that the ``^C`` that a terminal echoes is erased
with it.  Terminals wrap the lines that stand when their window becomes narrower: the number of rows to erase is
calculated from the width of each line and the present width of the window.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from typing import TYPE_CHECKING, Self, TextIO, cast

from rich.console import Console
from rich.segment import Segment, Segments

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.log import LossyStream, divert, is_dumb

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import RenderableType

__all__ = ["LiveFrame", "LiveOutput", "terminal_size"]

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
    Base of progress displays on stderr: pictures in a frame on a terminal, lines elsewhere.

    Args:
        draw_seconds: Least time between two pictures.
        line_seconds: Least time between two lines.
        clock: Measures these times.
    """

    def __init__(
        self, *, draw_seconds: float = 0.0, line_seconds: float, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._frame = LiveFrame()
        self._clock = clock
        self._draw_seconds = draw_seconds
        self._line_seconds = line_seconds
        self._shown = float("-inf")

    def __enter__(self) -> Self:
        self._frame.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._frame.__exit__()

    def _show(self, picture: Callable[[], RenderableType], write: Callable[[], None]) -> None:
        """Draws a picture, or calls ``write``; does nothing shortly after the last time."""
        now = self._clock.monotonic()
        if now - self._shown < (self._draw_seconds if self._frame.live else self._line_seconds):
            return
        self._shown = now
        if self._frame.live:
            self._frame.draw(picture())
        else:
            write()


def _without_blank_end(line: list[Segment]) -> list[Segment]:
    """Returns a line without trailing blanks, which some terminals wrap and others do not."""
    kept = list(line)
    while kept and not kept[-1].text.strip():
        kept.pop()
    if kept:
        kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
    return kept
