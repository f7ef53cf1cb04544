"""
The whole mirror over a network that breaks: proxies on both sides, judged past them (faults F6, F12, F13).

Each test writes while the fault lasts, one transaction in ten aborted, and ends with a comparison byte for byte of
all that was committed; a reader of the target watches all along that nothing is ever taken back.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from eomirror import load_config
from eomirror.config import Cluster
from eomirror.demo.clients import TrafficProducer, create_topic
from eomirror.demo.traffic import TrafficPlan
from eomirror.kafka.compacted_topic import CompactedTopicReader
from eomirror.kafka.session import ClusterSession
from support.clusters.frames import Api
from support.clusters.rules import CutAfter, HalfOpen, Hold, Lifetimes, Match
from support.fix_rig import REPEATS
from support.judges.audited import assert_audited
from support.links.plane import plane_under_test

if TYPE_CHECKING:
    import random

    from support.clusters.rig import Rig
    from support.links.scene import Scene

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

REFUSED = {47, 90}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
# protocol V2 (KIP-890): it knows the commit that it has carried out (0), or is carrying out (51), or none such (48)
VOID = REFUSED | {0, 48, 51}


def test_an_answer_that_never_came_is_no_offset(rig: Rig, topic_name: str) -> None:
    """EO-3, EO-6: librdkafka gives offset -1001 without an error for it; a reader would skip the partition."""
    target = rig.target
    create_topic(target.direct, topic_name, 2, retention_ms="-1")  # the records are years old
    traffic = TrafficProducer(target.direct, topic=topic_name, transactional_id=topic_name)
    plan = TrafficPlan(1, 2, abort_every=0)
    transaction = plan.transaction(0, plan.new_ledger(), sent_us=0, wall_ms=1_700_000_000_000)
    traffic.write(transaction)
    written = [sum(record.partition == number for record in transaction.records) for number in range(2)]
    cluster = Cluster("target", target.proxied)
    names = [(topic_name, number) for number in range(2)]
    for times in (1, 2):
        session = ClusterSession(cluster, client_id="test")
        admin, reader = session.admin, CompactedTopicReader(session)
        for at, expected in (("earliest", [0, 0]), ("latest", [count + 1 for count in written])):
            target.proxy.arm("cut", CutAfter(match=Match(api_key=Api.LIST_OFFSETS), times=times))
            assert list(admin.offsets(names, at=at, read_committed=False).values()) == expected, times
        target.proxy.arm("cut", CutAfter(match=Match(api_key=Api.LIST_OFFSETS), times=times))
        _, records = reader.read(topic_name)
        session.close()

        assert len(records) == len(transaction.records), times


@pytest.mark.fault("F13")
def test_connections_that_die_young_on_both_sides(scene: Scene) -> None:
    """F13: no connection lives longer than 1.5 s, and the mirror keeps up."""
    scene.start()
    for side in (scene.source, scene.target):
        side.proxy.arm("young", Lifetimes())
        side.proxy.cut()
    scene.write_for(4_000)
    scene.catch_up()
    died = [len(side.proxy.events("cut")) for side in (scene.source, scene.target)]
    scene.entry.injected(sum(died))
    log.info("%d connections died on the source's side, %d on the target's", *died)

    assert min(died) > 10
    scene.judge()


@pytest.mark.fault("F12")
def test_a_link_that_is_cut_goes_on_when_it_is_whole_again(scene: Scene) -> None:
    """F12: the target's side, the source's side and both, without anybody's help."""
    scene.start()
    for sides in ([scene.target], [scene.source], [scene.source, scene.target]):
        for side in sides:
            side.proxy.cut(refuse_seconds=3.0)
        scene.entry.injected(len(sides))
        scene.rest(3.0)
        log.info("after a cut of %d sides: %.1f s", len(sides), scene.heal())
        scene.write_for(500)
    scene.catch_up()

    scene.judge()


@pytest.mark.fault("F12")
@pytest.mark.parametrize("side", ["source", pytest.param("target", marks=pytest.mark.slow)])
def test_a_half_open_cluster_is_left_and_found_again(scene: Scene, side: str) -> None:
    """F11, F12: longer than the socket timeout nothing comes, and nothing says so."""
    proxy = getattr(scene, side).proxy
    scene.start(socket_timeout_ms="2000")
    proxy.arm("dead", HalfOpen())
    proxy.await_event("swallowed")
    scene.entry.injected()
    scene.rest(5.0)
    proxy.disarm("dead")
    log.info("after a half-open %s: %.1f s", side, scene.heal())
    scene.write_for(500)
    scene.catch_up()

    scene.judge()


@pytest.mark.fault("F6")
@pytest.mark.timeout(300 + 20 * REPEATS)
def test_a_straggling_commit_of_the_lane_is_worthless(scene: Scene, rng: random.Random) -> None:
    """F6, EO-9: each time the lane's commit is held, repeated and delivered late into its successor's transaction."""
    scene.start(lanes=1)
    proxy = scene.target.proxy
    inits = proxy.requests(Api.INIT_PRODUCER_ID, scene.lane_id)
    for number in range(REPEATS):
        rule = f"straggler {number}"
        match = Match(api_key=Api.END_TXN, transactional_id=scene.lane_id, commit=True)
        proxy.arm(rule, Hold(match=match, nth=rng.randint(1, 10)))
        proxy.await_event("held", rule)
        if plane_under_test() == "client":
            # the successor has taken the id and has something open; the native plane sends the same commit again
            proxy.await_requests(inits + number + 1, Api.INIT_PRODUCER_ID, scene.lane_id)
        written = proxy.requests(Api.PRODUCE, scene.lane_id)
        proxy.await_requests(written + rng.randint(1, 20), Api.PRODUCE, scene.lane_id)
        proxy.release(rule)
        scene.entry.injected()
        said = proxy.await_event("late answer", rule).error
        assert said in (REFUSED if plane_under_test() == "client" else VOID)
    scene.write_for(500)
    scene.catch_up()

    scene.judge()
    assert_audited(load_config(scene.settings(proxied=False)))
