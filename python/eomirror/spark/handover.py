"""
Keeps a lane going between two epochs.

When its epoch is over, a lane hands its place back to Spark.  Mostly the next epoch lands on the same worker a moment
later, and would then close every connection only to open it again: new producer, InitProducerId, control and
positions read, both sides compared.  Its records wait meanwhile (measured on a busy machine: p50 1.2 s).  So a lane
that ended its epoch well is parked in its process, and its direct successor goes on with it.

What is left is the time that Spark takes for a result, a job and a task: 70 to 200 ms on a calm machine, 900 on a
busy one.  For that time the parked lane goes on as it is, in a thread of its own, as the attempt that it was::

    task of epoch 7          the lane                            task of epoch 8
    report, to Spark         mirrors on (thread), as epoch 7
                             ...                                 comes, asks for it
                             finishes its transaction, rests
                                                                 claim of epoch 8, mirrors

Nobody waits for more than the transaction at hand, nor for longer than `HAND_OVER_SECONDS`: a lane that does not rest
by then is taken as if it were on another worker.  If no successor comes, the lane rests after `GOING_ON_SECONDS` and
is closed after `PARKED_SECONDS`.

Why that is safe
----------------
The successor goes on with the same producer: nobody has taken the lane's transactional.id in between, or else its
first commit, the claim, is fenced, and it ends like any fenced attempt (rule 2).  A new generation fences all lanes,
so it cannot be missed either.  What a parked lane knows of positions is what it committed itself, as within an epoch.

A lane that goes on is an attempt that overlaps with another: a successor on another worker fences it by InitProducerId
before it reads positions, and the lane's transaction is aborted or its positions are read.  It never takes the lane's
id again itself: whatever asks for that (a suspect commit, a refused record) ends it.  It keeps its line to the driver
until it rests, and no longer: it is told to stop, what it counts is counted, and the driver releases a link when
all lines of its lanes are closed.

A worker that dies in between leaves a transaction open like one that is killed within an epoch.  Between two tasks
PySpark takes every signal's handler away (pyspark/daemon.py), so that is what SIGHUP and SIGTERM do then.

Only the direct successor may take it: the same run, generation and lane, the next epoch, its first attempt, and all
of its partitions.  Everybody else starts from what the target says, and throws the parked lane away.
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

__all__ = ["GOING_ON_SECONDS", "HAND_OVER_SECONDS", "PARKED_SECONDS", "ParkedLane", "Parking", "is_successor"]

log = structlog.get_logger(__name__)

#: A lane whose successor does not come within this time went on elsewhere: its connections are closed.
PARKED_SECONDS = 15.0

#: For how long whoever comes waits for its transaction.
HAND_OVER_SECONDS = 2.0

#: For how long it mirrors on meanwhile: what Spark takes for a task, on a new worker and a busy machine as well.
GOING_ON_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class ParkedLane:
    """
    A lane between two epochs.

    Attributes:
        spec: Of the epoch that is over.
        pump: Without a transaction when it is parked, and when it is taken.
        mailbox: The epoch's line to the driver.
        close: Closes all of its clients.
    """

    spec: LaneSpec
    pump: LaneRunner
    mailbox: LaneMailbox
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
    """
    The one place for a parked lane in a process.  Thread-safe.

    Args:
        clock: Where time comes from.
        patience: For how many seconds a transaction is waited for.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, patience: float = HAND_OVER_SECONDS) -> None:
        self._clock = clock
        self._patience = patience
        self._lock = threading.Lock()
        self._held: _Keeper | None = None

    def put(
        self, lane: ParkedLane, *, seconds: float = PARKED_SECONDS, going_on: float = GOING_ON_SECONDS
    ) -> bool:
        """
        Park a lane; it goes on for a while, and is closed if nobody takes it in time.

        Args:
            lane: The lane; its line to the driver is closed when it rests.
            seconds: How long it rests.
            going_on: For how long it goes on at most.

        Returns:
            Whether it is parked; one for which there is no thread stays the caller's, as it was.
        """
        self.leave()
        keeper = _Keeper(lane, _End(going_on, self._clock), seconds)
        with self._lock:
            self._held = keeper
        # made after PySpark forked this worker, and gone before another could be
        thread = threading.Thread(target=keeper.keep, name=f"parked-lane-{lane.spec.lane}", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # the system gives no more threads
            log.warning("lane_not_parked", lane=lane.spec.lane, error=str(error))
            with self._lock:
                self._held = None
            return False
        return True

    def take(self, spec: LaneSpec) -> ParkedLane | None:
        """The parked lane, if ``spec`` is its successor; any other is closed.  Waits for its transaction."""
        keeper = self._hand_over()
        if keeper is None:
            return None
        lane = keeper.lane
        if not is_successor(lane.spec, lane.pump.mirrored, spec):
            _close(lane)
            return None
        return lane

    def leave(self) -> None:
        """Close what is parked; waits for its transaction."""
        keeper = self._hand_over()
        if keeper is not None:
            _close(keeper.lane)

    def _hand_over(self) -> _Keeper | None:
        with self._lock:
            keeper = self._held
        if keeper is None:
            return None
        # a signal may end this wait, and whoever handles it finds the lane where it was
        mine = keeper.hand_over(self._patience)
        with self._lock:
            if self._held is keeper:
                self._held = None
        return keeper if mine else None


class _End:
    """When a lane that goes on is to rest: a `Term`."""

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._deadline = Deadline(seconds, clock)
        self._asked = threading.Event()

    def ask(self) -> None:
        self._asked.set()

    @property
    def passed(self) -> bool:
        return self._asked.is_set() or self._deadline.passed


class _Keeper:
    """One parked lane: goes on, rests, and is closed unless it was handed over."""

    def __init__(self, lane: ParkedLane, end: _End, seconds: float) -> None:
        self.lane = lane
        self._end = end
        self._seconds = seconds
        self._lock = threading.Lock()
        self._gone = self._given_up = False
        self._rests = threading.Event()
        self._taken = threading.Event()

    def keep(self) -> None:
        """What the lane's thread does."""
        fit = False
        try:
            fit = self._go_on()
            if not fit and self._claim():
                # before anybody hears that it is over: who comes next takes the lane's id with a producer of its own
                _close(self.lane)
        finally:
            # whatever happened: nobody shall wait for what does not come
            self._rests.set()
            self.lane.mailbox.close()
        if fit and (not self._taken.wait(self._seconds) or self._given_up) and self._claim():
            _close(self.lane)

    def hand_over(self, seconds: float) -> bool:
        """Ask the lane to rest, and wait for it; whether it is the caller's now, to go on with or to close."""
        self._end.ask()
        if not self._rests.wait(seconds):
            # said before it is taken: its thread closes it, some time
            self._given_up = True
            log.warning("parked_lane_does_not_rest", lane=self.lane.spec.lane, epoch=self.lane.spec.epoch)
        self._taken.set()
        return not self._given_up and self._claim()

    def _go_on(self) -> bool:
        try:
            self.lane.pump.extend(self._end)
            report = self.lane.pump.run()
        except BaseException:
            # a panic of the native plane is no `Exception`, and no signal comes to this thread
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
