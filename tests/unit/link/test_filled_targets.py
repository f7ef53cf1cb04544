"""Which copies a link may begin, decided from what stands in them and who wrote it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eomirror.lane.spec import AssignedPartition
from eomirror.link.start_checks import StartFacts
from eomirror.link.start_rules import (
    Copy,
    Held,
    ReverseLink,
    ahead,
    carried_on_error,
    filled,
    filled_error,
    link_of,
    running_twin,
    sharers,
    twins,
)
from eomirror.records.control import ControlView, Generation
from eomirror.records.position import Position
from eomirror.types import Assignment, SourcePartition
from support.fakes import claims

ITEM = AssignedPartition(SourcePartition("orders", 0), "id-s", "east.orders", "id-t")
COPY = Copy(ITEM, 10, 510, Held.RECORDS)


def position(**changes: Any) -> Position:
    made = Position(
        topic="orders", partition=0, offset=7, source_cluster_id="S", topic_id="id-s", target_topic="east.orders",
        target_partition=0, target_topic_id="id-t", target_offset=3, generation=1, lane=0, run="r", epoch=1,
        attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=0,
    )  # fmt: skip
    return replace(made, **changes)


@pytest.mark.parametrize(
    ("changes", "guard", "expected"),
    [
        ({"held": Held.NOTHING}, False, False),
        # of a link that shares the copy, or has lost its state: without records nothing comes twice
        ({"held": Held.NOTHING, "writers": frozenset({"a.b"})}, False, False),
        ({"held": Held.HEARTBEATS}, False, False),
        ({}, False, True),
        ({"held": Held.OPEN}, False, True),
        ({"held": Held.UNSEEN}, False, True),
        # by right: applications, and other links
        ({}, True, False),
        ({"held": Held.OPEN}, True, False),
        ({"shared": frozenset({"c.b"})}, False, False),
        # and what is not
        ({"held": Held.OURS}, True, True),
        ({"held": Held.UNSEEN}, True, True),
        ({"writers": frozenset({"a.b"})}, True, True),
        ({"shared": frozenset({"c.b"}), "writers": frozenset({"a.b", "c.b"})}, False, True),
        ({"shared": frozenset({"c.b"}), "writers": frozenset({"c.b"})}, False, False),
        ({"twin": ReverseLink("x", position()), "shared": frozenset({"c.b"})}, True, True),
        # one that has mirrored nothing has written nothing
        ({"twin": ReverseLink("x", position(target_offset=None))}, True, False),
    ],
)
def test_a_copy_is_filled_by_what_would_come_twice(
    changes: dict[str, Any], guard: bool, expected: bool
) -> None:
    """EO-1: what stands there by right is no reason, and nothing else is passed over."""
    assert filled(replace(COPY, **changes), link="a.b", guard=guard) is expected


def test_twins_copy_the_same_partition_and_sharers_another() -> None:
    """By ids: a copy of that name that was deleted since, or another source's topic of that name, is another one."""
    others = [
        ReverseLink("twin", position()),
        ReverseLink("older", position(target_topic_id="gone")),
        ReverseLink("elsewhere", position(target_topic="other")),
        ReverseLink("shares", position(source_cluster_id="T")),
        ReverseLink("joins", position(topic="clicks")),
        ReverseLink("next", position(target_partition=1, partition=1)),
    ]

    assert {
        source: [each.link for each in found]
        for source, found in twins([ITEM], others, source_cluster_id="S").items()
    } == {ITEM.source: ["twin"]}
    assert sharers([ITEM], others, source_cluster_id="S") == {ITEM.source: {"shares", "joins"}}


def test_a_copy_is_carried_on_by_a_link_that_is_further_in_the_same_one() -> None:
    """EO-1: by ids, as twins are; the furthest of several counts, and one that places records otherwise is none."""
    others = [
        ReverseLink("behind", position(offset=6)),
        ReverseLink("here", position(offset=7)),
        ReverseLink("ahead", position(offset=9)),
        ReverseLink("further", position(offset=12)),
        ReverseLink("again", position(offset=11)),
        ReverseLink("recreated", position(offset=50, topic_id="other")),
        ReverseLink("elsewhere", position(offset=50, target_topic="other")),
        ReverseLink("older", position(offset=50, target_topic_id="gone")),
        ReverseLink("shares", position(offset=50, source_cluster_id="T")),
        ReverseLink("next", position(offset=50, partition=1)),
        ReverseLink("keyed", position(offset=50, keyed={"0": 3})),
    ]

    def found(offsets: dict[SourcePartition, int], *, keyed: bool = False) -> dict[SourcePartition, str]:
        twins_ahead = ahead([ITEM], offsets, others, source_cluster_id="S", keyed=keyed)
        return {source: each.link for source, each in twins_ahead.items()}

    assert found({ITEM.source: 7}) == {ITEM.source: "further"}
    assert found({ITEM.source: 12}) == {}
    assert found({}) == {ITEM.source: "further"}
    assert found({}, keyed=True) == {ITEM.source: "keyed"}

    twin = {ITEM.source: others[3], SourcePartition("orders", 1): others[2]}
    error = carried_on_error("l", twin, {ITEM.source: 7, SourcePartition("orders", 1): 8})
    assert (
        "link further has mirrored orders-0 in the meantime, and is at 12 where this link is at 7"
        in error.message
    )
    assert "and so are 1 more partitions" in error.message
    assert "--resume-at orders-0=12 --resume-at orders-1=9" in error.fix


@pytest.mark.parametrize("alone", [True, False])
def test_a_link_that_ended_alone_looks_at_all_that_others_did_since(alone: bool) -> None:
    """EO-1: one that took its topics may have been killed a second later; those that stopped with it need no look."""
    layout = Generation(
        generation=1,
        revision=0,
        run="r",
        highest_lane=0,
        assignment=Assignment(1, {ITEM.source: 0}),
        timestamp=0,
    )
    last = claims.claim("r", 5, released=True, timestamp=70_000, alone=alone)
    asked = StartFacts(items=[ITEM]).of_others(ControlView(layout, last), {ITEM.source: position()}, but=())
    assert asked.offsets.keys() == {ITEM.source}
    assert (asked.since <= last.timestamp) == alone


def test_only_a_running_twin_keeps_a_link_from_running() -> None:
    """What ended may be followed by another; what runs may not be joined."""
    idle, running = ReverseLink("x", position()), ReverseLink("y", position(), running=True)

    assert running_twin("l", {ITEM.source: (idle,)}) is None
    error = running_twin("l", {ITEM.source: (idle, running)})
    assert error is not None
    assert "link y runs, and mirrors orders-0 into east.orders-0 as well" in error.message


def test_the_error_names_the_count_the_writer_and_the_ways_on() -> None:
    """What a person needs to decide stands in the message, and what to type in the fix."""
    more = replace(COPY, twin=ReverseLink("x", position()))
    error = filled_error("l", "a.b", [more, COPY], first_run=True)
    assert "copy east.orders-0 holds up to 500 records; so do the copies of 1 more partition" in error.message
    assert "link x has written them from the same source partition, and is at 7" in error.message
    for way in ("--resume-at orders-0=7 --resume-at orders-0=OFFSET;", "start: latest", "--into-filled"):
        assert way in error.fix
    many = filled_error("l", "a.b", [more] * 15, first_run=True)
    assert many.fix.count("--resume-at orders-0=7") == 12
    assert "and so on for 3 more" in many.fix

    error = filled_error("l", "a.b", [replace(COPY, writers=frozenset({"a.b"}))], first_run=False)
    assert "orders is new to it" in error.message
    assert "this very link" in error.message
    assert "start: latest" not in error.fix

    error = filled_error(
        "l", "a.b", [replace(COPY, writers=frozenset({"c.b"}), held=Held.OPEN)], first_run=False
    )
    assert "holds an open transaction of up to 500 records; link c.b has written there" in error.message


@pytest.mark.parametrize(
    ("transactional_id", "link"),
    [
        ("eomirror.a.b.0", "a.b"),
        ("eomirror.name.12", "name"),
        ("eomirror.name.control", ""),
        ("eomirror.0", ""),
        ("app.name.0", ""),
        ("orders", ""),
    ],
)
def test_a_lane_is_told_by_its_transactional_id(transactional_id: str, link: str) -> None:
    """The owner's own id writes no copies, and neither does an application's."""
    assert link_of(transactional_id) == link
