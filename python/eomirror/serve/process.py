"""Reads figures of this process."""

from __future__ import annotations

import contextlib

import psutil

from eomirror.metrics.collect import ProcessFacts

__all__ = ["process_facts"]


def process_facts(version: str) -> ProcessFacts:
    """Returns the figures of this process; ``version`` is the release of eomirror."""
    process = psutil.Process()
    with process.oneshot():
        times, memory, started = process.cpu_times(), process.memory_info(), process.create_time()
    files: int | None = None
    with contextlib.suppress(psutil.Error, AttributeError):
        files = process.num_fds()
    return ProcessFacts(version, times.user + times.system, memory.rss, started, files)
