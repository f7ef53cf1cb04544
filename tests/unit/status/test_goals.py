"""What a run has left until its goals, and for how long."""

from __future__ import annotations

import pytest

from eomirror.cli.progress import _fields, progress_line
from eomirror.status.goals import Goals
from eomirror.status.snapshot import LinkSnapshot
from eomirror.types import SourcePartition

BIG, SMALL, GONE = (SourcePartition(topic, 0) for topic in ("big", "small", "gone"))
LANES = {BIG: 0, SMALL: 1, GONE: 1}


def goals() -> Goals:
    """Three partitions on two lanes."""
    made = Goals()
    made.set({BIG: 10_000, SMALL: 1_000, GONE: 500}, {})
    return made


def test_nothing_is_known_until_all_lanes_have_reported() -> None:
    """A sum without the partition that has most would promise too much; a stopped topic is not waited for."""
    made = goals()
    assert made.look(0, {BIG: 0, SMALL: 0}, LANES, ()) is None
    way = made.look(0, {BIG: 0, SMALL: 0}, LANES, {"gone"})
    assert way is not None
    assert (way.offsets, way.left, way.seconds_left) == (11_000, 11_000, None)
    assert Goals().look(0, {BIG: 0}, LANES, ()) is None


def test_a_topic_that_left_the_link_is_not_waited_for() -> None:
    """Its goal could never be reached."""
    made = goals()
    made.release({"gone", "big"})
    assert made.offsets == {SMALL: 1_000}
    way = made.look(0, {SMALL: 0}, {SMALL: 1}, ())
    assert way is not None
    assert way.left == 1_000


def test_the_time_left_is_that_of_the_slowest_lane() -> None:
    """The sum of all rates says 8 s, but no other lane can copy the rest of the large partition."""
    made = goals()
    made.look(0, {BIG: 2_000, SMALL: 0, GONE: 0}, LANES, ())
    way = made.look(10, {BIG: 4_000, SMALL: 900, GONE: 400}, LANES, ())
    assert way is not None
    assert (way.offsets, way.left) == (9_500, 6_200)
    assert way.seconds_left == pytest.approx(30)


def test_positions_beyond_the_goals_count_no_further() -> None:
    """Lanes mirror what is written meanwhile, until the last goal is reached."""
    made = goals()
    made.look(0, {BIG: 0, SMALL: 0, GONE: 0}, LANES, ())
    way = made.look(10, {BIG: 5_000, SMALL: 7_777, GONE: 500}, LANES, ())
    assert way is not None
    assert (way.left, way.seconds_left) == (5_000, pytest.approx(10))
    way = made.look(20, {BIG: 10_001, SMALL: 9_999, GONE: 500}, LANES, ())
    assert way is not None
    assert (way.left, way.seconds_left) == (0, 0.0)


def test_a_lane_that_stands_leaves_the_time_unknown() -> None:
    """Its worker was lost: nothing tells when it goes on; after half a minute the time before does not count."""
    made = goals()
    for second in range(0, 41, 5):
        way = made.look(second, {BIG: min(second, 5) * 100, SMALL: 1_000, GONE: 500}, LANES, ())
        assert way is not None
        assert (way.seconds_left is None) == (second in (0, 35, 40)), second


def test_what_a_stopped_topic_had_left_is_in_no_rate() -> None:
    """Its lane did not copy 500 offsets in a moment."""
    made = goals()
    made.look(0, {BIG: 9_000, SMALL: 0, GONE: 0}, LANES, ())
    way = made.look(10, {BIG: 9_500, SMALL: 100, GONE: 0}, LANES, {"gone"})
    assert way is not None
    assert (way.left, way.seconds_left) == (1_400, None)
    way = made.look(20, {BIG: 10_000, SMALL: 200, GONE: 0}, LANES, {"gone"})
    assert way is not None
    assert way.seconds_left == pytest.approx(80)


def test_a_line_and_an_event_have_what_is_left() -> None:
    """A run without goals has none."""
    made = goals()
    made.look(0, {BIG: 0, SMALL: 1_000, GONE: 500}, LANES, ())
    way = made.look(10, {BIG: 2_500, SMALL: 1_000, GONE: 500}, LANES, ())
    link = LinkSnapshot(link="a->b", state="running", goals=3, goals_reached=2, goal_progress=way)
    assert progress_line(link).endswith(
        ", 2/3 partitions caught up, 25 % of 10,000 offsets, about 30.0 s left"
    )
    fields = _fields(link)
    assert (fields["offsets"], fields["offsets_left"], fields["seconds_left"]) == (10_000, 7_500, 30.0)
    assert "offsets_left" not in _fields(LinkSnapshot(link="a->b", state="running"))
