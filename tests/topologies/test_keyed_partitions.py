"""Several sources in one topic of another partition count: records are placed by their keys."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eomirror import Mirror, load_config
from eomirror.status.reader import StatusReader
from eomirror.verify.runner import Verifier
from support.judges.java_partitioner import java_partition
from support.links.mirrors import CommandMirror, running
from support.links.plane import PLANES, plane_under_test
from support.traffic.records import create_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from eomirror.config import Config
    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

_ORIGIN = "eomirror.origin"
_TARGETS = 3

# Source topic's partitions by cluster: fewer and more than the target has.
_SOURCES = {"dc1": 2, "dc2": 5}


def settings(
    east: LocalCluster, west: LocalCluster, name: str, *, plane: str | None = None
) -> dict[str, Any]:
    """Two links into one topic on dc1, which has the Kafka under test; one of them copies within the cluster."""
    return {
        "clusters": {"dc1": dict(west.client_properties), "dc2": dict(east.client_properties)},
        "links": [
            {
                "name": f"{name}-{alias}", "source": alias, "target": "dc1", "topics": [f"{name}-{alias}"],
                "naming": {"map": {f"{name}-{alias}": name}},
            }
            for alias in _SOURCES
        ],
        "defaults": {
            "aggregate": True, "origin_header": True, "partitions": "keyed", "target_partitions": _TARGETS,
            "plane": plane or plane_under_test(),
        },
    }  # fmt: skip


def read(properties: Mapping[str, Any], topic: str, partitions: int) -> dict[tuple[int, int], Any]:
    """Every committed record of a topic by partition and offset: key, value, timestamp, headers."""
    consumer = Consumer(
        {
            **properties, "group.id": "reader", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
    found: dict[tuple[int, int], Any] = {}
    ended: set[int] = set()
    while len(ended) < partitions:
        message = consumer.poll(30.0)
        assert message is not None, f"{topic}: no end of partition within 30 s"
        if message.error() is not None:
            ended.add(message.partition())
            continue
        headers = tuple(message.headers() or ())
        found[message.partition(), message.offset()] = (
            message.key(), message.value(), message.timestamp()[1], headers,
        )  # fmt: skip
    consumer.close()
    return found


def originals(config: Config, name: str) -> dict[str, Any]:
    """Every committed record of all sources, by its place as the header names it."""
    return {
        f"{alias}/{name}-{alias}/{number}/{offset}": record
        for alias, partitions in _SOURCES.items()
        for (number, offset), record in read(
            config.clusters[alias].properties, f"{name}-{alias}", partitions
        ).items()
    }


def assert_placed(config: Config, name: str) -> int:
    """Every original once, where Java's partitioner puts its key, in order per source partition; their number."""
    expected = originals(config, name)
    last: dict[tuple[str, int], int] = {}
    seen = set()
    for (target, _), (key, value, timestamp, headers) in sorted(
        read(config.clusters["dc1"].properties, name, _TARGETS).items()
    ):
        assert headers[-1][0] == _ORIGIN
        place = headers[-1][1].decode()
        original = expected[place]
        assert (key, value, timestamp, headers[:-1]) == original
        source, _, offset = place.rpartition("/")
        number = int(source.rpartition("/")[2])
        assert target == (number % _TARGETS if key is None else java_partition(key, _TARGETS))
        assert last.get((source, target), -1) < int(offset)
        last[source, target] = int(offset)
        assert place not in seen
        seen.add(place)
    assert seen == set(expected)
    return len(seen)


def write(config: Config, name: str, turn: int, count: int) -> None:
    """Transactions of records on all sources; some have no key, every tenth transaction is aborted."""
    for alias, partitions in _SOURCES.items():
        produce(
            config.clusters[alias].properties, f"{name}-{alias}", partitions, some_records(turn, count),
            transactional_id=f"{name}-{alias}",
        )  # fmt: skip


def end(config: Config, name: str) -> int:
    """Records that the target has."""
    return len(read(config.clusters["dc1"].properties, name, _TARGETS))


def copied(config: Config, name: str, count: int) -> bool:
    """Returns True if the target has so many records."""
    try:
        return end(config, name) >= count
    except AssertionError:
        return False


def command(*arguments: str) -> tuple[int, Any]:
    """Exit code and result of a command."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", *arguments, "-o", "json"],
        stdout=subprocess.PIPE, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout) if done.stdout.strip() else None


def assert_commands(path: Path, link: str) -> None:
    """Each command says what it can: a keyed link has no orphans, and cannot fail over."""
    code, found = command("verify", str(path))
    assert code == 0
    assert [(each["verdict"], each["orphans"]) for each in found["links"]] == [("equal", [])] * 2
    code, seen = command("readiness", str(path), "--link", link)
    assert (code, seen["verdict"]) == (6, "NOT READY")
    (refused,) = [each for each in seen["checks"] if each["level"] == "no"]
    assert refused["name"] == "offset map"
    assert "partitions: keyed" in refused["text"]
    assert command("status", str(path))[0] == 0
    assert command("lag", str(path))[0] == 0


def verdicts(config: Config) -> Iterator[Any]:
    """The verdict of each link."""
    for link in config.links:
        verifier = Verifier(link, config.clusters[link.source], config.clusters[link.target])
        try:
            yield verifier.run()
        finally:
            verifier.close()


def test_sources_of_other_partition_counts_become_one_keyed_topic(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """
    Topics of two and five partitions become one of three; each link's `verify` compares its own records.

    The second run has the other plane, and goes on where the first one stopped (EO-1).
    Both links know that they translate no groups.  A second copy of a record, one of no record and one of other
    content are found by the link whose records they claim to be.
    """
    (other,) = set(PLANES) - {plane_under_test()}
    config = load_config(settings(east, west, topic_name, plane=other))
    for alias, partitions in _SOURCES.items():
        create_topic(config.clusters[alias].properties, f"{topic_name}-{alias}", partitions)
    write(config, topic_name, 1, 600)
    total = len(originals(config, topic_name))
    with running(Mirror(config, spark=spark_context)):
        wait_for(lambda: copied(config, topic_name, total), 60)
    config = load_config(settings(east, west, topic_name))
    write(config, topic_name, 2, 200)
    with running(Mirror(config, spark=spark_context)):
        write(config, topic_name, 3, 200)
        total = len(originals(config, topic_name))
        wait_for(lambda: copied(config, topic_name, total), 60)
    assert assert_placed(config, topic_name) == total

    found = list(verdicts(config))
    assert [verdict.word for verdict in found] == ["equal", "equal"]
    assert sum(part.matched for verdict in found for part in verdict.partitions) == total
    assert [len(verdict.partitions) for verdict in found] == list(_SOURCES.values())
    for link in config.links:
        reader = StatusReader(link, config.clusters[link.source], config.clusters[link.target])
        try:
            status = reader.read()
        finally:
            reader.close()
        assert status.groups is None
        assert "offsets of consumer groups are not translated" in status.remark
        assert {lane.serving.plane for lane in status.lanes.values()} == {plane_under_test()}
        assert status.lag_records == 0
        assert not any(part.problem for part in status.partitions)

    path = tmp_path / "mirror.json"
    path.write_text(json.dumps(settings(east, west, topic_name)))
    assert_commands(path, config.links[1].name)

    place = f"dc2/{topic_name}-dc2/4"
    offset = next(int(each.rpartition("/")[2]) for each in originals(config, topic_name) if place in each)
    forged = [(b"again", offset), (b"of no record", 1_000_000)]
    producer = Producer(dict(config.clusters["dc1"].properties))
    # read last, so that each original's true copy is found before
    last = _TARGETS - 1
    for value, claimed in forged:
        producer.produce(
            topic_name, value, headers=[(_ORIGIN, f"{place}/{claimed}".encode())], partition=last
        )
    producer.produce(topic_name, b"of an application", partition=1)
    producer.flush(30)
    first, second = verdicts(config)
    assert first.word == "equal"
    assert second.word == "differs"
    (part,) = [part for part in second.partitions if part.differs]
    assert part.scope.source.partition == 4
    differences = {kind: count for kind, count in part.differences.items() if count}
    assert differences == {"duplicate": 1, "foreign": 1}
    assert {shown.target_partition for shown in part.shown} == {last}


def test_a_record_that_the_target_refuses_stops_its_topic(
    east: LocalCluster, west: LocalCluster, topic_name: str, spark_context: Any
) -> None:
    """A compacted copy takes no record without a key: the topic stops by name, and the link beside it goes on."""
    raw = settings(east, west, topic_name)
    raw["defaults"]["exclude_configs"] = ["cleanup\\.policy"]
    config = load_config(raw)
    create_topic(config.clusters["dc1"].properties, topic_name, _TARGETS, **{"cleanup.policy": "compact"})
    for alias, partitions in _SOURCES.items():
        create_topic(config.clusters[alias].properties, f"{topic_name}-{alias}", partitions)
        producer = Producer(dict(config.clusters[alias].properties))
        for number in range(50):
            key = None if (alias, number) == ("dc2", 30) else b"%d" % number
            producer.produce(f"{topic_name}-{alias}", b"value", key, partition=number % partitions)
        assert producer.flush(30) == 0
    with Mirror(config, spark=spark_context) as mirror:
        report = mirror.run(until="caught-up")
    assert report.exit_code == 1
    whole, stopped = report.links
    assert not whole.stopped_topics
    ((topic, reason),) = stopped.stopped_topics.items()
    assert topic == f"{topic_name}-dc2"
    if plane_under_test() == "native":
        assert f"{topic_name}-dc2-0: the target topic {topic_name} refuses a record of [" in reason
    copies = read(config.clusters["dc1"].properties, topic_name, _TARGETS).values()
    assert sum(b"/%s-dc1/" % topic_name.encode() in headers[-1][1] for *_, headers in copies) == 50


@pytest.mark.slow
def test_a_keyed_topic_is_exact_although_the_mirror_is_killed(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """
    EO-1, EO-5: six kills; every record once, in order per source.

    Three hit a transaction whose records, or state, are written, or that is just committed, three any moment.
    """
    raw = settings(east, west, topic_name)
    config = load_config(raw)
    for alias, partitions in _SOURCES.items():
        create_topic(config.clusters[alias].properties, f"{topic_name}-{alias}", partitions)
    turn = 0
    for number, point in enumerate(("lane.flushed", "", "lane.state_written", "", "lane.committed", "")):
        environment = {"EOMIRROR_CRASH_POINT": f"{point}@{tmp_path / point}"} if point else {}
        folder = tmp_path / f"mirror-{number}"
        mirror = CommandMirror(raw, folder, environment=environment)
        try:
            mirror.start()
            before = copied_now(config, topic_name)
            for _ in range(5):
                turn += 1
                write(config, topic_name, turn, 200)
            enough = before + rng.randrange(1, 1_000)
            wait_for(lambda enough=enough: copied(config, topic_name, enough), 120)
            if point:
                wait_for((tmp_path / point).exists, 60)
            mirror.kill()
        finally:
            mirror.close()
    mirror = CommandMirror(raw, tmp_path / "last", "--until", "caught-up")
    try:
        mirror.start()
        assert mirror.await_exit(120) == 0
    finally:
        mirror.close()
    total = assert_placed(config, topic_name)
    found = list(verdicts(config))
    assert [verdict.word for verdict in found] == ["equal", "equal"]
    assert sum(part.matched for verdict in found for part in verdict.partitions) == total


def copied_now(config: Config, name: str) -> int:
    """Records that the target has; 0 before the topic exists."""
    try:
        return end(config, name)
    except AssertionError:
        return 0
