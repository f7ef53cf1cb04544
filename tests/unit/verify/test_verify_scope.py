"""What `eomirror verify` compares: where it begins, what it refuses to call equal, and what excuses a record."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from eomirror.records.control import Generation
from eomirror.records.dealt_ranges import DealtRange
from eomirror.records.position import Position
from eomirror.records.promotion import Cut, Promotion, PromotionHistory, Restoration, Resumption, Reversal
from eomirror.records.recreation import CopyBack
from eomirror.types import Assignment, SourcePartition
from eomirror.verify.scope import _behind_copies, _behind_returns, _ends_at_cuts, _ends_where_parked
from eomirror.verify.verdict import PartitionFacts, needed_ranges, scope

T = SourcePartition("t", 0)
# source 10..19 -> target 100..109, source 25..29 -> target 112..116; markers between
MAPPED = ((10, 100, 10), (25, 112, 5))


def position(**changes: Any) -> Position:
    """A position at 30, whose last record is at 116 of the target."""
    base: dict[str, Any] = {
        "topic": "t", "partition": 0, "offset": 30, "source_cluster_id": "s", "topic_id": "id", "target_topic": "s.t",
        "target_partition": 0, "target_topic_id": "target-id", "target_offset": 116, "generation": 1, "lane": 0,
        "run": "r", "epoch": 1, "attempt": 1, "producer_id": 1, "producer_epoch": 0, "txn": 2, "timestamp": 1,
        "records": 5, "total_records": 15,
    }  # fmt: skip
    return Position(**{**base, **changes})


def facts(**changes: Any) -> PartitionFacts:
    """Nothing is wrong, all logs are whole."""
    base: dict[str, Any] = {
        "position": position(), "source_id": "id", "target_id": "target-id", "source_start": 0, "source_stable": 40,
        "target_start": 0, "target_stable": 118, "target_stable_now": 118, "mapped": MAPPED, "expected_topic": "s.t",
    }  # fmt: skip
    return PartitionFacts(**{**base, **changes})


def starts(**changes: Any) -> tuple[int, int]:
    """Where the comparison begins."""
    found = scope(facts(**changes))
    assert found.problem == ""
    assert found.not_comparable == (found.source.start, found.target.start)
    return found.not_comparable


def test_whole_logs_are_compared_from_their_beginning() -> None:
    """A record before the first mapped one is no mirror's, and would be found."""
    assert starts() == (0, 0)
    assert starts(mapped=()) == (0, 0)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        (15, 0, (15, 105)),
        (20, 0, (20, 110)),
        # 22 lies behind the first range: a record there that was lost must not be passed over
        (22, 0, (22, 110)),
        (25, 0, (25, 110)),
        (5, 0, (5, 0)),
        (0, 103, (13, 103)),
        (0, 111, (20, 111)),
        (15, 103, (15, 105)),
        (12, 107, (17, 107)),
        (0, 50, (0, 50)),
    ],
)
def test_retention_moves_the_beginning_to_the_same_record_on_both_sides(
    source: int, target: int, expected: tuple[int, int]
) -> None:
    """Whatever is left on one side only is not compared, and whatever must be on both is."""
    assert starts(source_start=source, target_start=target) == expected


def test_no_mapped_record_is_cut_in_two() -> None:
    """For any log starts, a mapped record is on both sides of the beginning, or on none."""
    pairs = [(s + n, t + n) for s, t, count in MAPPED for n in range(count)]
    for source, target in itertools.product(range(31), range(118)):
        begin = starts(source_start=source, target_start=target)
        assert begin[0] >= source
        assert begin[1] >= target
        for one, other in pairs:
            assert (one < begin[0]) == (other < begin[1]), (source, target, begin)


def test_a_bound_is_a_beginning_like_retention() -> None:
    """--from-offset and --since begin there, and look at what the map does not know behind it."""
    assert starts(bound=22) == (22, 110)
    assert starts(bound=26) == (26, 113)
    assert starts(bound=5) == (5, 0)


def test_a_link_that_starts_late_begins_with_its_first_record() -> None:
    """``start: latest``: what is older on either side is not the link's."""
    assert starts(from_start=False) == (10, 100)
    assert starts(from_start=False, source_start=12) == (12, 102)


def test_a_copy_that_begins_with_an_earlier_topic_is_compared_behind_it() -> None:
    """A recreated and adopted source: the copy's older records are not this topic's."""
    assert starts(replaced=True) == (10, 100)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # what the replicator before has mirrored is compared, too, while nothing is deleted
        ({}, (0, 0)),
        # the map knows its last records, 10 to 19: where 5 is on the target, or 60 on the source, is unknown
        ({"source_start": 5}, (10, 100)),
        ({"target_start": 60}, (10, 100)),
        ({"bound": 5}, (10, 100)),
        ({"source_start": 12, "target_start": 60}, (12, 102)),
        # it knew none of them; the link has mirrored since, or not yet
        ({"source_start": 5, "mapped": ((25, 112, 5),)}, (20, 110)),
        ({"source_start": 5, "mapped": (), "position": position(offset=20, total_records=0)}, (20, 110)),
        # handed back behind 17 and adopted again at 25: what lies between is not in the map
        ({"source_start": 20, "mapped": ((10, 100, 7), (25, 112, 5)), "adopted": (25, 112)}, (25, 112)),
        ({"target_start": 110, "mapped": ((10, 100, 7), (25, 112, 5)), "adopted": (25, 112)}, (25, 112)),
        ({"source_start": 12, "mapped": ((10, 100, 7), (25, 112, 5)), "adopted": (25, 112)}, (12, 102)),
        # of another topic of this name
        ({"source_start": 5, "replaced": True, "adopted": (2, 3)}, (10, 100)),
    ],
)
def test_what_another_replicator_has_begun_is_compared_from_what_is_known_of_it(
    changes: dict[str, Any], expected: tuple[int, int]
) -> None:
    """Adopted at 20: its first copies are not in the map, and a log that begins among them says nothing."""
    assert starts(**{"adopted": (20, 110), **changes}) == expected


def test_nothing_is_compared_where_all_of_the_copy_is_gone() -> None:
    """Retention on the target has passed the last mirrored record."""
    assert starts(target_start=118, mapped=()) == (30, 118)
    assert starts(target_start=118) == (30, 118)


def test_logs_without_a_common_offset_are_no_equals() -> None:
    """Without a map no reader can tell which records must be on both sides."""
    for changes in ({"source_start": 5}, {"target_start": 5}, {"from_start": False}):
        assert "the offset map has no common offset" in scope(facts(mapped=(), **changes)).problem


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"source_id": None}, "source topic t is gone"),
        ({"source_id": "other"}, "source topic t was recreated"),
        ({"target_id": "other"}, "target topic s.t was recreated"),
        ({"expected_topic": "elsewhere"}, "the link's naming gives elsewhere"),
        ({"position": position(target_partition=1)}, "partition 1 of the target"),
        ({"source_stable": 29}, "the source ends at 29, before the position 30"),
        ({"target_stable_now": 116}, "the target ends at 116, before the end of the copy 117"),
    ],
)
def test_a_position_that_does_not_speak_of_what_is_there_is_a_problem(
    changes: dict[str, Any], words: str
) -> None:
    """Each would be compared with the wrong thing, or waited for without end."""
    found = scope(facts(**changes))
    assert words in found.problem
    assert found.source.start == found.source.end
    assert found.target.start == found.target.end


def test_records_behind_the_position_are_compared_with_nothing() -> None:
    """What the target shows before its end, and no position speaks of, is read: it is another producer's."""
    found = scope(facts(target_stable=125))
    assert (found.source.end, found.target.end) == (30, 125)


def test_only_letters_in_the_compared_range_excuse() -> None:
    """A letter about a record before or behind it says nothing."""
    letters = ((5, "a"), (17, "b"), (30, "c"))
    assert scope(facts(source_start=12, letters=letters)).letters == ((17, "b"),)


def test_three_ranges_decide_whatever_the_map_holds() -> None:
    """The first, and the last before either beginning: with them alone the same beginning follows."""
    ranges = [(n * 10, 1000 + n * 9, 7) for n in range(50)]
    for source, target in itertools.product(range(0, 520, 13), range(990, 1460, 7)):
        kept = needed_ranges(reversed(ranges), source, target)
        assert len(kept) <= 3
        whole = {"source_start": source, "target_start": target, "source_stable": 900, "target_stable": 2000}
        whole |= {"target_stable_now": 2000, "position": position(offset=900, target_offset=1500)}
        assert starts(mapped=kept, **whole) == starts(mapped=tuple(ranges), **whole)


def promotion(offset: int, target_end: int) -> Promotion:
    """A promotion whose cut of t-0 is at these offsets."""
    cut = Cut(
        topic="t", partition=0, topic_id="id", position=offset, target_topic="s.t", target_topic_id="target-id",
        target_end=target_end, timestamp=0,
    )  # fmt: skip
    return Promotion(
        number=1, planned=False, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
        cuts=(cut,), started=0, timestamp=0,
    )  # fmt: skip


def test_what_applications_write_to_a_promoted_copy_is_not_compared() -> None:
    """The copies end at the cut; merged orphans stand behind it, so then the header must tell."""
    history = PromotionHistory({1: promotion(30, 118)})

    assert _ends_at_cuts(history, [position()]) == {T: 118}
    assert _ends_at_cuts(history, [position(offset=41)]) == {}
    assert _ends_at_cuts(history, [position(target_topic_id="another")]) == {}
    assert _ends_at_cuts(PromotionHistory(), [position()]) == {}


def test_what_another_link_writes_to_the_copy_of_a_parked_partition_is_not_compared() -> None:
    """The topic is on its way to this link, or waits for a decision of the user."""
    base = Generation(
        generation=1, revision=0, run="r", highest_lane=0, assignment=Assignment(1, {T: 0}), timestamp=0
    )
    parked = replace(base, assignment=Assignment(1, {}, frozenset({T})))
    assert _ends_where_parked(parked, [position()]) == {T: 117}
    assert _ends_where_parked(base, [position()]) == _ends_where_parked(None, [position()]) == {}


def test_after_a_return_the_copies_are_compared_from_there() -> None:
    """What stands before it is the link's, the applications', and orphans'."""
    returned = Resumption(number=1, link="back", starts={T: 60}, run="r", timestamp=0)
    history = PromotionHistory({1: promotion(30, 118)}, resumptions={1: returned})

    assert _ends_at_cuts(history, [position(offset=70)]) == {}
    assert _behind_returns({tuple(T): 0, ("u", 0): 5}, history, guard=False) == {
        ("t", 0): 60,
        ("u", 0): 5,
    }
    assert _behind_returns({tuple(T): 65}, history, guard=False) == {("t", 0): 65}


def test_orphans_that_were_left_on_the_source_are_not_missing_after_a_return() -> None:
    """With the header, only a partition that has some is compared from the return on; merged ones have copies."""
    ends = Reversal(number=1, link="back", ends={T: 55}, run="r", timestamp=1)
    start = Resumption(number=1, link="back", starts={T: 60}, run="r", timestamp=1)
    promotions = {1: promotion(50, 118)}
    found = {}
    for orphans in ("keep", "merge"):
        restoration = Restoration(number=1, orphans=orphans, records=5, place="", run="r", timestamp=1)
        history = PromotionHistory(promotions, {1: ends}, {1: restoration}, {1: start})
        found[orphans] = _behind_returns({tuple(T): 0}, history, guard=True)

    assert found == {"keep": {tuple(T): 60}, "merge": {tuple(T): 0}}
    for merged_to, bound in ((55, 0), (54, 60)):
        ranges = {T: (DealtRange(50, merged_to, "merge"), DealtRange(50, 55, "keep"))}
        history = replace(history, restorations={1: replace(restoration, ranges=ranges)})
        assert _behind_returns({tuple(T): 0}, history, guard=True) == {tuple(T): bound}


def test_what_was_copied_back_whole_is_not_compared_by_its_origin() -> None:
    """The loop guard would say that none of it belongs there."""
    order = CopyBack(link="l", number=1, done=True, until={"t": {"0": 40}}, run="r", timestamp=1)

    assert _behind_copies({tuple(T): 0, ("u", 0): 0}, order) == {tuple(T): 40, ("u", 0): 0}
    assert _behind_copies({tuple(T): 50}, order) == {tuple(T): 50}
    assert _behind_copies({tuple(T): 0}, None) == {tuple(T): 0}
