"""Groups of each client, followed, exported, imported and failed over: judged by the bytes that brokers answer."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Consumer, ConsumerGroupState, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror import Mirror, load_config
from support.clusters.client_jars import streams
from support.links.moving.java import java_gateway
from support.traffic.raw_commit import commit_many, fetch_many
from support.traffic.records import create_topic, produce, some_records, wait_for, watermarks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from support.traffic.raw_commit import Places

pytestmark = [pytest.mark.integration, pytest.mark.spark]

PARTITIONS = 3
RECORDS = 300
STAGES = ("followed", "imported", "moved")
# a NUL, letters of several bytes, a line feed, what JSON and YAML quote, what only UTF-16 has as two
TEXT = b'm\0\xc3\xa9\xe2\x82\xac\n"\\\x7f\xc2\x85\xe2\x80\xa8\xf0\x9f\x98\x80'
# the broker stores U+FFFD for each byte that is not UTF-8: 4,000 of them take 12,000 bytes
NOT_UTF_8 = b"\xff\xfe\xc0\x80"
LENGTHS = (0, 1, 12, 20, 24, 40, 56, 64, 1_000, 4_000)


class Scene:
    """
    A topic of transactions, its link, and groups on both sides.

    Attributes:
        topic: On the source.
        copy: On the target.
    """

    def __init__(self, east: Any, west: Any, name: str, folder: Path, spark: Any) -> None:
        self.east, self.west = dict(east.client_properties), dict(west.client_properties)
        self.name, self.topic, self.copy = name, f"{name}.orders", f"east.{name}.orders"
        self._path, self._spark = folder / "mirror.yaml", spark
        self._exported = folder / "offsets.json"
        link = {
            "name": name, "source": "east", "target": "west", "topics": [self.topic], "groups": [f"{name}.*"],
            "sync_group_offsets": True,
        }  # fmt: skip
        settings = {
            "clusters": {"east": self.east, "west": self.west},
            "links": [link],
            "defaults": {"lanes": 1},
        }
        self._path.write_text(yaml.safe_dump(settings))
        self._path.chmod(0o600)
        create_topic(self.east, self.topic, PARTITIONS)
        produce(self.east, self.topic, PARTITIONS, some_records(7, RECORDS), transactional_id=name)
        for cluster in (self.east, self.west):
            wait_for(lambda cluster=cluster: _has_coordinators(cluster, self.topic), 60)

    def mirror(self) -> None:
        """Runs the link until it has caught up."""
        with Mirror(load_config(self._path), spark=self._spark) as mirror:
            assert mirror.run(until="caught-up").exit_code == 0

    def move_with_a_file(self) -> None:
        """Exports the offsets of all groups, and imports them."""
        self._exported.write_text(json.dumps(self.command("offsets", "export")))
        answer = self.command("offsets", "import", after=(str(self._exported),))
        assert [each["group"] for each in answer["groups"] if each["notes"] or each["problem"]] == []

    def fail_over(self) -> None:
        """Asks for readiness, then moves all groups."""
        ready = self.command("readiness")
        (said,) = [each for each in ready["checks"] if each["name"] == "groups"]
        assert said["level"] == "ok", said
        answer = self.command("failover", after=("--force", "--yes"))
        assert answer["refused_groups"] == {}, answer["refused_groups"]

    def command(self, *words: str, after: tuple[str, ...] = ()) -> Any:
        """Returns the JSON of a command, which must succeed."""
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", *words, str(self._path), *after, "-o", "json"],
            capture_output=True, text=True, timeout=240, check=False,
        )  # fmt: skip
        assert done.returncode == 0, (words, done.stdout[-4000:], done.stderr[-4000:])
        return json.loads(done.stdout)

    def judge(self, groups: Iterable[str]) -> None:
        """Each group has on the target what it has on the source: the same next record, the same metadata."""
        wanted = list(groups)
        here, there = (fetch_many(each["bootstrap.servers"], wanted) for each in (self.east, self.west))
        counts = {number: _places(self.east, self.topic, number) for number in range(PARTITIONS)}
        placed = {number: _places(self.west, self.copy, number) for number in range(PARTITIONS)}
        for group in wanted:
            assert here[group], group
            metadata = {number: data for (_, number), (_, data) in here[group].items()}
            assert {number: data for (_, number), (_, data) in there[group].items()} == metadata, group
            for (_, number), (offset, _) in here[group].items():
                at, _ = there[group][self.copy, number]
                assert _read(counts[number], offset) == _read(placed[number], at), (group, number)

    def await_idle(self, groups: Iterable[str]) -> None:
        """Waits until groups have no members on the source."""
        admin = AdminClient(self.east)

        def idle() -> bool:
            answers = admin.describe_consumer_groups(list(groups), request_timeout=30).values()
            return all(each.result(31).state == ConsumerGroupState.EMPTY for each in answers)

        wait_for(idle, 60)

    def offsets(self, group: str) -> Places:
        """Returns the offsets of a group on the source."""
        return fetch_many(self.east["bootstrap.servers"], [group])[group]


def _has_coordinators(properties: dict[str, Any], topic: str) -> bool:
    """Makes the topic of offsets, which no raw request does."""
    consumer = Consumer({**properties, "group.id": "judge"})
    try:
        consumer.committed([TopicPartition(topic, 0)], timeout=10)
    except KafkaException:
        return False
    else:
        return True
    finally:
        consumer.close()


def _places(properties: dict[str, Any], topic: str, number: int) -> list[int]:
    """Returns the offsets of all committed records of a partition."""
    _, end = watermarks(properties, topic, number)
    consumer = Consumer({**properties, "group.id": "judge", "isolation.level": "read_committed"})
    try:
        where = TopicPartition(topic, number, 0)
        consumer.assign([where])
        found: list[int] = []

        def read() -> bool:
            found.extend(each.offset() for each in consumer.consume(500, 0.3) if each.error() is None)
            return consumer.position([where])[0].offset >= end

        wait_for(read, 60)
        return found
    finally:
        consumer.close()


def _read(places: list[int], offset: int) -> int:
    """Returns how many records a group at an offset has read."""
    return sum(place < offset for place in places)


def metadata_of(length: int, number: int) -> bytes:
    """Returns another text of UTF-8 for each number."""
    text = (b"%d:" % number + TEXT * length)[:length].decode(errors="ignore").encode()
    return text + b"m" * (length - len(text))


def raw_groups(name: str, topic: str, count: int, stage: int = 0) -> dict[str, Places]:
    """Returns groups with metadata of each length; every eleventh is not UTF-8; further on with each stage."""
    kinds = [*LENGTHS, None]
    return {
        f"{name}.raw-{index}": {
            (topic, number): (
                (index + 7 * number) % 60 + 15 * stage,
                NOT_UTF_8 * 1_000 if length is None else metadata_of(length, number + stage),
            )
            for number in range(PARTITIONS)
        }
        for index in range(count)
        for length in [kinds[index % len(kinds)]]
    }


@pytest.fixture(scope="module")
def gateway() -> Iterator[Any]:
    """A JVM with Kafka's clients and Kafka Streams."""
    with java_gateway(class_path=streams()) as opened:
        yield opened


class JavaMember:
    """
    ``KafkaConsumer`` that has read some records, and committed with metadata while it is a member.

    Args:
        protocol: ``group.protocol``.
    """

    def __init__(self, gateway: Any, servers: str, topic: str, group: str, protocol: str, at: int) -> None:
        jvm = gateway.jvm
        kafka, self._zero = jvm.org.apache.kafka, jvm.java.time.Duration.ofSeconds(5)
        text = "org.apache.kafka.common.serialization.StringDeserializer"
        settings = jvm.java.util.Properties()
        for name, value in {
            "bootstrap.servers": servers, "group.id": group, "group.protocol": protocol,
            "enable.auto.commit": "false", "auto.offset.reset": "earliest", "isolation.level": "read_committed",
            "key.deserializer": text, "value.deserializer": text,
        }.items():  # fmt: skip
            settings.setProperty(name, value)
        self._consumer = kafka.clients.consumer.KafkaConsumer(settings)
        self._consumer.subscribe(jvm.java.util.Collections.singletonList(topic))

        def assigned() -> bool:
            self._consumer.poll(jvm.java.time.Duration.ofMillis(200))
            return len(self._consumer.assignment()) == PARTITIONS

        wait_for(assigned, 60)
        wanted = jvm.java.util.HashMap()
        for number in range(PARTITIONS):
            where = kafka.common.TopicPartition(topic, number)
            metadata = metadata_of(LENGTHS[-1 - number], number).decode()
            wanted.put(where, kafka.clients.consumer.OffsetAndMetadata(at + number, metadata))
        self._consumer.commitSync(wanted)

    def close(self) -> None:
        """Leaves the group."""
        self._consumer.close(self._zero)


class StreamsMember:
    """
    Kafka Streams application that has read the topic to its end.

    Its offsets hold the time of each partition, which Streams encodes.

    Args:
        guarantee: ``processing.guarantee``.
    """

    def __init__(self, gateway: Any, scene: Scene, group: str, guarantee: str, folder: Path) -> None:
        jvm = gateway.jvm
        kafka, self._seconds = jvm.org.apache.kafka, jvm.java.time.Duration.ofSeconds(30)
        text, stream = kafka.common.serialization.Serdes.String(), kafka.streams.kstream
        builder = kafka.streams.StreamsBuilder()
        create_topic(scene.east, f"{group}.out", PARTITIONS)
        builder.stream(scene.topic, getattr(stream.Consumed, "with")(text, text)).to(
            f"{group}.out", getattr(stream.Produced, "with")(text, text)
        )
        settings = jvm.java.util.Properties()
        for name, value in {
            "application.id": group, "bootstrap.servers": scene.east["bootstrap.servers"],
            "processing.guarantee": guarantee, "state.dir": str(folder), "replication.factor": "1",
            "commit.interval.ms": "100", "session.timeout.ms": "6000", "heartbeat.interval.ms": "1000",
        }.items():  # fmt: skip
            settings.setProperty(name, value)
        self._streams = kafka.streams.KafkaStreams(builder.build(), settings)
        self._streams.start()
        ends = {number: watermarks(scene.east, scene.topic, number)[1] for number in range(PARTITIONS)}

        def committed() -> bool:
            found = scene.offsets(group)
            # the marker of the last transaction is behind the last record
            return len(found) == PARTITIONS and all(
                at >= ends[number] - 1 for (_, number), (at, _) in found.items()
            )

        wait_for(committed, 90)
        assert all(data for _, data in scene.offsets(group).values())

    def close(self) -> None:
        """Ends the application, which leaves the group after a timeout only."""
        self._streams.close(self._seconds)


@pytest.mark.timeout(600)
def test_groups_of_each_client_keep_every_byte(
    east: Any, west: Any, gateway: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """
    Java's classic and consumer protocol, Kafka Streams with both guarantees, a raw client.

    Groups are followed while their members read on; the others are moved after their members have left.
    """
    scene = Scene(east, west, topic_name, tmp_path, spark_context)
    servers = scene.east["bootstrap.servers"]

    def members(stage: str, at: int, until: ExitStack, *guarantees: str) -> list[str]:
        groups = []
        for protocol in ("classic", "consumer"):
            group = f"{scene.name}.{stage}.{protocol}"
            member = JavaMember(gateway, servers, scene.topic, group, protocol, at)
            until.callback(member.close)
            groups.append(group)
        for guarantee in guarantees:
            group = f"{scene.name}.{stage}.{guarantee}"
            application = StreamsMember(gateway, scene, group, guarantee, tmp_path / stage / guarantee)
            until.callback(application.close)
            groups.append(group)
        raw = raw_groups(f"{scene.name}.{stage}", scene.topic, len(LENGTHS) + 1)
        commit_many(servers, raw)
        return [*groups, *raw]

    with ExitStack() as until:
        followed = members("followed", 20, until, "at_least_once")
        scene.mirror()
        scene.judge(followed)
    with ExitStack() as until:
        imported = members("imported", 40, until, "exactly_once_v2")
    scene.move_with_a_file()
    scene.judge(imported)
    with ExitStack() as until:
        moved = members("moved", 60, until, "at_least_once", "exactly_once_v2")
    scene.await_idle([*followed, *imported, *moved])
    scene.fail_over()
    scene.judge([*followed, *imported, *moved])
    # the application goes on there with the protocol of its own
    for stage in STAGES:
        group = f"{scene.name}.{stage}.consumer"
        JavaMember(gateway, scene.west["bootstrap.servers"], scene.copy, group, "consumer", 90).close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("count", [33, pytest.param(3_000, marks=pytest.mark.slow)])
def test_many_groups_at_once_keep_every_byte(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, count: int
) -> None:
    """
    Of a raw client, with metadata of 0 to 4,000 bytes, and some that is not UTF-8.

    The groups that are failed over are those that were followed, and have read on since.
    """
    scene = Scene(east, west, topic_name, tmp_path, spark_context)
    judged: dict[str, Places] = {}
    for stage, (called, move) in enumerate(
        (("app", scene.mirror), ("imported", scene.move_with_a_file), ("app", scene.fail_over))
    ):
        groups = raw_groups(f"{scene.name}.{called}", scene.topic, count, stage)
        commit_many(scene.east["bootstrap.servers"], groups)
        judged |= groups
        move()
        scene.judge(judged)
