"""What is concluded from what a target left open (docs/adr/0012)."""

from __future__ import annotations

import pytest

from eomirror.errors import DataLossError, UnreachableError
from eomirror.recovery.hanging import (
    OpenRange,
    RecordState,
    ahead_error,
    copy_was_committed,
    lost_error,
    positions_were_committed,
    state_was_committed,
    unclear_error,
)
from support.fakes.lane_fakes import ORDERS, position

MINE, EPOCH = 7, 3


def copy(start: int, end: int, *, producer_id: int = MINE, epoch: int = EPOCH) -> OpenRange:
    """What a producer has open in the copy of orders-0."""
    return OpenRange(
        topic="east.orders", partition=0, producer_id=producer_id, epoch=epoch, start=start, end=end
    )


@pytest.mark.parametrize(
    ("target_offset", "committed"),
    [
        pytest.param(None, False, id="nothing-was-ever-committed"),
        pytest.param(49, False, id="what-was-committed-is-before-it"),
        pytest.param(59, True, id="its-last-record-was-committed"),
        pytest.param(60, True, id="and-nothing-is-behind-it"),
    ],
)
def test_a_position_tells_how_what_is_open_in_its_copy_ended(
    target_offset: int | None, committed: bool
) -> None:
    """A position that names a record in the open range is of the transaction that wrote it."""
    known = position(
        ORDERS, 100, target_offset=target_offset, producer_id=MINE, producer_epoch=EPOCH, records=10
    )

    assert copy_was_committed(known, copy(50, 60)) is committed


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(copy(50, 61), id="more-behind-it"),
        pytest.param(copy(50, 60, epoch=EPOCH + 1), id="by-a-newer-epoch"),
        pytest.param(copy(50, 60, producer_id=MINE + 1), id="by-another-lane"),
    ],
)
def test_a_range_that_was_committed_in_part_stops_the_topic(found: OpenRange) -> None:
    """Whatever ends it ends both parts alike, so a person decides, and is told from where to go on."""
    known = position(
        ORDERS, 100, prev=90, target_offset=59, producer_id=MINE, producer_epoch=EPOCH, records=10
    )

    with pytest.raises(DataLossError, match=r"open from offset 50 to 6[01]; up to 59") as raised:
        copy_was_committed(known, found)

    assert raised.value.topic == "orders"
    assert "--resume-at orders-0=90" in raised.value.fix


def test_who_is_told_to_adopt_must_find_out_where_when_the_position_only_advanced() -> None:
    """An advance without records does not say where the transaction before it began."""
    known = position(ORDERS, 100, prev=90, target_offset=59, records=0)

    assert "--resume-at orders-0=OFFSET" in lost_error(known).fix


@pytest.mark.parametrize("in_doubt", [False, True])
@pytest.mark.parametrize(
    ("behind", "committed"), [([], False), ([True, True], True), ([False], False), ([True, False], None)]
)
def test_what_accompanies_records_follows_their_positions(
    behind: list[bool], committed: bool | None, in_doubt: bool
) -> None:
    """Of several transactions, some aborted, the caller says what does less harm."""
    assert state_was_committed(behind, in_doubt=in_doubt) is (in_doubt if committed is None else committed)


@pytest.mark.parametrize(
    ("last", "earlier", "committed"),
    [
        pytest.param([], [], False, id="claims-only"),
        pytest.param([RecordState.PENDING], [], False, id="all-of-it-is-open"),
        pytest.param([RecordState.ABORTED, RecordState.PENDING], [], False, id="aborted"),
        pytest.param([RecordState.DELETED], [], False, id="deleted"),
        pytest.param([RecordState.COMMITTED, RecordState.PENDING], [], True, id="committed"),
        pytest.param([RecordState.COMMITTED, RecordState.ABORTED], [], True, id="committed-and-lost-in-part"),
        pytest.param(
            [RecordState.COMMITTED],
            [RecordState.PENDING, RecordState.ABORTED],
            True,
            id="and-what-was-before-it",
        ),
        pytest.param(
            [RecordState.PENDING], [RecordState.PENDING], False, id="none-of-several-was-ever-shown"
        ),
    ],
)
def test_positions_end_like_the_records_of_their_last_transaction(
    last: list[RecordState], earlier: list[RecordState], committed: bool
) -> None:
    """One record that is shown proves a commit; what was never shown comes again."""
    assert positions_were_committed(last, earlier) is committed


@pytest.mark.parametrize("last", [[], [RecordState.PENDING], [RecordState.ABORTED], [RecordState.DELETED]])
def test_no_lane_ends_positions_of_which_only_the_first_were_committed(last: list[RecordState]) -> None:
    """To commit might lose records of the last transaction, to abort brings those before it twice: it is left alone."""
    with pytest.raises(UnreachableError, match="to several transactions"):
        positions_were_committed(last, [RecordState.COMMITTED])


def test_errors_name_partition_offsets_and_what_to_do() -> None:
    """An operator who reads them knows where to look and what to run next."""
    known = position(ORDERS, 100, prev=90, target_offset=59, records=10)

    assert "record 59 of east.orders-0" in lost_error(known).message
    assert "--resume-at orders-0=90" in lost_error(known).fix
    assert "after 59" in ahead_error(known).message
    assert {lost_error(known).topic, ahead_error(known).topic} == {"orders"}
    assert "find-hanging" in unclear_error("east.orders-0", "why").fix
