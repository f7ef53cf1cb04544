"""Which of several position records of a partition is the valid one (rule 3)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from eomirror.errors import StateError
from eomirror.kafka.compacted_topic import LogRecord
from eomirror.link.valid_positions import valid_positions
from support.fakes.lane_fakes import ORDERS, position


def record(partition: int, at: int, offset: int, **changes: Any) -> LogRecord:
    """A position of ORDERS at a place of the topic."""
    value = position(ORDERS, offset, **changes)
    return LogRecord("positions", partition, at, value.key(), value.value())


def valid(*records: LogRecord) -> int:
    """The offset to go on at."""
    return valid_positions(records)[ORDERS].offset


def test_the_last_of_a_generation_is_valid_even_where_it_goes_back() -> None:
    """EO-3: never the highest offset: an adopted position may lie before it."""
    adopted = record(0, 2, 100, epoch=0, attempt=0, txn=0)
    assert valid(record(0, 1, 500), adopted) == 100
    assert valid(record(0, 1, 500), adopted, record(0, 3, 101)) == 101


def test_a_position_that_goes_back_within_a_generation_is_refused() -> None:
    """EO-4: no lane writes one; believing it would mirror everything since then a second time (fault F21)."""
    with pytest.raises(
        StateError, match=r"positions-0@2: the position of orders-0 goes back .*positions-0@1"
    ):
        valid(record(0, 1, 500), record(0, 2, 100))


@pytest.mark.parametrize("value", [b"{", b'{"v":1,"offset":0}'])
def test_an_unreadable_position_is_not_passed_over_for_an_older_one(value: bytes) -> None:
    """It may have been the newest; believing the one before it would be a guess (fault F21)."""
    broken = LogRecord("positions", 0, 2, position(ORDERS, 5).key(), value)
    with pytest.raises(StateError, match="positions-0@2"):
        valid_positions([record(0, 1, 500), broken])
    assert valid(record(0, 1, 500), broken, record(0, 3, 600)) == 600


def test_what_the_user_overrules_need_not_be_readable() -> None:
    """`--resume-at` is the way on from a position that is corrupt or goes back."""
    broken = LogRecord("positions", 0, 2, position(ORDERS, 5).key(), b"{")
    with pytest.raises(StateError, match="not readable"):
        valid_positions([broken])
    assert not valid_positions([broken], overruled={ORDERS})
    assert not valid_positions([record(0, 1, 500), record(0, 2, 100)], overruled={ORDERS})


def test_a_newer_generation_wins_wherever_it_stands() -> None:
    """EO-3: partitions of the topic have no order among each other."""
    assert valid(record(1, 1, 7, generation=3), record(0, 9, 900, generation=2)) == 7
    assert valid(record(0, 9, 900, generation=2), record(1, 1, 7, generation=3)) == 7


def test_an_old_lane_that_commits_late_is_not_believed() -> None:
    """EO-3: it lived until it was fenced, and wrote behind the newer generation under the same key."""
    assert valid(record(0, 1, 0, generation=3), record(0, 2, 1819, generation=2)) == 0


def test_progress_wins_over_a_first_position_of_the_same_generation() -> None:
    """A first position may stand in another lane's partition of the topic; it is of epoch 0."""
    first = record(0, 1, 0, generation=2, epoch=0, attempt=0, txn=0)
    progress = record(1, 1, 1000, generation=2, epoch=1, attempt=1, txn=9)
    assert valid(first, progress) == valid(progress, first) == 1000


def test_a_tombstone_takes_a_position_away() -> None:
    """Nothing of ours writes one; a person who does means it."""
    gone = LogRecord("positions", 0, 2, position(ORDERS, 5).key(), None)
    assert ORDERS not in valid_positions([record(0, 1, 5), gone])


@pytest.mark.parametrize("first", [True, False])
def test_a_field_inside_a_field_of_a_newer_release_is_not_taken_for_the_position(first: bool) -> None:
    """EO-3, EO-4: only fields of the value itself say where a partition stands, wherever they are written in it."""
    newer = {"batch": {"offset": 90, "generation": 99, "epoch": 0}}
    older = {"batch": {"offset": 10, "generation": 99, "epoch": 0}}

    def written(at: int, offset: int, more: dict[str, Any]) -> LogRecord:
        plain = record(0, at, offset)
        body = orjson.loads(plain.value or b"")
        value = orjson.dumps({**more, **body} if first else {**body, **more})
        return LogRecord("positions", 0, at, plain.key, value)

    # their inner offsets go back, and the position does not
    assert valid(written(1, 500, newer), written(2, 600, older)) == 600
    # their inner offsets do not go back, and the position does
    with pytest.raises(StateError, match="goes back"):
        valid(written(1, 500, older), written(2, 100, newer))
    # the inner generation is not that of the lane layout
    assert valid(record(0, 1, 7, generation=3), written(2, 900, newer)) == 7
