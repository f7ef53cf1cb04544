"""Laws of the lane layout."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from eomirror.link.assignment import assign, estimated_bytes
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import position

TOPICS = st.sampled_from(["orders", "payments", "clicks", "a.b"])
PARTITIONS = st.sets(st.builds(SourcePartition, TOPICS, st.integers(0, 40)), max_size=60)
LANES = st.integers(1, 7)


@given(PARTITIONS, LANES)
def test_a_fresh_layout_is_complete_and_balanced(partitions: set[SourcePartition], lanes: int) -> None:
    """Every partition has exactly one existing lane, and lanes differ by one partition at most."""
    layout = assign(None, lanes, partitions)

    assert set(layout.partitions) == partitions
    assert layout.lanes == lanes
    assert layout.parked == frozenset()
    load = [len(layout.of(lane)) for lane in range(lanes)]
    assert sum(load) == len(partitions)
    assert max(load) - min(load) <= 1


@given(PARTITIONS, LANES)
def test_a_fresh_layout_spreads_each_topic(partitions: set[SourcePartition], lanes: int) -> None:
    """A busy topic does not sit on one lane: with one topic alone, its partitions differ by one per lane."""
    alone = {item for item in partitions if item.topic == "orders"}
    layout = assign(None, lanes, alone)

    load = Counter(layout.partitions.values())
    assert max(load.values(), default=0) - min((load[lane] for lane in range(lanes)), default=0) <= 1


@given(PARTITIONS, PARTITIONS, LANES)
def test_known_partitions_keep_their_lane(
    before: set[SourcePartition], after: set[SourcePartition], lanes: int
) -> None:
    """Rule 2: with the same number of lanes nothing moves; what is gone is parked, not forgotten."""
    first = assign(None, lanes, before)
    second = assign(first, lanes, after)

    assert set(second.partitions) == after
    assert all(second.partitions[item] == first.partitions[item] for item in before & after)
    assert second.parked == before - after
    assert second.known == before | after


@given(PARTITIONS, PARTITIONS, LANES)
def test_what_comes_back_is_no_longer_parked(
    before: set[SourcePartition], after: set[SourcePartition], lanes: int
) -> None:
    """A parked partition that matches again is mirrored again, by one lane."""
    parked = assign(assign(None, lanes, before), lanes, after)
    back = assign(parked, lanes, before | after)

    assert set(back.partitions) == before | after
    assert back.parked == frozenset()


@given(PARTITIONS, LANES, LANES)
def test_another_number_of_lanes_lays_out_afresh(
    partitions: set[SourcePartition], before: int, after: int
) -> None:
    """A new generation with other lanes is balanced, whatever the one before looked like."""
    layout = assign(assign(None, before, partitions), after, partitions)

    if before != after:
        assert layout.partitions == assign(None, after, partitions).partitions
    load = [len(layout.of(lane)) for lane in range(after)]
    assert max(load) - min(load) <= 1


@given(st.lists(st.builds(SourcePartition, TOPICS, st.integers(0, 40)), max_size=60), LANES)
def test_the_order_of_discovery_does_not_matter(partitions: list[SourcePartition], lanes: int) -> None:
    """Two mirrors that list the same topics in another order agree."""
    assert assign(None, lanes, partitions) == assign(None, lanes, reversed(partitions))


@given(
    st.dictionaries(st.builds(SourcePartition, TOPICS, st.integers(0, 40)), st.integers(0, 10**9)),
    LANES,
    LANES,
)
def test_a_backfill_gives_no_lane_much_more_than_it_must_copy(
    backlog: dict[SourcePartition, int], before: int, lanes: int
) -> None:
    """Whatever the layout before: the largest partition, or an equal share and one that is not among the largest."""
    layout = assign(assign(None, before, backlog), lanes, backlog, backlog=backlog)

    assert set(layout.partitions) == set(backlog)
    left = [sum(backlog[item] for item in layout.of(lane)) for lane in range(lanes)]
    largest = sorted(backlog.values(), reverse=True)
    most = max(sum(largest) / lanes + sum(largest[lanes : lanes + 1]), *largest[:1], 0)
    assert max(left) <= most + 1
    assert layout.partitions == assign(None, lanes, sorted(backlog, reverse=True), backlog=backlog).partitions


def test_partitions_without_a_backlog_are_spread_by_number() -> None:
    """Two large ones get a lane each; sixty that have nothing left fill both."""
    busy = {SourcePartition("orders", 0): 900, SourcePartition("orders", 1): 800}
    idle = [SourcePartition("clicks", number) for number in range(60)]
    layout = assign(None, 2, [*idle, *busy], backlog=busy)
    assert {layout.partitions[item] for item in busy} == {0, 1}
    assert [len(layout.of(lane)) for lane in (0, 1)] == [31, 31]


def test_new_partitions_go_to_the_lane_with_the_fewest_bytes() -> None:
    """Each counts as a usual one, so that not all of a new topic go there; without figures their number decides."""
    busy, quiet = SourcePartition("orders", 0), SourcePartition("clicks", 0)
    new = [SourcePartition("new", number) for number in range(4)]
    before = assign(None, 2, [busy, quiet])
    weights = {busy: 9e6, quiet: 1e6}
    after = assign(before, 2, [busy, quiet, *new], weights=weights)
    assert [
        len([item for item in after.of(before.partitions[one]) if item in new]) for one in (busy, quiet)
    ] == [1, 3]
    assert {item: after.partitions[item] for item in (busy, quiet)} == before.partitions
    by_number = assign(before, 2, [busy, quiet, *new])
    assert [len(by_number.of(lane)) for lane in (0, 1)] == [3, 3]


def test_all_partitions_are_laid_out_anew_by_bytes() -> None:
    """With another number of lanes: the busy one has a lane to itself."""
    weights = {SourcePartition("orders", number): 1e6 for number in range(4)} | {
        SourcePartition("big", 0): 9e6
    }
    after = assign(assign(None, 1, weights), 2, weights, weights=weights)
    assert sorted(map(len, (after.of(0), after.of(1)))) == [1, 4]


def test_bytes_since_the_link_first_ran_are_estimated() -> None:
    """By the size of the last transaction's records, or the usual one; a partition without records is not known."""
    one, other, idle, new = (SourcePartition("t", number) for number in range(4))
    positions = [
        position(one, 10, total_records=100, records=10, bytes=1000),
        position(other, 10, total_records=50, records=30, bytes=600),
        position(idle, 10, total_records=7),
        position(new, 0),
    ]
    assert estimated_bytes(positions) == {one: 10_000.0, other: 1000.0, idle: 280.0}
    assert estimated_bytes([]) == {}
