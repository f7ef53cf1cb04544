"""The last mirrored record of a partition is compared with the log, and passed over."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from eomirror._native import digest_behind
from eomirror.errors import DataLossError
from eomirror.plane.client.position_checks import LastRecords
from eomirror.plane.protocol import RecordMark
from eomirror.types import SourcePartition

ONE, OTHER = SourcePartition("orders", 0), SourcePartition("orders", 1)
START = "0" * 16


class Message:
    """A record of a partition, or its end."""

    def __init__(self, offset: int, value: bytes = b"v", *, partition: int = 0, end: bool = False) -> None:
        self._offset, self._value, self._partition = offset, value, partition
        self._error = SimpleNamespace(code=lambda: KafkaError._PARTITION_EOF) if end else None

    def error(self) -> Any:
        return self._error

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return self._partition

    def offset(self) -> int:
        return self._offset

    def key(self) -> bytes | None:
        return None

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_700_000_000_000)

    def leader_epoch(self) -> int | None:
        return 3

    def headers(self) -> None:
        return None


def mark(offset: int, value: bytes = b"v") -> RecordMark:
    return RecordMark(offset, START, digest_behind(START, Message(offset, value)))


def offsets(messages: list[Any]) -> list[tuple[int, int]]:
    return [(message.partition(), message.offset()) for message in messages]


def test_the_same_record_is_passed_over_and_what_follows_is_kept() -> None:
    """EO-5: records before the position are not mirrored twice."""
    last = LastRecords()
    last.begin(ONE, mark(7), 9)
    kept, changed = last.compare([Message(7), Message(8), Message(9), Message(3, partition=1), Message(10)])

    assert changed is None
    assert offsets(kept) == [(0, 9), (1, 3), (0, 10)]
    assert not last.expecting


@pytest.mark.parametrize(
    "messages",
    [[Message(7, b"foreign")], [Message(9)], [Message(9, end=True)]],
    ids=["another", "none", "none up to the end"],
)
def test_a_log_without_the_record_is_another_one(messages: list[Message]) -> None:
    """EO-5: another record stands there, or none does."""
    last = LastRecords()
    last.begin(ONE, mark(7), 9)
    kept, changed = last.compare(messages)

    assert isinstance(changed, DataLossError)
    assert "orders-0: the source's log diverges from the mirrored records" in changed.message
    assert changed.topic == "orders"
    assert kept == []


def test_behind_a_lost_connection_the_latest_record_is_expected_once_more() -> None:
    """EO-5: of the open transaction, or of the last committed one; nothing where no record is known."""
    last = LastRecords()
    last.begin(ONE, None, 5)
    last.begin(OTHER, None, 5)
    assert not last.expecting
    last.mirrored(ONE, mark(8))

    assert last.again({}, {ONE: 12, OTHER: 5}).keys() == {ONE}
    kept, changed = last.compare([Message(8), Message(11), Message(12)])
    assert (offsets(kept), changed) == ([(0, 12)], None)

    again = last.again({ONE: mark(20)}, {ONE: 12, OTHER: 5})
    assert (again[ONE].mark, again[ONE].following) == (mark(20), 21)
