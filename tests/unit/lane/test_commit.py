"""The permit: what must hold before a transaction may be committed."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
import pytest

from eomirror.errors import DataLossError, TransactionFailedError
from eomirror.lane.commit import (
    CommitPermit,
    CopiesCutError,
    TopicsChangedError,
    TransactionStamp,
    grant,
    state_records,
)
from eomirror.plane.protocol import Account, Advance, BatchMark, Flushed, ProducerIdentity, RecordMark, Seen
from eomirror.records.names import StateTopics
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import ORDERS, PAYMENTS, account, position

if TYPE_CHECKING:
    from eomirror.records.position import Position

STAMP = TransactionStamp(
    generation=2, lane=9, run="new", epoch=1, attempt=1, identity=ProducerIdentity(7, 3), txn=5, timestamp=99
)
CURRENT = {ORDERS: position(ORDERS, 10, total_records=100), PAYMENTS: position(PAYMENTS, 3)}
SOURCE_IDS = {"orders": "id-orders", "payments": "id-payments"}
TARGET_IDS = {"east.orders": "id-east.orders", "east.payments": "id-east.payments"}


def permit(flushed: Flushed, **changes: dict[str, str | None]) -> CommitPermit:
    values = {"source_ids": SOURCE_IDS, "target_ids": TARGET_IDS, **changes}
    return grant(flushed, CURRENT, stamp=STAMP, **values)


def test_no_other_function_makes_a_permit() -> None:
    """The constructor refuses everybody but `grant`."""
    with pytest.raises(TypeError, match="only"):
        CommitPermit(((), (), ()), (), key=object())


def test_the_position_behind_the_data() -> None:
    """EO-4: the next position is the advance, not the last offset plus one; totals go on."""
    (moved,) = permit(Flushed((account(ORDERS, 10, 5),), {ORDERS: Advance(17, 4)})).positions

    assert (moved.offset, moved.prev, moved.leader_epoch) == (17, 10, 4)
    assert (moved.records, moved.total_records, moved.target_offset) == (5, 105, 14)
    assert (moved.lane, moved.producer_id, moved.producer_epoch, moved.txn) == (9, 7, 3, 5)


def test_records_with_a_copied_header_are_counted() -> None:
    """EO-7: they are among the records that were mirrored, and never silent."""
    current = {ORDERS: replace(CURRENT[ORDERS], copied_headers=9, total_copied_headers=40)}
    flushed = Flushed((replace(account(ORDERS, 10, 5), copied_headers=2),), {ORDERS: Advance(17, 4)})
    (moved,) = grant(flushed, current, source_ids=SOURCE_IDS, target_ids=TARGET_IDS, stamp=STAMP).positions

    assert (moved.records, moved.copied_headers, moved.total_copied_headers) == (5, 2, 42)


def test_an_advance_without_records_keeps_what_is_known_of_the_last_record() -> None:
    """EO-4: markers move the offset only."""
    current = {ORDERS: replace(CURRENT[ORDERS], target_offset=44, source_timestamp=5)}
    (moved,) = grant(
        Flushed((), {ORDERS: Advance(12, None)}),
        current,
        source_ids=SOURCE_IDS,
        target_ids=TARGET_IDS,
        stamp=STAMP,
    ).positions

    assert (moved.offset, moved.records, moved.target_offset, moved.source_timestamp) == (12, 0, 44, 5)


def test_an_epoch_that_is_not_told_is_the_one_that_is_known_of_an_earlier_offset() -> None:
    """EO-5: markers and aborted records tell no epoch; without one a restored log could not be told (fault F19)."""
    current = {ORDERS: replace(CURRENT[ORDERS], leader_epoch=4)}

    def moved(advance: Advance, *accounts: Account) -> tuple[int | None, int | None]:
        (position,) = grant(
            Flushed(accounts, {ORDERS: advance}),
            current,
            source_ids=SOURCE_IDS,
            target_ids=TARGET_IDS,
            stamp=STAMP,
        ).positions
        current[ORDERS] = position
        return position.leader_epoch, position.epoch_offset

    assert moved(Advance(12, None)) == (4, 10)
    assert moved(Advance(14, None)) == (4, 10)
    assert moved(Advance(19, 5, 17), account(ORDERS, 14, 3)) == (5, 17)
    assert moved(Advance(23, 5), account(ORDERS, 19, 3)) == (5, None)
    # records lie in between, and would be fetched again from the offset whose epoch is known
    assert moved(Advance(30, None), account(ORDERS, 23, 3)) == (None, None)


@pytest.mark.parametrize(("last", "first"), [(10, 10), (400, 10), (12, 12)])
def test_records_that_the_target_put_before_earlier_ones_do_not_commit(last: int, first: int) -> None:
    """EO-5: the copy was cut back; the topic and the lost range are named, and of no other topic anything is said."""
    current = {
        ORDERS: replace(CURRENT[ORDERS], target_offset=last, records=5, prev=4),
        PAYMENTS: replace(CURRENT[PAYMENTS], target_offset=2),
    }
    flushed = Flushed(
        (
            replace(account(ORDERS, 10, 5), first_target_offset=first),
            replace(account(PAYMENTS, 3, 2), first_target_offset=4),
        ),
        {ORDERS: Advance(15, 0), PAYMENTS: Advance(5, 0)},
    )

    with pytest.raises(CopiesCutError) as raised:
        grant(flushed, current, source_ids=SOURCE_IDS, target_ids=TARGET_IDS, stamp=STAMP)

    (error,) = raised.value.errors
    assert type(error) is DataLossError
    assert error.topic == "orders"
    assert f"records [{first}, {last}] of east.orders-0" in error.message
    assert "--resume-at orders-0=" in error.fix


def test_a_marker_that_is_missing_behind_the_last_record_is_looked_for() -> None:
    """EO-5: it may stand in the place of a record that was lost; behind what no lane has written there is none."""
    flushed = Flushed((replace(account(ORDERS, 10, 5), first_target_offset=45),), {ORDERS: Advance(15, 0)})

    def decide(before: Position) -> CommitPermit:
        return grant(flushed, {ORDERS: before}, source_ids=SOURCE_IDS, target_ids=TARGET_IDS, stamp=STAMP)

    with pytest.raises(TransactionFailedError, match="no marker") as raised:
        decide(replace(CURRENT[ORDERS], target_offset=44, records=5))
    assert not isinstance(raised.value, CopiesCutError)
    assert decide(replace(CURRENT[ORDERS], target_offset=43, records=5))
    assert decide(replace(CURRENT[ORDERS], target_offset=44, records=0, epoch=0))


def test_every_topic_whose_copy_was_cut_is_named() -> None:
    """EO-5: what was written behind the cut is aborted, and hides it from the next comparison of log ends."""
    current = {source: replace(one, target_offset=400) for source, one in CURRENT.items()}
    accounts = [account(ORDERS, 10, 5), account(PAYMENTS, 3, 2)]
    flushed = Flushed(
        tuple(replace(one, first_target_offset=one.first_source_offset) for one in accounts),
        {ORDERS: Advance(15, 0), PAYMENTS: Advance(5, 0)},
    )

    with pytest.raises(CopiesCutError) as raised:
        grant(flushed, current, source_ids=SOURCE_IDS, target_ids=TARGET_IDS, stamp=STAMP)

    assert [error.topic for error in raised.value.errors] == ["orders", "payments"]


def test_a_position_knows_who_wrote_the_last_record_also_behind_advances_without_records() -> None:
    """EO-5: who restores a copy and writes on is told by the producer of that record."""
    wrote = replace(CURRENT[ORDERS], target_offset=9, records=3, producer_id=5, producer_epoch=2)
    current = {ORDERS: wrote}

    def moved(advance: Advance, *accounts: Account) -> tuple[int, int] | None:
        (position,) = grant(
            Flushed(accounts, {ORDERS: advance}),
            current,
            source_ids=SOURCE_IDS,
            target_ids=TARGET_IDS,
            stamp=STAMP,
        ).positions
        current[ORDERS] = position
        return position.target_writer

    assert wrote.target_writer == (5, 2)
    assert moved(Advance(12, None)) == (5, 2)
    assert moved(Advance(14, None)) == (5, 2)
    assert moved(Advance(17, None), account(ORDERS, 14, 3)) == (7, 3)
    assert replace(wrote, records=0).target_writer is None
    assert replace(wrote, target_offset=None).target_writer is None


@pytest.mark.parametrize(
    "ids",
    [
        {"source_ids": {"orders": "other"}},
        {"source_ids": {"orders": None}},
        {"source_ids": {}},
        {"target_ids": {"east.orders": "other"}},
        {"target_ids": {"east.orders": None}},
    ],
)
def test_a_replaced_topic_is_refused(ids: dict[str, dict[str, str | None]]) -> None:
    """EO-5: another id, or none, on either side."""
    with pytest.raises(TopicsChangedError, match="EO-5"):
        permit(Flushed((account(ORDERS, 10, 5),), {ORDERS: Advance(15, 0)}), **ids)


@pytest.mark.parametrize(
    "flushed",
    [
        Flushed((), {ORDERS: Advance(10, 0)}),
        Flushed((), {ORDERS: Advance(9, 0)}),
        Flushed((account(ORDERS, 9, 5),), {ORDERS: Advance(14, 0)}),
    ],
)
def test_a_position_that_does_not_grow_is_refused(flushed: Flushed) -> None:
    """EO-4: neither a step back nor a record that was mirrored before."""
    with pytest.raises(TransactionFailedError, match="EO-4"):
        permit(flushed)


def test_records_without_a_position_are_refused() -> None:
    """EO-1: data never commits without the position behind it."""
    with pytest.raises(TransactionFailedError, match="EO-1"):
        permit(Flushed((account(ORDERS, 10, 5),), {PAYMENTS: Advance(4, 0)}))


def test_state_records_name_their_partitions() -> None:
    """The lane's own partition of positions; the offset map's by a stable hash of the source partition."""
    flushed = Flushed((account(ORDERS, 10, 5),), {ORDERS: Advance(15, 0), PAYMENTS: Advance(4, 0)})
    records = state_records(permit(flushed), StateTopics("positions", 8, "map", 4))

    assert [(record.topic, record.partition) for record in records[:2]] == [
        ("positions", 1),
        ("positions", 1),
    ]
    assert records[2].topic == "map"
    assert orjson.loads(records[2].key) == {
        "topic": "orders", "partition": 0, "topic_id": "id-orders", "first": 10,
    }  # fmt: skip
    assert SourcePartition("orders", 0) == ORDERS


def test_a_position_says_what_stands_before_it_in_the_log() -> None:
    """EO-5: the last batch, or else the last record; what was not seen anew stays."""

    def marks(before: Position, seen: Seen) -> tuple[object, ...]:
        (moved,) = grant(
            Flushed((), {ORDERS: Advance(before.offset + 5, None, seen=seen)}),
            {ORDERS: before},
            source_ids=SOURCE_IDS,
            target_ids=TARGET_IDS,
            stamp=STAMP,
        ).positions
        # that is said of a beginning only
        assert not moved.batch_committed
        return (
            moved.batch_offset, moved.batch_crc, moved.batch_timestamp,
            moved.record_offset, moved.record_digest, moved.missing, moved.compacted,
        )  # fmt: skip

    before = replace(CURRENT[ORDERS], batch_offset=8, batch_crc=1, batch_timestamp=2, missing=4)
    before = replace(before, batch_committed=True)
    assert marks(before, Seen()) == (8, 1, 2, None, "", 4, False)
    assert marks(before, Seen(BatchMark(12, 3, 4), missing=9, compacted=True)) == (
        12,
        3,
        4,
        None,
        "",
        9,
        True,
    )
    record = Seen(record=RecordMark(13, "a" * 16, "b" * 16))
    assert marks(before, record) == (None, None, None, 13, "a" * 16 + "b" * 16, 4, False)


def test_holes_that_are_gone_past_are_recorded_as_gaps() -> None:
    """EO-6: the range, in the transaction that goes past it."""
    seen = Seen(holes=((12, 15),))
    (gap,) = permit(Flushed((account(ORDERS, 10, 5),), {ORDERS: Advance(20, 4, seen=seen)})).gaps

    assert (gap.source, gap.start, gap.end, gap.run) == (ORDERS, 12, 15, "new")
