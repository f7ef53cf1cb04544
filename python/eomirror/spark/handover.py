"""
Keeps a lane running between two epochs.

At the end of its epoch a lane returns its slot to Spark.  The next epoch usually starts on the same worker a moment
later.  Without this module it would close all connections and open them again: new producer, InitProducerId, read of
control and positions, comparison of both sides.  Records would wait for that (measured on a busy machine: p50 1.2 s).
So a lane that ended its epoch normally is parked in its process, and its direct successor resumes it.

The rest is the time that Spark takes for a result, a job and a task: 70 to 200 ms on an idle machine, 900 on a busy
one.  During that time the parked lane mirrors on in its own thread, as the attempt that it was::

    task of epoch 7          the lane                            task of epoch 8
    report, to Spark         mirrors on (thread), as epoch 7
                             ...                                 starts, asks for the lane
                             finishes its transaction, stops
                                                                 claim of epoch 8, mirrors

A successor waits for the current transaction only, and at most `HAND_OVER_SECONDS`: it then takes over a lane that has
not stopped as if it were on another worker.  If no successor comes, the lane stops after `OVERLAP_SECONDS` and is
closed after `PARKED_SECONDS`.

Why that is safe
----------------
The successor uses the same producer.  If another producer has taken the lane's transactional.id in between, the first
commit, the claim, is fenced, and the successor ends like any fenced attempt (EO-2).  A new generation fences every lane
that loses a partition by it, so it cannot be missed either.  A parked lane knows its positions because it committed
them, as within an epoch.

A lane that mirrors on is an attempt that overlaps with another one: a successor on another worker fences it by
InitProducerId before it reads positions, and the lane's transaction is aborted or its positions are read.  It never
takes the lane's transactional.id again: a step that needs that (a suspect commit, a refused record) ends it.  It keeps
its connection to the driver until it stops: the driver can stop it, counts its records, and releases a link only when
all connections of its lanes are closed.

A worker that dies in between leaves a transaction open, like one that is killed within an epoch.  Between two tasks
PySpark removes all signal handlers (pyspark/daemon.py), so SIGHUP and SIGTERM have that effect then.

Only the direct successor may resume the lane: the same run, generation and lane, the next epoch, its first attempt, and
all of its partitions.  Any other attempt closes the parked lane and starts from the committed state on the target.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.lane.spec import Ending

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from eomirror.lane.runner import LaneRunner
    from eomirror.lane.spec import AssignedPartition, LaneMailbox, LaneSpec

__all__ = ["HAND_OVER_SECONDS", "OVERLAP_SECONDS", "PARKED_SECONDS", "ParkedLane", "Parking", "is_successor"]

log = structlog.get_logger(__name__)

#: A lane whose successor does not come within this time was resumed on another worker: its connections are closed.
PARKED_SECONDS = 15.0

#: Time that a successor waits for the lane's transaction.
HAND_OVER_SECONDS = 2.0

#: Time that a parked lane mirrors on: the time that Spark needs for a task, also on a new worker or a busy machine.
OVERLAP_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class ParkedLane:
    """
    A lane between two epochs.

    Attributes:
        spec: Spec of the epoch that is over.
        pump: Runner of the lane; has no open transaction when the lane is parked and when it is taken.
        mailbox: Connection of that epoch to the driver.
        close: Closes all clients of the lane.
    """

    spec: LaneSpec
    pump: LaneRunner
    mailbox: LaneMailbox
    close: Callable[[], None]


def is_successor(
    before: LaneSpec, mirrored: Collection[AssignedPartition], after: LaneSpec, *, generation: int
) -> bool:
    """
    Returns True if ``after`` may resume the parked lane of ``before``; see the module's docstring.

    Args:
        before: Spec of the epoch that is over.
        mirrored: All partitions that it mirrored at its end, including those added by revisions.
        after: Spec of the attempt that starts.
        generation: Generation of the lane at its end: it may have given partitions away that ``after`` still names.
    """
    same = (before.link, before.source, before.target, before.run, generation, before.lane) == (
        after.link,
        after.source,
        after.target,
        after.run,
        after.generation,
        after.lane,
    )
    following = (after.epoch, after.attempt) == (before.epoch + 1, 1)
    # a lane that was built for a slow target fetches small amounts for its whole life
    alike = before.overdue == after.overdue
    return same and following and alike and set(mirrored) <= set(after.partitions)


class Parking:
    """
    Holds the parked lane of a process, at most one.  Thread-safe.

    Args:
        clock: Measures time-outs.
        patience: Seconds that a successor waits for the transaction.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, patience: float = HAND_OVER_SECONDS) -> None:
        self._clock = clock
        self._patience = patience
        self._lock = threading.Lock()
        self._held: _Keeper | None = None

    def put(
        self, lane: ParkedLane, *, seconds: float = PARKED_SECONDS, overlap: float = OVERLAP_SECONDS
    ) -> bool:
        """
        Parks a lane; it mirrors on for a while, and is closed if no successor takes it in time.

        Args:
            lane: The lane; its connection to the driver is closed when it stops.
            seconds: Time after the lane's stop until it is closed.
            overlap: Longest time that it mirrors on.

        Returns:
            False if no thread could be started; the lane is then unchanged and still belongs to the caller.
        """
        self.leave()
        keeper = _Keeper(lane, _End(overlap, self._clock), seconds)
        with self._lock:
            self._held = keeper
        # started after PySpark forked this worker, and ended before it forks another
        thread = threading.Thread(target=keeper.keep, name=f"parked-lane-{lane.spec.lane}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # out of threads
            log.warning("lane_not_parked", lane=lane.spec.lane, error=str(error))
            with self._lock:
                self._held = None
            return False
        return True

    def take(self, spec: LaneSpec) -> ParkedLane | None:
        """Returns the parked lane if ``spec`` is its successor, else closes it.  Waits for its transaction."""
        keeper = self._hand_over()
        if keeper is None:
            return None
        lane = keeper.lane
        if not is_successor(lane.spec, lane.pump.mirrored, spec, generation=lane.pump.generation):
            _close(lane)
            return None
        return lane

    def leave(self) -> None:
        """Closes the parked lane, if any; waits for its transaction."""
        keeper = self._hand_over()
        if keeper is not None:
            _close(keeper.lane)

    def _hand_over(self) -> _Keeper | None:
        with self._lock:
            keeper = self._held
        if keeper is None:
            return None
        # a signal may end this wait; its handler still finds the lane here
        mine = keeper.hand_over(self._patience)
        with self._lock:
            if self._held is keeper:
                self._held = None
        return keeper if mine else None


class _End:
    """End of the time that a parked lane mirrors on: a `Term`."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._deadline = Deadline(seconds, clock)
        self._ended = threading.Event()

    def end(self) -> None:
        self._ended.set()

    @property
    def passed(self) -> bool:
        return self._ended.is_set() or self._deadline.passed


class _Keeper:
    """Thread of a parked lane: mirrors on, stops, and closes the lane unless it was handed over."""

    def __init__(self, lane: ParkedLane, end: _End, seconds: float) -> None:
        self.lane = lane
        self._end = end
        self._seconds = seconds
        self._lock = threading.Lock()
        self._gone = self._given_up = False
        self._stopped = threading.Event()
        self._taken = threading.Event()

    def keep(self) -> None:
        """Runs the lane's thread."""
        fit = False
        try:
            fit = self._mirror_on()
            if not fit and self._claim():
                # close before the stop is visible: the next attempt takes the lane's id with its own producer
                _close(self.lane)
        finally:
            # always, so that a successor does not wait for a failed lane
            self._stopped.set()
            self.lane.mailbox.close()
        if fit and (not self._taken.wait(self._seconds) or self._given_up) and self._claim():
            _close(self.lane)

    def hand_over(self, seconds: float) -> bool:
        """Requests a stop and waits for it; returns True if the lane belongs to the caller, to resume or close it."""
        self._end.end()
        if not self._stopped.wait(seconds):
            # set before `_taken`: the lane's thread then closes the lane
            self._given_up = True
            log.warning("parked_lane_does_not_rest", lane=self.lane.spec.lane, epoch=self.lane.spec.epoch)
        self._taken.set()
        return not self._given_up and self._claim()

    def _mirror_on(self) -> bool:
        try:
            self.lane.pump.extend(self._end)
            report = self.lane.pump.run()
        except BaseException:
            # a panic of the native plane is not an `Exception`; signals never reach this thread
            log.exception("parked_lane_failed", lane=self.lane.spec.lane)
            return False
        log.debug("parked_lane_rests", lane=report.lane, ending=str(report.ending), reason=report.reason)
        return report.ending in {Ending.EPOCH, Ending.STOPPED} and not report.stopped_topics

    def _claim(self) -> bool:
        with self._lock:
            mine, self._gone = not self._gone, True
        return mine


def _close(lane: ParkedLane) -> None:
    log.debug("parked_lane_closed", lane=lane.spec.lane, epoch=lane.spec.epoch)
    lane.close()
