"""
Requests of a running lane that travel for too long, and answers that never come (faults F7, F8).

`test_witness.py` shows the same for one producer, with control experiments; here the whole mirror has to live with it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from eomirror import load_config
from support.clusters.frames import Api
from support.clusters.rules import AnswerWith, CutAfter, DropAnswers, Hold, Match
from support.fix_rig import REPEATS
from support.judges.audited import assert_audited
from support.links.plane import kafka_of, plane_under_test

if TYPE_CHECKING:
    import random

    from support.links.scene import Scene

log = logging.getLogger(__name__)

pytestmark = [
    pytest.mark.faults, pytest.mark.integration, pytest.mark.spark, pytest.mark.slow,
    pytest.mark.timeout(7200),
]  # fmt: skip

REFUSED = {47, 90}  # INVALID_PRODUCER_EPOCH, PRODUCER_FENCED
ABORTABLE = 120  # TRANSACTION_ABORTABLE: the broker asks for an abort (KIP-890)
# Protocol V2 (KIP-890): a successor may have begun before the last transaction's markers are written everywhere.  A
# Produce is then found to be a copy (0: the offset that the first one got; 45, 46: of an older batch), and an EndTxn is
# one that was carried out (0), that is being carried out (51), or of no transaction (48).  Judge and audit say whether
# anything was written or ended.
VOID_PRODUCE = REFUSED | {0, 45, 46}
VOID_END = REFUSED | {0, 48, 51}


def void(answers: set[int]) -> set[int]:
    """What a straggler may be answered: the client plane's successor has another producer, so it is refused."""
    return REFUSED if plane_under_test() == "client" else answers


def hold_until_replaced(
    scene: Scene, rng: random.Random, api: Api, *, rule: str, aborted: bool = False
) -> None:
    """
    Hold a request of the lane, which repeats it; release it when the lane's next producer has something open.

    With ``aborted`` the answers to the repeated request are lost, until the lane has given up and aborted.  Without,
    the native plane keeps its producer: what takes the held request's place is the producer epoch of the next
    transaction (KIP-890).
    """
    proxy = scene.target.proxy
    inits = proxy.requests(Api.INIT_PRODUCER_ID, scene.lane_id)
    match = Match(api_key=api, transactional_id=scene.lane_id)
    proxy.arm(rule, Hold(match=match, nth=rng.randint(1, 12)))
    proxy.await_event("held", rule)
    if aborted:
        proxy.arm("lost", DropAnswers(match=match))
    scene.entry.injected()
    if aborted or plane_under_test() == "client":
        proxy.await_requests(inits + 1, Api.INIT_PRODUCER_ID, scene.lane_id, seconds=90.0)
    else:
        # the held request's transaction is over, or one behind it: what is written next is a successor's
        ended = proxy.requests(Api.END_TXN, scene.lane_id)
        proxy.await_requests(ended + 1, Api.END_TXN, scene.lane_id, seconds=90.0)
    proxy.disarm("lost")
    written = proxy.requests(Api.PRODUCE, scene.lane_id)
    proxy.await_requests(written + rng.randint(1, 20), Api.PRODUCE, scene.lane_id)
    proxy.release(rule)


@pytest.mark.fault("F7")
@pytest.mark.parametrize("ending", ["committed", "aborted"])
def test_a_straggling_produce_of_the_lane_writes_nothing(
    scene: Scene, rng: random.Random, ending: str
) -> None:
    """F7: the copy that travelled is refused, whether its transaction was committed with another copy or aborted."""
    scene.start(lanes=1, link={"transaction_timeout": "6s"}, socket_timeout_ms="2000")
    for number in range(REPEATS):
        rule = f"produce {number}"
        hold_until_replaced(scene, rng, Api.PRODUCE, rule=rule, aborted=ending == "aborted")
        said = scene.target.proxy.await_event("late answer", rule).error
        # an abort is over when the successor's InitProducerId has returned
        assert said in (REFUSED if ending == "aborted" else void(VOID_PRODUCE))
        scene.heal()
    scene.write_for(500)
    scene.catch_up()

    scene.judge()
    scene.check_generations()
    assert_audited(load_config(scene.settings(proxied=False)))


@pytest.mark.fault("F6")
def test_a_straggling_abort_of_the_lane_ends_nothing(scene: Scene, rng: random.Random) -> None:
    """F6, EO-9: the lane's abort is held, and delivered when its next producer has something open."""
    scene.start(lanes=1, socket_timeout_ms="2000")
    proxy = scene.target.proxy
    aborts = Match(api_key=Api.END_TXN, transactional_id=scene.lane_id, commit=False)
    produces = Match(api_key=Api.PRODUCE, transactional_id=scene.lane_id)
    for number in range(REPEATS):
        rule = f"abort {number}"
        inits = proxy.requests(Api.INIT_PRODUCER_ID, scene.lane_id)
        proxy.arm(rule, Hold(match=aborts))
        proxy.arm("refused", AnswerWith(match=produces, error=ABORTABLE))
        proxy.await_event("held", rule, seconds=90.0)
        scene.entry.injected()
        proxy.disarm("refused")
        proxy.await_requests(inits + 1, Api.INIT_PRODUCER_ID, scene.lane_id, seconds=90.0)
        written = proxy.requests(Api.PRODUCE, scene.lane_id)
        proxy.await_requests(written + rng.randint(1, 20), Api.PRODUCE, scene.lane_id, seconds=60.0)
        proxy.release(rule)
        assert proxy.await_event("late answer", rule).error in void(VOID_END)
        scene.heal()
    scene.write_for(500)
    scene.catch_up()

    scene.judge()
    scene.check_generations()
    assert_audited(load_config(scene.settings(proxied=False)))


@pytest.mark.fault("F8")
@pytest.mark.skipif(
    plane_under_test() == "native" and not kafka_of("west").startswith(("2.", "3.")),
    reason="protocol V2 has no such request: the first Produce adds its partition",
)
def test_a_straggling_request_for_partitions_of_the_lane_opens_nothing(
    scene: Scene, rng: random.Random
) -> None:
    """F8: AddPartitionsToTxn arrives when the lane's next producer writes; nothing is left open."""
    scene.start(lanes=1)
    for number in range(REPEATS):
        rule = f"partitions {number}"
        hold_until_replaced(scene, rng, Api.ADD_PARTITIONS_TO_TXN, rule=rule)
        scene.target.proxy.await_event("late answer", rule)
        scene.heal()
    scene.write_for(500)
    scene.catch_up()

    scene.judge()
    scene.check_generations()


def cause_of_a_new_producer(scene: Scene) -> CutAfter | DropAnswers:
    """What makes the lane replace its producer: a suspect commit, or on the native plane Produces without answers."""
    if plane_under_test() == "client":
        return CutAfter(match=Match(api_key=Api.END_TXN, transactional_id=scene.lane_id, commit=True))
    return DropAnswers(match=Match(api_key=Api.PRODUCE, transactional_id=scene.lane_id))


@pytest.mark.fault("F8")
def test_a_straggling_init_of_the_lane_costs_one_rebuild(scene: Scene, rng: random.Random) -> None:
    """F8: InitProducerId arrives when the same producer writes, and fences it; the lane rebuilds."""
    scene.start(lanes=1, link={"transaction_timeout": "6s"}, socket_timeout_ms="2000")
    proxy = scene.target.proxy
    match = Match(api_key=Api.INIT_PRODUCER_ID, transactional_id=scene.lane_id)
    for number in range(REPEATS):
        rule = f"init {number}"
        proxy.arm(rule, Hold(match=match))
        proxy.arm("suspect", cause_of_a_new_producer(scene))
        proxy.await_event("held", rule, seconds=90.0)
        proxy.disarm("suspect")
        scene.entry.injected()
        written = proxy.requests(Api.PRODUCE, scene.lane_id)
        proxy.await_requests(written + rng.randint(3, 20), Api.PRODUCE, scene.lane_id, seconds=60.0)
        proxy.release(rule)
        proxy.await_event("late answer", rule)
        scene.heal()
    scene.write_for(500)
    scene.catch_up()

    scene.judge()
    scene.check_generations()


@pytest.mark.fault("F8")
@pytest.mark.parametrize("lost", ["one", "a few", "all for a while"])
def test_commits_whose_answers_are_lost_count_once(scene: Scene, rng: random.Random, lost: str) -> None:
    """F8: the broker commits and its answer is dropped, once, a few times in a row, or until the lane gives up."""
    scene.start(lanes=1, link={"transaction_timeout": "4s"}, socket_timeout_ms="1500")
    proxy = scene.target.proxy
    match = Match(api_key=Api.END_TXN, transactional_id=scene.lane_id, commit=True)
    for _ in range(REPEATS):
        before = len(proxy.events("dropped", "lost"))
        times = {"one": 1, "a few": rng.randint(2, 3)}.get(lost)
        proxy.arm("lost", DropAnswers(match=match, times=times))
        proxy.await_event("dropped", "lost", nth=before + (times or 3), seconds=60.0)
        scene.entry.injected()
        proxy.disarm("lost")
        scene.heal()
        scene.write_for(200)
    scene.catch_up()

    scene.judge()
    scene.check_generations()
