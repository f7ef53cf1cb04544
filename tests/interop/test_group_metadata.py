"""Groups whose offsets carry metadata of other clients: Java's AdminClient writes them, and judges what comes out."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer, TopicPartition

from eomirror import Mirror, load_config
from eomirror.config import Cluster
from eomirror.groups.offset_rule import metadata_left_out
from eomirror.kafka.consumer_groups import Committed
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from support.traffic.java_groups import JavaGroups, java_groups
from support.traffic.records import create_topic, produce, some_records

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration]

PARTITIONS = 3
LENGTHS = (0, 1, 12, 20, 24, 40, 56, 64, 4_000)


@pytest.fixture(scope="module")
def java() -> Iterator[JavaGroups]:
    """Java's AdminClient."""
    with java_groups() as groups:
        yield groups


def metadata_of(length: int, number: int) -> str | None:
    """Another text for each partition; null in place of an empty one now and then, and letters of several bytes."""
    if length == 0:
        return None if number else ""
    text = f"{number}:" + "é€" * length
    while len(text.encode()) > length:
        text = text[:-1]
    return text + "m" * (length - len(text.encode()))


def groups_of(name: str, topic: str) -> dict[str, dict[tuple[str, int], tuple[int, int | None, str | None]]]:
    """
    Groups with metadata of each length, in several partitions, with and without a leader epoch.

    One has a line feed in its id, and one an id of thousands of letters.
    """
    ids = {20: "line\nfeed", 64: "g" * 4_000}
    return {
        f"{name}.{ids.get(length, length)}": {
            (topic, number): (10 + number, 0 if number == 1 else None, metadata_of(length, number))
            for number in range(PARTITIONS)
        }
        for length in LENGTHS
    }


def plain(offsets: dict[Any, tuple[int, int | None, str | None]]) -> dict[Any, tuple[int, str]]:
    """What Java reads of them."""
    return {where: (offset, metadata or "") for where, (offset, _, metadata) in offsets.items()}


def test_metadata_is_read_and_committed_byte_for_byte(
    east: Any, west: Any, java: JavaGroups, topic_name: str
) -> None:
    """Of every length, in twenty calls, for many groups at once."""
    source, target = dict(east.client_properties), dict(west.client_properties)
    for properties in (source, target):
        create_topic(properties, topic_name, PARTITIONS)
    wanted = groups_of(topic_name, topic_name)
    for group, offsets in wanted.items():
        java.commit(source, group, offsets)
    expected = {group: plain(offsets) for group, offsets in wanted.items()}
    with (
        closing(ClusterGroups(Cluster("east", source), client_id="test")) as here,
        closing(ClusterGroups(Cluster("west", target), client_id="test")) as there,
    ):
        for _ in range(20):
            found = here.committed(wanted)
            assert {
                group: {where: tuple(one) for where, one in offsets.items()}
                for group, offsets in found.items()
            } == expected
            looked = dict(here.read_offsets(list(wanted)))
            assert looked == found
        for group, offsets in found.items():
            assert there.write(group, {where: Committed(*one) for where, one in offsets.items()}) == ""

    assert {group: java.offsets(target, group) for group in wanted} == expected


def test_a_partition_whose_metadata_is_too_large_is_committed_without_it(
    west: Any, java: JavaGroups, topic_name: str
) -> None:
    """The others keep theirs: an answer is by partition."""
    target = dict(west.client_properties)
    create_topic(target, topic_name, PARTITIONS)
    with closing(ClusterGroups(Cluster("west", target), client_id="test")) as groups:
        assert groups.metadata_limit() == 4096
        rows = [
            (topic_name, number, number, text)
            for number, text in enumerate(("é" * 4096, "m" * 4097, "😀" * 2048))
        ]
        assert [number for _, number, _, text in rows if metadata_left_out(("t", number), text, 4096)] == [1]
        assert groups.write_all({topic_name: rows}) == {topic_name: ""}

    assert java.offsets(target, topic_name) == {
        (topic_name, 0): (0, "é" * 4096),
        (topic_name, 1): (1, ""),
        (topic_name, 2): (2, "😀" * 2048),
    }


@pytest.mark.spark
@pytest.mark.parametrize("times", [2, pytest.param(20, marks=pytest.mark.slow)])
def test_groups_with_metadata_go_through_every_command(
    east: Any,
    west: Any,
    java: JavaGroups,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    times: int,
) -> None:
    """They are shown, exported, followed by a running mirror and failed over; each call ends with exit code 0."""
    source, target = dict(east.client_properties), dict(west.client_properties)
    path, topic, copy = mirrored(source, target, topic_name, tmp_path)
    wanted = groups_of(f"{topic_name}.early", topic)
    for group, offsets in wanted.items():
        java.commit(source, group, offsets)
    with Mirror(load_config(path), spark=spark_context) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0
    metadata = {
        group: {(copy, number): text for (_, number), (_, text) in plain(offsets).items()}
        for group, offsets in wanted.items()
    }
    for group, expected in metadata.items():
        followed = java.offsets(target, group)
        assert {where: text for where, (_, text) in followed.items()} == expected

    late = groups_of(f"{topic_name}.late", topic)
    for group, offsets in late.items():
        java.commit(source, group, offsets)
    for _ in range(times):
        for command in (("offsets", "groups"), ("offsets", "export"), ("readiness",)):
            code, answer = run(command, path)
            assert code == 0, (command, answer)
    code, document = run(("offsets", "export"), path)
    for group, offsets in late.items():
        exported = {each["partition"]: each["metadata"] for each in document["groups"][group]}
        assert exported == {number: text for (_, number), (_, text) in plain(offsets).items()}
    code, answer = run(("failover", "--force", "--yes"), path)
    assert code == 0, answer
    for group, offsets in late.items():
        moved = java.offsets(target, group)
        assert {number: text for (_, number), (_, text) in moved.items()} == {
            number: text for (_, number), (_, text) in plain(offsets).items()
        }


@pytest.mark.spark
def test_an_offset_that_consumers_on_the_target_have_reached_is_left_alone(
    east: Any, west: Any, java: JavaGroups, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """By the running mirror, and by a failover as readiness says; an offset that the link wrote moves."""
    source, target = dict(east.client_properties), dict(west.client_properties)
    path, topic, copy = mirrored(source, target, topic_name, tmp_path)
    own, read = f"{topic_name}.own", f"{topic_name}.read"

    def stand(offset: int) -> None:
        for group in (own, read):
            java.commit(source, group, {(topic, 0): (offset, None, "")})

    def follow() -> None:
        with Mirror(load_config(path), spark=spark_context) as mirror:
            assert mirror.run(until="caught-up").exit_code == 0

    def there() -> dict[str, int]:
        return {group: java.offsets(target, group)[copy, 0][0] for group in (own, read)}

    stand(10)
    follow()
    before = there()
    assert before[own] == before[read]
    java.commit(target, read, {(copy, 0): (before[read] + 3, None, "")})
    stand(60)
    follow()
    after = there()
    assert (after[own] > before[own] + 3, after[read]) == (True, before[read] + 3)
    code, answer = run(("status",), path)
    assert answer["links"][0]["left_groups"]["count"] == 1
    assert "was read on the target" in answer["links"][0]["left_groups"]["groups"][read]
    code, answer = run(("readiness",), path)
    assert code == 0
    (said,) = [each for each in answer["checks"] if each["name"] == "groups"]
    assert "1 not moved" in said["text"]
    assert f"{read}: it was read on the target to {before[read] + 3} of {copy}-0" in said["fix"]
    code, answer = run(("failover", "--force", "--yes"), path)
    assert there() == after


@pytest.mark.spark
def test_a_group_with_offsets_in_an_open_transaction_leaves_the_others_alone(
    east: Any, west: Any, java: JavaGroups, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Every command names it and goes on with the others, within a minute."""
    source, target = dict(east.client_properties), dict(west.client_properties)
    path, topic, copy = mirrored(source, target, topic_name, tmp_path)
    with Mirror(load_config(path), spark=spark_context) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0
    fine, pending = f"{topic_name}.fine", f"{topic_name}.pending"
    for group in (fine, pending):
        java.commit(source, group, {(topic, 0): (20, None, "")})
    producer = Producer({**source, "transactional.id": pending, "transaction.timeout.ms": 600_000})
    member = Consumer({**source, "group.id": pending})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.send_offsets_to_transaction([TopicPartition(topic, 0, 30)], member.consumer_group_metadata(), 30)
    member.close()

    for command in (("offsets", "groups"), ("offsets", "export")):
        began = time.monotonic()
        code, answer = run(command, path)
        assert (code, time.monotonic() - began < 60) == (3, True), answer
        shown = answer["groups"]
        assert fine in (shown if command[1] == "export" else [each["group"] for each in shown])
        if command[1] == "groups":
            (said,) = [each["skipped"] for each in shown if each["group"] == pending]
            assert said.startswith("its offsets cannot be read: an open transaction holds them")
    code, answer = run(("readiness",), path)
    (said,) = [each for each in answer["checks"] if each["name"] == "groups"]
    assert (said["level"], f"{pending}: its offsets cannot be read" in said["fix"]) == ("warn", True)
    began = time.monotonic()
    code, answer = run(("failover", "--force", "--yes"), path)
    assert (code, time.monotonic() - began < 60) == (1, True)
    assert pending in answer["refused_groups"]
    assert java.offsets(target, fine)[copy, 0][0] > 0
    assert java.offsets(target, pending) == {}
    producer.abort_transaction(30)


@pytest.mark.spark
def test_offsets_of_a_store_are_translated_all_at_once(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """As Spark's checkpoint has them: each is the same record on the target, or named; the source is not asked."""
    source, target = dict(east.client_properties), dict(west.client_properties)
    path, topic, copy = mirrored(source, target, topic_name, tmp_path)
    with Mirror(load_config(path), spark=spark_context) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0
    wanted = {0: 20, 1: 35, 2: 10**6}
    file = tmp_path / "7"
    file.write_text("v1\n{}\n" + json.dumps({topic: wanted}) + "\n" + json.dumps({"other": {"0": 5}}))
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", "offsets", "translate", str(path), "--file", str(file), "-o", "json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip

    rows = {(each["topic"], each["partition"]): each for each in json.loads(done.stdout)["offsets"]}
    assert done.returncode == 3
    assert rows.keys() == {(topic, 0), (topic, 1), (topic, 2), ("other", 0)}
    for number in (0, 1):
        there = rows[topic, number]["to_offset"]
        assert next_value(source, topic, number, wanted[number]) == next_value(target, copy, number, there)
    assert rows[topic, 2]["reason"].startswith("not mirrored yet")
    assert rows["other", 0]["reason"] == "no link has mirrored this partition"


def next_value(properties: dict[str, Any], topic: str, number: int, offset: int) -> bytes | None:
    """Value of the first committed record at or behind an offset."""
    consumer = Consumer({**properties, "group.id": "reader", "isolation.level": "read_committed"})
    try:
        consumer.assign([TopicPartition(topic, number, offset)])
        message = consumer.poll(30)
        assert message is not None
        return message.value()
    finally:
        consumer.close()


def mirrored(
    source: dict[str, Any], target: dict[str, Any], name: str, folder: Path
) -> tuple[Path, str, str]:
    """File of a link that keeps the offsets of its groups; its topic with records, and the copy."""
    topic, path = f"{name}.orders", folder / "mirror.yaml"
    create_topic(source, topic, PARTITIONS)
    produce(source, topic, PARTITIONS, some_records(7, 300), transactional_id=name)
    link = {
        "name": name,
        "source": "east",
        "target": "west",
        "topics": [topic],
        "groups": [f"{name}.*"],
        "sync_group_offsets": True,
    }
    path.write_text(
        yaml.safe_dump(
            {"clusters": {"east": source, "west": target}, "links": [link], "defaults": {"lanes": 1}}
        )
    )
    path.chmod(0o600)
    return path, topic, f"east.{topic}"


def run(command: tuple[str, ...], path: Path) -> tuple[int, Any]:
    """Exit code of a command, and its JSON or what it wrote to stderr."""
    first, *rest = command
    words = [first, *rest, str(path)] if first == "offsets" else [first, str(path), *rest]
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", *words, "-o", "json"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    try:
        return done.returncode, json.loads(done.stdout)
    except json.JSONDecodeError:
        return done.returncode, done.stdout + done.stderr
