"""
Transactions that no coordinator will end, after the target's coordinators lost what they knew (faults F11, F21).

A copy then stays closed to `read_committed` readers for ever: `status` says so, whether or not a mirror runs.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from eomirror.jvm import find_java
from eomirror.kafka.admin import ClusterAdmin
from eomirror.lane.spec import Ending
from eomirror.localkafka.cluster import ClusterSpec
from eomirror.localkafka.jars import class_path
from eomirror.status.hanging import DEFAULT_LONGEST_MS, HangingTransactions
from eomirror.status.reader import StatusReader
from support.links.left_open_flow import Flow, UntilTold
from support.links.plane import kafka_of
from support.traffic.left_open import UNVERIFIED, Forgetful
from support.traffic.records import produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.localkafka.cluster import LocalCluster
    from eomirror.status.model import LinkStatus

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.fault("F39"), pytest.mark.timeout(300)]


@pytest.fixture
def target(start_cluster: Callable[[ClusterSpec], LocalCluster]) -> LocalCluster:
    """One of this test's own, whose brokers do not ask the coordinator about what is written (KIP-890)."""
    return start_cluster(ClusterSpec("forgetful", properties=UNVERIFIED, kafka_version=kafka_of("west")))


def shown(flow: Flow) -> LinkStatus:
    """What `eomirror status` tells."""
    link = flow.config.links[0]
    clusters = flow.config.clusters["east"], flow.config.clusters["west"]
    reader = StatusReader(link, *clusters, hanging=HangingTransactions)
    try:
        return reader.read()
    finally:
        reader.close()


def lose_transaction_state(cluster: LocalCluster) -> None:
    """The disk of the coordinator's topic is lost; all other topics are as they were."""
    (broker,) = cluster.brokers
    broker.stop()
    lost = list(Path(cluster.folder).glob("broker-*/data/__transaction_state-*"))
    assert lost, "the coordinator has written nothing"
    for folder in lost:
        shutil.rmtree(folder)
    broker.start(timeout=60)


def carry_out(fix: str) -> None:
    """Does what the fix says, with Kafka's own tool."""
    (arguments,) = re.findall(r"^kafka-transactions\.sh ([^;]+)", fix)
    command = [str(find_java()), "-cp", class_path(), "org.apache.kafka.tools.TransactionsCommand"]
    done = subprocess.run(
        [*command, *arguments.split()], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_copy_that_is_closed_for_good_is_told_and_opened_by_the_fix(
    east: LocalCluster, target: LocalCluster, topic_name: str
) -> None:
    """EO-8: the coordinator lost its log under an open transaction of the link, which no coordinator will end."""
    flow = Flow(east, target, topic_name)
    flow.write(30)
    assert flow.run().ending is Ending.STOPPED
    assert not shown(flow).hanging
    flow.write(20)
    lane = flow.leave_open(position=False)
    # its lane ends it when it comes up: that is no problem yet
    assert not shown(flow).hanging

    lose_transaction_state(target)

    (found,) = shown(flow).hanging
    assert (found.topic, found.partition, found.producer_id) == (flow.copy, 0, lane.producer_id)
    report = flow.run()
    assert report.ending is Ending.FAILED
    assert set(report.stopped_topics) == {flow.topic}, "nothing is written that no consumer would read"
    status = shown(flow)
    (again,) = status.hanging
    assert again.start == found.start
    (partition,) = status.partitions
    assert partition.problem == again.problem
    start = again.start
    assert (
        f"{flow.copy}-0 of the target is closed to read_committed readers from offset {start}"
        in partition.problem
    )
    assert "__transaction_state was lost" in partition.problem

    carry_out(partition.fix)

    wait_for(lambda: not shown(flow).hanging)
    assert not shown(flow).partitions[0].problem
    assert flow.run().ending is Ending.STOPPED
    assert flow.found() == [key for key, *_ in flow.written]


def test_a_transaction_of_others_is_told_once_it_has_outlived_the_largest_timeout(
    east: LocalCluster, target: LocalCluster, topic_name: str
) -> None:
    """The link's positions tell for how long: records keep the source's timestamps, which lie years back."""
    flow = Flow(east, target, topic_name)
    flow.write(30)
    assert flow.run().ending is Ending.STOPPED
    stranger = Forgetful(flow.west["bootstrap.servers"], f"{topic_name}.stranger")
    start = stranger.write(flow.copy, 0, [(b"k", b"left open")])
    flow.write(20)
    assert flow.run().ending is Ending.STOPPED
    status = shown(flow)
    assert not status.hanging, "it may end yet"

    link, west = flow.config.links[0], flow.config.clusters["west"]
    admin = ClusterAdmin(west, client_id="test")
    try:
        assert admin.longest_transaction_ms() == DEFAULT_LONGEST_MS
        position = flow.position()
        looks = [
            HangingTransactions(link, west, admin).look(
                [(flow.copy, 0)],
                positions=[position],
                history=[position],
                highest_lane=0,
                now_ms=position.timestamp + age,
            )
            for age in (DEFAULT_LONGEST_MS, DEFAULT_LONGEST_MS + 1)
        ]
    finally:
        admin.close()

    assert looks[0] == []
    (found,) = looks[1]
    assert (found.start, found.producer_id, found.since) == (start, stranger.producer_id, position.timestamp)
    carry_out(found.fix)
    wait_for(lambda: flow.found() == [key for key, *_ in flow.written])


def test_a_healthy_link_under_load_shows_no_hanging_transaction(
    east: LocalCluster, west: LocalCluster, topic_name: str
) -> None:
    """Transactions of the lane are open at most looks, and aborted ones lie in the source."""
    flow = Flow(east, west, topic_name, partitions=2)
    mailbox = UntilTold()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(flow.run, mailbox=mailbox)
        try:
            for seed in range(8):
                produce(
                    flow.east, flow.topic, 2, some_records(seed, 200), transactional_id=flow.topic,
                    per_transaction=20, abort_every=4,
                )  # fmt: skip
                status = shown(flow)
                assert not status.hanging
                assert not any(one.problem for one in status.partitions)
        finally:
            mailbox.told.set()
        assert running.result(60).ending is Ending.STOPPED
