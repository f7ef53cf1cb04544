"""Shows the status of links: once, or redrawn in place until q or a signal, with keys that move through the rows."""

from __future__ import annotations

import io
import os
import re
import select
import sys
import termios
import tty
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from eomirror.cli.options import terminable
from eomirror.cli.render import print_result, stdout_console, wants_table
from eomirror.clock import SYSTEM_CLOCK, Deadline
from eomirror.log import is_dumb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import Console
    from rich.text import Text

    from eomirror.config import Config
    from eomirror.metrics.verdict import Verdict
    from eomirror.status.model import LinkStatus

__all__ = ["Keys", "View", "judge", "scrolled", "watched"]

_REDRAW_SECONDS = 2.0

_NAMES = {
    b"q": "quit", b"Q": "quit", b"\x1b[A": "up", b"k": "up", b"\x1b[B": "down", b"j": "down",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down", b" ": "page down", b"\x1b[H": "first", b"g": "first",
    b"\x1b[F": "last", b"G": "last", b"\x1bOA": "up", b"\x1bOB": "down", b"\x1bOH": "first", b"\x1bOF": "last",
    b"\x1b[1~": "first", b"\x1b[4~": "last",
}  # fmt: skip
_KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_MOST_BYTES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """
    Picture of links, for people and for programs.

    Attributes:
        body: Returns the value for programs.
        draw: Draws some of the rows, and all else, for people.
        rows: Rows that the keys move through, below a head that stays; if empty, they move through all lines.
    """

    body: Callable[[], Any]
    draw: Callable[[Console, Sequence[Any]], None]
    rows: Sequence[Any] = ()

    def picture(self, first: int, most: int, columns: int) -> Text:
        """Returns what ``most`` rows from the first one on look like."""
        from rich.console import Console
        from rich.text import Text

        console = Console(file=io.StringIO(), width=columns, force_terminal=True, highlight=False)
        with console.capture() as captured:
            self.draw(console, self.rows[first : first + most])
        return Text.from_ansi(captured.get().rstrip("\n"))


def watched(
    config: Config,
    links: tuple[str, ...],
    view: Callable[[list[LinkStatus]], View],
    output: str | None,
    *,
    watch: bool = False,
    strict: bool = True,
    sinks: bool = False,
) -> list[LinkStatus]:
    """
    Reads the status of links and shows it.

    Args:
        links: Names of the links; empty for all.
        view: Returns what to show of a status.
        output: ``table``, ``json``, ``yaml``, or None for a table on a terminal and JSON elsewhere.
        watch: Repeat this every 2 s; tables on a terminal are redrawn in place, and the last one stays.
        strict: Raise the error of a single link that cannot be read at first.  A watched link that becomes unreachable
            is shown as unknown until it answers again.
        sinks: Also read the sinks of Spark queries, which are shown like links.

    Returns:
        The status; nothing if the user pressed q.
    """
    from eomirror.status.repeated_reader import LinkReaders

    with LinkReaders(config, links, sinks=sinks) as readers, ExitStack() as stack:
        frame, keys, first, key = None, Keys(), 0, ""
        if watch and wants_table(output) and not is_dumb(sys.stdout):
            from rich.text import Text

            from eomirror.screen import LiveFrame

            # SIGTERM, too, restores the terminal's settings
            stack.enter_context(terminable())
            frame = stack.enter_context(LiveFrame(sys.stdout, stays=True))
            stack.enter_context(keys)
        while True:
            found = readers.read(strict=strict)
            strict = False
            shown = view(found)
            if frame is None:
                print_result(output, shown.body, partial(_write, shown))
                if not watch:
                    return found
                SYSTEM_CLOCK.sleep(_REDRAW_SECONDS)
                continue
            until = Deadline(_REDRAW_SECONDS, SYSTEM_CLOCK)
            while not until.passed:
                columns, height = frame.size
                lines = shown.picture(0, 1, columns).split("\n")
                if shown.rows:
                    # a row of the table is a row of the screen
                    most = max(1, height - len(lines))
                    first = scrolled(first, key, rows=len(shown.rows), shown=most)
                    frame.draw(shown.picture(first, most, columns))
                else:
                    # the last row of the screen tells how many lines are left
                    first = scrolled(first, key, rows=len(lines), shown=height - 2)
                    frame.draw(Text("\n").join(lines[first:]))
                if (key := keys.wait(until.remaining())) == "quit":
                    return []


def _write(view: View) -> None:
    view.draw(stdout_console(), view.rows)


def judge(config: Config) -> Callable[[LinkStatus], Verdict]:
    """Returns a function that judges each status of a link by the trend of those before."""
    from eomirror.metrics.verdict import Window
    from eomirror.status.live import LinkFacts, LinkView
    from eomirror.status.sinks import sink_facts

    windows = {link.name: (LinkFacts.of(link), Window()) for link in config.links}

    def judged(item: LinkStatus) -> Verdict:
        if item.link not in windows:
            # a sink of a Spark query (`eomirror.status.sinks`)
            windows[item.link] = (sink_facts(item.link), Window())
        facts, window = windows[item.link]
        return window.judge(
            LinkView(facts=facts, status=item), SYSTEM_CLOCK.monotonic(), SYSTEM_CLOCK.wall_ms()
        )

    return judged


class Keys:
    """
    Keys of stdin while its block runs; none if it is no terminal.

    Ctrl-C keeps its meaning.  The terminal's settings are restored at the end.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._descriptor = -1
        self._typed: list[bytes] = []

    def __enter__(self) -> Self:
        if sys.stdin.isatty():
            self._descriptor = sys.stdin.fileno()
            self._before = termios.tcgetattr(self._descriptor)
            tty.setcbreak(self._descriptor)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)
            self._before = None

    def wait(self, seconds: float) -> str:
        """
        Waits for a key.

        Returns:
            ``quit``, ``up``, ``down``, ``page up``, ``page down``, ``first`` or ``last``; empty for another key, and
            after ``seconds``.
        """
        if self._typed:
            return _NAMES.get(self._typed.pop(0), "")
        watched = [] if self._before is None else [self._descriptor]
        if not select.select(watched, [], [], seconds)[0]:
            return ""
        typed = os.read(self._descriptor, _MOST_BYTES)
        if not typed:
            # the terminal is gone: it would be readable for ever
            self._before = None
            return "quit"
        # several keys may have been pressed since the last look
        self._typed = _KEY.findall(typed)
        return _NAMES.get(self._typed.pop(0), "")


def scrolled(first: int, key: str, *, rows: int, shown: int) -> int:
    """
    Returns the first row to show after a key.

    Args:
        first: First row that is shown.
        key: Name of the key.
        rows: Number of all rows.
        shown: Number of rows that fit.
    """
    last = max(0, rows - shown)
    moved = {
        "up": first - 1, "down": first + 1, "page up": first - shown, "page down": first + shown, "first": 0,
        "last": last,
    }.get(key, first)  # fmt: skip
    return min(last, max(0, moved))
