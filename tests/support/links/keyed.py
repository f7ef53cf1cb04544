"""
Links that place records by key: two sources become one topic of another partition count.

The judge reads every record of all sides, and places each by Java's partitioner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition

from eomirror.demo.clients import create_topic
from support.judges.java_partitioner import java_partition
from support.links.plane import plane_under_test
from support.traffic.records import produce, some_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.config import Config

__all__ = [
    "ORIGIN",
    "SOURCES",
    "TARGETS",
    "assert_placed",
    "copied",
    "copied_now",
    "create",
    "end",
    "keyed_settings",
    "originals",
    "read",
    "write",
]

ORIGIN = "eomirror.origin"
TARGETS = 3

# Source topic's partitions by cluster: fewer and more than the target has.
SOURCES = {"dc1": 2, "dc2": 5}


def keyed_settings(
    dc1: Mapping[str, Any], dc2: Mapping[str, Any], name: str, *, plane: str | None = None
) -> dict[str, Any]:
    """Two links into one topic on dc1, one of them from dc1 itself; both clusters by their properties."""
    return {
        "clusters": {"dc1": dict(dc1), "dc2": dict(dc2)},
        "links": [
            {
                "name": f"{name}-{alias}", "source": alias, "target": "dc1", "topics": [f"{name}-{alias}"],
                "naming": {"map": {f"{name}-{alias}": name}},
            }
            for alias in SOURCES
        ],
        "defaults": {
            "aggregate": True, "origin_header": True, "partitions": "keyed", "target_partitions": TARGETS,
            "plane": plane or plane_under_test(),
        },
    }  # fmt: skip


def read(properties: Mapping[str, Any], topic: str, partitions: int) -> dict[tuple[int, int], Any]:
    """Every committed record of a topic by partition and offset: key, value, timestamp, headers."""
    consumer = Consumer(
        {
            **properties, "group.id": "reader", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: dict[tuple[int, int], Any] = {}
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(30.0)
        assert message is not None, f"{topic}: no end of partition within 30 s"
        if message.error() is not None:
            ended.add(message.partition())
            continue
        headers = tuple(message.headers() or ())
        found[message.partition(), message.offset()] = (
            message.key(), message.value(), message.timestamp()[1], headers,
        )  # fmt: skip
    consumer.close()
    return found


def originals(config: Config, name: str) -> dict[str, Any]:
    """Every committed record of all sources, by its place as the header names it."""
    return {
        f"{alias}/{name}-{alias}/{number}/{offset}": record
        for alias, partitions in SOURCES.items()
        for (number, offset), record in read(
            config.clusters[alias].properties, f"{name}-{alias}", partitions
        ).items()
    }


def assert_placed(config: Config, name: str) -> int:
    """Every original once, where Java's partitioner puts its key, in order per source partition; their number."""
    expected = originals(config, name)
    last: dict[tuple[str, int], int] = {}
    seen = set()
    for (target, _), (key, value, timestamp, headers) in sorted(
        read(config.clusters["dc1"].properties, name, TARGETS).items()
    ):
        assert headers[-1][0] == ORIGIN
        place = headers[-1][1].decode()
        original = expected[place]
        assert (key, value, timestamp, headers[:-1]) == original
        source, _, offset = place.rpartition("/")
        number = int(source.rpartition("/")[2])
        assert target == (number % TARGETS if key is None else java_partition(key, TARGETS))
        assert last.get((source, target), -1) < int(offset)
        last[source, target] = int(offset)
        assert place not in seen
        seen.add(place)
    assert seen == set(expected)
    return len(seen)


def create(config: Config, name: str, *, replicas: int = 1) -> None:
    """Creates the topics on all sources."""
    for alias, partitions in SOURCES.items():
        # dc2 may be a cluster of one broker
        copies = replicas if alias == "dc1" else 1
        properties = config.clusters[alias].properties
        create_topic(properties, f"{name}-{alias}", partitions, replicas=copies, retention_ms="-1")


def write(config: Config, name: str, turn: int, count: int, *, sources: Iterable[str] = SOURCES) -> None:
    """Transactions of records on sources; some have no key, every tenth transaction is aborted."""
    for alias in sources:
        produce(
            config.clusters[alias].properties, f"{name}-{alias}", SOURCES[alias], some_records(turn, count),
            transactional_id=f"{name}-{alias}",
        )  # fmt: skip


def end(config: Config, name: str) -> int:
    """Records that the target has."""
    return len(read(config.clusters["dc1"].properties, name, TARGETS))


def copied(config: Config, name: str, count: int) -> bool:
    """Returns True if the target has so many records."""
    try:
        return end(config, name) >= count
    except AssertionError:
        return False


def copied_now(config: Config, name: str) -> int:
    """Records that the target has; 0 before the topic exists."""
    try:
        return end(config, name)
    except AssertionError:
        return 0
