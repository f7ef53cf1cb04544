"""A real MirrorMaker 2 is replaced in place: whatever way it ended, nothing is lost and nothing is mirrored twice."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from eomirror import DifferenceError, Mirror, NotReadyError, StateError
from eomirror.groups import translate
from eomirror.mm2 import adopt
from eomirror.status.reader import StatusReader
from support.clusters.mm2 import SteadyWriter
from support.judges.audited import assert_audited
from support.links.mm2_link import Mm2Link
from support.traffic.records import read_committed, wait_for

if TYPE_CHECKING:
    import random
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]


class Flow(Mm2Link):
    """A topic that MM2 mirrors, and the link that takes it over."""

    def adopt(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        return self.command("adopt", *arguments)

    def goes_on(self) -> None:
        """The mirror runs until it has caught up; source and copy are equal then, and every transaction is whole."""
        self.catch_up()
        there, here = read_committed(self.east, self.topic), read_committed(self.west, self.copy())
        assert here == there
        assert sum(map(len, there.values())) > 0
        assert_audited(self.config)


def test_a_killed_at_least_once_mm2_is_replaced_at_its_next_record(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Refused while it runs; after its end the copies' ends tell what it mirrored behind its last commit."""
    flow = Flow(east, west, topic_name, tmp_path, spark_context, exactly_once=False)
    with flow.maker, SteadyWriter(flow.east, flow.topic, flow.partitions, per_second=20):
        wait_for(lambda: flow.maker.check() and flow.mirrored() > 200, 120)
        monkeypatch.setattr(adopt, "PATIENCE_SECONDS", 0.0)
        with pytest.raises(DifferenceError, match="still mirrors"):
            adopt.adopt_mm2(flow.config)
        monkeypatch.undo()
        flow.maker.kill()

    with (
        Mirror(flow.config, spark=flow.spark) as early,
        pytest.raises(NotReadyError, match="written a second time"),
    ):
        early.run(until="caught-up")
    code, looked = flow.adopt("--dry-run")
    assert (code, looked["committed"], looked["transactional"]) == (0, False, False)
    # it has been watched already
    monkeypatch.setattr(adopt, "WATCH_SECONDS", 0.5)
    found = adopt.adopt_mm2(flow.config)

    assert found.generation == 1
    assert [each.as_dict() for each in found.partitions] == looked["partitions"]
    assert all(each.resume is not None for each in found.partitions)
    # a group that lags behind finds its place in what the comparison has told the offset map
    first = found.partitions[0]
    (answer,) = translate(flow.config, topic=flow.topic, partition=0, offset=first.ranges[0][0])
    assert (answer.kind, answer.to_offset) == ("exact", first.ranges[0][1])
    with pytest.raises(StateError, match="positions of its own"):
        adopt.adopt_mm2(flow.config)
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
    with flow.maker, SteadyWriter(flow.east, flow.topic, flow.partitions, per_second=40):
        wait_for(lambda: flow.maker.check() and flow.mirrored() > 100, 120)
        time.sleep(rng.uniform(0, 4))
        flow.maker.kill()
        code, found = flow.adopt()

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
        with SteadyWriter(flow.east, flow.topic, flow.partitions, per_second=40):
            wait_for(lambda: flow.maker.check() and flow.mirrored() > 100, 120)
            flow.maker.stop()
        found = adopt.adopt_mm2(flow.config)

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
    with SteadyWriter(flow.east, flow.topic, flow.partitions, per_second=20):
        with flow.maker:
            wait_for(lambda: flow.maker.check() and flow.mirrored() > 300, 120)
        before = flow.mirrored()
        with flow.maker:
            # its first session has committed nothing: the second begins at the first record again
            wait_for(lambda: flow.maker.check() and flow.mirrored() > before + 20, 120)
    found = adopt.adopt_mm2(flow.config)
    assert not found.problems
    doubled = read_committed(flow.west, flow.copy())

    flow.catch_up()

    there, here = read_committed(flow.east, flow.topic), read_committed(flow.west, flow.copy())
    for number in range(flow.partitions):
        after = here[number][len(doubled[number]) :]
        assert here[number][: len(doubled[number])] == doubled[number]
        assert set(there[number]) == set(here[number])
        assert not set(after) & set(doubled[number])
        assert len(set(after)) == len(after)
