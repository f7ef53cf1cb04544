"""Ranges of partitions, of a consumer that is played."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from eomirror.clock import Deadline
from eomirror.config import Cluster
from eomirror.errors import AuthorizationError, MirrorError, UnreachableError
from eomirror.kafka import partition_reader
from eomirror.kafka.errors import Action
from eomirror.kafka.partition_reader import GONE, PartitionReader
from support.fakes.clocks import PlayedClock

EOF = KafkaError._PARTITION_EOF
A, B = ("a", 0), ("b", 0)


def message(where: tuple[str, int] | None, offset: int = 0, code: int | None = None) -> Any:
    """A record, or an error in its place; of a broker if it names no partition."""
    topic, number = where or (None, None)
    return SimpleNamespace(
        topic=lambda: topic,
        partition=lambda: number,
        offset=lambda: offset,
        error=lambda: None if code is None else KafkaError(code),
    )


class Consumer:
    """Hands out a batch of messages every ten seconds."""

    def __init__(self, clock: PlayedClock, batches: list[list[Any]]) -> None:
        self._clock = clock
        self._batches = batches
        self.assigned: dict[tuple[str, int], int] = {}

    def assign(self, partitions: list[Any]) -> None:
        self.assigned = {(one.topic, one.partition): one.offset for one in partitions}

    def incremental_unassign(self, partitions: list[Any]) -> None:
        for one in partitions:
            del self.assigned[one.topic, one.partition]

    def unassign(self) -> None:
        self.assigned = {}

    def consume(self, *_: Any) -> list[Any]:
        self._clock.now += 10
        return self._batches.pop(0) if self._batches else []


class Played:
    """
    A reader of such a consumer.

    Attributes:
        taken: Partition and offset of each record that was passed on.
    """

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *batches: list[Any], uncommitted: bool = False
    ) -> None:
        self.clock = PlayedClock()
        self.consumer = Consumer(self.clock, list(batches))
        self.taken: list[tuple[tuple[str, int], int]] = []
        self.properties: dict[str, Any] = {}

        def create(_: Any, __: Any, properties: dict[str, Any]) -> Consumer:
            self.properties = properties
            return self.consumer

        monkeypatch.setattr(partition_reader, "create_client", create)
        cluster = Cluster("west", {"bootstrap.servers": "127.0.0.1:1"})
        self.reader = PartitionReader(cluster, client_id="test", uncommitted=uncommitted, clock=self.clock)

    def read(self, ranges: dict[tuple[str, int], tuple[int, int]], **how: Any) -> Any:
        """Reads, and takes note of what it is passed."""
        return self.reader.read(ranges, lambda where, one: self.taken.append((where, one.offset())), **how)


def test_a_range_ends_with_its_last_record_or_the_end_of_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Later records are not passed on, and a partition that is done is fetched no more."""
    played = Played(
        monkeypatch,
        [message(A, 3), message(A, 4), message(A, 5), message(B, 7)],
        [message(B, 9, EOF)],
    )
    consume = played.consumer.consume
    assigned = []

    def watched(*_: Any) -> list[Any]:
        assigned.append(dict(played.consumer.assigned))
        return consume()

    monkeypatch.setattr(played.consumer, "consume", watched)

    assert played.read({A: (3, 5), B: (7, 9)}) == {}
    assert played.taken == [(A, 3), (A, 4), (B, 7)]
    assert assigned == [{A: 3, B: 7}, {B: 7}]
    assert played.consumer.assigned == {}


def test_an_earlier_end_hides_records_of_an_open_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    """EO-3: the reader waits for it, and says where when it times out."""
    behind = [[message(A, 4)], [message(A, 5, EOF)], [message(A, 8, EOF)]]
    played = Played(monkeypatch, *behind)
    assert played.read({A: (4, 8)}) == {}

    played = Played(monkeypatch, *behind[:2])
    with pytest.raises(UnreachableError, match="a-0 to offset 8 on cluster west") as caught:
        played.read({A: (4, 8)})
    assert "find-hanging" in caught.value.fix
    assert played.clock.now == 70

    played = Played(monkeypatch, uncommitted=True)
    with pytest.raises(UnreachableError) as caught:
        played.read({A: (4, 8)})
    assert "find-hanging" not in caught.value.fix
    assert played.properties["isolation.level"] == "read_uncommitted"


def test_a_deadline_counts_for_all_records_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other wait is for the next record."""
    slow = [[message(A, number)] for number in range(9)]
    assert Played(monkeypatch, *slow).read({A: (0, 9)}, stall=20) == {}
    played = Played(monkeypatch, *slow)
    unread = played.read({A: (0, 9)}, deadline=Deadline(30, played.clock), partial=True)
    assert unread == {A: Action.UNREACHABLE}
    assert played.taken == [(A, 0), (A, 1), (A, 2)]


def test_to_the_end_as_it_is_then(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compacted topic is read to its end, with what was written since it was asked for."""
    played = Played(monkeypatch, [message(A, 4), message(A, 5)], [message(A, 6), message(A, 7, EOF)])
    assert played.read({A: (4, 5)}, to_end=True) == {}
    assert played.taken == [(A, 4), (A, 5), (A, 6)]


def test_the_first_record_of_each_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that ends at its offset has none; what an earlier assignment left is not one."""
    first = message(A, 6)
    played = Played(
        monkeypatch, [message(A, 2), first, message(A, 7), message(B, 9, EOF), message(("c", 0), 5)]
    )
    found = played.reader.first({A: 5, B: 9}, deadline=Deadline(30, played.clock))
    assert found == {A: first}


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (KafkaError._AUTO_OFFSET_RESET, UnreachableError),
        (KafkaError._BAD_MSG, UnreachableError),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, AuthorizationError),
    ],
)
def test_an_error_that_librdkafka_does_not_retry_ends_the_read(
    monkeypatch: pytest.MonkeyPatch, code: int, kind: type[MirrorError]
) -> None:
    """The error names the partition; one of a partition that is read already is of no interest."""
    played = Played(monkeypatch, [message(A, 4), message(A, 0, code), message(B, 0, KafkaError._TRANSPORT)])
    assert played.read({A: (4, 5), B: (4, 5)}, deadline=Deadline(30, played.clock), partial=True) == {
        B: Action.UNREACHABLE
    }
    played = Played(monkeypatch, [message(A, 0, code)])
    with pytest.raises(MirrorError, match="could not read a-0 on cluster west") as caught:
        played.read({A: (4, 5)})
    assert type(caught.value) is kind
    assert played.consumer.assigned == {}


def test_an_error_that_ends_its_partition_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are read on; a refusal that concerns none of them passes too."""
    played = Played(
        monkeypatch,
        [message(A, 0, KafkaError.OFFSET_OUT_OF_RANGE), message(None, 0, KafkaError._UNKNOWN_TOPIC)],
        [message(A, 4), message(B, 4)],
    )
    assert played.read({A: (4, 5), B: (4, 5)}, passing=GONE) == {A: Action.SOURCE_GAP}
    assert played.taken == [(B, 4)]


def test_only_some_of_many_partitions_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A text of ten thousand partitions helps no operator."""
    played = Played(monkeypatch)
    with pytest.raises(UnreachableError, match="t-9 to offset 1 and 5 more"):
        played.read({("t", number): (0, 1) for number in range(15)})
