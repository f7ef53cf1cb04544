"""What `eomirror demo` shows: a picture that fits the terminal, a calm log, and words at the end; no broker."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from support.judges.terminal import Terminal

if TYPE_CHECKING:
    from pathlib import Path

#: The command with a story that is told, and not played.
PROGRAM = r"""
import os, sys
from eomirror.cli.app import main
from eomirror.demo import scenario
from eomirror.demo.compare import Comparison, Revision
from eomirror.demo.report import CopyNow, DemoReport, JudgedCopy, Kill, Picture

class Told:
    def __init__(self, options, listener, steps):
        self.listener, self.options = listener, options

    def run(self):
        for act in (1, 2):
            self.listener.phase(f"act {act}: kill -9")
            for second in range(1, 200):
                now = {"behind": 1_234, "lost": 0, "state": f"down {second}.0 s, standby takes over"}
                copies = [CopyNow(name=name, mirrored=123_456, duplicates=second, **now)
                          for name in ("eomirror", "naive copier")]
                self.listener.live(Picture(produced=124_690, aborted=12_469, copies=tuple(copies)))
            self.listener.note("kill 1: 12 processes; a transaction was open in 6 of 6 partitions")
        judged = JudgedCopy(topic="t", comparison=Comparison(source=9, target=9), revision=Revision(seen=9))
        kills = (Kill(9.0, 6, (1,), standby=True, recovery=1.5, naive_recovery=1.0),)
        return DemoReport(seed=self.options.seed, partitions=6, seconds=9.0, produced=9, source_transactions=1,
                          aborted=1, aborted_transactions=1, kills=kills, exactly_once=judged,
                          at_least_once=judged, folder="somewhere")

    def close(self):
        if WAITS:
            os.read(0, 1)

WAITS = sys.argv[1]
scenario.Demo = Told
sys.argv = ["eomirror", "demo", "--seed", "7", *sys.argv[2:]]
main()
"""
VERDICT = "0 missing, 0 duplicate, 0 reordered, 0 altered"


@pytest.mark.parametrize("columns", [80, 140])
def test_the_picture_stands_below_the_events(columns: int) -> None:
    """Each row of it is one row of the terminal and is drawn once; it goes when the verdict comes."""
    with Terminal([sys.executable, "-c", PROGRAM, "wait"], columns) as terminal:
        lines = terminal.wait_for(lambda lines: sum("kill 1" in line for line in lines) == 2)
        picture = [line for line in lines if line.startswith((" source", " eomirror", " naive copier"))]
        assert [line.split()[-3:] for line in picture[1:]] == [["standby", "takes", "over"]] * 2
        assert sum("RECORDS" in line for line in lines) == 1
        assert len(picture) == 3
        terminal.type("\n")
        lines = terminal.wait_until_ended()
    assert VERDICT in lines
    assert not any("standby takes over" in line for line in lines)


def test_a_log_has_a_line_for_each_event_and_the_verdict_in_words(tmp_path: Path) -> None:
    """No line for each moment, no JSON, no control sequence."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        command = [sys.executable, "-c", PROGRAM, ""]
        subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, timeout=60, check=True)
    text = log.read_text()
    lines = text.splitlines()
    assert [line[10:] for line in lines[:5]] == [
        "  seed 7",
        "act 1: kill -9",
        "  kill 1: 12 processes; a transaction was open in 6 of 6 partitions",
        "act 2: kill -9",
        "  kill 1: 12 processes; a transaction was open in 6 of 6 partitions",
    ]
    assert VERDICT in lines
    assert "verdict: exactly once" in lines
    assert max(map(len, lines)) <= 80
    assert "{" not in text
    assert "\x1b" not in text


def test_programs_get_json_if_they_ask_for_it() -> None:
    """Stdout holds nothing else; people still read the words on stderr."""
    command = [sys.executable, "-c", PROGRAM, "", "-o", "json"]
    done = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert json.loads(done.stdout)["verdict"] == VERDICT
    assert VERDICT in done.stderr.decode()
