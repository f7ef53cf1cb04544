"""Single records and ranges, of a consumer that is played."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror.config import Cluster
from eomirror.kafka import partition_reader
from eomirror.kafka.session import ClusterSession
from eomirror.recovery.record_state import RecordStateReader

if TYPE_CHECKING:
    import pytest

WHERE = ("eomirror.l.positions", 0)
COUNT = 20


class SlowClock:
    """Goes on while records are waited for."""

    now = 0.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now


class Record:
    """One of a range."""

    def __init__(self, offset: int) -> None:
        self._offset = offset

    def topic(self) -> str:
        """Of all of them."""
        return WHERE[0]

    def partition(self) -> int:
        """Answers as told."""
        return WHERE[1]

    def offset(self) -> int:
        """Which it is."""
        return self._offset

    def error(self) -> None:
        """It is one."""

    def key(self) -> bytes:
        """Its offset."""
        return b"%d" % self._offset

    def value(self) -> None:
        """It has none."""


class FarConsumer:
    """A record at a time, over a long way."""

    def __init__(self, clock: SlowClock) -> None:
        self._clock = clock
        self._next = 0

    def consume(self, *_: Any) -> list[Record]:
        """The next record, after a while."""
        self._clock.now += 10
        self._next += 1
        return [Record(self._next - 1)]

    def assign(self, _: Any) -> None:
        """From its beginning."""

    def unassign(self) -> None:
        """It is read."""

    def close(self) -> None:
        """It is over."""


def test_a_long_range_over_a_long_way_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Positions of many partitions hang; a lane that cannot read them never starts again, however often it tries."""
    clock: Any = SlowClock()
    monkeypatch.setattr(partition_reader, "create_client", lambda *_: FarConsumer(clock))
    monkeypatch.setattr(partition_reader, "connect", lambda *_: None)
    session = ClusterSession(
        Cluster("west", {"bootstrap.servers": "127.0.0.1:1"}), client_id="c", clock=clock
    )

    records = RecordStateReader(session).range(*WHERE, 0, COUNT)

    assert [key for key, _ in records] == [b"%d" % number for number in range(COUNT)]
