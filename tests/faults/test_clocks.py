"""
Wall clocks that are wrong (fault F34): durations come from the monotonic clock, so nothing may change.

The clock is injected: a ``sitecustomize`` that every Python process of the mirror loads, driver and workers, adds to
`time.time` and `time.time_ns` what a file says at that moment.  librdkafka and the JVM keep the machine's clock.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from eomirror.clock import SystemClock
from eomirror.config import load_config
from eomirror.status.reader import StatusReader

if TYPE_CHECKING:
    from pathlib import Path

    from support.links.scene import Scene

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(900),
]  # fmt: skip

DAY = 86_400

SHIFT = """
import os
import time

_real = time.time_ns
_path = os.environ["EOMIRROR_TEST_CLOCK"]


def _shift():
    try:
        with open(_path) as file:
            return int(file.read() or 0)
    except (OSError, ValueError):
        return 0


time.time_ns = lambda: _real() + _shift() * 1_000_000_000
time.time = lambda: time.time_ns() / 1e9
"""


class ShiftedClock(SystemClock):
    """A machine whose wall clock is wrong by so many seconds."""

    def __init__(self, seconds: int) -> None:
        self._shift_ms = seconds * 1000

    def wall_ms(self) -> int:
        return super().wall_ms() + self._shift_ms


@pytest.mark.fault("F34")
@pytest.mark.parametrize("first", [DAY, -DAY])
def test_a_clock_that_is_a_day_wrong_changes_nothing(
    command_scene: Scene, tmp_path: Path, first: int
) -> None:
    """F34: wrong from the start, put right under the running mirror, wrong the other way; and an onlooker's."""
    scene = command_scene
    clock = tmp_path / "clock"
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SHIFT)
    environment = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")])),
        "EOMIRROR_TEST_CLOCK": str(clock),
    }

    def run(shifts: list[int]) -> None:
        clock.write_text(str(shifts[0]))
        mirror = scene.command(environment=environment, proxied=False)
        scene.start(mirror)
        for shift in shifts[1:]:
            clock.write_text(str(shift))
            scene.entry.injected()
            scene.heal(15.0)
            scene.write_for(1_000)
        assert not mirror.said("lane_retries"), mirror.log
        scene.watch_over(None)
        mirror.stop()

    run([first, 0, first])
    run([-first, first])
    written = [position["timestamp"] / 1000 for position in scene.positions() if "topic" in position]
    # the injection works: positions were stamped more than a day apart
    assert max(written) - min(written) > DAY
    last = scene.command(proxied=False)
    scene.start(last)
    scene.write_for(500)
    scene.catch_up()

    config = load_config(scene.settings(proxied=False))
    for shift in (0, first, -first):
        # the onlooker's clock, this time
        reader = StatusReader(
            config.links[0], config.clusters["source"], config.clusters["target"], clock=ShiftedClock(shift)
        )
        # the last transaction of the traffic may be an aborted one, which no reader of the copy waits for
        scene.wait(lambda: reader.read().lag_records == 0, 30.0, "the positions do not reach the end")  # noqa: B023
        for _ in range(2):
            status = reader.read()
            assert status.state == "running", shift
            assert status.clock_offset_seconds == pytest.approx(-shift, abs=10.0 if shift else 0.0)
            assert status.lag_records == 0
        reader.close()
    scene.judge()
    assert len(scene.check_generations()) == 3
