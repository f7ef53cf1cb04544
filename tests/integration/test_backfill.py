"""`eomirror backfill` on real brokers: killed, resumed, handed to `run`, and beside a mirror that stands by."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eomirror import load_config
from eomirror.groups.offset_queries import translate
from eomirror.status.reader import StatusReader
from eomirror.verify.runner import Verifier
from support.links.mirrors import CommandMirror
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, read_committed, wait_for, watermarks
from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping
    from pathlib import Path

    from eomirror.config import Config
    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

#: Records of each partition at the start: the first has as many as the others together.
_PAST = (12_000, 6_000, 6_000)
_POINTS = ("lane.produced", "lane.flushed", "lane.state_written", "lane.committed")


class LiveProducer(WorkerThread):
    """An application: writes the past at once, and goes on in its thread."""

    def __init__(self, properties: Mapping[str, Any], topic: str, rng: random.Random, *, size: int) -> None:
        super().__init__(f"write {topic}")
        self._producer = Producer({**properties, "enable.idempotence": True, "linger.ms": 5})
        self._topic = topic
        # half of it compresses
        self._value = rng.randbytes(size // 2) + bytes(size - size // 2)
        self._numbers = [0] * len(_PAST)

    def write(self, partition: int, count: int) -> None:
        """Writes so many records, each with its number as key."""
        for _ in range(count):
            number = self._numbers[partition]
            self._numbers[partition] += 1
            self._producer.produce(
                self._topic, self._value, b"%d" % number, partition, timestamp=1_700_000_000_000 + number
            )
            if number % 10_000 == 0:
                self._producer.poll(0)

    def flush(self) -> None:
        """Waits until all is acknowledged."""
        assert self._producer.flush(60) == 0

    def work(self) -> None:
        """Writes some hundred records a second."""
        while not self.asked.wait(0.02):
            for partition in range(len(_PAST)):
                self.write(partition, 5)
            self.flush()


def settings(east: LocalCluster, west: LocalCluster, name: str) -> dict[str, Any]:
    """A link of one topic and one lane."""
    return {
        "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
        "links": [
            {
                "name": name, "source": "east", "target": "west", "topics": [name], "plane": plane_under_test(),
                "lanes": 1,
            }
        ],
    }  # fmt: skip


def lanes_and_positions(config: Config) -> tuple[list[int], list[int]]:
    """Lane and position of each partition, from the target's topics."""
    (link,) = config.links
    reader = StatusReader(link, config.clusters["east"], config.clusters["west"])
    try:
        parts = sorted(reader.read().partitions, key=lambda part: part.partition)
    finally:
        reader.close()
    return [part.lane for part in parts], [part.position for part in parts]


def verdict(config: Config) -> Any:
    """What `verify` finds."""
    (link,) = config.links
    verifier = Verifier(link, config.clusters["east"], config.clusters["west"])
    try:
        return verifier.run()
    finally:
        verifier.close()


def key_at(properties: Mapping[str, Any], topic: str, partition: int, offset: int) -> bytes | None:
    """Key of the record at this very offset; None if a marker or nothing is there."""
    consumer = Consumer({**properties, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, offset)])
        (message,) = consumer.consume(1, 30)
        assert message.error() is None
        return bytes(message.key()) if message.offset() == offset else None
    finally:
        consumer.close()


def killed_twice(raw: Mapping[str, Any], folder: Path, rng: random.Random, *, most: int) -> None:
    """Starts a backfill twice, and kills all of it when a lane passes a seeded point."""
    for number in range(2):
        flag = folder / f"killed-{number}"
        point = f"{rng.choice(_POINTS)}:{rng.randint(1, most)}"
        mirror = CommandMirror(
            raw,
            folder / f"backfill-{number}",
            "--lanes",
            "2",
            command="backfill",
            environment={"EOMIRROR_CRASH_POINT": f"{point}@{flag}"},
        )
        try:
            mirror.start()
            wait_for(flag.exists, 60)
            mirror.check()
            mirror.kill()
        finally:
            mirror.close()


def backfilled(raw: Mapping[str, Any], folder: Path, *arguments: str, seconds: float = 120) -> dict[str, Any]:
    """Runs a backfill to its end; its report."""
    mirror = CommandMirror(raw, folder, *arguments, "-o", "json", command="backfill")
    try:
        mirror.start()
        assert mirror.await_exit(seconds) == 0, mirror.tree.last_lines()
        text = mirror.log.read_text("utf-8", errors="replace")
    finally:
        mirror.close()
    # lines of the log stand around the report, which is the only value that is indented
    report: dict[str, Any] = json.JSONDecoder().raw_decode(text, text.rindex("\n{\n") + 1)[0]
    return report


def test_a_backfill_that_is_killed_twice_goes_on_and_leaves_the_rest_to_run(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """
    EO-1, EO-2: nothing is missing, nothing is there twice, each partition is in order, and offsets translate.

    Producers go on all the time.  The largest partition has a lane of its own; `run` has another number of lanes.
    """
    raw, copy = settings(east, west, topic_name), f"east.{topic_name}"
    config = load_config(raw)
    create_topic(east.client_properties, topic_name, len(_PAST))
    producer = LiveProducer(east.client_properties, topic_name, rng, size=600)
    for partition, count in enumerate(_PAST):
        producer.write(partition, count)
    producer.flush()
    with producer:
        killed_twice(raw, tmp_path, rng, most=3)
        report = backfilled(raw, tmp_path / "last", "--lanes", "2")
        (link,) = report["links"]
        assert (link["outcome"], link["offsets_left"]) == ("caught up", 0)
        lanes, positions = lanes_and_positions(config)
        assert lanes[0] not in lanes[1:]
        assert lanes[1] == lanes[2]
        assert all(position >= count for position, count in zip(positions, _PAST, strict=True))

        mirror = CommandMirror(raw, tmp_path / "run")
        try:
            mirror.start()
            wait_for(
                lambda: all(
                    now > then for now, then in zip(lanes_and_positions(config)[1], positions, strict=True)
                ),
                60,
            )
            producer.finish(30)
            originals = read_committed(east.client_properties, topic_name)
            wait_for(
                lambda: (
                    lanes_and_positions(config) == ([0, 0, 0], [len(each) for each in originals.values()])
                ),
                60,
            )
            mirror.check()
            mirror.stop(aborted=True)
        finally:
            mirror.close()

    assert read_committed(west.client_properties, copy) == originals
    assert all(len(records) > count for records, count in zip(originals.values(), _PAST, strict=True))
    assert verdict(config).word == "equal"
    for partition, position in enumerate(positions):
        # the first of `run`, the last of the backfill, and some of the past
        for offset in (position, position - 1, 0, *rng.sample(range(_PAST[partition]), 3)):
            (found,) = translate(config, topic=topic_name, partition=partition, offset=offset)
            assert found.kind == "exact", (partition, offset)
            assert key_at(west.client_properties, copy, partition, found.to_offset) == b"%d" % offset


@pytest.mark.slow
def test_a_mirror_that_stands_by_gets_its_link_back_from_a_backfill(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """EO-10: without an order the backfill leaves, exit 5; with one it takes the link, and `run --standby` goes on."""
    raw = settings(east, west, topic_name)
    config = load_config(raw)
    create_topic(east.client_properties, topic_name, len(_PAST))
    producer = LiveProducer(east.client_properties, topic_name, rng, size=100)
    standby = CommandMirror(raw, tmp_path / "standby", "--standby")
    refused = CommandMirror(raw, tmp_path / "refused", command="backfill")
    try:
        with producer:
            standby.start()
            wait_for(lambda: standby.said("lane_starts"), 60)
            refused.start()
            assert refused.await_exit(60) == 5
            report = backfilled(raw, tmp_path / "taken", "--take-over", "--lanes", "3")
            assert report["links"][0]["outcome"] == "caught up"
            before = lanes_and_positions(config)[1]
            wait_for(lambda: lanes_and_positions(config)[0] == [0, 0, 0], 60)
            wait_for(
                lambda: all(
                    now > then for now, then in zip(lanes_and_positions(config)[1], before, strict=True)
                ),
                60,
            )
            producer.finish(30)
        originals = read_committed(east.client_properties, topic_name)
        wait_for(lambda: read_committed(west.client_properties, f"east.{topic_name}") == originals, 60)
        standby.check()
        standby.stop(aborted=True)
    finally:
        standby.close()
        refused.close()
    assert verdict(config).word == "equal"


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_millions_of_records_are_copied_although_the_backfill_is_killed_twice(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """Three million small records while producers go on: `verify` counts each once."""
    raw = settings(east, west, topic_name)
    config = load_config(raw)
    create_topic(east.client_properties, topic_name, len(_PAST))
    producer = LiveProducer(east.client_properties, topic_name, rng, size=100)
    for partition, share in enumerate((1_500_000, 750_000, 750_000)):
        for _ in range(share // 50_000):
            producer.write(partition, 50_000)
            producer.flush()
    with producer:
        killed_twice(raw, tmp_path, rng, most=8)
        report = backfilled(raw, tmp_path / "last", "--lanes", "2", seconds=600)
        assert report["links"][0]["offsets_left"] == 0
        producer.finish(60)
    report = backfilled(raw, tmp_path / "rest", "--lanes", "2")
    found = verdict(config)
    ends = [watermarks(east.client_properties, topic_name, number)[1] for number in range(len(_PAST))]
    assert found.word == "equal"
    assert sum(part.matched for part in found.partitions) == sum(ends) > 3_000_000
    assert lanes_and_positions(config)[1] == ends
