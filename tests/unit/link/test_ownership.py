"""Who owns a link: claims, generations and fencing (rules 2 and 10)."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.errors import NotReadyError, StateError, SupersededError
from eomirror.link.assignment import lent
from eomirror.link.ownership import (
    AfterFencing,
    ClaimDecision,
    after_fencing,
    check_positions,
    is_complete,
    judge_claim,
    left,
    moved,
    next_generation,
    refuse_handed_over,
    revised,
    superseded_by,
    unpublished,
)
from eomirror.records.control import Claim, ControlView, Generation, HandedOver
from eomirror.records.promotion import Promotion, PromotionHistory, Reversal
from eomirror.types import Assignment, SourcePartition
from support.fakes import claims
from support.fakes.lane_fakes import ORDERS, PAYMENTS, position

if TYPE_CHECKING:
    from eomirror.records.position import Position


# no layout knows it
LATER = SourcePartition("later", 0)


def claim(run: str = "theirs", sequence: int = 5, **changes: Any) -> Claim:
    """Another's, unless a test says whose."""
    return claims.claim(run, sequence, **{"host": "h1", "pid": 42, "boot": "b", "started": "1", **changes})


def judge(first: Claim | None, latest: Claim | None, **changes: Any) -> ClaimDecision:
    values: dict[str, Any] = {
        "run": "ours", "watched": 0.0, "take_over": False, "is_dead": lambda _: False, **changes,
    }  # fmt: skip
    return judge_claim(first, latest, **values)


@pytest.mark.parametrize(
    ("first", "latest", "changes", "looked"),
    [
        (None, None, {}, ClaimDecision.TAKE),
        (claim(), claim(), {}, ClaimDecision.WATCH),
        (claim(), claim(), {"watched": 6.9}, ClaimDecision.WATCH),
        (claim(), claim(), {"watched": 7.1}, ClaimDecision.TAKE),
        (claim(), claim(sequence=6), {}, ClaimDecision.LEAVE),
        (claim(), claim(sequence=6), {"watched": 60.0}, ClaimDecision.LEAVE),
        (claim(), claim(run="third"), {}, ClaimDecision.LEAVE),
        (claim(), claim(sequence=6, released=True), {}, ClaimDecision.TAKE),
        (claim(released=True), claim(released=True), {}, ClaimDecision.TAKE),
        (claim(), claim(sequence=6), {"take_over": True}, ClaimDecision.TAKE),
        # --take-over is meant for the owner that was there, and not for another newcomer that was quicker
        (claim(), claim(run="third"), {"take_over": True}, ClaimDecision.LEAVE),
        (None, claim(run="third"), {"take_over": True}, ClaimDecision.LEAVE),
        (claim(), claim(run="third", released=True), {"take_over": True}, ClaimDecision.TAKE),
        (claim(), claim(run="third"), {"take_over": True, "is_dead": lambda _: True}, ClaimDecision.TAKE),
        # a failover is not kept from the link by a mirror that starts meanwhile, and a mirror stops no command
        (claim(), claim(run="third"), {"take_over": True, "command": "failover"}, ClaimDecision.TAKE),
        (None, claim(run="third"), {"take_over": True, "command": "failover"}, ClaimDecision.TAKE),
        (
            claim(),
            claim(run="third"),
            {"take_over": True, "command": "failover", "fenced": True},
            ClaimDecision.TAKE,
        ),
        (
            claim(),
            claim(run="third", command="cutover"),
            {"take_over": True, "command": "failover"},
            ClaimDecision.LEAVE,
        ),
        (
            claim(command="cutover"),
            claim(command="cutover"),
            {"take_over": True, "command": "failover"},
            ClaimDecision.TAKE,
        ),
        (claim(command="failover"), claim(command="failover"), {"take_over": True}, ClaimDecision.WATCH),
        (
            claim(command="failover"),
            claim(command="failover", sequence=6),
            {"take_over": True},
            ClaimDecision.LEAVE,
        ),
        (
            claim(command="failover"),
            claim(command="failover"),
            {"take_over": True, "is_dead": lambda _: True},
            ClaimDecision.TAKE,
        ),
        # adopt takes no link from a living mirror
        (claim(), claim(run="third"), {"command": "adopt"}, ClaimDecision.LEAVE),
        # fenced on the way: the run that did it publishes within moments, or is gone
        (claim(), claim(), {"take_over": True, "fenced": True}, ClaimDecision.WATCH),
        (claim(), claim(), {"take_over": True, "fenced": True, "watched": 7.1}, ClaimDecision.TAKE),
        (claim(), claim(run="third"), {"take_over": True, "fenced": True}, ClaimDecision.LEAVE),
        # it was the owner, which rebuilt its producer
        (claim(), claim(sequence=6), {"take_over": True, "fenced": True}, ClaimDecision.TAKE),
        (claim(), claim(sequence=6), {"fenced": True}, ClaimDecision.LEAVE),
        (None, None, {"fenced": True}, ClaimDecision.WATCH),
        (None, None, {"fenced": True, "watched": 7.1}, ClaimDecision.TAKE),
        (None, claim(run="third"), {"fenced": True}, ClaimDecision.LEAVE),
        (claim(released=True), claim(released=True), {"fenced": True}, ClaimDecision.WATCH),
        # we had published when it happened
        (claim(), claim(run="ours"), {"fenced": True}, ClaimDecision.TAKE),
        (claim(), claim(), {"is_dead": lambda _: True}, ClaimDecision.TAKE),
        # its last renewal became visible after it was killed
        (claim(), claim(sequence=6), {"is_dead": lambda _: True}, ClaimDecision.TAKE),
        (claim(run="ours"), claim(run="ours", sequence=9), {}, ClaimDecision.TAKE),
    ],
)
def test_claims(
    first: Claim | None, latest: Claim | None, changes: dict[str, Any], looked: ClaimDecision
) -> None:
    """EO-10: leave to the living, take from the dead, watch when in doubt."""
    assert judge(first, latest, **changes) is looked


def generation(number: int = 7, run: str = "theirs", lanes: int = 2, highest: int = 4) -> Generation:
    layout = Assignment(lanes, {ORDERS: 1}, frozenset({PAYMENTS}))
    return Generation(
        generation=number, revision=3, run=run, highest_lane=highest, assignment=layout, timestamp=0
    )


@pytest.mark.parametrize(
    ("view", "then"),
    [
        (ControlView(), AfterFencing.LOOK),
        (ControlView(generation(run="ours"), claim(run="ours")), AfterFencing.REBUILD),
        (ControlView(generation(run="theirs"), claim(run="ours")), AfterFencing.LEAVE),
        (ControlView(generation(run="ours"), claim(run="theirs")), AfterFencing.LEAVE),
    ],
)
def test_after_fencing(view: ControlView, then: AfterFencing) -> None:
    """EO-10: own run in control: rebuild; another: leave."""
    assert after_fencing(view, run="ours") is then


def test_a_new_generation_fences_every_lane_that_ever_was() -> None:
    """EO-2: fewer lanes than before still fence the highest id ever used."""
    after = next_generation(ControlView(generation()), run="ours", lanes=1, partitions=[ORDERS], now_ms=1)

    assert (after.generation, after.revision, after.run, after.highest_lane) == (8, 0, "ours", 4)
    assert after.assignment.partitions == {ORDERS: 0}


def test_the_first_generation() -> None:
    """A link that never ran starts with generation 1."""
    after = next_generation(ControlView(), run="ours", lanes=3, partitions=[ORDERS], now_ms=1)

    assert (after.generation, after.highest_lane, after.assignment.lanes) == (1, 2, 3)


def test_partitions_that_left_stay_known() -> None:
    """A partition that no lane mirrors now keeps its position, and must not start at 0 when it comes back."""
    after = next_generation(ControlView(generation()), run="ours", lanes=2, partitions=[], now_ms=1)

    assert after.assignment.known == {ORDERS, PAYMENTS}


def test_a_revision_adds_and_never_moves() -> None:
    """EO-2: same generation, next revision, old partitions where they were."""
    before = generation(run="ours")
    after = revised(before, [LATER], now_ms=2)

    assert (after.generation, after.revision) == (7, 4)
    assert after.assignment.partitions[ORDERS] == 1
    assert LATER in after.assignment.partitions


def test_a_partition_that_comes_back_gets_a_generation_of_its_lane() -> None:
    """EO-2: within the one before, another lane may have had it; and a lane that gets none goes on as it is."""
    layout = Assignment(3, {ORDERS: 0, PAYMENTS: 1, LATER: 2})
    before = Generation(generation=7, revision=3, run="ours", highest_lane=4, assignment=layout, timestamp=0)
    away = moved(before, {LATER: None, PAYMENTS: None}, givers=[1, 2], now_ms=5)
    assert away.assignment == Assignment(3, {ORDERS: 0}, frozenset({LATER, PAYMENTS}))
    assert [away.of_lane(lane) for lane in range(3)] == [7, 8, 8]

    back = revised(away, [LATER], now_ms=6)
    lane = back.assignment.partitions[LATER]
    assert (back.generation, back.assignment.parked) == (9, {PAYMENTS})
    assert back.since == tuple(9 if number == lane else away.of_lane(number) for number in range(3))
    for lanes, givers in (({ORDERS: None}, [1]), ({LATER: None}, [0, 1, 2])):
        with pytest.raises(StateError, match="EO-2"):
            moved(away, lanes, givers=givers, now_ms=5)


@pytest.mark.parametrize(
    ("view", "positions", "map_has_records"),
    [
        (ControlView(), {ORDERS: position(ORDERS, 5, generation=3)}, False),
        (ControlView(generation(7)), {ORDERS: position(ORDERS, 5, generation=8)}, False),
        (ControlView(), {}, True),
    ],
)
def test_state_topics_that_contradict_each_other_are_refused(
    view: ControlView, positions: dict[Any, Any], map_has_records: bool
) -> None:
    """A lost control topic would number generations anew and lose positions to compaction."""
    with pytest.raises(StateError, match="deleted or restored"):
        check_positions("east->west", view, positions, map_has_records=map_has_records)


def test_state_topics_in_step_are_accepted() -> None:
    """The usual start."""
    check_positions("l", ControlView(), {}, map_has_records=False)
    check_positions(
        "l", ControlView(generation(7)), {ORDERS: position(ORDERS, 5, generation=7)}, map_has_records=True
    )


def test_first_positions_whose_layout_was_never_shown_are_taken_up() -> None:
    """EO-2: no lane ran with it; where the link begins stays as it was decided, and the next layout is the newest."""
    view = ControlView(generation(7))
    lane = position(ORDERS, 5, generation=7)
    first = position(LATER, 40, generation=8, epoch=0, attempt=0, txn=0)
    positions = {ORDERS: lane, LATER: first}

    check_positions("l", view, positions, map_has_records=True)
    check_positions("l", ControlView(), {LATER: first}, map_has_records=False)

    assert unpublished(view, positions) == {LATER: first}
    assert unpublished(ControlView(), {LATER: first}) == {LATER: first}
    following = next_generation(view, run="r", lanes=1, partitions=[ORDERS, LATER], now_ms=1, above=8)
    assert following.generation == 9


@pytest.mark.parametrize(
    "theirs",
    [
        pytest.param(position(LATER, 40, generation=8), id="a-lane-wrote-it"),
        pytest.param(position(ORDERS, 40, generation=8, epoch=0), id="control-knows-its-partition"),
    ],
)
def test_other_positions_of_a_generation_that_control_does_not_know_are_refused(theirs: Position) -> None:
    """They were shown to lanes, or overrule what was: control was lost."""
    with pytest.raises(StateError, match="deleted or restored"):
        check_positions("l", ControlView(generation(7)), {theirs.source: theirs}, map_has_records=False)


@pytest.mark.parametrize(
    ("published", "view", "positions", "complete"),
    [
        pytest.param(None, None, set(), True, id="only-a-claim"),
        pytest.param({ORDERS: 0}, None, set(), False, id="its-owner-died-before-the-first-position"),
        pytest.param({ORDERS: 0, PAYMENTS: 1}, None, {ORDERS}, False, id="or-one-of-them-was-aborted"),
        pytest.param({ORDERS: 0, PAYMENTS: 1}, None, {ORDERS, PAYMENTS}, True, id="all-are-there"),
        pytest.param({ORDERS: 1}, {ORDERS: 0}, set(), True, id="nothing-new-in-it"),
        pytest.param({ORDERS: 0, PAYMENTS: 1}, {ORDERS: 0}, {PAYMENTS}, True, id="an-extension"),
    ],
)
def test_a_publication_that_was_left_open_is_committed_if_its_positions_are_there(
    published: dict[Any, int] | None, view: dict[Any, int] | None, positions: set[Any], complete: bool
) -> None:
    """A layout without first positions would keep the link from starting ever again."""

    def said(partitions: dict[Any, int] | None) -> ControlView:
        if partitions is None:
            return ControlView()
        layout = Assignment(2, partitions)
        return ControlView(replace(generation(7), assignment=layout))

    assert is_complete(said(published), said(view), positions) is complete


def test_the_one_that_leaves_names_the_owner() -> None:
    """Exit 5, with host and process, and what to do."""
    error = superseded_by("east->west", ControlView(claim=claim()))

    assert isinstance(error, SupersededError)
    assert error.exit_code == 5
    assert "run theirs on h1 (pid 42)" in error.message
    assert "--take-over" in error.fix


def promoted(**changes: Any) -> Promotion:
    values: dict[str, Any] = {
        "number": 2, "planned": False, "run": "r", "host": "ops-7", "generation": 3, "source_cluster_id": "A",
        "target_cluster_id": "B", "cuts": (), "started": 0, "timestamp": 1_700_000_000_000, **changes,
    }  # fmt: skip
    return Promotion(**values)


@pytest.mark.parametrize("owner", [claim(command="failover", released=True), claim(), None])
def test_a_mirror_whose_link_was_promoted_hears_when_and_by_which_host_and_the_way_back(
    owner: Claim | None,
) -> None:
    """To take the link over would mix its records with those of applications; `run` refuses it."""
    view = ControlView(claim=owner, history=PromotionHistory({2: promoted()}))

    error = superseded_by("east->west", view)

    assert "promoted at 2023-11-14T22:13:20Z by host ops-7 (failover, number 2)" in error.message
    assert "--take-over" not in error.fix
    assert "eomirror reverse CONFIG --link 'east->west'" in error.fix


def test_after_the_reversal_it_is_pointed_to_the_link_back_and_to_failback() -> None:
    """Another reversal is not the next step."""
    reversal = Reversal(number=2, link="west->east", ends={}, run="r", timestamp=0)
    view = ControlView(history=PromotionHistory({2: promoted()}, {2: reversal}))

    error = superseded_by("east->west", view)

    assert "west->east mirrors in the other direction" in error.fix
    # the second time round it may be promoted itself
    assert "if that link was promoted since, `eomirror reverse CONFIG --link 'west->east'`" in error.fix
    assert "eomirror failback CONFIG --link 'east->west'" in error.fix


@pytest.mark.parametrize(
    ("released", "told"), [(False, "wait until that command has ended"), (True, "start this again")]
)
def test_a_mirror_that_a_command_fences_before_its_record_is_not_told_to_take_the_link_over(
    released: bool, told: str
) -> None:
    """The lanes are fenced seconds before the promotion is in control; the claim names the command."""
    view = ControlView(generation(7), claim(command="failover", released=released))

    error = superseded_by("east->west", view)

    assert "was taken by `eomirror failover` on h1 (pid 42, run theirs)" in error.message
    assert told in error.fix
    assert "--take-over" not in error.fix


def test_a_command_is_not_told_to_take_the_link_over() -> None:
    """It has no such option; a mirror that runs must be stopped first."""
    error = superseded_by("east->west", ControlView(claim=claim()), command="restore")

    assert error.fix == "stop that mirror first, then repeat this"


def test_a_command_on_a_promoted_link_hears_which_other_command_holds_it() -> None:
    """It knows that the link is promoted."""
    view = ControlView(claim=claim(command="reverse"), history=PromotionHistory({2: promoted()}))

    assert (
        "taken by `eomirror reverse` on h1"
        in superseded_by("east->west", view, although_promoted=True).message
    )


def test_a_link_that_was_handed_over_is_refused_with_when_where_and_what_to_do() -> None:
    """Its other replicator would write every record as well."""
    refuse_handed_over("a->b", ControlView())
    told = HandedOver(replicator="mm2", place="mm2-offsets.a.internal", run="r", timestamp=1_700_000_000_000)

    with pytest.raises(NotReadyError, match=r"2023-11-14T22:13:20Z .*mm2-offsets\.a\.internal") as refused:
        refuse_handed_over("a->b", ControlView(handed_over=told))

    assert "eomirror adopt" in refused.value.fix


def test_a_move_concerns_only_the_lanes_that_give_or_get() -> None:
    """EO-2: the lane that keeps what it has stays in its generation, and nothing is added or lost."""
    layout = Assignment(3, {ORDERS: 0, PAYMENTS: 1, LATER: 2})
    before = Generation(generation=7, revision=3, run="ours", highest_lane=4, assignment=layout, timestamp=0)

    after = moved(before, {LATER: 0}, givers=[2], now_ms=5)

    assert (after.generation, after.revision, after.run, after.highest_lane) == (8, 3, "ours", 4)
    assert after.assignment.partitions == {ORDERS: 0, PAYMENTS: 1, LATER: 0}
    assert [after.of_lane(lane) for lane in range(3)] == [8, 7, 8]
    back = moved(after, {LATER: 2, ORDERS: 0}, givers=[0], now_ms=6)
    assert back.assignment == layout
    assert [back.of_lane(lane) for lane in range(3)] == [9, 7, 9]
    # a partition that comes later does not change what a lane's attempts run in
    assert revised(back, [SourcePartition("new", 0)], now_ms=7).since == back.since


def test_a_move_of_what_is_not_there_is_refused() -> None:
    """A bug, found before it is published; the link ends, as its partitions would stand for ever."""
    before = generation()
    for lanes, givers in (({LATER: 0}, [0, 1]), ({ORDERS: 2}, [0, 1]), ({ORDERS: 0}, [0])):
        with pytest.raises(StateError, match="EO-2"):
            moved(before, lanes, givers=givers, now_ms=5)


def test_the_next_generation_spreads_what_was_moved() -> None:
    """A lane that had no slot in the last run gets partitions again."""
    layout = Assignment(2, {ORDERS: 0, PAYMENTS: 1})
    before = Generation(generation=7, revision=0, run="r", highest_lane=1, assignment=layout, timestamp=0)
    lost = moved(before, {PAYMENTS: 0}, givers=[1], now_ms=1)

    after = next_generation(ControlView(lost), run="s", lanes=2, partitions=[ORDERS, PAYMENTS], now_ms=2)

    assert sorted(after.assignment.partitions.values()) == [0, 1]
    assert (after.generation, after.since) == (9, ())


@pytest.mark.parametrize(
    ("to", "then"),
    [((), {}), ((1,), {ORDERS: 1, PAYMENTS: 1}), ((0, 1, 2), {ORDERS: 1, PAYMENTS: 2})],
)
def test_partitions_go_to_the_lanes_with_the_fewest(to: tuple[int, ...], then: dict[Any, int]) -> None:
    """A lane that has no slot gives all it has, never to the lane that gives."""
    assert lent({ORDERS: 0, PAYMENTS: 0}, 0, to) == then


def test_a_partition_that_left_the_link_is_known_no_more() -> None:
    """Neither in a lane nor parked; the others keep their lanes, and one that comes again is like a new one."""
    before = Generation(
        generation=4, revision=2, run="r", highest_lane=3, timestamp=1, since=(3, 4),
        assignment=Assignment(2, {ORDERS: 0}, frozenset({LATER, PAYMENTS})),
    )  # fmt: skip
    after = left(before, {PAYMENTS, LATER}, now_ms=9)
    assert after == replace(
        before, revision=3, timestamp=9, assignment=Assignment(2, {ORDERS: 0}, frozenset())
    )
    with pytest.raises(StateError, match="EO-2"):
        left(before, {ORDERS}, now_ms=9)
    again = next_generation(
        ControlView(before),
        run="s",
        lanes=2,
        partitions=[ORDERS, PAYMENTS],
        now_ms=9,
        without={PAYMENTS, LATER},
    )
    assert again.assignment.known == {ORDERS, PAYMENTS}
    assert (again.generation, again.revision) == (5, 0)
