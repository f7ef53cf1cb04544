"""What the test suites of MirrorMaker 2, Redpanda and Strimzi check, as far as no other test of ours does."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from eomirror.errors import AuthorizationError, UsageError
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.records.mm2 import decode_heartbeat
from eomirror.types import SourcePartition
from support.links.mirrors import CommandMirror
from support.links.plane import plane_under_test
from support.traffic.raw_commit import commit_raw
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from support.links.link import TestLink

pytestmark = [pytest.mark.link(lanes=1), pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def north() -> Iterator[LocalCluster]:
    """A third cluster."""
    with LocalCluster.start(ClusterSpec("north", heap="320m")) as cluster:
        yield cluster


def partitions_of(properties: Mapping[str, Any], topic: str) -> int:
    """Partitions of a topic."""
    return len(AdminClient(dict(properties)).list_topics(topic, timeout=15).topics[topic].partitions)


def topics_of(properties: Mapping[str, Any]) -> set[str]:
    """Every topic of a cluster."""
    return set(AdminClient(dict(properties)).list_topics(timeout=15).topics)


def stand(properties: Mapping[str, Any], group: str, *places: TopicPartition) -> None:
    """Commits offsets for a group without members."""
    consumer = Consumer({**properties, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.commit(offsets=list(places), asynchronous=False)
    finally:
        consumer.close()


def standing(properties: Mapping[str, Any], group: str) -> dict[tuple[str, int], int]:
    """Where a group stands; places without an offset are left out."""
    admin = AdminClient(dict(properties))
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    return {
        (each.topic, each.partition): each.offset
        for each in future.result(30).topic_partitions
        if each.offset >= 0
    }


def offset_of(properties: Mapping[str, Any], topic: str, partition: int, place: int) -> int:
    """The offset of the record at this place of a partition, committed records counted from 0."""
    consumer = Consumer({**properties, "group.id": "place", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[int] = []
    try:
        while len(found) <= place:
            found += [each.offset() for each in consumer.consume(500, 1.0) if each.error() is None]
    finally:
        consumer.close()
    return found[place]


def test_a_first_run_as_users_have_it(make_link: Callable[..., TestLink], east: Any) -> None:
    """
    Dead and unresolvable bootstrap entries, `security.protocol` in mixed case, an empty copy that is too small.

    The copy grows; no topic of MirrorMaker 2's appears on the source.  A group stands in a partition without records,
    and has an offset of -1: neither is carried over, the rest of the group is; it follows with the first record.
    """
    before = topics_of(east.client_properties)
    servers = f"no.such.host.invalid:9092,127.0.0.1:1,{east.bootstrap_servers}"
    one = make_link(sync_group_offsets=True)
    one.clusters["east"] |= {"bootstrap.servers": servers, "security.protocol": "Plaintext"}
    one.create("wide", partitions=3)
    one.create("hollow", partitions=2)
    create_topic(one.west, one.copy("wide"), 1)
    one.write("wide")
    hollow = some_records(77, 40)
    producer = Producer(one.east)
    for key, value, stamp, headers in hollow:
        producer.produce(one.topic("hollow"), value, key, 0, timestamp=stamp, headers=list(headers))
    producer.flush(30)
    one.written["hollow"][0] += hollow
    group, topic = f"{one.name}-group", one.topic("wide")
    stand(
        one.east, group,
        TopicPartition(topic, 0, offset_of(one.east, topic, 0, 20)),
        TopicPartition(one.topic("hollow"), 0, 10), TopicPartition(one.topic("hollow"), 1, 0),
    )  # fmt: skip
    commit_raw(east.bootstrap_servers, group, topic, 1, -1)

    with one.running() as run:
        run.wait(lambda: one.copy("hollow") in topics_of(one.west) and one.whole("wide", "hollow"), 120)
        expected = {
            (one.copy("wide"), 0): offset_of(one.west, one.copy("wide"), 0, 20),
            (one.copy("hollow"), 0): offset_of(one.west, one.copy("hollow"), 0, 10),
        }
        run.wait(lambda: standing(one.west, group) == expected, 30)
        # the first records of the empty partition, and the group among them
        for number in range(5):
            producer.produce(one.topic("hollow"), b"%d" % number, partition=1)
        producer.flush(30)
        stand(one.east, group, TopicPartition(one.topic("hollow"), 1, 3))
        run.wait(lambda: len(one.found("hollow")[1]) == 5, 60)
        expected[one.copy("hollow"), 1] = offset_of(one.west, one.copy("hollow"), 1, 3)
        run.wait(lambda: standing(one.west, group) == expected, 30)

    assert partitions_of(one.west, one.copy("wide")) == 3
    one.check("wide")
    created = topics_of(east.client_properties) - before
    assert {name for name in created if name.startswith(("mm2", "eomirror"))} == set()


@pytest.mark.slow
def test_what_appears_later_begins_at_its_beginning_though_the_link_starts_at_the_end(
    make_link: Callable[..., TestLink],
) -> None:
    """`start: latest` counts for what is there at the first run: a later topic or partition is mirrored whole."""
    one = make_link(start="latest")
    one.create("old")
    one.write("old")
    earlier = {number: list(records) for number, records in one.written["old"].items()}
    with one.running() as run:
        run.wait(lambda: one.copy("old") in topics_of(one.west), 60)
        one.create("young", partitions=2)
        one.write("young")
        run.wait(lambda: one.copy("young") in topics_of(one.west) and one.whole("young"), 60)
        admin = AdminClient(one.east)
        for future in admin.create_partitions([NewPartitions(one.topic("old"), 2)]).values():
            future.result(30)
        later = some_records(5, 60)
        producer = Producer(one.east)
        for key, value, stamp, headers in later:
            producer.produce(one.topic("old"), value, key, 1, timestamp=stamp, headers=list(headers))
        producer.flush(30)
        run.wait(lambda: one.found("old").get(1) == later, 60)
        one.write("old")

        def all_later() -> bool:
            return len(one.found("old")[0]) >= len(one.written["old"][0]) - len(earlier[0])

        run.wait(all_later, 60)

    one.check("young")
    assert one.found("old")[0] == one.written["old"][0][len(earlier[0]) :]


def settings_of(properties: Mapping[str, Any], topic: str) -> dict[str, str]:
    """Settings of a topic, defaults included."""
    # an admin client that nothing holds ends with its requests
    admin = AdminClient(dict(properties))
    (future,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    return {name: entry.value for name, entry in future.result(30).items()}


@pytest.mark.slow
def test_a_setting_that_is_removed_on_the_source_becomes_the_default_on_the_copy(
    make_link: Callable[..., TestLink],
) -> None:
    """A retention of the topic's own is followed, and so is its removal; what stays on the source stays on the copy."""
    one = make_link()
    one.create("orders", retention_bytes="123456", max_message_bytes="2000000")
    one.write("orders")
    with one.running() as run:
        run.wait(lambda: one.copy("orders") in topics_of(one.west) and one.whole("orders"), 120)
        assert settings_of(one.west, one.copy("orders"))["retention.bytes"] == "123456"
        removed = ConfigResource(
            ResourceType.TOPIC, one.topic("orders"),
            incremental_configs=[
                ConfigEntry("retention.bytes", "", incremental_operation=AlterConfigOpType.DELETE)
            ],
        )  # fmt: skip
        admin = AdminClient(one.east)
        for future in admin.incremental_alter_configs([removed]).values():
            future.result(30)
        # all settings are compared once a minute
        run.wait(lambda: settings_of(one.west, one.copy("orders"))["retention.bytes"] == "-1", 150)
    assert settings_of(one.west, one.copy("orders"))["max.message.bytes"] == "2000000"
    one.check("orders")


@pytest.mark.slow
def test_a_missing_right_to_read_settings_of_the_source_is_named_with_what_grants_it(
    make_link: Callable[..., TestLink], start_cluster: Callable[[ClusterSpec], LocalCluster]
) -> None:
    """MirrorMaker 2's test of DescribeConfigs: nothing is created before, and the fix is enough."""
    source = start_cluster(
        ClusterSpec(
            "guarded", security="sasl_plaintext", authorizer=True, users={"mirror": "look-Zq9"}, heap="320m"
        )
    )
    one = make_link(reads=source.client_properties, heartbeats="off", offset_syncs="off", groups=[])
    one.create("orders")
    one.write("orders")
    one.clusters["east"] = dict(source.client_properties_of("mirror"))

    admin = AdminClient(source.client_properties)

    def grant(*operations: AclOperation) -> None:
        bindings = [
            AclBinding(
                ResourceType.TOPIC, one.topic("orders"), ResourcePatternType.LITERAL, "User:mirror", "*",
                operation, AclPermissionType.ALLOW,
            )
            for operation in operations
        ]  # fmt: skip
        for future in admin.create_acls(bindings).values():
            future.result(30)

    grant(AclOperation.READ)
    with pytest.raises(AuthorizationError) as refused:
        one.catch_up()

    assert f"User:mirror lacks DescribeConfigs on topic {one.topic('orders')}" in refused.value.message
    for word in ("kafka-acls.sh", "--allow-principal 'User:mirror'", "--operation DescribeConfigs"):
        assert word in refused.value.fix
    assert one.topic("orders") in refused.value.fix
    assert one.copy("orders") not in topics_of(one.west)
    grant(AclOperation.DESCRIBE_CONFIGS)
    assert one.catch_up().exit_code == 0
    one.check("orders")


@pytest.mark.slow
def test_without_syncs_checkpoints_and_heartbeats_there_are_no_topics_for_them(
    make_link: Callable[..., TestLink], topic_name: str
) -> None:
    """Data flows all the same; nothing is created for MirrorMaker 2's readers on either side."""
    # no prefix of the topic's name, which would then have passed this cluster
    alias = f"from-{topic_name}"
    one = make_link(offset_syncs="off", heartbeats="off", groups=[], source=alias)
    one.clusters[alias] = one.clusters.pop("east")
    one.create("orders")
    one.write("orders")

    assert one.catch_up().exit_code == 0

    assert read_committed(one.west, f"{alias}.{one.topic('orders')}") == one.written["orders"]
    for cluster in (one.east, one.west):
        assert {
            name for name in topics_of(cluster) if name.startswith((f"mm2-offset-syncs.{alias}", f"{alias}."))
        } <= {f"{alias}.{one.topic('orders')}"}


@pytest.mark.slow
def test_heartbeats_travel_over_two_hops_where_topics_match_them(
    make_link: Callable[..., TestLink], north: LocalCluster, topic_name: str
) -> None:
    r"""From a to b to c: with `.*\.heartbeats` in its topics the second link brings the first one's to c, as MM2."""
    # an alias of its own: the session's clusters have heartbeats of other tests
    alias = f"from-{topic_name[:40]}"
    first = make_link(source=alias)
    first.clusters = {alias: first.east, "west": first.west}
    copy = f"{alias}.{first.topic('orders')}"
    first.create("orders")
    first.write("orders")
    assert first.catch_up().exit_code == 0
    second = make_link(
        reads=first.west, writes=north.client_properties, called=f"{topic_name}-2", source="mid",
        topics=[copy, rf"{alias}\.heartbeats"],
    )  # fmt: skip
    second.clusters = {"mid": dict(first.west), "west": dict(north.client_properties)}

    assert second.catch_up().exit_code == 0

    beats = read_committed(north.client_properties, f"mid.{alias}.heartbeats")[0]
    found = {decode_heartbeat(key or b"", value or b"", where="beat").source for key, value, _, _ in beats}
    assert alias in found
    assert read_committed(north.client_properties, f"mid.{copy}") == first.written["orders"]


@pytest.mark.slow
def test_a_link_that_is_pointed_to_another_source_stops_its_topics(
    make_link: Callable[..., TestLink], north: LocalCluster
) -> None:
    """The same alias, the same topic name, another cluster: positions of the old one mean nothing there (EO-5)."""
    one = make_link()
    one.create("orders")
    one.write("orders")
    assert one.catch_up().exit_code == 0
    copied = one.found("orders")
    create_topic(north.client_properties, one.topic("orders"))
    produce(north.client_properties, one.topic("orders"), 1, some_records(9, 400), transactional_id=one.name)
    one.clusters["east"] = dict(north.client_properties)

    code, stopped = one.stopped()

    assert code == 4
    assert set(stopped) == {"orders"}
    assert one.found("orders") == copied


@pytest.mark.slow
def test_a_resume_offset_for_a_partition_that_does_not_exist_is_refused(
    make_link: Callable[..., TestLink],
) -> None:
    """MirrorMaker 2 has 24 tests for such requests; nothing is copied before the refusal."""
    one = make_link()
    one.create("orders")
    one.write("orders")

    with pytest.raises(UsageError, match=r"orders-9"):
        one.catch_up(adopt={SourcePartition(one.topic("orders"), 9): 0})

    assert one.found("orders") == {0: []}


@pytest.mark.slow
def test_transactions_of_hundred_thousands_of_records_some_aborted(
    make_link: Callable[..., TestLink],
) -> None:
    """Redpanda's test has 1,000,000 records and aborts 30 %: here three transactions of 300,000, the second aborted."""
    one = make_link()
    one.create("large", partitions=2)
    producer = Producer(
        {**one.east, "transactional.id": one.name, "linger.ms": 20, "transaction.timeout.ms": 240_000,
         "queue.buffering.max.messages": 1_000_000}
    )  # fmt: skip
    producer.init_transactions(30)
    expected: dict[int, list[bytes]] = {0: [], 1: []}
    for number in range(3):
        producer.begin_transaction()
        for place in range(300_000):
            value = b"%d-%d" % (number, place)
            producer.produce(one.topic("large"), value, partition=place % 2)
            if number != 1:
                expected[place % 2].append(value)
            if place % 10_000 == 0:
                producer.poll(0)
        producer.flush(120)
        producer.abort_transaction(60) if number == 1 else producer.commit_transaction(60)

    assert one.catch_up().exit_code == 0

    found = {number: [record[1] for record in records] for number, records in one.found("large").items()}
    assert found == expected


class Secured:
    """A cluster with TLS and SCRAM."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.properties = dict(cluster.client_properties)
        self.admin = AdminClient(self.properties)

    def new_user(self, name: str, password: str) -> dict[str, Any]:
        """Client properties of a user with this password, which is set on the brokers."""
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        change = UserScramCredentialUpsertion(name, info, password.encode())
        for future in self.admin.alter_user_scram_credentials([change]).values():
            future.result(30)
        return {**self.properties, "sasl.username": name, "sasl.password": password}


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    """The cluster."""
    with LocalCluster.start(ClusterSpec("secured", security="sasl_ssl", heap="320m")) as cluster:
        yield Secured(cluster)


@pytest.mark.slow
def test_certificates_stand_in_the_configuration_itself(
    make_link: Callable[..., TestLink], secured: Secured
) -> None:
    """`ssl.ca.pem` in place of a file, as Strimzi's TlsValues test has it."""
    one = make_link(reads=secured.properties)
    pem = _read(secured.properties["ssl.ca.location"])
    one.clusters["east"] = {
        **{key: value for key, value in secured.properties.items() if key != "ssl.ca.location"},
        "ssl.ca.pem": pem,
    }
    one.create("orders", partitions=2)
    one.write("orders")

    assert one.catch_up().exit_code == 0

    one.check("orders")


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:  # noqa: PTH123  a path from client properties
        return file.read()


@pytest.mark.slow
def test_a_mirror_is_killed_three_times_over_tls_and_its_password_changes_for_good(
    make_link: Callable[..., TestLink], secured: Secured, tmp_path: Path
) -> None:
    """Hard bounces under load over SASL_SSL; the next start has the new password, the old one is refused."""
    one = make_link(reads=secured.properties)
    one.create("orders", partitions=2)
    before = secured.new_user("mirror", "first-Zq9")
    settings = {
        "clusters": {"east": before, "west": one.west},
        "links": [
            {
                "name": one.name, "source": "east", "target": "west", "topics": [one.topic("orders")], "lanes": 1,
                "plane": plane_under_test(),
            }
        ],
    }  # fmt: skip
    mirror = CommandMirror(settings, tmp_path / "one")
    try:
        for _ in range(3):
            mirror.start()
            one.write("orders", 400)
            wait_for(lambda: one.copy("orders") in topics_of(one.west) and one.whole("orders"), 120)
            one.write("orders", 400)
            mirror.kill()
    finally:
        mirror.close()
    after = secured.new_user("mirror", "second-Zq9")
    renewed = CommandMirror({**settings, "clusters": {"east": after, "west": one.west}}, tmp_path / "two")
    try:
        renewed.start()
        wait_for(lambda: one.whole("orders"), 120)
        renewed.stop(aborted=True)
    finally:
        renewed.close()
    one.check("orders")
    assert "Zq9" not in mirror.log.read_text() + renewed.log.read_text()
    refused = CommandMirror(settings, tmp_path / "three")
    try:
        began = time.monotonic()
        refused.start()
        assert refused.await_exit(120) == 1
        assert time.monotonic() - began < 120
    finally:
        refused.close()
    assert "Zq9" not in refused.log.read_text()
