"""
Runs lanes as Spark jobs: one job with one task per attempt, in the pool and job group of its lane.

One job per lane, not one job with a task per lane: the failure of a task would abort the job, and with it all lanes.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.errors import MirrorError
from eomirror.lane.spec import Ending, LaneReport, LaneSpec
from eomirror.spark.task import WarmUpTask
from eomirror.spark.transport import is_local

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.spark.task import LaneTasks

__all__ = ["LaneJobs", "ending_of_job"]


def ending_of_job(text: str) -> Ending:
    """Returns how an attempt ended whose Spark job failed with this text; Spark provides only the text."""
    if "was cancelled" in text or "cancelled part of cancelled job group" in text or "killed by user" in text:
        return Ending.CANCELLED
    if "SparkContext was shut down" in text or "stopped SparkContext" in text:
        return Ending.ENGINE_GONE
    if "Python worker exited unexpectedly" in text or "ExecutorLostFailure" in text or "EOFException" in text:
        return Ending.WORKER_DIED
    return Ending.TASK_RAISED


log = structlog.get_logger(__name__)

_THRESHOLD = "spark.broadcast.UDFCompressionThreshold"
# size of a closure beside the spec: other fields of the task, PySpark's serializers
_AROUND_BYTES = 64 << 10


class LaneJobs:
    """
    Runs attempts on one Spark context.  Thread-safe; each attempt runs in its caller's thread.

    Args:
        context: The ``SparkContext``.
        tasks: Makes the tasks of the run.
    """

    def __init__(self, context: Any, tasks: LaneTasks) -> None:
        self._context = context
        self._tasks = tasks
        self._lock = threading.Lock()
        self._seed: Any = None
        self._limit: int | None = None

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """Returns a thread whose Spark jobs have their own local properties."""
        from pyspark import InheritableThread

        thread: threading.Thread = InheritableThread(target=target, name=name, daemon=True)
        return thread

    def run(self, spec: LaneSpec) -> LaneReport:
        """Runs one attempt; blocks until it ends."""
        task = self._tasks.of(spec, remote=not is_local(self._context.master))
        name, lane = spec.link.name, spec.lane
        try:
            if (refused := self._too_large(spec, len(task.packed))) is not None:
                return refused
            self._context.setLocalProperty("spark.scheduler.pool", f"eomirror/{name}/lane-{lane}")
            self._context.setJobGroup(
                _group(name, lane),
                f"eomirror {name}: lane {lane}, epoch {spec.epoch}, attempt {spec.attempt}, "
                f"{len(spec.partitions)} partitions",
            )
            (report,) = self._one_row().mapPartitions(task).collect()
        except Exception as error:  # noqa: BLE001  py4j, pyspark and socket errors: only their texts distinguish them
            return _crashed(spec, str(error), alive=self.alive)
        if isinstance(report, LaneReport):
            return report
        reason = f"the lane returned {type(report).__name__}, not a report"
        return spec.report(Ending.TASK_RAISED, reason, damaged=spec.damaged)

    def cancel(self, link: str, lane: int) -> None:
        """
        Cancels an attempt as the last resort: Spark kills the worker within about 2 s; never raises.

        The next producer with its transactional.id aborts the lane's open transaction, or the broker does.
        """
        try:
            self._context.cancelJobGroup(_group(link, lane))
        except Exception as error:  # noqa: BLE001  the JVM may have ended, and the job with it
            log.debug("cancel_failed", link=link, lane=lane, error=str(error))

    def warm_up(self, workers: int) -> threading.Thread:
        """Starts ``workers`` workers in the background, so that they import modules while the link is taken."""

        def run() -> None:
            try:
                self._context.setLocalProperty("spark.scheduler.pool", "eomirror/warm-up")
                self._context.setJobGroup("eomirror/warm-up", f"eomirror: start {workers} workers")
                self._context.parallelize(range(workers), workers).mapPartitions(WarmUpTask()).collect()
            except Exception as error:  # noqa: BLE001  lanes will have the same problem and report it
                log.debug("warm_up_failed", error=str(error))

        thread = self.thread(run, "warm-up")
        thread.start()
        return thread

    def await_slot(self, link: str, lane: int) -> bool:
        """Waits until Spark has begun a small job in the place of a lane; False if that failed or was cancelled."""
        try:
            self._context.setLocalProperty("spark.scheduler.pool", f"eomirror/{link}/lane-{lane}")
            self._context.setJobGroup(_group(link, lane), f"eomirror {link}: lane {lane} waits for a slot")
            self._one_row().mapPartitions(WarmUpTask()).collect()
        except Exception as error:  # noqa: BLE001  cancelled, or the context has stopped
            log.debug("slot_not_found", link=link, lane=lane, error=str(error))
            return False
        return True

    @property
    def alive(self) -> bool:
        """True if the Spark context runs."""
        try:
            java = self._context._jsc  # noqa: SLF001  pyspark has no public attribute for it
            return java is not None and not java.sc().isStopped()
        except Exception:  # noqa: BLE001  the JVM has ended
            return False

    def _too_large(self, spec: LaneSpec, size: int) -> LaneReport | None:
        """Returns a report that refuses a task if PySpark would write it, with its passwords, to a file; else None."""
        if self._limit is None:
            # the limit that PySpark applies to each closure (pyspark.core.rdd._prepare_for_python_RDD)
            self._limit = int(
                self._context._jvm.PythonUtils.getBroadcastThreshold(self._context._jsc)  # noqa: SLF001
            )
        if size + _AROUND_BYTES <= self._limit:
            return None
        reason = (
            f"link {spec.link.name}: lane {spec.lane} has {len(spec.partitions)} partitions, and its task of {size} "
            "bytes would be written to a file, including passwords"
        )
        fix = (
            f"use more lanes, or set {_THRESHOLD}={2 * (size + _AROUND_BYTES)} on the Spark context that runs "
            "the mirror"
        )
        return spec.report(Ending.FAILED, reason, MirrorError(reason, fix=fix))

    def _one_row(self) -> Any:
        # all attempts share the same input; the task itself differs, and is never written to a file
        with self._lock:
            if self._seed is None:
                self._seed = self._context.parallelize([0], 1)
            return self._seed


def _group(link: str, lane: int) -> str:
    return f"eomirror/{link}/lane-{lane}"


def _crashed(spec: LaneSpec, text: str, *, alive: bool) -> LaneReport:
    """Returns the report of an attempt whose job failed with an error of this text."""
    ending = ending_of_job(text) if alive else Ending.ENGINE_GONE
    if ending is Ending.ENGINE_GONE:
        error = MirrorError(
            "the spark context has stopped, and with it all lanes",
            fix="look for the reason in the log above, then start the mirror again; no record is lost",
        )
        return spec.report(ending, "the spark context has stopped", error, damaged=spec.damaged)
    reason = cause_of(text) if ending is Ending.TASK_RAISED else str(ending)
    return spec.report(ending, reason, damaged=spec.damaged)


def cause_of(text: str) -> str:
    """Returns the exception of the worker: the line after the last Python traceback, before the Java one."""
    cause, inside = "", False
    for line in text.splitlines():
        if line.lstrip().startswith("at org.apache"):
            break
        if "Traceback (most recent call last)" in line:
            inside = True
        elif inside and line and not line.startswith(" "):
            cause, inside = line, False
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return (cause or (lines or ["no reason given"])[0])[:500]
