"""
The native plane's Fetch client against real brokers.

What it reads is compared with the files that the brokers write: a broker answers a Fetch with the bytes of its
log, so both must be equal batch for batch, control batches and aborted records included.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import shutil
import struct
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from eomirror._native import PlaneReader
from eomirror.errors import UnreachableError
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.traffic.records import create_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PARTITIONS = 3

SMALL = {"fetch.max.bytes": "20000", "max.partition.fetch.bytes": "5000"}
"""So that thousands of batches take many requests."""


class Batch(NamedTuple):
    """What is compared of a batch; the checksum is over all its bytes."""

    base_offset: int
    last_offset: int
    size: int
    producer_id: int
    producer_epoch: int
    flags: str
    sha256: str


def cargo(*arguments: str, text: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [shutil.which("cargo") or "cargo", *arguments],
        cwd=ROOT,
        input=text,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )


def dump(properties: Mapping[str, str], topic: str) -> subprocess.CompletedProcess[str]:
    """Run the example that reads a topic raw."""
    text = "".join(f"{name}={value}\n" for name, value in properties.items())
    return cargo("run", "--quiet", "--package", "eomirror-kafka", "--example", "dump", "--", topic, text=text)


def read(properties: Mapping[str, str], topic: str) -> dict[int, list[Batch]]:
    """All batches of a topic as the native plane reads them, per partition."""
    result = dump(properties, topic)
    assert result.returncode == 0, result.stderr
    return parse_dump(result.stdout)


def read_around(
    properties: Mapping[str, str], topic: str, event: Callable[[], object]
) -> dict[int, list[Batch]]:
    """
    Read a topic of thousands of batches, with something happening in the middle.

    The example writes a line per batch, and the test does not read its lines while ``event`` runs: so it stands still
    with most of the topic before it.
    """
    built = cargo("build", "--quiet", "--package", "eomirror-kafka", "--example", "dump")
    assert built.returncode == 0, built.stderr
    text = "".join(f"{name}={value}\n" for name, value in {**properties, **SMALL}.items())
    command = [
        shutil.which("cargo") or "cargo",
        "run",
        "--quiet",
        "-p",
        "eomirror-kafka",
        "--example",
        "dump",
    ]
    with subprocess.Popen(
        [*command, "--", topic], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        reader.stdin.write(text)
        reader.stdin.close()
        first = reader.stdout.readline()
        event()
        rest = reader.stdout.read()
        assert reader.wait(60) == 0
    return parse_dump(first + rest)


def parse_dump(text: str) -> dict[int, list[Batch]]:
    """Batches per partition from the lines of the example."""
    batches: dict[int, list[Batch]] = {partition: [] for partition in range(PARTITIONS)}
    ends = {}
    for line in text.splitlines():
        first, *fields = line.split()
        if first == "#":
            ends[int(fields[0])] = int(fields[1])
            continue
        assert first != "!", line
        numbers = [int(field) for field in fields[:5]]
        batches[int(first)].append(Batch(*numbers, fields[5], fields[6]))  # type: ignore[arg-type]
    assert ends == {partition: found[-1].last_offset + 1 for partition, found in batches.items()}
    return batches


def on_disk(cluster: LocalCluster, topic: str) -> dict[int, list[Batch]]:
    """All batches of a topic as the first broker's files hold them."""
    data = cluster.folder / "broker-1" / "data"
    found: dict[int, list[Batch]] = {}
    for partition in range(PARTITIONS):
        batches = []
        for segment in sorted((data / f"{topic}-{partition}").glob("*.log")):
            rest = segment.read_bytes()
            # files are preallocated by some configurations: zeros end the log
            while len(rest) >= 61 and (size := 12 + int.from_bytes(rest[8:12])) > 12:
                batches.append(parse(rest[:size]))
                rest = rest[size:]
        found[partition] = batches
    return found


def parse(batch: bytes) -> Batch:
    """The header of a record batch, version 2."""
    base, attributes, delta = struct.unpack_from(">q13xhi", batch)
    producer_id, producer_epoch = struct.unpack_from(">qh", batch, 43)
    flags = {0x00: "-", 0x10: "t", 0x20: "c", 0x30: "tc"}[attributes & 0x30]
    checksum = hashlib.sha256(batch).hexdigest()
    return Batch(base, base + delta, len(batch), producer_id, producer_epoch, flags, checksum)


def write_all_kinds(properties: Mapping[str, str], topic: str, seed: int) -> None:
    """Plain records, transactions of which some are aborted, and one that stays open."""
    create_topic(properties, topic, PARTITIONS)
    plain = Producer({**properties, "linger.ms": 2, "compression.type": "lz4"})
    for number in range(600):
        plain.produce(topic, b"%d" % number * 20, partition=number % PARTITIONS)
    plain.flush(30)
    records = some_records(seed, 600)
    produce(properties, topic, PARTITIONS, records, transactional_id=f"{topic}-t", abort_every=3)


def write_many_batches(properties: Mapping[str, str], topic: str) -> None:
    """Thousands of batches of one record each, so that their lines do not fit into a pipe."""
    producer = Producer({**properties, "batch.num.messages": 1, "linger.ms": 0})
    for number in range(4500):
        producer.produce(topic, b"%d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    producer.flush(60)


@pytest.fixture
def left_open() -> Iterator[Callable[[Mapping[str, str], str], None]]:
    """Leave a transaction open on a topic until the test ends."""
    producers: list[Producer] = []

    def leave(properties: Mapping[str, str], topic: str) -> None:
        # longer than any test on a slow machine: the coordinator would abort it
        patience = {"transaction.timeout.ms": "600000"}
        producer = Producer({**properties, **patience, "transactional.id": f"{topic}-open"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, b"open", partition=0)
        producer.flush(30)
        producers.append(producer)

    yield leave
    for producer in producers:
        producer.abort_transaction(30)


def test_what_is_fetched_is_what_lies_in_the_log(
    east: LocalCluster, topic_name: str, seed: int, left_open: Callable[[Mapping[str, str], str], None]
) -> None:
    """Raw batches with markers, aborted and open transactions, and producer ids, byte for byte."""
    write_all_kinds(east.client_properties, topic_name, seed)
    left_open(east.client_properties, topic_name)

    fetched = read(east.client_properties, topic_name)

    assert fetched == on_disk(east, topic_name)
    kinds = {batch.flags for batches in fetched.values() for batch in batches}
    assert kinds == {"-", "t", "tc"}
    assert fetched[0][-1].flags == "t", "the open transaction is the last thing in partition 0"


def test_small_answers_give_the_same_records(east: LocalCluster, topic_name: str, seed: int) -> None:
    """A byte limit below the size of a batch changes how often is asked, and nothing else."""
    write_all_kinds(east.client_properties, topic_name, seed)
    small = {"fetch.max.bytes": "2000", "max.partition.fetch.bytes": "500"}

    assert read({**east.client_properties, **small}, topic_name) == on_disk(east, topic_name)


def test_kafka_39_is_read_as_well(kafka39: LocalCluster, topic_name: str, seed: int) -> None:
    """The last line before 4.0 speaks older versions of some requests."""
    write_all_kinds(kafka39.client_properties, topic_name, seed)

    assert read(kafka39.client_properties, topic_name) == on_disk(kafka39, topic_name)


def test_tls_and_scram_change_nothing_and_are_demanded(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str, seed: int
) -> None:
    """The same bytes over SASL_SSL; a wrong password, an unknown authority and no TLS at all are named."""
    cluster = start_cluster(ClusterSpec("secure", security="sasl_ssl"))
    properties = cluster.client_properties
    write_all_kinds(properties, topic_name, seed)

    assert read(properties, topic_name) == on_disk(cluster, topic_name)

    wrong = dump({**properties, "sasl.password": "not-the-password"}, topic_name)
    assert wrong.returncode == 1
    assert "SCRAM-SHA-512 authentication failed: SASL_AUTHENTICATION_FAILED (58)" in wrong.stderr
    assert "not-the-password" not in wrong.stderr
    unknown = dump({**properties, "ssl.ca.location": "probe"}, topic_name)
    assert unknown.returncode == 1
    assert "no secure connection: invalid peer certificate: UnknownIssuer" in unknown.stderr
    clear = dump({**properties, "security.protocol": "sasl_plaintext"}, topic_name)
    assert clear.returncode == 1
    assert "security.protocol" in clear.stderr


def test_a_client_certificate_is_shown(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str, seed: int, tmp_path: Path
) -> None:
    """Mutual TLS: with the certificate the same bytes, without it a refusal."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = [openssl, "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=reader"]
    subprocess.run([*command, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    demand = {
        "listener.name.client.ssl.client.auth": "required",
        "listener.name.client.ssl.truststore.type": "PEM",
        "listener.name.client.ssl.truststore.location": str(certificate),
    }
    cluster = start_cluster(ClusterSpec("mutual", security="ssl", properties=demand))
    anonymous = cluster.client_properties
    known = {**anonymous, "ssl.key.location": str(key), "ssl.certificate.location": str(certificate)}
    write_all_kinds(known, topic_name, seed)

    assert read(known, topic_name) == on_disk(cluster, topic_name)
    refused = dump(anonymous, topic_name)
    assert refused.returncode == 1
    assert "no secure connection: received fatal alert: " in refused.stderr


def test_every_password_mechanism_logs_in_and_survives_its_expiry(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str
) -> None:
    """PLAIN and SCRAM-SHA-256, with a password full of traps, and a token read on past a session of 1 s (KIP-368)."""
    # a broker's file of properties holds Latin-1 only; in the other one, SASLprep would change a character
    passwords = {"PLAIN": "a=b,c d", "SCRAM-SHA-256": "a=b,c d \u2168"}
    modules = "org.apache.kafka.common.security"
    plain = f'{modules}.plain.PlainLoginModule required user_reader="{passwords["PLAIN"]}";'
    demand = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.client.plain.sasl.jaas.config": plain,
        "listener.name.client.scram-sha-256.sasl.jaas.config": f"{modules}.scram.ScramLoginModule required;",
        "listener.name.client.oauthbearer.sasl.jaas.config": (
            f"{modules}.oauthbearer.OAuthBearerLoginModule required"
            ' unsecuredLoginStringClaim_sub="broker" unsecuredValidatorRequiredScope="read";'
        ),
        "connections.max.reauth.ms": "1000",
    }
    cluster = start_cluster(ClusterSpec("logins", security="sasl_plaintext", properties=demand))
    create_topic(cluster.client_properties, topic_name, PARTITIONS)
    write_many_batches(cluster.client_properties, topic_name)
    admin = AdminClient(cluster.client_properties)
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 5000)
    upsert = UserScramCredentialUpsertion("reader", info, passwords["SCRAM-SHA-256"].encode())
    admin.alter_user_scram_credentials([upsert])["reader"].result(30)
    there = on_disk(cluster, topic_name)

    readers = [
        {"sasl.mechanism": mechanism, "sasl.username": "reader", "sasl.password": password}
        for mechanism, password in passwords.items()
    ]
    bearer = {"sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": "true"}
    readers.append({**bearer, "sasl.oauthbearer.config": "principal=reader scope=read lifeSeconds=2"})
    for reader in readers:
        properties = {**cluster.client_properties, **reader}
        assert read_around(properties, topic_name, lambda: time.sleep(2.5)) == there

    unfit = dump(
        {**cluster.client_properties, **bearer, "sasl.oauthbearer.config": "principal=reader"}, topic_name
    )
    assert unfit.returncode == 1
    assert "OAUTHBEARER authentication failed: SASL_AUTHENTICATION_FAILED (58)" in unfit.stderr
    assert '"status":"insufficient_scope"' in unfit.stderr
    check_tokens_of_a_callable({**cluster.client_properties, "sasl.mechanism": "OAUTHBEARER"})


def check_tokens_of_a_callable(properties: dict[str, str]) -> None:
    """A Python callable gives the token, and is told what librdkafka would tell it; what it raises is not repeated."""
    asked: list[str] = []

    def give(config: str) -> tuple[str, float]:
        asked.append(config)
        ends = time.time() + 60
        claims = {"sub": "reader", "scope": "read", "iat": ends - 60, "exp": ends}
        parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims))
        return ".".join([base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]) + ".", ends

    def fail(config: str) -> tuple[str, float]:
        raise PermissionError(f"canary-Zq {config}")

    configured = {**properties, "sasl.oauthbearer.config": "for=you"}
    PlaneReader(configured, 30.0, give)
    assert asked == ["for=you"]
    with pytest.raises(UnreachableError, match="no token: the callable raised PermissionError") as raised:
        PlaneReader(configured, 1.0, fail)
    assert "canary-Zq" not in repr(raised.value)


def test_a_broker_that_is_killed_is_waited_for(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str
) -> None:
    """Nothing is skipped or read twice when the only broker dies and comes back."""
    cluster = start_cluster(ClusterSpec("mortal"))
    create_topic(cluster.client_properties, topic_name, PARTITIONS)
    write_many_batches(cluster.client_properties, topic_name)

    def die_and_come_back() -> None:
        cluster.brokers[0].kill()
        cluster.brokers[0].start()

    fetched = read_around(cluster.client_properties, topic_name, die_and_come_back)

    assert fetched == on_disk(cluster, topic_name)
    assert sum(map(len, fetched.values())) == 4500


@pytest.mark.slow
def test_leaders_that_move_are_followed(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str
) -> None:
    """Partitions of two leaders are read together, and from the other one when a leader leaves."""
    cluster = start_cluster(ClusterSpec("pair", brokers=2))
    admin = AdminClient(cluster.client_properties)
    new = NewTopic(topic_name, PARTITIONS, replica_assignment=[[2, 1], [1, 2], [2, 1]])
    admin.create_topics([new])[topic_name].result(30)

    def leaders() -> set[int]:
        known = admin.list_topics(topic_name, timeout=10).topics[topic_name].partitions.values()
        return {partition.leader for partition in known}

    wait_for(lambda: leaders() == {1, 2})
    write_many_batches({**cluster.client_properties, "acks": "all"}, topic_name)

    fetched = read_around(cluster.client_properties, topic_name, cluster.brokers[1].stop)

    assert leaders() == {1}
    assert fetched == on_disk(cluster, topic_name)
    assert sum(map(len, fetched.values())) == 4500


def test_what_the_native_plane_cannot_honour_is_named(east: LocalCluster, topic_name: str) -> None:
    """A caller can fall back to librdkafka, and say why."""
    kerberos = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "GSSAPI"}

    refused = dump({**east.client_properties, **kerberos}, topic_name)

    assert refused.returncode == 1
    assert "native client cannot honour sasl.mechanism: Kerberos" in refused.stderr


def test_the_crates_own_tests_of_a_broker_pass(east: LocalCluster, topic_name: str) -> None:
    """They need a broker, which this suite has, and a topic without records."""
    create_topic(east.client_properties, topic_name, PARTITIONS)
    arguments = ("test", "--quiet", "--package", "eomirror-kafka", "--test", "broker")

    result = cargo(*arguments, KAFKA_TEST_BOOTSTRAP=east.bootstrap_servers, KAFKA_TEST_TOPIC=topic_name)

    assert result.returncode == 0, result.stdout + result.stderr
    assert "skipped" not in result.stderr
