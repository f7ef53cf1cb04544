"""Classifies failed Spark jobs from the text of their errors. Pure."""

from __future__ import annotations

from eomirror.lane.spec import Ending

__all__ = ["ending_of_job"]


def ending_of_job(text: str) -> Ending:
    """Returns how an attempt ended whose Spark job failed with this text; Spark provides only the text."""
    if "was cancelled" in text or "cancelled part of cancelled job group" in text or "killed by user" in text:
        return Ending.CANCELLED
    if "SparkContext was shut down" in text or "stopped SparkContext" in text:
        return Ending.ENGINE_GONE
    if "Python worker exited unexpectedly" in text or "ExecutorLostFailure" in text or "EOFException" in text:
        return Ending.WORKER_DIED
    return Ending.TASK_RAISED
