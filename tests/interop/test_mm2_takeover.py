"""A real MirrorMaker 2 is replaced in place: whatever way it ended, nothing is lost and nothing is mirrored twice."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror import DifferenceError, Mirror, StateError, load_config
from eomirror.adopt import mm2
from eomirror.kafka.status_reader import StatusReader
from eomirror.offsets import translate
from records import create_topic, read_committed, wait_for
from rig.audited import assert_audited
from rig.mm2 import MirrorMaker, SteadyWriter

if TYPE_CHECKING:
    import random
    from pathlib import Path

    from eomirror.config import Config

pytestmark = [pytest.mark.integration, pytest.mark.spark]

PARTITIONS = 2


class Flow:
    """A topic that MM2 mirrors, and the link that takes it over."""

    def __init__(
        self, east: Any, west: Any, name: str, folder: Path, spark: Any, *, exactly_once: bool
    ) -> None:
        self.alias, self.topic, self.spark = name, f"orders-{name}", spark
        self.east, self.west = dict(east.client_properties), dict(west.client_properties)
        create_topic(self.east, self.topic, PARTITIONS)
        self.maker = MirrorMaker(
            self.east["bootstrap.servers"], self.west["bootstrap.servers"], name, self.topic, folder,
            exactly_once=exactly_once,
        )  # fmt: skip
        self.path = folder / "mirror.yaml"
        settings = {
            "clusters": {name: self.east, "west": self.west},
            "links": [{"source": name, "target": "west", "topics": [self.topic]}],
            "defaults": {"lanes": 1, "commit_interval": "20ms"},
        }
        self.path.write_text(yaml.safe_dump(settings))
        self.path.chmod(0o600)

    @property
    def config(self) -> Config:
        return load_config(self.path)

    @property
    def copy(self) -> str:
        return f"{self.alias}.{self.topic}"

    def mirrored(self) -> int:
        """Records of the copy; -1 while there is none."""
        from confluent_kafka.admin import AdminClient

        if self.copy not in AdminClient(self.west).list_topics(timeout=10).topics:
            return -1
        return sum(map(len, read_committed(self.west, self.copy).values()))

    def command(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "adopt", str(self.path), "-o", "json", *arguments],
            capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)

    def goes_on(self) -> None:
        """The mirror runs until it has caught up; source and copy are equal then, and every transaction is whole."""
        with Mirror(self.config, spark=self.spark) as mirror:
            assert mirror.run(until="caught-up").exit_code == 0
        there, here = read_committed(self.east, self.topic), read_committed(self.west, self.copy)
        assert here == there
        assert sum(map(len, there.values())) > 0
        assert_audited(self.config)


def test_a_killed_at_least_once_mm2_is_replaced_at_its_next_record(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused while it runs; after its end the copies' ends tell what it mirrored behind its last commit."""
    flow = Flow(east, west, topic_name, tmp_path, spark_context, exactly_once=False)
    with flow.maker, SteadyWriter(flow.east, flow.topic, PARTITIONS, per_second=20):
        wait_for(lambda: flow.maker.check() and flow.mirrored() > 200, 120)
        monkeypatch.setattr(mm2, "PATIENCE_SECONDS", 0.0)
        with pytest.raises(DifferenceError, match="still mirrors"):
            mm2.adopt_mm2(flow.config)
        monkeypatch.undo()
        flow.maker.kill()

    with (
        Mirror(flow.config, spark=flow.spark) as early,
        pytest.raises(StateError, match="written a second time"),
    ):
        early.run(until="caught-up")
    code, looked = flow.command("--dry-run")
    assert (code, looked["committed"], looked["transactional"]) == (0, False, False)
    # it has been watched already
    monkeypatch.setattr(mm2, "WATCH_SECONDS", 0.5)
    found = mm2.adopt_mm2(flow.config)

    assert found.generation == 1
    assert [each.as_dict() for each in found.partitions] == looked["partitions"]
    assert all(each.resume is not None for each in found.partitions)
    # a group that lags behind finds its place in what the comparison has told the offset map
    first = found.partitions[0]
    (answer,) = translate(flow.config, topic=flow.topic, partition=0, offset=first.ranges[0][0])
    assert (answer.kind, answer.to_offset) == ("exact", first.ranges[0][1])
    with pytest.raises(StateError, match="positions of its own"):
        mm2.adopt_mm2(flow.config)
    flow.goes_on()


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
@pytest.mark.parametrize("trial", range(3))
def test_mm2_is_killed_at_a_random_moment(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, rng: random.Random,
    exactly_once: bool, trial: int,
) -> None:  # fmt: skip
    """With traffic on, whatever it had open: 0 lost, 0 twice, and the link knows where it came from."""
    del trial
    flow = Flow(east, west, topic_name, tmp_path, spark_context, exactly_once=exactly_once)
    with flow.maker, SteadyWriter(flow.east, flow.topic, PARTITIONS, per_second=40):
        wait_for(lambda: flow.maker.check() and flow.mirrored() > 100, 120)
        time.sleep(rng.uniform(0, 4))
        flow.maker.kill()
        code, found = flow.command()

    assert (code, found["committed"], found["transactional"]) == (0, True, exactly_once)
    flow.goes_on()
    config = flow.config
    reader = StatusReader(config.links[0], config.clusters[flow.alias], config.clusters["west"])
    try:
        assert reader.read().lag_records == 0
    finally:
        reader.close()


@pytest.mark.slow
@pytest.mark.parametrize("exactly_once", [True, False], ids=["exactly-once", "at-least-once"])
def test_mm2_is_stopped_in_order(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, exactly_once: bool
) -> None:
    """What it committed last is where its copies end."""
    flow = Flow(east, west, topic_name, tmp_path, spark_context, exactly_once=exactly_once)
    with flow.maker:
        with SteadyWriter(flow.east, flow.topic, PARTITIONS, per_second=40):
            wait_for(lambda: flow.maker.check() and flow.mirrored() > 100, 120)
            flow.maker.stop()
        found = mm2.adopt_mm2(flow.config)

    assert [each.resume for each in found.partitions] == [
        each.committed + 1 for each in found.partitions if each.committed is not None
    ]
    flow.goes_on()


@pytest.mark.slow
def test_mm2_crashed_twice_between_two_commits(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """It has mirrored the same records again itself; none is mirrored a third time, and none is left out."""
    flow = Flow(east, west, topic_name, tmp_path, spark_context, exactly_once=False)
    with SteadyWriter(flow.east, flow.topic, PARTITIONS, per_second=20):
        with flow.maker:
            wait_for(lambda: flow.maker.check() and flow.mirrored() > 300, 120)
        before = flow.mirrored()
        with flow.maker:
            # its first session has committed nothing: the second begins at the first record again
            wait_for(lambda: flow.maker.check() and flow.mirrored() > before + 20, 120)
    found = mm2.adopt_mm2(flow.config)
    assert not found.problems
    doubled = read_committed(flow.west, flow.copy)

    with Mirror(flow.config, spark=flow.spark) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0

    there, here = read_committed(flow.east, flow.topic), read_committed(flow.west, flow.copy)
    for number in range(PARTITIONS):
        after = here[number][len(doubled[number]) :]
        assert here[number][: len(doubled[number])] == doubled[number]
        assert set(there[number]) == set(here[number])
        assert not set(after) & set(doubled[number])
        assert len(set(after)) == len(after)
