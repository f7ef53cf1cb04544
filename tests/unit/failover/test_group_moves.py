"""Where groups resume on a promoted target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror.failover.group_moves import Absence, GroupMove, counted, plan_moves, written
from eomirror.groups.offset_queries import GroupsThere
from eomirror.groups.translation import OtherRecords, Translation
from eomirror.kafka.consumer_groups import Committed, GroupState
from eomirror.records.promotion import Cut
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ORDERS = SourcePartition("orders", 0)
COPY = ("east.orders", 0)
CUT = Cut(
    topic="orders", partition=0, topic_id="t", position=100, target_topic="east.orders", target_topic_id="u",
    target_end=90, timestamp=1,
)  # fmt: skip


def row(**changes: Any) -> Translation:
    """A group at source offset 40, which is 36 on the target."""
    values: dict[str, Any] = {
        "link": "l", "group": "billing", "topic": "orders", "partition": 0, "offset": 40, "to_topic": "east.orders",
        "to_partition": 0, "to_offset": 36, "kind": "exact", **changes,
    }  # fmt: skip
    return Translation(**values)


def there(rows: Sequence[Translation], has: Mapping[str, int], states: Mapping[str, str]) -> GroupsThere:
    """The groups of rows on the target; by default they do not exist there."""
    return GroupsThere(
        {one.group: GroupState(states.get(one.group, "DEAD"), 0, idle=True) for one in rows},
        {group: {COPY: Committed(offset)} for group, offset in has.items()},
    )


def planned(
    *,
    placed: tuple[int, ...] = (),
    has_offset: int | None = None,
    state: str = "DEAD",
    from_checkpoints: bool = False,
    active: Mapping[str, str] | None = None,
    absences: Mapping[SourcePartition, Sequence[Absence]] | None = None,
    **changes: Any,
) -> GroupMove:
    rows = [row(**changes)]
    has = {} if has_offset is None else {"billing": has_offset}
    (move,) = plan_moves(
        rows,
        there(rows, has, {"billing": state}),
        {ORDERS: CUT},
        {COPY: 7},
        {("billing", *COPY): placed} if placed else {},
        from_checkpoints=from_checkpoints,
        active=active,
        absences=absences,
    )
    return move


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ("move", 36, "exact")),
        ({"kind": "next"}, ("move", 36, "next")),
        ({"has_offset": 36}, ("stay", 36, "exact")),
        ({"has_offset": 10}, ("move", 36, "exact")),
        ({"has_offset": 50}, ("skip", 36, "exact")),
        ({"has_offset": 50, "placed": (50,)}, ("move", 36, "exact")),
        ({"has_offset": 50, "placed": (49, 36)}, ("skip", 36, "exact")),
        # it went back on the source, its checkpoint is written, and its offset on the target is not
        ({"has_offset": 50, "placed": (50, 36)}, ("move", 36, "exact")),
        ({"has_offset": 50, "placed": (50, 36), "from_checkpoints": True}, ("move", 36, "exact")),
        ({"state": "STABLE"}, ("skip", 36, "exact")),
        ({"offset": 100, "to_offset": None, "kind": "unknown"}, ("move", 90, "cut")),
        ({"offset": 500, "to_offset": None, "kind": "unknown"}, ("move", 90, "cut")),
        ({"offset": 99, "to_offset": None, "kind": "unknown"}, ("move", 7, "start")),
        ({"offset": -1, "to_offset": None, "kind": "unknown"}, ("move", 7, "start")),
        (
            {
                "offset": 500,
                "to_offset": None,
                "kind": "unknown",
                "reason": "topic a was deleted and created again",
            },
            ("skip", None, "unknown"),
        ),
    ],
)
def test_a_group_resumes_at_its_record_or_before(changes: dict[str, Any], expected: tuple[Any, ...]) -> None:
    """Never behind a record that it has not read; a group that consumers use on the target is left alone."""
    move = planned(**changes)

    assert (move.action, move.to_offset, move.kind) == expected
    assert (move.action == "skip") <= bool(move.reason)


def test_a_checkpoint_is_a_lower_bound() -> None:
    """The group may have read further since, by an unknown number of records."""
    assert planned(from_checkpoints=True).again is None
    assert planned().again == 0


@pytest.mark.parametrize(
    ("offset", "at", "expected"),
    [
        (19, 18, ("exact", 18)),
        (20, 60, ("earlier", 25)),
        (39, 60, ("earlier", 25)),
        (40, 60, ("exact", 60)),
        (20, 25, ("exact", 25)),
        # the link has mirrored nothing there since its return
        (20, None, ("earlier", 25)),
        (19, None, ("start", 3)),
    ],
)
def test_a_group_among_records_of_the_link_back_resumes_where_applications_began(
    offset: int, at: int | None, expected: tuple[str, int]
) -> None:
    """The copy holds what was written there while the link was promoted, and one map would skip it."""
    rows = [row(offset=offset, to_offset=at)]
    (move,) = plan_moves(
        rows,
        there(rows, {}, {}),
        {ORDERS: CUT},
        {COPY: 3},
        {},
        absences={ORDERS: [Absence(20, 40, 25)]},
    )

    assert (move.kind, move.to_offset) == expected
    assert (move.again is None) is (move.kind in {"earlier", "start"})
    assert ("among records that the link back wrote" in move.reason) is (move.kind == "earlier")


@pytest.mark.parametrize("at", [None, 60])
def test_a_group_among_records_of_the_link_back_does_not_resume_below_the_log_start(at: int | None) -> None:
    """Retention has removed what applications wrote first; a consumer there would jump to the end."""
    rows = [row(offset=20, to_offset=at)]
    absent = {ORDERS: [Absence(20, 40, 25)]}
    (move,) = plan_moves(rows, there(rows, {}, {}), {ORDERS: CUT}, {COPY: 50}, {}, absences=absent)
    assert (move.kind, move.to_offset, move.action) == ("earlier", 50, "move")


PAST = "east.orders-0 holds records of link north from offset 30 on, before 36, which the group may not have read"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # as the translator has it
        ({"to_offset": None, "kind": "unknown", "reason": PAST}, ("skip", None, "unknown")),
        (
            {"to_offset": None, "kind": "unknown", "reason": PAST, "from_checkpoints": True},
            ("skip", None, "unknown"),
        ),
        ({"offset": 26, "to_offset": 30}, ("move", 30, "exact")),
        # the end of the copy at the cut is behind them, too
        ({"offset": 500, "to_offset": None, "kind": "unknown"}, ("skip", None, "unknown")),
        ({"offset": 40, "absences": {ORDERS: [Absence(40, 50, 33)]}}, ("skip", None, "unknown")),
        # the start of the copy passes nothing
        ({"offset": 3, "to_offset": None, "kind": "unknown"}, ("move", 7, "start")),
        (
            {"offset": -1, "to_offset": None, "kind": "unknown", "from_checkpoints": True},
            ("move", 7, "start"),
        ),
    ],
)
def test_a_group_is_not_moved_past_records_of_another_link(
    changes: dict[str, Any], expected: tuple[Any, ...]
) -> None:
    """Which of them it has read is not known; no consumer that seeks by hand is given such an offset either."""
    move = planned(others=OtherRecords("north", 30), **changes)

    assert (move.action, move.to_offset, move.kind) == expected
    assert (move.again is None) is (move.kind != "exact")
    assert ("link north from offset 30 on" in move.reason) is (move.action == "skip")


@pytest.mark.parametrize(("beyond", "again"), [(0, 0), (1, 1), (30, 30)])
def test_a_group_at_the_cut_may_read_merged_orphans_again(beyond: int, again: int) -> None:
    """It has read them on the source, and a merge brings them behind the cut: that many at most."""
    move = planned(offset=100 + beyond, to_offset=None, kind="unknown")

    assert (move.kind, move.to_offset, move.again) == ("cut", 90, again)
    assert ("restore --orphans merge" in move.reason) is bool(beyond)


@pytest.mark.parametrize("kind", ["exact", "next"])
def test_a_group_behind_what_the_copy_has_lost_resumes_at_the_cut(kind: str) -> None:
    """The offset map still names target offsets that applications take from there on."""
    move = planned(offset=98, to_offset=91, kind=kind)

    assert (move.kind, move.to_offset, move.again, move.action) == ("cut", 90, None, "move")
    assert planned(offset=98, to_offset=90, kind=kind).kind == kind


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, "earlier"),
        ({"kind": "next"}, "earlier"),
        ({"kind": "earlier", "again": 4}, "earlier"),
        ({"offset": 500, "to_offset": None, "kind": "unknown"}, "cut"),
        ({"offset": 3, "to_offset": None, "kind": "unknown"}, "start"),
    ],
)
def test_a_group_with_members_on_the_source_reads_again_what_is_not_known(
    changes: dict[str, Any], kind: str
) -> None:
    """They commit behind this look: its offset is a lower bound, and never called exact."""
    move = planned(active={"billing": "it has members on the source (state stable)"}, **changes)

    assert (move.action, move.kind, move.again, move.active_on_source) == ("move", kind, None, True)
    assert "members on the source" in move.reason
    assert planned(active={"other": "busy"}, **changes).active_on_source is False


def test_groups_are_counted_once_whatever_their_partitions() -> None:
    """A group with one offset that cannot be set counts as skipped."""
    rows = [
        row(),
        row(group="busy"),
        row(group="busy", partition=1, offset=3),
        row(group="new"),
        row(group="refused"),
        row(group="same"),
        row(group="ahead", offset=100, to_offset=None, kind="unknown"),
    ]
    moves = plan_moves(rows, there(rows, {"same": 36}, {"busy": "STABLE"}), {ORDERS: CUT}, {COPY: 7}, {})

    assert counted(moves, {"refused": "why"}) == {"moved": 3, "stayed": 1, "cut": 1, "skipped": 2}
    assert set(written(moves)) == {"billing", "new", "refused", "ahead"}
