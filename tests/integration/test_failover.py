"""Failover on real brokers: what was mirrored is promoted, and only that; a death of the command changes nothing."""

from __future__ import annotations

import base64
import json
import re
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from eomirror import Mirror, NotReadyError, SupersededError
from eomirror.crash import FAILOVER_CRASH_POINTS
from support.links.disaster import Disaster
from support.links.link import RunningLink
from support.traffic.records import read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

# points that a failover passes, in their order
_OWNER = ("owner.initialized", "owner.published", "owner.fenced_some", "owner.fenced_all")
_FAILOVER = ("checked", "taken", "ended", "read", "group_moved", "groups_moved")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("equal_names", [False, True], ids=["prefixed", "equal"])
def test_a_lost_source_is_failed_over_at_the_cut(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, *, equal_names: bool
) -> None:
    """Killed between any two steps, a second call comes to the same end: records, groups, and the stated cut."""
    scene = Disaster(
        east.client_properties,
        west.client_properties,
        topic_name,
        tmp_path,
        spark_context,
        equal_names=equal_names,
        back=False,
    )
    mirrored = scene.write("east")
    reading = {number: scene.end("east", number) // 2 for number in range(2)}
    scene.commit("east", "half", reading)
    scene.commit("east", "whole", {number: scene.end("east", number) for number in range(2)})
    wanted = {number: scene.next_of("east", "half", number) for number in range(2)}
    scene.catch_up()
    scene.follow(4)
    scene.write("east")
    ends = {number: scene.end("west", number) for number in range(2)}
    gone = ("--source-gone", "--yes")

    code, found, _ = scene.command("readiness", "--source-gone", lost=True)
    # the mirror has written what it knew of the source's ends when it was stopped
    assert (code, found["verdict"].split(" known")[0]) == (0, f"READY, LOSS NOT KNOWN: {found['lost']}")
    assert found["lost_age_seconds"] > 0
    code, found, said = scene.command("failover", "--yes")
    assert code == 6, said
    assert "promote" in said
    for point in (*_OWNER, *(f"failover.{each}" for each in _FAILOVER)):
        code, _, said = scene.command("failover", *gone, lost=True, crash=point)
        assert (tmp_path / point).exists(), f"{point} was not passed: {said}"
        assert code == -9, said
        assert scene.command("history")[1]["state"] == "mirror"
    # a mirror in between heals what such a death leaves, and nothing else happens
    code, found, said = scene.command("failover", *gone, lost=True, crash="failover.recorded")
    assert code == -9, said

    code, found, said = scene.command("failover", *gone, lost=True)
    assert code == 6, said
    state = scene.command("history")[1]
    assert state["state"] == "promoted"
    (promotion,) = state["promotions"]
    assert promotion["kind"] == "failover"
    assert promotion["lost"] >= 0
    assert promotion["ends_at"] < promotion["at"]
    assert {cut["partition"]: cut["target_end"] for cut in promotion["cuts"]} == ends
    assert scene.read("west") == mirrored
    assert {number: scene.next_of("west", "half", number) for number in range(2)} == wanted
    assert [scene.next_of("west", "whole", number) for number in range(2)] == [None, None]
    with pytest.raises(NotReadyError, match="was promoted at"):
        scene.catch_up()
    # a source that is away does not hide it
    code, _, said = scene.command("run", "--until", "caught-up", lost=True)
    assert (code, "was promoted at" in said) == (6, True), said
    assert scene.read("west") == mirrored


def test_every_crash_point_of_failover_is_known() -> None:
    """The points that these tests pass are those of the commands."""
    assert {f"failover.{each}" for each in _FAILOVER} <= set(FAILOVER_CRASH_POINTS)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "equal_names",
    [pytest.param(False, marks=pytest.mark.slow, id="prefixed"), pytest.param(True, id="equal")],
)
def test_the_way_there_and_back_with_orphans(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, *, equal_names: bool
) -> None:
    """A to B to A to B: each orphan reaches the other side once, and both sides hold the same records at the end."""
    scene = Disaster(
        east.client_properties,
        west.client_properties,
        topic_name,
        tmp_path,
        spark_context,
        equal_names=equal_names,
    )
    first = scene.write("east")
    scene.commit("east", "half", {number: scene.end("east", number) // 2 for number in range(2)})
    scene.catch_up()
    orphans = scene.write("east", 40)

    code, found, said = scene.command("failover", "--source-gone", "--yes", lost=True)
    assert code == 0, said
    groups = next(check["text"] for check in found["readiness"]["checks"] if check["name"] == "groups")
    assert "none would be moved: a link with its link back in the configuration" in groups
    assert values(scene.read("west")) == values(first)
    there = scene.write("west")
    for point in ("failover.reversal_noted", "failover.reversed"):
        assert scene.command("reverse", "--yes", crash=point)[0] == -9
    code, found, said = scene.command("reverse", "--yes")
    assert code == 0, said
    assert found["orphans"] >= sum(map(len, orphans.values()))
    scene.catch_up(scene.back)
    check_export(scene, tmp_path / "orphans.jsonl", orphans)
    code, found, said = scene.command(
        "restore", "--orphans", "merge", "--yes", crash="failover.orphans_written"
    )
    assert code == -9, said
    code, found, said = scene.command("restore", "--orphans", "merge", "--yes")
    assert code == 0, said
    assert found["records"] == sum(map(len, orphans.values()))
    scene.catch_up(scene.back)
    everything = values(first, orphans, there)
    assert values(scene.read("east")) == everything
    assert values(scene.read("west")) == everything

    code, _, said = scene.command("failback", "--yes")
    assert code == 0, said
    assert scene.command("history")[1]["state"] == "mirror"
    assert scene.command("history", link=scene.back)[1]["state"] == "reversed"
    again = scene.write("east")
    scene.catch_up()
    with pytest.raises(NotReadyError, match="was promoted at"):
        scene.catch_up(scene.back)
    everything = values(first, orphans, there, again)
    assert values(scene.read("east")) == everything
    assert values(scene.read("west")) == everything

    more = values(*lose_again(scene))
    everything = {number: sorted(everything[number] + more[number]) for number in everything}
    assert values(scene.read("east")) == everything
    assert values(scene.read("west")) == everything
    code, _, said = scene.command("verify", link=scene.back)
    assert code == 0, said
    numbers = [(each["number"], each["kind"]) for each in scene.command("history")[1]["promotions"]]
    assert numbers == [(1, "failover"), (2, "failover")]


def lose_again(scene: Disaster) -> tuple[dict[int, list[Any]], dict[int, list[Any]]]:
    """Loses the source a second time, and merges its orphans; returns these, and what was written on the target."""
    orphans = scene.write("east", 40)
    assert scene.command("failover", "--source-gone", "--yes", lost=True)[0] == 0
    last = scene.write("west")
    code, _, said = scene.command("reverse", "--yes")
    assert code == 0, said
    scene.catch_up(scene.back)
    code, found, said = scene.command("restore", "--orphans", "merge", "--yes")
    assert code == 0, said
    assert found["records"] == sum(map(len, orphans.values()))
    scene.catch_up(scene.back)
    return orphans, last


@contextmanager
def unfenced_application(scene: Disaster) -> Iterator[None]:
    """
    An application with an open transaction on the source, which no fence has stopped.

    The producers of a scene are silent between two writes, for as long as a busy machine takes.
    """
    producer = Producer({**scene.east, "transactional.id": f"{scene.name}-unfenced"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(scene.topic, b"of an application that was not stopped", partition=0)
    producer.flush(30)
    try:
        yield
    finally:
        producer.abort_transaction(30)


@pytest.mark.timeout(400)
def test_a_cutover_under_load_loses_nothing_and_a_failed_one_undoes_its_fence(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """The fence is a hook that stops the producer; the judge counts what the producer knows to be committed."""
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context, back=False
    )
    stop, calls = tmp_path / "stop", tmp_path / "calls"
    hook = tmp_path / "hook"
    hook.write_text(
        f"#!/bin/sh\necho $EOMIRROR_ACTION $EOMIRROR_LINK >> {calls}\n"
        f'case "$EOMIRROR_ACTION" in fence) touch {stop};; *) rm -f {stop};; esac\n'
    )
    deaf = tmp_path / "deaf"
    deaf.write_text(f"#!/bin/sh\necho $EOMIRROR_ACTION >> {calls}\n")
    for each in (hook, deaf):
        each.chmod(0o755)
    written = [scene.write("east", 20)]
    over = threading.Event()

    def produce() -> None:
        while not over.is_set():
            if stop.exists():
                time.sleep(0.05)
            else:
                written.append(scene.write("east", 20))

    producer = threading.Thread(target=produce)
    mirror = RunningLink(Mirror(scene.config(), spark=spark_context))
    producer.start()
    try:
        mirror.wait(lambda: scene.count("west") > 0, 90)
        with unfenced_application(scene):
            code, found, said = scene.command(
                "cutover", "--yes", "--method", "command", "--fence-command", str(deaf), "--patience", "2"
            )
        assert (code, found["state"]) == (6, "failed"), said
        assert "not silent" in said
        assert calls.read_text().split() == ["fence", "unfence"]
        assert scene.command("history")[1]["state"] == "mirror"
        # the failed command had not taken the link yet, so the mirror has it still
        assert mirror.error is None
        calls.unlink()

        code, found, said = scene.command(
            "cutover", "--yes", "--method", "command", "--fence-command", str(hook), "--verify", "full",
            "--on-switch", f"touch {tmp_path / 'switched'}",
        )  # fmt: skip
        assert code == 0, said
        assert (tmp_path / "switched").exists()
        assert found["switched"] is True
        assert found["promotion"]["lost"] == 0
        assert 0 < found["write_pause_ms"] < 60_000
        assert calls.read_text().split() == ["fence", scene.name]
        wait_for(lambda: isinstance(mirror.error, SupersededError))
        assert re.search(r"was promoted at .* by host|was taken by `eomirror cutover`", str(mirror.error))
        assert "--take-over" not in str(mirror.error)
    finally:
        over.set()
        producer.join(60)
        mirror.end()
    assert values(scene.read("west")) == values(*written)
    code, _, said = scene.command("unfence", "--yes", "--method", "command", "--fence-command", str(hook))
    assert code == 0, said
    check_timeline(scene)
    assert not stop.exists()
    assert calls.read_text().split() == ["fence", scene.name, "unfence", scene.name]


def check_timeline(scene: Disaster) -> None:
    """Fence, comparison, promotion and the end of the fence are told in words."""
    events = scene.command("events")[1]["events"]
    told = [event["text"] for event in events]
    assert any("promoted (promotion 1): applications write to the copies of" in text for text in told)
    assert any("fenced (method command), before promotion 1" in text for text in told)
    assert "the fence before promotion 1 is lifted: applications may write to the source again" in told
    assert any("was compared with its source: equal" in text for text in told)
    # the command took the link on request, from a mirror that ran
    assert "take-over" not in {event["kind"] for event in events}


def check_export(scene: Disaster, path: Path, orphans: dict[int, list[Any]]) -> None:
    """Every orphan is in the file, once; without a file the command says what it needs."""
    code, _, said = scene.command("restore", "--orphans", "export", "--yes")
    assert code == 2, said
    code, _, said = scene.command("restore", "--orphans", "export", "--to", str(path), "--yes")
    assert code == 0, said
    documents = [json.loads(line) for line in path.read_text().splitlines()]
    assert {
        number: sorted(base64.b64decode(each["value"]) for each in documents if each["partition"] == number)
        for number in range(2)
    } == values(orphans)
    for _ in range(2):
        code, found, said = scene.command("restore", "--orphans", "export", "--to-topic", "--yes")
        assert (code, found["records"]) == (0, sum(map(len, orphans.values()))), said
    (exported,) = read_committed(scene.west, found["place"]).values()
    assert sorted(record[1] for record in exported) == sorted(
        one for some in values(orphans).values() for one in some
    )


def values(*written: dict[int, list[Any]]) -> dict[int, list[bytes]]:
    """The values of each partition, sorted: the two sides interleave them in their own orders, and none is equal."""
    return {
        number: sorted(record[1] for records in written for record in records[number]) for number in range(2)
    }
