"""A producer that no lane may rely on, and what it does about a client that has given up."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from structlog.testing import capture_logs

from eomirror.config import Cluster
from eomirror.errors import UnreachableError
from eomirror.kafka import plain_producer
from eomirror.kafka.plain_producer import PlainProducer


class Client:
    """Takes records until it meets what it cannot mend; then none any more, as librdkafka does."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.code: int | None = None

    def produce(self, _topic: str, value: bytes, _key: bytes, _partition: int) -> None:
        if self.code is not None:
            raise KafkaException(KafkaError(self.code))
        self.taken.append(value)

    def poll(self, _seconds: float) -> None:
        pass

    def purge(self) -> None:
        pass


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Client]:
    """Those that are made, in order; the third one cannot be."""
    made: list[Client] = []

    def make(*_: Any) -> Client:
        if len(made) == 2:
            raise UnreachableError("a key is away")
        made.append(Client())
        return made[-1]

    monkeypatch.setattr(plain_producer, "create_client", make)
    return made


def test_a_client_that_has_given_up_is_replaced(clients: list[Client]) -> None:
    """Heartbeats and syncs on the source would end for as long as the mirror lives; and it never raises."""
    producer = PlainProducer(Cluster("west", {}), client_id="test", topic="heartbeats")
    producer.send(b"k", b"1")
    clients[0].code = KafkaError._FATAL
    producer.send(b"k", b"2")
    producer.send(b"k", b"3")
    assert [client.taken for client in clients] == [[b"1"], [b"3"]]

    clients[1].code = KafkaError._FATAL
    producer.send(b"k", b"4")
    assert len(clients) == 2


def test_a_denied_topic_is_named_with_the_command(clients: list[Client]) -> None:
    """Heartbeats, syncs and reports: user, operation and topic, and the line that grants it."""
    cluster = Cluster("west", {"bootstrap.servers": "w:9092"})
    producer = PlainProducer(cluster, client_id="test", topic="heartbeats")
    for code, right in (
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Write on topic heartbeats"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, "IdempotentWrite on cluster"),
    ):
        producer._on_delivery(None, None)
        clients[0].code = code
        with capture_logs() as logs:
            producer.send(b"k", b"1")
        (told,) = logs
        assert f"User:ANONYMOUS lacks {right} of cluster west (w:9092)" in told["reason"]
        assert f"--operation {right.split()[0]} --" in told["reason"]


def test_what_passes_needs_no_other_client(clients: list[Client]) -> None:
    """A record that is refused for itself is dropped, and the next one may be taken."""
    producer = PlainProducer(Cluster("west", {}), client_id="test", topic="heartbeats")
    clients[0].code = KafkaError.MSG_SIZE_TOO_LARGE
    producer.send(b"k", b"1")
    clients[0].code = None
    producer.send(b"k", b"2")

    assert [client.taken for client in clients] == [[b"2"]]
