"""How far orphans reach, what is merged, and what a restoration records of it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.errors import NotReadyError, UsageError
from eomirror.failover import restoration as module
from eomirror.failover.orphan_reader import OrphanRange
from eomirror.failover.restoration import OrphanPartition, RestorationReport, _Restore
from eomirror.plane.protocol import BatchMark
from eomirror.records.control import ControlView
from eomirror.records.dealt_ranges import DealtRange
from eomirror.records.promotion import Cut, Promotion, PromotionHistory, Restoration, Reversal
from eomirror.records.recreation import CopyBack
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import FakeClock, position

ORDERS, NEW = SourcePartition("orders", 0), SourcePartition("orders", 1)
CUT = Cut(
    topic="orders", partition=0, topic_id="t", position=20, target_topic="east.orders", target_topic_id="u",
    target_end=18, timestamp=0,
)  # fmt: skip
PROMOTION = Promotion(
    number=1, planned=False, run="r", host="h", generation=4, source_cluster_id="a", target_cluster_id="b",
    cuts=(CUT,), started=0, timestamp=0,
)  # fmt: skip
REVERSAL = Reversal(number=1, link="back", ends={ORDERS: 25}, run="r", timestamp=0)


def rules(
    log_end: int = 25, *, marks: bool = True, returned: dict[SourcePartition, int] | None = None
) -> Any:
    """The rules of a restoration, without connections."""
    made: Any = _Restore.__new__(_Restore)
    made.link = SimpleNamespace(name="there", source="east")
    made.sessions = SimpleNamespace(
        source=SimpleNamespace(
            admin=SimpleNamespace(offsets=lambda asked, **_: dict.fromkeys(asked, log_end))
        )
    )
    made.run_id, made.clock = "r", FakeClock()
    made._way_back = lambda _: (marks, returned)
    return made


@pytest.mark.parametrize("asked", ["export", "merge", "keep"])
def test_what_applications_wrote_after_the_reversal_may_be_an_orphan(asked: str) -> None:
    """What the link back has written there is told by its mark."""
    assert rules(40)._ends(PROMOTION, REVERSAL, asked) == {ORDERS: 40}
    assert rules(25)._ends(PROMOTION, REVERSAL, asked) == {ORDERS: 25}
    # a log that lost its end
    assert rules(22)._ends(PROMOTION, REVERSAL, asked) == {ORDERS: 25}


def test_nothing_is_merged_once_the_link_back_is_promoted() -> None:
    """Applications write there rightly: only what the link back had written up to its promotion is looked at."""
    made = rules(40, returned={ORDERS: 31})

    for asked in ("export", "keep"):
        assert made._ends(PROMOTION, REVERSAL, asked) == {ORDERS: 31}
    for end in (25, 40):
        with pytest.raises(NotReadyError, match="back is promoted, and applications write to east") as raised:
            rules(end, returned={ORDERS: 31})._ends(PROMOTION, REVERSAL, "merge")
        assert "eomirror failback CONFIG --link there" in raised.value.fix
        assert "eomirror restore CONFIG --link there --orphans export|keep" in raised.value.fix


def test_nothing_is_merged_where_the_link_back_left_no_marks() -> None:
    """Its records would be mirrored once more; up to the reversal it had written nothing."""
    assert rules(40, marks=False)._ends(PROMOTION, REVERSAL, "export") == {ORDERS: 25}
    assert rules(25, marks=False)._ends(PROMOTION, REVERSAL, "merge") == {ORDERS: 25}
    with pytest.raises(NotReadyError, match="without marks") as raised:
        rules(40, marks=False)._ends(PROMOTION, REVERSAL, "merge")
    assert "--orphans export|keep" in raised.value.fix


@pytest.mark.parametrize(
    ("start", "offset", "generation", "exported"),
    [(20, 20, 4, False), (20, 22, 4, True), (22, 22, 5, False), (18, 22, 5, True), (22, 20, 4, False)],
    ids=["at the cut", "moved back", "merged before", "moved back, merged before", "behind"],
)
def test_orphans_before_the_position_of_the_link_are_exported(
    start: int, offset: int, generation: int, *, exported: bool
) -> None:
    """A lane begins behind them."""
    made = rules()
    made.positions = lambda: {ORDERS: position(ORDERS, offset, generation=generation)}

    found = made._passed(PROMOTION, [OrphanRange(source=ORDERS, start=start, end=30)])

    assert found == (frozenset({"orders"}) if exported else frozenset())


def report(*partitions: OrphanPartition, orphans: str = "merge", place: str = "") -> RestorationReport:
    return RestorationReport(
        link="there", number=1, orphans=orphans, committed=True, place=place, partitions=partitions
    )


def partition(
    source: SourcePartition, start: int, end: int, records: int, action: str, **more: Any
) -> OrphanPartition:
    return OrphanPartition(
        topic=source.topic,
        partition=source.partition,
        start=start,
        end=end,
        records=records,
        action=action,
        **more,
    )


def test_a_restoration_records_how_far_a_merge_came_and_adds_to_earlier_ones() -> None:
    """The position tells, not the log's end at the start; a partition without a cut begins at 0."""
    made = rules()
    first = made._restoration(
        report(partition(ORDERS, 20, 25, 4, "merge"), partition(NEW, 3, 9, 2, "export"), place="/file"),
        PromotionHistory({1: PROMOTION}), {}, {NEW}, {ORDERS: 24}, marks={NEW: BatchMark(8, 7, 6)}, to_file=False,
    )  # fmt: skip
    assert first.ranges == {
        ORDERS: (DealtRange(20, 24, "merge", records=4),),
        NEW: (DealtRange(0, 9, "export", "/file", 2, mark=(8, 7, 6)),),
    }
    history = PromotionHistory({1: PROMOTION}, {1: REVERSAL}, {1: first})

    second = made._restoration(
        report(partition(ORDERS, 24, 40, 3, "keep", lost=((24, 26),)), orphans="keep"),
        history, first.ranges, set(), {}, marks={ORDERS: BatchMark(39, 1, -1)}, to_file=False,
    )  # fmt: skip

    assert second.ranges == {
        ORDERS: (
            DealtRange(20, 24, "merge", records=4),
            DealtRange(24, 40, "keep", records=3, mark=(39, 1, -1)),
        ),
        NEW: (DealtRange(0, 9, "export", "/file", 2, mark=(8, 7, 6)),),
    }
    assert (second.records, second.place, second.lost) == (9, "/file", {ORDERS: ((24, 26),)})
    # a merge that did not move records nothing
    assert made._restoration(
        report(partition(ORDERS, 20, 25, 4, "merge")),
        history,
        first.ranges,
        set(),
        {},
        marks={},
        to_file=False,
    ).ranges == (first.ranges)
    # what was exported of a log that is another one since does not count any more; of a merge the position tells
    assert made._restoration(report(), history, {}, set(), {}, marks={}, to_file=False).ranges == {
        ORDERS: (DealtRange(20, 24, "merge", records=4),)
    }


@pytest.mark.parametrize(
    ("order", "refused"),
    [(None, True), ({"number": 9}, True), ({"done": False}, True), ({}, False)],
    ids=["none yet", "of an older promotion", "not done", "done"],
)
def test_nothing_is_merged_before_what_the_source_has_lost_is_copied_back(
    monkeypatch: pytest.MonkeyPatch, order: dict[str, Any] | None, *, refused: bool
) -> None:
    """The link back has no loop guard until then, and would return it."""
    reversal = replace(REVERSAL, cuts={ORDERS: (10, 12)})
    made = CopyBack(
        **{
            "link": "there",
            "number": 1,
            "done": True,
            "until": {},
            "run": "r",
            "timestamp": 1,
            "command": "reverse",
        }
        | (order or {})
    )
    monkeypatch.setattr(module, "back_link", lambda *_: None)
    monkeypatch.setattr(
        module, "control_of", lambda *_: ControlView(copy_back=None if order is None else made)
    )
    restore = rules(25)
    restore.config = None
    restore.connect = lambda _: SimpleNamespace(target=None)

    if refused:
        with pytest.raises(NotReadyError, match="has not copied back what east has lost") as raised:
            restore._ends(PROMOTION, reversal, "merge")
        assert "`eomirror reverse CONFIG --link there`" in raised.value.fix
    else:
        assert restore._ends(PROMOTION, reversal, "merge") == {ORDERS: 25}
    assert restore._ends(PROMOTION, reversal, "export") == {ORDERS: 25}


def test_an_unknown_way_back_marks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the link back in the configuration, what stands behind the reversal may be its copies."""

    def none(*_: object) -> Any:
        raise UsageError("no link of the configuration", fix="add it")

    monkeypatch.setattr(module, "back_link", none)
    made: Any = _Restore.__new__(_Restore)
    made.config = made.link = None

    assert made._way_back(PROMOTION) == (False, None)


def test_an_old_restoration_counts_in_full_once_the_end_is_known() -> None:
    """Its record is written again with ranges."""
    old = Restoration(number=1, orphans="merge", records=5, place="", run="r", timestamp=1)
    history = PromotionHistory({1: PROMOTION}, {1: REVERSAL}, {1: old})

    found = rules()._restoration(report(), history, history.dealt(1), set(), {}, marks={}, to_file=False)

    assert found.ranges == {ORDERS: (DealtRange(0, 25, "merge"),)}
