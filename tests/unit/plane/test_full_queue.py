"""What `TransactionalProducer` makes of librdkafka's queue: when it is full, and when a record in it failed."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from eomirror.config.rights import ClusterUser
from eomirror.errors import AuthorizationError, FencedError, TransactionFailedError
from eomirror.plane.client.producer import TransactionalProducer
from eomirror.plane.client.rejected_record import TargetRefusedError
from eomirror.plane.protocol import RejectionReason

_ROOM = 2


class Queue:
    """Takes two records between two polls, and refuses one of them for its size."""

    def __init__(self, too_large: bytes = b"") -> None:
        self.taken: list[bytes] = []
        self.polls = 0
        self._room = _ROOM
        self._too_large = too_large

    def produce(self, topic: str, value: bytes, *_: object) -> None:
        if value == self._too_large:
            raise KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, f"too large for {topic}"))
        if not self._room:
            raise BufferError("Local: Queue full")
        self._room -= 1
        self.taken.append(value)

    def poll(self, _seconds: float) -> int:
        self.polls += 1
        self._room = _ROOM
        return 0


def producer(queue: Queue) -> TransactionalProducer:
    """One whose client is a queue, and that nothing else was done with."""
    made = object.__new__(TransactionalProducer)
    made.transactional_id = "id"
    made.__dict__.update(_producer=queue, _failure=None)
    return made


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 7])
def test_a_full_queue_loses_nothing_and_repeats_nothing(count: int) -> None:
    """The record that found the queue full is the first to be offered again."""
    values = [b"%d" % number for number in range(count)]
    queue = Queue()

    producer(queue).produce_all([("t", value, None, 0) for value in values])

    assert queue.taken == values
    assert queue.polls == max(0, count - 1) // _ROOM + 1


@pytest.mark.parametrize("refused", range(6))
def test_the_record_that_is_refused_is_the_one_that_is_named(refused: int) -> None:
    """Wherever it stands, before or after the queue was full."""
    records = [("t", b"%d" % number, None, number) for number in range(6)]
    queue = Queue(too_large=b"%d" % refused)

    with pytest.raises(TargetRefusedError) as raised:
        producer(queue).produce_all(records)

    assert raised.value.target_partition == refused
    assert queue.taken == [b"%d" % number for number in range(refused)]


class Reports:
    """A client that reports one failed delivery with each poll."""

    def __init__(self, *codes: int) -> None:
        self.left = list(codes)
        self.client: TransactionalProducer | None = None
        self.ended = KafkaError(KafkaError._STATE, "Operation not valid in state InTransaction")

    def begin_transaction(self) -> None:
        raise KafkaException(self.ended)

    def poll(self, _seconds: float) -> int:
        if self.left:
            assert self.client is not None
            self.client._on_failed_delivery(KafkaError(self.left.pop(0)), Delivery())
        return 0


class Delivery:
    """A record of two bytes that was not delivered."""

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 3

    def key(self) -> None:
        return None

    def value(self) -> bytes:
        return b"vv"


def reporting(*codes: int) -> TransactionalProducer:
    reports = Reports(*codes)
    made = object.__new__(TransactionalProducer)
    made.transactional_id = "id"
    made.__dict__.update(_producer=reports, _failure=None, _account=ClusterUser("target"))
    reports.client = made
    return made


@pytest.mark.parametrize("consequence", ["_PURGE_QUEUE", "_PURGE_INFLIGHT"])
@pytest.mark.parametrize("others", [0, 1, 3])
def test_the_record_that_is_the_cause_is_named_whatever_is_reported_before_it(
    consequence: str, others: int
) -> None:
    """What was given up with it may be reported first; taken for the cause, the record would be sent for ever."""
    made = reporting(*[getattr(KafkaError, consequence)] * others, KafkaError.MSG_SIZE_TOO_LARGE)

    with pytest.raises(TargetRefusedError) as raised:
        made.serve()

    assert (raised.value.reason, raised.value.target_partition) == (RejectionReason.SIZE, 3)


def test_what_is_given_up_without_a_cause_ends_the_attempt() -> None:
    """Nothing is waited for without end."""
    with pytest.raises(TransactionFailedError, match="Purged in queue"):
        reporting(KafkaError._PURGE_QUEUE).serve()


@pytest.mark.parametrize("consequence", ["_PURGE_QUEUE", "_PURGE_INFLIGHT"])
@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("INVALID_PRODUCER_ID_MAPPING", TransactionFailedError),
        ("INVALID_TXN_STATE", TransactionFailedError),
        ("_FENCED", FencedError),
        ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", AuthorizationError),
    ],
)
def test_records_that_were_purged_name_what_ended_the_transaction(
    consequence: str, code: str, kind: type[Exception]
) -> None:
    """The coordinator's refusal, such as of a transactional.id that has expired, and not the purge of the queue."""
    text = f"Transaction is in abortable error state: Failed to add partition(s): {code}"
    made = reporting(getattr(KafkaError, consequence))
    made._producer.ended = KafkaError(getattr(KafkaError, code), text)

    with pytest.raises(kind) as raised:
        made.serve()

    assert "Purged" not in str(raised.value)
    assert text in str(raised.value)
    assert ("has expired" in str(raised.value)) is (code == "INVALID_PRODUCER_ID_MAPPING")
