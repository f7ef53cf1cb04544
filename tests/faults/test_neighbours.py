"""
Layouts that change, and links side by side (faults F26, F27).

A link is run with 3, 5, 1, 5 and 3 lanes, each time while the mirror before is frozen with transactions open; and a
link that stands still with a transaction open must not hold up another one into the same target.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pytest

from support.links.scene import Scene

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from support.clusters.rig import Rig
    from support.judges.ledger import Entry
    from support.links.mirrors import CommandMirror

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark,
    pytest.mark.timeout(1800),
]  # fmt: skip

SUPERSEDED = 5
LANES = (3, 5, 1, 5, 3)


@pytest.mark.slow
@pytest.mark.fault("F26")
@pytest.mark.scene(partitions=7, rate=300.0)
def test_lanes_of_every_older_layout_are_fenced(command_scene: Scene) -> None:
    """F26: nothing that an older layout has left open or commits later counts; each older mirror leaves with exit 5."""
    scene = command_scene
    frozen: list[CommandMirror] = []
    for lanes in LANES:
        mirror = scene.command(*(["--take-over"] if frozen else []), lanes=lanes, proxied=False)
        seconds = scene.start(mirror)
        log.info("%d lanes: flows after %.1f s", lanes, seconds)
        if frozen:
            scene.entry.recovered(seconds)
        scene.write_for(500)
        if len(frozen) < len(LANES) - 1:
            scene.freeze_in_transaction(mirror.freeze, mirror.thaw)
            scene.watch_over(None)
            frozen.append(mirror)
    for mirror in frozen:
        mirror.thaw()
    for mirror in frozen:
        assert mirror.await_exit(90.0) == SUPERSEDED, mirror.tree.last_lines()
        assert mirror.said("is owned by run"), mirror.tree.last_lines()
    scene.write_for(500)
    scene.catch_up()

    scene.judge()
    assert len(scene.check_generations()) == len(LANES)


@pytest.fixture
def neighbour(rig: Rig, topic_name: str, entry: Entry, tmp_path: Path, rng: random.Random) -> Iterator[Scene]:
    """Another link between the same clusters."""
    made = Scene(rig, f"{topic_name}-b", seed=rng.getrandbits(32), entry=entry, folder=tmp_path / "b")
    yield made
    made.close()


@pytest.mark.fault("F27")
def test_a_frozen_link_does_not_hold_up_its_neighbour(command_scene: Scene, neighbour: Scene) -> None:
    """F27: link A holds a transaction open while link B is restarted: B goes on where it was, without waiting for A."""
    # longer than a restart takes on a busy machine
    patience = {"transaction_timeout": "240s"}
    mirrors = {}
    for scene in (command_scene, neighbour):
        mirrors[scene.name] = scene.command(link=patience, proxied=False)
        scene.start(mirrors[scene.name])
        scene.write_for(500)
    frozen = mirrors[command_scene.name]
    command_scene.freeze_in_transaction(frozen.freeze, frozen.thaw)
    began = time.monotonic()
    neighbour.watch_over(None)
    mirrors[neighbour.name].kill()
    seconds = neighbour.entry.recovered(neighbour.start(neighbour.command(link=patience, proxied=False)))
    neighbour.write_for(500)
    neighbour.catch_up()
    neighbour.judge()
    assert command_scene.has_open_transaction()
    assert time.monotonic() - began < 230.0, "the frozen transaction has expired, so this says nothing"
    log.info("the neighbour flows %.1f s after its kill", seconds)
    frozen.thaw()
    command_scene.heal()
    command_scene.catch_up()
    command_scene.judge()
