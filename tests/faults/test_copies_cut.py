"""
Copies that lose records which the target had acknowledged (fault F20): the topic stops before a wrong record commits.

A broker whose disk is put back to an older state loses the end of its logs, as after a power failure; one of three that
is elected although it was not in sync loses what the others had.  A lane that runs must notice it like one that starts.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ElectionType, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.clusters.older_logs import Logs
from support.links.link import TestLink
from support.links.plane import kafka_of
from support.traffic.records import produce, read_committed, some_records, wait_for, watermarks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.judges.ledger import Entry

pytestmark = [
    pytest.mark.faults, pytest.mark.link(injected=True), pytest.mark.fault("F20"), pytest.mark.integration,
    pytest.mark.spark, pytest.mark.timeout(600),
]  # fmt: skip

# a lane looks once a minute at the copies that it does not write
_IDLE_SECONDS = 150.0
_WORDS = "truncated or restored from an older state"


@pytest.fixture(scope="module")
def fragile() -> Iterator[LocalCluster]:
    """A target whose logs are put back to what they were."""
    with LocalCluster.start(ClusterSpec("brittle", kafka_version=kafka_of("west"))) as cluster:
        yield cluster


@pytest.fixture
def link_target(fragile: LocalCluster) -> LocalCluster:
    """Links write to that cluster."""
    return fragile


def test_a_copy_that_is_cut_under_a_running_lane_that_writes(
    link: TestLink, fragile: LocalCluster, tmp_path: Path
) -> None:
    """EO-5: the first record behind the cut does not commit; exit code 4 with the range; other topics go on."""
    logs = Logs(fragile, tmp_path)
    link.create("lost", "healthy")
    for word in ("lost", "healthy"):
        link.write(word)
    link.catch_up()
    older = link.found("lost")
    logs.save(link.copy("lost"))
    _, end = watermarks(link.west, link.copy("lost"))
    with link.running() as run:
        # what is lost is all that the lane's producer has written there, so that no sequence number gives it away
        for word in ("lost", "healthy"):
            link.write(word)
        run.wait(lambda: link.whole("lost", "healthy"))
        logs.restore(link.copy("lost"))
        # more than was lost
        link.write("lost", 900)
        link.write("healthy")
        run.wait(lambda: link.whole("healthy"), 120)
        run.wait(lambda: link.topic("lost") in run.stopped, 60)
        text = run.stopped[link.topic("lost")]
    assert _WORDS in text
    # what a supervisor gets for a mirror that it stops
    assert run.report.exit_code == 4
    named = re.search(r"records \[(\d+), (\d+)\] of", text)
    assert named is not None
    # behind the cut there may be markers that the coordinator brought meanwhile
    first, last = map(int, named.groups())
    assert end <= first <= end + 2 < last
    assert f"--resume-at {link.topic('lost')}-0=" in text
    # what was put behind the cut is aborted: its end comes with the lane's next transaction at the latest
    wait_for(lambda: read_committed(link.west, link.copy("lost")) == older, 60)

    code, stopped = link.stopped()

    assert code == 4
    assert set(stopped) == {"lost"}
    assert read_committed(link.west, link.copy("lost")) == older
    link.check("healthy")


def test_a_copy_that_is_cut_under_a_lane_at_rest(
    link: TestLink, fragile: LocalCluster, tmp_path: Path
) -> None:
    """EO-5: nothing is written, and the topic stops within about a minute; other topics go on."""
    logs = Logs(fragile, tmp_path)
    link.create("lost", "healthy")
    for word in ("lost", "healthy"):
        link.write(word)
    with link.running() as run:
        run.wait(lambda: link.whole("lost", "healthy"))
        logs.save(link.copy("lost"))
        for word in ("lost", "healthy"):
            link.write(word)
        run.wait(lambda: link.whole("lost", "healthy"))
        logs.restore(link.copy("lost"))
        run.wait(lambda: link.topic("lost") in run.stopped, _IDLE_SECONDS)
        assert _WORDS in run.stopped[link.topic("lost")]
        link.write("healthy")
        run.wait(lambda: link.whole("healthy"), 60)
    assert link.stopped()[0] == 4
    link.check("healthy")


def test_a_copy_that_was_cut_and_has_grown_on(link: TestLink, fragile: LocalCluster, tmp_path: Path) -> None:
    """EO-5: longer than the position again, with records of others; beside one that others only wrote behind."""
    logs = Logs(fragile, tmp_path)
    link.create("lost", "shared")
    for word in ("lost", "shared"):
        link.write(word)
    link.catch_up()
    logs.save(link.copy("lost"))
    for word in ("lost", "shared"):
        link.write(word)
    link.catch_up()
    logs.restore(link.copy("lost"))
    for word in ("lost", "shared"):
        produce(link.west, link.copy(word), 1, some_records(1, 900), transactional_id=f"{link.name}-foreign")
        link.write(word)
    before = read_committed(link.west, link.copy("lost"))

    code, stopped = link.stopped()

    assert code == 4
    assert set(stopped) == {"lost"}
    assert _WORDS in stopped["lost"]
    assert read_committed(link.west, link.copy("lost")) == before


@pytest.mark.parametrize(
    "filled", [pytest.param(3, id="shorter", marks=pytest.mark.slow), pytest.param(900, id="longer")]
)
def test_a_copy_that_is_cut_and_filled_under_a_lane_at_rest(
    link: TestLink, fragile: LocalCluster, tmp_path: Path, filled: int
) -> None:
    """EO-5: the next transaction finds a new leader, and does not replace the position that tells what was lost."""
    logs = Logs(fragile, tmp_path)
    link.create("lost", "healthy")
    for word in ("lost", "healthy"):
        link.write(word, 100)
    with link.running() as run:
        run.wait(lambda: link.whole("lost", "healthy"))
        logs.save(link.copy("lost"))
        for word in ("lost", "healthy"):
            link.write(word, 100)
        run.wait(lambda: link.whole("lost", "healthy"))
        logs.restore(link.copy("lost"))
        produce(link.west, link.copy("lost"), 1, some_records(1, filled), transactional_id=f"{link.name}-app")
        before = read_committed(link.west, link.copy("lost"))
        for word in ("lost", "healthy"):
            link.write(word, 10)
        run.wait(lambda: link.topic("lost") in run.stopped, _IDLE_SECONDS)
        assert _WORDS in run.stopped[link.topic("lost")]
        run.wait(lambda: link.whole("healthy"), 60)
    assert link.stopped()[0] == 4
    assert read_committed(link.west, link.copy("lost")) == before
    link.check("healthy")


@pytest.mark.slow
def test_a_replica_that_was_not_in_sync_is_elected_while_the_lane_rests(
    east: Any, topic_name: str, tmp_path: Path, spark_context: Any, entry: Entry
) -> None:
    """EO-5: acknowledged records are gone with the broker that had them; the topic stops by name."""
    with LocalCluster.start(
        ClusterSpec("unclean", brokers=3, heap="384m", kafka_version=kafka_of("west")), timeout=240.0
    ) as trio:
        link = TestLink(
            east.client_properties, trio.client_properties, topic_name, tmp_path, spark_context, entry
        )
        admin = AdminClient(link.west)
        link.create("lost", "healthy")
        # broker 1 leads, broker 2 falls behind; brokers 1 and 3, or 2 and 3, are a majority of the controllers
        copy = NewTopic(
            link.copy("lost"), 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "1"}
        )
        admin.create_topics([copy])[link.copy("lost")].result(30)
        link.write("lost", 100)
        link.write("healthy", 100)
        with link.running() as run:
            run.wait(lambda: link.whole("lost", "healthy"), 120)
            trio.brokers[1].kill()
            wait_for(lambda: in_sync(admin, link.copy("lost")) == {1}, 90)
            link.write("lost", 300)
            run.wait(lambda: link.whole("lost"), 120)
            trio.brokers[0].kill()
            trio.brokers[1].start(timeout=120.0)
            entry.injected()
            elect(admin, link.copy("lost"))
            run.wait(lambda: link.topic("lost") in run.stopped, _IDLE_SECONDS)
            assert _WORDS in run.stopped[link.topic("lost")]
            link.write("healthy", 100)
            run.wait(lambda: link.whole("healthy"), 120)


def in_sync(admin: AdminClient, topic: str) -> set[int]:
    """Replicas of a topic's only partition that are in sync."""
    return set(admin.list_topics(topic, timeout=10.0).topics[topic].partitions[0].isrs)


def elect(admin: AdminClient, topic: str) -> None:
    """Elects whichever replica there is."""

    def elected() -> bool:
        try:
            found = admin.elect_leaders(ElectionType.UNCLEAN, [TopicPartition(topic, 0)]).result(30.0)
        except KafkaException:
            return False
        return all(error is None for error in found.values())

    wait_for(elected, 60)
