"""Checkpoints of followed groups: never ahead of what is committed, exact over holes, and told when not known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from eomirror._native import encode_offset_map
from eomirror.lane import checkpoints
from eomirror.lane.checkpoints import Checkpoints
from eomirror.lane.spec import GroupOffset
from support.fakes.lane_fakes import ORDERS, PAYMENTS, account, position

if TYPE_CHECKING:
    from eomirror.plane.protocol import Account
    from eomirror.records.position import Position


class Lane:
    """A lane with one partition at source offset 100, whose last record on the target is at 50."""

    def __init__(self) -> None:
        self.checkpoints = Checkpoints(1)
        self.positions = {ORDERS: position(ORDERS, 100, target_offset=50)}

    def update(self, *offsets: GroupOffset) -> None:
        self.checkpoints.update(offsets, self.positions)

    def step(self, offset: int, *ranges: tuple[int, int, int]) -> tuple[Position, tuple[Account, ...]]:
        last = ranges[-1][1] + ranges[-1][2] - 1 if ranges else self.positions[ORDERS].target_offset
        before = self.positions[ORDERS]
        moved = replace(before, offset=offset, prev=before.offset, target_offset=last)
        chunk = encode_offset_map("east.orders", ORDERS.partition, list(ranges)) if ranges else b""
        made = (replace(account(ORDERS, ranges[0][0], 1), offset_map=chunk),) if ranges else ()
        return moved, made

    def commit(self, offset: int | None = None, *ranges: tuple[int, int, int]) -> list[tuple[str, int, int]]:
        moved: list[Position] = []
        chunks: tuple[Account, ...] = ()
        if offset is not None:
            one, chunks = self.step(offset, *ranges)
            moved = [one]
        plan = self.checkpoints.plan(moved, chunks, self.positions, lambda _: True)
        self.checkpoints.committed(plan, moved, chunks)
        self.positions.update({one.source: one for one in moved})
        return [(one.group, one.upstream, one.downstream) for one in plan.checkpoints]

    def answers(self) -> list[tuple[int, int | None]]:
        return [(item.upstream, item.downstream) for item in self.checkpoints.take_answers()]


def at(upstream: int, downstream: int | None = None, group: str = "g") -> GroupOffset:
    return GroupOffset(group, ORDERS, upstream, downstream)


def test_a_group_at_the_position_needs_no_map() -> None:
    """It has read everything that is mirrored: the next record comes behind the last."""
    lane = Lane()
    lane.update(at(100))

    assert lane.commit() == [("g", 100, 51)]
    assert lane.answers() == [(100, 51)]
    assert not lane.checkpoints.ready


def test_a_group_that_is_ahead_waits_for_the_transaction_of_its_records() -> None:
    """And is in that one, not in an earlier one: its offset's records are committed with it."""
    lane = Lane()
    lane.update(at(107))

    assert not lane.checkpoints.ready
    assert lane.commit(105, (100, 60, 5)) == []
    assert lane.commit(110, (105, 70, 5)) == [("g", 107, 72)]


def test_a_group_that_is_always_ahead_is_not_left_where_it_stood_at_first() -> None:
    """The mirror lags behind a group that moves on: where it stood when the lane was told is reached all the same."""
    lane = Lane()
    written = []
    for step in range(100, 200, 10):
        lane.update(at(step + 25))
        written += lane.commit(step + 10, (step, step - 40, 10))
    assert written == [("g", at, at - 40) for at in (125, 145, 165, 185)]
    assert lane.answers() == [(at, at - 40) for at in (125, 145, 165, 185)]

    # it rests
    lane.update(at(225))
    assert lane.commit(300, (200, 160, 100)) == [("g", 225, 185)]
    assert lane.commit(310, (300, 260, 10)) == []


def test_a_group_that_goes_back_is_not_written_where_it_was() -> None:
    """What lies between is to be read again: of where it stood, only what lies behind it counts."""
    lane = Lane()
    lane.update(at(104))
    lane.update(at(118))
    lane.update(at(102))
    assert lane.commit(110, (100, 60, 10)) == [("g", 102, 62)]
    lane.update(at(118))
    lane.update(at(101))
    assert lane.commit(120, (110, 71, 10)) == [("g", 101, 61)]


@pytest.mark.parametrize(("first", "then"), [(at(90, 40), at(95)), (at(100), at(105))])
def test_what_is_ready_is_written_although_the_group_has_moved_on(
    first: GroupOffset, then: GroupOffset
) -> None:
    """Transactions may be slower than the driver's looks: where the group is by now is not known, or not reached."""
    lane = Lane()
    lane.update(first)
    lane.update(then)
    assert [upstream for _, upstream, _ in lane.commit()] == [first.upstream]

    # but not where it went back
    lane.update(first)
    lane.update(at(80))
    assert lane.commit() == []


def test_an_older_checkpoint_never_comes_after_a_newer_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """More are ready than one transaction takes, and it reaches where one of those groups is by now."""
    monkeypatch.setattr(checkpoints, "_MOST_AT_ONCE", 1)
    lane = Lane()
    lane.update(at(100, group="other"), at(100))
    lane.update(at(105))
    assert lane.commit(110, (100, 60, 10)) == [("other", 100, 51), ("g", 105, 65)]
    assert lane.commit() == []


def test_an_aborted_transaction_leaves_it_waiting() -> None:
    """`plan` changes nothing; what is not committed is planned again."""
    lane = Lane()
    lane.update(at(102))
    moved, chunks = lane.step(105, (100, 60, 5))
    for _ in range(2):
        plan = lane.checkpoints.plan([moved], chunks, lane.positions, lambda _: True)
        assert [(one.upstream, one.downstream) for one in plan.checkpoints] == [(102, 62)]
    assert lane.answers() == []


@pytest.mark.parametrize(
    ("upstream", "downstream"), [(101, 60), (102, 60), (103, 61), (104, 62), (105, 62), (107, 63), (109, 64)]
)
def test_holes_lead_to_the_next_record(upstream: int, downstream: int) -> None:
    """Markers, aborted and compacted records: going on there neither skips nor repeats a record."""
    waiting, remembering = Lane(), Lane()
    step = (109, (102, 60, 2), (106, 62, 2))
    waiting.update(at(upstream))
    assert waiting.commit(*step) == [("g", upstream, downstream)]

    remembering.commit(*step)
    remembering.commit(112, (110, 80, 2))
    remembering.update(at(upstream))
    # behind the last record of a transaction, which at the time was the end, the next one is known by now
    later = {109: 80}
    assert remembering.commit() == [("g", upstream, later.get(upstream, downstream))]


@pytest.mark.parametrize("upstream", range(100, 111))
def test_a_checkpoint_that_was_aborted_is_never_ahead_of_its_successor(upstream: int) -> None:
    """Java's client reads it all the same: it may read records twice there, and skips none."""
    lane = Lane()
    lane.update(at(upstream))
    moved, chunks = lane.step(110, (100, 51, 10))
    (aborted,) = lane.checkpoints.plan([moved], chunks, lane.positions, lambda _: True).checkpoints

    # a marker ends it at 61, and its records come again behind that
    ((_, _, committed),) = lane.commit(110, (100, 62, 10))

    assert committed == (51 if upstream == 100 else upstream - 38)
    # before the transaction each source offset is 49 ahead of its target offset
    records = [(source, source - 49) for source in range(90, 100)] + [(100 + n, 62 + n) for n in range(10)]
    assert not [one for one in records if one[0] >= upstream and one[1] < aborted.downstream]
    assert aborted.downstream <= committed


def test_what_the_lane_does_not_remember_is_told() -> None:
    """Before its own first transaction it knows nothing: the driver looks it up, and its answer is written."""
    lane = Lane()
    lane.update(at(90))

    assert lane.commit() == []
    assert lane.answers() == [(90, None)]
    lane.update(at(90, 41))
    assert lane.commit() == [("g", 90, 41)]


def test_a_later_word_replaces_an_earlier_one() -> None:
    """Also a rewind: the checkpoint says where the group stands now."""
    lane = Lane()
    lane.update(at(107))
    lane.update(at(100))

    assert lane.commit() == [("g", 100, 51)]
    assert lane.commit(110, (100, 60, 10)) == []


def test_groups_are_told_apart() -> None:
    """Two groups at one offset have a checkpoint each."""
    lane = Lane()
    lane.update(at(100), at(100, group="h"))

    assert sorted(lane.commit()) == [("g", 100, 51), ("h", 100, 51)]


def test_a_topic_that_may_be_another_by_now_gets_none() -> None:
    """EO-5: a group's offset in a recreated topic says nothing about the records of the old one."""
    lane = Lane()
    lane.update(at(100))

    assert lane.checkpoints.plan([], (), lane.positions, lambda _: False).checkpoints == []
    assert lane.checkpoints.ready


def test_a_stopped_topic_gets_none() -> None:
    """It has no position in this lane any more."""
    lane = Lane()
    lane.update(GroupOffset("g", PAYMENTS, 3))

    assert lane.commit() == []
    assert lane.answers() == []


def test_a_topic_that_stops_is_waited_for_no_more() -> None:
    """What was ready for it is let go, and holds up nothing: a lane without data would begin transactions for ever."""
    lane = Lane()
    lane.update(at(100))
    del lane.positions[ORDERS]

    assert lane.commit() == []
    assert not lane.checkpoints.ready


def test_what_must_wait_keeps_nothing_else_waiting() -> None:
    """However many groups stand in a topic that may be another by now, the others get their checkpoints."""
    lane = Lane()
    lane.positions[PAYMENTS] = position(PAYMENTS, 7, target_offset=3)
    lane.update(*(at(100, group=f"g{number}") for number in range(6_000)), GroupOffset("h", PAYMENTS, 7))
    plan = lane.checkpoints.plan([], (), lane.positions, lambda there: there.source == PAYMENTS)

    assert [(one.group, one.upstream, one.downstream) for one in plan.checkpoints] == [("h", 7, 4)]


def test_nothing_mirrored_is_not_position_0() -> None:
    """A partition of which no record was mirrored yet has no target offset to give."""
    lane = Lane()
    lane.positions[ORDERS] = position(ORDERS, 100, target_offset=None)
    lane.update(at(100))

    assert lane.commit() == []
    assert lane.answers() == [(100, None)]


def test_memory_begins_anew_when_it_is_full() -> None:
    """What was forgotten is looked up by the driver; what came since is exact."""
    lane = Lane()
    lane.checkpoints._share = 3
    for number in range(10):
        lane.commit(102 + 2 * number, (100 + 2 * number, 60 + 3 * number, 1))
    lane.update(at(100), at(118, group="h"))

    assert lane.commit() == [("h", 118, 87)]
    assert (100, None) in lane.answers()
