"""
Decides when partitions leave a lane that has no slot, and when they return. Pure.

A lane waits from the loss of its worker, or from its submission to Spark, until an attempt of it connects.  While one
waits for too long and others run, those get its partitions; the lane then submits a small job, which begins when Spark
has a slot again.
"""

from __future__ import annotations

import threading

__all__ = ["LOST_SECONDS", "WAIT_SECONDS", "Slots"]

#: Longest time for which a lane waits for a slot while others run.  A new executor on a free slot takes 5 s, on a busy
#: machine more; and the promise is 15 s from the loss on, of which publication, fence and first commit take 2 s.
WAIT_SECONDS = 8.0

#: Time after which an attempt whose connection broke is taken for dead: a displaced lane connects again sooner.
LOST_SECONDS = 2.0

# partitions stay for so long where they are, twice as long after each return: a slot that comes and goes moves no lane
_STAY_SECONDS = 5.0
_MOST_STAY_SECONDS = 300.0


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
        self._running: set[int] = set()
        self._lost: dict[int, float] = {}
        self._found: set[int] = set()
        self._returns: dict[int, int] = {}

    def begun(self, lane: int, now: float) -> None:
        """Records that an attempt was submitted."""
        with self._lock:
            self._lost.pop(lane, None)
            if lane not in self._running:
                self._waiting.setdefault(lane, now)

    def connected(self, lane: int, now: float) -> None:
        """Records that an attempt connected."""
        with self._lock:
            self._waiting.pop(lane, None)
            self._lost.pop(lane, None)
            self._running.add(lane)
            self._first = now if self._first is None else self._first

    def disconnected(self, lane: int, now: float) -> None:
        """Records that the newest connection of a lane broke."""
        with self._lock:
            if lane in self._running:
                self._running.discard(lane)
                self._lost[lane] = now

    def ended(self, lane: int, *, crashed: bool, now: float) -> None:
        """Records the end of an attempt; ``crashed`` is True if it made no report."""
        with self._lock:
            lost = self._lost.pop(lane, None)
            self._running.discard(lane)
            if not crashed:
                self._waiting.pop(lane, None)
            elif lost is not None:
                self._waiting.setdefault(lane, lost)
            else:
                self._waiting.setdefault(lane, now)

    def found(self, lane: int) -> None:
        """Records that Spark has a slot for a lane that was lent."""
        with self._lock:
            self._found.add(lane)

    def running(self) -> list[int]:
        """Returns the lanes that run."""
        with self._lock:
            return sorted(self._running)

    def dead(self, now: float) -> list[int]:
        """Returns the lanes whose attempt is taken for dead, each once."""
        with self._lock:
            dead = [lane for lane, since in self._lost.items() if now - since >= LOST_SECONDS]
            for lane in dead:
                self._waiting.setdefault(lane, self._lost.pop(lane))
            return dead

    def due(self, now: float) -> int | None:
        """Returns a lane whose partitions are to go to the lanes that run; None for none."""
        with self._lock:
            if not self._running or self._first is None:
                return None
            for lane, since in self._waiting.items():
                if lane not in self.lent and now - max(since, self._first) >= WAIT_SECONDS:
                    return lane
            return None

    def lend(self, lane: int, now: float) -> None:
        """Records that a lane's partitions go to others."""
        with self._lock:
            self.lent[lane] = now
            self._waiting.pop(lane, None)
            self._found.discard(lane)

    def returning(self, now: float) -> int | None:
        """Returns a lane that is to get its partitions back; None for none."""
        with self._lock:
            for lane, since in self.lent.items():
                stay = min(_MOST_STAY_SECONDS, _STAY_SECONDS * 2.0 ** min(self._returns.get(lane, 0), 16))
                if lane in self._found and now - since >= stay:
                    return lane
            return None

    def returned(self, lane: int) -> None:
        """Records that a lane has its partitions again."""
        with self._lock:
            del self.lent[lane]
            self._found.discard(lane)
            self._returns[lane] = self._returns.get(lane, 0) + 1
