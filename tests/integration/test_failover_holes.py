"""Failover on real brokers: partitions that the mirror does not know, interrupted commands, and forgotten orphans."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions

from eomirror import Mirror
from support.judges.views import Views
from support.links.disaster import Disaster
from support.links.mirrors import running
from support.traffic.records import wait_for

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]


def grow(scene: Disaster, number: int, count: int) -> None:
    """Add a partition on the source, and write records into it."""
    admin = AdminClient(scene.east)
    (future,) = admin.create_partitions([NewPartitions(scene.topic, number + 1)]).values()
    future.result(30)
    producer = Producer(scene.east)

    def known() -> bool:
        found = producer.list_topics(scene.topic, timeout=10).topics[scene.topic]
        return len(found.partitions) > number

    wait_for(known)
    for each in range(count):
        producer.produce(scene.topic, b"grown-%d" % each, partition=number)
    assert producer.flush(30) == 0


def hook(path: Path, calls: Path) -> Path:
    """A command that fences nothing, notes its calls, and writes to stdout."""
    path.write_text(f"#!/bin/sh\necho $EOMIRROR_ACTION >> {calls}\necho done $EOMIRROR_ACTION\n")
    path.chmod(0o755)
    return path


@pytest.mark.timeout(400)
def test_a_planned_promotion_counts_partitions_that_are_new_and_lifts_its_fence_when_interrupted(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """A record in a partition without a position would be left behind; Ctrl-C leaves no fence."""
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, back=False
    )
    scene.write("east", 20)
    scene.catch_up()

    # an open transaction: the source never gets silent
    producer = Producer({**scene.east, "transactional.id": f"{topic_name}-open"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(scene.topic, b"open", partition=0)
    producer.flush(30)
    _, found, said = scene.command("readiness")
    (check,) = [one for one in found["checks"] if one["name"] == "open transactions"]
    assert "(producer " in check["text"], said
    calls = tmp_path / "calls"
    command = [
        sys.executable, "-m", "eomirror", "cutover", str(scene.path()), "--link", scene.name, "-o", "json", "--yes",
        "--method", "command", "--fence-command", str(hook(tmp_path / "hook", calls)), "--patience", "100",
    ]  # fmt: skip
    for sent in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)
        ) as running:
            wait_for(calls.exists, 60)
            running.send_signal(sent)
            said = running.communicate(timeout=60)[1].decode()
        assert running.returncode == 128 + sent, said
        assert calls.read_text().split() == ["fence", "unfence"], said
        calls.unlink()
    producer.abort_transaction(30)
    scene.catch_up()

    grow(scene, 2, 5)
    code, found, said = scene.command("promote", "--dry-run", "--verify", "skip")
    assert (code, f"{scene.topic}-2" in check_of(found, "new partitions")["text"]) == (6, True), said
    code, _, said = scene.command("promote", "--yes", "--patience", "2", "--verify", "skip")
    assert code == 6, said
    assert f"{scene.topic}-2" in said
    assert scene.command("history")[1]["state"] == "mirror"

    scene.catch_up()
    done = subprocess.run(
        [*command[:-1], "10", "--verify", "skip", "--on-switch", str(tmp_path / "hook")],
        capture_output=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["promoted"] is True


def check_of(result: dict[str, Any], name: str) -> dict[str, Any]:
    """One check of a dry run."""
    (found,) = (each for each in result["readiness"]["checks"] if each["name"] == name)
    return found


def left(scene: Disaster) -> tuple[int, set[str]]:
    """Orphans that `verify` lists, and what was decided about them."""
    (link,) = scene.command("verify")[1]["links"]
    return sum(each["records"] for each in link["orphans"]), {each["decided"] for each in link["orphans"]}


@pytest.mark.timeout(300)
def test_a_dry_run_compares_and_asks_for_the_fence_as_the_command_would(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """It calls no hook, and ends with the exit code of the command: 3 for copies that differ."""
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, back=False
    )
    scene.write("east", 40)
    scene.catch_up()
    calls = tmp_path / "calls"
    fence = ("--method", "command", "--fence-command", str(hook(tmp_path / "hook", calls)))
    dry = ("cutover", "--dry-run", *fence)

    code, found, said = scene.command(*dry)
    assert code == 0, said
    assert "0 differences" in check_of(found, "verified")["text"]
    assert str(tmp_path / "hook") in check_of(found, "fence")["text"]
    assert check_of(found, "silence")["level"] == "ok"
    code, found, said = scene.command("cutover", "--dry-run", "--method", "acl")
    assert (code, "no authorizer" in check_of(found, "fence")["text"]) == (6, True), said

    scene.write("west", 5)
    code, found, said = scene.command(*dry, "--verify", "full")
    assert (code, check_of(found, "verified")["level"]) == (3, "no"), said
    assert not calls.exists()
    # what a dry run has compared is not recorded
    (link,) = scene.command("status")[1]["links"]
    assert (link["verifications"], link["tail"]) == ([], None)
    with running(Mirror(scene.config(), spark=spark_context, links=[scene.name])):
        code, _, said = scene.command("cutover", "--yes", *fence, "--tail", "10")
    assert code == 3, said
    assert calls.read_text().split() == ["fence", "unfence"]
    (link,) = scene.command("status")[1]["links"]
    assert (link["tail"]["outcome"], link["tail"]["tail"], link["tail"]["command"]) == (
        "differs",
        10,
        "cutover",
    )
    assert [one["outcome"] for one in link["verifications"]] == ["differs"]


@pytest.mark.timeout(400)
def test_orphans_are_not_forgotten_on_the_way_back(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Also in a partition that the mirror never saw; and a half reversal is no way back."""
    scene = Disaster(east.client_properties, west.client_properties, topic_name, tmp_path, spark_context)
    scene.write("east", 40)
    scene.catch_up()
    orphans = sum(map(len, scene.write("east", 20).values()))
    grow(scene, 2, 5)
    code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    code, _, said = scene.command("reverse", "--yes")
    assert code == 0, said
    scene.write("west", 40)
    scene.catch_up(scene.back)
    assert left(scene) == (orphans + 5, {""})
    code, found, said = scene.command("failback", "--yes")
    assert code == 6, said
    assert "restore" in said
    assert scene.command("history", link=scene.back)[1]["state"] == "mirror"
    exported = tmp_path / "orphans.jsonl"
    code, found, said = scene.command("restore", "--orphans", "export", "--to", str(exported), "--yes")
    assert code == 0, said
    assert found["records"] == orphans + 5
    assert len(exported.read_text().splitlines()) == orphans + 5
    assert left(scene) == (orphans + 5, {"export"})
    code, found, said = scene.command("restore", "--orphans", "merge", "--yes")
    assert code == 0, said
    assert found["records"] == orphans + 5
    assert left(scene) == (0, set())
    scene.catch_up(scene.back)

    code, _, said = scene.command("failback", "--yes")
    assert code == 0, said
    scene.write("east", 20)
    scene.catch_up()
    code, _, said = scene.command("promote", "--yes")
    assert code == 0, said
    scene.write("west", 10)
    assert scene.command("reverse", "--yes", crash="failover.reversal_noted")[0] == -9
    code, _, said = scene.command("failback", "--yes")
    assert code == 6, said
    assert scene.command("history")[1]["state"] == "reversed"
    code, _, said = scene.command("reverse", "--yes")
    assert code == 0, said
    scene.catch_up(scene.back)
    code, _, said = scene.command("failback", "--yes")
    assert code == 0, said
    east_count, west_count = scene.count("east"), scene.count("west")
    scene.catch_up()
    assert (scene.count("east"), scene.count("west")) == (east_count, west_count)


@pytest.mark.timeout(400)
def test_a_paused_link_holds_over_restarts_and_goes_on_where_it_held(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """Any process asks, the mirror obeys at a transaction's end and keeps the link; nothing is lost or comes twice."""
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, back=False
    )
    written = [scene.write("east", 40)]

    def state() -> str:
        return str(scene.command("status")[1]["links"][0]["state"])

    def everything() -> dict[int, list[bytes]]:
        records = {number: [one for some in written for one in some[number]] for number in range(2)}
        return {number: sorted(one[1] for one in some) for number, some in records.items()}

    def copied() -> dict[int, list[bytes]]:
        return {number: sorted(one[1] for one in some) for number, some in scene.read("west").items()}

    views = Views(scene.config(), scene.name)
    with closing(views), running(Mirror(scene.config(), spark=spark_context), views.run.update):
        wait_for(lambda: scene.count("west") == scene.count("east"), 90)
        code, found, said = scene.command("pause", "--yes", "--dry-run")
        assert (code, found["committed"]) == (0, False), said
        assert state() == "running"
        code, found, said = scene.command("pause", "--yes")
        assert (code, found["topics"], found["matching"]) == (0, ".*", [scene.topic]), said
        wait_for(lambda: state() == "paused")
        # the owner looks every two seconds, and a transaction ends well within the rest
        time.sleep(4)
        held = copied()
        written.append(scene.write("east", 40))
        time.sleep(4)
        assert copied() == held
        # an operator asks what waits, of the mirror's own page as of any other
        lost = scene.command("readiness")[1]["lost"]
        assert lost >= sum(map(len, written[-1].values()))
        wait_for(lambda: all(each.startswith(f"loses at most {lost} records") for each in views.loss()), 60)
        assert views.exported() == [lost, lost]
    with running(Mirror(scene.config(), spark=spark_context)):
        wait_for(lambda: state() == "paused", 60)
        time.sleep(4)
        assert copied() == held
        assert scene.command("readiness")[0] == 0
        # no lane reads what waits: a failover without the source must count it all the same
        waiting = sum(map(len, written[-1].values()))
        wait_for(lambda: scene.command("readiness", "--source-gone", lost=True)[1]["lost"] >= waiting, 60)
        code, found, said = scene.command("promote", "--dry-run", "--yes")
        assert code == 6, said
        assert [one["level"] for one in found["readiness"]["checks"] if one["name"] == "pause"] == ["no"]
        code, found, said = scene.command("resume", "--yes")
        assert (code, found["before"]) == (0, ".*"), said
        wait_for(lambda: copied() == everything(), 90)
        assert state() == "running"
