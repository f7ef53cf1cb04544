"""The native plane's Fetch client where leaders move, replicas are closer, and logs are not what they were."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.traffic.records import create_topic, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


class Follower:
    """A process that follows partition 0 of a topic."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def line(self) -> str:
        """The next line; fails when the process has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline().strip()
        assert line, "the reader ended"
        return line

    def read_to(self, start: int, end: int) -> set[int]:
        """Read from one offset to another without a gap or a repetition; tells the brokers it was read from."""
        sources = set()
        while start < end:
            word, base, last, source = self.line().split()
            assert (word, int(base)) == ("records", start)
            start = int(last) + 1
            sources.add(int(source))
        assert start == end
        return sources


@contextmanager
def follow(properties: Mapping[str, str], topic: str, *position: int) -> Iterator[Follower]:
    """Follow a topic until the end of the block."""
    program = ["run", "--quiet", "--package", "eomirror-kafka", "--example", "follow", "--", topic]
    build = [shutil.which("cargo") or "cargo", *program[:-2]]
    build[1] = "build"
    built = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    # the program itself and not cargo, so that it is the one that is ended
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    command = [str(target / "debug" / "examples" / "follow"), topic, *map(str, position)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write("".join(f"{name}={value}\n" for name, value in properties.items()))
        process.stdin.close()
        try:
            yield Follower(process)
        finally:
            process.kill()


def write(properties: Mapping[str, str], topic: str, count: int) -> None:
    """Records that all replicas have."""
    producer = Producer({**properties, "acks": "all", "batch.num.messages": 10, "enable.idempotence": True})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


def test_a_position_beyond_the_log_and_a_topic_that_is_created_anew_stop_with_their_own_reasons(
    east: LocalCluster, topic_name: str
) -> None:
    """What a lane has to tell apart (rules 5 and 6) comes from a real broker in so many words."""
    properties = east.client_properties
    create_topic(properties, topic_name, 1)
    write(properties, topic_name, 30)

    with follow(properties, topic_name, 31) as reader:
        assert reader.line() == "stopped the position is not within the log, which has offsets [0, 30)"

    with follow(properties, topic_name, 20) as reader:
        reader.read_to(20, 30)
        admin = AdminClient(properties)
        admin.delete_topics([topic_name])[topic_name].result(30)
        wait_for(lambda: topic_name not in admin.list_topics(timeout=10).topics)
        create_topic(properties, topic_name, 1)
        said = reader.line()
    # a topic that is gone for longer than brokers may take to learn of one is another outcome
    assert said.startswith("stopped the topic was recreated, its id is ") or said == (
        "stopped the partition does not exist"
    )


@pytest.mark.slow
def test_the_closest_replica_is_read_until_it_goes_and_every_leader_that_follows(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str
) -> None:
    """In three racks nothing is lost or read twice, and a log that ended earlier is noticed (KIP-320, KIP-392)."""
    selector = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    cluster = start_cluster(ClusterSpec("racks", brokers=3, properties=selector))
    properties = {**cluster.client_properties, "client.rack": "rack-2"}
    for broker in cluster.brokers:
        broker.stop()
        with (broker.folder / "server.properties").open("a") as settings:
            settings.write(f"broker.rack=rack-{broker.node_id}\n")
        broker.start()
    admin = AdminClient(properties)
    admin.create_topics([NewTopic(topic_name, 1, replica_assignment=[[1, 2, 3]])])[topic_name].result(30)

    def leader() -> int:
        # a broker that has just started may not know the topic yet
        known = admin.list_topics(topic_name, timeout=10).topics[topic_name].partitions
        return known[0].leader if known else -1

    wait_for(lambda: leader() == 1)
    write(properties, topic_name, 1000)

    with follow(cluster.client_properties, topic_name, 0) as reader:
        assert reader.read_to(0, 1000) == {1}, "without a rack the leader is read"

    with follow({**properties, "fetch.max.bytes": "20000"}, topic_name, 0) as reader:
        assert reader.read_to(0, 1000) == {2}
        cluster.brokers[1].stop()
        write(properties, topic_name, 500)
        assert 1 in reader.read_to(1000, 1500)
        cluster.brokers[1].start()
        cluster.brokers[0].kill()
        wait_for(lambda: leader() in {2, 3})
        write(properties, topic_name, 500)
        assert 1 not in reader.read_to(1500, 2000)

    with follow(properties, topic_name, 1900, 0) as reader:
        assert reader.line().startswith("stopped the log was truncated: leader epoch 0 ended at offset 1")
