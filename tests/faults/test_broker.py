"""
A cluster that goes away under a running mirror and comes back (faults F9, F10): no operator has to act.

The mirror is the real command, in processes of its own.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror.demo.clients import Offsets
from eomirror.demo.mirror_process import ProcessTree, mirror_command
from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.links.plane import kafka_of
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from support.judges.ledger import Entry

# a minute each; links that are cut, and kills, are in CI (test_network.py, test_kill.py)
pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

_PARTITIONS = 3
# longer than a lane waits for an answer about its topics
_OUTAGE_SECONDS = 14.0


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[LocalCluster, LocalCluster]]:
    """Two clusters that may be hurt."""
    with (
        LocalCluster.start(ClusterSpec("left", kafka_version=kafka_of("east"))) as left,
        LocalCluster.start(ClusterSpec("right", kafka_version=kafka_of("west"))) as right,
    ):
        yield left, right


class Run:
    """A mirror of one topic, in processes of its own, that runs until it is told to stop."""

    def __init__(self, pair: tuple[LocalCluster, LocalCluster], topic: str, folder: Path) -> None:
        self.source, self.target = (dict(cluster.client_properties) for cluster in pair)
        self.topic = topic
        self.written: dict[int, list[Any]] = {number: [] for number in range(_PARTITIONS)}
        self._seeds = iter(range(900, 1000))
        self._folder = folder
        self._path = folder / "mirror.yaml"
        clusters = {"left": self.source, "right": self.target}
        link = {"name": topic, "source": "left", "target": "right", "topics": [topic]}
        self._path.write_text(yaml.safe_dump({"clusters": clusters, "links": [link]}))
        self._path.chmod(0o600)
        (folder / "tmp").mkdir()

    def start(self, *arguments: str) -> ProcessTree:
        """Start ``eomirror run`` with these arguments."""
        environment = {"TMPDIR": str(self._folder / "tmp"), "SPARK_LOCAL_DIRS": str(self._folder / "spark")}
        command = mirror_command(self._path, *arguments)
        return ProcessTree(command, log=self._folder / "mirror.log", environment=environment)

    @contextmanager
    def running(self, *, exit_code: int = 0) -> Iterator[None]:
        """Run it; what ends it early is the test's failure, unless the test waits for it."""
        tree = self.start()
        try:
            yield
            if exit_code:
                assert tree.wait(60) == exit_code, tree.last_lines()
            else:
                assert tree.exit_code is None, tree.last_lines()
                assert tree.terminate(30.0) == 0, tree.last_lines()
        finally:
            if tree.exit_code is None:
                tree.kill()

    def catch_up(self, *arguments: str) -> None:
        """Run it until it has caught up."""
        tree = self.start("--until", "caught-up", *arguments)
        try:
            assert tree.wait(120) == 0, tree.last_lines()
        finally:
            if tree.exit_code is None:
                tree.kill()

    def write(self, count: int = 400) -> None:
        """Write in transactions, one in ten aborted."""
        seed = next(self._seeds)
        more = produce(
            self.source,
            self.topic,
            _PARTITIONS,
            some_records(seed, count),
            transactional_id=f"{self.topic}-{seed}",
        )
        for number, records in more.items():
            self.written[number] += records

    def copied(self) -> bool:
        """Whether as many records are there as were written."""
        found = read_committed(self.target, f"left.{self.topic}")
        return sum(map(len, found.values())) >= sum(map(len, self.written.values()))

    def check(self) -> None:
        """The copy is what was written, byte for byte."""
        assert read_committed(self.target, f"left.{self.topic}") == self.written


@pytest.mark.fault("F9", "F10")
@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.timeout(300)
def test_a_broker_that_is_killed_and_comes_back(
    side: str, pair: tuple[LocalCluster, LocalCluster], topic_name: str, tmp_path: Path, entry: Entry
) -> None:
    """EO-8: the mirror goes on on its own; nothing is missing, twice, or out of order."""
    (broker,) = pair[0 if side == "source" else 1].brokers
    run = Run(pair, topic_name, tmp_path)
    create_topic(run.source, topic_name, _PARTITIONS)
    run.write()
    with run.running():
        wait_for(run.copied, 90)
        if side == "target":
            # lanes meet the outage with a transaction open, or in the middle of a commit
            threading.Timer(0.2, broker.kill).start()
            run.write(2_000)
            time.sleep(_OUTAGE_SECONDS)
        else:
            run.write(2_000)
            # Kafka 4.3 may leave out the markers of an application's last transaction too (docs/adr/0012): it stays
            # open on the source then, for good, and no lane may mirror what is behind it
            Offsets(run.source).settled_ends(topic_name, _PARTITIONS)
            broker.kill()
            time.sleep(_OUTAGE_SECONDS)
        broker.start()
        entry.injected()
        began = time.monotonic()
        run.write()
        wait_for(run.copied, 120)
        entry.recovered(time.monotonic() - began)
    run.check()
    entry.records = sum(map(len, run.written.values()))


@pytest.mark.timeout(300)
def test_an_adopted_position_holds_against_a_lane_that_still_lives(
    pair: tuple[LocalCluster, LocalCluster], topic_name: str, tmp_path: Path
) -> None:
    """EO-3, EO-10: taken over while the old lane commits; the new one goes on where the user says."""
    run = Run(pair, topic_name, tmp_path)
    create_topic(run.source, topic_name, _PARTITIONS)
    run.write(2_000)
    before = len(run.written[0])

    def keep_writing() -> None:
        for _ in range(10):
            run.write(50)

    writer = threading.Thread(target=keep_writing)
    with run.running(exit_code=5):
        wait_for(run.copied, 90)
        # so that the old lane has a reason to commit while it is taken over
        writer.start()
        run.catch_up("--take-over", "--resume-at", f"{topic_name}-0=0")
    writer.join()
    run.catch_up()

    found = read_committed(run.target, f"left.{topic_name}")
    # everything of partition 0 came once more, in order, behind what the old lane had copied
    assert found[0][-len(run.written[0]) :] == run.written[0]
    assert len(found[0]) >= len(run.written[0]) + before
    assert {number: found[number] for number in (1, 2)} == {number: run.written[number] for number in (1, 2)}
