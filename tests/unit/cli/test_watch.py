"""Keys of `top` and `status --watch`: they move within the rows that there are, and nothing else."""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios

import pytest

from eomirror.cli.watch import Keys, scrolled
from support.judges.terminal import Terminal, python

#: 50 rows below a head, of links without a cluster.
PROGRAM = """
import sys
from eomirror.cli.watch import View, watched
from eomirror.status import repeated_reader
class Readers:
    def __init__(self, *_, **__): self.reads = 0
    def __enter__(self): return self
    def __exit__(self, *_): pass
    def read(self, *, strict):
        self.reads += 1
        return [f"read {self.reads}, strict {strict}"]
repeated_reader.LinkReaders = Readers
def view(found):
    def draw(console, rows):
        console.print(found[0])
        for row in rows or every: console.print(row)
    return View(body=dict, draw=draw, rows=[] if "lines" in sys.argv else every)
every = [f"row {number}" for number in range(50)]
print("ended with", watched(None, (), view, None, watch=True))
"""


@pytest.mark.parametrize(
    ("first", "key", "after"),
    [
        (0, "down", 1), (0, "up", 0), (0, "page down", 10), (85, "page down", 90), (90, "down", 90), (5, "page up", 0),
        (7, "last", 90), (7, "first", 0), (7, "", 7),
    ],
)  # fmt: skip
def test_rows_scroll_within_their_ends(first: int, key: str, after: int) -> None:
    """The last page is full, and another key changes nothing."""
    assert scrolled(first, key, rows=100, shown=10) == after
    assert scrolled(first, key, rows=4, shown=10) == 0


def test_keys_of_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of keys; the terminal's settings are restored; a closed one ends the command."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "rb", buffering=0) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        before = termios.tcgetattr(theirs)
        with Keys() as keys:
            for typed, name in (
                (b"q", "quit"),
                (b"\x1b[6~", "page down"),
                (b"\x1bOA", "up"),
                (b"x", ""),
            ):
                os.write(ours, typed)
                assert keys.wait(5) == name
            os.write(ours, b"\x1b[B\x1b[5~xq")
            assert [keys.wait(5) for _ in range(4)] == ["down", "page up", "", "quit"]
            assert keys.wait(0) == ""
        assert termios.tcgetattr(theirs) == before
        os.close(ours)


def test_without_a_terminal_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe is left alone."""
    reader, writer = os.pipe()
    with os.fdopen(reader, "rb") as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        os.write(writer, b"q")
        with Keys() as keys:
            assert keys.wait(0) == ""
    os.close(writer)


def test_rows_move_with_keys_and_q_ends() -> None:
    """The head stays, as many rows as fit are drawn below it, and the picture is redrawn in place every 2 s."""
    with Terminal(python(PROGRAM), 80, 12) as terminal:
        lines = terminal.wait_for(lambda lines: "row 0" in lines)
        assert lines[0] == "read 1, strict True"
        assert lines[-1] == "row 9"
        terminal.type("\x1b[6~j")
        lines = terminal.wait_for(lambda lines: "row 11" in lines)
        assert lines[1:] == [f"row {number}" for number in range(11, 21)]
        assert terminal.wait_for(lambda lines: lines[0] == "read 2, strict False")[1] == "row 11"
        terminal.type("q")
        lines = terminal.wait_until_ended()
        assert lines[-1] == "ended with []"
        assert terminal.process.returncode == 0


def test_lines_of_a_picture_without_rows_move() -> None:
    """`status --watch` of many links: nothing that is drawn is out of reach, and the last line tells what is left."""
    with Terminal([*python(PROGRAM), "lines"], 80, 12) as terminal:
        lines = terminal.wait_for(lambda lines: "row 8" in lines)
        assert lines[0].startswith("read 1")
        assert lines[-1] == "... and 41 more lines"
        terminal.type("j")
        assert terminal.wait_for(lambda lines: "row 9" in lines)[0] == "row 0"
        terminal.type("G")
        lines = terminal.wait_for(lambda lines: "row 49" in lines)
        assert lines == [f"row {number}" for number in range(40, 50)]


def test_sigterm_restores_the_terminal() -> None:
    """A shell that gets the terminal back echoes what is typed."""
    with Terminal(python(PROGRAM), 80, 12) as terminal:
        before = terminal.settings()
        terminal.wait_for(lambda lines: "row 0" in lines)
        assert terminal.settings() != before
        terminal.process.send_signal(signal.SIGTERM)
        terminal.wait_until_ended()
        assert terminal.process.returncode == 128 + signal.SIGTERM
        assert terminal.settings() == before
