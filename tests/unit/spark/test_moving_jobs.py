"""When the attempts that began before Spark was ready are told to move."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from eomirror.lane.spec import StopReason
from eomirror.spark.local_lanes import MovingJobs
from support.fakes.lane_fakes import ORDERS, spec

_MOVE = {"type": "stop", "reason": StopReason.MOVE}


def test_an_attempt_is_told_to_move_also_if_it_connects_late_and_none_after_it() -> None:
    """A message to an attempt that has not connected goes nowhere; its greeting has it.  The next one runs in Spark."""
    began, ends = threading.Event(), threading.Event()
    released: list[tuple[str, int]] = []

    def run(_: Any) -> str:
        began.set()
        assert ends.wait(30)
        return "here"

    sent: list[Any] = []
    workers: Any = SimpleNamespace(run=run, release=lambda *lane: released.append(lane))
    jobs = MovingJobs(workers, lambda link, lane, messages: sent.append((link, lane, list(messages))))
    first = spec(ORDERS)
    attempt = (first.link.name, first.lane, first.epoch, first.attempt)
    reports: list[Any] = []
    thread = threading.Thread(target=lambda: reports.append(jobs.run(first)))
    thread.start()
    assert began.wait(30)
    assert jobs.greeting(attempt) == []

    in_spark: Any = SimpleNamespace(run=lambda _: "there")
    jobs.move(in_spark)
    assert sent == [(first.link.name, first.lane, [_MOVE])]
    assert jobs.greeting(attempt) == [_MOVE]

    ends.set()
    thread.join(30)
    assert jobs.greeting(attempt) == []
    assert [*reports, jobs.run(first)] == ["here", "there"]
    assert released == [(first.link.name, first.lane)]
