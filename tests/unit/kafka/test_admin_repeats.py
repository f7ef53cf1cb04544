"""What an admin client asks again."""

from __future__ import annotations

from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from clocks import PlayedClock
from eomirror.config import load_config
from eomirror.errors import UnreachableError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.sync.diff import CreateTopic
from kafka_answers import described

CONFIG = {
    "clusters": {"east": {"bootstrap.servers": "127.0.0.1:1"}, "west": {"bootstrap.servers": "127.0.0.1:2"}},
    "links": [{"source": "east", "target": "west", "topics": ["t"]}],
}


class Broken:
    """A client whose connection breaks so many times."""

    def __init__(self, code: int, times: int) -> None:
        self.left = times
        self.code = code

    def list_topics(self, timeout: float) -> Any:
        """Fail, or answer."""
        assert timeout > 0
        self.left -= 1
        if self.left >= 0:
            raise KafkaException(KafkaError(self.code))
        return SimpleNamespace(topics={"t": None})

    def describe_topics(self, *_: Any, **__: Any) -> dict[str, Any]:
        """Likewise, topic by topic."""
        self.left -= 1
        answer: Future[Any] = Future()
        if self.left >= 0:
            answer.set_exception(KafkaException(KafkaError(self.code)))
        else:
            answer.set_result(SimpleNamespace(name="t", topic_id="id", partitions=[]))
        return dict.fromkeys(["t"], answer)

    def poll(self, seconds: float) -> int:
        """Nothing happens."""
        return int(seconds) * 0


class Controller:
    """Takes topics, and remembers what each request would make of its log."""

    def __init__(self) -> None:
        self.requests: list[tuple[int, int]] = []

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Any]:
        """Take them all."""
        self.requests.append((len(topics), sum(1 + one.num_partitions + len(one.config) for one in topics)))
        found: dict[str, Any] = {one.topic: Future() for one in topics}
        for future in found.values():
            future.set_result(None)
        return found

    def poll(self, seconds: float) -> int:
        """Nothing happens."""
        return int(seconds) * 0


def admin(client: Broken | OldEpochs | Controller) -> ClusterAdmin:
    made = ClusterAdmin(load_config(CONFIG).clusters["east"], client_id="test", clock=PlayedClock())
    made.close()
    made._asking.client = client
    return made


@pytest.mark.parametrize("code", [KafkaError._TRANSPORT, KafkaError._DESTROY_BROKER])
def test_a_request_whose_connection_broke_is_asked_again(code: int) -> None:
    """A cluster with connections that die young is no unreachable cluster (F13)."""
    client = Broken(code, times=3)
    assert admin(client).topic_names() == ["t"]


def test_topics_are_described_again_when_the_connection_broke() -> None:
    """A link that takes over ended the whole run with the first description that was cut off (F13)."""
    found = admin(Broken(KafkaError._TRANSPORT, times=3)).describe_topics(["t"])
    assert found["t"] is not None
    assert found["t"].topic_id == "id"

    with pytest.raises(UnreachableError, match="describe topic t on cluster east"):
        admin(Broken(KafkaError._TRANSPORT, times=10_000)).describe_topics(["t"])


def test_it_is_not_asked_for_ever() -> None:
    """Where every connection breaks, the operation ends with its time, and by its name."""
    with pytest.raises(UnreachableError, match="list topics on cluster east"):
        admin(Broken(KafkaError._TRANSPORT, times=10_000)).topic_names()


def test_a_refused_login_is_not_asked_again() -> None:
    """Brokers that refuse a login break the connection; the reason came before, and the user waits for it."""
    client = Broken(KafkaError._TRANSPORT, times=3)
    refused = admin(client)
    refused._asking._on_error(KafkaError(KafkaError._AUTHENTICATION))
    with pytest.raises(Exception, match=r"redentials|uthentication"):
        refused.topic_names()
    assert client.left == 2


class OldEpochs:
    """A client that asks with the epoch of a leader that it remembers, until it is made to look."""

    def __init__(self, code: int) -> None:
        self.code = code
        self.looked: list[str] = []

    def list_offsets(self, wanted: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Any]:
        """Partition 1 has another leader than is remembered."""
        found = {}
        for where in wanted:
            found[where] = Future[Any]()
            if where.partition == 1 and self.looked.count(where.topic) < 2:
                found[where].set_exception(KafkaException(KafkaError(self.code)))
            else:
                found[where].set_result(SimpleNamespace(offset=7))
        return found

    def describe_topics(self, names: Any, request_timeout: float) -> Any:
        """Look."""
        assert request_timeout > 0
        self.looked += names.topic_names
        return described({name: {0: 1, 1: 1} for name in names.topic_names})

    def poll(self, seconds: float) -> int:
        """Nothing happens."""
        return int(seconds) * 0


@pytest.mark.parametrize("code", [KafkaError.FENCED_LEADER_EPOCH, KafkaError.NOT_LEADER_FOR_PARTITION])
def test_leaders_that_are_remembered_wrong_are_looked_up_before_they_are_asked_again(code: int) -> None:
    """A broker that stood still comes back with another epoch (F11); librdkafka would not notice for minutes."""
    client = OldEpochs(code)
    partitions = [("t", 0), ("t", 1), ("u", 0)]
    found = admin(client).offsets(partitions, at="latest", read_committed=False)
    assert found == dict.fromkeys(partitions, 7)
    assert client.looked == ["t", "u", "t"]


def test_very_many_topics_are_created_in_several_requests() -> None:
    """A KRaft controller refuses a request that makes more than 10,000 records; one topic is never divided."""
    client = Controller()
    settings = {f"setting.{number}": "1" for number in range(10)}
    small = [CreateTopic(f"t{number}", 3, 1, settings) for number in range(1_000)]
    admin(client).create_topics([*small, CreateTopic("large", 9_000, 1, settings)])
    assert sum(topics for topics, _ in client.requests) == 1_001
    assert [topics for topics, records in client.requests if records > 5_000] == [1]
    assert len(client.requests) < 5
    admin(client).create_topics([], validate_only=True)
    assert len(client.requests) < 5
