"""What commands of a return say on real brokers: changed settings, open transactions, offsets of a cut, the pause."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from eomirror import Mirror
from eomirror.errors import SupersededError
from support.links.disaster import Disaster
from support.links.link import RunningLink
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(400)]

NAMINGS = pytest.mark.parametrize(
    "equal_names",
    [pytest.param(False, marks=pytest.mark.slow, id="prefixed"), pytest.param(True, id="equal")],
)


def settings_of(properties: dict[str, Any], topic: str) -> dict[str, str]:
    """The effective settings of a topic, from a plain admin client."""
    resource = ConfigResource(ResourceType.TOPIC, topic)
    admin = AdminClient(properties)
    (future,) = admin.describe_configs([resource]).values()
    return {name: entry.value for name, entry in future.result(30).items()}


def offsets_of(scene: Disaster, side: str, number: int = 0) -> dict[bytes, int]:
    """Committed values of a partition with their offsets, from a plain consumer."""
    properties, topic = (scene.east, scene.topic) if side == "east" else (scene.west, scene.copy)
    consumer = Consumer(
        {**properties, "group.id": "judge", "enable.partition.eof": True, "isolation.level": "read_committed"}
    )
    consumer.assign([TopicPartition(topic, number, 0)])
    found: dict[bytes, int] = {}
    while (message := consumer.poll(20)) is not None and message.error() is None:
        found[message.value()] = message.offset()
    consumer.close()
    return found


def translated(scene: Disaster, link: str, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and the one row of `offsets translate`."""
    done = subprocess.run(
        [
            sys.executable, "-m", "eomirror", "offsets", "translate", str(scene.path()), "--link", link,
            "-o", "json", *arguments,
        ],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    (row,) = json.loads(done.stdout)["offsets"]
    return done.returncode, row


def promoted(
    east: Any, west: Any, name: str, folder: Path, spark: Any, *, equal_names: bool = True
) -> Disaster:
    """A scene of one partition that was failed over with 40 records on both sides."""
    scene = Disaster(
        east.client_properties, west.client_properties, name, folder, spark, partitions=1, equal_names=equal_names
    )  # fmt: skip
    scene.write("east", 40)
    scene.catch_up()
    return scene


@NAMINGS
def test_a_return_names_the_settings_that_it_changes_and_the_link_that_knows_an_offset(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, *, equal_names: bool
) -> None:
    """Before and while it changes the topics of the old source; and offsets on both sides of the cut have a way on."""
    scene = promoted(east, west, topic_name, tmp_path, spark_context, equal_names=equal_names)
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    scene.write("west", 40)

    before = settings_of(scene.east, scene.topic)
    code, planned, said = scene.command("reverse", "--dry-run")
    assert code == 0, said
    assert settings_of(scene.east, scene.topic) == before
    code, found, said = scene.command("reverse", "--yes")
    assert code == 0, said
    after = settings_of(scene.east, scene.topic)
    changed = {(name, before[name], value) for name, value in after.items() if value != before[name]}
    assert changed, "the scene changes no setting"
    for report in (planned, found):
        assert {(one["setting"], one["from"], one["to"]) for one in report["settings"]} == changed
        assert {(one["topic"], one["cluster"]) for one in report["settings"]} == {(scene.topic, "east")}
    for name, _, value in changed:
        assert f"{scene.topic} on east: {name}: {before[name]} -> {value}" in said
    # a second call changes nothing, and says so
    code, found, said = scene.command("reverse", "--yes")
    assert (code, found["settings"]) == (0, []), said

    scene.catch_up(scene.back)
    code, planned, said = scene.command("failback", "--dry-run")
    assert code == 0, said
    before = settings_of(scene.west, scene.copy)
    code, found, said = scene.command("failback", "--yes")
    assert code == 0, said
    after = settings_of(scene.west, scene.copy)
    changed = {(name, before[name], value) for name, value in after.items() if value != before[name]}
    assert {(one["setting"], one["from"], one["to"]) for one in planned["settings"]} == changed
    assert {(one["setting"], one["from"], one["to"]) for one in found["reversal"]["settings"]} == changed

    there, here = offsets_of(scene, "east"), offsets_of(scene, "west")
    early = next(value for value in here if value.startswith(b"east-"))
    late = next(value for value in here if value.startswith(b"west-"))
    # before the cut
    asked = ("--topic", scene.copy, "--partition", "0", "--offset", str(here[early]), "--reverse")
    code, row = translated(scene, scene.name, *asked)
    assert (code, row["kind"], row["to_offset"]) == (0, "exact", there[early]), row
    code, row = translated(
        scene, scene.name, "--topic", scene.topic, "--partition", "0", "--offset", str(there[early])
    )
    assert (code, row["kind"], row["to_offset"]) == (0, "exact", here[early]), row
    # behind it, each way
    for topic, offset, reverse, expected in (
        (scene.copy, here[late], ["--reverse"], there[late]),
        (scene.topic, there[late], [], here[late]),
    ):
        asked = ("--topic", topic, "--partition", "0", "--offset", str(offset))
        code, row = translated(scene, scene.name, *asked, *reverse)
        assert (code, row["kind"]) == (3, "unknown"), row
        back = [] if reverse else ["--reverse"]
        command = f"--link {scene.back} {' '.join((*asked, *back))}`"
        assert "behind the cut of promotion 1" in row["reason"]
        assert command in row["reason"]
        code, row = translated(scene, scene.back, *asked, *back)
        assert (code, row["kind"], row["to_offset"]) == (0, "exact", expected), row
    # the link back names the link that knows what is before its beginning
    asked = ("--topic", scene.copy, "--partition", "0", "--offset", str(here[early]))
    code, row = translated(scene, scene.back, *asked)
    assert code == 3, row
    assert f"--link {scene.name} {' '.join(asked)} --reverse`" in row["reason"]


BEHIND = 30


def test_a_restoration_names_the_transaction_that_the_crash_left_open_and_waits_for_its_end(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Not for minutes without a word: by transactional.id, partition, age and end; a dry run counts up to it."""
    scene = promoted(east, west, topic_name, tmp_path, spark_context)
    stable = scene.end("east", 0)
    opened = Producer(
        {**scene.east, "transactional.id": f"{topic_name}-etl", "transaction.timeout.ms": 45_000}
    )
    opened.init_transactions(30)
    opened.begin_transaction()
    opened.produce(scene.topic, b"open", partition=0)
    assert opened.flush(30) == 0
    plain = Producer(scene.east)
    for number in range(BEHIND):
        plain.produce(scene.topic, b"plain-%d" % number, partition=0)
    assert plain.flush(30) == 0
    code, found, said = scene.command("readiness")
    (check,) = (one for one in found["checks"] if one["name"] == "open transactions")
    assert f"transactional.id {topic_name}-etl" in check["text"], check
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said

    began = time.monotonic()
    code, found, said = scene.command("restore", "--orphans", "keep", "--dry-run")
    assert code == 0, said
    assert time.monotonic() - began < 20
    (one,) = found["open"]
    assert (one["transactional_id"], one["topic"], one["partition"], one["from"]) == (
        f"{topic_name}-etl", scene.topic, 0, stable,
    )  # fmt: skip
    assert one["ends_at"] > time.time() * 1000
    assert found["records"] == 0

    code, found, said = scene.command("restore", "--orphans", "export", "--to", str(tmp_path / "o"), "--yes")
    assert code == 0, said
    assert f"{scene.topic}-0 is held back from offset {stable}" in said
    assert f"transactional.id {topic_name}-etl" in said
    assert "its coordinator aborts it at" in said
    assert (found["records"], found["open"]) == (BEHIND, [])
    assert len((tmp_path / "o").read_text().splitlines()) == BEHIND


def test_a_cutover_that_waits_asks_for_the_stop_and_counts_from_the_last_record(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """It stops no application: it says where records arrive, and the pause begins when they end."""
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, back=False
    )  # fmt: skip
    scene.write("east", 20)
    over = threading.Event()
    last = 0.0

    def acknowledged(error: Any, message: Any) -> None:
        nonlocal last
        assert error is None, message
        last = time.time()

    def produce() -> None:
        producer = Producer({**scene.east, "linger.ms": 0})
        # half a second without a record is the silence that the command waits for
        while not over.wait(0.05):
            producer.produce(scene.topic, b"x", partition=1, on_delivery=acknowledged)
            producer.poll(0)
        assert producer.flush(30) == 0

    thread = threading.Thread(target=produce)
    mirror = RunningLink(Mirror(scene.config(), spark=spark_context))
    thread.start()
    try:
        mirror.wait(lambda: scene.count("west") > 0, 90)
        # a busy machine takes half a minute to start the command
        timer = threading.Timer(30, over.set)
        timer.start()
        code, found, said = scene.command("cutover", "--yes", "--method", "wait", "--verify", "skip")
        ended = time.time()
        assert code == 0, said
        assert "stopping the applications" not in said
        assert "stop the applications that write to east now" in said
        assert f"stop the producers now: records still arrive in {scene.topic}-1" in said
        assert "s left" in said
        promoted_at = found["promotion"]["at"] / 1000
        assert promoted_at <= ended
        # as the producer has it: the pause is from its last acknowledgement to the record
        assert promoted_at - last - 0.5 < found["write_pause_ms"] / 1000 < promoted_at - last + 1.5
        wait_for(lambda: isinstance(mirror.error, SupersededError))
    finally:
        over.set()
        thread.join(30)
        mirror.end()
