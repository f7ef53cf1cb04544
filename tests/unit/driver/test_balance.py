"""When partitions go from a lane that is behind to one that keeps up: a table, laws, and lanes that fill and drain."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eomirror.driver.balance import (
    BEHIND_SECONDS,
    GAIN,
    KEPT_SECONDS,
    LOOK_SECONDS,
    MOST,
    REST_SECONDS,
    WINDOW_SECONDS,
    Balance,
    Shift,
    pays,
)
from eomirror.status.work import PartitionLoad
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Mapping

A, B, C, D = (SourcePartition("t", number) for number in range(4))


@pytest.mark.parametrize(
    ("needs", "lanes", "behind", "room", "moved"),
    [
        pytest.param({A: 60, B: 40, C: 10}, {A: 0, B: 0, C: 1}, {0}, {1}, {B: 1}, id="the part that evens them"),
        pytest.param({A: 60, B: 40, C: 10}, {A: 0, B: 0, C: 1}, set(), {0, 1}, {}, id="all keep up"),
        pytest.param({A: 60, B: 40, C: 10}, {A: 0, B: 0, C: 1}, {0, 1}, set(), {}, id="none has room"),
        pytest.param({A: 60, C: 10}, {A: 0, C: 1}, {0}, {1}, {}, id="one partition cannot be divided"),
        pytest.param({A: 95, B: 5, C: 10}, {A: 0, B: 0, C: 1}, {0}, {1}, {}, id="what could go is too little"),
        pytest.param({A: 50, B: 50, C: 80}, {A: 0, B: 0, C: 1}, {0}, {1}, {}, id="it would be behind there"),
        pytest.param({A: 60, B: 40, C: 90}, {A: 0, B: 0, C: 1}, {0}, {1, 2}, {B: 2}, id="to the emptiest"),
        pytest.param({A: 91, C: 60, D: 30}, {A: 0, C: 1, D: 1}, {0, 1}, {2}, {D: 2}, id="not from the fullest"),
        pytest.param({A: 60, B: 55, C: 20}, {A: 0, B: 0, C: 1}, {0}, {1}, {B: 1}, id="one beyond the middle"),
        pytest.param({A: 40, B: 90}, {A: 0, B: 1}, {0}, {1}, {}, id="the fuller one keeps up"),
        pytest.param({}, {A: 0, B: 1}, {0}, {1}, {}, id="nothing is known"),
    ],
)  # fmt: skip
def test_a_move_pays(
    needs: dict[SourcePartition, float],
    lanes: dict[SourcePartition, int],
    behind: set[int],
    room: set[int],
    moved: dict[SourcePartition, int],
) -> None:
    """Bytes a second and lanes of partitions, the lanes that are behind, those with room, and what goes where."""
    shift = pays(needs, lanes, behind=behind, room=room)
    assert ({} if shift is None else dict.fromkeys(shift.sources, shift.getter)) == moved


SOURCES = st.builds(SourcePartition, st.just("t"), st.integers(0, 300))


@given(st.data())
def test_a_move_lowers_the_load_of_the_fuller_lane(data: st.DataObject) -> None:
    """By a fifth or more, with no partition that is to stay, and from a lane that is behind to one with room."""
    lane_of = data.draw(st.dictionaries(SOURCES, st.integers(0, 4), max_size=60))
    needs = {source: data.draw(st.floats(0, 1e9)) for source in lane_of}
    behind = data.draw(st.sets(st.integers(0, 4)))
    room = data.draw(st.sets(st.integers(0, 4))) - behind
    kept = {source for source in lane_of if data.draw(st.integers(0, 5)) == 0}
    shift = pays(needs, lane_of, behind=behind, room=room, kept=kept)
    if shift is None:
        return
    after = {**lane_of, **dict.fromkeys(shift.sources, shift.getter)}

    def load(layout: Mapping[SourcePartition, int], lane: int) -> float:
        return sum(needs[source] for source, number in layout.items() if number == lane)

    assert shift.giver in behind
    assert shift.getter in room
    assert 0 < len(shift.sources) <= MOST
    assert not kept & set(shift.sources)
    assert all(lane_of[source] == shift.giver for source in shift.sources)
    full = load(lane_of, shift.giver)
    assert max(load(after, shift.giver), load(after, shift.getter)) <= (1 - GAIN) * full * (1 + 1e-9)


class Traffic:
    """Lanes that mirror so many bytes a second each, and partitions that get some; records have a byte."""

    def __init__(
        self, needs: dict[SourcePartition, float], lanes: dict[SourcePartition, int], pace: float
    ) -> None:
        self.needs, self.lanes, self.pace = needs, dict(lanes), pace
        self.done = dict.fromkeys(needs, 0.0)
        self.waits = dict.fromkeys(needs, 0.0)
        self.now = 0.0
        self.balance = Balance()
        self.shifts: list[tuple[float, Shift]] = []

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += LOOK_SECONDS
            for lane in set(self.lanes.values()):
                mine = [source for source, number in self.lanes.items() if number == lane]
                for source in mine:
                    self.waits[source] += self.needs[source] * LOOK_SECONDS
                share = min(
                    1.0, self.pace * LOOK_SECONDS / max(1e-9, sum(self.waits[source] for source in mine))
                )
                for source in mine:
                    mirrored = self.waits[source] * share
                    self.waits[source] -= mirrored
                    self.done[source] += mirrored
            if self.balance.due(self.now):
                self._look()

    def _look(self) -> None:
        loads = {
            source: PartitionLoad(
                lane, int(self.done[source]), int(self.done[source]), int(self.waits[source]),
                self.waits[source] / max(1.0, self.needs[source]),
            )
            for source, lane in self.lanes.items()
        }  # fmt: skip
        shift = self.balance.look(loads, set(self.lanes.values()), self.now)
        if shift is not None:
            self.shifts.append((self.now, shift))
            self.lanes.update(dict.fromkeys(shift.sources, shift.getter))


def test_a_lane_that_cannot_keep_up_gives_what_another_can_take() -> None:
    """After one window, once; then both keep up."""
    traffic = Traffic({A: 6e6, B: 5e6, C: 1e6}, {A: 0, B: 0, C: 1}, pace=10e6)
    traffic.run(600.0)
    assert [(shift.giver, shift.getter, shift.sources) for _, shift in traffic.shifts] == [(0, 1, (B,))]
    assert traffic.shifts[0][0] >= WINDOW_SECONDS
    assert max(traffic.waits.values()) < BEHIND_SECONDS * 10e6


def test_lanes_that_keep_up_stay_as_they_are() -> None:
    """However uneven they are: nothing would be faster."""
    traffic = Traffic({A: 6e6, B: 3e6, C: 1.0}, {A: 0, B: 0, C: 1}, pace=10e6)
    traffic.run(600.0)
    assert traffic.shifts == []


def test_a_lane_that_will_soon_have_caught_up_keeps_its_partitions() -> None:
    """It has a backlog of half a minute, and room."""
    traffic = Traffic({A: 2e6, B: 2e6, C: 1e6}, {A: 0, B: 0, C: 1}, pace=10e6)
    traffic.waits.update({A: 200e6, B: 180e6})
    traffic.run(120.0)
    assert traffic.shifts == []


def test_all_lanes_are_behind() -> None:
    """There is nowhere to go."""
    traffic = Traffic({A: 9e6, B: 9e6, C: 12e6}, {A: 0, B: 0, C: 1}, pace=10e6)
    traffic.run(600.0)
    assert traffic.shifts == []


@settings(deadline=None, max_examples=40)
@given(
    st.lists(st.floats(0, 8e6), min_size=3, max_size=12),
    st.integers(2, 4),
    st.floats(2e6, 20e6),
)
def test_steady_traffic_moves_partitions_a_few_times_and_then_never(
    needs: list[float], lanes: int, pace: float
) -> None:
    """No partition moves twice in its time, moves are apart, and the second half of two hours has none."""
    sources = {SourcePartition("t", number): need for number, need in enumerate(needs)}
    traffic = Traffic(sources, {source: source.partition % lanes for source in sources}, pace)
    traffic.run(3600.0)
    early = list(traffic.shifts)
    traffic.run(3600.0)
    assert len(early) <= len(needs) + lanes
    times = [at for at, _ in traffic.shifts]
    assert all(later - earlier >= REST_SECONDS for earlier, later in pairwise(times))
    last: dict[SourcePartition, float] = {}
    for at, shift in traffic.shifts:
        for source in shift.sources:
            assert at - last.get(source, float("-inf")) >= KEPT_SECONDS
            last[source] = at
    assert traffic.shifts == early


def load(lane: int, size: int, lag: int, behind: float = 0.0) -> PartitionLoad:
    """A partition with records of ten bytes."""
    return PartitionLoad(lane, size // 10, size, lag, behind)


def test_what_a_partition_needs_is_known_after_a_window() -> None:
    """What was mirrored, and what its lag grew by; not of one that is new, or was on another lane."""
    balance = Balance()
    before: dict[SourcePartition, Any] = {A: load(0, 1000, 0), B: load(0, 1000, 5), C: load(1, 1000, 0)}
    after: dict[SourcePartition, Any] = {
        A: load(0, 31_000, 0), B: load(0, 1000, 35), C: load(0, 4000, 0), D: load(1, 500, 9),
    }  # fmt: skip
    assert balance.due(0.0)
    assert balance.look(before, {0, 1}, 0.0) is None
    assert not balance.due(LOOK_SECONDS - 1)
    assert balance.needs == {}
    assert balance.look(after, {0, 1}, WINDOW_SECONDS) is None
    assert balance.needs == {A: 1000.0, B: 10.0}


def test_after_another_move_the_lanes_are_measured_from_the_beginning() -> None:
    """A lane that got the partitions of a lost one is behind for that reason."""
    traffic = Traffic({A: 6e6, B: 5e6, C: 1e6}, {A: 0, B: 0, C: 1}, pace=10e6)
    for _ in range(20):
        traffic.run(WINDOW_SECONDS - LOOK_SECONDS)
        traffic.balance.disturbed(traffic.now)
    assert traffic.shifts == []
