"""What an admin client asks again."""

from __future__ import annotations

from concurrent.futures import Future
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eomirror.config import load_config
from eomirror.errors import MirrorError, QuotaError, TopicGoneError, UnreachableError
from eomirror.kafka import admin_client
from eomirror.kafka.admin import _NEW_SECONDS, ClusterAdmin
from eomirror.kafka.cluster_metadata import CreateTopic
from support.fakes.clocks import PlayedClock
from support.fakes.kafka_answers import described

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
        """The same, topic by topic."""
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


class Quota(Controller):
    """
    Takes topics, also when they exceed a quota, and tells for how long it throttles then.

    Args:
        rate: Partitions per second; eleven seconds of it may be spent at once.
    """

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate, self.clock = rate, PlayedClock()
        self.left, self.asked_at = 11 * rate, 0.0
        self.sent: list[int] = []
        self.made: Any = None

    def create_topics(self, topics: list[Any], **_: Any) -> dict[str, Any]:
        """Take them all."""
        now = self.clock.monotonic()
        self.left = min(11 * self.rate, self.left + (now - self.asked_at) * self.rate)
        self.asked_at = now
        self.sent.append(sum(one.num_partitions for one in topics))
        self.left -= self.sent[-1]
        if self.left < 0:
            self.made._retrying._on_throttle(SimpleNamespace(throttle_time=-self.left / self.rate))
        return super().create_topics(topics)


def under(client: Quota, monkeypatch: pytest.MonkeyPatch) -> ClusterAdmin:
    """An admin client whose clock is the quota's; its connection is never replaced, only asked to be."""
    monkeypatch.setattr(admin_client, "_throttling", set())
    made = ClusterAdmin(load_config(CONFIG).clusters["east"], client_id="test", clock=client.clock)
    made.close()
    made._retrying._client = client
    client.made = made
    renewed: list[str] = []
    monkeypatch.setattr(made._retrying, "renew", renewed.append)
    client.renewed = renewed  # type: ignore[attr-defined]
    return made


def admin(client: Broken | OldEpochs | Controller | Waits) -> ClusterAdmin:
    made = ClusterAdmin(load_config(CONFIG).clusters["east"], client_id="test", clock=PlayedClock())
    made.close()
    made._retrying._client = client
    return made


class Behind(Controller):
    """Its brokers replay the log of the controller late: so many answers do not know the topic."""

    def __init__(self, *, describes: int = 0, configs: int = 0) -> None:
        super().__init__()
        self.describes, self.configs = describes, configs

    def describe_topics(self, *_: Any, **__: Any) -> dict[str, Any]:
        self.describes -= 1
        known = SimpleNamespace(name="t", topic_id="id", partitions=[])
        return {"t": self._answer(known, known=self.describes < 0)}

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Any]:
        self.configs -= 1
        return {one: self._answer({}, known=self.configs < 0) for one in resources}

    def delete_topics(self, *_: Any, **__: Any) -> dict[str, Any]:
        return {"t": self._answer(None, known=True)}

    @staticmethod
    def _answer(value: Any, *, known: bool) -> Future[Any]:
        answer: Future[Any] = Future()
        if known:
            answer.set_result(value)
        else:
            answer.set_exception(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)))
        return answer


def test_a_broker_that_does_not_know_a_new_topic_yet_is_asked_again() -> None:
    """A link that begins must not end because one of several brokers is late."""
    client = Behind(describes=5)
    made = admin(client)
    made.create_topics([CreateTopic("t", 1, 1, {})])
    assert made.describe_topics(["t"])["t"] is not None

    client.describes = client.configs = 5
    assert made.topic_configs(["t"]) == {"t": {}}


def test_settings_are_asked_for_again_while_another_broker_knows_the_topic() -> None:
    """The topic is not ours, and was listed."""
    client = Behind(configs=5)
    assert admin(client).topic_configs(["t"]) == {"t": {}}

    with pytest.raises(TopicGoneError):
        admin(Behind(describes=100, configs=100)).topic_configs(["t"])


def test_a_topic_that_was_deleted_is_not_waited_for() -> None:
    """Nor is one whose brokers have had enough time."""
    client = Behind(describes=100)
    made = admin(client)
    made.create_topics([CreateTopic("t", 1, 1, {})])
    made.delete_topics(["t"])
    assert made.describe_topics(["t"])["t"] is None
    assert client.describes == 99

    made.create_topics([CreateTopic("t", 1, 1, {})])
    client.describes = 10_000
    assert made.describe_topics(["t"])["t"] is None
    assert made._clock.monotonic() < 2 * _NEW_SECONDS


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
    refused._retrying._on_error(KafkaError(KafkaError._AUTHENTICATION))
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


class Waits:
    """A client that waits for a broker which is gone, for as long as each request may take."""

    def __init__(self, clock: PlayedClock) -> None:
        self.clock = clock
        self.patience: list[float] = []

    def _in_vain(self, names: list[Any], seconds: float) -> dict[Any, Any]:
        self.patience.append(seconds)
        self.clock.sleep(seconds)
        found: dict[Any, Any] = {name: Future() for name in names}
        for future in found.values():
            future.set_exception(KafkaException(KafkaError(KafkaError._TIMED_OUT)))
        return found

    def describe_topics(self, names: Any, request_timeout: float) -> Any:
        """Wait for the controller."""
        return self._in_vain(names.topic_names, request_timeout)

    def list_offsets(self, wanted: dict[Any, Any], *, request_timeout: float, **_: Any) -> Any:
        """Wait for a leader."""
        return self._in_vain(list(wanted), request_timeout)

    def poll(self, seconds: float) -> int:
        """Nothing happens."""
        return int(seconds) * 0


def behind(waiting: Waits, monkeypatch: pytest.MonkeyPatch) -> ClusterAdmin:
    """An admin whose next clients know who is there."""
    found = admin(waiting)
    found._clock = found._retrying._clock = waiting.clock
    monkeypatch.setattr(found._retrying, "_new_client", lambda: OldEpochs(0))
    return found


def test_a_description_does_not_wait_for_a_controller_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Librdkafka would wait for it for all of the 30 s; a client that is made anew finds another broker."""
    waiting = Waits(PlayedClock())
    found = behind(waiting, monkeypatch).describe_topics(["t"])
    assert found["t"] is not None
    assert waiting.clock.now < 5


def test_offsets_do_not_wait_for_a_leader_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader has moved; the client that knew the old one is replaced, and what was known is looked up again."""
    waiting = Waits(PlayedClock())
    found = behind(waiting, monkeypatch).offsets([("t", 0)], at="latest", read_committed=True)
    assert found == {("t", 0): 7}
    assert waiting.clock.now < 5


def test_a_description_that_was_begun_does_not_wait_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the topics of a transaction, which is asked for beside its acknowledgements (rule 5)."""
    waiting = Waits(PlayedClock())
    asked = behind(waiting, monkeypatch)
    found, refused = asked.begin_describe(["t"]).visible(10)
    assert found["t"] is not None
    assert not refused


def test_a_cluster_that_is_slow_gets_longer_each_time() -> None:
    """Requests that are given up do not keep it from answering; all of it takes as long as it took before."""
    waiting = Waits(PlayedClock())
    slow = admin(waiting)
    slow._retrying._clock = waiting.clock
    slow._retrying._new_client = lambda: waiting  # type: ignore[method-assign]
    with pytest.raises(UnreachableError, match="describe topic t on cluster east"):
        slow.describe_topics(["t"])
    assert waiting.patience[0] < 3
    assert all(after >= 1.5 * before for before, after in pairwise(waiting.patience[:-1]))
    assert 29 < waiting.clock.now < 31
    # of very many topics the first answer may take long
    waiting.patience.clear()
    with pytest.raises(UnreachableError):
        slow.describe_topics([f"t{number}" for number in range(10_000)])
    assert waiting.patience[0] > 20


def test_a_change_is_asked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been carried out although no broker answered."""
    waiting = Waits(PlayedClock())
    asked = behind(waiting, monkeypatch)
    monkeypatch.setattr(
        waiting,
        "create_topics",
        lambda topics, **given: waiting._in_vain(topics, given["request_timeout"]),
        raising=False,
    )
    with pytest.raises(UnreachableError):
        asked.create_topics([CreateTopic("t", 1, 1, {})])
    assert waiting.patience == [30.0]


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


def some(count: int) -> list[CreateTopic]:
    """Topics of three partitions."""
    return [CreateTopic(f"t{number}", 3, 1, {}) for number in range(count)]


def test_a_quota_on_topic_changes_is_waited_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first request meets it; then a few topics at a time, on connections that the broker has not muted."""
    client = Quota(2.0)
    asked = under(client, monkeypatch)
    asked.create_topics(some(10))
    assert client.sent == [30]
    assert client.renewed == ["a quota throttles its connection"]  # type: ignore[attr-defined]

    asked.create_topics([CreateTopic(f"u{number}", 3, 1, {}) for number in range(30)])

    assert sum(client.sent[1:]) == 90
    assert max(client.sent[1:]) <= 20
    assert client.clock.monotonic() == pytest.approx((30 + 90 - client.sent[-1] - 22) / 2, abs=1)
    assert client.left < 0


def test_a_caller_that_can_do_something_else_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each topic that waits has its error, which tells for how long; nothing is sent before."""
    client = Quota(2.0)
    asked = under(client, monkeypatch)
    asked.create_topics(some(10))
    refused: list[MirrorError] = []
    asked.create_topics([CreateTopic("u", 3, 1, {}), CreateTopic("v", 3, 1, {})], refused=refused)
    assert client.sent == [30]
    assert [(type(error), error.topic) for error in refused] == [(QuotaError, "u"), (QuotaError, "v")]
    assert "quota on topic changes of cluster east" in refused[0].message
    assert isinstance(refused[0], QuotaError)
    assert refused[0].seconds == pytest.approx(4.0)
    with pytest.raises(QuotaError):
        asked.create_partitions("t1", 5)

    client.clock.sleep(4.0)
    refused.clear()
    asked.create_topics([CreateTopic("u", 3, 1, {})], refused=refused)
    assert (client.sent, refused) == ([30, 3], [])


def test_a_validation_spends_little_of_a_quota_and_delays_no_creation(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It ends with the first answer that is throttled; without a quota all topics are checked, in few requests."""
    client = Quota(2.0)
    asked = under(client, monkeypatch)
    asked.create_topics(some(300), validate_only=True)
    assert client.sent == [18, 39]
    asked.create_topics(some(1), refused=[])
    assert client.sent == [18, 39, 3]

    free = Quota(1e9)
    under(free, monkeypatch).create_topics(some(1_000), validate_only=True)
    assert sum(free.sent) == 3_000
    assert len(free.sent) < 12
