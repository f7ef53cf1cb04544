"""
Seeded disasters: the source is lost under transactional load, the mirror and the command are killed at random.

The judge is a plain client: what it reads on both sides, and what the producer knows.  ``EOMIRROR_SEED``
repeats the disasters, ``EOMIRROR_DISASTERS`` sets their number in the slow run.
"""

from __future__ import annotations

import os
import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from support.disaster import Disaster
from support.mirrors import CommandMirror
from support.records import wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from support.records import Record

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.spark]

_POINTS = (
    "", "owner.initialized", "owner.published", "owner.fenced_some", "owner.fenced_all", "failover.taken",
    "failover.ended", "failover.read", "failover.group_moved", "failover.groups_moved", "failover.recorded",
)  # fmt: skip
_DISASTERS = int(os.environ.get("EOMIRROR_DISASTERS", "10"))


class Load(threading.Thread):
    """Transactions on the source, one in ten aborted, and a group that reads on, until the end is asked for."""

    def __init__(self, scene: Disaster, rng: random.Random) -> None:
        super().__init__(daemon=True)
        self.over = threading.Event()
        self.written: dict[int, list[Record]] = {0: [], 1: []}
        self._scene, self._rng = scene, rng

    def run(self) -> None:
        while not self.over.is_set():
            for number, records in self._scene.write("east", self._rng.randrange(10, 80)).items():
                self.written[number] += records
            ends = {number: self._scene.end("east", number) for number in range(2)}
            self._scene.commit(
                "east", "reader", {n: self._rng.randrange(end // 2, end) for n, end in ends.items()}
            )

    def finish(self) -> dict[int, list[Record]]:
        """End; what was committed."""
        self.over.set()
        self.join(60)
        assert not self.is_alive()
        return self.written


def values(records: dict[int, list[Record]]) -> dict[int, list[bytes]]:
    """Values of each partition, in order."""
    return {number: [record[1] or b"" for record in found] for number, found in records.items()}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("number", range(_DISASTERS))
def test_nothing_is_lost_beyond_the_cut_and_nothing_comes_twice(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, seed: int, number: int
) -> None:
    """Copies are a prefix of the source; every orphan is found and merged once; the group skips no record."""
    rng = random.Random(f"{seed}/{number}")
    equal_names, point = rng.random() < 0.5, rng.choice(_POINTS)
    scene = Disaster(
        east.client_properties, west.client_properties, topic_name, tmp_path, spark_context,
        equal_names=equal_names, back=False,
    )  # fmt: skip
    mirror = CommandMirror(scene.settings(), tmp_path / "mirror")
    load = Load(scene, rng)
    load.start()
    mirror.start()
    try:
        wait_for(lambda: scene.count("west") > 50, 120)
        scene.await_checkpoints(2)
        time.sleep(rng.uniform(0, 2))
        if rng.random() < 0.5:
            mirror.tree.kill()
        # from here the source is out of the command's reach; a mirror that lives is fenced by the command
        code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True, crash=point)
        assert code == (-9 if point else 0), said
        code, _, said = scene.command("failover", "--source-gone", "--yes", lost=True)
        assert code == (6 if point in {"", "failover.recorded"} else 0), said
        if mirror.tree.exit_code is None:
            wait_for(lambda: mirror.tree.exit_code is not None, 60)
            assert mirror.tree.exit_code in {5, 6}, mirror.tree.last_lines()
    finally:
        written = values(load.finish())
        mirror.close()
    there = values(scene.read("west"))
    for partition in range(2):
        assert there[partition] == written[partition][: len(there[partition])]
        # the group skips no record
        resumed = scene.next_of("west", "reader", partition)
        reached = scene.next_of("east", "reader", partition)
        order = [*written[partition], None]
        assert resumed is None or order.index(resumed) <= order.index(reached)

    scene.with_back = True
    code, found, said = scene.command("reverse", "--yes")
    assert code == 0, said
    orphans = sum(map(len, written.values())) - sum(map(len, there.values()))
    code, found, said = scene.command("restore", "--orphans", "merge", "--yes")
    assert code == 0, said
    assert found["records"] == orphans
    later = values(scene.write("west"))
    scene.catch_up(scene.back)
    everything = {partition: sorted(written[partition] + later[partition]) for partition in range(2)}
    for side in ("east", "west"):
        assert {number: sorted(found) for number, found in values(scene.read(side)).items()} == everything
