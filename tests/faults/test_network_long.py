"""
Networks that are bad for long (faults F12 to F15): cut for a minute, young connections, latency, little bandwidth.

`test_network.py` has their short forms.
"""

from __future__ import annotations

import logging
import os
import time
from typing import TYPE_CHECKING

import pytest

from support.clusters.frames import Api
from support.clusters.rules import Delay, Lifetimes, Resets, Throttle
from support.fix_rig import RECORDS
from support.links.mirrors import MemoryWatch

if TYPE_CHECKING:
    from support.links.scene import Scene

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(3600),
]  # fmt: skip

CUT_SECONDS = float(os.environ.get("EOMIRROR_FAULT_SECONDS", "20"))
"""How long a link stays cut; 60 in a long run."""

MEGABYTE = 1024 * 1024
# what a lane may take while it cannot deliver: librdkafka's queue of fetched records, and one transaction
MOST_GROWTH = 200 * MEGABYTE


@pytest.mark.fault("F12")
@pytest.mark.scene(rate=4_000.0, per_transaction=200)
@pytest.mark.parametrize("sides", ["target", "source", "both"])
def test_a_link_that_is_cut_for_long_takes_no_memory(scene: Scene, sides: str) -> None:
    """F12: the source goes on at 4,000 records a second; the lanes wait in bounded memory, and flow again at once."""
    scene.start()
    scene.write_for(RECORDS)
    cut = [scene.source, scene.target] if sides == "both" else [getattr(scene, sides)]
    with MemoryWatch(scene.mirror.workers) as memory:
        scene.rest(2.0)
        for side in cut:
            side.proxy.cut(refuse_seconds=CUT_SECONDS)
        scene.entry.injected(len(cut))
        scene.rest(CUT_SECONDS)
        # the lanes had nothing to do, so a first arrival says that they go on; the rest is throughput
        seconds = scene.entry.recovered(scene.await_news())
        scene.write_for(RECORDS)
        scene.catch_up(120.0)
    scene.entry.notes["growth_mb"] = round(memory.growth / MEGABYTE, 1)
    log.info("cut %s for %g s: flows after %.1f s, %s", sides, CUT_SECONDS, seconds, scene.entry.notes)

    assert memory.growth < MOST_GROWTH, memory.samples
    scene.judge()


@pytest.mark.fault("F13")
def test_connections_die_young_for_a_minute_from_the_start(scene: Scene) -> None:
    """F13: taking the link, recovering and mirroring, all over connections that die; news every 10 s."""
    for side in (scene.source, scene.target):
        side.proxy.arm("young", Lifetimes())
    scene.start()
    goal = scene.traffic.ledger.records + max(27_000, RECORDS)
    while scene.traffic.ledger.records < goal:
        scene.rest(5.0)
        scene.await_news(10.0)
    scene.catch_up(90.0)
    scene.entry.injected(sum(len(side.proxy.events("cut")) for side in (scene.source, scene.target)))

    scene.judge()


@pytest.mark.fault("F14")
def test_a_slow_uneven_network_is_only_slow(scene: Scene) -> None:
    """F14: 200 ms, give or take 100, in each direction, and now and then a cut."""
    scene.start()
    for side in (scene.source, scene.target):
        side.proxy.arm("slow", Delay(seconds=0.2, jitter=0.1))
    for _ in range(3):
        scene.write_for(max(2_000, RECORDS // 3))
        scene.target.proxy.cut()
        scene.entry.injected()
        scene.heal()
    scene.catch_up(120.0)

    scene.judge()


@pytest.mark.fault("F14")
@pytest.mark.scene(rate=150.0)
def test_a_thin_network_with_resets_is_only_slow(scene: Scene) -> None:
    """F14: 200 ms, 1 Mbit/s for each connection, and one request in twenty breaks its connection."""
    scene.start()
    for side in (scene.source, scene.target):
        side.proxy.arm("slow", Delay(seconds=0.1, jitter=0.05))
        side.proxy.arm("thin", Throttle(bytes_per_second=125_000))
        side.proxy.arm("resets", Resets(share=0.05))
    scene.write_for(max(3_000, RECORDS // 2))
    scene.entry.injected(sum(len(side.proxy.events("reset")) for side in (scene.source, scene.target)))
    for side in (scene.source, scene.target):
        side.proxy.disarm("resets")
    scene.heal()
    scene.catch_up(180.0)

    assert scene.entry.injections > 2
    scene.judge()


@pytest.mark.fault("F15")
@pytest.mark.scene(per_transaction=500)
def test_a_transaction_that_is_too_long_for_the_target_shrinks(scene: Scene) -> None:
    """F15: at 40 kB/s the first transaction outlasts its timeout of 4 s; the lane takes less, and gets through."""
    scene.traffic.write(max(5_000, RECORDS))
    proxy = scene.target.proxy
    proxy.arm("thin", Throttle(bytes_per_second=40_000))
    scene.entry.injected()
    began = time.monotonic()
    scene.start(lanes=1, link={"transaction_timeout": "4s"})
    # the owner fences the lane's id once, the lane takes it once
    tries = proxy.requests(Api.INIT_PRODUCER_ID, scene.lane_id) - 1
    scene.entry.notes["tries"] = tries
    log.info("something arrives after %d attempts, %.1f s", tries, time.monotonic() - began)
    scene.traffic.finish()
    scene.rest(10.0)
    proxy.disarm("thin")
    scene.catch_up(120.0)

    assert tries <= 4
    scene.judge()
