"""EO-5 and positions where records are placed by key: a source partition has several target partitions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from eomirror.errors import DataLossError, StateError, TransactionFailedError
from eomirror.lane.commit import CopiesCutError, TransactionStamp, grant
from eomirror.lane.partitions import LanePartitions
from eomirror.lane.spec import AssignedPartition
from eomirror.plane.protocol import Account, Advance, Flushed, ProducerIdentity
from eomirror.records.position import Position, decode_position
from eomirror.recovery.resume import SourceFacts, Stop, TargetFacts, decide_resume, placement_error
from support.fakes.lane_fakes import ORDERS, position

STAMP = TransactionStamp(
    generation=2, lane=9, run="new", epoch=1, attempt=1, identity=ProducerIdentity(7, 3), txn=5, timestamp=99
)
BEFORE = position(
    ORDERS, 10, target_partition=2, target_offset=70, total_records=4, keyed={"0": 30, "1": -1, "2": 70}
)
SOURCE = SourceFacts("id-orders", 0, 500)


def placed(*parts: tuple[int, int, int]) -> Account:
    """A settled account; the last of these target partitions, with first and last offset, has the last record."""
    partition, first, last = parts[-1]
    return Account(
        source=ORDERS, target_topic="east.orders", target_partition=partition, records=5, bytes=50, dropped={},
        target_offset=last, source_timestamp=1_000, first_source_offset=10, offset_map=b"", digest="00",
        first_target_offset=first, placed=sorted(parts),
    )  # fmt: skip


def moved(account: Account | None) -> Position:
    """The position behind a transaction."""
    flushed = Flushed(() if account is None else (account,), {ORDERS: Advance(17, 4)})
    permit = grant(
        flushed,
        {ORDERS: BEFORE},
        source_ids={"orders": "id-orders"},
        target_ids={"east.orders": "id-east.orders"},
        stamp=STAMP,
    )
    (found,) = permit.positions
    assert permit.chunks == ()
    return found


def test_a_position_names_the_last_record_in_each_target_partition() -> None:
    """Partitions without records keep what is known; the old fields are those of the last record."""
    found = moved(placed((2, 72, 75), (1, 0, 3)))

    assert found.keyed == {"0": 30, "1": 3, "2": 75}
    assert (found.target_partition, found.target_offset, found.target_writer) == (1, 3, (7, 3))
    assert decode_position(ORDERS, found.value(), where="t-0@0") == found
    assert moved(None).keyed == BEFORE.keyed


def test_a_position_of_a_kept_partition_has_no_such_field() -> None:
    """Its bytes are those of an earlier release."""
    assert "keyed" not in orjson.loads(position(ORDERS, 3).value())


@pytest.mark.parametrize(
    ("part", "error"),
    [
        ((0, 30, 31), CopiesCutError),
        ((0, 2, 3), CopiesCutError),
        ((2, 71, 75), TransactionFailedError),
        ((1, 0, 4), None),
        ((0, 32, 33), None),
    ],
)
def test_each_target_partition_grows(part: tuple[int, int, int], error: type[Exception] | None) -> None:
    """EO-5: a transaction whose records begin at or before the last ones, or right behind them, does not commit."""
    if error is None:
        moved(placed(part))
        return
    with pytest.raises(error, match=rf"east\.orders-{part[0]}"):
        moved(placed(part))


@pytest.mark.parametrize(
    ("ends", "lost"),
    [
        ({0: 31, 1: 0, 2: 71}, ""),
        ({0: 30, 1: 0, 2: 71}, "east.orders-0"),
        ({0: 31, 1: 0, 2: 8}, "east.orders-2"),
    ],
)
def test_a_start_compares_the_end_of_each_target_partition(ends: dict[int, int], lost: str) -> None:
    """EO-5: a copy that was cut stops the topic; the error does not name source offsets that it cannot know."""
    decision = decide_resume(
        BEFORE, SOURCE, TargetFacts("id-east.orders", ends[2], partitions=3, ends=ends), accept_gaps=False
    )

    assert isinstance(decision, Stop) == bool(lost)
    if isinstance(decision, Stop):
        assert isinstance(decision.error, DataLossError)
        assert lost in decision.error.message


def test_a_lane_learns_the_number_of_target_partitions() -> None:
    """It places records by the number that the topic has when it begins."""
    lane = LanePartitions([AssignedPartition(ORDERS, "id-orders", "east.orders", "id-east.orders")])
    facts = TargetFacts("id-east.orders", 71, partitions=3, ends={0: 31, 1: 0, 2: 71})

    def starts(known: Position, **options: Any) -> Any:
        return lane.resume(
            [known], {ORDERS: (SOURCE, facts)}, accept_gaps=False, run="r", wall_ms=1, **options
        )

    assert [start.target_partitions for start in starts(BEFORE, keyed=True).starts] == [3]
    assert [start.target_partitions for start in starts(position(ORDERS, 10)).starts] == [None]


def test_a_topic_that_was_mirrored_with_the_other_setting_stops() -> None:
    """Records of one key would be in several partitions; before the first record nothing is lost."""
    kept = position(ORDERS, 10, total_records=4)

    for known, keyed in ((kept, True), (BEFORE, False)):
        error = placement_error(known, keyed=keyed)
        assert isinstance(error, StateError)
        assert error.topic == "orders"
    assert placement_error(kept, keyed=False) is None
    assert placement_error(BEFORE, keyed=True) is None
    assert placement_error(replace(kept, total_records=0), keyed=True) is None
