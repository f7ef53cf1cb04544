"""
What applications see while their cluster is lost, or left, and an address that leads to the other one moves them.

The clients keep running.  Their `bootstrap.servers` is a port that led to the source and leads to the target after the
failover; names of topics are equal.  What each sees is printed, and is the table in docs/disaster-recovery.md.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from eomirror import Mirror
from eomirror.localkafka.cluster import ClusterSpec
from support.clusters.client_jars import old_clients, streams
from support.links.disaster import Disaster
from support.links.mirrors import running
from support.links.moving.java import java_gateway
from support.traffic.records import create_topic, read_committed, wait_for
from support.traffic.switched_clients import Address, JavaApplication, LibrdkafkaApplication, seconds_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.traffic.switched_clients import Application

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

_MOVED_SECONDS = 90.0
# as long as the slowest client that moves on its own took, and more
_STAYS_SECONDS = 30.0
_MOVERS = ("Java 4.3", "Java 3.9 rebootstrap", f"librdkafka {confluent_kafka.libversion()[0]}")
_REBOOTSTRAP = {"metadata.recovery.strategy": "rebootstrap"}


@pytest.mark.timeout(900)
def test_clients_that_rebootstrap_move_without_a_restart_and_skip_nothing(
    start_cluster: Callable[[ClusterSpec], Any],
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
) -> None:
    """
    Consumers of Java 4, of 3.9 with one setting, and of librdkafka read on; older ones and Java's producers restart.

    Every consumer reads every committed record of the target at least once, before or after the failover.  After a
    restart every producer's record is there exactly once.
    """
    lost = start_cluster(ClusterSpec("lost", heap="384m"))
    scene = Disaster(
        lost.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=True, partitions=1, back=False,
    )  # fmt: skip
    scene.write("east", 20)
    with ExitStack() as stack:
        address = Address(_port(lost))
        stack.callback(address.close)
        applications = _applications(stack, f"127.0.0.1:{address.port}", scene)
        seen = {one.name: _Seen(one) for one in applications}
        for each in seen.values():
            stack.callback(each.application.close)
            assert seconds_until(lambda each=each: len(each.poll()) >= 18, 60)
            assert each.application.send(f"{each.name} before") == ""
        for each in seen.values():
            seconds_until(lambda each=each: len(each.poll()) >= 18 + len(seen), 10)
        moved, stayed = _fail_over(scene, lost, west, address, seen)
        for each in seen.values():
            each.application.close()
            each.application.restart()
            each.restarted = [each.application.send(f"{each.name} restarted {n}") for n in range(3)]
        wanted = _values(scene)
        for each in seen.values():
            each.caught = seconds_until(lambda each=each: wanted <= each.poll(), _MOVED_SECONDS)
        there = [(record[1] or b"").decode() for records in scene.read("west").values() for record in records]
    for each in seen.values():
        print(each)  # noqa: T201  the table
        print("  on the target:", [value for value in there if value.startswith(each.name)])  # noqa: T201  as above
    for name in _MOVERS:
        assert seen[name].moved is not None, f"{name} skipped {sorted(moved - seen[name].read)}"
    assert all(stayed.values()), stayed
    for each in seen.values():
        # what was read behind the last checkpoint is read again; no record is skipped
        assert each.caught is not None, f"{each.name} skipped {sorted(wanted - each.read)}"
        assert each.dead != ""
        assert each.restarted == ["", "", ""]
        assert [there.count(f"{each.name} restarted {n}") for n in range(3)] == [1, 1, 1]
    java, other = seen["Java 4.3"], seen[_MOVERS[-1]]
    # if its producer id belongs to a lane on the target, of a later epoch
    assert all(answer == "" or "InvalidProducerEpoch" in answer for answer in java.after)
    assert other.after == ["", "", ""]
    assert [there.count(f"{other.name} after {n}") for n in range(3)] == [1, 1, 1]


def _fail_over(
    scene: Disaster, lost: Any, west: Any, address: Address, seen: dict[str, _Seen]
) -> tuple[set[str], dict[str, bool]]:
    """Fails over under the running applications; returns what they must read, and which of the others stayed."""
    scene.catch_up()
    scene.follow(len(seen))
    for broker in lost.brokers:
        broker.kill()
    for each in seen.values():
        each.poll()
        each.dead = each.application.send(f"{each.name} dead")
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    address.upstream = _port(west)
    scene.write("west", 10)
    wanted = _values(scene)
    for name in _MOVERS:
        each = seen[name]
        each.moved = seconds_until(lambda each=each: wanted <= each.poll(), _MOVED_SECONDS)
    stayers = [seen[name] for name in seen.keys() - set(_MOVERS)]
    seconds_until(lambda: [each.poll() for each in stayers] == [], _STAYS_SECONDS)
    for each in seen.values():
        each.after = [each.application.send(f"{each.name} after {n}") for n in range(3)]
    return wanted, {each.name: not any(value.startswith("west-") for value in each.read) for each in stayers}


class _Seen:
    """What one application sees at each stage."""

    def __init__(self, application: Application) -> None:
        self.application, self.name = application, application.name
        self.read: set[str] = set()
        self.again = 0
        self.moved: float | None = None
        self.caught: float | None = None
        self.dead = ""
        self.after: list[str] = []
        self.restarted: list[str] = []

    def poll(self) -> set[str]:
        """Everything that it has read; an exception counts as read, too."""
        try:
            values = self.application.poll()
        except Exception as error:  # noqa: BLE001  it is a part of what the application sees
            values = [f"raised {error}"[:200]]
        self.again += len(self.read.intersection(values))
        self.read.update(values)
        return self.read

    def __str__(self) -> str:
        raised = sorted(value for value in self.read if value.startswith("raised"))
        return (
            f"{self.name}: moved {self.moved}, caught up after its restart {self.caught}, read again {self.again}, "
            f"raised {raised}; producer: dead {self.dead!r}, after {self.after}, restarted {self.restarted}"
        )


def _applications(stack: ExitStack, servers: str, scene: Disaster) -> list[Application]:
    made: list[Application] = []
    for name, path, settings in (
        ("Java 4.3", "", {}),
        ("Java 3.9", "", {}),
        ("Java 3.9 rebootstrap", "", _REBOOTSTRAP),
        ("Java 3.4", old_clients(), {}),
    ):
        gateway = stack.enter_context(java_gateway(name.split()[1] if not path else "", class_path=path))
        group = f"{scene.name}-{name.replace(' ', '-')}"
        made.append(JavaApplication(gateway, name, servers, scene.topic, group, settings=settings))
    version = confluent_kafka.libversion()[0]
    made.append(LibrdkafkaApplication(version, servers, scene.topic, f"{scene.name}-librdkafka"))
    return made


def _values(scene: Disaster) -> set[str]:
    return {(record[1] or b"").decode() for records in scene.read("west").values() for record in records}


@pytest.mark.timeout(300)
def test_an_idempotent_producer_that_is_moved_without_a_restart_may_lose_an_acknowledged_record(
    start_cluster: Callable[[ClusterSpec], Any], topic_name: str
) -> None:
    """
    Clusters give out the same producer ids: the broker takes a new record for a repeated one, and acknowledges it.

    No mirror can prevent that, so the documentation asks for a restart of idempotent producers.  After one it is there.
    """
    first, second = (start_cluster(ClusterSpec(name, heap="384m")) for name in ("first", "second"))
    for cluster in (first, second):
        create_topic(cluster.client_properties, topic_name, 1)
    with ExitStack() as stack:
        address = Address(_port(first))
        stack.callback(address.close)
        gateway = stack.enter_context(java_gateway("4.3"))
        moved = JavaApplication(
            gateway, "moved", f"127.0.0.1:{address.port}", topic_name, f"{topic_name}-moved"
        )
        stack.callback(moved.close)
        assert moved.send("moved 0") == ""
        # each of these has the next producer id of the second cluster: one has that of the first
        there = [
            JavaApplication(
                gateway, f"there {n}", second.client_properties["bootstrap.servers"], topic_name, f"{topic_name}-{n}"
            )
            for n in range(4)
        ]  # fmt: skip
        for one in there:
            stack.callback(one.close)
            assert [one.send(f"{one.name} {n}") for n in range(2)] == ["", ""]
        for broker in first.brokers:
            broker.kill()
        address.upstream = _port(second)
        answers: list[str] = []

        def acknowledged() -> bool:
            # long enough that no record stays behind in the producer, and another one follows
            answers.append(moved.send("moved 1", seconds=60))
            return answers[-1] == ""

        assert seconds_until(acknowledged, 120) is not None, answers
        before = _texts(second, topic_name)
        moved.close()
        moved.restart()
        assert moved.send("moved 2") == ""
        after = _texts(second, topic_name)
    assert "moved 1" not in before, f"it was written after {answers}"
    assert after.count("moved 2") == 1


def _texts(cluster: Any, topic: str) -> list[str]:
    (records,) = read_committed(cluster.client_properties, topic).values()
    return [(record[1] or b"").decode() for record in records]


@pytest.mark.timeout(400)
def test_kafka_streams_continues_exactly_when_it_was_closed_before_a_planned_promotion(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Input, changelog, output and the offsets of the application are of one moment: no record is counted twice."""
    scene = _StreamsScene(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=True, partitions=1, back=False,
    )  # fmt: skip
    out = f"{scene.name}.out"
    create_topic(scene.east, out, 1)
    scene.write("east", 70)
    with java_gateway(class_path=streams()) as gateway:
        with _counting(gateway, scene, "east", out, tmp_path / "first"):
            wait_for(lambda: _counts(scene.east, out) == _keys(scene, "east"), 90)
        with running(Mirror(scene.config(), spark=spark_context, links=[scene.name])):
            code, found, said = scene.command("promote", "--yes")
            assert code == 0, said
        assert {move["kind"] for move in found["groups"]} <= {"exact", "next"}, found["groups"]
        scene.write("west", 70)
        with _counting(gateway, scene, "west", out, tmp_path / "second"):
            wait_for(lambda: sum(_counts(scene.west, out).values()) >= sum(_keys(scene, "west").values()), 90)
    assert _counts(scene.west, out) == _keys(scene, "west")
    assert read_committed(scene.west, f"{scene.name}.app-counts-changelog")


class _StreamsScene(Disaster):
    """With the topics of a Kafka Streams application, whose id is its group."""

    def settings(self, *, lost: bool = False) -> dict[str, Any]:
        found = super().settings(lost=lost)
        found["links"][0]["topics"] = [f"{self.name}\\..*"]
        return found


class _counting:  # noqa: N801  used like a function
    """An application that counts records by key, exactly once, while the block runs."""

    def __init__(self, gateway: Any, scene: Disaster, side: str, out: str, folder: Path) -> None:
        kafka, self._duration = gateway.jvm.org.apache.kafka, gateway.jvm.java.time.Duration
        text, number = kafka.common.serialization.Serdes.String(), kafka.common.serialization.Serdes.Long()
        stream = kafka.streams.kstream
        store = kafka.streams.state.Stores.inMemoryKeyValueStore("counts")
        builder = kafka.streams.StreamsBuilder()
        (
            builder.stream(scene.topic, getattr(stream.Consumed, "with")(text, text))
            .groupByKey()
            .count(getattr(stream.Materialized, "as")(store).withKeySerde(text))
            .toStream()
            .to(out, getattr(stream.Produced, "with")(text, number))
        )
        settings = gateway.jvm.java.util.Properties()
        for name, value in {
            "application.id": f"{scene.name}.app", "processing.guarantee": "exactly_once_v2",
            "bootstrap.servers": (scene.east if side == "east" else scene.west)["bootstrap.servers"],
            "state.dir": str(folder), "replication.factor": "1", "commit.interval.ms": "100",
        }.items():  # fmt: skip
            settings.setProperty(name, value)
        self._streams = kafka.streams.KafkaStreams(builder.build(), settings)

    def __enter__(self) -> None:
        self._streams.start()

    def __exit__(self, *_: object) -> None:
        self._streams.close(self._duration.ofSeconds(30))


def _counts(properties: Any, topic: str) -> dict[bytes, int]:
    """The last count of each key."""
    (records,) = read_committed(properties, topic).values()
    return {record[0]: int.from_bytes(record[1], "big") for record in records}


def _keys(scene: Disaster, side: str) -> dict[bytes, int]:
    """The number of records of each key, as a plain client reads them."""
    found: dict[bytes, int] = {}
    for records in scene.read(side).values():
        for record in records:
            found[record[0] or b""] = found.get(record[0] or b"", 0) + 1
    return found


def _port(cluster: Any) -> int:
    return int(cluster.bootstrap_servers.split(",")[0].rpartition(":")[2])
