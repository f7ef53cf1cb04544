"""Epoch changes under traffic: nothing is lost, nothing twice, and the lane goes on with what it has."""

from __future__ import annotations

import queue
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from eomirror import Mirror, load_config
from eomirror.driver.link_lanes import LinkLanes
from eomirror.lane.spec import Ending
from eomirror.spark.handover import OVERLAP_SECONDS
from support.links.link import TestLink
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_PARTITIONS = 4


def claims(properties: Any, topic: str) -> list[dict[str, Any]]:
    """Every claim of an attempt that was committed to a positions topic, by lane and epoch."""
    consumer = Consumer({**properties, "group.id": "reader", "enable.partition.eof": True})
    numbers = sorted(consumer.list_topics(topic, timeout=15).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, number, 0) for number in numbers])
    found, waiting = [], set(numbers)
    while waiting:
        for message in consumer.consume(5_000, 0.1):
            if message.error() is not None:
                waiting.discard(message.partition())
            elif "lane" in (key := orjson.loads(message.key())):
                found.append({**key, **orjson.loads(message.value())})
    consumer.close()
    return sorted(found, key=lambda claim: (claim["lane"], claim["epoch"], claim["attempt"]))


def test_a_lane_goes_on_with_its_producer_in_the_next_epoch(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """EO-1, EO-2: short epochs, partitions added meanwhile: an exact copy; mostly, the worker keeps its producer."""
    path = tmp_path / "mirror.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
                "links": [{"name": topic_name, "source": "east", "target": "west", "topics": [topic_name]}],
                # under protocol V2 every transaction has another producer epoch, so claims do not show the producer
                "defaults": {"lanes": 2, "epoch": "5s", "plane": "client"},
            }
        )
    )
    path.chmod(0o600)
    create_topic(east.client_properties, topic_name, _PARTITIONS)
    positions = f"eomirror.{topic_name}.positions"
    mirror = Mirror(load_config(path), spark=spark_context)
    runner = threading.Thread(target=mirror.run)
    runner.start()
    written: dict[int, list[Any]] = {number: [] for number in range(_PARTITIONS + 2)}

    def write(seed: int, partitions: int) -> None:
        more = produce(
            east.client_properties,
            topic_name,
            partitions,
            some_records(seed, 400),
            transactional_id=f"{topic_name}-{seed}",
        )
        for number, records in more.items():
            written[number] += records

    def arrived() -> bool:
        found = read_committed(west.client_properties, f"east.{topic_name}")
        return sum(map(len, found.values())) >= sum(map(len, written.values()))

    try:
        write(70, _PARTITIONS)
        wait_for(arrived, 60)
        admin = AdminClient(dict(east.client_properties))
        admin.create_partitions([NewPartitions(topic_name, _PARTITIONS + 2)])[topic_name].result(30)
        for seed in range(71, 76):
            write(seed, _PARTITIONS + (2 if seed > 72 else 0))
            wait_for(arrived, 60)
        wait_for(lambda: max(c["epoch"] for c in claims(west.client_properties, positions)) > 3, 60)
    finally:
        mirror.stop()
        runner.join(60)

    assert read_committed(west.client_properties, f"east.{topic_name}") == written
    made = claims(west.client_properties, positions)
    assert {claim["attempt"] for claim in made} == {1}
    # Spark gives a task the worker that has been idle for longest, which need not be the lane's: that one begins anew
    changes = [
        (before, after)
        for before, after in pairwise(made)
        if (before["lane"], before["pid"]) == (after["lane"], after["pid"])
    ]
    kept = [
        (before, after)
        for before, after in changes
        if (before["producer_id"], before["producer_epoch"])
        == (after["producer_id"], after["producer_epoch"])
    ]
    assert len(kept) >= len(changes) / 2, f"{len(kept)} of {len(changes)} went on with their producer"


class Between:
    """Holds a lane's driver thread behind the end of an epoch, for as long as the test wants."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.over: queue.Queue[Any] = queue.Queue()
        self.go = threading.Event()
        plain = LinkLanes.attempt_ended

        def held(link: LinkLanes, spec: Any, report: Any, failure: str) -> None:
            plain(link, spec, report, failure)
            if report is not None and report.ending is Ending.EPOCH:
                self.over.put(report)
                self.go.wait(30)

        monkeypatch.setattr(LinkLanes, "attempt_ended", held)


def test_a_lane_mirrors_on_while_no_task_holds_it(
    east: Any,
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """EO-1, EO-2: what is written between an epoch's report and the next task arrives, once, and is counted."""
    link = TestLink(
        east.client_properties,
        west.client_properties,
        topic_name,
        tmp_path,
        spark_context,
        lanes=1,
        epoch="5s",
    )
    link.create("orders")
    between = Between(monkeypatch)
    with link.running() as run:
        link.write("orders", 50)
        run.wait(lambda: link.whole("orders"))
        report = between.over.get(timeout=30)
        link.write("orders", 50)
        # no task is submitted meanwhile
        run.wait(lambda: link.whole("orders"))
        assert claims(link.west, f"eomirror.{topic_name}.positions")[-1]["epoch"] == report.epoch
        between.go.set()
        run.wait(lambda: claims(link.west, f"eomirror.{topic_name}.positions")[-1]["epoch"] > report.epoch)
        link.write("orders", 50)
        run.wait(lambda: link.whole("orders"))
        total = run.end().counters.records
    link.check("orders")
    assert total == sum(map(len, link.written["orders"].values()))


def test_a_run_that_is_over_leaves_no_lane_behind_that_mirrors_on(
    east: Any,
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """EO-10: told to stop between two epochs, the driver fetches the lane before it releases the link."""
    link = TestLink(
        east.client_properties,
        west.client_properties,
        topic_name,
        tmp_path,
        spark_context,
        lanes=1,
        epoch="5s",
    )
    link.create("orders")
    between = Between(monkeypatch)
    with link.running() as run:
        link.write("orders", 50)
        run.wait(lambda: link.whole("orders"))
        report = between.over.get(timeout=30)
        ending = threading.Thread(target=run.end)
        ending.start()
        between.go.set()
        ending.join(60)
    # the worker lives on: the context is the tests'
    link.check("orders")
    before = link.found("orders")
    link.write("orders", 20)
    time.sleep(OVERLAP_SECONDS)
    assert link.found("orders") == before
    last = claims(link.west, f"eomirror.{topic_name}.positions")[-1]
    # the driver heard of the end before or behind its next task: the lane was told over its line, or fetched
    assert last["epoch"] in {report.epoch, report.epoch + 1}
    assert last["attempt"] == 1
