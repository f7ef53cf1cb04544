"""What a run would copy and would no longer mirror, from positions and the ends of logs."""

from __future__ import annotations

from typing import Any

from eomirror.topics.expected_copy import ExpectedCopy, SourceLogs, expected_copy
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import position

ORDERS, CLICKS = SourcePartition("orders", 0), SourcePartition("clicks", 0)


def found(
    targets: dict[str, str], *, sizes: dict[SourcePartition, int] | None = None, reason: str = "", **logs: Any
) -> ExpectedCopy:
    """A link that has mirrored orders to 40 and clicks to 7; their logs are [10, 100)."""
    positions = {
        ORDERS: position(ORDERS, 40, total_records=35),
        CLICKS: position(CLICKS, 7, total_records=37_938),
    }
    every = [SourcePartition(topic, 0) for topic in targets]
    known = {
        "starts": dict.fromkeys(every, 10),
        "ends": dict.fromkeys(every, 100),
        "begins": {each: 10 for each in every if each not in positions},
        "sizes": sizes or {},
        **logs,
    }
    return expected_copy(
        targets, every, positions, mirrored=positions, there={"orders", "clicks"}, reason=lambda _: reason,
        logs=SourceLogs(**known),
    )  # fmt: skip


def test_a_topic_that_leaves_has_its_count_and_reason() -> None:
    """By its name, because it is gone, or because its copy has another name now."""
    (one,) = found({"orders": "east.orders"}, reason="`exclude` matches it").dropped
    assert (one.topic, one.target, one.records, one.reason) == (
        "clicks", "east.clicks", 37_938, "`exclude` matches it",
    )  # fmt: skip
    renamed = found({"orders": "east.orders", "clicks": "other.clicks"})
    (one,) = renamed.dropped
    assert "other.clicks" in one.reason
    assert "--resume-at clicks-0=OFFSET" in one.reason
    assert [each.topic for each in renamed.topics] == ["orders"]
    assert found({"orders": "east.orders", "clicks": "east.clicks"}).dropped == ()


def test_a_topic_goes_on_at_its_position_and_a_new_one_at_its_begin() -> None:
    """At most so many records; behind a position that retention has passed, from the start of the log."""
    copy = found({"orders": "east.orders", "clicks": "east.clicks", "late": "east.late"})
    told = {one.topic: (one.is_new, one.partitions[0].begins, one.records) for one in copy.topics}
    assert told == {"orders": (False, 40, 60), "clicks": (False, 10, 90), "late": (True, 10, 90)}
    assert copy.records == 240


def test_bytes_are_the_part_of_the_log_and_unknown_without_its_size() -> None:
    """One unknown partition makes the sum unknown: it is no lower bound."""
    both = {"orders": "east.orders", "clicks": "east.clicks"}
    copy = found(both, sizes={ORDERS: 900, CLICKS: 90})
    assert [one.bytes for one in copy.topics] == [90, 600]
    assert copy.bytes == 690
    copy = found(both, sizes={ORDERS: 900})
    assert ([one.bytes for one in copy.topics], copy.bytes) == ([None, 600], None)
    empty = found(
        both, sizes={ORDERS: 0, CLICKS: 0}, starts={ORDERS: 40, CLICKS: 7}, ends={ORDERS: 40, CLICKS: 7}
    )
    assert (empty.records, empty.bytes) == (0, 0)


def test_a_partition_whose_leader_does_not_answer_is_not_known() -> None:
    """The others are."""
    copy = found({"orders": "east.orders", "late": "east.late"}, ends={ORDERS: 100})
    assert [one.records for one in copy.topics] == [None, 60]
    assert copy.records is None
