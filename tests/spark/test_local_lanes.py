"""Lanes that begin in processes of the driver, and move to Spark when it is ready."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import fake_lanes
import psutil
import pytest
from engine import Run, link, notes, settings, wait_for

from eomirror.errors import MirrorError, UsageError
from eomirror.lane.spec import Ending

if TYPE_CHECKING:
    from pathlib import Path

    from eomirror.lane.spec import LaneSpec

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


def is_sparks(pid: int) -> bool:
    """Whether a process was forked by PySpark's daemon."""
    return "pyspark_daemon" in " ".join(psutil.Process(pid).parent().cmdline())


def test_lanes_begin_before_spark_and_move_to_it(folder: Path) -> None:
    """One epoch in a process of the driver, the next in a worker of Spark; no attempt fails, and no process is left."""
    with Run(fake_lanes.steady, spark_settings=settings(folder), local_lanes=True) as run:
        run.wait_for(lambda: len(notes(folder, "begin")) >= 2)
        assert run.driver._opened.spark is None
        first = {note["lane"]: note["pid"] for note in notes(folder, "begin")}
        assert not any(map(is_sparks, first.values()))
        run.wait_for(
            lambda: (
                {note["lane"] for note in notes(folder, "begin") if note["pid"] not in first.values()}
                == {0, 1}
            ),
            120,
        )
        moved = {note["lane"]: note["pid"] for note in notes(folder, "begin")}
        assert all(map(is_sparks, moved.values()))
        # no epoch was over: the move ended the first
        assert sorted(note["epoch"] for note in notes(folder, "begin")) == [1, 1, 2, 2]
        # the parked lane of a worker may live for 15 s
        wait_for(lambda: not [pid for pid in first.values() if psutil.pid_exists(pid)], 30)
    assert run.error is None
    assert {report.ending for _, report in run.reports} <= {Ending.EPOCH, Ending.STOPPED}
    for lane in (0, 1):
        specs: list[LaneSpec] = [spec for spec, _ in run.reports if spec.lane == lane]
        assert [(spec.epoch, spec.attempt) for spec in specs] == [(n + 1, 1) for n in range(len(specs))]


def test_a_killed_worker_is_followed_by_the_next_attempt(folder: Path) -> None:
    """As on Spark; the other lane goes on."""
    with Run(fake_lanes.steady, spark_settings=settings(folder), local_lanes=True) as run:
        run.wait_for(lambda: len(notes(folder, "begin")) >= 2)
        (victim,) = [note["pid"] for note in notes(folder, "begin") if note["lane"] == 0][:1]
        os.kill(victim, signal.SIGKILL)
        run.wait_for(
            lambda: [spec.attempt for spec, _ in run.reports if spec.lane == 0 and spec.attempt == 2]
        )
    died = [(spec.lane, report.ending) for spec, report in run.reports if report.ending.crashed]
    assert died == [(0, Ending.WORKER_DIED)]
    assert run.error is None


def test_a_lane_that_raises_is_tried_again(folder: Path) -> None:
    """The worker survives the exception, and the reason is its last line."""
    with Run(fake_lanes.raises_once, spark_settings=settings(folder), local_lanes=True) as run:
        run.wait_for(lambda: [note for note in notes(folder, "begin") if note["lane"] == 0])
    (raised,) = [report for _, report in run.reports if report.ending is Ending.TASK_RAISED]
    assert raised.reason == "ZeroDivisionError: a bug of the lane"
    assert run.error is None


def test_a_spark_that_does_not_start_ends_the_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lanes mirror, and finish; the error is that of the start, not a silent life without it."""

    # a JVM that fails leaves a pipe of pyspark's open, which Python would tell a later test
    def fails(*_: object, **__: object) -> None:
        raise MirrorError("the java virtual machine for spark does not start: too small")

    monkeypatch.setattr("eomirror.driver.driver.open_engine", fails)
    with Run(fake_lanes.steady, spark_settings=settings(folder), local_lanes=True) as run:
        run.wait(120)
    assert isinstance(run.error, MirrorError)
    assert "the java virtual machine for spark does not start" in str(run.error)
    assert len(notes(folder, "begin")) >= 2
    assert len(notes(folder, "stopped")) == 2


def test_too_few_slots_are_refused_before_a_lane_begins(folder: Path) -> None:
    """The slots of the master are known before it runs."""
    few = settings(folder, spark__master="local[1]")
    with Run(fake_lanes.steady, links=[link(lanes=2)], spark_settings=few, local_lanes=True) as run:
        run.wait(60)
    assert isinstance(run.error, UsageError)
    assert notes(folder, "begin") == []


def test_a_run_may_end_before_spark_is_needed(folder: Path) -> None:
    """It has caught up: no context is left behind, and the next run of this process makes its own."""
    with Run(fake_lanes.steady, until=1.5, spark_settings=settings(folder), local_lanes=True) as run:
        run.wait(60)
    assert run.error is None
    assert (run.result.exit_code, run.result.links[0].outcome) == (0, "time over")
