"""
kill -9 of the target's broker in each phase of a lane's transaction (fault F9).

A proxy stops the lane at the phase: it holds the request that begins it, or the answer that ends it; then the broker
dies, and comes back on the same data.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from support.clusters.frames import Api
from support.clusters.rules import DropAnswers, Hold, Match
from support.links.plane import plane_under_test

if TYPE_CHECKING:
    import random

    from support.links.scene import Scene

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults,
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.timeout(900),
]

PHASES = {
    "opening": (Api.ADD_PARTITIONS_TO_TXN, False),
    "before the data": (Api.PRODUCE, False),
    "behind the data": (Api.PRODUCE, True),
    "before the commit": (Api.END_TXN, False),
    "behind the commit": (Api.END_TXN, True),
}


@pytest.mark.fault("F9")
@pytest.mark.parametrize(
    "most",
    [pytest.param(1, id="any phase"), pytest.param(len(PHASES), id="each phase", marks=pytest.mark.slow)],
)
def test_a_target_that_dies_in_a_phase_of_a_transaction(scene: Scene, rng: random.Random, most: int) -> None:
    """F9: what was committed is there once, what was not is copied again, and no operator has to act."""
    scene.start(lanes=1, socket_timeout_ms="3000")
    proxy = scene.target.proxy
    (broker,) = scene.target.cluster.brokers
    # protocol V2 opens a transaction with its first Produce
    phases = sorted(PHASES.keys() - ({"opening"} if plane_under_test() == "native" else set()))
    for phase in rng.sample(phases, min(most, len(phases))):
        api, answered = PHASES[phase]
        match = Match(api_key=api, transactional_id=scene.lane_id)
        if answered:
            proxy.arm(phase, DropAnswers(match=match, times=1))
        else:
            proxy.arm(phase, Hold(match=match, nth=rng.randint(1, 5), cut=False))
        proxy.await_event("dropped" if answered else "held", phase, seconds=60.0)
        broker.kill()
        scene.entry.injected()
        proxy.disarm(phase)
        # what the proxy held dies with its connection to the broker
        proxy.cut()
        scene.rest(rng.uniform(1.0, 6.0))
        broker.start()
        log.info("%s: flows %.1f s after the broker is up", phase, scene.heal())
        scene.write_for(300)
    scene.catch_up()

    scene.judge()
    scene.check_generations()
