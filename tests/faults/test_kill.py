"""
kill -9 of the whole mirror, or of its driver alone, at random moments (faults F1, F2), also while others stand by.

Runs the real command in child processes.  ``EOMIRROR_SEED`` repeats traffic and moments.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror import load_config
from eomirror.demo.clients import Offsets, create_topic
from eomirror.demo.mirror_process import ProcessTree, mirror_command
from eomirror.demo.scenario import judge
from eomirror.demo.traffic import TrafficPlan
from eomirror.demo.watch import TopicWatcher, Traffic
from eomirror.kafka.session import ClusterSession
from eomirror.link.state import control_of
from support.judges.audited import assert_audited
from support.links.plane import plane_under_test

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from eomirror.demo.compare import Comparison, Revision
    from support.judges.ledger import Entry

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.spark]

PARTITIONS = 6
RECORDS = 100_000
START_SECONDS = 120.0  # of a mirror on a busy machine
RATE = 2_000.0
#: Of a mirror whose starts are killed: a hundred of them take a quarter of an hour.
START_RECORDS = 5_000
START_RATE = 200.0
#: Exit codes of a stop: at once, or with the transaction of a lane that had just begun aborted.
STOPPED = {0, 128 + signal.SIGTERM}
#: Kills; the positions of five minutes are compacted, with which an audit compares.
AUDIT_EVERY = 10
#: Words of the log: lanes begin in processes of the driver, Spark starts beside them, and they move there.
STEPS = ("", ": running", "lane_starts", "starting spark", "spark is up", "lanes move to spark", "")


@pytest.fixture
def config(east: Any, west: Any, topic_name: str, tmp_path: Path) -> Path:
    """The configuration of a link of this test's own."""
    config = tmp_path / "mirror.yaml"
    link = {"name": topic_name, "source": "east", "target": "west", "topics": [topic_name]}
    link |= {"plane": plane_under_test()}
    clusters = {"east": east.client_properties, "west": west.client_properties}
    config.write_text(yaml.safe_dump({"clusters": clusters, "links": [link]}))
    return config


@pytest.fixture
def mirror(config: Path, tmp_path: Path) -> Iterator[Callable[..., ProcessTree]]:
    """Starts ``eomirror run``; the test's end kills what is left."""
    (tmp_path / "tmp").mkdir()
    trees: list[ProcessTree] = []

    def start(*arguments: str) -> ProcessTree:
        environment = {"TMPDIR": str(tmp_path / "tmp"), "SPARK_LOCAL_DIRS": str(tmp_path / "spark")}
        command = mirror_command(config, *arguments)
        trees.append(ProcessTree(command, log=tmp_path / "mirror.log", environment=environment))
        return trees[-1]

    yield start
    for tree in trees:
        # also what a driver that was killed alone has left
        tree.kill()


@contextlib.contextmanager
def running(*threads: Any) -> Iterator[None]:
    """Threads that end with the block."""
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        for thread in threads:
            thread.finish()


def live_for(tree: ProcessTree, seconds: float) -> None:
    """Wait; fails with the mirror's own words when it ends on its own."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        assert tree.exit_code is None, tree.last_lines()
        time.sleep(min(0.05, max(0.0, until - time.monotonic())))


def await_news(tree: ProcessTree, watcher: TopicWatcher) -> float:
    """Seconds from the mirror's start until a reader of the target sees something new."""
    return await_more([tree], watcher, tree.started)


class Log:
    """What a mirror writes from now on to a log that has the words of earlier ones."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begin = path.stat().st_size if path.exists() else 0

    def __contains__(self, words: str) -> bool:
        return words.encode() in self._path.read_bytes()[self._begin :]


def await_step(tree: ProcessTree, log: Log, step: str) -> None:
    """Wait until the log has these words."""
    until = time.monotonic() + START_SECONDS
    while step not in log:
        assert time.monotonic() < until, f"no {step!r} after {START_SECONDS} s\n{tree.last_lines()}"
        live_for(tree, 0.02)


def kill_in_its_start(tree: ProcessTree, log: Log, step: str, rng: random.Random) -> None:
    """Kill it a moment after a step, or anywhere in its first ten seconds; sometimes the driver alone."""
    await_step(tree, log, step)
    live_for(tree, rng.uniform(0.0, 1.0 if step else 10.0))
    if rng.random() < 0.5:
        tree.kill()
    else:
        # JVM and workers find out, and its successor does not wait for them
        os.kill(tree.pid, signal.SIGKILL)


@pytest.mark.fault("F1", "F2")
@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_copy_survives_kills_within_ten_seconds_of_a_start(
    east: Any,
    west: Any,
    topic_name: str,
    config: Path,
    mirror: Callable[..., ProcessTree],
    rng: random.Random,
    entry: Entry,
    kills: int,
) -> None:
    """EO-1, EO-2, EO-3: at every step of the move to Spark; nothing lost or twice, and whole transactions."""
    source, target, copy = east.client_properties, west.client_properties, f"east.{topic_name}"
    create_topic(source, topic_name, PARTITIONS, retention_ms="-1")
    traffic = Traffic(source, topic_name, TrafficPlan(rng.getrandbits(32), PARTITIONS), rate=START_RATE)
    watcher = TopicWatcher(target, copy, PARTITIONS)
    first = rng.randrange(len(STEPS))
    path = config.with_name("mirror.log")
    with running(traffic, watcher):
        for number in range(kills):
            written = Log(path)
            kill_in_its_start(mirror(), written, STEPS[(first + number) % len(STEPS)], rng)
            entry.injected()
            if number % AUDIT_EVERY == AUDIT_EVERY - 1:
                assert_audited(load_config(config), at_rest=False, complete=False)
        written = Log(path)
        tree = mirror()
        # workers whose driver alone was killed may have mirrored until here
        await_step(tree, written, "lanes move to spark")
        while traffic.ledger.records < START_RECORDS:
            live_for(tree, 0.1)
        traffic.finish()
        assert tree.terminate(30.0) == 0, tree.last_lines()
        last = mirror("--until", "caught-up")
        assert last.wait(START_SECONDS) == 0, last.last_lines()
        ends = Offsets(target).settled_ends(copy, PARTITIONS)
        until = time.monotonic() + 60
        while not watcher.has_reached(ends) and time.monotonic() < until:
            time.sleep(0.05)

    judge_copy(entry, traffic, watcher, judge(source, target, topic_name, {copy: watcher}, PARTITIONS)[copy])
    assert_audited(load_config(config), complete=kills < AUDIT_EVERY)


def judge_copy(
    entry: Entry, traffic: Traffic, watcher: TopicWatcher, found: tuple[Comparison, Revision]
) -> None:
    """The copy is the source, and no reader saw anything that was taken back."""
    comparison, revision = found
    entry.compared(comparison, revision)
    assert comparison.line == "0 missing, 0 duplicate, 0 reordered, 0 altered", comparison.differences
    assert comparison.source == comparison.target == traffic.ledger.records
    assert revision.stable, revision
    assert revision.seen == traffic.ledger.records
    assert watcher.broken == 0


@pytest.mark.fault("F1")
@pytest.mark.parametrize("stops", [3, pytest.param(40, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])])
def test_a_stop_around_the_move_to_spark_is_clean(
    east: Any,
    west: Any,
    topic_name: str,
    config: Path,
    mirror: Callable[..., ProcessTree],
    rng: random.Random,
    entry: Entry,
    stops: int,
) -> None:
    """EO-10: by either signal, before the move or within 5 s of it: exit code 0, and every copy is exact."""
    source, target, copy = east.client_properties, west.client_properties, f"east.{topic_name}"
    create_topic(source, topic_name, PARTITIONS, retention_ms="-1")
    traffic = Traffic(source, topic_name, TrafficPlan(rng.getrandbits(32), PARTITIONS), rate=RATE / 4)
    watcher = TopicWatcher(target, copy, PARTITIONS)
    path = config.with_name("mirror.log")
    settings = yaml.safe_load(config.read_text())
    settings["links"][0]["lanes"] = 3
    config.write_text(yaml.safe_dump(settings))
    with running(traffic, watcher):
        for number in range(stops):
            written = Log(path)
            tree = mirror()
            step = "lanes move to spark" if number % 4 else "spark is up"
            # a part of the five seconds each
            moment = 5.0 * (number + rng.random()) / stops
            sent = rng.choice((signal.SIGTERM, signal.SIGINT))
            await_step(tree, written, step)
            live_for(tree, moment if number % 4 else rng.random())
            os.kill(tree.pid, sent)
            entry.injected()
            code = tree.wait(30.0)
            assert code == 0, f"{sent.name} {moment:.2f} s after {step!r}: exit {code}\n{tree.last_lines()}"
        traffic.finish()
        last = mirror("--until", "caught-up")
        assert last.wait(START_SECONDS) == 0, last.last_lines()
        ends = Offsets(target).settled_ends(copy, PARTITIONS)
        until = time.monotonic() + 60
        while not watcher.has_reached(ends) and time.monotonic() < until:
            time.sleep(0.05)

    judge_copy(entry, traffic, watcher, judge(source, target, topic_name, {copy: watcher}, PARTITIONS)[copy])
    assert_audited(load_config(config), complete=stops < AUDIT_EVERY)


@pytest.mark.fault("F1", "F2")
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kills", [6, pytest.param(10, marks=pytest.mark.slow)])
def test_a_copy_survives_kills_of_the_whole_tree(
    east: Any,
    west: Any,
    topic_name: str,
    config: Path,
    mirror: Callable[..., ProcessTree],
    rng: random.Random,
    entry: Entry,
    kills: int,
) -> None:
    """EO-1, EO-2, EO-3: 100,000 records are identical on the target, and no reader sees anything taken back."""
    source, target, copy = east.client_properties, west.client_properties, f"east.{topic_name}"
    create_topic(source, topic_name, PARTITIONS, retention_ms="-1")
    traffic = Traffic(source, topic_name, TrafficPlan(rng.getrandbits(32), PARTITIONS), rate=RATE)
    watcher = TopicWatcher(target, copy, PARTITIONS)
    offsets = Offsets(target)
    recoveries: list[float] = []
    hit = 0
    with running(traffic, watcher):
        tree = mirror()
        for number in range(kills):
            if number % 2:
                # anywhere in its life: Spark's start, recovery, or the first transactions
                live_for(tree, rng.uniform(0.0, 8.0))
            else:
                # while it surely copies
                recoveries.append(await_news(tree, watcher))
                live_for(tree, rng.uniform(0.0, 2.0))
            assert tree.kill() >= 1
            entry.injected()
            hit += bool(offsets.partitions(copy) and offsets.open_transactions(copy, PARTITIONS))
            tree = mirror()
        recoveries.append(await_news(tree, watcher))
        while traffic.ledger.records < RECORDS:
            live_for(tree, 0.1)
        traffic.finish()
        assert tree.terminate(30.0) == 0, tree.last_lines()
        last = mirror("--until", "caught-up")
        assert last.wait(START_SECONDS) == 0, last.last_lines()
        ends = offsets.settled_ends(copy, PARTITIONS)
        until = time.monotonic() + 60
        while not watcher.has_reached(ends) and time.monotonic() < until:
            time.sleep(0.05)

    log.info(
        "%d of %d kills hit an open transaction; seconds to recover: %s",
        hit,
        kills,
        [round(seconds, 1) for seconds in recoveries],
    )
    for seconds in recoveries[1:]:
        entry.recovered(seconds)
    judge_copy(entry, traffic, watcher, judge(source, target, topic_name, {copy: watcher}, PARTITIONS)[copy])
    assert traffic.ledger.records >= RECORDS
    assert_audited(load_config(config))
    share = traffic.ledger.aborted_transactions / traffic.ledger.transactions
    assert share == pytest.approx(1 / 9, abs=0.01)


class Claims:
    """The claims of a link, as the target shows them."""

    def __init__(self, config: Path) -> None:
        loaded = load_config(config)
        self._link = loaded.links[0]
        self._target = ClusterSession(loaded.clusters["west"], client_id="claims")

    def owner(self, trees: list[ProcessTree]) -> ProcessTree:
        """The one of these that has the link; waits until one of them has."""
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            claim = control_of(self._link, self._target).claim
            found = [tree for tree in trees if claim and not claim.released and tree.pid == claim.pid]
            if found:
                return found[0]
            assert all(tree.exit_code is None for tree in trees), trees[0].last_lines()
            time.sleep(0.05)
        raise AssertionError(f"none of these has the link\n{trees[0].last_lines()}")

    def close(self) -> None:
        self._target.close()


def await_more(trees: list[ProcessTree], watcher: TopicWatcher, since: float) -> float:
    """Seconds until a reader of the target sees something that arrived since then."""
    until = time.monotonic() + START_SECONDS
    while (arrived := watcher.first_arrival(since)) is None:
        assert all(tree.exit_code is None for tree in trees), trees[0].last_lines()
        assert time.monotonic() < until, f"nothing new after {START_SECONDS} s\n{trees[0].last_lines()}"
        time.sleep(0.02)
    return arrived - since


@pytest.mark.fault("F1", "F3", "F5")
@pytest.mark.timeout(5400)
@pytest.mark.parametrize("faults", [4, pytest.param(100, marks=pytest.mark.slow)])
def test_one_of_those_that_stand_by_goes_on(
    east: Any,
    west: Any,
    topic_name: str,
    config: Path,
    mirror: Callable[..., ProcessTree],
    rng: random.Random,
    entry: Entry,
    faults: int,
) -> None:
    """EO-10: two stand by; the owner is killed, suspended or stopped at any moment, and there is never a second one."""
    source, target, copy = east.client_properties, west.client_properties, f"east.{topic_name}"
    create_topic(source, topic_name, PARTITIONS, retention_ms="-1")
    traffic = Traffic(source, topic_name, TrafficPlan(rng.getrandbits(32), PARTITIONS), rate=RATE / 4)
    watcher = TopicWatcher(target, copy, PARTITIONS)
    recoveries: dict[str, list[float]] = {"killed": [], "suspended": [], "stopped": []}
    claims = Claims(config)
    with contextlib.closing(claims), running(traffic, watcher):
        trees = [mirror("--standby") for _ in range(3)]
        await_more(trees, watcher, 0.0)
        for number in range(faults):
            owner = claims.owner(trees)
            live_for(owner, rng.uniform(0.0, 3.0))
            how = ("killed", "suspended", "stopped")[
                number % 3 if number < 3 else rng.choice((0, 0, 0, 1, 2))
            ]
            tree = owner.processes()
            others = [one for one in trees if one is not owner]
            if how == "suspended":
                owner.freeze(tree)
                # what is on its way may still arrive
                since = time.monotonic() + 0.3
            elif how == "killed":
                owner.kill(tree)
                since = time.monotonic()
            else:
                assert owner.terminate(30.0) in STOPPED, owner.last_lines()
                since = time.monotonic()
            entry.injected()
            recoveries[how].append(await_more(others, watcher, since))
            if how == "suspended":
                owner.thaw(tree)
            else:
                trees = [*others, mirror("--standby")]
            if number % AUDIT_EVERY == AUDIT_EVERY - 1:
                assert_audited(load_config(config), at_rest=False, complete=False)
        traffic.finish()
        assert all(tree.exit_code is None for tree in trees), trees[0].last_lines()
        for tree in trees:
            assert tree.terminate(30.0) in STOPPED, tree.last_lines()
        last = mirror("--until", "caught-up")
        assert last.wait(START_SECONDS) == 0, last.last_lines()

    log.info(
        "seconds to recover: %s", {how: [round(one, 1) for one in found] for how, found in recoveries.items()}
    )
    for found in recoveries.values():
        for seconds in found:
            entry.recovered(seconds)
    judge_copy(entry, traffic, watcher, judge(source, target, topic_name, {copy: watcher}, PARTITIONS)[copy])
    assert_audited(load_config(config), complete=faults < AUDIT_EVERY)
