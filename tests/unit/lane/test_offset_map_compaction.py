"""The offset map is kept small and says the same: any prefix of the log, and whatever compaction has removed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eomirror._native import PartitionMap, decode_offset_map, encode_offset_map
from eomirror.lane.offset_map_compaction import (
    COMPACTION_SECONDS,
    MAX_CHUNKS,
    OffsetMapCompaction,
    unreadable,
)
from eomirror.records.names import StateTopics
from eomirror.records.offset_map import chunk_prefix, offset_map_key, prefix_of_chunk, read_offset_map_key
from support.fakes.lane_fakes import ORDERS, PAYMENTS, account, position

if TYPE_CHECKING:
    from eomirror.plane.protocol import MetadataRecord

TOPICS = StateTopics("positions", 8, "offset-map", 8)
Range = tuple[int, int, int]


class Lane:
    """Commits transactions, and keeps the map's log as a broker would."""

    def __init__(self, partitions: int = 1) -> None:
        self.tidying = OffsetMapCompaction(partitions)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.transactions: list[list[MetadataRecord]] = []

    def commit(self, now: float = 0.0, *ranges: Range, source: Any = ORDERS) -> int:
        """One transaction; how many records tidying added to it."""
        chunks: list[Any] = []
        moved = [position(source, 1, target_offset=1)]
        if ranges:
            value = encode_offset_map(f"east.{source.topic}", source.partition, list(ranges))
            chunks = [replace(account(source, ranges[0][0], 1), offset_map=value)]
            key = offset_map_key(source, f"id-{source.topic}", ranges[0][0])
            self.log.append((key, value))
        plan = self.tidying.plan(TOPICS, now)
        self.log += [(record.key, record.value) for record in plan.records]
        self.transactions.append(list(plan.records))
        self.tidying.committed(plan, moved, chunks)
        return len(plan.records)

    def live(self) -> dict[bytes, bytes]:
        """What compaction leaves."""
        left: dict[bytes, bytes] = {}
        for key, value in self.log:
            left.pop(key, None)
            if value is not None:
                left[key] = value
        return left


def translations(values: list[bytes], source: Any = ORDERS, most: int = 400) -> list[tuple[str, int]]:
    map_ = PartitionMap()
    for value in values:
        map_.take_in(value, f"east.{source.topic}", source.partition)
    return [map_.to_target(offset, most) for offset in range(most)]


def singles(count: int) -> list[Range]:
    """Transactions of two records with a marker behind them on both sides."""
    return [(3 * number, 3 * number, 2) for number in range(count)]


def test_many_transactions_become_few_chunks() -> None:
    """Once a minute; every key is deleted once, and what is translated stays the same at every step of the log."""
    lane = Lane()
    for number, each in enumerate(singles(1_200)):
        lane.commit(number * 0.1, each)
    whole = translations([value for _, value in lane.log if value is not None], most=3_600)

    assert len(lane.live()) < 300
    assert translations(list(lane.live().values()), most=3_600) == whole
    deleted = [key for key, value in lane.log if value is None]
    assert len(deleted) == len(set(deleted))
    assert sum(bool(records) for records in lane.transactions) <= 2


@st.composite
def histories(draw: st.DrawFn) -> list[list[Range]]:
    """Transactions one behind the other, with holes on both sides."""
    source = target = 0
    made = []
    for _ in range(draw(st.integers(16, 40))):
        ranges = []
        for _ in range(draw(st.integers(1, 3))):
            source, target = source + draw(st.integers(0, 2)), target + draw(st.integers(0, 2))
            count = draw(st.integers(1, 3))
            ranges.append((source, target, count))
            source, target = source + count, target + count
        made.append(ranges)
        target += 1
    return made


@settings(max_examples=40, deadline=None)
@given(histories(), st.integers(0, 40), st.data())
def test_no_prefix_and_no_compaction_changes_the_map(
    history: list[list[Range]], at: int, data: st.DataObject
) -> None:
    """A reader that stops anywhere in the log, over any part of it that is compacted, finds what it always found."""
    lane = Lane()
    for number, ranges in enumerate(history):
        if number == at:
            lane.tidying.leave()
        lane.commit(0.0, *ranges)
    lane.tidying.leave()
    lane.commit(0.0)
    end = data.draw(st.integers(0, len(lane.log)))
    cleaned = data.draw(st.integers(0, end))
    last = {key: index for index, (key, _) in enumerate(lane.log[:cleaned])}
    seen = [
        value
        for index, (key, value) in enumerate(lane.log[:end])
        if value is not None and (index >= cleaned or last[key] == index)
    ]
    plain = [value for key, value in lane.log[:end] if value is not None and b"merged" not in key]

    assert translations(seen) == translations(plain)
    for key, value in lane.log:
        read_offset_map_key(key, where="log")
        assert prefix_of_chunk(key) == chunk_prefix(ORDERS, "id-orders")
        if value is not None:
            decode_offset_map(value)


def test_an_aborted_transaction_leaves_all_as_it_was() -> None:
    """The plan is made again for the next one."""
    lane = Lane()
    for each in singles(1_200):
        lane.commit(0.0, each)
    planned = lane.tidying.plan(TOPICS, COMPACTION_SECONDS)

    assert planned.records
    assert lane.tidying.plan(TOPICS, COMPACTION_SECONDS) == planned


def test_a_round_is_bounded_in_time_and_in_size() -> None:
    """At most `MAX_CHUNKS` chunks in a transaction; another one follows after a minute, or sooner if there is more."""
    lane = Lane()
    lane.commit(0.0, *singles(1))
    for each in singles(3 * MAX_CHUNKS)[1:]:
        lane.commit(0.0, each)
    rounds = [records for records in lane.transactions if records]

    assert len(rounds) == 1
    assert lane.commit(0.5) == 0
    assert lane.commit(2.0) == MAX_CHUNKS + 1
    assert lane.commit(2.5) == 0


def test_a_lane_that_leaves_merges_what_it_has() -> None:
    """Once, and only if it is worth a transaction."""
    lane = Lane()
    for each in singles(10):
        lane.commit(0.0, each)
    assert not lane.tidying.leave()
    for each in singles(30)[10:]:
        lane.commit(0.0, each)

    assert lane.tidying.leave()
    assert lane.commit(0.0) == 31
    assert not lane.tidying.leave()
    assert len(lane.live()) == 1


def test_a_new_attempt_merges_nothing_of_the_one_before() -> None:
    """Another lane may have moved its positions in between."""
    lane = Lane()
    for each in singles(600):
        lane.commit(0.0, each)
    lane.tidying.forget()

    assert not lane.tidying.leave()
    assert lane.commit(1e6) == 0


def test_a_replaced_topic_begins_anew() -> None:
    """Chunks of two topics of a name never become one."""
    lane = Lane()
    for each in singles(20):
        lane.commit(0.0, each)
    value = encode_offset_map("east.orders", 0, [(900, 5, 1)])
    moved = position(ORDERS, 901, topic_id="another")
    lane.tidying.committed(
        lane.tidying.plan(TOPICS, 0.0), [moved], [replace(account(ORDERS, 900, 1), offset_map=value)]
    )

    assert not lane.tidying.leave()


def test_a_large_chunk_is_left_alone_and_ends_a_group() -> None:
    """What stands before it and behind it is not merged over it: its records would be lost to readers."""
    lane = Lane()
    for number in range(20):
        lane.commit(0.0, (3 * number, 3 * number, 1))
    large = [(100 + 3 * number, 100 + 3 * number, 1) for number in range(6_000)]
    lane.commit(0.0, *large)
    for number in range(20):
        lane.commit(0.0, (20_000 + 3 * number, 20_000 + 3 * number, 1))
    before = translations([value for _, value in lane.log if value is not None], most=20_100)
    lane.tidying.leave()
    lane.commit(0.0)

    merged = [
        orjson.loads(key)["merged"] for key, value in lane.log if value is not None and b"merged" in key
    ]
    assert merged == [20, 20]
    assert translations(list(lane.live().values()), most=20_100) == before


def test_partitions_share_the_memory() -> None:
    """A lane with very many partitions merges sooner, each partition under keys of its own."""
    lane = Lane(partitions=10_000)
    for each in singles(16):
        lane.commit(0.0, each)
        lane.commit(0.0, each, source=PAYMENTS)

    assert lane.commit(100.0) > 0
    topics = [orjson.loads(key)["topic"] for key, value in lane.log if b"merged" in key and value is not None]
    assert set(topics) == {"orders", "payments"}


def chunks(*ranges: Range) -> list[tuple[bytes, list[Range]]]:
    return [(b"%d" % one[0], [one]) for one in ranges]


@pytest.mark.parametrize(
    ("starts", "dropped"),
    [
        ((0, 0), []),
        ((20, 20), [b"0"]),
        ((35, 39), [b"0", b"10"]),
        ((20, 9), []),
        ((9, 20), []),
        ((1_000, 1_000), [b"0", b"10"]),
    ],
)
def test_what_lies_below_both_log_starts_is_dropped(starts: tuple[int, int], dropped: list[bytes]) -> None:
    """But for the last chunk before them, which answers for a hole at the log start, and the last of all."""
    held = chunks((0, 0, 10), (10, 10, 10), (20, 20, 10), (30, 30, 10))

    assert unreadable(held, source_start=starts[0], target_start=starts[1], last_target=39) == dropped


def test_what_was_overruled_does_not_come_back() -> None:
    """A chunk is dropped only with everything before it in the log; a deleted one blocks no other."""
    overruled: list[tuple[bytes, list[Range]]] = [(b"old", [(100, 100, 10)])]
    held = chunks((0, 0, 10), (10, 10, 10), (20, 20, 10), (30, 30, 10))

    assert unreadable([*overruled, *held], source_start=40, target_start=40, last_target=39) == []
    assert unreadable(
        [*overruled, *held, (b"old", [])], source_start=40, target_start=40, last_target=39
    ) == [b"0", b"10"]


def test_nothing_is_dropped_of_a_partition_without_records() -> None:
    """It is not known what its last chunk is."""
    assert unreadable(chunks((0, 0, 1), (5, 5, 1)), source_start=9, target_start=9, last_target=None) == []


def test_what_is_found_unreadable_is_deleted() -> None:
    """In a transaction of the lane, in the partition of the map where it stands."""
    lane = Lane()
    lane.tidying.drop([(3, b"a"), (4, b"b")])

    assert lane.tidying.due(100.0)
    assert lane.commit(100.0) == 2
    assert [(one.partition, one.key, one.value) for one in lane.transactions[-1]] == [
        (3, b"a", None),
        (4, b"b", None),
    ]
    assert not lane.tidying.due(1e6)
