"""
Ends the job of an attempt when one of its writing tasks has failed, where speculation is on.

A second copy of a writing task does not know if the first one is well, so it waits until Spark ends it.  Behind a lost
executor it would wait for as long as the transaction may last.  Spark tells the driver: a task that failed in the stage
that writes has claimed its place and will not report, so the attempt cannot succeed.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Self

import structlog

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["FailureWatch"]

log = structlog.get_logger(__name__)

_LOOK_SECONDS = 0.5


class FailureWatch:
    """
    Cancels the job of an attempt when a writing task fails; a context manager around the job.

    Args:
        context: The SparkContext.
        token: Names the attempt.
        tasks: Number of writing tasks.
    """

    def __init__(self, context: Any, token: str, tasks: int) -> None:
        self._context, self._tag, self._tasks = context, token, tasks
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="eomirror-tasks", daemon=True)

    def __enter__(self) -> Self:
        self._context.addJobTag(self._tag)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._context.removeJobTag(self._tag)

    def _run(self) -> None:
        try:
            while not self._ended.wait(_LOOK_SECONDS):
                if self._has_failed():
                    log.warning("attempt_ended", attempt=self._tag, reason="a writing task failed")
                    self._context.cancelJobsWithTag(self._tag)
                    return
        except Exception as error:  # noqa: BLE001  Spark's internals, which another release may lack
            log.warning("tasks_not_watched", attempt=self._tag, reason=str(error)[:200])

    def _has_failed(self) -> bool:
        tracker = self._context._jsc.sc().statusTracker()  # noqa: SLF001  py4j
        for job in tracker.getJobIdsForTag(self._tag):
            info = tracker.getJobInfo(job)
            # the stage that writes is the last one of its job
            stage = tracker.getStageInfo(max(info.get().stageIds())) if info.isDefined() else info
            if not stage.isDefined() or stage.get().numTasks() != self._tasks:
                continue
            if stage.get().numFailedTasks() or stage.get().currentAttemptId():
                return True
        return False
