"""`eomirror demo` from its first line to its verdict, into a log."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from support.judges.terminal import eomirror

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


def test_a_demo_kills_restarts_stands_by_and_finds_equal_sides(tmp_path: Path) -> None:
    """Both acts, each with the seconds of both copiers, then the verdict in words, in a log of few lines."""
    log = tmp_path / "log"
    command = eomirror("demo", "--kills", "2", "--seconds", "5", "--rate", "1000", "--seed", "11")
    with log.open("wb") as file:
        done = subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=280, check=False)
    text = log.read_text()
    assert done.returncode == 0, text
    assert "0 missing, 0 duplicate, 0 reordered, 0 altered" in text.splitlines()
    assert len(re.findall(r"next record: eomirror after [\d.]+ s, naive copier after [\d.]+ s", text)) == 2
    order = ("the mirror starts", "the traffic starts", "act 1", "act 2", "stands by", "compared", "verdict:")
    places = [text.index(words) for words in order]
    assert places == sorted(places)
    assert len(text.splitlines()) < 60
    assert max(map(len, text.splitlines())) <= 100
