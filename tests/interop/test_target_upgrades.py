"""A target whose brokers or whose `transaction.version` change under a running link."""

from __future__ import annotations

import subprocess
import sys
from itertools import groupby
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from eomirror.localkafka.cluster import ClusterSpec
from support.clusters.features import TRANSACTIONS, finalize_feature, finalize_release, finalized_feature
from support.clusters.log_files import partition_batches
from support.clusters.rig import Bare
from support.links.plane import plane_under_test
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.localkafka.cluster import LocalCluster
    from support.fix_rig import SceneInto
    from support.links.mirrors import CommandMirror
    from support.links.scene import Scene

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

# docs/adr/0025: a lane hears of another level within 10 s
_HEARD_SECONDS = 60.0


def protocols(cluster: LocalCluster, topic: str) -> list[str]:
    """
    Protocols of the committed transactions of a partition, in order, and each once for as long as it stays.

    A marker of protocol V2 has the epoch of the next transaction.  So has, in both protocols, that of a transaction
    which the coordinator aborts for a new producer.
    """
    found, written = [], {}
    for batch in partition_batches(cluster, topic):
        producer_id, epoch = batch.producer
        if not batch.marker:
            written[producer_id] = epoch
        elif (data := written.pop(producer_id, None)) is not None and batch.marker == "commit":
            found.append("V1" if epoch == data else "V2")
    return [protocol for protocol, _ in groupby(found)]


def producers(scene: Scene) -> int:
    """How many times the coordinator has given the lane an identity by request."""
    log = scene.target.cluster.brokers[0].log_path.read_text("utf-8")
    return log.count(f"Initialized transactionalId {scene.lane_id} ")


def speaks(scene: Scene, expected: list[str]) -> None:
    """Wait until the lane has changed its protocol."""
    topic = scene.copy
    try:
        scene.wait(
            lambda: protocols(scene.target.cluster, topic) == expected, _HEARD_SECONDS, f"not {expected}"
        )
    except AssertionError as error:
        error.add_note(f"found {protocols(scene.target.cluster, topic)}")
        raise


def asked(mirror: CommandMirror, command: str) -> Any:
    """What a command says in JSON."""
    words = [sys.executable, "-m", "eomirror", command, str(mirror.folder / "mirror.yaml"), "-o", "json"]
    return orjson.loads(subprocess.run(words, capture_output=True, check=True, timeout=60).stdout)


def changes(mirror: CommandMirror) -> list[str]:
    """Changes of the protocol in the link's timeline; each is in the log of the run as well."""
    told = [event["text"] for event in asked(mirror, "events")["events"] if event["kind"] == "protocol"]
    found = [text.partition(": ")[0] for text in told]
    assert mirror.log.read_text("utf-8").count("transaction_protocol_changed") >= len(found)
    return found


@pytest.mark.skipif(plane_under_test() == "client", reason="librdkafka has protocol V1 only")
def test_the_protocol_follows_a_feature_that_is_raised_and_lowered(
    start_cluster: Callable[[ClusterSpec], LocalCluster], scene_into: SceneInto
) -> None:
    """Between two transactions, without a new producer or attempt, and nothing is lost or doubled."""
    target = start_cluster(ClusterSpec("features", features={TRANSACTIONS: 1}))
    with scene_into(Bare(target)) as scene:
        mirror = scene.command(lanes=1)
        scene.start(mirror)
        # the move from the driver's worker to Spark has a producer of its own
        scene.wait(lambda: mirror.said("lane_starts") >= 2, 90, "the lane is not on Spark")
        speaks(scene, ["V1"])
        finalize_feature(target, TRANSACTIONS, 2)
        speaks(scene, ["V1", "V2"])
        initialized = producers(scene)
        scene.write_for(300)
        # protocol V1 has one of these behind each transaction, and V2 none
        assert producers(scene) == initialized > 0
        finalize_feature(target, TRANSACTIONS, 1)
        speaks(scene, ["V1", "V2", "V1"])
        scene.wait(lambda: producers(scene) > initialized, _HEARD_SECONDS, "no new identity")
        expected = [
            f"lane 0 uses transaction protocol {one}" for one in ("V2 instead of V1", "V1 instead of V2")
        ]
        scene.wait(lambda: changes(mirror) == expected, _HEARD_SECONDS, f"not {expected}")
        # of the attempt's start: its claim says so
        assert asked(mirror, "status")["links"][0]["lanes"]["0"]["transaction_protocol"] is not None
        scene.catch_up()
        mirror.stop(aborted=True)
        scene.judge(stop=False)
        # the first one begins before Spark is ready
        assert {one["attempt"] for one in scene.positions() if "topic" in one} <= {0, 1}


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_target_is_upgraded_from_3_9_to_4_3(
    start_cluster: Callable[[ClusterSpec], LocalCluster], scene_into: SceneInto
) -> None:
    """Broker after broker, then its features: the link runs on, and nothing is lost or doubled."""
    target = start_cluster(ClusterSpec("upgraded", brokers=3, kafka_version="3.9", heap="384m"))
    with scene_into(Bare(target)) as scene:
        mirror = scene.command(lanes=1)
        scene.start(mirror)
        scene.write_for(500)
        target.set_kafka_version("4.3")
        for broker in target.brokers:
            broker.stop()
            broker.start(timeout=120.0)
            wait_for(lambda: in_sync(target), 120.0)
            scene.write_for(300)
            scene.heal()
        finalize_release(target, "4.3")
        assert finalized_feature(target, TRANSACTIONS) == 2
        if plane_under_test() == "native":
            scene.wait(
                lambda: protocols(target, scene.copy)[-1:] == ["V2"], _HEARD_SECONDS, "protocol V1 stays"
            )
        scene.write_for(500)
        scene.catch_up()
        mirror.stop(aborted=True)
        scene.judge(stop=False)


def in_sync(cluster: LocalCluster) -> bool:
    """Whether all replicas of everything keep up."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    properties: dict[str, Any] = {**cluster.client_properties, "log_level": 0}
    try:
        topics = AdminClient(properties).list_topics(timeout=10.0).topics
    except KafkaException:
        return False
    partitions = (one for found in topics.values() for one in found.partitions.values())
    return all(len(one.isrs) == len(one.replicas) for one in partitions)
