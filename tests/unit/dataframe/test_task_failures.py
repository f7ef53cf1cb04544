"""The driver ends an attempt whose writing task has failed, and no other one."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.dataframe import task_failures
from eomirror.dataframe.task_failures import FailureWatch


class FakeContext:
    """A SparkContext with one job of the attempt, whose last stage is 7."""

    def __init__(self, *, tasks: int, failed: int, attempt: int) -> None:
        self.tags: list[str] = []
        self.cancelled = threading.Event()
        self.looked = threading.Event()
        stage = SimpleNamespace(
            numTasks=lambda: tasks, numFailedTasks=lambda: failed, currentAttemptId=lambda: attempt
        )
        self._stages = {3: None, 7: stage}
        self._jsc = SimpleNamespace(sc=lambda: SimpleNamespace(statusTracker=lambda: self))

    def addJobTag(self, tag: str) -> None:  # noqa: N802  Spark's name
        self.tags.append(tag)

    def removeJobTag(self, tag: str) -> None:  # noqa: N802  Spark's name
        self.tags.remove(tag)

    def cancelJobsWithTag(self, tag: str) -> None:  # noqa: N802  Spark's name
        assert tag in self.tags
        self.cancelled.set()

    def getJobIdsForTag(self, tag: str) -> list[int]:  # noqa: N802  Spark's name
        return [1] if tag in self.tags else []

    def getJobInfo(self, job: int) -> Any:  # noqa: N802  Spark's name
        assert job == 1
        return _Option(SimpleNamespace(stageIds=lambda: [7, 3]))

    def getStageInfo(self, stage: int) -> Any:  # noqa: N802  Spark's name
        self.looked.set()
        return _Option(self._stages[stage])


class _Option:
    def __init__(self, value: Any) -> None:
        self._value = value

    def isDefined(self) -> bool:  # noqa: N802  Scala's name
        return self._value is not None

    def get(self) -> Any:
        return self._value


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_failures, "_LOOK_SECONDS", 0.01)


@pytest.mark.parametrize(("failed", "attempt"), [(1, 0), (0, 1)])
def test_a_failed_writing_task_ends_the_job(failed: int, attempt: int) -> None:
    """One that failed, or a second attempt of the stage: the first one has claims that no report follows."""
    context = FakeContext(tasks=2, failed=failed, attempt=attempt)
    with FailureWatch(context, "orders/1", 2):
        assert context.cancelled.wait(10)
    assert context.tags == []


@pytest.mark.parametrize(("tasks", "failed"), [(2, 0), (5, 3)])
def test_a_healthy_stage_and_one_that_places_rows_go_on(tasks: int, failed: int) -> None:
    """Spark repeats tasks of other stages."""
    context = FakeContext(tasks=tasks, failed=failed, attempt=0)
    with FailureWatch(context, "orders/1", 2):
        assert context.looked.wait(10)
    assert not context.cancelled.is_set()
