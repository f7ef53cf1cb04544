"""The page of a measurement of starts."""

from __future__ import annotations

import pytest
from bench.start import StartTimes, start_markdown, steps_of

_LOG = """\
Picked up JAVA_TOOL_OPTIONS
{"event":"link: preparing","level":"info","timestamp":"1970-01-01T00:16:40.500000Z"}
{"event":"link: running","level":"info","timestamp":"1970-01-01T00:16:41.300000Z"}
{"lane":0,"event":"lane_starts","level":"info","timestamp":"1970-01-01T00:16:41.400000Z"}
{"lane":1,"event":"lane_starts","level":"info","timestamp":"1970-01-01T00:16:41.500000Z"}
{"event":"starting spark","level":"info","timestamp":"1970-01-01T00:16:42.000000Z"}
"""


def test_steps_are_the_first_lines_that_tell_them() -> None:
    """Seconds after the start of the process; a line without JSON tells nothing, a later lane neither."""
    steps = steps_of(_LOG, 1000.0)
    assert list(steps.values()) == pytest.approx([0.5, 1.3, 1.4, 2.0])
    assert next(iter(steps)) == "program imported, log begins"


def test_each_measurement_stands_beside_mm2_and_its_goal() -> None:
    """Medians, the ratio, goals, and the steps in the order of time; a missing measurement is no figure."""
    found = StartTimes(
        titles={"eonative": "eomirror", "mm2": "MM2"},
        seconds={
            "start": {"eonative": [2.0, 2.5, 1.5], "mm2": [9.0, 10.0, 11.0]},
            "standby": {"eonative": [2.0], "mm2": []},
        },
        steps={"start": [{"Spark": 4.0, "lane": 1.0}, {"Spark": 5.0, "lane": 1.5}]},
        verified=1234,
    )

    page = start_markdown(found).splitlines()

    assert "| start | 2.00 (2.0, 2.5, 1.5) | 10.00 (9.0, 10.0, 11.0) | 5.0 | under 2.5 s, 4 times |" in page
    assert "| standby | 2.00 (2.0) | - | - | under 3 s |" in page
    assert page[-2:] == ["| lane | 1.25 |", "| Spark | 4.50 |"]
    assert found.as_dict()["medians"]["start"] == {"eonative": 2.0, "mm2": 10.0}
