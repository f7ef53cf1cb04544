"""Lanes between two epochs: they go on, who may take them, and when they are closed."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.lane.spec import Ending, LaneReport
from eomirror.spark.handover import ParkedLane, Parking, is_successor
from support.fakes.lane_fakes import ORDERS, PAYMENTS, spec

if TYPE_CHECKING:
    from collections.abc import Callable

BEFORE = spec(ORDERS)
AFTER = replace(BEFORE, epoch=BEFORE.epoch + 1, attempt=1)
_SECONDS = 10.0


class Pump:
    """Goes on until it is asked to rest, or until something ends it."""

    def __init__(self, ending: Ending = Ending.EPOCH, error: Exception | None = None) -> None:
        self.mirrored, self.generation = BEFORE.partitions, BEFORE.generation
        self.events: list[str] = []
        self.runs, self.hung_up, self.hangs = threading.Event(), threading.Event(), threading.Event()
        self._ending, self._error = ending, error
        self._end: Any = None

    def extend(self, end: Any) -> None:
        self._end = end

    def run(self) -> LaneReport:
        self.runs.set()
        self.events.append("goes on")
        if self._error is not None:
            raise self._error
        while self.hangs.is_set() or (self._ending is Ending.EPOCH and not self._end.passed):
            threading.Event().wait(0.002)
        self.events.append("rests")
        return LaneReport(lane=0, epoch=1, attempt=1, ending=self._ending)

    def close(self) -> None:
        self.events.append("closed")


def park(pump: Pump, before: Any = BEFORE, patience: float = _SECONDS, **options: Any) -> Parking:
    """A place with this lane in it, which goes on."""
    parking = Parking(patience=patience)
    parking.put(lane_of(pump, before), **options)
    assert pump.runs.wait(_SECONDS)
    return parking


def lane_of(pump: Pump, before: Any = BEFORE) -> ParkedLane:
    """A parked lane that notes its end."""
    mailbox = SimpleNamespace(close=pump.hung_up.set)
    return ParkedLane(before, pump, mailbox, pump.close)  # type: ignore[arg-type]


def until(met: Callable[[], bool]) -> None:
    """Wait for it."""
    for _ in range(5_000):
        if met():
            return
        threading.Event().wait(0.002)
    pytest.fail("it did not come")


def test_the_next_epoch_goes_on() -> None:
    """The direct successor takes it, once, between two transactions; only its line is closed."""
    pump = Pump()
    parking = park(pump)
    assert pump.events == ["goes on"]

    lane = parking.take(AFTER)

    assert lane is not None
    assert lane.pump is pump  # type: ignore[comparison-overlap]
    assert pump.events == ["goes on", "rests"]
    assert pump.hung_up.wait(_SECONDS)
    assert parking.take(AFTER) is None
    assert pump.events == ["goes on", "rests"]


def test_a_lane_does_not_go_on_for_ever() -> None:
    """Its driver does not hear it: it rests after a while, and may still be taken."""
    pump = Pump()
    parking = park(pump, overlap=0.0)
    until(lambda: pump.events == ["goes on", "rests"])

    assert (
        parking.take(
            AFTER,
        )
        is not None
    )
    assert pump.events == ["goes on", "rests"]


@pytest.mark.parametrize("ending", [Ending.SUPERSEDED, Ending.REBUILD, Ending.FAILED])
def test_a_lane_that_ends_while_it_goes_on_is_closed(ending: Ending) -> None:
    """EO-2: fenced, or failed: the next task reads what is true, with a producer of its own."""
    pump = Pump(ending)
    parking = park(pump)

    assert parking.take(AFTER) is None
    assert pump.events == ["goes on", "rests", "closed"]


def test_a_lane_that_breaks_while_it_goes_on_is_closed() -> None:
    """A bug ends the thread, not the worker."""
    pump = Pump(error=ValueError("a bug"))
    parking = park(pump)

    assert parking.take(AFTER) is None
    assert pump.events == ["goes on", "closed"]


def test_a_lane_for_which_there_is_no_thread_stays_with_its_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """EO-8: no task waits for what was never begun, and the one that was parked before it is closed."""
    first, pump = Pump(), Pump()
    parking = park(first)

    def fails(_thread: threading.Thread) -> None:
        msg = "can't start new thread"
        raise RuntimeError(msg)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fails)
        assert not parking.put(lane_of(pump))

    assert first.events == ["goes on", "rests", "closed"]
    assert parking.take(AFTER) is None
    assert pump.events == []
    assert parking.put(lane_of(pump))
    parking.leave()


class Panic(BaseException):
    """What a panic of the native plane is in Python."""


def test_a_panic_while_it_goes_on_keeps_no_task_waiting() -> None:
    """EO-8: it is closed, and the next task begins anew."""
    pump = Pump(error=Panic())  # type: ignore[arg-type]
    parking = park(pump)

    assert parking.take(AFTER) is None
    assert pump.events == ["goes on", "closed"]
    assert pump.hung_up.wait(_SECONDS)


def test_a_lane_that_does_not_rest_is_taken_as_if_it_were_elsewhere() -> None:
    """EO-2: its transaction hangs; the successor does not wait for it, and it closes itself when it has ended."""
    pump = Pump()
    pump.hangs.set()
    parking = park(pump, patience=0.05)

    assert parking.take(AFTER) is None
    assert pump.events == ["goes on"]
    assert not pump.hung_up.is_set()
    pump.hangs.clear()
    until(lambda: pump.events == ["goes on", "rests", "closed"])
    assert pump.hung_up.is_set()


def test_a_lane_that_is_left_finishes_its_transaction() -> None:
    """Before a worker ends."""
    pump = Pump()
    parking = park(pump)

    parking.leave()

    assert pump.events == ["goes on", "rests", "closed"]
    parking.leave()
    assert parking.take(AFTER) is None


def test_partitions_may_have_been_added_in_between() -> None:
    """A successor with more partitions takes them up; one with fewer starts anew (a topic was stopped)."""
    more = replace(AFTER, partitions=spec(ORDERS, PAYMENTS).partitions)
    assert is_successor(BEFORE, BEFORE.partitions, more, generation=BEFORE.generation)
    assert not is_successor(BEFORE, more.partitions, AFTER, generation=BEFORE.generation)


def test_partitions_may_have_been_given_away_in_between() -> None:
    """EO-2: a successor that was made before the move still has them; one that was made behind it goes on."""
    both = replace(BEFORE, partitions=spec(ORDERS, PAYMENTS).partitions)
    moved = BEFORE.generation + 1
    assert not is_successor(both, BEFORE.partitions, replace(both, epoch=AFTER.epoch), generation=moved)
    assert is_successor(both, BEFORE.partitions, replace(AFTER, generation=moved), generation=moved)


@pytest.mark.parametrize(
    "change",
    [
        {"epoch": BEFORE.epoch},
        {"epoch": BEFORE.epoch + 2},
        {"attempt": 2},
        {"lane": 1},
        {"run": "other"},
        {"generation": 3},
        {"partitions": ()},
        {"overdue": 1},
    ],
)
def test_no_other_task_does(change: dict[str, Any]) -> None:
    """EO-2: a task that is not the direct successor reads what is true; the parked lane is closed first."""
    pump = Pump()
    parking = park(pump)

    assert parking.take(replace(AFTER, **change)) is None
    assert pump.events == ["goes on", "rests", "closed"]


def test_there_is_room_for_one() -> None:
    """A second lane in the same process closes the first."""
    first, second = Pump(), Pump()
    parking = park(first)
    parking.put(lane_of(second))
    assert first.events == ["goes on", "rests", "closed"]
    parking.leave()


def test_a_lane_that_no_task_comes_for_is_closed() -> None:
    """Its successor went on elsewhere: connections and buffers do not stay for ever."""
    pump = Pump()
    parking = park(pump, seconds=0.05, overlap=0.0)

    until(lambda: pump.events == ["goes on", "rests", "closed"])
    assert parking.take(AFTER) is None
