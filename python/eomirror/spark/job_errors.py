"""Classifies failed Spark jobs from the text of their errors. Pure."""

from __future__ import annotations

import enum

__all__ = ["Crash", "classify_job_error"]


class Crash(enum.StrEnum):
    """Kinds of failures of a Spark job without a report of the lane."""

    WORKER_DIED = "worker died"
    TASK_RAISED = "task raised"
    CANCELLED = "cancelled"
    ENGINE_GONE = "engine gone"


def classify_job_error(text: str) -> Crash:
    """Returns the kind of failure from the text of a failed Spark job; Spark provides only the text."""
    if "was cancelled" in text or "cancelled part of cancelled job group" in text or "killed by user" in text:
        return Crash.CANCELLED
    if "SparkContext was shut down" in text or "stopped SparkContext" in text:
        return Crash.ENGINE_GONE
    if "Python worker exited unexpectedly" in text or "ExecutorLostFailure" in text or "EOFException" in text:
        return Crash.WORKER_DIED
    return Crash.TASK_RAISED
