"""MirrorMaker 2's own Java classes, from the Kafka jars: they read what `formats/mm2.py` writes, and the other way."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from confluent_kafka import Producer
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from eomirror.demo import jars
from eomirror.demo.java import find_java
from eomirror.formats.mm2 import (
    Checkpoint,
    Heartbeat,
    Mm2Names,
    OffsetSync,
    decode_checkpoint,
    decode_heartbeat,
    decode_offset_sync,
)
from records import create_topic

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator

pytestmark = [pytest.mark.integration]

MIRROR = "org.apache.kafka.connect.mirror"
NAMES = ("orders", "a", "x" * 249, "group with blanks", "\u00e9\u4e16\U0001f600", "")
NUMBERS = (0, 1, 998, 2**31, 2**63 - 1)


@pytest.fixture(scope="module")
def java() -> Iterator[Any]:
    """A JVM with the Kafka jars; py4j comes with Spark and calls any class, so that nothing is compiled."""
    (bridge,) = (Path(pyspark.__file__).parent / "jars").glob("py4j-*.jar")
    port, process = launch_gateway(
        jarpath=str(bridge),
        classpath=jars.class_path("4.3"),
        java_path=str(find_java()),
        javaopts=["-Xmx128m"],
        die_on_exit=True,
        redirect_stdout=subprocess.DEVNULL,
        return_proc=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    yield gateway
    gateway.shutdown()
    process.stdin.close()
    process.wait(30)


def made_by_java(java: Any, record: Any) -> tuple[bytes, bytes]:
    """Key and value of the same record as MM2 writes it; its methods for that are not public."""
    package = java.jvm.org.apache.kafka.connect.mirror
    if isinstance(record, Heartbeat):
        made = package.Heartbeat(record.source, record.target, record.timestamp)
    else:
        partition = java.jvm.org.apache.kafka.common.TopicPartition(record.topic, record.partition)
        if isinstance(record, OffsetSync):
            made = package.OffsetSync(partition, record.upstream, record.downstream)
        else:
            made = package.Checkpoint(
                record.group, partition, record.upstream, record.downstream, record.metadata
            )
    found = []
    for name in ("recordKey", "recordValue"):
        method = made.getClass().getDeclaredMethod(name, java.new_array(java.jvm.Class, 0))
        method.setAccessible(True)
        found.append(bytes(method.invoke(made, java.new_array(java.jvm.Object, 0))))
    return found[0], found[1]


def read_by_java(java: Any, record: Any) -> Any:
    """Our bytes through MM2's own decoder."""
    consumed = java.jvm.org.apache.kafka.clients.consumer.ConsumerRecord(
        "t", 0, 0, bytearray(record.key()), bytearray(record.value())
    )
    package = java.jvm.org.apache.kafka.connect.mirror
    if isinstance(record, Heartbeat):
        read = package.Heartbeat.deserializeRecord(consumed)
        return Heartbeat(read.sourceClusterAlias(), read.targetClusterAlias(), read.timestamp())
    if isinstance(record, OffsetSync):
        read = package.OffsetSync.deserializeRecord(consumed)
        partition = read.topicPartition()
        return OffsetSync(
            partition.topic(), partition.partition(), read.upstreamOffset(), read.downstreamOffset()
        )
    read = package.Checkpoint.deserializeRecord(consumed)
    partition = read.topicPartition()
    return Checkpoint(
        read.consumerGroupId(),
        partition.topic(),
        partition.partition(),
        read.upstreamOffset(),
        read.downstreamOffset(),
        read.metadata(),
    )


def some(rng: random.Random, count: int) -> list[Any]:
    """Records of every kind, edge values included."""
    records: list[Any] = []
    for _ in range(count):
        name, number = rng.choice(NAMES), rng.choice
        partition = rng.choice((0, 3, 2**31 - 1))
        records += [
            OffsetSync(name, partition, number(NUMBERS), number(NUMBERS)),
            Checkpoint(number(NAMES), name, partition, number(NUMBERS), number(NUMBERS), number(NAMES)),
            Heartbeat(name, number(NAMES), number(NUMBERS)),
        ]
    return records


def test_our_bytes_are_those_of_the_java_classes(java: Any, rng: random.Random) -> None:
    """Both serialisers write the same, and each side reads what the other wrote."""
    decoders = {
        OffsetSync: decode_offset_sync,
        Checkpoint: decode_checkpoint,
        Heartbeat: decode_heartbeat,
    }
    for record in some(rng, 40):
        key, value = made_by_java(java, record)
        assert (record.key(), record.value()) == (key, value)
        assert decoders[type(record)](key, value, where="t-0@0") == record
        assert read_by_java(java, record) == record


@pytest.mark.parametrize("separator", [".", "_", "-x-"])
@pytest.mark.parametrize("internal", [True, False])
def test_topics_have_the_names_of_the_java_policy(java: Any, separator: str, internal: bool) -> None:
    """MM2's default policy with a separator, which internal topics take or do not."""
    policy = java.jvm.org.apache.kafka.connect.mirror.DefaultReplicationPolicy()
    policy.configure(
        {
            "replication.policy.separator": separator,
            "replication.policy.internal.topic.separator.enabled": internal,
        }
    )
    ours = Mm2Names(separator, separator_for_internal=internal)
    assert ours.offset_syncs("east") == policy.offsetSyncsTopic("east")
    assert ours.checkpoints("east") == policy.checkpointsTopic("east")
    assert ours.heartbeats == policy.heartbeatsTopic()
    assert ours.remote_heartbeats("east") == policy.formatRemoteTopic("east", policy.heartbeatsTopic())


def test_java_clients_find_their_way_on_our_topics(java: Any, west: Any, topic_name: str) -> None:
    """RemoteClusterUtils and MirrorClient on a real broker: checkpoints, hops, remote topics and heartbeats."""
    alias, names = topic_name, Mm2Names()
    remote = f"{alias}.orders"
    properties = dict(west.client_properties)
    for topic in (names.checkpoints(alias), names.remote_heartbeats(alias), f"far.{remote}"):
        create_topic(properties, topic, 1, **{"cleanup.policy": "compact"})
    create_topic(properties, remote, 2)
    producer = Producer({**properties, "linger.ms": 0})
    checkpoints = [
        Checkpoint("billing", remote, 0, 7, 5),
        Checkpoint("billing", remote, 1, 70, 50, "m"),
        Checkpoint("other", remote, 0, 9, 8),
        Checkpoint("billing", remote, 0, 1000, 998),
    ]
    for checkpoint in checkpoints:
        producer.produce(names.checkpoints(alias), checkpoint.value(), checkpoint.key(), partition=0)
    # what is not readable is passed over by Java's reader
    producer.produce(names.checkpoints(alias), b"\0\x07junk", b"junk", partition=0)
    beat = Heartbeat(alias, "west", 1_700_000_000_000)
    producer.produce(names.remote_heartbeats(alias), beat.value(), beat.key(), partition=0)
    assert producer.flush(30) == 0
    package = java.jvm.org.apache.kafka.connect.mirror
    settings = {"bootstrap.servers": properties["bootstrap.servers"]}
    wait = java.jvm.java.time.Duration.ofSeconds(30)

    found = package.RemoteClusterUtils.translateOffsets(settings, alias, "billing", wait)

    translated = {(key.topic(), key.partition()): found[key].offset() for key in found}
    assert translated == {(remote, 0): 998, (remote, 1): 50}
    client = package.MirrorClient(settings)
    try:
        assert alias in set(client.upstreamClusters())
        assert client.replicationHops(alias) == 1
        assert {remote, f"far.{remote}"} <= set(client.remoteTopics())
        assert names.remote_heartbeats(alias) in set(client.heartbeatTopics())
        assert names.checkpoints(alias) in set(client.checkpointTopics())
    finally:
        client.close()
