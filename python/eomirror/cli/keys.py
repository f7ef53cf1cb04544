"""Reads single keys from a terminal while a command draws."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import tty
from typing import Any, Self

__all__ = ["Keys", "scrolled"]

_NAMES = {
    b"q": "quit", b"Q": "quit", b"\x1b[A": "up", b"k": "up", b"\x1b[B": "down", b"j": "down",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down", b" ": "page down", b"\x1b[H": "first", b"g": "first",
    b"\x1b[F": "last", b"G": "last", b"\x1bOA": "up", b"\x1bOB": "down", b"\x1bOH": "first", b"\x1bOF": "last",
    b"\x1b[1~": "first", b"\x1b[4~": "last",
}  # fmt: skip
_KEY = re.compile(rb"\x1b[\[O][0-9;]*[A-Za-z~]|.", re.DOTALL)
_MOST_BYTES = 64


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
