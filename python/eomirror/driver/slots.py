"""
Decides when partitions leave a lane that has no slot, and when they return.

A lane waits from the loss of its worker, or from its submission to Spark, until an attempt of it connects.  The
backoff between two attempts does not count: a lane whose tasks crash has a slot, and what crashes them must not go to
another lane.  While a lane waits for too long and others run, those get its partitions; the lane then submits a small
job, which begins when Spark has a slot again.
"""

from __future__ import annotations

import threading

__all__ = ["LOST_SECONDS", "PARTED_SECONDS", "TOLD_SECONDS", "WAIT_SECONDS", "Slots"]

#: Longest time for which a lane waits for a slot while others run.  A new executor on a free slot takes 5 s, on a busy
#: machine more; and the promise is 15 s from the loss on, of which publication, fence and first commit take 2 s.
WAIT_SECONDS = 8.0

#: Time after which the timeline and the status say that a lane waits for a slot.
TOLD_SECONDS = 4.0

#: Time after which an attempt whose connection broke is taken for dead, unless Spark reports its end.
LOST_SECONDS = 0.5

#: The same for one that took its leave: a busy machine takes a second for its result, which a lane whose executor was
#: killed cannot pass on.
PARTED_SECONDS = 3.0

# partitions stay for so long where they are, twice as long after each return: a slot that comes and goes moves no lane
_STAY_SECONDS = 5.0
_MOST_STAY_SECONDS = 300.0
# a slot that is free for a shorter time is one of a lane between two attempts
_FREE_SECONDS = 1.0
# and one that was not seen for so long may be gone
_SEEN_SECONDS = 6.0


class Slots:
    """
    Tracks the lanes of one link.  Thread-safe.

    Attributes:
        lent: Lanes whose partitions others have, with the time since when.
    """

    def __init__(self) -> None:
        self.lent: dict[int, float] = {}
        self._lock = threading.Lock()
        # when the first lane ran: before, Spark may only be starting
        self._first: float | None = None
        self._waiting: dict[int, float] = {}
        # lanes in a backoff, with the end of their last attempt
        self._between: dict[int, float] = {}
        self._running: set[int] = set()
        # since when, and the time of its death
        self._lost: dict[int, tuple[float, float]] = {}
        # when Spark had a slot for a lane that was lent, first and last
        self._found: dict[int, tuple[float, float]] = {}
        self._returns: dict[int, int] = {}

    def begun(self, lane: int, now: float) -> None:
        """Records that an attempt was submitted."""
        with self._lock:
            self._lost.pop(lane, None)
            ended = self._between.pop(lane, now)
            if lane not in self._running and lane not in self.lent:
                self._waiting[lane] = self._waiting.get(lane, now) + now - ended

    def connected(self, lane: int, now: float) -> None:
        """Records that an attempt connected."""
        with self._lock:
            self._forget(lane)
            self._lost.pop(lane, None)
            self._running.add(lane)
            # what was free may be taken now
            self._found.clear()
            self._first = now if self._first is None else self._first

    def disconnected(self, lane: int, now: float, *, parted: bool) -> None:
        """Records that the newest connection of a lane broke; ``parted`` is True if the lane took its leave."""
        with self._lock:
            if lane in self._running:
                self._running.discard(lane)
                self._lost[lane] = now, now + (PARTED_SECONDS if parted else LOST_SECONDS)

    def ended(self, lane: int, *, crashed: bool, now: float) -> None:
        """Records the end of an attempt; ``crashed`` is True if it made no report."""
        with self._lock:
            lost = self._lost.pop(lane, None)
            self._running.discard(lane)
            if not crashed or lane in self.lent:
                # it has no partitions that wait
                self._forget(lane)
            else:
                self._waiting.setdefault(lane, now if lost is None else lost[0])
                self._between[lane] = now

    def rests(self, lane: int) -> None:
        """Records that a lane has nothing to mirror, such as one whose topics are paused."""
        with self._lock:
            self._forget(lane)

    def found(self, lane: int, now: float) -> None:
        """Records that Spark has a slot for a lane that was lent."""
        with self._lock:
            first, last = self._found.get(lane, (now, now))
            self._found[lane] = first if now - last <= _SEEN_SECONDS else now, now

    def running(self) -> list[int]:
        """Returns the lanes that run."""
        with self._lock:
            return sorted(self._running - self.lent.keys())

    def given(self) -> tuple[int, int]:
        """Returns the number of lanes that run, and of those that want to."""
        with self._lock:
            return len(self._running), len({*self._running, *self._lost, *self._waiting, *self.lent})

    def waiting(self, now: float) -> list[int]:
        """Returns the lanes that have waited for a slot for some time and have their partitions."""
        with self._lock:
            if self._first is None:
                return []
            lost = {lane: since for lane, (since, _) in self._lost.items()}
            waits = {**self._submitted(), **lost}
            return [lane for lane in sorted(waits) if now - max(waits[lane], self._first) >= TOLD_SECONDS]

    def dead(self, now: float) -> list[int]:
        """Returns the lanes whose attempt is taken for dead, each once."""
        with self._lock:
            dead = [lane for lane, (_, at) in self._lost.items() if now >= at]
            for lane in dead:
                self._waiting.setdefault(lane, self._lost.pop(lane)[0])
            return dead

    def due(self, now: float) -> int | None:
        """Returns a lane whose partitions are to go to the lanes that run; None for none."""
        with self._lock:
            if not self._running or self._first is None:
                return None
            for lane, since in self._submitted().items():
                if lane not in self.lent and now - max(since, self._first) >= WAIT_SECONDS:
                    return lane
            return None

    def lend(self, lane: int, now: float) -> None:
        """Records that a lane's partitions go to others."""
        with self._lock:
            self.lent[lane] = now
            self._forget(lane)
            self._found.pop(lane, None)

    def returning(self, now: float) -> int | None:
        """Returns a lane that is to get its partitions back; None for none."""
        with self._lock:
            if self._waiting or self._lost:
                # the free slot is for the lane that waits with its partitions
                return None
            for lane, since in self.lent.items():
                stay = min(_MOST_STAY_SECONDS, _STAY_SECONDS * 2.0 ** min(self._returns.get(lane, 0), 16))
                first, last = self._found.get(lane, (now, now))
                free = now - first >= _FREE_SECONDS and now - last <= _SEEN_SECONDS
                if free and now - since >= stay:
                    return lane
            return None

    def returned(self, lane: int) -> None:
        """Records that a lane has its partitions again."""
        with self._lock:
            del self.lent[lane]
            # the slot is for this lane, whichever one saw it
            self._found.clear()
            self._returns[lane] = self._returns.get(lane, 0) + 1

    # -- inside, under the lock ------------------------------------------------------------------

    def _submitted(self) -> dict[int, float]:
        return {lane: since for lane, since in self._waiting.items() if lane not in self._between}

    def _forget(self, lane: int) -> None:
        self._waiting.pop(lane, None)
        self._between.pop(lane, None)
