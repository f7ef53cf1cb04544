"""The permit: what must hold before a transaction may be committed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import orjson
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fakes import ORDERS, PAYMENTS, account, position

from eomirror.errors import TransactionFailedError
from eomirror.lane.commit import (
    CommitPermit,
    StateTopics,
    TopicsChangedError,
    TransactionStamp,
    grant,
    state_records,
)
from eomirror.lane.plane import Account, Advance, ProducerIdentity, Sealed
from eomirror.types import SourcePartition

STAMP = TransactionStamp(
    generation=2, lane=9, run="new", epoch=1, attempt=1, identity=ProducerIdentity(7, 3), txn=5, timestamp=99
)
CURRENT = {ORDERS: position(ORDERS, 10, total_records=100), PAYMENTS: position(PAYMENTS, 3)}
SOURCE_IDS = {"orders": "id-orders", "payments": "id-payments"}
TARGET_IDS = {"east.orders": "id-east.orders", "east.payments": "id-east.payments"}


def permit(sealed: Sealed, **changes: dict[str, str | None]) -> CommitPermit:
    values = {"source_ids": SOURCE_IDS, "target_ids": TARGET_IDS, **changes}
    return grant(sealed, CURRENT, stamp=STAMP, **values)


def test_nobody_else_makes_a_permit() -> None:
    """The constructor refuses everybody but `grant`."""
    with pytest.raises(TypeError, match="only"):
        CommitPermit((), (), key=object())


def test_the_position_behind_the_data() -> None:
    """EO-4: the next position is the advance, not the last offset plus one; totals go on."""
    (moved,) = permit(Sealed((account(ORDERS, 10, 5),), {ORDERS: Advance(17, 4)})).positions

    assert (moved.offset, moved.prev, moved.leader_epoch) == (17, 10, 4)
    assert (moved.records, moved.total_records, moved.target_offset) == (5, 105, 14)
    assert (moved.lane, moved.producer_id, moved.producer_epoch, moved.txn) == (9, 7, 3, 5)


def test_an_advance_without_records_keeps_what_is_known_of_the_last_record() -> None:
    """EO-4: markers move the offset only."""
    current = {ORDERS: replace(CURRENT[ORDERS], target_offset=44, source_timestamp=5)}
    (moved,) = grant(
        Sealed((), {ORDERS: Advance(12, None)}),
        current,
        source_ids=SOURCE_IDS,
        target_ids=TARGET_IDS,
        stamp=STAMP,
    ).positions

    assert (moved.offset, moved.records, moved.target_offset, moved.source_timestamp) == (12, 0, 44, 5)


def test_an_epoch_that_nobody_tells_is_the_one_that_is_known_of_an_earlier_offset() -> None:
    """EO-5: markers and aborted records tell no epoch; without one a restored log could not be told (fault F19)."""
    current = {ORDERS: replace(CURRENT[ORDERS], leader_epoch=4)}

    def moved(advance: Advance, *accounts: Account) -> tuple[int | None, int | None]:
        (position,) = grant(
            Sealed(accounts, {ORDERS: advance}),
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
        permit(Sealed((account(ORDERS, 10, 5),), {ORDERS: Advance(15, 0)}), **ids)


@pytest.mark.parametrize(
    "sealed",
    [
        Sealed((), {ORDERS: Advance(10, 0)}),
        Sealed((), {ORDERS: Advance(9, 0)}),
        Sealed((account(ORDERS, 9, 5),), {ORDERS: Advance(14, 0)}),
    ],
)
def test_a_position_that_does_not_grow_is_refused(sealed: Sealed) -> None:
    """EO-4: neither a step back nor a record that was mirrored before."""
    with pytest.raises(TransactionFailedError, match="EO-4"):
        permit(sealed)


def test_records_without_a_position_are_refused() -> None:
    """EO-1: data never commits without the position behind it."""
    with pytest.raises(TransactionFailedError, match="EO-1"):
        permit(Sealed((account(ORDERS, 10, 5),), {PAYMENTS: Advance(4, 0)}))


def test_state_records_name_their_partitions() -> None:
    """The lane's own partition of positions; the offset map's by a stable hash of the source partition."""
    sealed = Sealed((account(ORDERS, 10, 5),), {ORDERS: Advance(15, 0), PAYMENTS: Advance(4, 0)})
    records = state_records(permit(sealed), StateTopics("positions", 8, "map", 4))

    assert [(record.topic, record.partition) for record in records[:2]] == [
        ("positions", 1),
        ("positions", 1),
    ]
    assert records[2].topic == "map"
    assert orjson.loads(records[2].key) == {
        "topic": "orders", "partition": 0, "topic_id": "id-orders", "first": 10,
    }  # fmt: skip
    assert SourcePartition("orders", 0) == ORDERS
