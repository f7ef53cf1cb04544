"""`eomirror backfill` on real brokers: killed, resumed, handed to `run`, and beside a mirror that stands by."""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror import Mirror, load_config
from eomirror.groups.offset_queries import translate
from eomirror.localkafka.cluster import ClusterSpec
from eomirror.status.reader import StatusReader
from eomirror.verify.runner import Verifier
from support.judges.java_partitioner import java_partition
from support.links.keyed import ORIGIN, TARGETS
from support.links.mirrors import CommandMirror
from support.links.plane import kafka_of, plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for, watermarks
from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from eomirror.config import Config
    from eomirror.localkafka.cluster import LocalCluster
    from eomirror.status.snapshot import Snapshot

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

#: Records of each partition at the start: the first has as many as the others together.
_PAST = (12_000, 6_000, 6_000)
#: Of the campaign; 100 million take 6 GB on each side.
_MANY = int(os.environ.get("EOMIRROR_BACKFILL_RECORDS", "10000000"))
_POINTS = ("lane.produced", "lane.flushed", "lane.state_written", "lane.committed")


class LiveProducer(WorkerThread):
    """An application: writes the past at once, and goes on in its thread."""

    def __init__(
        self,
        properties: Mapping[str, Any],
        topic: str,
        rng: random.Random,
        *,
        size: int,
        codec: str = "none",
        burst: int = 5,
    ) -> None:
        super().__init__(f"write {topic}")
        given = {"enable.idempotence": True, "linger.ms": 5, "compression.type": codec}
        self._producer = Producer({**properties, **given, "batch.size": 256 * 1024})
        self._topic = topic
        self._burst = burst
        # half of each compresses; more values than a batch has records
        self._values = [rng.randbytes(size // 2) + bytes(size - size // 2) for _ in range(20_000)]
        self.numbers = [0] * len(_PAST)

    def write(self, partition: int, count: int) -> None:
        """Writes so many records, each with its number as key."""
        first = self.numbers[partition]
        self.numbers[partition] += count
        for begin in range(first, first + count, 5_000):
            left: list[dict[str, Any]] = [
                {"key": b"%d" % number, "value": self._values[number % len(self._values)]}
                for number in range(begin, min(begin + 5_000, first + count))
            ]
            while left:
                self._producer.produce_batch(self._topic, left, partition=partition)
                # a full queue refuses the rest in order
                left = [message for message in left if message.pop("_error", None) is not None]
                self._producer.poll(0.05 if left else 0)

    def flush(self) -> None:
        """Waits until all is acknowledged."""
        assert self._producer.flush(120) == 0

    def work(self) -> None:
        """Writes some hundred records a second, or more."""
        while not self.asked.wait(0.02):
            for partition in range(len(_PAST)):
                self.write(partition, self._burst)
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


def verdict(config: Config, number: int = 0) -> Any:
    """What `verify` finds for a link."""
    link = config.links[number]
    verifier = Verifier(link, config.clusters["east"], config.clusters["west"])
    try:
        return verifier.run()
    finally:
        verifier.close()


def owner(config: Config) -> str:
    """Run, host and process that own the link, as its claim says."""
    (link,) = config.links
    reader = StatusReader(link, config.clusters["east"], config.clusters["west"])
    try:
        claim = reader.read().owner
    finally:
        reader.close()
    return f"{claim.run} on {claim.host} (pid {claim.pid})"


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


def killed(raw: Mapping[str, Any], folder: Path, rng: random.Random) -> None:
    """Starts a backfill, and kills all of it when a lane passes a seeded point for the first time."""
    # a quick machine copies everything in two transactions
    flag = folder / "killed"
    mirror = CommandMirror(
        raw,
        folder / "backfill",
        "--lanes",
        "2",
        command="backfill",
        environment={"EOMIRROR_CRASH_POINT": f"{rng.choice(_POINTS)}:1@{flag}"},
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
        killed(raw, tmp_path / "first", rng)
        # those that resume divide what is left, which may be anything
        lanes, _ = lanes_and_positions(config)
        assert lanes[0] not in lanes[1:]
        assert lanes[1] == lanes[2]
        killed(raw, tmp_path / "second", rng)
        report = backfilled(raw, tmp_path / "last", "--lanes", "2")
        (link,) = report["links"]
        assert (link["outcome"], link["offsets_left"]) == ("caught up", 0)
        _, positions = lanes_and_positions(config)
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
            # run, host and process
            assert f"is owned by run {owner(config)}" in refused.log.read_text("utf-8", errors="replace")
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


def write_shapes(source: Mapping[str, Any], name: str, rng: random.Random) -> Producer:
    """Topics that make offsets jump, stand still or begin late; the producer of a transaction that stays open."""

    def write(word: str, partitions: int, **given: Any) -> None:
        records = some_records(rng.randrange(10_000), 600)
        produce(source, f"{name}.{word}", partitions, records, transactional_id=f"{name}-{word}", **given)

    for word, partitions in {"past": 3, "open": 1, "empty": 2, "begun": 1, "keyed": 5}.items():
        create_topic(source, f"{name}.{word}", partitions)
    write("past", 3)
    write("keyed", 5)
    write("begun", 1)
    held = TopicPartition(f"{name}.begun", 0, rng.randrange(100, 500))
    admin = AdminClient(dict(source))
    admin.delete_records([held])[held].result(30)

    compacted = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01"}
    create_topic(source, f"{name}.holes", 1, **compacted)
    written = 0
    while not written or len(read_committed(source, f"{name}.holes")[0]) > 0.8 * written:
        # the newest segment is not compacted
        records = [(b"%d" % rng.randrange(30), rng.randbytes(50), 1_600_000_000_000, ()) for _ in range(200)]
        found = produce(source, f"{name}.holes", 1, records, transactional_id=f"{name}-holes", abort_every=3)
        written += len(found[0])
        time.sleep(0.5)

    write("open", 1, abort_every=0)
    stranger = Producer({**source, "transactional.id": f"{name}-stranger", "transaction.timeout.ms": 900_000})
    stranger.init_transactions(30)
    stranger.begin_transaction()
    for number in range(50):
        stranger.produce(f"{name}.open", b"%d" % number, None, 0)
    assert stranger.flush(30) == 0
    return stranger


def assert_placed(source: Mapping[str, Any], target: Mapping[str, Any], name: str) -> None:
    """Each record of the keyed topic once, where Java's partitioner puts its key."""
    originals = Counter(each for log in read_committed(source, f"{name}.keyed").values() for each in log)
    copies: Counter[Any] = Counter()
    for number, log in read_committed(target, f"{name}.placed").items():
        for key, value, timestamp, headers in log:
            assert headers[-1][0] == ORIGIN
            if key is not None:
                assert java_partition(key, TARGETS) == number
            copies[key, value, timestamp, headers[:-1]] += 1
    assert copies == originals


@pytest.mark.slow
def test_whatever_a_source_holds_is_backfilled(
    start_cluster: Callable[[ClusterSpec], LocalCluster],
    west: LocalCluster,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    rng: random.Random,
) -> None:
    """EO-1, EO-11: markers, an open transaction, holes, no record, a deleted begin, keyed; a topic made meanwhile."""
    cleaner = {"log.cleaner.backoff.ms": "100"}
    east = start_cluster(ClusterSpec("compacting", properties=cleaner, kafka_version=kafka_of("east")))
    source, target = dict(east.client_properties), dict(west.client_properties)
    raw = settings(east, west, topic_name)
    raw["links"][0] |= {"topics": [rf"{topic_name}\..*"], "exclude": [rf"{topic_name}\.keyed"]}
    raw["links"].append(
        {
            "name": f"{topic_name}-keyed", "source": "east", "target": "west", "topics": [f"{topic_name}.keyed"],
            "naming": {"map": {f"{topic_name}.keyed": f"{topic_name}.placed"}}, "aggregate": True,
            "origin_header": True, "partitions": "keyed", "target_partitions": TARGETS,
            "plane": plane_under_test(),
        }
    )  # fmt: skip
    stranger = write_shapes(source, topic_name, rng)
    killed(raw, tmp_path / "killed", rng)

    late = f"{topic_name}.late"

    def make_late(snapshot: Snapshot) -> None:
        # the run does not end while this takes
        if all(link.state == "running" for link in snapshot.links) and not west_has(late):
            create_topic(source, late)
            produce(source, late, 1, some_records(7, 100), transactional_id=late)
            wait_for(lambda: west_has(late), 60)

    def west_has(topic: str) -> bool:
        return f"east.{topic}" in AdminClient(target).list_topics(timeout=10).topics

    config = load_config(raw)
    with Mirror(config, spark=spark_context, by_backlog=True) as mirror:
        report = mirror.run(until="caught-up", on_progress=make_late)
    assert west_has(late)
    assert [(link.outcome, link.offsets_left) for link in report.links] == [("caught up", 0)] * 2
    assert report.links[0].behind_open == {f"{topic_name}.open-0": 50}

    stranger.commit_transaction(30)
    with Mirror(config, spark=spark_context) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0
    for word in ("past", "open", "empty", "begun", "holes", "late"):
        topic = f"{topic_name}.{word}"
        assert read_committed(target, f"east.{topic}") == read_committed(source, topic), word
    assert_placed(source, target, topic_name)
    assert [verdict(config, number).word for number in range(2)] == ["equal", "equal"]


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_millions_of_records_are_copied_although_the_backfill_is_killed_twice(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """Small records while producers go on, killed twice and stopped once: `verify` counts each once."""
    raw, copy = settings(east, west, topic_name), f"east.{topic_name}"
    config = load_config(raw)
    create_topic(east.client_properties, topic_name, len(_PAST))
    producer = LiveProducer(east.client_properties, topic_name, rng, size=80, codec="lz4", burst=100)
    began = time.monotonic()
    for _ in range(_MANY // 200_000):
        for partition, share in enumerate((100_000, 50_000, 50_000)):
            producer.write(partition, share)
    producer.flush()
    tell("loaded", sum(producer.numbers), began)

    def copied() -> int:
        try:
            return sum(watermarks(west.client_properties, copy, number)[1] for number in range(len(_PAST)))
        except (AssertionError, KafkaException):
            return 0

    began = time.monotonic()
    with producer:
        # shares at which it ends, and how
        ends = (
            (rng.uniform(0.1, 0.2), signal.SIGKILL),
            (rng.uniform(0.3, 0.4), signal.SIGINT),
            (rng.uniform(0.5, 0.6), signal.SIGKILL),
        )
        for number, (share, how) in enumerate(ends):
            mirror = CommandMirror(raw, tmp_path / f"backfill-{number}", "--lanes", "2", command="backfill")
            try:
                mirror.start()
                wait_for(lambda share=share: copied() > share * _MANY, 3_600)
                if how == signal.SIGKILL:
                    mirror.check()
                    mirror.kill()
                else:
                    os.kill(mirror.tree.pid, how)
                    assert mirror.await_exit(60) == 3
            finally:
                mirror.close()
        (link,) = backfilled(raw, tmp_path / "last", "--lanes", "2", seconds=3_600)["links"]
        assert link["offsets_left"] == 0
        assert 0 < link["counters"]["records"] < _MANY
        tell("copied, with three ends", sum(lanes_and_positions(config)[1]), began)
        producer.finish(60)
    backfilled(raw, tmp_path / "rest", "--lanes", "2")
    (link,) = backfilled(raw, tmp_path / "again", "--lanes", "2")["links"]
    assert (link["outcome"], link["counters"]["records"]) == ("caught up", 0)
    began = time.monotonic()
    found = verdict(config)
    written = sum(producer.numbers)
    tell("verified", written, began)
    assert found.word == "equal"
    assert sum(part.matched for part in found.partitions) == written > _MANY
    assert lanes_and_positions(config)[1] == producer.numbers


def tell(what: str, records: int, began: float) -> None:
    """Prints a figure of the campaign (pytest -s)."""
    seconds = time.monotonic() - began
    print(f"\n{what}: {records:,} records in {seconds:.0f} s, {records / seconds:,.0f}/s", flush=True)  # noqa: T201
