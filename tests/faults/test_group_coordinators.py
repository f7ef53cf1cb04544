"""
Group coordinators that move or are cut off while groups are followed (faults F9, F12).

librdkafka 2.16 crashes in both (`eomirror.kafka.consumer_groups_proxy`): with the AdminClient in the mirror's process,
the first cut that outlasts a request ends this test run with SIGSEGV.
"""

from __future__ import annotations

import functools
import logging
import threading
from typing import TYPE_CHECKING

import pytest
import structlog
from confluent_kafka import Consumer, TopicPartition

from eomirror.config import Cluster, load_config
from eomirror.demo.clients import create_topic
from eomirror.errors import ClusterError
from eomirror.kafka.consumer_groups import Committed, GroupCoordinators
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.localkafka.spec import ClusterSpec
from support.links.plane import kafka_of
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.localkafka.cluster import LocalCluster
    from support.clusters.rig import Rig
    from support.judges.ledger import Entry

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.faults, pytest.mark.integration]

_GROUPS = 20
# a request that a cut outlasts
_SECONDS = 1.0
_CUT_SECONDS = 3.0
_MOST_CUTS = 8


def cluster_of(properties: Mapping[str, str]) -> Cluster:
    """A cluster as a configuration has it; the other one is not asked."""
    names = {"bootstrap.servers": properties["bootstrap.servers"]}
    link = {"source": "east", "target": "west", "topics": ["t"]}
    return load_config({"clusters": {"east": names, "west": names}, "links": [link]}).clusters["east"]


def stand(properties: Mapping[str, str], topic: str) -> dict[str, dict[tuple[str, int], int]]:
    """Twenty idle groups, each with an offset of its own."""
    create_topic(properties, topic, 1)
    standing = {}
    for number in range(_GROUPS):
        group = f"{topic}.{number}"
        consumer = Consumer({**properties, "group.id": group, "enable.auto.commit": False})
        consumer.commit(offsets=[TopicPartition(topic, 0, 100 + number)], asynchronous=False)
        consumer.close()
        standing[group] = {(topic, 0): 100 + number}
    return standing


class Looking(threading.Thread):
    """Looks where groups stand, again and again; counts the deaths that it survived."""

    def __init__(self, cluster: Cluster, standing: Mapping[str, Mapping[tuple[str, int], int]]) -> None:
        super().__init__(daemon=True)
        self.asked = threading.Event()
        self.rounds = 0
        self.deaths = 0
        self.wrong: list[str] = []
        self._standing = standing
        self._groups = ClusterGroups(
            cluster, client_id="test", coordinators=functools.partial(GroupCoordinators, seconds=_SECONDS)
        )

    def run(self) -> None:
        """Until asked to stop."""
        with structlog.testing.capture_logs() as lines:
            while not self.asked.wait(0.05):
                self._look()
                self.deaths = sum(line["event"] == "group_request_retried" for line in lines)
        self._groups.close()

    def await_round(self, seconds: float) -> None:
        """Until it has looked once more, and rightly."""
        before = self.rounds
        wait_for(lambda: self.rounds > before, seconds=seconds)

    def finish(self, seconds: float) -> None:
        """It looks once more and ends, and nothing that it saw was wrong."""
        self.await_round(seconds)
        self.asked.set()
        self.join(60.0)
        log.info("librdkafka ended its process %d times", self.deaths)
        assert not self.is_alive()
        assert not self.wrong

    def _look(self) -> None:
        answers = dict(self._groups.read_offsets(sorted(self._standing)))
        if any(isinstance(answer, str) for answer in answers.values()):
            return  # not known this time, and said so
        found = {
            group: {where: one.offset for where, one in answer.items()}
            for group, answer in answers.items()
            if not isinstance(answer, str)
        }
        if found != self._standing:
            self.wrong.append(f"{found}")
        self.rounds += 1


@pytest.mark.fault("F12")
def test_a_coordinator_that_is_cut_off_for_longer_than_a_request_takes_no_group_with_it(
    rig: Rig, topic_name: str, entry: Entry
) -> None:
    """Requests time out while the coordinator is gone; when it is back groups are read again, and rightly."""
    standing = stand(rig.source.direct, topic_name)
    looking = Looking(cluster_of(rig.source.proxied), standing)
    looking.start()
    for _ in range(_MOST_CUTS):
        looking.await_round(60.0)
        rig.source.proxy.cut(refuse_seconds=_CUT_SECONDS)
        entry.injected()
        looking.asked.wait(_CUT_SECONDS)
        if looking.deaths:
            break
    looking.finish(60.0)


@pytest.mark.fault("F9")
def test_a_coordinator_that_was_restarted_is_asked_with_a_new_client(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str, entry: Entry
) -> None:
    """Every connection to it is gone: commands have their answers nevertheless, and commit offsets."""
    cluster = start_cluster(ClusterSpec("restarted", kafka_version=kafka_of("west")))
    standing = stand(cluster.client_properties, topic_name)
    (group, *_) = standing
    groups = ClusterGroups(cluster_of(cluster.client_properties), client_id="test")

    def restart() -> None:
        cluster.brokers[0].kill()
        entry.injected()
        cluster.brokers[0].start()

    assert groups.states([group])[group].idle
    restart()
    assert groups.states([group])[group].idle
    restart()
    wanted = {group: [(topic_name, 0, 7, "")]}

    def taken() -> bool:
        """As a failover commits them: again if librdkafka ended the process."""
        try:
            return groups.write_all(wanted) == {group: ""}
        except ClusterError as error:
            log.info("not committed: %s", error)
            return False

    wait_for(taken, seconds=60.0)
    assert groups.committed([group]) == {group: {(topic_name, 0): Committed(7)}}
    groups.close()


@pytest.mark.slow
@pytest.mark.fault("F9")
@pytest.mark.timeout(600)
def test_groups_are_followed_while_coordinators_move(
    start_cluster: Callable[[ClusterSpec], LocalCluster], topic_name: str, entry: Entry
) -> None:
    """Each broker of two is killed and comes back, as in a rolling restart; then an idle group is moved, once."""
    cluster = start_cluster(ClusterSpec("rolling", brokers=2, kafka_version=kafka_of("west")))
    standing = stand(cluster.client_properties, topic_name)
    looking = Looking(cluster_of(cluster.client_properties), standing)
    looking.start()
    for broker in (*cluster.brokers, *cluster.brokers):
        looking.await_round(120.0)
        broker.kill()
        entry.injected()
        looking.asked.wait(_CUT_SECONDS)
        broker.start()
    looking.finish(120.0)
    groups = ClusterGroups(cluster_of(cluster.client_properties), client_id="test")
    moved = min(standing)
    assert groups.write(moved, {(topic_name, 0): Committed(7, "here")}) == ""
    assert groups.committed([moved]) == {moved: {(topic_name, 0): Committed(7, "here")}}
    groups.close()
