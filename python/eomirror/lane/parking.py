"""
Keeps a lane warm between two epochs.

When its epoch is over, a lane hands its place back to Spark.  Mostly the next epoch lands on the same worker a moment
later, and would then close every connection only to open it again: new producer, InitProducerId, control and
positions read, both sides compared.  Its records wait meanwhile (measured on a busy machine: p50 1.2 s).  So a lane
that ended its epoch well is parked in its process, idle, without a transaction, and its direct successor goes on
with it.

Why that is safe
----------------
The successor goes on with the same producer: nobody has taken the lane's transactional.id in between, or else its
first commit, the claim, is fenced, and it ends like any fenced attempt (rule 2).  A new generation fences all lanes,
so it cannot be missed either.  What a parked lane knows of positions is what it committed itself, as within an epoch.

Only the direct successor may take it: the same run, generation and lane, the next epoch, its first attempt, and all
of its partitions.  Everybody else starts from what the target says, and throws the parked lane away.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from eomirror.lane.pump import LanePump
    from eomirror.lane.spec import AssignedPartition, LaneSpec

__all__ = ["PARKED_SECONDS", "ParkedLane", "Parking", "is_successor"]

log = structlog.get_logger(__name__)

#: A lane whose successor does not come within this time went on elsewhere: its connections are closed.
PARKED_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class ParkedLane:
    """
    A lane between two epochs.

    Attributes:
        spec: Of the epoch that is over.
        pump: At rest, without a transaction.
        close: Closes all of its clients.
    """

    spec: LaneSpec
    pump: LanePump
    close: Callable[[], None]


def is_successor(before: LaneSpec, mirrored: Collection[AssignedPartition], after: LaneSpec) -> bool:
    """
    Whether ``after`` may go on with what an attempt of ``before`` left: see the module's docstring.

    Args:
        before: The epoch that is over.
        mirrored: All partitions that it mirrored in the end; revisions may have added some.
        after: The attempt that begins.
    """
    same = (before.link, before.source, before.target, before.run, before.generation, before.lane) == (
        after.link,
        after.source,
        after.target,
        after.run,
        after.generation,
        after.lane,
    )
    following = (after.epoch, after.attempt) == (before.epoch + 1, 1)
    # one that was made for a slow target fetches little at a time, for good
    alike = before.overdue == after.overdue
    return same and following and alike and set(mirrored) <= set(after.partitions)


class Parking:
    """The one place for a parked lane in a process.  Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: ParkedLane | None = None
        self._timer: threading.Timer | None = None

    def put(self, lane: ParkedLane, *, seconds: float = PARKED_SECONDS) -> None:
        """Park a lane; it is closed if nobody takes it in time."""
        self._leave()
        with self._lock:
            self._held = lane
            # made after PySpark forked this worker, and gone before another could be
            self._timer = threading.Timer(seconds, self._expire, [lane])
            self._timer.daemon = True
            self._timer.start()

    def take(self, spec: LaneSpec) -> ParkedLane | None:
        """The parked lane, if ``spec`` is its successor; any other is closed."""
        with self._lock:
            held = self._held
            if held is not None and is_successor(held.spec, held.pump.mirrored, spec):
                self._forget()
                return held
        self._leave()
        return None

    def _leave(self) -> None:
        with self._lock:
            held = self._held
            self._forget()
        if held is not None:
            log.debug("parked_lane_closed", lane=held.spec.lane, epoch=held.spec.epoch)
            held.close()

    def _expire(self, lane: ParkedLane) -> None:
        with self._lock:
            if self._held is not lane:
                return
            self._forget()
        log.debug("parked_lane_expired", lane=lane.spec.lane, epoch=lane.spec.epoch)
        lane.close()

    def _forget(self) -> None:
        self._held = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
