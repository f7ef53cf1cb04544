"""ClusterAdmin against real brokers."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import Cluster, Secret
from eomirror.errors import AuthorizationError, ClusterError, TopicError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.cluster_metadata import CreateTopic
from support.traffic.records import delete_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.integration


@pytest.fixture
def admin(east: Any) -> Iterator[ClusterAdmin]:
    """An adapter on the source cluster."""
    made = ClusterAdmin(Cluster("east", east.client_properties), client_id="test")
    yield made
    made.close()


def create(admin: ClusterAdmin, name: str, partitions: int = 1, **configs: str) -> None:
    admin.create_topics([CreateTopic(name, partitions, 1, {"retention.ms": "-1", **configs})])
    wait_for(lambda: admin.describe_topics([name])[name])


def test_a_cluster_tells_its_id(admin: ClusterAdmin, east: Any) -> None:
    """The id is what two configurations of one cluster have in common."""
    facts = admin.describe_cluster()

    assert facts.cluster_id == east.cluster_id
    assert facts.brokers == 1


def test_topics_are_described_in_one_request(admin: ClusterAdmin, topic_name: str) -> None:
    """A missing topic is an answer, not an error; an existing one has its id."""
    create(admin, topic_name, 3)

    found = admin.describe_topics([topic_name, f"{topic_name}-missing"])

    assert found[f"{topic_name}-missing"] is None
    facts = found[topic_name]
    assert facts is not None
    assert (facts.name, facts.partitions, facts.replication_factor, facts.leaderless) == (
        topic_name,
        3,
        1,
        frozenset(),
    )
    assert len(facts.topic_id) == 22
    assert topic_name in admin.topic_names()
    assert "WRITE" in admin.topic_rights([topic_name, f"{topic_name}-missing"])[topic_name]
    assert admin.begin_describe([topic_name]).visible(5)[0][topic_name] == facts
    assert admin.describe_topics([]) == {}


def test_a_recreated_topic_has_another_id(admin: ClusterAdmin, east: Any, topic_name: str) -> None:
    """Rule 5 rests on this."""
    create(admin, topic_name)
    before = admin.describe_topics([topic_name])[topic_name]
    delete_topic(east.client_properties, topic_name)
    create(admin, topic_name)
    after = admin.describe_topics([topic_name])[topic_name]

    assert before is not None
    assert after is not None
    assert before.topic_id != after.topic_id


def test_settings_know_where_they_come_from(admin: ClusterAdmin, topic_name: str) -> None:
    """A topic's own setting is told from its broker's and from Kafka's."""
    create(admin, topic_name, **{"retention.ms": "123456"})
    found = admin.topic_configs([topic_name])[topic_name]

    assert (found["retention.ms"].value, found["retention.ms"].source) == ("123456", "topic")
    assert not found["retention.ms"].is_default
    assert found["cleanup.policy"].is_default
    with pytest.raises(TopicError) as raised:
        admin.topic_configs([f"{topic_name}-missing"])
    assert raised.value.topic == f"{topic_name}-missing"


def test_changes_are_idempotent(admin: ClusterAdmin, topic_name: str) -> None:
    """Creating, growing and setting twice is the same as once; a mirror that died in between starts again."""
    for _ in range(2):
        create(admin, topic_name, 2)
        admin.create_partitions(topic_name, 4)
        admin.alter_configs(topic_name, {"retention.ms": "77777", "cleanup.policy": "compact"})

    # the controller has grown and set it; a broker shows that a moment later
    wait_for(lambda: admin.describe_topics([topic_name])[topic_name].partitions == 4)
    wait_for(lambda: admin.topic_configs([topic_name])[topic_name]["retention.ms"].value == "77777")
    assert admin.topic_configs([topic_name])[topic_name]["cleanup.policy"].value == "compact"


def test_validation_creates_nothing(admin: ClusterAdmin, topic_name: str) -> None:
    """The broker checks all that it would check, and forgets it."""
    admin.create_topics([CreateTopic(topic_name, 1, 1, {})], validate_only=True)

    assert admin.describe_topics([topic_name])[topic_name] is None
    with pytest.raises(ClusterError, match="replication"):
        admin.create_topics([CreateTopic(topic_name, 1, 3, {})], validate_only=True)
    with pytest.raises(ClusterError, match=r"nonsense\.setting"):
        admin.create_topics([CreateTopic(topic_name, 1, 1, {"nonsense.setting": "1"})], validate_only=True)


def test_the_last_stable_offset_is_not_the_high_watermark(
    admin: ClusterAdmin, east: Any, topic_name: str
) -> None:
    """While a transaction is open, read_committed ends before it."""
    from confluent_kafka import Producer

    create(admin, topic_name, 1)
    produce(
        east.client_properties,
        topic_name,
        1,
        some_records(1, 10),
        transactional_id=topic_name,
        abort_every=99,
    )
    where = [(topic_name, 0)]
    # a commit answers before its marker is written
    wait_for(lambda: admin.offsets(where, at="latest", read_committed=True)[topic_name, 0] == 11)
    producer = Producer({**east.client_properties, "transactional.id": f"{topic_name}-open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"open", partition=0)
    producer.flush(30)

    high = admin.offsets(where, at="latest", read_committed=False)[topic_name, 0]
    stable = admin.offsets(where, at="latest", read_committed=True)[topic_name, 0]
    assert admin.answered_offsets(where, at="latest", seconds=10) == ({(topic_name, 0): high}, set())
    assert admin.answered_offsets(where, at="earliest", seconds=10) == ({(topic_name, 0): 0}, set())
    producer.abort_transaction(30)

    assert high == stable + 1
    assert admin.offsets(where, at="earliest", read_committed=True) == {(topic_name, 0): 0}
    assert admin.offsets(where, at=1_600_000_000_003, read_committed=True) == {(topic_name, 0): 3}
    assert admin.offsets([], at="latest", read_committed=True) == {}


def test_answered_offsets_of_what_does_not_exist_are_told_apart(admin: ClusterAdmin, topic_name: str) -> None:
    """One partition without an answer hides no other, and a source that is away is no error."""
    create(admin, topic_name, 2)
    gone = (f"{topic_name}-missing", 0)
    wait_for(
        lambda: (
            len(admin.answered_offsets([(topic_name, 0), (topic_name, 1)], at="latest", seconds=10)[0]) == 2
        )
    )

    found = admin.answered_offsets(
        [(topic_name, 0), (topic_name, 1), (topic_name, 2), gone], at="latest", seconds=10
    )

    assert found == ({(topic_name, 0): 0, (topic_name, 1): 0}, {(topic_name, 2), gone})
    away = ClusterAdmin(Cluster("east", {"bootstrap.servers": "127.0.0.1:1"}), client_id="test")
    assert away.answered_offsets([(topic_name, 0)], at="latest", seconds=1) == ({}, set())
    away.close()


def test_offsets_of_a_missing_topic_name_it(admin: ClusterAdmin, topic_name: str) -> None:
    """The caller can go on with the others."""
    with pytest.raises(TopicError) as raised:
        admin.offsets([(topic_name, 0)], at="latest", read_committed=True)
    assert raised.value.topic == topic_name


def test_librdkafka_writes_nothing_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    """Its lines go to the log at debug; an error carries what a person needs."""
    admin = ClusterAdmin(Cluster("gone", {"bootstrap.servers": "127.0.0.1:1"}), client_id="test")
    with pytest.raises(ClusterError):
        admin.describe_cluster()
    admin.close()

    assert "Connect to" not in capfd.readouterr().err


def test_properties_that_librdkafka_refuses_are_named_without_secrets() -> None:
    """A wrong property is an error of the configuration's kind, and shows no password."""
    properties = {
        "bootstrap.servers": "x:1",
        "security.protocol": Secret("hunter2"),
        "sasl.password": Secret("pw"),
    }
    with pytest.raises(ClusterError) as raised:
        ClusterAdmin(Cluster("east", properties), client_id="test")
    assert "hunter2" not in str(raised.value)
    assert "clusters.east" in raised.value.fix


def test_a_plain_listener_refuses_a_login(east: Any) -> None:
    """SASL against a plaintext listener says which setting is wrong, within seconds."""
    properties = {
        **east.client_properties,
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "me",
        "sasl.password": Secret("hunter2"),
    }
    admin = ClusterAdmin(Cluster("east", properties), client_id="test")
    with pytest.raises(ClusterError) as raised:
        admin.describe_cluster()
    assert not isinstance(raised.value, AuthorizationError)
    assert "security.protocol" in raised.value.fix
    assert "hunter2" not in str(raised.value)


def test_threads_may_ask_one_client_for_offsets_of_topics_that_are_new_to_it(
    west: Any, topic_name: str
) -> None:
    """
    Librdkafka ended the process within seconds of it, when it had to look for leaders (`eomirror.kafka.list_offsets`).

    In a process of its own, for that reason.
    """
    program = Path(__file__).with_name("threads_program.py")
    ended = subprocess.run(
        [sys.executable, str(program), json.dumps(dict(west.client_properties)), topic_name],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr[-2000:]
