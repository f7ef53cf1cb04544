"""
A large backlog that is copied while everything goes wrong (faults F2, F12, F13): up to a million records.

``EOMIRROR_FAULT_RECORDS`` says how many lie on the source when the mirror first starts; it has to copy them through
one interruption after the other.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import pytest

from support.clusters.rules import Lifetimes
from support.fix_rig import RECORDS, REPEATS

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

    from support.links.scene import Scene

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(3600),
    # few large transactions: a million records are written in a minute or two
    pytest.mark.scene(per_transaction=400),
]  # fmt: skip

# a million records, on a machine that does much else
_CATCH_UP_SECONDS = 600.0


def copy_through(scene: Scene, rng: random.Random, interrupt: Callable[[int], None]) -> None:
    """Interrupt the copying again and again, at moments at which records arrive; then all of it is there."""
    for number in range(REPEATS):
        scene.await_news(120.0)
        scene.rest(rng.uniform(0.0, 1.0))
        behind = scene.traffic.ledger.records - scene.watcher.records
        scene.entry.notes.setdefault("behind", behind)
        log.info("interruption %d: %d records behind", number, behind)
        interrupt(number)
        scene.entry.injected()
    began = time.monotonic()
    scene.catch_up(_CATCH_UP_SECONDS)
    log.info("%d records, caught up in %.1f s", scene.watcher.records, time.monotonic() - began)

    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F2")
def test_a_backlog_is_copied_by_mirrors_that_are_killed(command_scene: Scene, rng: random.Random) -> None:
    """F2: kill -9 of the whole mirror in the middle of the backlog, and another one goes on."""
    scene = command_scene
    scene.traffic.write(RECORDS)
    scene.start(scene.command(proxied=False))

    def kill(_: int) -> None:
        before = scene.mirror
        scene.watch_over(None)
        before.close()
        # not how long a restart takes: what the reader is shown next may have lain there before
        scene.start(scene.command(proxied=False))

    copy_through(scene, rng, kill)


@pytest.mark.fault("F12")
def test_a_backlog_is_copied_over_links_that_are_cut(scene: Scene, rng: random.Random) -> None:
    """F12: the source's side, the target's, or both, for up to two seconds."""
    scene.traffic.write(RECORDS)
    scene.start()

    def cut(number: int) -> None:
        for side in ([scene.source], [scene.target], [scene.source, scene.target])[number % 3]:
            side.proxy.cut(refuse_seconds=rng.uniform(0.0, 2.0))

    copy_through(scene, rng, cut)


@pytest.mark.fault("F13")
def test_a_backlog_is_copied_over_connections_that_die_young(scene: Scene, rng: random.Random) -> None:
    """F13: from the moment on at which the mirror flows, no connection lives longer than 1.5 s."""
    scene.traffic.write(RECORDS)
    scene.start()
    sides = (scene.source, scene.target)
    for side in sides:
        side.proxy.arm("young", Lifetimes())

    def cut(_: int) -> None:
        for side in sides:
            side.proxy.cut()
        scene.rest(1.0)

    copy_through(scene, rng, cut)
    scene.entry.injected(sum(len(side.proxy.events("cut")) for side in sides))
