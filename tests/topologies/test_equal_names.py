"""Equal names on several clusters: every record reaches every cluster once, and none goes round."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror import Mirror, load_config
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.records.names import HOPS_HEADER
from support.links.mirrors import running
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_PARTITIONS = 2
_RECORDS = 200

# on a ring of links the third cluster is two hops away; the star's leaves meet through their hub alone
_SHAPES = {
    "both ways": [("a", "b"), ("b", "a")],
    "full mesh": [("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")],
    "hub and leaves": [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")],
    "ring": [("a", "b"), ("b", "c"), ("c", "a")],
}


@pytest.fixture(scope="module")
def clusters(east: LocalCluster, west: LocalCluster) -> Iterator[dict[str, Mapping[str, Any]]]:
    """Three clusters: the session's two, and one more."""
    with LocalCluster.start(ClusterSpec("north")) as north:
        yield {
            "a": dict(east.client_properties),
            "b": dict(west.client_properties),
            "c": dict(north.client_properties),
        }


def bare(records: Mapping[int, Sequence[Any]]) -> dict[int, list[Any]]:
    """Records as a multiset per partition: several origins interleave as they come."""
    return {number: sorted(records.get(number, ()), key=repr) for number in range(_PARTITIONS)}


def configured(folder: Path, clusters: Mapping[str, Any], shape: str, topic: str, **settings: object) -> Path:
    """The configuration of a shape; ``settings`` are of each link."""
    links = _SHAPES[shape]
    path = folder / "mirror.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": {
                    alias: dict(clusters[alias]) for alias in sorted({one for link in links for one in link})
                },
                "links": [
                    {
                        "name": f"{topic}-{source}-{target}",
                        "source": source,
                        "target": target,
                        "topics": [topic],
                        "naming": "identity",
                        "lanes": 1,
                        **settings,
                    }
                    for source, target in links
                ],
            }
        )
    )
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("shape", sorted(_SHAPES))
def test_every_record_reaches_every_cluster_once(
    shape: str, clusters: Mapping[str, Any], topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """EO-11 and the loop guard: the union of all origins everywhere, once, also after time to go round again."""
    aliases = sorted({alias for link in _SHAPES[shape] for alias in link})
    path = configured(tmp_path, clusters, shape, topic_name)
    everything: dict[int, list[Any]] = {number: [] for number in range(_PARTITIONS)}
    for seed, alias in enumerate(aliases):
        create_topic(clusters[alias], topic_name, _PARTITIONS)
        written = produce(
            clusters[alias],
            topic_name,
            _PARTITIONS,
            some_records(40 + seed, _RECORDS),
            transactional_id=f"{topic_name}-{alias}",
        )
        for number, records in written.items():
            everything[number] += records
    wanted = bare(everything)

    def arrived(alias: str) -> bool:
        found = read_committed(clusters[alias], topic_name)
        return sum(map(len, found.values())) >= sum(map(len, wanted.values()))

    with running(Mirror(load_config(path), spark=spark_context)):
        for alias in aliases:
            wait_for(lambda alias=alias: arrived(alias), 90)
        # a record that goes round comes back within a few commits; one more record per cluster makes sure that
        # the links have had a reason to move since
        for seed, alias in enumerate(aliases):
            last = produce(
                clusters[alias], topic_name, _PARTITIONS, some_records(60 + seed, 20), transactional_id=alias
            )
            for number, records in last.items():
                everything[number] += records
        wanted = bare(everything)
        for alias in aliases:
            wait_for(lambda alias=alias: arrived(alias), 60)

    assert {alias: bare(read_committed(clusters[alias], topic_name)) for alias in aliases} == dict.fromkeys(
        aliases, wanted
    )


def emit_again(properties: Mapping[str, Any], topic: str, count: int, *, keep_time: bool) -> None:
    """
    An application that reads records and writes them back to their topic and partition with all their headers.

    Args:
        properties: Of the cluster.
        topic: The topic.
        count: How many records it reads, all of which came from another cluster.
        keep_time: Write their timestamps, too.
    """
    consumer = Consumer({**properties, "group.id": "retry", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    read: list[Any] = []
    deadline = time.monotonic() + 60
    while len(read) < count and time.monotonic() < deadline:
        read += [message for message in consumer.consume(1_000, 0.2) if message.error() is None]
    consumer.close()
    assert len(read) == count
    producer = Producer({**properties, "acks": "all", "linger.ms": 5})
    for message in read:
        headers = message.headers() or []
        assert HOPS_HEADER in dict(headers), "it was mirrored"
        times = {"timestamp": message.timestamp()[1]} if keep_time else {}
        producer.produce(topic, message.value(), message.key(), message.partition(), headers=headers, **times)
    assert producer.flush(30) == 0


def told(path: Path, *command: str) -> dict[str, Any]:
    """What a command says in JSON; it ends with 0."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", *command, str(path), "-o", "json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize(
    ("shape", "plane"),
    [
        ("both ways", "client"),
        ("both ways", "native"),
        pytest.param("full mesh", "native", marks=pytest.mark.slow),
    ],
)
def test_what_an_application_emits_again_is_a_new_record(
    shape: str, plane: str, clusters: Mapping[str, Any], topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """
    EO-11 and the loop guard: a retry topic of its own name gets a mirrored record back, with all its headers.

    It reaches every other cluster once and does not come back; `verify` agrees, and the records are counted.
    """
    aliases = sorted({alias for link in _SHAPES[shape] for alias in link})
    path = configured(tmp_path, clusters, shape, topic_name, plane=plane)
    for alias in aliases:
        create_topic(clusters[alias], topic_name, _PARTITIONS)
    written = produce(
        clusters["a"], topic_name, _PARTITIONS, some_records(70, _RECORDS), transactional_id=topic_name
    )
    count = sum(map(len, written.values()))

    def arrived(alias: str, wanted: int) -> bool:
        found = sum(map(len, read_committed(clusters[alias], topic_name).values()))
        assert found <= wanted, f"{found} records on {alias}"
        return found == wanted

    with running(Mirror(load_config(path), spark=spark_context)):
        for alias in aliases:
            wait_for(lambda alias=alias: arrived(alias, count), 90)
        # librdkafka shows no producer ids: on the client plane a copy is told by its time
        emit_again(clusters["b"], topic_name, count, keep_time=plane == "native")
        for alias in aliases:
            wait_for(lambda alias=alias: arrived(alias, 2 * count), 60)
        # one more from each side gives every link a reason to move, and a record that goes round the time to come back
        for alias in aliases:
            more = produce(
                clusters[alias], topic_name, _PARTITIONS, some_records(80, 20), transactional_id=alias
            )
            count_now = sum(map(len, more.values()))
        for alias in aliases:
            wait_for(lambda alias=alias: arrived(alias, 2 * count + len(aliases) * count_now), 60)

    found = {alias: bare(read_committed(clusters[alias], topic_name)) for alias in aliases}
    assert found == dict.fromkeys(aliases, found["a"])
    twice = [(key, value, headers) for records in written.values() for key, value, _, headers in records] * 2
    copies = [(key, value, headers) for records in found["a"].values() for key, value, _, headers in records]
    for record in twice:
        copies.remove(record)
    assert all(link["verdict"] == "equal" for link in told(path, "verify")["links"])
    copied = {
        link["link"]: sum(
            partition["copied_headers"] for topic in link["topics"] for partition in topic["partitions"]
        )
        for link in told(path, "status")["links"]
    }
    assert copied == {
        f"{topic_name}-{source}-{target}": count if source == "b" else 0 for source, target in _SHAPES[shape]
    }


@pytest.mark.slow
def test_groups_stay_where_they_are_and_both_commands_say_so(
    clusters: Mapping[str, Any], topic_name: str, tmp_path: Path
) -> None:
    """
    `sync_group_offsets` has no effect between equal names that go both ways: `check` warns of it, `run` logs it.

    Each text names every link, the reason and the command that moves groups there.
    """
    group = f"{topic_name}-group"
    path = configured(
        tmp_path, clusters, "both ways", topic_name,
        sync_group_offsets=True, groups=[group], plane=plane_under_test(),
    )  # fmt: skip
    links = [f"{topic_name}-{source}-{target}" for source, target in _SHAPES["both ways"]]
    for alias in ("a", "b"):
        create_topic(clusters[alias], topic_name, _PARTITIONS)
        produce(
            clusters[alias],
            topic_name,
            _PARTITIONS,
            some_records(5, 100),
            transactional_id=f"{topic_name}-{alias}",
        )
    consumer = Consumer({**clusters["a"], "group.id": group, "enable.auto.commit": False})
    consumer.commit(offsets=[TopicPartition(topic_name, 0, 7)], asynchronous=False)
    consumer.close()

    warnings = told(path, "check")["warnings"]
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", "run", str(path), "--until", "caught-up"],
        capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout + done.stderr
    assert len(warnings) == len(links)
    for link, warning in zip(links, warnings, strict=True):
        assert f"{link} moves no group" in warning["message"]
        assert "eomirror offsets export" in warning["fix"]
    logged = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
    said = [line for line in logged if line["event"] == "groups_not_moved"]
    assert sorted(line["link"] for line in said) == sorted(links)
    assert all("eomirror offsets export" in line["fix"] for line in said)
    admin = AdminClient(dict(clusters["b"]))
    (future,) = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)]).values()
    assert future.result(30).topic_partitions == []
    for alias in ("a", "b"):
        assert sum(map(len, read_committed(clusters[alias], topic_name).values())) == 200
