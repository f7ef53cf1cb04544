"""
A cluster that goes away under a running mirror and comes back (faults F10, F12): nobody has to do anything.

The mirror runs as a library in this process, its lanes in Spark's workers; brokers are killed and paused.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror import Mirror, load_config
from eomirror.demo.cluster import ClusterSpec, LocalCluster
from eomirror.errors import SupersededError
from eomirror.types import SourcePartition
from records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.spark]

_PARTITIONS = 3
# longer than a lane waits for an answer about its topics
_OUTAGE_SECONDS = 14.0


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[LocalCluster, LocalCluster]]:
    """Two clusters that may be hurt."""
    with LocalCluster.start(ClusterSpec("left")) as left, LocalCluster.start(ClusterSpec("right")) as right:
        yield left, right


class Run:
    """A mirror of one topic that runs until it is told to stop."""

    def __init__(self, pair: tuple[LocalCluster, LocalCluster], topic: str, folder: Path, spark: Any) -> None:
        self.source, self.target = (dict(cluster.client_properties) for cluster in pair)
        self.topic = topic
        self.written: dict[int, list[Any]] = {number: [] for number in range(_PARTITIONS)}
        self._spark = spark
        self._seeds = iter(range(900, 1000))
        self.path = folder / "mirror.yaml"
        clusters = {"left": self.source, "right": self.target}
        link = {"name": topic, "source": "left", "target": "right", "topics": [topic]}
        self.path.write_text(yaml.safe_dump({"clusters": clusters, "links": [link]}))
        self.path.chmod(0o600)

    @contextmanager
    def running(self, *, ends_with: type[BaseException] | None = None) -> Iterator[None]:
        """Run it in a thread; what ends it early is the test's failure, unless the test waits for it."""
        mirror = Mirror(load_config(self.path), spark=self._spark)
        ended: list[BaseException] = []

        def run() -> None:
            try:
                mirror.run()
            except BaseException as error:  # noqa: BLE001  raised again below
                ended.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
            if ends_with is not None:
                thread.join(60)
            assert thread.is_alive() or ended, "the mirror ended by itself"
        finally:
            mirror.stop()
            thread.join(60)
        if ends_with is not None:
            assert [type(error) for error in ended] == [ends_with]
        elif ended:
            raise ended[0]

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


# the source alone does not touch a transaction: it is for the long run
@pytest.mark.parametrize("side", [pytest.param("source", marks=pytest.mark.slow), "target"])
@pytest.mark.timeout(300)
def test_a_broker_that_is_killed_and_comes_back(
    side: str, pair: tuple[LocalCluster, LocalCluster], topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """EO-8: the mirror goes on by itself; nothing is missing, twice, or out of order."""
    (broker,) = pair[0 if side == "source" else 1].brokers
    run = Run(pair, topic_name, tmp_path, spark_context)
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
            broker.kill()
            time.sleep(_OUTAGE_SECONDS)
        broker.start()
        run.write()
        wait_for(run.copied, 120)
    run.check()


@pytest.mark.timeout(300)
def test_an_adopted_position_holds_against_a_lane_that_still_lives(
    pair: tuple[LocalCluster, LocalCluster], topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """EO-3, EO-10: taken over while the old lane commits; the new one goes on where the user says."""
    run = Run(pair, topic_name, tmp_path, spark_context)
    create_topic(run.source, topic_name, _PARTITIONS)
    run.write(2_000)
    before = len(run.written[0])

    def keep_writing() -> None:
        for _ in range(10):
            run.write(50)

    writer = threading.Thread(target=keep_writing)
    with run.running(ends_with=SupersededError):
        wait_for(run.copied, 90)
        # so that the old lane has a reason to commit while it is taken over
        writer.start()
        adopt = {SourcePartition(topic_name, 0): 0}
        newer = Mirror(load_config(run.path), spark=spark_context, take_over=True, adopt=adopt)
        assert newer.run(until="caught-up").exit_code == 0
    writer.join()
    assert Mirror(load_config(run.path), spark=spark_context).run(until="caught-up").exit_code == 0

    found = read_committed(run.target, f"left.{topic_name}")
    # everything of partition 0 came once more, in order, behind what the old lane had copied
    assert found[0][-len(run.written[0]) :] == run.written[0]
    assert len(found[0]) >= len(run.written[0]) + before
    assert {number: found[number] for number in (1, 2)} == {number: run.written[number] for number in (1, 2)}
