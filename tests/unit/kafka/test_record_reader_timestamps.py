"""Timestamps at offsets, some of which retention has overtaken; the consumer is played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError

from eomirror.config import Cluster
from eomirror.kafka import partition_reader
from eomirror.kafka.record_reader import TimestampReader
from eomirror.kafka.session import ClusterSession
from support.fakes.clocks import PlayedClock

if TYPE_CHECKING:
    import pytest


class Consumer:
    """Partition 0 begins behind whatever is asked of it; the others have a record at every offset."""

    def __init__(self, clock: PlayedClock) -> None:
        self._clock = clock
        self._assigned: list[Any] = []

    def assign(self, partitions: list[Any]) -> None:
        self._assigned = partitions

    def incremental_unassign(self, partitions: list[Any]) -> None:
        self._assigned = [one for one in self._assigned if one not in partitions]

    def unassign(self) -> None:
        self._assigned = []

    def consume(self, *_: Any) -> list[Any]:
        self._clock.now += 1
        return [
            SimpleNamespace(
                topic=lambda: "t",
                partition=lambda one=one: one.partition,
                offset=lambda one=one: one.offset,
                timestamp=lambda one=one: (1, 1000 + one.offset),
                error=lambda one=one: None if one.partition else KafkaError(KafkaError._AUTO_OFFSET_RESET),
            )
            for one in self._assigned
        ]


def test_an_offset_that_retention_has_overtaken_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One group that stood still for long cost 10 s, in which the times of all others were not found."""
    clock = PlayedClock()
    monkeypatch.setattr(partition_reader, "create_client", lambda *_: Consumer(clock))
    cluster = Cluster("east", {"bootstrap.servers": "127.0.0.1:1"})
    session = ClusterSession(cluster, client_id="test", clock=clock)  # type: ignore[arg-type]

    found = TimestampReader(session).read([("t", 0, 5), ("t", 0, 6), ("t", 1, 7), ("t", 1, 8), ("t", 1, 9)])

    assert found == {("t", 1, 7): 1007, ("t", 1, 8): 1008, ("t", 1, 9): 1009}
    assert clock.now == 3
