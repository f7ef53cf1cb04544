"""When partitions leave a lane that has no slot, and when they return."""

from __future__ import annotations

from eomirror.driver.slots import LOST_SECONDS, TOLD_SECONDS, WAIT_SECONDS, Slots


def two_lanes() -> Slots:
    """Both lanes were submitted at 0 and run from 1 on."""
    slots = Slots()
    for lane in (0, 1):
        slots.begun(lane, 0.0)
        slots.connected(lane, 1.0)
    return slots


def test_a_lane_that_waits_too_long_is_due() -> None:
    """Its time begins with the loss of its worker, also where Spark tells nothing of it."""
    slots = two_lanes()
    slots.disconnected(1, 10.0, parted=False)
    assert slots.dead(10.0 + LOST_SECONDS - 0.1) == []
    assert slots.dead(10.0 + LOST_SECONDS) == [1]
    assert slots.dead(10.0 + LOST_SECONDS) == []
    slots.ended(1, crashed=True, now=12.5)
    slots.begun(1, 13.0)
    # without the half second between its attempts
    assert slots.due(10.5 + WAIT_SECONDS - 0.1) is None
    assert slots.due(10.5 + WAIT_SECONDS) == 1
    assert slots.running() == [0]
    assert slots.waiting(10.5 + TOLD_SECONDS - 0.1) == []
    assert slots.waiting(10.5 + TOLD_SECONDS) == [1]
    assert slots.given() == (1, 2)


def test_a_lane_whose_tasks_crash_keeps_its_partitions() -> None:
    """Its backoff is longer than the wait for a slot; other lanes would crash with its partitions."""
    slots = two_lanes()
    now = 10.0
    for _ in range(5):
        slots.disconnected(1, now, parted=False)
        slots.ended(1, crashed=True, now=now)
        for passed in (WAIT_SECONDS, 2 * WAIT_SECONDS):
            assert (slots.due(now + passed), slots.waiting(now + passed)) == (None, [])
        now += 2 * WAIT_SECONDS
        slots.begun(1, now)
        assert slots.due(now + WAIT_SECONDS - 0.1) is None
        slots.connected(1, now + 2.0)
        now += 3.0
    # without a worker it waits as ever
    slots.disconnected(1, now, parted=False)
    slots.ended(1, crashed=True, now=now)
    slots.begun(1, now + 10.0)
    assert slots.due(now + 10.0 + WAIT_SECONDS) == 1


def test_a_lane_with_nothing_to_mirror_waits_for_nothing() -> None:
    """Its topics were paused after its task crashed; the slot is free for a lane that was lent."""
    slots = two_lanes()
    slots.lend(0, 10.0)
    slots.disconnected(1, 11.0, parted=False)
    slots.ended(1, crashed=True, now=11.5)
    slots.found(0, 99.0)
    slots.found(0, 101.0)
    assert slots.returning(101.0) is None, "it is for lane 1"
    slots.rests(1)
    assert slots.returning(101.0) == 0


def test_a_slot_is_for_one_lane() -> None:
    """The small jobs of two lanes ran in it one after the other."""
    slots = two_lanes()
    slots.begun(2, 0.0)
    slots.connected(2, 1.0)
    for lane in (1, 2):
        slots.disconnected(lane, 9.0, parted=False)
        slots.ended(lane, crashed=True, now=9.5)
        slots.lend(lane, 10.0)
    for lane in (1, 2):
        slots.found(lane, 100.0)
        slots.found(lane, 102.0)
    assert slots.returning(102.0) == 1
    slots.returned(1)
    assert slots.returning(102.0) is None


def test_a_lane_that_runs_again_is_not_due() -> None:
    """A worker with a free slot takes it, or its connection was only displaced."""
    slots = two_lanes()
    slots.disconnected(1, 10.0, parted=False)
    slots.connected(1, 10.1)
    assert slots.dead(30.0) == []
    assert slots.due(30.0) is None


def test_no_lane_is_due_while_none_runs() -> None:
    """There is no lane that could take its partitions, or Spark is only starting."""
    slots = Slots()
    slots.begun(0, 0.0)
    slots.begun(1, 0.0)
    assert slots.due(100.0) is None
    slots.connected(0, 100.0)
    assert slots.due(100.0 + WAIT_SECONDS - 0.1) is None
    assert slots.due(100.0 + WAIT_SECONDS) == 1


def test_an_attempt_that_ends_as_planned_waits_for_nothing() -> None:
    """A lane that is paused submits no attempt; one between two epochs has its slot again at once."""
    slots = two_lanes()
    slots.disconnected(1, 10.0, parted=True)
    assert slots.dead(10.0 + LOST_SECONDS) == [], "its result is on the way"
    slots.ended(1, crashed=False, now=10.1)
    assert slots.dead(100.0) == []
    assert slots.due(100.0) is None


def test_a_slot_that_comes_and_goes_moves_partitions_less_and_less() -> None:
    """Each return makes the next one wait twice as long."""
    slots = two_lanes()
    stays = []
    now = 10.0
    for _ in range(3):
        slots.lend(1, now)
        # the job that waited in Spark's queue is cancelled
        slots.ended(1, crashed=True, now=now)
        assert slots.due(now + 100.0) is None
        assert slots.returning(now + 1_000.0) is None, "Spark has no slot for it"
        since = now
        while slots.returning(now) is None:
            slots.found(1, now)
            now += 1.0
        stays.append(now - since)
        slots.returned(1)
        assert not slots.lent
        assert slots.returning(now + 1_000.0) is None
    assert stays == [stays[0], 2 * stays[0], 4 * stays[0]]


def test_a_slot_that_a_lane_leaves_between_two_attempts_is_not_free() -> None:
    """The small job of the lane that waits runs in it for a moment; the partitions stay."""
    slots = two_lanes()
    slots.lend(1, 10.0)
    slots.ended(0, crashed=False, now=100.0)
    slots.found(1, 100.1)
    slots.begun(0, 100.2)
    assert slots.returning(105.0) is None, "lane 0 waits for it"
    slots.connected(0, 105.0)
    assert slots.returning(200.0) is None
    slots.found(1, 200.0)
    assert slots.returning(200.5) is None
    assert slots.returning(201.5) == 1
    assert slots.returning(220.0) is None, "it was seen long ago"
