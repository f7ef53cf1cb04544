"""Lanes between two epochs: who may go on with them, and when they are closed."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fakes import ORDERS, PAYMENTS, spec

from eomirror.lane.parking import ParkedLane, Parking, is_successor

BEFORE = spec(ORDERS)
AFTER = replace(BEFORE, epoch=BEFORE.epoch + 1, attempt=1)


def parked(closed: list[str] | threading.Event, before: Any = BEFORE) -> ParkedLane:
    """A parked lane that notes its end."""
    close = closed.set if isinstance(closed, threading.Event) else lambda: closed.append("closed")
    return ParkedLane(before, SimpleNamespace(mirrored=before.partitions), close)  # type: ignore[arg-type]


def test_the_next_epoch_goes_on() -> None:
    """The direct successor takes it, once, and nothing is closed."""
    closed: list[str] = []
    parking = Parking()
    lane = parked(closed)
    parking.put(lane)

    assert parking.take(AFTER) is lane
    assert parking.take(AFTER) is None
    assert closed == []


def test_partitions_may_have_been_added_in_between() -> None:
    """A successor with more partitions takes them up; one with fewer starts anew (a topic was stopped)."""
    more = replace(AFTER, partitions=spec(ORDERS, PAYMENTS).partitions)
    assert is_successor(BEFORE, BEFORE.partitions, more)
    assert not is_successor(BEFORE, more.partitions, AFTER)


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
def test_nobody_else_does(change: dict[str, Any]) -> None:
    """EO-2: whoever is not the direct successor reads what is true; the parked lane is closed first."""
    closed: list[str] = []
    parking = Parking()
    parking.put(parked(closed))

    assert parking.take(replace(AFTER, **change)) is None
    assert closed == ["closed"]


def test_there_is_room_for_one() -> None:
    """A second lane in the same process closes the first."""
    closed: list[str] = []
    parking = Parking()
    parking.put(parked(closed))
    parking.put(parked([]))
    assert closed == ["closed"]


def test_a_lane_that_nobody_comes_for_is_closed() -> None:
    """Its successor went on elsewhere: connections and buffers do not stay for ever."""
    closed = threading.Event()
    parking = Parking()
    parking.put(parked(closed), seconds=0.05)

    assert closed.wait(10)
    assert parking.take(AFTER) is None
