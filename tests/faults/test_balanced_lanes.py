"""Processes die while partitions move between lanes that go on (docs/adr/0035), under load and at every step."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import random

    from support.links.mirrors import CommandMirror
    from support.links.scene import Scene

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300),
    pytest.mark.scene(partitions=9),
]  # fmt: skip

_LANES = 3
_TESTS = Path(__file__).resolve().parent.parent
#: Behind which the lane that gives ends and is fenced.
_NO_CLAIM = "lane_does_not_release"


def restless(scene: Scene, rng: random.Random, **environment: str) -> CommandMirror:
    """`eomirror run` whose lanes give partitions again and again."""
    made = scene.command(
        lanes=_LANES, link={"balance": "bytes"}, proxied=False,
        environment={"PYTHONPATH": str(_TESTS), **environment},
    )  # fmt: skip
    made._command[:3] = [sys.executable, "-m", "support.links.restless", str(rng.randrange(1 << 30))]
    return made


def await_moves(scene: Scene, mirror: CommandMirror, count: int) -> None:
    """Wait until so many more moves were made."""
    goal = mirror.said("partitions_moved") + count
    scene.wait(lambda: mirror.said("partitions_moved") >= goal, 60, f"{count} moves are not made")


@pytest.mark.fault("F1")
@pytest.mark.parametrize("point", ["owner.move_published", "owner.move_claimed"])
def test_a_driver_that_dies_within_a_move(command_scene: Scene, rng: random.Random, point: str) -> None:
    """EO-2, EO-3: the next run takes a new generation, and fences every lane."""
    scene = command_scene
    flag = scene._folder / "passed"
    first = restless(scene, rng, EOMIRROR_CRASH_POINT=f"{point}:{rng.randint(2, 6)}@{flag}")
    scene.start(first)
    scene.watch_over(None)
    assert first.await_exit(90.0)
    scene.entry.injected()
    assert flag.exists(), first.tree.last_lines()

    second = restless(scene, rng)
    scene.start(second)
    await_moves(scene, second, 3)
    scene.heal()
    scene.catch_up()
    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F1")
@pytest.mark.parametrize(
    "point", ["lane.claim_written:2", "lane.claimed:2", "lane.adopted", "lane.adopted:3"]
)
def test_a_lane_that_dies_within_a_move(command_scene: Scene, rng: random.Random, point: str) -> None:
    """EO-1, EO-2: one that gives, before and behind its proof, and one that gets; the driver goes on."""
    scene = command_scene
    flag = scene._folder / "passed"
    mirror = restless(scene, rng, EOMIRROR_CRASH_POINT=f"{point}@{flag}")
    scene.start(mirror)
    scene.wait(flag.exists, 90, f"{point} is not passed")
    scene.entry.injected()
    await_moves(scene, mirror, 5)
    scene.heal()
    scene.catch_up()
    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F1", "F2")
def test_lanes_that_are_frozen_and_killed_while_partitions_move(
    command_scene: Scene, rng: random.Random
) -> None:
    """EO-2: a lane that gives and does not answer is fenced before another one gets its partitions."""
    scene = command_scene
    mirror = restless(scene, rng)
    scene.start(mirror)
    for _ in range(4):
        await_moves(scene, mirror, rng.randint(1, 3))
        lost = rng.choice(mirror.workers())
        scene.entry.injected()
        if rng.random() < 0.5:
            lost.kill()
        else:
            before = mirror.said(_NO_CLAIM)
            lost.suspend()
            scene.wait(lambda before=before: mirror.said(_NO_CLAIM) > before, 60, "no lane is fenced")
            scene.rest(rng.uniform(0, 3))
            lost.resume()
    scene.heal(90.0)
    log.info("%d moves, %d ended by fencing", mirror.said("partitions_moved"), mirror.said(_NO_CLAIM))
    scene.catch_up()
    scene.judge()
    scene.check_generations()
