"""Whether records would be written back to where they came from, by a link that another one comes to meet."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest

from eomirror.config import Link
from eomirror.errors import NotReadyError
from eomirror.lane.spec import AssignedPartition
from eomirror.link.start_checks import StartChecks, StartFacts
from eomirror.link.start_rules import (
    ReverseLink,
    copies_back,
    meetings,
    round_trip,
    runs,
    still_marking,
    unmoved,
)
from eomirror.records.position import Position
from eomirror.types import SourcePartition
from support.fakes import claims

T0 = SourcePartition("t", 0)
# ours reads t of west and writes t of east
OURS = AssignedPartition(T0, "west-t", "t", "east-t")


def position(**changes: Any) -> Position:
    """Where the link stands that copies t from east to west: four records, at 0 to 6 there."""
    values: dict[str, Any] = {
        "topic": "t", "partition": 0, "offset": 9, "source_cluster_id": "east", "topic_id": "east-t",
        "target_topic": "t", "target_partition": 0, "target_topic_id": "west-t", "target_offset": 6,
        "generation": 1, "lane": 0, "run": "r", "epoch": 1, "attempt": 1, "producer_id": 1, "producer_epoch": 0,
        "txn": 4, "total_records": 4, "timestamp": 0, **changes,
    }  # fmt: skip
    return Position(**values)


def met(*opposites: ReverseLink) -> dict[SourcePartition, tuple[ReverseLink, ...]]:
    return meetings([OURS], opposites, target_cluster_id="east")


BARE = ReverseLink("east.west", position())
MARKED = ReverseLink("east.west", position(header=True))


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"source_cluster_id": "north"},
        {"topic_id": "an older t of east"},
        {"target_topic_id": "an older t of west"},
        {"topic": "u"},
        {"target_topic": "u"},
        {"target_partition": 1},
    ],
)
def test_links_meet_where_each_reads_what_the_other_writes(elsewhere: dict[str, Any]) -> None:
    """Anything else is another topic, or another cluster's."""
    assert met(BARE) == {T0: (BARE,)}
    assert met(ReverseLink("east.west", position(**elsewhere))) == {}


def test_two_links_that_run_and_know_nothing_of_each_other_are_refused() -> None:
    """Without guard every record would go round for ever; with it, or beside a link that is gone, none does."""
    running = replace(BARE, running=True)

    refused = round_trip("west->east", met(BARE, running), guard=False)

    assert refused is not None
    assert refused.topic == "t"
    assert "east.west" in refused.message
    assert round_trip("west->east", met(running), guard=True) is None
    assert round_trip("west->east", met(BARE), guard=False) is None


@pytest.mark.parametrize(
    ("opposite", "start", "guard", "refused"),
    [
        (BARE, 0, True, True),
        (BARE, 6, True, True),
        (BARE, 7, True, False),
        (BARE, 0, False, True),
        (MARKED, 0, True, False),
        (MARKED, 0, False, True),
        (replace(MARKED, adopted=6), 6, True, True),
        (replace(MARKED, adopted=3), 4, True, False),
        (ReverseLink("east.west", position(target_offset=None)), 0, False, False),
        # promoted at 4: what it has written since are merged orphans, which it marks
        (replace(BARE, cut=4), 4, True, False),
        (replace(BARE, cut=9), 6, True, True),
        (replace(BARE, cut=4), 4, False, True),
    ],
)
def test_copies_that_nothing_marks_are_not_written_back(
    opposite: ReverseLink, start: int, guard: bool, refused: bool
) -> None:
    """A link that begins before the last of them would take them for records of the source's applications."""
    error = copies_back("west->east", {T0: start}, met(opposite), guard=guard)

    assert (error is not None) == refused
    if error is not None:
        assert error.topic == "t"
        # a start at the end of a promoted copy would leave out what applications have written there
        way = "--resume-at t-0=7" if opposite.cut is None else "`eomirror reverse CONFIG`"
        assert way in error.fix
        assert ("start: latest" in error.fix) is (opposite.cut is None)


def test_a_partition_that_has_not_moved_may_still_bring_everything_back() -> None:
    """Its first position was committed by a run that was refused behind it."""
    first = position(txn=0, total_records=0, offset=0)
    moved = position(partition=1)

    assert unmoved({T0: first, moved.source: moved}, ()) == {T0: 0}
    assert unmoved({T0: first}, {T0}) == {}


@pytest.mark.parametrize(
    ("provenance", "header", "marks"),
    [("auto", True, True), ("auto", False, False), ("off", True, False)],
)
def test_a_link_that_has_marked_its_copies_goes_on(provenance: str, header: bool, marks: bool) -> None:
    """The way back may be out of the file for a month only, and goes on where it stood."""
    link = Link(name="l", source="east", target="west", topics=("t",), provenance=provenance)

    assert still_marking(link, [position(), position(header=header)]).provenance_header == marks


@pytest.mark.parametrize(
    ("claim", "dead", "now_ms", "living"),
    [
        (None, False, 0, False),
        (claims.claim("r", 1), False, 59_999, True),
        (claims.claim("r", 1), False, 60_000, False),
        (claims.claim("r", 1), True, 0, False),
        (claims.claim("r", 1, released=True), False, 0, False),
    ],
)
def test_a_link_runs_while_its_claim_is_young(claim: Any, dead: bool, now_ms: int, living: bool) -> None:
    """One that was released, or whose process is gone, brings nothing more."""
    assert runs(claim, dead=dead, now_ms=now_ms) == living


def test_a_link_begins_in_the_copies_of_a_promoted_link_with_the_reversal_alone() -> None:
    """Whatever its `start` says; where a command has chosen the offset, or the other link mirrors, it begins."""
    link = Link(name="back", source="west", target="east", topics=("t",))
    session: Any = SimpleNamespace(admin=None, clock=None)
    with patch("eomirror.link.start_checks.OtherLinks"):
        checks = StartChecks(link, session, session)
    for opposite, adopted, refused in (
        (replace(MARKED, cut=7), (), True),
        (replace(BARE, cut=7), (), True),
        (replace(MARKED, cut=7), (T0,), False),
        (MARKED, (), False),
    ):
        checks._met = met(opposite)
        with pytest.raises(NotReadyError) if refused else nullcontext() as raised:
            checks.refuse(["copies_of_a_promoted_link"], StartFacts(known=adopted, first_run=True))
        if raised is not None:
            assert "eomirror reverse CONFIG --link east.west" in raised.value.fix
            assert "t-0" in raised.value.message
