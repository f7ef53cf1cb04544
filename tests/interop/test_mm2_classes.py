"""MirrorMaker 2's own Java classes, from the Kafka jars: they read what `formats/mm2.py` writes, and the other way."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyspark
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from eomirror import load_config
from eomirror._native import key_partition
from eomirror.jvm import find_java
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.localkafka import jars
from eomirror.records.mm2 import (
    Checkpoint,
    Heartbeat,
    Mm2Names,
    OffsetSync,
    decode_checkpoint,
    decode_heartbeat,
    decode_offset_sync,
)
from support.traffic.records import create_topic, wait_for

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
    pattern = java.jvm.java.util.regex.Pattern.compile("bill.*|oth.*|none")
    by_group = package.RemoteClusterUtils.translateOffsets(settings, alias, pattern, wait)
    assert {
        group: {(key.topic(), key.partition()): by_group[group][key].offset() for key in by_group[group]}
        for group in by_group
    } == {"billing": translated, "other": {(remote, 0): 8}}
    client = package.MirrorClient(settings)
    try:
        assert alias in set(client.upstreamClusters())
        assert client.replicationHops(alias) == 1
        assert {remote, f"far.{remote}"} <= set(client.remoteTopics())
        assert names.remote_heartbeats(alias) in set(client.heartbeatTopics())
        assert names.checkpoints(alias) in set(client.checkpointTopics())
    finally:
        client.close()


def hidden(java: Any, name: str, types: list[Any], arguments: list[Any]) -> Any:
    """An object of one of MM2's classes whose constructor is not public."""
    kinds, values = java.new_array(java.jvm.Class, len(types)), java.new_array(java.jvm.Object, len(types))
    for index, (kind, value) in enumerate(zip(types, arguments, strict=True)):
        kinds[index], values[index] = kind, value
    constructor = java.jvm.Class.forName(f"{MIRROR}.{name}").getDeclaredConstructor(kinds)
    constructor.setAccessible(True)
    return constructor.newInstance(values)


def called(java: Any, thing: Any, name: str, types: list[Any], arguments: list[Any]) -> Any:
    """A method of one of MM2's classes that is not public."""
    kinds, values = java.new_array(java.jvm.Class, len(types)), java.new_array(java.jvm.Object, len(types))
    for index, (kind, value) in enumerate(zip(types, arguments, strict=True)):
        kinds[index], values[index] = kind, value
    method = thing.getClass().getDeclaredMethod(name, kinds)
    method.setAccessible(True)
    return method.invoke(thing, values)


def test_the_java_sync_store_and_checkpoint_task_read_our_syncs(
    java: Any, west: Any, topic_name: str
) -> None:
    """Exactly at a sync, the next record behind one, nothing before the first; checkpoints name the remote topic."""
    alias, names = topic_name, Mm2Names()
    properties = dict(west.client_properties)
    syncs = names.offset_syncs(alias)
    create_topic(properties, syncs, 1, **{"cleanup.policy": "compact"})
    producer = Producer({**properties, "transactional.id": topic_name, "linger.ms": 0})
    producer.init_transactions(30)
    for up, down in ((100, 90), (200, 185), (1000, 950)):
        sync = OffsetSync("orders", 3, up, down)
        producer.begin_transaction()
        producer.produce(syncs, sync.value(), sync.key(), partition=0)
        producer.commit_transaction(30)
    # ahead of every other, and aborted
    producer.begin_transaction()
    sync = OffsetSync("orders", 3, 5000, 4500)
    producer.produce(syncs, sync.value(), sync.key(), partition=0)
    producer.flush(30)
    producer.abort_transaction(30)
    jvm = java.jvm
    config = jvm.org.apache.kafka.connect.mirror.MirrorCheckpointConfig(
        {
            "name": "checkpoints",
            "connector.class": f"{MIRROR}.MirrorCheckpointConnector",
            "source.cluster.alias": alias,
            "target.cluster.alias": "west",
            "source.cluster.bootstrap.servers": properties["bootstrap.servers"],
            "target.cluster.bootstrap.servers": properties["bootstrap.servers"],
            "target.consumer.isolation.level": "read_committed",
            "offset-syncs.topic.location": "target",
        }
    )
    store = hidden(java, "OffsetSyncStore", [config.getClass()], [config])
    try:
        store.start(False)  # noqa: FBT003  Java has no keywords
        partition = jvm.org.apache.kafka.common.TopicPartition("orders", 3)

        def translated(upstream: int) -> int:
            return int(store.translateDownstream("billing", partition, upstream).getAsLong())

        assert {up: translated(up) for up in (1000, 1001, 3000)} == {1000: 950, 1001: 951, 3000: 951}
        # before the oldest sync that it keeps, it knows nothing
        assert translated(50) == -1
        policy = jvm.org.apache.kafka.connect.mirror.DefaultReplicationPolicy()
        policy.configure({})
        of = jvm.Class.forName
        text, mapping = of("java.lang.String"), of("java.util.Map")
        kept = hidden(java, "CheckpointStore", [mapping], [jvm.java.util.HashMap()])
        task = hidden(
            java,
            "MirrorCheckpointTask",
            [text, text, of(f"{MIRROR}.ReplicationPolicy"), store.getClass(), of("java.util.Set"), mapping,
             kept.getClass()],
            [alias, "west", policy, store, jvm.java.util.HashSet(), jvm.java.util.HashMap(), kept],
        )  # fmt: skip
        at = jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(1000, "m")
        made = called(
            java, task, "checkpoint", [text, partition.getClass(), at.getClass()], ["billing", partition, at]
        ).get()
        key, value = (bytes(called(java, made, name, [], [])) for name in ("recordKey", "recordValue"))
        assert decode_checkpoint(key, value, where="t-0@0") == Checkpoint(
            "billing", f"{alias}.orders", 3, 1000, 950, "m"
        )
    finally:
        store.close()


def test_a_java_consumer_goes_on_at_the_translated_record(java: Any, west: Any, topic_name: str) -> None:
    """The lines that docs/move-consumers.md shows: translate, assign, seek, read."""
    alias, names = topic_name, Mm2Names()
    remote = f"{alias}.orders"
    properties = dict(west.client_properties)
    create_topic(properties, names.checkpoints(alias), 1, **{"cleanup.policy": "compact"})
    create_topic(properties, remote, 1)
    producer = Producer({**properties, "transactional.id": topic_name, "linger.ms": 0})
    producer.init_transactions(30)
    for first in range(0, 50, 10):
        # each transaction leaves a marker: the record with value N is at offset N + N // 10
        producer.begin_transaction()
        for number in range(first, first + 10):
            producer.produce(remote, b"%d" % number, partition=0)
        at = Checkpoint("billing", remote, 0, first + 7, first + first // 10 + 7)
        producer.produce(names.checkpoints(alias), at.value(), at.key(), partition=0)
        producer.commit_transaction(30)
    jvm = java.jvm
    settings = {
        "bootstrap.servers": properties["bootstrap.servers"],
        "isolation.level": "read_committed",
        "key.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer",
        "value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
    }
    wait = jvm.java.time.Duration.ofSeconds(30)
    utils = jvm.org.apache.kafka.connect.mirror.RemoteClusterUtils

    moved = utils.translateOffsets(settings, alias, "billing", wait)

    consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
    try:
        consumer.assign(moved.keySet())
        for partition in moved:
            consumer.seek(partition, moved[partition])
        records = consumer.poll(wait).iterator()
        read = []
        while records.hasNext():
            read.append(records.next().value())
        assert read == ["47", "48", "49"]
    finally:
        consumer.close()


def test_a_share_group_is_reported_and_not_followed(java: Any, west: Any, topic_name: str) -> None:
    """KIP-932: it has no offsets of a consumer; nor is a consumer group taken for one."""
    properties = dict(west.client_properties)
    create_topic(properties, topic_name, 1)
    jvm = java.jvm
    settings = {"bootstrap.servers": properties["bootstrap.servers"], "group.id": f"{topic_name}-sharing"}
    reader = jvm.org.apache.kafka.common.serialization.ByteArrayDeserializer
    consumer = Consumer({**properties, "group.id": f"{topic_name}-plain", "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic_name, 0, 0)], asynchronous=False)
    consumer.close()
    config = load_config(
        {
            "clusters": {"west": properties, "east": properties},
            "links": [{"source": "west", "target": "east", "topics": [topic_name]}],
        }
    )
    groups = ClusterGroups(config.clusters["west"], client_id="test")
    sharing = jvm.org.apache.kafka.clients.consumer.KafkaShareConsumer(settings, reader(), reader())
    try:
        sharing.subscribe([topic_name])

        def seen() -> bool:
            sharing.poll(jvm.java.time.Duration.ofMillis(100))
            return f"{topic_name}-sharing" in groups.shared()

        wait_for(seen, 60)
        assert f"{topic_name}-plain" not in groups.shared()
        assert f"{topic_name}-sharing" not in groups.names(strict=True)[0]
    finally:
        sharing.close()
        groups.close()


def test_keys_are_placed_like_the_producer_of_kafka_places_them(java: Any, rng: random.Random) -> None:
    """`partitions: keyed`: the real partitioner's choice for keys of every length, with and without the sign bit."""
    partitioner = java.jvm.org.apache.kafka.clients.producer.internals.BuiltInPartitioner
    for length in range(70):
        key, partitions = rng.randbytes(length), rng.randint(1, 1000)
        assert key_partition(key, partitions) == partitioner.partitionForKey(key, partitions)
