"""
Where a running mirror stands, put together from what its lanes say: pure, reports and time in, a picture out.

`Progress` collects; `Snapshot` is what a callback, the terminal and the metrics get; `RunReport` is what a run
leaves behind.  Counters are totals of the run: a lane counts from 0 in every attempt, and this package adds up.
"""

from __future__ import annotations

from eomirror.progress.collect import SILENT_SECONDS, Progress
from eomirror.progress.snapshot import (
    RATE_WINDOW_SECONDS,
    Counters,
    GroupsSnapshot,
    LaneSnapshot,
    LinkReport,
    LinkSnapshot,
    PartitionSnapshot,
    RunReport,
    Snapshot,
    TopicSnapshot,
)

__all__ = [
    "RATE_WINDOW_SECONDS",
    "SILENT_SECONDS",
    "Counters",
    "GroupsSnapshot",
    "LaneSnapshot",
    "LinkReport",
    "LinkSnapshot",
    "PartitionSnapshot",
    "Progress",
    "RunReport",
    "Snapshot",
    "TopicSnapshot",
]
