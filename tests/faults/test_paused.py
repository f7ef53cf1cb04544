"""
Mirrors that stand still and go on, and mirrors that run twice (faults F3, F4, F5).

The mirror is the real command: driver, JVM and workers are frozen with SIGSTOP and go on with SIGCONT, as after a
long pause of a virtual machine.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pytest

from support.clusters.frames import Api
from support.fix_rig import REPEATS

if TYPE_CHECKING:
    from support.links.mirrors import CommandMirror
    from support.links.scene import Scene

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark,
    pytest.mark.timeout(900),
]  # fmt: skip

SUPERSEDED = 5
# a newcomer watches the claim for 7 s, and Spark takes as long again on a busy machine
TAKE_SECONDS = 120.0


@pytest.mark.fault("F3")
@pytest.mark.parametrize("how", [pytest.param("claim stands still", marks=pytest.mark.slow), "--take-over"])
def test_a_mirror_that_wakes_up_after_it_was_replaced_commits_nothing(command_scene: Scene, how: str) -> None:
    """F3, EO-10: frozen with a transaction open for longer than its timeout; awake, it leaves and names the owner."""
    scene = command_scene
    timeout = {"transaction_timeout": "5s"}
    old = scene.command(link=timeout, proxied=False)
    new = scene.command(*([how] if how.startswith("--") else []), link=timeout, proxied=False)
    scene.start(old)
    scene.write_for(1_000)
    scene.freeze_in_transaction(old.freeze, old.thaw)
    frozen = time.monotonic()
    scene.watch_over(None)
    began = time.monotonic()
    scene.start(new)
    # what the reader is shown first may be the old one's, which would own the link still if it woke up now
    scene.wait(
        lambda: len(scene.check_generations()) == 2, TAKE_SECONDS, "the newcomer has not taken the link"
    )
    scene.entry.recovered(time.monotonic() - began)
    scene.rest(max(0.0, frozen + 8.0 - time.monotonic()))
    scene.write_for(1_000)

    old.thaw()
    code = old.await_exit(60.0)

    assert code == SUPERSEDED, old.tree.last_lines()
    assert old.said("is owned by run"), old.tree.last_lines()
    scene.write_for(500)
    scene.catch_up()
    scene.judge()
    assert len(scene.check_generations()) == 2


@pytest.mark.slow
@pytest.mark.fault("F4")
@pytest.mark.parametrize("which", ["everything", "workers"])
def test_a_pause_that_no_broker_notices_changes_nothing(command_scene: Scene, which: str) -> None:
    """F4: frozen for less than the transaction timeout, not taken over: it goes on, without a new attempt."""
    scene = command_scene
    mirror = scene.command(proxied=False)
    scene.start(mirror)
    for _ in range(REPEATS):
        scene.write_for(500)
        _pause(scene, mirror, which, 4.0)
        scene.heal(15.0)
    scene.catch_up()

    assert not mirror.said("lane_retries"), mirror.log
    scene.judge()
    assert len(scene.check_generations()) == 1


@pytest.mark.slow
@pytest.mark.fault("F4")
@pytest.mark.parametrize("which", ["everything", "workers"])
def test_a_pause_beyond_the_transaction_timeout_without_a_successor(command_scene: Scene, which: str) -> None:
    """F4: the coordinator has aborted what was open; the mirror finds itself fenced, still owns the link, goes on."""
    scene = command_scene
    mirror = scene.command(link={"transaction_timeout": "4s"}, proxied=False)
    scene.start(mirror)
    for _ in range(REPEATS):
        scene.write_for(500)
        # the coordinator looks for abandoned transactions every 10 s
        _pause(scene, mirror, which, 16.0)
        scene.heal()
    scene.catch_up()

    scene.judge()
    assert len(scene.check_generations()) == 1


@pytest.mark.fault("F5")
@pytest.mark.parametrize("before", ["new link", pytest.param("owner killed", marks=pytest.mark.slow)])
def test_two_mirrors_of_one_link_started_at_once(command_scene: Scene, before: str) -> None:
    """F5, EO-10: one of them owns the link, the other exits 5 and names it; they do not fence each other on and on."""
    scene = command_scene
    if before == "owner killed":
        first = scene.command()
        scene.start(first)
        scene.write_for(500)
        scene.watch_over(None)
        first.kill()
    pair = [scene.command(), scene.command()]
    control = scene.names.control_transactional_id
    inits = scene.target.proxy.requests(Api.INIT_PRODUCER_ID, control)
    scene.entry.injected()
    for mirror in pair:
        mirror.start()
    scene.begin()
    loser = scene.wait(lambda: _ended(pair), TAKE_SECONDS, "neither of the two leaves")
    winner = pair[1 - pair.index(loser)]
    scene.watch_over(winner)
    assert loser.await_exit(10.0) == SUPERSEDED, loser.tree.last_lines()
    assert loser.said("is owned by run"), loser.tree.last_lines()
    scene.heal(TAKE_SECONDS)
    scene.rest(20.0)
    scene.catch_up()

    # each had its control producer fenced by the other at most once
    fenced = sum(
        mirror.said("owner_fenced_while_taking") + mirror.said("control_write_failed") for mirror in pair
    )
    inits = scene.target.proxy.requests(Api.INIT_PRODUCER_ID, control) - inits
    scene.entry.notes.update(fenced=fenced, inits=inits)
    log.info("%d control producers were fenced, %d InitProducerId requests", fenced, inits)
    assert fenced <= 2
    scene.judge()


def _ended(pair: list[CommandMirror]) -> CommandMirror | None:
    return next((mirror for mirror in pair if mirror.tree.exit_code is not None), None)


def _pause(scene: Scene, mirror: CommandMirror, which: str, seconds: float) -> None:
    """Freeze the whole tree, or only the workers that run lanes, with a transaction open."""
    if which == "everything":
        scene.freeze_in_transaction(mirror.freeze, mirror.thaw)
        time.sleep(seconds)
        mirror.thaw()
        return
    workers = mirror.workers()
    assert workers, "no worker runs a lane"
    scene.freeze_in_transaction(lambda: mirror.tree.freeze(workers), lambda: mirror.tree.thaw(workers))
    scene.rest(seconds)
    mirror.tree.thaw(workers)
