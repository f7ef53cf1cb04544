"""Offsets are asked only of partitions whose leaders librdkafka has in its cache."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec

from eomirror.config.secret import Secret
from eomirror.kafka.list_offsets import ListOffsets, trusted_seconds
from support.fakes.clocks import PlayedClock
from support.fakes.kafka_answers import described

if TYPE_CHECKING:
    from collections.abc import Iterator

Where = tuple[str, int]


class Client:
    """Answers as librdkafka does; fails where it is asked of a partition that it would have to look up on its own."""

    def __init__(self, leaders: dict[str, dict[int, int]], **errors: int) -> None:
        self.leaders = leaders
        self.errors = {name: KafkaError(code) for name, code in errors.items()}
        self.cached: set[Where] = set()
        self.looks: list[list[str]] = []
        self.asked: list[list[Where]] = []
        self.broken = 0
        self.breaks = False
        self.lock = threading.Lock()
        self.fails: dict[Where, int] = {}

    def describe_topics(self, names: Any, request_timeout: float) -> Any:
        assert request_timeout > 0
        with self.alone():
            self.looks.append(names.topic_names)
            if self.broken:
                self.broken -= 1
                return described(
                    {}, errors=dict.fromkeys(names.topic_names, KafkaError(KafkaError._TIMED_OUT))
                )
            missing = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
            told = {name: self.leaders[name] for name in names.topic_names if name in self.leaders}
            self.cached |= {(name, n) for name, each in told.items() for n, led in each.items() if led == 1}
            errors = {name: self.errors.get(name, missing) for name in names.topic_names if name not in told}
            return described(told, errors=errors)

    def list_topics(self, topic: str | None = None, timeout: float = 0.0) -> Any:
        # of one topic, it would go on asking in the background for as long as the client lives
        assert topic is None
        assert timeout > 0
        with self.alone():
            return SimpleNamespace(topics=dict.fromkeys(self.leaders))

    def list_offsets(self, wanted: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Any]:
        with self.alone():
            self.asked.append(sorted((one.topic, one.partition) for one in wanted))
            assert set(self.asked[-1]) <= self.cached
            found: dict[TopicPartition, Any] = {where: Future() for where in wanted}
            for where, future in found.items():
                if (code := self.fails.pop((where.topic, where.partition), None)) is not None:
                    self.cached.discard((where.topic, where.partition))
                    future.set_exception(KafkaException(KafkaError(code)))
                else:
                    future.set_result(SimpleNamespace(offset=OFFSET_INVALID if self.breaks else 7))
            return found

    @contextmanager
    def alone(self) -> Iterator[None]:
        """For a call that no other thread's may overlap."""
        assert self.lock.acquire(blocking=False)
        try:
            yield
        finally:
            self.lock.release()


def asking(clock: PlayedClock | None = None) -> ListOffsets:
    return ListOffsets(trusted=100, clock=clock or PlayedClock())


def told(asked: ListOffsets, client: Client, *partitions: Where) -> dict[Where, int]:
    """Offsets, or codes of errors."""
    found = {}
    for where, answer in asked.request(client, partitions, OffsetSpec.latest(), None, seconds=30).items():
        try:
            found[where] = answer.result(1).offset
        except KafkaException as raised:
            found[where] = raised.args[0].code()
    return found


def test_leaders_are_looked_up_once() -> None:
    """And again when they are no longer trusted, or a partition is asked of that was not there."""
    clock = PlayedClock()
    asked, client = asking(clock), Client({"t": {0: 1, 1: 1}, "u": {0: 1}})
    assert told(asked, client, ("t", 0), ("u", 0)) == {("t", 0): 7, ("u", 0): 7}
    assert told(asked, client, ("t", 1)) == {("t", 1): 7}
    assert client.looks == [["t", "u"]]

    client.leaders["u"][1] = 1
    assert told(asked, client, ("u", 1), ("t", 1)) == {("u", 1): 7, ("t", 1): 7}
    assert client.looks == [["t", "u"], ["u"]]

    clock.sleep(100)
    assert told(asked, client, ("t", 0)) == {("t", 0): 7}
    assert client.looks == [["t", "u"], ["u"], ["t"]]


def test_what_has_no_leader_is_not_asked_about() -> None:
    """A partition, a topic that is not there or may not be seen: each has its own answer, and the others theirs."""
    asked = asking()
    client = Client({"t": {0: 1, 1: -1, 2: 2}}, secret=KafkaError.TOPIC_AUTHORIZATION_FAILED)
    partitions = [("t", 0), ("t", 1), ("t", 2), ("t", 3), ("gone", 0), ("secret", 0)]
    for _ in range(2):
        assert told(asked, client, *partitions) == {
            ("t", 0): 7,
            ("t", 1): KafkaError.LEADER_NOT_AVAILABLE,
            # led by an unknown broker
            ("t", 2): KafkaError.LEADER_NOT_AVAILABLE,
            ("t", 3): KafkaError._UNKNOWN_PARTITION,
            ("gone", 0): KafkaError.UNKNOWN_TOPIC_OR_PART,
            ("secret", 0): KafkaError.TOPIC_AUTHORIZATION_FAILED,
        }
    # no refusal is remembered: the next answer may be another
    assert client.looks == [["t", "gone", "secret"]] * 2
    assert client.asked == [[("t", 0)]] * 2
    assert told(asked, client, ("gone", 0)) == {("gone", 0): KafkaError.UNKNOWN_TOPIC_OR_PART}
    assert len(client.asked) == 2


def test_a_partition_without_a_leader_costs_the_others_of_its_topic_no_looks() -> None:
    """It may have none for hours; readers leave it out, and ask about the others again and again."""
    asked, client = asking(), Client({"t": {0: 1, 1: -1}})
    assert told(asked, client, ("t", 0), ("t", 1))[("t", 1)] == KafkaError.LEADER_NOT_AVAILABLE
    assert told(asked, client, ("t", 0)) == {("t", 0): 7}
    assert client.looks == [["t"]]

    client.leaders["t"][1] = 1
    assert told(asked, client, ("t", 0), ("t", 1)) == {("t", 0): 7, ("t", 1): 7}
    assert client.looks == [["t"], ["t"]]


def test_a_leader_that_refuses_is_looked_up_again() -> None:
    """By then librdkafka has dropped the topic from its cache."""
    asked, client = asking(), Client({"t": {0: 1, 1: 1}, "u": {0: 1}})
    assert told(asked, client, ("t", 0), ("u", 0)) == {("t", 0): 7, ("u", 0): 7}
    client.fails[("t", 0)] = KafkaError.NOT_LEADER_FOR_PARTITION
    assert told(asked, client, ("t", 0), ("u", 0))[("t", 0)] == KafkaError.NOT_LEADER_FOR_PARTITION
    assert told(asked, client, ("t", 0), ("u", 0)) == {("t", 0): 7, ("u", 0): 7}
    assert client.looks == [["t", "u"], ["t"]]


def test_a_leader_that_refuses_is_looked_up_again_by_the_next_request() -> None:
    """Also where the answer was not waited for, because of what was said of another partition."""
    asked, client = asking(), Client({"t": {0: 1, 1: 1}, "u": {0: 1}})
    client.fails[("t", 0)] = KafkaError.NOT_LEADER_FOR_PARTITION
    answers = asked.request(client, [("t", 0), ("u", 0)], OffsetSpec.latest(), None, seconds=30)
    assert answers["u", 0].result(1).offset == 7
    assert told(asked, client, ("t", 0), ("u", 0)) == {("t", 0): 7, ("u", 0): 7}
    assert client.looks == [["t", "u"], ["t"]]


def test_a_leader_whose_connection_breaks_is_looked_up_again() -> None:
    """Librdkafka would wait for a broker that is gone, while another leads."""
    asked, client = asking(), Client({"t": {0: 1}})
    client.breaks = True
    assert told(asked, client, ("t", 0)) == {("t", 0): KafkaError.OFFSET_NOT_AVAILABLE}
    client.breaks = False
    assert told(asked, client, ("t", 0)) == {("t", 0): 7}
    assert client.looks == [["t"], ["t"]]


def test_a_look_without_an_answer_is_worth_another() -> None:
    """It is given a part of the time only, so that a broker that stands still does not take it all."""
    asked, client = asking(), Client({"t": {0: 1}})
    client.broken = 1
    assert told(asked, client, ("t", 0)) == {("t", 0): KafkaError._TRANSPORT}
    assert client.asked == []
    assert told(asked, client, ("t", 0)) == {("t", 0): 7}


def test_threads_do_not_look_while_another_asks() -> None:
    """An answer to a look that comes while offsets are asked for ended the process (see the module)."""
    asked, client = asking(), Client({f"t{number}": {0: 1} for number in range(400)})
    failed: list[BaseException] = []

    def ask(first: int) -> None:
        try:
            for number in range(400):
                name = f"t{(number * 7 + first) % 400}"
                assert told(asked, client, (name, 0)) == {(name, 0): 7}
                assert "t0" in asked.metadata(client, seconds=1).topics
        except BaseException as error:  # noqa: BLE001  told by the test's own thread
            failed.append(error)

    threads = [threading.Thread(target=ask, args=(100 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []


@pytest.mark.parametrize(
    ("properties", "seconds"),
    [
        ({}, 120),
        ({"metadata.max.age.ms": "60000"}, 30),
        ({"metadata.max.age.ms": 900_000}, 120),
        ({"topic.metadata.refresh.interval.ms": 10_000}, 5),
        ({"topic.metadata.refresh.interval.ms": -1, "metadata.max.age.ms": 100_000}, 50),
        # as of ${env:AGE}
        ({"metadata.max.age.ms": Secret("60000")}, 30),
        # librdkafka takes it
        ({"metadata.max.age.ms": "0xea60"}, 0),
    ],
)
def test_leaders_are_trusted_for_less_long_than_librdkafka_keeps_them(
    properties: dict[str, Any], seconds: float
) -> None:
    """Both may be set on the cluster."""
    assert trusted_seconds(properties) == seconds
