"""
Clusters of three brokers, each partition on all of them, under a running mirror (faults F9, F10, F11, F29).

Whatever happens to one broker, another one leads its partitions and coordinates its transactions in a moment, and the
mirror has to follow: no client waits for the first to come back.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import ElectionType, KafkaException
from confluent_kafka.admin import AdminClient

from eomirror import Mirror, load_config
from eomirror.config import Cluster
from eomirror.demo.clients import create_topic
from eomirror.kafka.admin import ClusterAdmin
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.records.names import LinkNames
from support.clusters.rig import Bare, Pair
from support.fix_rig import RECORDS
from support.links.keyed import assert_placed, copied, copied_now, create, keyed_settings, originals, write
from support.links.mirrors import running
from support.links.plane import kafka_of, plane_under_test
from support.links.scene import HEAL_SECONDS, Scene
from support.traffic.records import wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eomirror.localkafka.cluster import Broker
    from support.judges.ledger import Entry

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(1200),
]  # fmt: skip

_TRANSACTIONS = "__transaction_state"
_LOOK_SECONDS = 0.5
_HASTY = {"socket.timeout.ms": "6000"}
# a broker that stands still is missed by its controller first, and librdkafka waits for it for a minute
_MISSED_SECONDS = {"native": HEAL_SECONDS, "client": 150.0}[plane_under_test()]


@dataclass(frozen=True, slots=True)
class Trio(Bare):
    """Three brokers; the judge gives up on one that stands still before the mirror does."""

    admin: AdminClient

    @classmethod
    def of(cls, cluster: LocalCluster) -> Self:
        """With a judge."""
        return cls(cluster, AdminClient({**cluster.client_properties, **_HASTY, "log_level": 0}))

    @property
    def direct(self) -> dict[str, str]:
        """Client properties."""
        return {**self.cluster.client_properties, **_HASTY}

    def leaders(self, topic: str) -> dict[int, int]:
        """Which broker leads each partition; none while no broker can tell.  Not to be asked all the time."""
        time.sleep(_LOOK_SECONDS)
        try:
            found = self.admin.list_topics(topic, timeout=10.0).topics[topic].partitions
        except KafkaException:
            return {}
        return {number: one.leader for number, one in found.items()}

    def coordinator(self, transactional_id: str) -> int:
        """Which broker coordinates it (KIP-98): the leader of the partition that its name falls on."""
        leaders, code = self.leaders(_TRANSACTIONS), 0
        for letter in transactional_id:
            code = (31 * code + ord(letter)) & 0xFFFF_FFFF
        return leaders[(code & 0x7FFF_FFFF) % len(leaders)]

    def await_all(self) -> None:
        """Three brokers that run, whatever a test before has left."""
        for broker in self.cluster.brokers:
            if not broker.running:
                broker.start(timeout=120.0)
        wait_for(lambda: len(self.admin.list_topics(timeout=10.0).brokers) == len(self.cluster.brokers), 60.0)

    def broker(self, number: int) -> Broker:
        """By its node id."""
        return self.cluster.brokers[number - 1]

    def is_whole(self, topic: str) -> bool:
        """Whether all replicas of everything keep up, and those of this topic lead that should."""
        time.sleep(_LOOK_SECONDS)
        try:
            self.admin.elect_leaders(ElectionType.PREFERRED).result(30.0)
            topics = self.admin.list_topics(timeout=10.0).topics
        except (KafkaException, TimeoutError):
            return False
        led = all(one.leader == one.replicas[0] for one in topics[topic].partitions.values())
        partitions = (one for found in topics.values() for one in found.partitions.values())
        return led and all(len(one.isrs) == len(one.replicas) for one in partitions)


@pytest.fixture(scope="module")
def trio() -> Iterator[Trio]:
    """A cluster of three for the tests of this file."""
    with LocalCluster.start(
        ClusterSpec("trio", brokers=3, heap="384m", kafka_version=kafka_of("west")), timeout=240.0
    ) as cluster:
        yield Trio.of(cluster)


@pytest.fixture
def scene_of_three(
    trio: Trio, east: LocalCluster, tmp_path: Path, topic_name: str, spark_context: Any,
    rng: random.Random, entry: Entry,
) -> Iterator[Callable[[str], Scene]]:  # fmt: skip
    """Makes a link of which one side has three brokers."""
    made = []

    def make(side: str) -> Scene:
        trio.await_all()
        one = Bare(east)
        pair = Pair(trio, one) if side == "source" else Pair(one, trio)
        replicas = 3 if side == "source" else 1
        scene = Scene(
            pair, topic_name, seed=rng.getrandbits(32), entry=entry, folder=tmp_path, spark=spark_context,
            replicas=replicas,
        )  # fmt: skip
        made.append(scene)
        return scene

    yield make
    for scene in made:
        scene.close()


def away(scene: Scene, trio: Trio, side: str, number: int) -> bool:
    """Whether this broker leads nothing any more of what the link reads or writes."""
    return bool(found := trio.leaders(topic_of(scene, side))) and number not in found.values()


def topic_of(scene: Scene, side: str) -> str:
    """The topic of the link that lies on this side."""
    return scene.name if side == "source" else scene.copy


@pytest.mark.fault("F9", "F10", "F29")
@pytest.mark.parametrize("side", ["source", "target"])
def test_brokers_are_killed_one_after_the_other(
    scene_of_three: Callable[[str], Scene], trio: Trio, side: str, rng: random.Random
) -> None:
    """Leaders and coordinators move with transactions open, and move back while the mirror runs."""
    scene = scene_of_three(side)
    scene.start()
    topic = topic_of(scene, side)
    numbers = [1, 2, 3]
    rng.shuffle(numbers)
    if side == "target":
        # the lane's coordinator first
        numbers.sort(key=lambda number: number != trio.coordinator(scene.lane_id))
    for number in numbers:
        scene.wait(lambda: trio.is_whole(topic), 90, "not all replicas are back")
        scene.write_for(200)
        # an application would wait for the new leader too, longer perhaps than its transaction may take
        with scene.traffic.held() if side == "source" else contextlib.nullcontext():
            trio.broker(number).kill()
            scene.entry.injected()
            scene.wait(lambda number=number: away(scene, trio, side, number), 90, "no broker takes its place")
        scene.heal()
        scene.write_for(200)
        scene.heal()
        if side == "target":
            assert trio.coordinator(scene.lane_id) != number
        trio.broker(number).start(timeout=120.0)
    scene.wait(lambda: trio.is_whole(topic), 90, "not all replicas are back")
    scene.write_for(RECORDS // 4)
    scene.catch_up()

    scene.judge()


@pytest.mark.fault("F9", "F11")
@pytest.mark.parametrize("how", ["kill", "pause"])
def test_questions_are_not_kept_for_a_broker_that_is_gone(trio: Trio, topic_name: str, how: str) -> None:
    """
    A client that knew a broker as leader and as controller gets its answers when others have taken its place.

    Lanes ask such questions behind every commit that met a new leader, and while they seal.  librdkafka keeps a request
    for the broker that is gone for as long as the request may take, 30 s, and then answers with an error.
    """
    trio.await_all()
    create_topic(trio.direct, topic_name, 3, replicas=3, retention_ms="-1")
    partitions = [(topic_name, number) for number in range(3)]
    cluster = Cluster("trio", dict(trio.cluster.client_properties))
    for number in (1, 2, 3):
        wait_for(lambda: trio.is_whole(topic_name), 90.0)
        asked = ClusterAdmin(cluster, client_id="asks")
        assert set(asked.offsets(partitions, at="latest", read_committed=True).values()) == {0}
        pending = asked.begin_describe([topic_name])
        assert pending.visible(10.0)[0][topic_name] is not None
        broker = trio.broker(number)
        getattr(broker, how)()
        try:
            pending = asked.begin_describe([topic_name])
            wait_for(
                lambda gone=number: (found := trio.leaders(topic_name)) and gone not in found.values(), 90.0
            )
            assert set(asked.offsets(partitions, at="latest", read_committed=True).values()) == {0}
            assert pending.visible(10.0)[0][topic_name] is not None
            assert asked.begin_describe([topic_name]).visible(10.0)[0][topic_name] is not None
            assert asked.topic_configs([topic_name])[topic_name]["retention.ms"].value == "-1"
        finally:
            broker.resume() if how == "pause" else broker.start(timeout=120.0)
            asked.close()


@pytest.mark.fault("F11", "F29")
@pytest.mark.parametrize("side", ["source", "target"])
def test_a_broker_that_stands_still_is_gone_around(
    scene_of_three: Callable[[str], Scene], trio: Trio, side: str
) -> None:
    """Its connections stay open, and no error is sent: a client that waits for an answer asks who leads instead."""
    scene = scene_of_three(side)
    scene.start()
    topic = topic_of(scene, side)
    for turn in range(2):
        scene.wait(lambda: trio.is_whole(topic), 90, "not all replicas are back")
        # once a leader, and once the lane's coordinator, which may be the same one
        leader = trio.leaders(topic)[turn]
        number = trio.coordinator(scene.lane_id) if turn and side == "target" else leader
        broker = trio.broker(number)
        scene.write_for(200)
        try:
            with scene.traffic.held() if side == "source" else contextlib.nullcontext():
                broker.pause()
                scene.entry.injected()
                scene.wait(
                    lambda number=number: away(scene, trio, side, number), 90, "no broker takes its place"
                )
            scene.heal(_MISSED_SECONDS)
            scene.write_for(200, 120.0)
            scene.heal(_MISSED_SECONDS)
        finally:
            broker.resume()
    scene.wait(lambda: trio.is_whole(topic), 90, "not all replicas are back")
    scene.write_for(RECORDS // 4)
    scene.catch_up()

    scene.judge()


@pytest.mark.fault("F9", "F29")
def test_a_keyed_link_follows_its_coordinator(
    trio: Trio, east: LocalCluster, topic_name: str, spark_context: Any
) -> None:
    """The coordinator of a lane that places records by key is killed, twice, with transactions open."""
    trio.await_all()
    config = load_config(keyed_settings(trio.direct, east.client_properties, topic_name))
    create(config, topic_name, replicas=3)
    lane = LinkNames(config.links[1].state_name).transactional_id(0)
    with running(Mirror(config, spark=spark_context)):
        write(config, topic_name, 0, 500)
        wait_for(lambda: copied_now(config, topic_name) > 0, 120)
        for turn in (1, 2):
            wait_for(lambda: trio.is_whole(topic_name), 120)
            number = trio.coordinator(lane)
            write(config, topic_name, 10 * turn, 500)
            trio.broker(number).kill()
            wait_for(lambda number=number: trio.coordinator(lane) not in {number, -1}, 120)
            write(config, topic_name, 10 * turn + 1, 500)
            trio.broker(number).start(timeout=120.0)
        total = len(originals(config, topic_name))
        wait_for(lambda: copied(config, topic_name, total), 240)
    assert assert_placed(config, topic_name) == total
