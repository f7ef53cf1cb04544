"""Several sources in one topic: the `TOPIC_REPLICA` pattern on two clusters, and aggregation into a third."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Self

import pytest
import yaml
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror import Mirror, load_config
from eomirror.failover import where_to_start
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.judges.java_judge import java_judge
from support.links.mirrors import CommandMirror, running
from support.links.plane import plane_under_test
from support.traffic.records import (
    create_topic,
    is_within,
    produce,
    read_committed,
    some_records,
    wait_for,
    watermarks,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]

_PARTITIONS = 2
_DIFFERS = 3


def command(path: Path, *words: str, code: int = 0) -> dict[str, Any]:
    """The JSON output of a command; it ends with this exit code."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", *words, "-o", "json"],
        capture_output=True, text=True, timeout=180, check=False, cwd=path.parent,
    )  # fmt: skip
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def written_file(folder: Path, settings: Mapping[str, Any], name: str = "mirror.yaml") -> Path:
    """A configuration file that only its owner can read."""
    path = folder / name
    path.write_text(yaml.safe_dump(dict(settings)))
    path.chmod(0o600)
    return path


def count(records: Mapping[int, Sequence[Any]]) -> int:
    """Records of all partitions."""
    return sum(map(len, records.values()))


def assert_merged(
    merged: Mapping[int, Sequence[Any]], sources: Sequence[Mapping[int, Sequence[Any]]]
) -> None:
    """Every record of every source exactly once, in its partition, in the order of its source."""
    for number, records in merged.items():
        parts = [source.get(number, ()) for source in sources]
        assert sorted(records, key=repr) == sorted((each for part in parts for each in part), key=repr)
        assert all(is_within(part, records) for part in parts)


class Writers:
    """Transactions of records that differ, on several topics at once, until the block ends."""

    def __init__(self, topics: Mapping[str, tuple[Mapping[str, Any], str, int]]) -> None:
        self.committed: dict[str, dict[int, list[Any]]] = {name: {} for name in topics}
        self._topics = topics
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(name,)) for name in topics]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)

    def _write(self, name: str) -> None:
        properties, topic, partitions = self._topics[name]
        turn = 0
        while not self._over.is_set():
            records = [
                (b"%s %d %d" % (name.encode(), turn, index), *record[1:])
                for index, record in enumerate(some_records(turn, 200))
            ]
            done = produce(properties, topic, partitions, records, transactional_id=f"{topic}-{name}")
            for number, part in done.items():
                self.committed[name].setdefault(number, []).extend(part)
            turn += 1


def test_a_replica_topic_reaches_its_own_cluster_and_the_other_once(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    Applications write T_REPLICA on both clusters; T on each holds the records of both, though the mirror was killed.

    The four links have state topics and transactional ids of their own, no record goes round, none has a header, and
    `verify` of each link compares its source's records only.
    """
    clusters = {"dc1": dict(east.client_properties), "dc2": dict(west.client_properties)}
    replica = f"{topic_name}_REPLICA"
    settings = {
        "clusters": clusters,
        "links": [
            {"name": f"{topic_name}-{source}-{target}", "source": source, "target": target}
            for source in clusters
            for target in clusters
        ],
        "defaults": {
            "topics": [f"{topic_name}.*_REPLICA"],
            "naming": {"match": "(.*)_REPLICA", "to": "$1"},
            "aggregate": True,
            "lanes": 1,
            "plane": plane_under_test(),
        },
    }
    path = written_file(tmp_path, settings)
    for properties in clusters.values():
        create_topic(properties, replica, _PARTITIONS)
    assert command(path, "check", str(path))["warnings"] == []
    mirror = CommandMirror(settings, tmp_path / "mirror")
    try:
        mirror.start()
        writers = Writers(
            {alias: (properties, replica, _PARTITIONS) for alias, properties in clusters.items()}
        )
        with writers:
            wait_for(lambda: copied(clusters, topic_name, 500), 180)
            mirror.kill()
            mirror.start()
            before = [count(read_committed(each, topic_name)) for each in clusters.values()]
            wait_for(lambda: copied(clusters, topic_name, max(before) + 500), 180)
        sources = list(writers.committed.values())
        total = sum(map(count, sources))
        wait_for(lambda: copied(clusters, topic_name, total), 180)
        links = command(path, "status", str(path))["links"]
        assert {link["state"] for link in links} <= {"running", "ok"}, links
        mirror.stop()
    finally:
        mirror.close()

    for properties in clusters.values():
        assert_merged(read_committed(properties, topic_name), sources)
    verdicts = command(path, "verify", str(path))["links"]
    assert [link["verdict"] for link in verdicts] == ["equal"] * 4
    for link, matched in zip(verdicts, (sources[0], sources[0], sources[1], sources[1]), strict=True):
        assert sum(each["matched"] for each in link["partitions"]) == count(matched)
        other = {name for each in link["partitions"] for name in each["scope"]["others"]}
        assert len(other) == 1
    asked = ("--topic", replica, "--partition", "0", "--offset", "0")
    answer = command(path, "offsets", "translate", str(path), "--link", f"{topic_name}-dc1-dc1", *asked)
    (found,) = answer["offsets"]
    assert (found["to_topic"], found["kind"]) == (topic_name, "exact")
    assert key_at(clusters["dc1"], topic_name, found["to_offset"]) == key_at(clusters["dc1"], replica, 0)


def key_at(properties: Mapping[str, Any], topic: str, offset: int) -> bytes:
    """The key of a record of partition 0."""
    consumer = Consumer({**properties, "group.id": "reader", "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, offset)])
    message = consumer.poll(30.0)
    consumer.close()
    assert message is not None
    assert (message.error(), message.offset()) == (None, offset)
    key: bytes = message.key()
    return key


def copied(clusters: Mapping[str, Mapping[str, Any]], topic: str, wanted: int) -> bool:
    """Returns True if every cluster has at least that many records in the topic."""
    try:
        return all(count(read_committed(each, topic)) >= wanted for each in clusters.values())
    except KeyError:
        return False  # not created yet


def test_a_topic_whose_copy_is_a_source_topic_is_refused_by_its_name(
    east: LocalCluster, topic_name: str, tmp_path: Path
) -> None:
    """The configuration cannot know of such a topic; a new link makes nothing, and names it with its fix."""
    create_topic(east.client_properties, f"{topic_name}_REPLICA_REPLICA")
    link = {
        "name": topic_name, "source": "dc1", "target": "dc1", "topics": [f"{topic_name}.*_REPLICA"],
        "naming": {"match": "(.*)_REPLICA", "to": "$1"},
    }  # fmt: skip
    path = written_file(tmp_path, {"clusters": {"dc1": dict(east.client_properties)}, "links": [link]})
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", "plan", str(path)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert done.returncode == 1, done.stdout + done.stderr
    assert f"{topic_name}_REPLICA_REPLICA would be written to {topic_name}_REPLICA" in done.stderr
    assert "exclude" in done.stderr


@pytest.mark.parametrize("header", ["auto", "on"])
def test_two_sources_are_merged_and_verified_each_by_itself(
    header: str, east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """
    Two topics of other names and partition counts become one; each link's `verify` compares its own records.

    A record that no link wrote is found by both, unless the header tells the link's records from all others.  A file
    that does not say `aggregate` is compared by the maps as well, as soon as records seem to be foreign.
    """
    with LocalCluster.start(ClusterSpec("lake")) as lake:
        clusters = {
            "shop1": dict(east.client_properties),
            "shop2": dict(west.client_properties),
            "lake": dict(lake.client_properties),
        }
        topics = {"shop1": (f"{topic_name}-1", 2), "shop2": (f"{topic_name}-2", 4)}
        settings: dict[str, Any] = {
            "clusters": clusters,
            "links": [
                {
                    "name": f"{topic_name}-{alias}", "source": alias, "target": "lake", "topics": [topic],
                    "naming": {"map": {topic: topic_name}}, "lanes": 1, "plane": plane_under_test(),
                    "aggregate": True, "provenance": header,
                }
                for alias, (topic, _) in topics.items()
            ],
        }  # fmt: skip
        path = written_file(tmp_path, settings)
        for alias, (topic, partitions) in topics.items():
            create_topic(clusters[alias], topic, partitions)
        writers = Writers({alias: (clusters[alias], *where) for alias, where in topics.items()})
        with running(Mirror(load_config(path), spark=spark_context)):
            with writers:
                wait_for(lambda: copied({"lake": clusters["lake"]}, topic_name, 1000), 180)
            sources = list(writers.committed.values())
            wait_for(lambda: copied({"lake": clusters["lake"]}, topic_name, sum(map(count, sources))), 180)
        if header == "auto":
            assert_merged(read_committed(clusters["lake"], topic_name), sources)

        assert equal(command(path, "verify", str(path)), sources)
        if header == "on":
            return
        silent = [
            {name: value for name, value in link.items() if name != "aggregate"} for link in settings["links"]
        ]
        other = written_file(tmp_path, {**settings, "links": silent}, "silent.yaml")
        assert len(command(other, "check", str(other))["warnings"]) == 1
        assert equal(command(other, "verify", str(other)), sources)

        stray = [(b"stray", b"of no link", 1_600_000_000_000, ())]
        produce(clusters["lake"], topic_name, 1, stray, transactional_id=f"{topic_name}-stray")
        found = command(path, "verify", str(path), code=_DIFFERS)["links"]
        foreign = [sum(each["differences"]["foreign"] for each in link["partitions"]) for link in found]
        assert foreign == [1, 1]


def equal(verdicts: Mapping[str, Any], sources: Sequence[Mapping[int, Sequence[Any]]]) -> bool:
    """Returns True if each link is equal, in all records of its source."""
    matched = [sum(each["matched"] for each in link["partitions"]) for link in verdicts["links"]]
    assert matched == list(map(count, sources)), verdicts
    return all(link["verdict"] == "equal" for link in verdicts["links"])


def test_the_origin_of_each_merged_record_is_in_its_header(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path
) -> None:
    """
    Two sources become one topic, and the mirror is killed; each copy names the place of its original.

    Every place on the sources is named exactly once, in its partition and in its order, and the record there has the
    same key, value and timestamp.  `verify` does not count the header as a difference.
    """
    clusters = {"dc1": dict(east.client_properties), "dc2": dict(west.client_properties)}
    topics = {"dc1": f"{topic_name}-1", "dc2": f"{topic_name}-2"}
    settings = {
        "clusters": clusters,
        "links": [
            {
                "name": f"{topic_name}-{alias}", "source": alias, "target": "dc1", "topics": [topic],
                "naming": {"map": {topic: topic_name}},
            }
            for alias, topic in topics.items()
        ],
        "defaults": {"aggregate": True, "origin_header": True, "lanes": 1, "plane": plane_under_test()},
    }  # fmt: skip
    path = written_file(tmp_path, settings)
    for alias, topic in topics.items():
        create_topic(clusters[alias], topic, _PARTITIONS)
    target = {"dc1": clusters["dc1"]}
    mirror = CommandMirror(settings, tmp_path / "mirror")
    try:
        mirror.start()
        with Writers(
            {alias: (clusters[alias], topic, _PARTITIONS) for alias, topic in topics.items()}
        ) as writers:
            wait_for(lambda: copied(target, topic_name, 500), 180)
            mirror.kill()
            mirror.start()
            before = count(read_committed(clusters["dc1"], topic_name))
            wait_for(lambda: copied(target, topic_name, before + 500), 180)
        total = sum(map(count, writers.committed.values()))
        wait_for(lambda: copied(target, topic_name, total), 180)
        mirror.stop()
    finally:
        mirror.close()

    originals = {
        f"{alias}/{topic}/{number}/{offset}": record
        for alias, topic in topics.items()
        for (number, offset), record in placed(clusters[alias], topic).items()
    }
    assert len(originals) == total
    seen: list[tuple[str, int, int]] = []
    named = set()
    for (number, _), copy in sorted(placed(clusters["dc1"], topic_name).items()):
        name, value = copy[3][-1]
        assert name == "eomirror.origin"
        assert [each for each, _ in copy[3]].count(name) == 1
        original = originals[value.decode()]
        assert (copy[:3], copy[3][:-1]) == (original[:3], original[3])
        alias, _, partition, offset = value.decode().split("/")
        assert int(partition) == number
        seen.append((alias, number, int(offset)))
        named.add(value.decode())
    assert named == set(originals)
    assert len(seen) == total
    for alias in topics:
        for number in range(_PARTITIONS):
            offsets = [offset for *where, offset in seen if where == [alias, number]]
            assert offsets == sorted(offsets)
    verdicts = command(path, "verify", str(path))
    assert equal(verdicts, list(writers.committed.values()))


def placed(properties: Mapping[str, Any], topic: str) -> dict[tuple[int, int], Any]:
    """Every committed record of a topic by partition and offset: key, value, timestamp, headers."""
    consumer = Consumer(
        {
            **properties, "group.id": "reader", "isolation.level": "read_committed",
            "enable.partition.eof": True, "enable.auto.commit": False,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition(topic, number, 0) for number in range(_PARTITIONS)])
    found: dict[tuple[int, int], Any] = {}
    ended: set[int] = set()
    while len(ended) < _PARTITIONS:
        message = consumer.poll(30.0)
        assert message is not None, f"{topic}: no end of partition within 30 s"
        if message.error() is not None:
            ended.add(message.partition())
            continue
        headers = tuple(message.headers() or ())
        record = message.key(), message.value(), message.timestamp()[1], headers
        found[message.partition(), message.offset()] = record
    consumer.close()
    return found


@pytest.mark.slow
@pytest.mark.parametrize("equal_names", [True, False], ids=["identity", "aggregate"])
def test_no_group_is_moved_past_the_records_of_the_other_source(
    equal_names: bool,
    east: LocalCluster,
    west: LocalCluster,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
) -> None:
    """
    The copy holds 50 records of one shop, 30 of the other, and 50 of the first; groups have read the first alone.

    Up to the records of the other shop an offset is exact.  Behind them no verb, dry run, export or import gives one,
    with the source or from its checkpoints, although `offsets.json` was written by hand.  Java's consumer is the judge.
    """
    topics = {"shop1": topic_name, "shop2": topic_name}
    if not equal_names:
        topics = {alias: f"{topic_name}-{alias}" for alias in topics}
    with LocalCluster.start(ClusterSpec("lake")) as lake, java_judge() as judge:
        clusters = {
            "shop1": dict(east.client_properties),
            "shop2": dict(west.client_properties),
            "lake": dict(lake.client_properties),
        }
        settings: dict[str, Any] = {
            "clusters": clusters,
            "links": [
                {
                    "name": f"{topic_name}-{alias}", "source": alias, "target": "lake", "topics": [topic],
                    "naming": "identity" if equal_names else {"map": {topic: topic_name}},
                }
                for alias, topic in topics.items()
            ],
            "defaults": {
                "aggregate": not equal_names, "lanes": 1, "plane": plane_under_test(),
                "groups": [f"{topic_name}.*"], "group_interval": "200ms", "heartbeats": "off",
            },
        }  # fmt: skip
        path = written_file(tmp_path, settings)
        config = load_config(path)
        link, other = (f"{topic_name}-{alias}" for alias in topics)
        for alias, topic in topics.items():
            create_topic(clusters[alias], topic, 1)

        def write(alias: str, number: int) -> None:
            records = [(b"k", b"%s" % alias.encode(), 1_600_000_000_000 + turn, ()) for turn in range(number)]
            produce(clusters[alias], topics[alias], 1, records, transactional_id=f"{topic_name}-{alias}")

        def mirror(name: str) -> None:
            with Mirror(config, spark=spark_context, links=[name]) as running_mirror:
                assert running_mirror.run(until="caught-up").exit_code == 0

        write("shop1", 50)
        mirror(link)
        write("shop2", 30)
        mirror(other)
        write("shop1", 50)
        groups = {"early": 20, "late": watermarks(clusters["shop1"], topics["shop1"])[1]}
        for group, offset in groups.items():
            commit(clusters["shop1"], f"{topic_name}-{group}", topics["shop1"], offset)
        mirror(link)
        copied_values = judge.read(clusters["lake"], topic_name)[0]
        first = next(offset for offset, value in copied_values if value == "shop2")
        exported = command(path, "offsets", "export", str(path), "--link", link, code=_DIFFERS)
        assert list(exported["groups"]) == [f"{topic_name}-early"]

        # records that the mirror will not bring before the failover, and a group that has read them
        write("shop1", 20)
        groups["beyond"] = watermarks(clusters["shop1"], topics["shop1"])[1]
        commit(clusters["shop1"], f"{topic_name}-beyond", topics["shop1"], groups["beyond"])
        passed = f"holds records of link {other} from offset {first} on"
        check_dry_runs(path, link, groups, passed)
        (start,) = where_to_start(config, f"{topic_name}-late", link=link)
        assert start.to_offset is None
        listed = command(path, "offsets", "groups", str(path), "--link", link, code=_DIFFERS)["groups"]
        assert {each["group"]: each["to_offset"] for each in listed} == {
            f"{topic_name}-early": 20,
            f"{topic_name}-late": None,
            f"{topic_name}-beyond": None,
        }
        offsets = {f"{topic_name}-late": copied_values[-1][0] + 1, f"{topic_name}-careful": first}
        check_imports(path, exported, topic_name, offsets)

        found = command(path, "failover", str(path), "--link", link, "--force", "--yes")
        assert found["promoted"]
        judged = {
            group: judge.committed(clusters["lake"], f"{topic_name}-{group}", topic_name, 0)
            for group in groups
        }
        assert judged == {"early": 20, "late": None, "beyond": None}


def check_dry_runs(path: Path, link: str, groups: Mapping[str, int], passed: str) -> None:
    """Every verb moves the group that passes nothing, and gives no offset to the others, with this reason."""
    for words in (
        ("readiness",),
        ("readiness", "--source-gone"),
        ("failover", "--dry-run", "--force"),
        ("failover", "--dry-run", "--source-gone"),
        ("promote", "--dry-run", "--verify", "skip"),
        ("cutover", "--dry-run", "--verify", "skip", "--method", "wait"),
    ):
        # planned ones refuse what the mirror has not brought
        code = 6 if words[0] in {"promote", "cutover"} else 0
        found = command(path, words[0], str(path), "--link", link, *words[1:], code=code)
        moves = {move["group"].rpartition("-")[2]: move for move in found["groups"]}
        assert (moves["early"]["action"], moves["early"]["to_offset"]) == ("move", 20), words
        assert "late" in moves, words
        for group in groups.keys() & moves.keys() - {"early"}:
            move = moves[group]
            assert (move["action"], move["to_offset"], move["kind"]) == ("skip", None, "unknown"), words
            assert passed in move["reason"], words


def check_imports(path: Path, exported: Mapping[str, Any], topic: str, offsets: Mapping[str, int]) -> None:
    """Files by hand are refused, whichever link they name, but for an offset that passes nothing of the other link."""
    late, careful = offsets
    by_hand = path.with_name("by_hand.json")
    groups = {
        group: [{"topic": topic, "partition": 0, "offset": offset}] for group, offset in offsets.items()
    }
    for link, first in ((exported["link"], offsets[careful]), ("of another file", 0)):
        by_hand.write_text(json.dumps({**exported, "link": link, "groups": groups}))
        for dry in (("--dry-run",), ()):
            done = command(path, "offsets", "import", str(path), str(by_hand), *dry, code=_DIFFERS)
            problems = {each["group"]: each["problem"] for each in done["groups"]}
            assert f"from offset {first} on" in problems[late]
            assert bool(problems[careful]) is (first == 0)


def commit(properties: Mapping[str, Any], group: str, topic: str, offset: int) -> None:
    """Commit an offset of a group without members."""
    request = [ConsumerGroupTopicPartitions(group, [TopicPartition(topic, 0, offset)])]
    admin = AdminClient(dict(properties))

    def taken() -> bool:
        (future,) = admin.alter_consumer_group_offsets(request).values()
        return not any(one.error for one in future.result(60).topic_partitions)

    wait_for(taken)
