"""What stands on a terminal while a mirror runs: one table at the bottom, the log above it, no markup; no broker."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Self

import pytest

from support.judges.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTHS = (80, 140)

#: Each step is taken when the test writes a byte into the pipe.
PROGRAM = r"""
import json, logging, os, sys, threading, warnings
import structlog
from eomirror.cli.progress import ProgressDisplay
from eomirror.log import configure_logging, forward_logging, relay
from eomirror.plane.protocol import Serving
from eomirror.status.model import LaneStatus
from eomirror.status.snapshot import LinkReport, LinkSnapshot, RunReport, Snapshot, TopicSnapshot
from eomirror.status.work import Counters

def wait():
    os.read(int(sys.argv[1]), 1)

def topic(name, lag):
    return TopicSnapshot(topic=name, target_topic=f"east.{name}", partitions=(), lag_records=lag, lag_seconds=lag)

NAMES = ["orders", "customers", "a-topic-with-a-very-long-name.that-was-given-to-it.because.it.was.possible",
         "payments.settled.by-region", *(f"topic-{n}" for n in range(int(sys.argv[2])))]

def link(state, records, lag):
    lane = LaneStatus(lane=0, state="starting" if lag is None else "running", serving=Serving("native"))
    return LinkSnapshot(link="east->west", state=state, counters=Counters(records=records), lag_records=lag,
                        lag_seconds=lag, lanes=(lane,), topics=tuple(topic(name, lag) for name in NAMES))

configure_logging("info")
forward_logging()
log = structlog.get_logger()
display = ProgressDisplay()
with display:
    display.event("east->west: running")
    display.update(Snapshot(seconds=1, links=(link("running", 0, None),)))
    wait()
    log.info("topic_created", link="east->west", topic="eomirror.east.west.control", partitions=1,
             replication_factor=1, note="x" * 40)
    warnings.warn("something is deprecated")
    logging.getLogger("py4j.java_gateway").error("the JVM is gone")
    threads = [threading.Thread(target=lambda: 1 / 0, name="helper")]
    threads += [threading.Thread(target=log.warning, args=(f"from-thread-{n}",)) for n in range(5)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    relay(json.dumps({"event": "lane_says", "level": "info", "timestamp": "2026-11-24T10:00:00Z", "lane": 1}))
    relay("spark WARN TaskSchedulerImpl: Initial job has not accepted any resources")
    relay("WARNING: Using incubator modules: jdk.incubator.vector")
    print("a library writes this", file=sys.stderr)
    display.update(Snapshot(seconds=2, links=(link("running", 1000, 7),)))
    wait()
    display.update(Snapshot(seconds=3, links=(link("running", 2000, 0),)))
    wait()
display.summary(RunReport(run="r", seconds=3, links=(LinkReport(link="east->west", outcome="stopped"),)))
"""


class Shown:
    """The program, step by step."""

    def __init__(self, columns: int, rows: int = 30, topics: int = 0, **options: object) -> None:
        reading, self._next = os.pipe()
        command = [sys.executable, "-c", PROGRAM, str(reading), str(topics)]
        self.terminal = Terminal(command, columns, rows, pass_fds=(reading,), **options)  # type: ignore[arg-type]
        os.close(reading)

    def step(self) -> None:
        os.write(self._next, b".")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._next)
        self.terminal.__exit__()


@pytest.fixture(params=WIDTHS)
def shown(request: pytest.FixtureRequest) -> Iterator[Shown]:
    """The program at each width."""
    with Shown(request.param) as program:
        yield program


def rows_of(lines: list[str]) -> list[str]:
    """Rows of the table."""
    return [line for line in lines if line.endswith((" ok", "stopped"))]


def test_the_first_picture_has_no_markup_and_says_what_it_waits_for(shown: Shown) -> None:
    """A link, its lanes and its topics, each once; nothing of what is not known."""
    lines = shown.terminal.wait_for(lambda lines: len(rows_of(lines)) == 4)

    text = "\n".join(lines)
    assert "[bold]" not in text
    assert "[dim]" not in text
    assert "east->west  running, waiting for Spark" in lines
    assert "commit 0 ms" not in text
    assert sum("TOPIC" in line for line in lines) == 1
    assert lines[0].endswith("[info] east->west: running")


def test_the_log_goes_above_the_table(shown: Shown) -> None:
    """Events, warnings, other loggers, threads, workers, Spark and plain prints: a line each, and one table below."""
    shown.terminal.wait_for(lambda lines: len(rows_of(lines)) == 4)
    shown.step()
    # a busy machine shows a table that is drawn in part
    lines = shown.terminal.wait_for(
        lambda lines: any("1,000 records" in line for line in lines) and len(rows_of(lines)) == 4
    )

    text = "\n".join(lines)
    assert sum("TOPIC" in line and "STATE" in line for line in lines) == 1
    assert len(rows_of(lines)) == 4
    head = next(number for number, line in enumerate(lines) if line.startswith("east->west  running"))
    said = lines[:head]
    assert sum(line.startswith("east->west") for line in lines) == 1
    for words in (
        "topic_created", "something is deprecated", "the JVM is gone", "thread_failed", "lane_says",
        "Initial job", *(f"from-thread-{n}" for n in range(5)),
    ):  # fmt: skip
        assert sum(words in line for line in said) == 1, (words, text)
    assert "a library writes this" in said
    assert "ZeroDivisionError: division by zero" in said
    assert "incubator" not in text
    starts = [line for line in said if "[info]" in line or "[warning]" in line or "[error]" in line]
    assert all(line[2] == line[5] == ":" and line[8:11] == "Z [" for line in starts), text


def test_the_table_is_gone_in_the_end_and_the_summary_stays(shown: Shown) -> None:
    """What is left is the log and a line for each link."""
    shown.terminal.wait_for(lambda lines: len(rows_of(lines)) == 4)
    shown.step()
    shown.step()
    shown.step()
    lines = shown.terminal.wait_until_ended()

    assert rows_of(lines) == []
    assert not any("TOPIC" in line for line in lines)
    assert lines[-1].startswith("east->west: stopped; 0 records")
    assert lines[-2] == "a library writes this"


@pytest.mark.parametrize(("before", "after"), [(140, 80), (80, 140)])
def test_a_window_that_changes_its_width_keeps_one_table(before: int, after: int) -> None:
    """A narrower window wraps the lines that stand; they are erased with all their rows."""
    with Shown(before) as shown:
        shown.terminal.wait_for(lambda lines: len(rows_of(lines)) == 4)
        shown.terminal.resize(after)
        shown.step()
        shown.terminal.wait_for(lambda lines: any("1,000 records" in line for line in lines))
        shown.step()
        lines = shown.terminal.wait_for(lambda lines: any("2,000 records" in line for line in lines))

        assert len(rows_of(lines)) == 4, "\n".join(lines)
        assert sum("TOPIC" in line and "STATE" in line for line in lines) == 1
        assert sum("waiting for Spark" in line for line in lines) == 0
        assert sum("east->west: running" in line for line in lines) == 1


@pytest.mark.parametrize("rows", [10, 24])
def test_a_table_is_never_higher_than_the_window(rows: int) -> None:
    """What scrolled away could not be erased."""
    with Shown(80, rows, topics=50) as shown:
        shown.terminal.wait_for(lambda lines: any("more" in line for line in lines))
        shown.step()
        shown.step()
        lines = shown.terminal.wait_for(lambda lines: any("2,000 records" in line for line in lines))
        assert sum(line.startswith("east->west") for line in lines) == 1
        shown.step()
        lines = shown.terminal.wait_until_ended()
        assert rows_of(lines) == []


def test_an_interrupt_that_the_terminal_echoes_leaves_nothing(shown: Shown) -> None:
    """``^C`` stands where the cursor is, and goes with the picture."""
    shown.terminal.wait_for(lambda lines: len(rows_of(lines)) == 4)
    shown.terminal.type("\x1d")  # echoed as ^], and no signal
    shown.terminal.wait_for(lambda lines: lines[-1] == "^]")
    shown.step()
    lines = shown.terminal.wait_for(lambda lines: any("1,000 records" in line for line in lines))
    assert not any("^]" in line for line in lines)
    assert sum("TOPIC" in line and "STATE" in line for line in lines) == 1


def test_no_colour_where_it_is_not_wanted() -> None:
    """NO_COLOR: the table moves, and nothing is coloured."""
    with Shown(80, environment={"NO_COLOR": "1"}) as shown:
        for _ in range(3):
            shown.step()
        shown.terminal.wait_until_ended()
        assert b"\x1b[3" not in shown.terminal.raw
        assert b"\x1b[1A" in shown.terminal.raw


def test_a_dumb_terminal_gets_lines() -> None:
    """TERM=dumb takes no control sequences: lines instead of a table, in the format of the log."""
    with Shown(80, environment={"TERM": "dumb"}) as shown:
        for _ in range(3):
            shown.step()
        lines = shown.terminal.wait_until_ended()
        assert b"\x1b" not in shown.terminal.raw
        assert rows_of(lines) == []
        assert any("east->west: running, 0 records" in line for line in lines)


def test_a_log_in_a_file_is_json_from_the_first_line_to_the_last() -> None:
    """`eomirror run 2>log` on a terminal: no table, every line an event with its time and level."""
    reading, writing = os.pipe()
    with Shown(80, stderr=writing) as shown, os.fdopen(reading, "rb") as log:
        os.close(writing)
        for _ in range(3):
            shown.step()
        lines = shown.terminal.wait_until_ended()
        events = [json.loads(line) for line in log if line != b"a library writes this\n"]
    assert [line.split(";")[0] for line in lines] == ["east->west: stopped"]
    assert all({"event", "level", "timestamp"} <= event.keys() for event in events)
    (progress,) = [event for event in events if event["event"] == "progress"]
    assert (progress["link"], progress["state"], progress["lag_records"]) == ("east->west", "running", None)
    names = [event["event"] for event in events]
    assert {"east->west: running", "topic_created", "the JVM is gone", "thread_failed", "spark"} <= set(names)
