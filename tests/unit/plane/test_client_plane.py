"""The client plane between a consumer and a producer that are played."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError

import eomirror.link.control_producer
import eomirror.plane.client.plane
from eomirror._native import Acks, digest_behind
from eomirror.config import Cluster, Link
from eomirror.errors import SourceDamagedError, UnreachableError
from eomirror.kafka.session import link_sessions
from eomirror.lane.spec import LaneSpec
from eomirror.link.owner import LinkOwner
from eomirror.plane.client.plane import ClientPlane
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.protocol import History, Holes, RecordMark, SendPlan, Start
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition

START = "0" * 16
ORDERS, PAYMENTS = SourcePartition("orders", 0), SourcePartition("payments", 0)


@dataclass
class FakeMessage:
    """A record that a consumer hands out, or what it says instead."""

    source: SourcePartition
    at: int
    failure: KafkaError | None = None

    def error(self) -> KafkaError | None:
        return self.failure

    def topic(self) -> str:
        return self.source.topic

    def partition(self) -> int:
        return self.source.partition

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def timestamp(self) -> tuple[int, int]:
        return (1, 5)

    def headers(self) -> None:
        return None

    def leader_epoch(self) -> int:
        return 3


class FakeConsumer:
    """Hands out what it has, paused partitions included, and knows how far that was."""

    def __init__(self, *messages: FakeMessage) -> None:
        self._left = list(messages)
        self._reached: dict[SourcePartition, int] = {}
        self.dropped: list[tuple[str, int]] = []

    def list_topics(self, *_: Any, **__: Any) -> None:
        """Connected."""

    def incremental_assign(self, partitions: list[TopicPartition]) -> None:
        """Assigned."""

    def pause(self, partitions: list[TopicPartition]) -> None:
        """Nothing more of a paused partition is left in these tests."""

    resume = pause

    def consume(self, most: int, _seconds: float) -> list[FakeMessage]:
        taken, self._left = self._left[:most], self._left[most:]
        self._reached.update({message.source: message.at + 1 for message in taken})
        return taken

    def close(self) -> None:
        """Closed."""

    def incremental_unassign(self, partitions: list[TopicPartition]) -> None:
        self.dropped += [(one.topic, one.partition) for one in partitions]

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        for one in partitions:
            one.offset = self._reached.get(SourcePartition(one.topic, one.partition), -1001)
        return partitions


class FakeProducer:
    """A target that takes everything."""

    def __init__(self) -> None:
        self._sent: Counter[tuple[str, int]] = Counter()

    def learn(self, topics: Any) -> None:
        """Known."""

    def begin(self) -> None:
        """Begun."""

    def identity(self) -> None:
        """No driver asks."""

    def produce_all(self, records: list[tuple[Any, ...]]) -> None:
        self._sent.update((record[0], record[3]) for record in records)

    def flush(self, _seconds: float) -> None:
        """All of it has arrived."""

    def take_acks(self) -> Acks:
        return Acks([(*where, [(0, count)]) for where, count in self._sent.items()])


@pytest.fixture
def spec() -> LaneSpec:
    """A lane whose clusters are never asked."""
    nowhere = Cluster("east", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
    return LaneSpec(
        link=Link(name="one", source="east", target="west", topics=(".*",)), source=nowhere, target=nowhere,
        source_cluster_id="S", target_cluster_id="T", run="r", generation=1, lane=0, epoch=1, attempt=1, seconds=60.0,
        partitions=(),
    )  # fmt: skip


def fetching(spec: LaneSpec, *messages: FakeMessage, ranges: int = 0) -> Any:
    """A plane with a transaction open; ORDERS goes in ranges of so many records if something of it is sought."""
    plane: Any = ClientPlane(spec)
    plane._source.opened, plane._producer = FakeConsumer(*messages), FakeProducer()
    if ranges:
        plane.set_send_plan(SendPlan(ranges={ORDERS: ((15, ranges),)}))
    plane.start([Start(source, 7, None, f"east.{source.topic}") for source in (ORDERS, PAYMENTS)])
    # a fetch of more than one record
    plane._transaction_size.fetched(1, 2)
    plane.begin()
    return plane


def damaged(source: SourcePartition) -> FakeMessage:
    return FakeMessage(source, -1, KafkaError(KafkaError._BAD_MSG))


def offsets(advances: Any) -> dict[SourcePartition, int]:
    return {source: advance.offset for source, advance in advances.items()}


def test_what_is_sealed_of_a_search_was_told_before(spec: LaneSpec) -> None:
    """EO-5: whose topics are compared is asked first; what was sent of a partition that is held back is among them."""
    messages = [FakeMessage(ORDERS, offset) for offset in range(10, 15)]
    plane = fetching(spec, *messages, FakeMessage(PAYMENTS, 7), ranges=1)
    for _ in range(2):
        plane.pump(0.0)
    assert plane._range_sender.holding

    told = plane.advances()
    flushed = plane.flush(1.0)

    assert offsets(told) == {ORDERS: 12, PAYMENTS: 8}
    assert offsets(flushed.advances) == offsets(told)


def test_what_is_sealed_before_damage_was_told_before(spec: LaneSpec) -> None:
    """EO-5: the same, while what was fetched behind a batch that cannot be read waits for the end of the attempt."""
    plane = fetching(spec, FakeMessage(PAYMENTS, 7), damaged(ORDERS), FakeMessage(PAYMENTS, 8))
    plane.pump(0.0)
    assert plane.pump(0.0).enough

    told = plane.advances()

    assert offsets(told) == {PAYMENTS: 8}
    assert offsets(plane.flush(1.0).advances) == offsets(told)


def test_nothing_behind_damage_is_sent_while_something_is_sought(spec: LaneSpec) -> None:
    """EO-6: librdkafka goes on behind a batch that it cannot read; a position past it would pass it over in silence."""
    plane = fetching(
        spec, FakeMessage(ORDERS, 10), damaged(ORDERS), FakeMessage(ORDERS, 12), FakeMessage(ORDERS, 13),
        ranges=3,
    )  # fmt: skip
    while not plane.pump(0.0).enough:
        pass

    assert offsets(plane.flush(1.0).advances) == {ORDERS: 11}
    plane._planner.clear()
    with pytest.raises(SourceDamagedError):
        plane.pump(0.0)


class ClosedClient:
    """What a producer lets go of."""

    def purge(self) -> None:
        """Nothing is queued."""

    def poll(self, _seconds: float) -> int:
        return 0


def open_producer() -> TransactionalProducer:
    """One with which nothing else was done."""
    made: Any = object.__new__(TransactionalProducer)
    made._producer = ClosedClient()
    return made  # type: ignore[no-any-return]


def away(*_: Any, **__: Any) -> None:
    """A producer cannot be made just now."""
    raise UnreachableError("a certificate or key cannot be read", fix="put it back")


def test_a_producer_that_cannot_be_replaced_is_closed_once(
    spec: LaneSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt ends as it should, and not in an error of ours."""
    monkeypatch.setattr(eomirror.plane.client.plane, "TransactionalProducer", away)
    plane: Any = ClientPlane(spec)
    plane._source.opened, plane._producer = FakeConsumer(), open_producer()

    with pytest.raises(UnreachableError):
        plane.open()
    plane.close()


def test_a_control_producer_that_cannot_be_replaced_is_closed_once(
    spec: LaneSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ends the link goes through to its end."""
    monkeypatch.setattr(eomirror.link.control_producer, "TransactionalProducer", away)
    sessions = link_sessions(spec.link, spec.source, spec.target, "test")
    owner: Any = LinkOwner(spec.link, *sessions, run="r")
    owner._control.producer._producer = open_producer()

    with pytest.raises(UnreachableError):
        owner._control.initialize()
    owner.close()
    sessions.close()


def test_an_end_from_before_a_lost_connection_proves_nothing(
    spec: LaneSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EO-5: what came with the error comes again behind the last mirrored record, the end of the partition included."""
    sought: list[int] = []
    monkeypatch.setattr("eomirror.plane.client.plane.connect", lambda *_, **__: None)
    monkeypatch.setattr("eomirror.plane.client.plane.validate_epochs", lambda *_, **__: None)
    mirrored = FakeMessage(ORDERS, 149)
    mark = RecordMark(149, START, digest_behind(START, mirrored))
    end = KafkaError(KafkaError._PARTITION_EOF)
    consumer: Any = FakeConsumer(
        FakeMessage(ORDERS, 150), FakeMessage(ORDERS, 151), FakeMessage(ORDERS, 152, end)
    )

    def seek(where: TopicPartition) -> None:
        sought.append(where.offset)
        # what librdkafka still held of the partition is dropped
        consumer._left.clear()

    consumer.seek = seek
    plane: Any = ClientPlane(spec, policies=lambda topics: dict.fromkeys(topics, "delete"))
    plane._source.opened, plane._producer = consumer, FakeProducer()
    plane._producer.serve = lambda: None
    history = History(record=mark, holes=Holes.STOP)
    plane.start([Start(ORDERS, 150, None, "orders", history=history)])
    # a fetch of more than one record
    plane._transaction_size.fetched(1, 3)
    # compared when the lane started
    plane._log.last_records._expected.clear()
    plane._source._on_error(KafkaError(KafkaError._TRANSPORT))

    assert not plane.await_records(0.05)

    assert sought == [149]
    again = [mirrored, FakeMessage(ORDERS, 150), FakeMessage(ORDERS, 151), FakeMessage(ORDERS, 152, end)]
    assert [message.offset() for message in plane._compared(again)] == [150, 151, 152]


def test_nothing_is_left_of_a_partition_that_is_dropped(spec: LaneSpec) -> None:
    """EO-2: other lanes write to its copy, so neither its records nor offsets behind ours are foreseen; others stay."""
    plane = fetching(spec, FakeMessage(ORDERS, 7), FakeMessage(PAYMENTS, 7))
    plane._transaction.next_offsets.update({("east.orders", 0): 40, ("east.payments", 0): 50})
    plane.stop({ORDERS, SourcePartition("never-fetched", 0)})
    assert plane._transaction.next_offsets == {("east.payments", 0): 50}
    assert plane._source.opened.dropped == [("orders", 0)]
    # librdkafka may still return what it has fetched
    plane.pump(1.0)
    assert {account.source for account in plane.flush(1.0).accounts} == {PAYMENTS}
    assert offsets(plane.advances()).keys() == {PAYMENTS}
