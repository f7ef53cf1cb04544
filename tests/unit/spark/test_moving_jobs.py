"""When the attempts that began before Spark was ready are told to move, and what is left of their processes."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from eomirror.lane.spec import StopReason
from eomirror.spark.local_lanes import LocalWorkers, MovingJobs
from support.fakes.lane_fakes import ORDERS, spec

_MOVE = {"type": "stop", "reason": StopReason.MOVE}


def test_an_attempt_is_told_to_move_also_if_it_connects_late_and_none_after_it() -> None:
    """A message to an attempt that has not connected goes nowhere; its greeting has it.  The next one runs in Spark."""
    began, ends = threading.Event(), threading.Event()
    released: list[tuple[str, int, bool]] = []

    def run(_: Any) -> str:
        began.set()
        assert ends.wait(30)
        return "here"

    sent: list[Any] = []
    workers: Any = SimpleNamespace(run=run, release=lambda *lane, last: released.append((*lane, last)))
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
    # one that began too late for a worker of its own; the first one still has its worker
    assert jobs.run(replace(first, lane=1)) == "there"

    ends.set()
    thread.join(30)
    assert jobs.greeting(attempt) == []
    assert [*reports, jobs.run(first)] == ["here", "there"]
    assert released == [(first.link.name, 1, False), (first.link.name, first.lane, True)]


def test_without_workers_the_server_ends_once_spark_is_up() -> None:
    """Also if no lane began before: it would keep the memory of a lane's modules for the whole run."""
    unused: Any = None
    workers = LocalWorkers(unused, {}, os.close)
    try:
        workers.release("a->b", 0, last=False)
        assert workers._server.poll() is None
        workers.release("a->b", 0, last=True)
        assert workers._server.wait(60) == 0
        workers.release("a->b", 1, last=True)
    finally:
        workers.close()
