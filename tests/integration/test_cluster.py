"""The embedded clusters, on real brokers: the ground that every other integration test stands on."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from eomirror.errors import MirrorError, UsageError
from eomirror.localkafka import jars
from eomirror.localkafka.cluster import ClusterSpec, Listener, LocalCluster
from eomirror.localkafka.ports import live_brokers
from support.clusters.features import TRANSACTIONS, finalized_feature
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.integration


def create_topic(
    properties: dict[str, str],
    topic: str,
    *,
    partitions: int = 1,
    copies: int = 1,
    config: dict[str, str] | None = None,
) -> None:
    admin = AdminClient(properties)  # held by name: its futures fail when it is collected
    for future in admin.create_topics([NewTopic(topic, partitions, copies, config=config or {})]).values():
        future.result(30)


def write(properties: dict[str, str], topic: str, values: list[bytes]) -> None:
    failures: list[KafkaError] = []
    producer = Producer({**properties, "acks": "all"})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _message: error and failures.append(error))
    assert producer.flush(30) == 0
    assert not failures


def read(properties: dict[str, str], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**properties, "group.id": f"{topic}-reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def cannot_log_in(properties: dict[str, str]) -> bool:
    """Whether the client is told that it may not come in, rather than timing out."""
    told: list[KafkaError] = []
    client = AdminClient({**properties, "error_cb": told.append})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=5)
    client.poll(5)  # runs the callback
    return any(error.code() == KafkaError._AUTHENTICATION for error in told)


def test_records_that_are_written_can_be_read(east: LocalCluster, topic_name: str) -> None:
    """A started cluster takes records and gives them back in order."""
    values = [str(number).encode() for number in range(1000)]
    create_topic(east.client_properties, topic_name)
    write(east.client_properties, topic_name, values)
    assert read(east.client_properties, topic_name, len(values)) == values


def test_cluster_id_is_what_clients_see(east: LocalCluster, west: LocalCluster) -> None:
    """Two clusters have ids of their own, and tell them to clients."""
    admins = [AdminClient(cluster.client_properties) for cluster in (east, west)]
    seen = [admin.describe_cluster().result(30).cluster_id for admin in admins]
    assert seen == [east.cluster_id, west.cluster_id]
    assert seen[0] != seen[1]


def test_transaction_protocol_v2_is_on_by_default_and_can_be_lowered(
    east: LocalCluster, start_cluster: Callable[[ClusterSpec], LocalCluster]
) -> None:
    """4.x has transaction.version 2 (KIP-890) unless the specification asks for less."""
    old = start_cluster(ClusterSpec("v1", features={TRANSACTIONS: 1}))
    assert [finalized_feature(one, TRANSACTIONS) for one in (east, old)] == [2, 1]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression_codec_is_on_the_class_path(
    west: LocalCluster, topic_name: str, codec: str
) -> None:
    """The broker itself compresses with the codec that the topic asks for."""
    create_topic(west.client_properties, topic_name, config={"compression.type": codec})
    write(west.client_properties, topic_name, [b"x" * 1000] * 10)
    assert read(west.client_properties, topic_name, 10) == [b"x" * 1000] * 10


@pytest.mark.faults
def test_killed_broker_comes_back_with_its_data(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str
) -> None:
    """SIGKILL and a new start keep acknowledged records, the port and the cluster id."""
    cluster = start_cluster(ClusterSpec("phoenix"))
    broker, address = cluster.brokers[0], cluster.bootstrap_servers
    create_topic(cluster.client_properties, topic_name)
    write(cluster.client_properties, topic_name, [b"before"])
    first_pid = broker.pid
    broker.kill()
    assert not broker.running
    assert not psutil.pid_exists(first_pid)
    broker.start()
    assert broker.pid != first_pid
    assert cluster.bootstrap_servers == address
    write(cluster.client_properties, topic_name, [b"after"])
    assert read(cluster.client_properties, topic_name, 2) == [b"before", b"after"]
    broker.stop()
    assert not broker.running
    broker.start()
    assert live_brokers(broker.ports.bound["INTERNAL"]) == {1}


@pytest.mark.faults
def test_a_temporary_cluster_that_is_stopped_comes_back_with_its_data(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str
) -> None:
    cluster = start_cluster(ClusterSpec("away"))
    create_topic(cluster.client_properties, topic_name)
    write(cluster.client_properties, topic_name, [b"before"])
    cluster.stop()
    cluster.brokers[0].start()
    assert read(cluster.client_properties, topic_name, 1) == [b"before"]
    cluster.destroy()
    assert not cluster.folder.exists()


def test_paused_broker_answers_only_when_it_is_resumed(
    start_cluster: Callable[[ClusterSpec], LocalCluster],
) -> None:
    """SIGSTOP silences the broker without ending it; SIGCONT brings it back."""
    broker = start_cluster(ClusterSpec("nap")).brokers[0]
    port = broker.ports.bound["INTERNAL"]
    broker.pause()
    assert live_brokers(port, timeout=0.5) == frozenset()
    assert broker.running
    broker.resume()
    deadline = time.monotonic() + 20
    while live_brokers(port) != {1}:
        assert time.monotonic() < deadline, "the broker did not come back"
        time.sleep(0.1)


@pytest.mark.faults
def test_three_brokers_lose_one_and_go_on(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str
) -> None:
    """Replicated topics survive one of three brokers, and the lost one is let in again."""
    cluster = start_cluster(ClusterSpec("trio", brokers=3, heap="256m"))
    create_topic(cluster.client_properties, topic_name, copies=3)
    write(cluster.client_properties, topic_name, [b"three"])
    cluster.brokers[2].kill()
    write(cluster.client_properties, topic_name, [b"two"])
    cluster.brokers[2].start()
    assert read(cluster.client_properties, topic_name, 2) == [b"three", b"two"]


def test_sasl_ssl_lets_in_users_with_the_right_password_and_authority(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str
) -> None:
    """Over SASL_SSL records flow for who has the password and trusts the CA; no other client comes in."""
    cluster = start_cluster(ClusterSpec("vault", security="sasl_ssl", users={"ana": "s3cret, with=signs"}))
    assert cluster.client_properties["security.protocol"] == "sasl_ssl"
    create_topic(cluster.client_properties, topic_name)
    ana = cluster.client_properties_of("ana")
    write(ana, topic_name, [b"sealed"])
    assert read(ana, topic_name, 1) == [b"sealed"]
    assert cannot_log_in(ana | {"sasl.password": "wrong"})
    assert "s3cret" not in repr(cluster.spec) + repr(cluster)
    untrusting = {key: value for key, value in ana.items() if key != "ssl.ca.location"}
    with pytest.raises(KafkaException):
        AdminClient(untrusting | {"log_level": "0"}).list_topics(timeout=5)


def test_authorizer_denies_until_a_right_is_granted(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str
) -> None:
    """With rights checked, a second user writes only after the administrator has allowed it."""
    spec = ClusterSpec("guarded", security="sasl_plaintext", users={"bob": "pw"}, authorizer=True)
    cluster = start_cluster(spec)
    create_topic(cluster.client_properties, topic_name)
    bob = cluster.client_properties_of("bob")
    with pytest.raises(AssertionError):
        write(bob | {"message.timeout.ms": "5000"}, topic_name, [b"refused"])
    topic = (ResourceType.TOPIC, topic_name, ResourcePatternType.LITERAL)
    allowed = AclBinding(*topic, "User:bob", "*", AclOperation.ALL, AclPermissionType.ALLOW)
    admin = AdminClient(cluster.client_properties)
    admin.create_acls([allowed])[allowed].result(30)
    write(bob, topic_name, [b"granted"])


def test_listener_advertises_what_a_proxy_needs(
    start_cluster: Callable[[ClusterSpec], LocalCluster],
) -> None:
    """Clients of an extra listener are sent to its advertised port, not to the one it is bound to."""
    proxied = Listener("PROXIED", advertised_ports=(12345,))
    cluster = start_cluster(ClusterSpec("masked", extra_listeners=(proxied,)))
    bound = cluster.servers("PROXIED")
    assert bound != "127.0.0.1:12345"
    assert cluster.servers("PROXIED", advertised=True) == "127.0.0.1:12345"

    def ports() -> list[int]:
        # a client that has heard of the advertised port may ask there, where nothing listens: the next one asks first
        with contextlib.suppress(KafkaException):
            brokers = AdminClient({"bootstrap.servers": bound}).list_topics(timeout=5).brokers
            return [broker.port for broker in brokers.values()]
        return []

    wait_for(lambda: ports() == [12345], 60)


def test_kafka_39_takes_and_gives_records(kafka39: LocalCluster, topic_name: str) -> None:
    """The older line starts from its own pinned jars and serves the same client."""
    create_topic(kafka39.client_properties, topic_name)
    write(kafka39.client_properties, topic_name, [b"old"])
    assert read(kafka39.client_properties, topic_name, 1) == [b"old"]


def test_second_resolution_needs_no_network(monkeypatch: pytest.MonkeyPatch, east: LocalCluster) -> None:
    """Once the jars are in the cache, nothing is fetched and no Java is started for them."""
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://127.0.0.1:1/")
    monkeypatch.setattr(subprocess, "Popen", lambda *_a, **_k: pytest.fail("a process was started"))
    assert "kafka-clients-4.3" in jars.class_path("4.3")
    assert east.brokers[0].running


def test_failed_download_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without network and without a cache, the error names the jars and what to do; nothing half-done stays."""
    monkeypatch.setenv("EOMIRROR_CACHE", str(tmp_path))
    monkeypatch.setenv("DEFAULT_ARTIFACT_REPOSITORY", "http://127.0.0.1:1/")
    with pytest.raises(MirrorError, match="could not be fetched") as caught:
        jars.class_path("4.3")
    assert "DEFAULT_ARTIFACT_REPOSITORY" in caught.value.fix
    assert len(str(caught.value).splitlines()) < 40
    assert not list(tmp_path.rglob("*.jar"))


def test_taken_port_is_refused_before_anything_starts(east: LocalCluster) -> None:
    """A port that another process listens on is named in the error."""
    port = int(east.bootstrap_servers.rpartition(":")[2])
    with pytest.raises(UsageError, match=f"port {port} is taken"):
        LocalCluster.start(ClusterSpec("late", port=port))


def test_broker_that_cannot_start_tells_why() -> None:
    """A broker property that Kafka refuses comes back in Kafka's own words."""
    with pytest.raises(MirrorError, match=r"log\.segment\.bytes"):
        LocalCluster.start(ClusterSpec("broken", properties={"log.segment.bytes": "nonsense"}))


@pytest.mark.faults
def test_brokers_end_with_the_program_that_started_them() -> None:
    """SIGKILL of a program leaves neither its brokers nor their temporary data."""
    program = (
        "import os, signal\n"
        "from eomirror.localkafka.cluster import ClusterSpec, LocalCluster\n"
        "cluster = LocalCluster.start(ClusterSpec('orphan'))\n"
        "print(cluster.brokers[0].pid, cluster.folder, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    pid, folder = ended.stdout.split(maxsplit=1)
    deadline = time.monotonic() + 20
    while is_alive(int(pid)) or Path(folder.strip()).exists():
        assert time.monotonic() < deadline, "the broker or its data outlived the program"
        time.sleep(0.05)


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class CommandLine:
    """``eomirror cluster`` in a process of its own, with a state folder of its own."""

    def __init__(self, state: Path) -> None:
        self._env = os.environ | {"EOMIRROR_STATE": str(state)}

    def __call__(self, *arguments: str, code: int = 0) -> tuple[str, str]:
        command = [sys.executable, "-m", "eomirror", "cluster", *arguments]
        ended = subprocess.run(
            command, env=self._env, capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == code, ended.stderr
        return ended.stdout, ended.stderr

    def status(self, name: str) -> dict[str, object]:
        return next(iter(json.loads(self("status", name, "-o", "json")[0])["clusters"]))


def test_command_line_brings_clusters_up_and_down(tmp_path: Path) -> None:
    """up, status, kill, up on the same data and port, down: each in a process of its own."""
    run = CommandLine(tmp_path)
    try:
        snippet, progress = run("up", "tour", "-o", "table", "-p", "num.partitions=3")
        assert "Apache Kafka 4.3" in progress
        before = run.status("tour")
        assert before["state"] == "running"
        address = str(before["bootstrap_servers"])
        assert snippet.startswith(f'clusters:\n  tour: {{bootstrap.servers: "{address}"}}\n')
        properties = {"bootstrap.servers": address}
        create_topic(properties, "kept", partitions=-1)
        admin = AdminClient(properties)
        # a broker learns of a topic after the controller that created it
        wait_for(lambda: len(admin.list_topics("kept", timeout=20).topics["kept"].partitions) == 3)

        os.kill(before["brokers"][0]["pid"], signal.SIGKILL)
        deadline = time.monotonic() + 20
        while run.status("tour")["state"] != "stopped":
            assert time.monotonic() < deadline
        assert run("up", "tour")[0] == snippet
        again = run.status("tour")
        assert (again["bootstrap_servers"], again["cluster_id"]) == (address, before["cluster_id"])
        wait_for(lambda: "kept" in admin.list_topics(timeout=20).topics)

        assert "1, not 2" in run("up", "tour", "--brokers", "2", code=2)[1]
        run("down", "tour", "--keep-data")
        assert run.status("tour")["state"] == "stopped"
    finally:
        run("down", "--all")
    assert not (tmp_path / "clusters" / "tour").exists()
    assert json.loads(run("status", "-o", "json")[0]) == {"clusters": []}
    assert "eomirror cluster up tour" in run("down", "tour", code=2)[1]
