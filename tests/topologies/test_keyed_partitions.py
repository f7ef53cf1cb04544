"""Several sources in one topic of another partition count: records are placed by their keys."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer

from eomirror import Mirror, load_config
from eomirror.records.names import LinkNames
from eomirror.status.reader import StatusReader
from eomirror.verify.runner import Verifier
from support.clusters.frames import Api
from support.clusters.rules import Hold, Match
from support.fix_rig import REPEATS
from support.links.keyed import (
    ORIGIN,
    SOURCES,
    TARGETS,
    assert_placed,
    copied,
    copied_now,
    create,
    keyed_settings,
    originals,
    read,
    write,
)
from support.links.mirrors import CommandMirror, running
from support.links.plane import PLANES, plane_under_test
from support.traffic.records import create_topic, wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from eomirror.config import Config
    from eomirror.localkafka.cluster import LocalCluster
    from support.clusters.rig import Rig

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(600)]


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
    config = load_config(
        keyed_settings(west.client_properties, east.client_properties, topic_name, plane=other)
    )
    create(config, topic_name)
    write(config, topic_name, 1, 600)
    total = len(originals(config, topic_name))
    with running(Mirror(config, spark=spark_context)):
        wait_for(lambda: copied(config, topic_name, total), 60)
    config = load_config(keyed_settings(west.client_properties, east.client_properties, topic_name))
    write(config, topic_name, 2, 200)
    with running(Mirror(config, spark=spark_context)):
        write(config, topic_name, 3, 200)
        total = len(originals(config, topic_name))
        wait_for(lambda: copied(config, topic_name, total), 60)
    assert assert_placed(config, topic_name) == total

    found = list(verdicts(config))
    assert [verdict.word for verdict in found] == ["equal", "equal"]
    assert sum(part.matched for verdict in found for part in verdict.partitions) == total
    assert [len(verdict.partitions) for verdict in found] == list(SOURCES.values())
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
    path.write_text(json.dumps(keyed_settings(west.client_properties, east.client_properties, topic_name)))
    assert_commands(path, config.links[1].name)

    place = f"dc2/{topic_name}-dc2/4"
    offset = next(int(each.rpartition("/")[2]) for each in originals(config, topic_name) if place in each)
    forged = [(b"again", offset), (b"of no record", 1_000_000)]
    producer = Producer(dict(config.clusters["dc1"].properties))
    # read last, so that each original's true copy is found before
    last = TARGETS - 1
    for value, claimed in forged:
        producer.produce(topic_name, value, headers=[(ORIGIN, f"{place}/{claimed}".encode())], partition=last)
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
    raw = keyed_settings(west.client_properties, east.client_properties, topic_name)
    raw["defaults"]["exclude_configs"] = ["cleanup\\.policy"]
    config = load_config(raw)
    create_topic(config.clusters["dc1"].properties, topic_name, TARGETS, **{"cleanup.policy": "compact"})
    for alias, partitions in SOURCES.items():
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
    copies = read(config.clusters["dc1"].properties, topic_name, TARGETS).values()
    assert sum(b"/%s-dc1/" % topic_name.encode() in headers[-1][1] for *_, headers in copies) == 50


@pytest.mark.slow
def test_a_keyed_topic_is_exact_although_the_mirror_is_killed(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """
    EO-1, EO-5: six kills; every record once, in order per source.

    Three hit a transaction whose records, or state, are written, or that is just committed, three any moment.
    """
    raw = keyed_settings(west.client_properties, east.client_properties, topic_name)
    config = load_config(raw)
    create(config, topic_name)
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


def running_through(rig: Rig, name: str, dc2: Mapping[str, str], spark: Any) -> tuple[Mirror, Config]:
    """The mirror of both links, dc1 entered through the proxy, and the same configuration past it."""
    # a lost answer costs this time
    raw = keyed_settings({**rig.target.proxied, "socket.timeout.ms": "2000"}, dc2, name)
    direct = load_config(keyed_settings(rig.target.direct, dc2, name))
    create(direct, name)
    return Mirror(load_config(raw), spark=spark), direct


@pytest.mark.parametrize("held", [Api.PRODUCE, Api.END_TXN], ids=lambda api: api.name.lower())
def test_late_requests_of_a_keyed_link_change_nothing(
    rig: Rig, east: LocalCluster, topic_name: str, spark_context: Any, rng: random.Random, held: Api
) -> None:
    """EO-9: a request that was repeated arrives in a later transaction of the lane; every record is there once."""
    mirror, config = running_through(rig, topic_name, east.client_properties, spark_context)
    proxy = rig.target.proxy
    lane, turns = LinkNames(config.links[1].state_name).transactional_id(0), itertools.count()

    def writes() -> bool:
        write(config, topic_name, next(turns), 100)
        return True

    with running(mirror):
        for turn in range(REPEATS):
            rule = f"{held.name} {turn}"
            match = Match(api_key=held, transactional_id=lane)
            proxy.arm(rule, Hold(match=match, nth=rng.randint(1, 3)))
            wait_for(lambda rule=rule: writes() and proxy.events("held", rule), 60)
            ended, written = proxy.requests(Api.END_TXN, lane), proxy.requests(Api.PRODUCE, lane)
            wait_for(lambda ended=ended: writes() and proxy.requests(Api.END_TXN, lane) > ended, 60)
            wait_for(lambda written=written: writes() and proxy.requests(Api.PRODUCE, lane) > written + 1, 60)
            proxy.release(rule)
            proxy.await_event("late answer", rule)
        total = len(originals(config, topic_name))
        wait_for(lambda: copied(config, topic_name, total), 120)
    assert assert_placed(config, topic_name) == total


def test_a_keyed_link_waits_for_a_broker_that_stands_still(
    rig: Rig, east: LocalCluster, topic_name: str, spark_context: Any, rng: random.Random
) -> None:
    """F11: for less than a transaction may take, with transactions open; nothing is lost or doubled."""
    mirror, config = running_through(rig, topic_name, east.client_properties, spark_context)
    (broker,) = rig.target.cluster.brokers
    with running(mirror):
        for turn in range(REPEATS):
            write(config, topic_name, 10 * turn, 500)
            time.sleep(rng.uniform(0.0, 0.2))
            before = copied_now(config, topic_name)
            broker.pause()
            # an application on the broker that stands still would wait as well, and longer
            write(config, topic_name, 10 * turn + 1, 500, sources=["dc2"])
            time.sleep(5.0)
            broker.resume()
            wait_for(lambda before=before: copied_now(config, topic_name) > before, 120)
        total = len(originals(config, topic_name))
        wait_for(lambda: copied(config, topic_name, total), 120)
    assert assert_placed(config, topic_name) == total
