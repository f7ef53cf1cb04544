"""Epoch changes under traffic: nothing is lost, nothing twice, and the lane goes on with what it has."""

from __future__ import annotations

import threading
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from eomirror import Mirror, load_config
from records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_PARTITIONS = 4


def claims(properties: Any, topic: str) -> list[dict[str, Any]]:
    """Every claim of an attempt that was committed to a positions topic, by lane and epoch."""
    consumer = Consumer({**properties, "group.id": "reader", "enable.partition.eof": True})
    numbers = sorted(consumer.list_topics(topic, timeout=15).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    found, waiting = [], set(numbers)
    while waiting:
        for message in consumer.consume(5_000, 0.1):
            if message.error() is not None:
                waiting.discard(message.partition())
            elif "lane" in (key := orjson.loads(message.key())):
                found.append({**key, **orjson.loads(message.value())})
    consumer.close()
    return sorted(found, key=lambda claim: (claim["lane"], claim["epoch"], claim["attempt"]))


def test_a_lane_goes_on_with_its_producer_in_the_next_epoch(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """EO-1, EO-2: short epochs, partitions added meanwhile: an exact copy; mostly, the worker keeps its producer."""
    path = tmp_path / "mirror.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
                "links": [{"name": topic_name, "source": "east", "target": "west", "topics": [topic_name]}],
                # under protocol V2 every transaction has another producer epoch, so claims do not show the producer
                "defaults": {"lanes": 2, "epoch": "5s", "plane": "client"},
            }
        )
    )
    path.chmod(0o600)
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    positions = f"eomirror.{topic_name}.positions"
    mirror = Mirror(load_config(path), spark=spark_context)
    runner = threading.Thread(target=mirror.run)
    runner.start()
    written: dict[int, list[Any]] = {number: [] for number in range(_PARTITIONS + 2)}

    def write(seed: int, partitions: int) -> None:
        more = produce(
            east.client_properties,
            topic_name,
            partitions,
            some_records(seed, 400),
            transactional_id=f"{topic_name}-{seed}",
        )
        for number, records in more.items():
            written[number] += records

    def arrived() -> bool:
        found = read_committed(west.client_properties, f"east.{topic_name}")
        return sum(map(len, found.values())) >= sum(map(len, written.values()))

    try:
        write(70, _PARTITIONS)
        wait_for(arrived, 60)
        admin = AdminClient(dict(east.client_properties))
        admin.create_partitions([NewPartitions(topic_name, _PARTITIONS + 2)])[topic_name].result(30)
        for seed in range(71, 76):
            write(seed, _PARTITIONS + (2 if seed > 72 else 0))
            wait_for(arrived, 60)
        wait_for(lambda: max(c["epoch"] for c in claims(west.client_properties, positions)) > 3, 60)
    finally:
        mirror.stop()
        runner.join(60)

    assert read_committed(west.client_properties, f"east.{topic_name}") == written
    made = claims(west.client_properties, positions)
    assert {claim["attempt"] for claim in made} == {1}
    # Spark gives a task the worker that has been idle for longest, which need not be the lane's: that one begins anew
    changes = [
        (before, after)
        for before, after in pairwise(made)
        if (before["lane"], before["pid"]) == (after["lane"], after["pid"])
    ]
    kept = [
        (before, after)
        for before, after in changes
        if (before["producer_id"], before["producer_epoch"])
        == (after["producer_id"], after["producer_epoch"])
    ]
    assert len(kept) >= len(changes) / 2, f"{len(kept)} of {len(changes)} went on with their producer"
