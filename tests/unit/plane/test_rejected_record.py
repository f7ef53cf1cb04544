"""Refused records from librdkafka's words to the lane's, and the sieve that sends what is suspected in ranges."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, KafkaError

from eomirror.config.rights import ClusterUser
from eomirror.errors import ClusterError, TransactionFailedError
from eomirror.plane.client.bisect import RangeSender
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.client.rejected_record import TargetRefusedError, at_most, named, refused_record_of
from eomirror.plane.protocol import RangeRefusedError, RejectionReason, SendPlan, SkippedRecord
from eomirror.types import SourcePartition

ORDERS = SourcePartition("orders", 0)
PAYMENTS = SourcePartition("payments", 0)
ROUTES = {"orders": "east.orders", "payments": "east.payments"}


@dataclass
class FakeMessage:
    """What a consumer hands out."""

    at: int
    source: SourcePartition = ORDERS
    payload: bytes | None = b"v"
    name: bytes | None = b"k"
    pairs: Any = None
    failure: Any = None
    stamp: tuple[int, int] = (TIMESTAMP_CREATE_TIME, 5)

    def topic(self) -> str:
        return self.source.topic

    def partition(self) -> int:
        return self.source.partition

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes | None:
        return self.name

    def value(self) -> bytes | None:
        return self.payload

    def headers(self) -> Any:
        return self.pairs

    def timestamp(self) -> tuple[int, int]:
        return self.stamp

    def error(self) -> Any:
        return self.failure


class FakeConsumer:
    """Notes what is paused."""

    def __init__(self) -> None:
        self.paused: set[tuple[str, int]] = set()

    def pause(self, partitions: list[Any]) -> None:
        self.paused |= {(item.topic, item.partition) for item in partitions}

    def resume(self, partitions: list[Any]) -> None:
        self.paused -= {(item.topic, item.partition) for item in partitions}


class FakePlanner:
    """Keeps every record; notes the order of what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, list[int]]] = []

    def plan(self, messages: list[Any]) -> Any:
        offsets = [message.offset() for message in messages]
        self.told.append(("plan", offsets))
        return SimpleNamespace(records=offsets, kept=len(offsets), bytes=10 * len(offsets))

    def leave_out(self, messages: list[Any]) -> list[str]:
        self.told.append(("leave out", [message.offset() for message in messages]))
        return ["00" * 8] * len(messages)


class FakeProducer:
    """Refuses some offsets, at the flush behind them."""

    def __init__(self, *refused: int, topic: str = "east.orders") -> None:
        self._refused = set(refused)
        self._topic = topic
        self._sent: list[int] = []
        self.flushes: list[list[int]] = []

    def produce_all(self, records: list[int]) -> None:
        self._sent += records

    def flush(self, seconds: float) -> None:
        del seconds
        self.flushes.append(self._sent)
        refused, self._sent = self._refused & set(self._sent), []
        if refused:
            raise TargetRefusedError("a record", KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), self._topic, 0)


def sieve(spans: tuple[tuple[int, int], ...], left_out: tuple[int, ...] = ()) -> RangeSender:
    made = RangeSender()
    dead_letters = {ORDERS: {offset: SkippedRecord("size", "too large", "") for offset in left_out}}
    made.set_send_plan(SendPlan(ranges={ORDERS: spans}, left_out=dead_letters))
    return made


def send(made: RangeSender, planner: Any, producer: Any) -> tuple[int, int]:
    return made.send(planner, producer, ROUTES, 5.0)


def test_only_records_of_suspected_partitions_are_held_back() -> None:
    """Ends and errors are for the plane to see at once; others go on."""
    made = sieve(((100, 2),))
    end = FakeMessage(9, failure=KafkaError(KafkaError._PARTITION_EOF))
    other = FakeMessage(4, source=PAYMENTS)

    assert made.hold_back([FakeMessage(1), other, end, FakeMessage(2)]) == [other, end]
    assert list(made.holding) == [ORDERS]


def test_what_is_held_back_is_not_fetched_meanwhile() -> None:
    """Paused while records are held, resumed when they are sent, forgotten when the plane starts anew."""
    made, consumer = sieve(((100, 2),)), FakeConsumer()
    made.hold_back([FakeMessage(1), FakeMessage(2), FakeMessage(3)])
    made.update_pauses(consumer)  # type: ignore[arg-type]
    assert consumer.paused == {("orders", 0)}

    send(made, FakePlanner(), FakeProducer())
    made.update_pauses(consumer)  # type: ignore[arg-type]
    assert consumer.paused
    made.clear(consumer)  # type: ignore[arg-type]
    assert not consumer.paused
    assert not made.holding


def test_ranges_end_where_their_size_does() -> None:
    """Three at a time up to 13, then one by one; each range is acknowledged before the next."""
    made, planner, producer = sieve(((13, 3), (100, 1))), FakePlanner(), FakeProducer()
    made.hold_back([FakeMessage(offset) for offset in (10, 11, 12, 13, 14)])

    assert [send(made, planner, producer)[0] for _ in range(3)] == [3, 1, 1]
    assert producer.flushes == [[10, 11, 12], [13], [14]]


def test_what_is_left_out_is_in_the_books_in_its_place() -> None:
    """Between its neighbours, with a letter that holds it."""
    made, planner = sieve(((100, 5),), left_out=(11,)), FakePlanner()
    made.hold_back([FakeMessage(offset) for offset in (10, 11, 12)])

    assert send(made, planner, FakeProducer()) == (2, 20)
    assert planner.told == [("plan", [10]), ("leave out", [11]), ("plan", [12])]
    (letter,) = made.dead_letters[ORDERS]
    assert (letter.offset, letter.target_topic, letter.key, letter.timestamp) == (11, "east.orders", b"k", 5)


def test_a_refused_range_is_named_and_one_record_by_itself() -> None:
    """A range says from where to where; a range of one says what the record is."""
    made = sieve(((100, 3),))
    made.hold_back([FakeMessage(offset) for offset in (10, 11, 12)])
    with pytest.raises(RangeRefusedError) as raised:
        send(made, FakePlanner(), FakeProducer(11))
    rejection = raised.value.rejection
    assert (rejection.begin, rejection.end, rejection.record, rejection.reason) == (
        10,
        13,
        None,
        RejectionReason.SIZE,
    )

    made = sieve(((100, 1),))
    made.hold_back([FakeMessage(11)])
    with pytest.raises(RangeRefusedError) as raised:
        send(made, FakePlanner(), FakeProducer(11))
    assert raised.value.rejection.record is not None
    assert raised.value.rejection.record.offset == 11


def test_a_refusal_of_another_partition_is_not_taken_for_this_one_s() -> None:
    """A flush waits for everybody: whose record it was is said by the target's topic."""
    made = sieve(((100, 1),))
    made.hold_back([FakeMessage(11)])

    with pytest.raises(TargetRefusedError) as raised:
        send(made, FakePlanner(), FakeProducer(11, topic="east.payments"))
    assert not isinstance(raised.value, RangeRefusedError)


def test_what_is_suspected_no_longer_is_given_back_in_order() -> None:
    """The plane sends it first, as usual."""
    made = sieve(((100, 1),))
    messages = [FakeMessage(11), FakeMessage(12)]
    made.hold_back(messages)

    assert made.set_send_plan(SendPlan()) == messages
    assert not made.active


def test_the_size_of_a_batch_of_one_is_an_upper_bound() -> None:
    """Every number at its longest, every header: a limit that is raised to it is enough."""
    message = FakeMessage(7, payload=bytes(1_000), pairs=[("h", None), ("hh", b"12")])

    record = refused_record_of(message)

    assert 1_000 + 61 < record.batch_bytes < 1_000 + 200
    assert (record.offset, record.timestamp, record.keyless) == (7, 5, False)
    bare = refused_record_of(FakeMessage(8, name=None, payload=None, stamp=(TIMESTAMP_NOT_AVAILABLE, 0)))
    assert (bare.timestamp, bare.keyless) == (-1, True)


@pytest.mark.parametrize(
    ("limit", "configured", "size"), [(20_000, None, 20_000), (5_000_000, None, 1_000_000), (900, "500", 500)]
)
def test_batches_fit_the_limit_and_the_user_s_setting(limit: int, configured: str | None, size: int) -> None:
    """The smaller of both, or librdkafka's default."""
    assert at_most(limit, configured) == size


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("MSG_SIZE_TOO_LARGE", RejectionReason.SIZE),
        ("RECORD_LIST_TOO_LARGE", RejectionReason.SEGMENT),
        ("INVALID_TIMESTAMP", RejectionReason.TIMESTAMP),
        ("INVALID_RECORD", RejectionReason.INVALID),
        ("_INVALID_DIFFERENT_RECORD", RejectionReason.INVALID),
    ],
)
def test_the_ground_follows_from_the_code(code: str, reason: RejectionReason) -> None:
    """What the lane decides by."""
    error = TargetRefusedError("a record", KafkaError(getattr(KafkaError, code)), "east.orders", 0)

    assert named(error, ORDERS, begin=1, end=2).rejection.reason is reason


def failed(code: str) -> TransactionalProducer:
    """A producer whose first delivery failed with a code; nothing else of it is there."""
    made = TransactionalProducer.__new__(TransactionalProducer)
    made._account = ClusterUser("west")
    made._failure = (KafkaError(getattr(KafkaError, code)), "a record", "east.orders", 3)
    return made


def test_a_failed_delivery_says_what_kind_it_was() -> None:
    """A refused record is sought, an unknown codec is named for a person, anything else is sent again."""
    with pytest.raises(TargetRefusedError) as refused:
        failed("INVALID_TIMESTAMP")._raise_failure()
    assert (refused.value.target_topic, refused.value.target_partition) == ("east.orders", 3)
    with pytest.raises(ClusterError, match="codec") as unknown:
        failed("UNSUPPORTED_COMPRESSION_TYPE")._raise_failure()
    assert "compression.type" in unknown.value.fix
    with pytest.raises(TransactionFailedError):
        failed("NOT_LEADER_FOR_PARTITION")._raise_failure()
