"""What `eomirror offsets` shows in a terminal."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.cli.offsets import _draw_groups, _draw_imported
from eomirror.cli.render import print_message
from eomirror.groups import GroupPartition, ImportedGroup

if TYPE_CHECKING:
    import pytest

BILLING = GroupPartition(
    link="east->west", group="billing", topic="orders", partition=0, offset=1_234_567, to_topic="east.orders",
    to_partition=0, to_offset=None, kind="unknown", age_seconds=1_739.0,
    skipped="not mirrored yet: the link is at 1937",
)  # fmt: skip


def _drawn(
    found: list[GroupPartition], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    _draw_groups(found)
    return capsys.readouterr().out


def test_a_note_takes_no_room_from_names_and_numbers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a column of its own it was five characters wide, and offsets were folded in the middle."""
    other = replace(BILLING, group="other", skipped="", again=7)
    text = _drawn([BILLING, replace(BILLING, partition=1), other], monkeypatch, capsys)
    (first, *_) = [line for line in text.splitlines() if "billing" in line]

    assert first.split()[-1] == "1"
    assert "1234567" in first
    assert text.splitlines()[-2:] == [
        "1: not mirrored yet: the link is at 1937",
        "2: up to 7 records are read again: both clusters write this topic",
    ]
    assert "LINK" not in text


def test_links_are_named_where_there_are_several(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group of the same name may be followed by each."""
    assert "LINK" in _drawn([BILLING, replace(BILLING, link="a")], monkeypatch, capsys)


def test_a_name_tells_the_terminal_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A client that may commit for a group chooses its name; an operator looks at all of them."""
    name = "bill\x1b]0;x\x07ing"
    text = _drawn([replace(BILLING, group=name, skipped=name)], monkeypatch, capsys)
    _draw_imported([ImportedGroup(group=name, offsets=(), written=False, problem=name)], dry_run=True)
    text += capsys.readouterr().out
    print_message(f"left out: {name}")
    text += capsys.readouterr().err
    command = [sys.executable, "-m", "eomirror", "offsets", "import", "mirror.yaml", name]
    text += subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stderr

    assert text.replace("\n", "").isprintable()
    # in the table, as its remark, refused and why, left out, and in an error
    assert text.count("bill?]") == 6
