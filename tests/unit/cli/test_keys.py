"""Keys of `top`: they move within the rows that there are, and nothing else."""

from __future__ import annotations

import os
import pty
import sys
import termios

import pytest

from eomirror.cli.keys import Keys, scrolled


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
