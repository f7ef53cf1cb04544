"""How far a copy holds what its position says."""

from __future__ import annotations

from typing import Any

from eomirror.records.position import Position
from eomirror.recovery.copy_end import (
    CommittedBatch,
    CopyEnd,
    LastRecord,
    last_of_lanes,
    moved,
    source_behind,
)

LANE, OLD, OTHER = 7, 6, 40


def position(**changes: Any) -> Position:
    values = {
        "topic": "t", "partition": 0, "offset": 10, "source_cluster_id": "x", "topic_id": "a", "target_topic": "x.t",
        "target_partition": 0, "target_topic_id": "b", "generation": 1, "lane": 0, "run": "r", "epoch": 1, "attempt": 1,
        "producer_id": 7, "producer_epoch": 0, "txn": 1, "timestamp": 1,
    }  # fmt: skip
    return Position(**{**values, **changes})


def batch(base: int, last: int, producer: int) -> CommittedBatch:
    return CommittedBatch(base, last, producer, 0)


def test_the_last_record_is_that_of_the_last_batch_of_a_lane() -> None:
    """Records of producers without an id are no lane's."""
    found = last_of_lanes([batch(0, 4, OLD), batch(6, 9, LANE), batch(11, 12, -1)], {LANE, OLD})
    assert found == LastRecord(batch(6, 9, LANE))


def test_a_batch_of_an_unknown_producer_behind_it_is_doubtful() -> None:
    """Its id may be one that a lane had before."""
    found = last_of_lanes([batch(6, 9, LANE), batch(11, 12, OTHER), batch(13, 13, OTHER)], {LANE})
    assert found == LastRecord(batch(6, 9, LANE), 11)
    assert last_of_lanes([batch(11, 12, OTHER)], {LANE}) == LastRecord(None, 11)
    assert last_of_lanes([batch(6, 9, LANE), batch(11, 12, OTHER)], {LANE}, {OTHER}) == LastRecord(
        batch(6, 9, LANE)
    )


def test_without_knowledge_of_producers_every_record_is_of_the_link() -> None:
    """A cluster that the extension's client cannot serve."""
    assert last_of_lanes([batch(3, 3, -1)], None) == LastRecord(batch(3, 3, -1))


def test_the_map_names_the_source_offset_behind_a_record() -> None:
    """In the middle of a range, at its end, and not in a hole."""
    ranges = [(0, 0, 5), (8, 6, 4)]
    assert source_behind(ranges, 2, 0) == 3
    assert source_behind(ranges, 4, 0) == 5
    assert source_behind(ranges, 6, 0) == 9
    assert source_behind(ranges, 5, 0) is None
    assert source_behind(ranges, 10, 0) is None
    assert source_behind([], 2, 0) is None


def test_a_copy_without_records_begins_again_at_its_log_start() -> None:
    """What stood before the log start was there once: retention has deleted it."""
    ranges = [(0, 0, 5), (8, 6, 4)]
    assert source_behind(ranges, None, 0) == 0
    assert source_behind(ranges, None, 3) == 3
    assert source_behind(ranges, None, 5) == 8
    assert source_behind(ranges, None, 10) is None


def test_a_moved_position_knows_its_copy_and_nothing_of_the_source() -> None:
    """EO-5: batch and epoch belong to the offset before."""
    before = position(
        offset=90, target_offset=80, batch_offset=88, batch_crc=1, batch_timestamp=2, leader_epoch=3
    )
    end = CopyEnd(
        offset=40, target_offset=30, writer=(LANE, 2), target_topic_id=before.target_topic_id, target_end=33,
        problem="short",
    )  # fmt: skip
    after = moved(before, end, generation=9, run="r2", now_ms=5)
    assert (after.offset, after.target_offset, after.target_writer, after.generation) == (
        40,
        30,
        (LANE, 2),
        9,
    )
    assert (after.batch_offset, after.leader_epoch, after.prev, after.epoch, after.records) == (
        None, None, None, 0, 0,
    )  # fmt: skip
