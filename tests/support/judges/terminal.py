"""A terminal for tests: a program runs on a pseudoterminal, and what it writes is drawn by pyte."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from typing import TYPE_CHECKING, Self

import pyte

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_HISTORY = 5_000


class Terminal:
    """
    A program on a terminal of its own, with stdin, stdout and stderr; ends the program when it is closed.

    Args:
        command: Program and arguments.
        columns: Width.
        rows: Height.
        environment: Changes to ours; NO_COLOR is left out unless it is among them.
        stdout: Another place for stdout, such as a file.
        stderr: Another place for stderr.
        pass_fds: Open descriptors that the program shall have.
    """

    def __init__(
        self,
        command: Sequence[str],
        columns: int,
        rows: int = 30,
        *,
        environment: dict[str, str] | None = None,
        stdout: int | None = None,
        stderr: int | None = None,
        pass_fds: Sequence[int] = (),
    ) -> None:
        self._screen = pyte.HistoryScreen(columns, rows, history=_HISTORY)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        self._master, slave = pty.openpty()
        self._set_size(columns, rows)
        ours = {
            name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS", "LINES"}
        }
        self.process = subprocess.Popen(
            list(command),
            stdin=slave,
            stdout=slave if stdout is None else stdout,
            stderr=slave if stderr is None else stderr,
            env={**ours, "TERM": "xterm-256color", **(environment or {})},
            pass_fds=pass_fds,
            # its controlling terminal, so that ^C reaches it
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  no thread is needed before exec
        )
        os.close(slave)

    def resize(self, columns: int, rows: int = 30) -> None:
        """
        Change the size of the window as a terminal does that wraps its lines anew.

        pyte cuts lines instead, so all that stands is written again at the new width, with the cursor below it.
        """
        above = len(self._screen.history.top) + self._screen.cursor.y
        standing = [*self.lines(), *[""] * above][:above]
        self._screen = pyte.HistoryScreen(columns, rows, history=_HISTORY)
        self._stream = pyte.ByteStream(self._screen)
        self._stream.feed("".join(f"{line}\r\n" for line in standing).encode())
        self._set_size(columns, rows)

    def settings(self) -> list[object]:
        """Settings of the terminal, such as echo."""
        return termios.tcgetattr(self._master)

    def type(self, text: str) -> None:
        """Type on the keyboard."""
        os.write(self._master, text.encode())

    def read(self, seconds: float = 0.2) -> None:
        """Draw what comes within this time."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            if not select.select([self._master], [], [], left)[0]:
                return
            try:
                data = os.read(self._master, 65_536)
            except OSError:  # Linux says so when the last writer has closed
                return
            self.raw += data
            self._stream.feed(data)

    def wait_for(self, condition: Callable[[list[str]], object], seconds: float = 30.0) -> list[str]:
        """Read until a condition of the lines holds; gives them."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.read()
            lines = self.lines()
            if condition(lines):
                return lines
        raise AssertionError("the screen does not show it:\n" + "\n".join(self.lines()))

    def wait_until_ended(self, seconds: float = 30.0) -> list[str]:
        """Read until the program has ended; gives the lines."""
        deadline = time.monotonic() + seconds
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "the program does not end:\n" + "\n".join(self.lines())
            self.read()
        self.read(0.5)
        return self.lines()

    def lines(self) -> list[str]:
        """All lines from the first to the last that holds something, those that scrolled away included."""
        top = ["".join(row[x].data for x in range(self._screen.columns)) for row in self._screen.history.top]
        lines = [line.rstrip() for line in (*top, *self._screen.display)]
        while lines and not lines[-1]:
            lines.pop()
        return lines

    def _set_size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


def eomirror(*arguments: str) -> list[str]:
    """The command line."""
    return [sys.executable, "-m", "eomirror", *arguments]


def python(program: str) -> list[str]:
    """A program of this interpreter."""
    return [sys.executable, "-c", program]
