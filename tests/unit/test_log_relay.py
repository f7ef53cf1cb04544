"""Lines that several workers write to one pipe: each event is one line of the log, however the lines arrive."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest
from structlog.testing import capture_logs

from eomirror.log import relay

_ONE = {"lane": 0, "event": "lane_resumes", "level": "info", "reason": 'a {"b": 1} in a text'}
_TWO = {"lane": 1, "event": "lane_ended", "level": "warning", "timestamp": "2026-11-24T10:00:00Z"}
_SPARK = "spark WARN TaskSchedulerImpl: no resources"


def relayed(line: str) -> list[dict[str, Any]]:
    """Events that come out of a line."""
    with capture_logs() as logs:
        relay(line)
    return [{name: value for name, value in each.items() if name != "log_level"} for each in logs]


def told(event: dict[str, Any]) -> dict[str, Any]:
    """The event as it comes out; `capture_logs` has the level apart."""
    return {name: value for name, value in event.items() if name != "level"}


@pytest.mark.parametrize("between", ["", " ", "\t"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_events_in_one_line_come_out_one_by_one(count: int, between: str) -> None:
    """With the values that each had."""
    events = [_ONE, _TWO, _ONE, _TWO, _TWO][:count]

    assert relayed(between.join(map(json.dumps, events))) == [told(each) for each in events]


@pytest.mark.parametrize("line", [json.dumps(_ONE) + _SPARK, json.dumps(_ONE) + _SPARK + json.dumps(_TWO)])
def test_text_of_spark_between_events_is_an_event_of_its_own(line: str) -> None:
    """The JVM writes to the same pipe."""
    found = relayed(line)

    assert found[0] == told(_ONE)
    assert found[1] == {"event": "spark", "logger": "TaskSchedulerImpl", "says": "no resources"}
    assert found[2:] == ([told(_TWO)] if line.endswith("}") else [])


def test_an_event_that_cuts_another_in_two_is_kept() -> None:
    """What cannot be read is a warning with the text."""
    whole = json.dumps(_ONE)
    found = relayed(whole[:20] + json.dumps(_TWO) + whole[20:])

    assert told(_TWO) in found
    assert "".join(each.get("says", "") for each in found) == whole


@pytest.mark.parametrize(
    "line",
    ['{"no": "event"}', '{"event": 7}', '{"event": "x", "level": "loud"}', "{", '{"', "[1]", '{"a": {"a": '],
)
def test_a_line_without_an_event_is_said_as_it_is(line: str) -> None:
    """Nothing is dropped."""
    assert relayed(line) == [{"event": "spark", "says": line}]


def test_a_line_is_one_write_to_a_stream_without_a_buffer() -> None:
    """PySpark sets PYTHONUNBUFFERED: a line feed written apart would let the line of another worker come between."""
    program = (
        "import os, sys\n"
        "import structlog\n"
        "class Raw:\n"
        "    encoding = 'utf-8'\n"
        "    def write(self, text): os.write(1, repr(text).encode() + b'\\n')\n"
        "    def flush(self): pass\n"
        "    def isatty(self): return False\n"
        "sys.stderr = Raw()\n"
        "from eomirror.log import configure_logging\n"
        "configure_logging('info')\n"
        "structlog.get_logger().info('a', x=1)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=os.environ
    )

    (written,) = done.stdout.splitlines()
    assert written.endswith("}\\n'")
