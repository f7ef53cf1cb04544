"""Partitions of the source whose only replica is on a broker that is down (fault F10)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eomirror.localkafka.spec import ClusterSpec
from support.links.mirrors import ThreadMirror
from support.links.plane import kafka_of, plane_under_test
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.localkafka.cluster import LocalCluster
    from support.judges.ledger import Entry

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.spark]

_PARTITIONS = 3
_EACH = 200


def write(properties: dict[str, Any], topic: str, partitions: list[int], first: int) -> None:
    """So many records into each of these partitions, numbered."""
    producer = Producer({**properties, "acks": "all"})
    for partition in partitions:
        for number in range(first, first + _EACH):
            producer.produce(topic, value=b"%d" % number, partition=partition)
    assert producer.flush(60.0) == 0


def copied(properties: dict[str, Any], topic: str) -> dict[int, list[int]]:
    """What a reader of committed records finds in each partition; nothing while one of them cannot be asked."""
    reader = Consumer(
        {**properties, "group.id": "judge", "isolation.level": "read_committed", "enable.auto.commit": False}
    )
    found: dict[int, list[int]] = {}
    try:
        if topic not in reader.list_topics(timeout=10.0).topics:
            return found
        for partition in range(_PARTITIONS):
            place = TopicPartition(topic, partition, 0)
            _, end = reader.get_watermark_offsets(place, timeout=10.0)
            reader.assign([place])
            found[partition] = []
            while end and reader.position([place])[0].offset < end:
                for message in reader.consume(500, 1.0):
                    assert message.error() is None, message.error()
                    found[partition].append(int(message.value() or b""))
    except KafkaException:
        # the copy was just created: its leaders are not known everywhere
        return {partition: [] for partition in range(_PARTITIONS)}
    finally:
        reader.close()
    return found


def leaderless(admin: AdminClient, topic: str) -> int:
    """How many partitions have no leader."""
    partitions = admin.list_topics(topic, timeout=10.0).topics[topic].partitions.values()
    return sum(1 for partition in partitions if partition.leader < 0)


@pytest.mark.slow
@pytest.mark.fault("F10")
@pytest.mark.timeout(600)
def test_partitions_with_a_leader_do_not_wait_for_those_without(
    start_cluster: Callable[[ClusterSpec], LocalCluster],
    west: Any,
    topic_name: str,
    entry: Entry,
    spark_context: Any,
) -> None:
    """A mirror that begins anew while a broker is down mirrors the others, and the rest once it is back."""
    source = start_cluster(ClusterSpec("partly", brokers=3, kafka_version=kafka_of("east")))
    east, target = source.client_properties, west.client_properties
    admin = AdminClient(dict(east))
    replicas = [[broker.node_id] for broker in source.brokers]
    wanted = NewTopic(topic_name, _PARTITIONS, replica_assignment=replicas, config={"retention.ms": "-1"})
    for future in admin.create_topics([wanted]).values():
        future.result(30.0)
    settings = {
        "clusters": {"east": east, "west": target},
        "links": [
            {"name": topic_name, "source": "east", "target": "west", "topics": [topic_name], "lanes": 2}
        ],
        "defaults": {"plane": plane_under_test()},
    }
    everywhere, down = list(range(_PARTITIONS)), _PARTITIONS - 1
    copy = f"east.{topic_name}"

    write(east, topic_name, everywhere, 0)
    mirror = ThreadMirror(settings, spark_context)
    mirror.start()
    try:
        wait_for(lambda: sum(map(len, copied(target, copy).values())) == _PARTITIONS * _EACH, 90.0)
        mirror.stop()
        source.brokers[down].kill()
        entry.injected()
        wait_for(lambda: leaderless(admin, topic_name) == 1, 60.0)

        mirror = ThreadMirror(settings, spark_context)
        mirror.start()
        write(east, topic_name, everywhere[:down], _EACH)
        wait_for(
            lambda: [len(copied(target, copy)[one]) for one in everywhere[:down]] == [2 * _EACH] * down, 90.0
        )
        mirror.check()
        source.brokers[down].start()
        wait_for(lambda: leaderless(admin, topic_name) == 0, 60.0)
        write(east, topic_name, [down], _EACH)
        wait_for(lambda: len(copied(target, copy)[down]) == 2 * _EACH, 120.0)
        mirror.stop()
    finally:
        mirror.close()
    assert copied(target, copy) == {one: list(range(2 * _EACH)) for one in everywhere}
