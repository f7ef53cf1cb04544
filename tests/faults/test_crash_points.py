"""F1: kill -9 between each pair of steps of the owner's and the lane's protocols."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror.crash import CRASH_POINTS
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records

if TYPE_CHECKING:
    from pathlib import Path

    from support.judges.ledger import Entry

pytestmark = [pytest.mark.faults, pytest.mark.integration]

# these need something special to be passed at all; the integration tests take that way, for the offset map's
# interop/test_offset_map_tidying.py, for what was left open test_left_open.py, for topics that leave with their copies
# integration/test_gone_topics.py, and for moves test_engine_faults.py and test_balanced_lanes.py
NOT_PASSED_BY_A_PLAIN_RUN = {
    "owner.parked",
    "owner.revision_published",
    "owner.move_published",
    "owner.move_claimed",
    "owner.move_fenced",
    "lane.adopted",
    "lane.map_compacted",
    "lane.hanging_resolved",
}


class Rig:
    """One topic and one link, mirrored by a process of its own per run."""

    def __init__(self, east: Any, west: Any, name: str, folder: Path) -> None:
        self.east, self.west = east.client_properties, west.client_properties
        self.topic = name
        self.folder = folder
        self.committed: dict[int, list[Any]] = {0: [], 1: [], 2: []}
        self.config = folder / "mirror.yaml"
        link = {"name": name, "source": "east", "target": "west", "topics": [name]}
        link |= {"plane": plane_under_test()}
        self.config.write_text(
            yaml.safe_dump({"clusters": {"east": self.east, "west": self.west}, "links": [link]})
        )
        self.config.chmod(0o600)

    def write(self, seed: int) -> None:
        more = produce(self.east, self.topic, 3, some_records(seed, 300), transactional_id=self.topic)
        for number, records in more.items():
            self.committed[number] += records

    def run(self, point: str | None) -> int:
        environment = dict(os.environ)
        if point is not None:
            environment["EOMIRROR_CRASH_POINT"] = f"{point}@{self.folder / point}"
        command = [sys.executable, "-m", "eomirror", "run", str(self.config), "--until", "caught-up"]
        with (self.folder / "log").open("ab") as output:
            return subprocess.run(
                command, env=environment, stdout=output, stderr=output, timeout=120, check=False
            ).returncode


@pytest.mark.fault("F1")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "each_by_itself",
    [pytest.param(False, id="one after the other"), pytest.param(True, id="each", marks=pytest.mark.slow)],
)
def test_no_prefix_of_the_steps_loses_or_repeats_a_record(
    east: Any, west: Any, topic_name: str, tmp_path: Path, seed: int, entry: Entry, *, each_by_itself: bool
) -> None:
    """
    EO-1, EO-2, EO-8: after a death at every point in turn, the copy is the source, once and in order.

    What a driver's death leaves is met by a run that dies one step later, or by one that comes to its end.
    """
    rig = Rig(east, west, topic_name, tmp_path)
    create_topic(rig.east, rig.topic, 3)
    points = [point for point in CRASH_POINTS if point not in NOT_PASSED_BY_A_PLAIN_RUN]
    for number, point in enumerate(points):
        rig.write(seed + number)
        code = rig.run(point)
        entry.injected()
        assert (tmp_path / point).exists(), f"{point} was not passed; see {tmp_path / 'log'}"
        if code != 0:
            # the driver itself died; a lane's death is healed by the driver that lives
            assert code == -9, f"{point}: exit {code}; see {tmp_path / 'log'}"
            if each_by_itself:
                assert rig.run(None) == 0, f"after {point}; see {tmp_path / 'log'}"
    assert rig.run(None) == 0, f"in the end; see {tmp_path / 'log'}"

    assert read_committed(rig.west, f"east.{rig.topic}") == rig.committed
    entry.records = sum(map(len, rig.committed.values()))
