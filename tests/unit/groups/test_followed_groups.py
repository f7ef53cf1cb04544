"""What follows from where groups stand: what lanes are told, and which groups on the target are moved."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from eomirror.groups.followed_groups import (
    GONE_SECONDS,
    RESEND_SECONDS,
    DeletedGroups,
    GroupBook,
    decide_deletion,
    decide_sync,
)
from eomirror.kafka.consumer_groups import Committed, TargetGroup
from eomirror.lane.spec import GroupOffset
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Mapping

ONE, TWO = SourcePartition("orders", 0), SourcePartition("payments", 0)
LANES = {ONE: 0, TWO: 1}


def book(**offsets: int) -> GroupBook:
    made = GroupBook()
    for group, offset in offsets.items():
        made.observe(group, {ONE: Committed(offset)}, 0.0)
    return made


def told(
    made: GroupBook, now: float = 0.0, stopped: tuple[str, ...] = ()
) -> list[tuple[str, int, int | None]]:
    lanes = made.to_send(LANES, stopped, now)
    return [(item.group, item.upstream, item.downstream) for items in lanes.values() for item in items]


def test_each_lane_is_told_of_its_partitions_once() -> None:
    """And again only when it has not answered for some time: a line may have broken."""
    made = GroupBook()
    made.observe("g", {ONE: Committed(5), TWO: Committed(7)}, 0.0)

    assert {
        lane: [item.upstream for item in items] for lane, items in made.to_send(LANES, (), 0.0).items()
    } == {
        0: [5],
        1: [7],
    }
    assert told(made, 1.0) == []
    assert len(told(made, RESEND_SECONDS)) == 2


def test_what_is_committed_is_not_told_again() -> None:
    """Until the group moves."""
    made = book(g=5)
    told(made)

    assert made.answered([GroupOffset("g", ONE, 5, 50)]) == [GroupOffset("g", ONE, 5, 50)]
    assert told(made, 1e6) == []
    assert made.checkpoints("g") == {ONE: GroupOffset("g", ONE, 5, 50)}
    made.observe("g", {ONE: Committed(6)}, 1.0)
    assert told(made, 1.0) == [("g", 6, None)]


def test_what_left_the_link_has_no_checkpoint_when_it_comes_again() -> None:
    """It is of the earlier copy, and an offset of the new topic may lie behind it."""
    made = GroupBook()
    made.observe("g", {ONE: Committed(5), TWO: Committed(7)}, 0.0)
    made.answered([GroupOffset("g", ONE, 5, 50), GroupOffset("g", TWO, 7, 70)])
    made.forget({ONE})
    made.observe("g", {ONE: Committed(9), TWO: Committed(8)}, 1.0)
    assert made.checkpoints("g") == {TWO: GroupOffset("g", TWO, 7, 70)}


def test_the_last_checkpoint_holds_until_the_next_is_committed() -> None:
    """A group that commits all the time stands elsewhere whenever one is; it is moved by what is known of it."""
    made = book(g=5)
    told(made)
    made.answered([GroupOffset("g", ONE, 5, 50)])
    made.observe("g", {ONE: Committed(6)}, 1.0)
    made.observe("g", {ONE: Committed(7)}, 2.0)
    assert made.checkpoints("g") == {ONE: GroupOffset("g", ONE, 5, 50)}
    made.answered([GroupOffset("g", ONE, 7, 70)])
    assert made.checkpoints("g") == {ONE: GroupOffset("g", ONE, 7, 70)}
    # its offset was deleted; one that it commits later has nothing to do with it
    made.observe("g", {}, 3.0)
    made.observe("g", {ONE: Committed(8)}, 4.0)
    assert made.checkpoints("g") == {}


def test_rereads_are_the_offsets_from_checkpoints_to_commits() -> None:
    """Of the groups that read most again; a group with a partition without checkpoint is pending instead."""
    made = book(few=5, many=5, even=5, new=5)
    told(made)
    made.answered([GroupOffset(group, ONE, 5, 50) for group in ("few", "many", "even")])
    made.observe("few", {ONE: Committed(7)}, 1.0)
    made.observe("many", {ONE: Committed(905), TWO: Committed(4)}, 1.0)
    told(made, 1.0)
    made.answered([GroupOffset("many", TWO, 4, 40)])
    assert made.rereads() == {"many": 900, "few": 2, "even": 0}
    assert list(made.rereads(2)) == ["many", "few"]
    # a group that went back behind its checkpoint reads again because it wants to
    made.observe("many", {ONE: Committed(3), TWO: Committed(4)}, 2.0)
    assert "many" not in made.rereads()


def test_what_a_lane_does_not_remember_is_looked_up_and_told_again() -> None:
    """With its target offset, at once."""
    made = book(g=5)
    told(made)
    made.answered([GroupOffset("g", ONE, 5, None)])

    assert made.questions(1.0) == [("g", ONE, 5)]
    assert told(made, RESEND_SECONDS) == []
    made.found("g", ONE, 5, 50)
    assert made.questions(1.0) == []
    assert told(made, 1.0) == [("g", 5, 50)]


def test_what_the_map_does_not_know_stays_pending_with_its_reason() -> None:
    """It is not asked for again and again; a group that moves is looked at anew."""
    made = book(g=5)
    told(made)
    made.answered([GroupOffset("g", ONE, 5, None)])
    made.found("g", ONE, 5, None, "it is before the first mirrored record, which is at 9")

    assert (told(made, 1e6), made.questions(1e6)) == ([], [])
    assert made.pending() == {"it is before the first mirrored record, which is at 9": 1}
    made.observe("g", {ONE: Committed(9)}, 1e6)
    assert told(made, 1e6) == [("g", 9, None)]


def test_what_will_be_known_with_the_first_record_is_asked_again() -> None:
    """Not in every round, and at once when a lane has begun anew: until then nothing else would be asked."""
    made = book(g=5)
    told(made)
    made.answered([GroupOffset("g", ONE, 5, None)])
    made.found("g", ONE, 5, None, "no record of the partition was mirrored yet", ask_at=11.0)

    assert (made.questions(10.0), made.questions(11.0)) == ([], [("g", ONE, 5)])
    made.forget_sent([ONE])
    assert made.questions(10.0) == [("g", ONE, 5)]


def test_what_the_mirror_has_still_to_reach_is_told_again() -> None:
    """An offset beyond the position is for the lane's next transactions."""
    made = book(g=5)
    told(made)
    made.answered([GroupOffset("g", ONE, 5, None)])
    made.found("g", ONE, 5, None)

    assert told(made, 1.0) == [("g", 5, None)]


def test_a_lane_that_began_anew_is_told_at_once() -> None:
    """It knows nothing of what its predecessor was told."""
    made = book(g=5)
    told(made)
    made.forget_sent([ONE])

    assert told(made, 0.1) == [("g", 5, None)]


def test_a_stopped_topic_is_not_told() -> None:
    """Its source may be another by now."""
    made = book(g=5)

    assert told(made, stopped=("orders",)) == []
    assert made.pending() == {"its topic is stopped": 1}


def test_groups_that_are_gone_are_followed_no_longer() -> None:
    """With all they had, or with one partition less."""
    made = book(g=5, h=6)
    assert made.observe("g", {}, 1.0) == {ONE}
    made.keep_only(["g"])

    assert len(made) == 0


HERE = ("east.orders", 0)


def decide(
    state: str = "empty",
    there: Mapping[tuple[str, int], int] | None = None,
    placed: Mapping[tuple[str, int], int] | None = None,
    *,
    rewind: str = "follow",
    renew: bool = False,
) -> tuple[dict[tuple[str, int], int], str]:
    """For a group whose translated offset is 50."""
    made = decide_sync(
        {HERE: Committed(50, "m")}, TargetGroup(state, there or {}), placed or {}, rewind=rewind, renew=renew
    )
    return {where: one.offset for where, one in made.write.items()}, made.skipped


@pytest.mark.parametrize("state", ["empty", "dead"])
@pytest.mark.parametrize("there", [{}, {HERE: 49}])
def test_an_idle_group_is_moved_forward(state: str, there: dict[tuple[str, int], int]) -> None:
    """Also one that does not exist there yet; from an offset that the link wrote."""
    assert decide(state, there, placed=there) == ({HERE: 50}, "")


def test_an_offset_that_consumers_there_have_reached_is_left_alone() -> None:
    """They have not read what is between it and the group's offset."""
    write, skipped = decide("empty", {HERE: 49}, placed={HERE: 30})

    assert write == {}
    assert "read on the target to 49" in skipped


@pytest.mark.parametrize("state", ["stable", "assigning", "reconciling", "preparing_rebalancing", "unknown"])
def test_a_group_with_members_is_left_alone(state: str) -> None:
    """Of either protocol; what is not known to be idle counts as active."""
    write, skipped = decide(state)

    assert write == {}
    assert state in skipped


def test_what_is_right_is_written_again_only_before_it_expires() -> None:
    """A group without members loses its offsets after offsets.retention.minutes."""
    assert decide(there={HERE: 50}) == ({}, "")
    assert decide(there={HERE: 50}, renew=True) == ({HERE: 50}, "")


def test_a_group_that_was_read_there_is_never_taken_back() -> None:
    """Its offset is not where the link put it."""
    write, skipped = decide(there={HERE: 60}, placed={HERE: 40})

    assert write == {}
    assert "ahead on the target" in skipped


def test_a_rewind_is_followed_where_the_group_stands_where_it_was_put() -> None:
    """And only where the configuration says so."""
    assert decide(there={HERE: 60}, placed={HERE: 60}) == ({HERE: 50}, "")
    write, skipped = decide(there={HERE: 60}, placed={HERE: 60}, rewind="ignore")
    assert write == {}
    assert "group_rewind" in skipped


def test_a_group_that_goes_back_is_not_put_where_it_was() -> None:
    """Until the checkpoint of where it stands now is committed; else it would skip what it wants to read again."""
    made = book(g=50)
    made.answered([GroupOffset("g", ONE, 50, 40)])
    made.observe("g", {ONE: Committed(20)}, 1.0)

    assert made.checkpoints("g") == {}
    # an answer that was on its way
    assert made.answered([GroupOffset("g", ONE, 50, 40)]) == []
    assert made.checkpoints("g") == {}
    made.answered([GroupOffset("g", ONE, 20, 15)])
    assert made.checkpoints("g") == {ONE: GroupOffset("g", ONE, 20, 15)}


def test_an_answer_that_a_moving_group_has_overtaken_counts() -> None:
    """Over a long way every answer is overtaken; a newer one is never taken back by it."""
    made = book(g=50)
    told(made)
    made.observe("g", {ONE: Committed(60)}, 1.0)
    late = GroupOffset("g", ONE, 50, 40)

    assert made.answered([late]) == [late]
    assert made.checkpoints("g") == {ONE: late}
    # the one of where it stands is still to come
    assert told(made, 1.0) == [("g", 60, None)]
    newer = GroupOffset("g", ONE, 60, 48)
    made.answered([newer])
    assert made.answered([late]) == []
    assert made.checkpoints("g") == {ONE: newer}


def test_a_group_is_gone_only_when_it_stays_away() -> None:
    """While its coordinator moves it is on no broker, and one that is back has never been away."""
    deleted = DeletedGroups()

    assert deleted.seen(["g", "h"], ["h"], 0.0) == []
    assert deleted.seen(["g", "h"], ["g", "h"], 5.0) == []
    assert deleted.seen(["g", "h"], ["h"], 6.0) == []
    assert deleted.seen(["g", "h"], ["h"], 6.0 + GONE_SECONDS) == ["g"]
    assert deleted.seen(["h"], ["h"], 6.0 + GONE_SECONDS) == []


@pytest.mark.parametrize(
    ("state", "there", "why"),
    [
        ("empty", {HERE: 50}, ""),
        ("empty", {}, ""),
        ("dead", {}, None),
        ("stable", {HERE: 50}, "has members"),
        ("empty", {HERE: 51}, "has been read"),
        ("empty", {HERE: 50, ("theirs", 0): 1}, "did not write"),
    ],
)
def test_only_a_group_that_is_wholly_ours_is_deleted(
    state: str, there: dict[tuple[str, int], int], why: str | None
) -> None:
    """Idle, and every offset where the link put it; with any other an application owns it by now."""
    found = decide_deletion(TargetGroup(state, there), {HERE: 50, ("east.payments", 0): 7})

    assert (found == why) if not why else (found is not None and why in found)
