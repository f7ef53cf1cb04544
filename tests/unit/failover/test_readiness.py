"""The verdict before a failover, from facts."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eomirror.failover.machine import Verb
from eomirror.failover.readiness import Facts, Level, assess
from eomirror.link.status import LinkStatus, PartitionStatus
from eomirror.records.promotion import Promotion

PARTITION = PartitionStatus(
    topic="orders", partition=0, target_topic="east.orders", lane=0, position=10, source_lso=10, lag_records=0,
    lag_seconds=0.0, records=10, rate=0.0, last_commit=1,
)  # fmt: skip
STATUS = LinkStatus(
    link="l", state="running", owner={"host": "h7"}, generation=14, lag_records=0, lag_seconds=0.0,
    partitions=(PARTITION,),
)  # fmt: skip
PROMOTION = Promotion(
    number=3, planned=False, run="r", host="h", generation=4, source_cluster_id="a", target_cluster_id="b", cuts=(),
    started=1, timestamp=2,
)  # fmt: skip


def facts(status: dict[str, Any] | None = None, **changes: Any) -> Facts:
    return Facts(status=replace(STATUS, **(status or {})), **changes)


GONE = {"source_answers": False, "silent_seconds": 41.0}
LAGS = {"lag_records": 12, "lag_seconds": 0.004}
STOPPED = {"stopped": ({"topic": "orders", "reason": "a gap"},)}


@pytest.mark.parametrize(
    ("verb", "given", "refused"),
    [
        (Verb.PROMOTE, facts(), []),
        (Verb.CUTOVER, facts(), []),
        (Verb.FAILOVER, facts(), ["source"]),
        (Verb.FAILOVER, facts(**GONE), []),
        (Verb.PROMOTE, facts(**GONE), ["source"]),
        (Verb.PROMOTE, facts(LAGS), []),
        (Verb.PROMOTE, facts({**LAGS, "state": "stopped"}), ["lag"]),
        (Verb.PROMOTE, facts(STOPPED), ["stopped topics"]),
        (Verb.FAILOVER, facts(STOPPED, **GONE), []),
        (Verb.PROMOTE, facts(open_transactions=(("orders", 0, 5, 9),)), ["open transactions"]),
        (Verb.CUTOVER, facts(open_transactions=(("orders", 0, 5, 9),)), []),
        (Verb.FAILOVER, facts(promotion=PROMOTION, **GONE), ["link"]),
        (Verb.FAILOVER, facts({"state": "never ran", "owner": None}, **GONE), ["link"]),
        (Verb.PROMOTE, facts({"state": "handed back"}), ["link"]),
        (Verb.FAILOVER, facts(leaderless=("east.orders-0",), **GONE), ["target leaders"]),
    ],
)
def test_a_command_is_refused_for_its_own_reasons(verb: Verb, given: Facts, refused: list[str]) -> None:
    """A failover goes on where waiting would help no one; a planned command does not lose a record."""
    found = assess(given, verb)

    assert [check.name for check in found.refusals] == refused
    assert found.ready is not bool(refused)
    assert all(check.fix for check in found.refusals)


@pytest.mark.parametrize(
    ("given", "verdict", "lost", "seconds"),
    [
        (facts(), "READY", 0, 0.0),
        (facts(LAGS), "READY WITH LOSS 12", 12, 0.004),
        (facts(**GONE), "READY WITH LOSS unknown", None, None),
        (facts({"lag_records": None}), "READY WITH LOSS unknown", None, 0.0),
        (facts(promotion=PROMOTION), "NOT READY", 0, 0.0),
    ],
)
def test_the_verdict_names_what_a_failover_leaves_behind(
    given: Facts, verdict: str, lost: int | None, seconds: float | None
) -> None:
    """In offsets and in seconds; a source that is gone tells neither."""
    found = assess(given, Verb.FAILOVER, force=True)

    assert (found.verdict, found.lost, found.lost_seconds) == (verdict, lost, seconds)


def test_a_stopped_topic_is_named_and_a_group_that_is_not_moved_is_a_warning() -> None:
    """Neither is silently included."""
    found = assess(facts(STOPPED, groups_problem="no checkpoints"), Verb.FAILOVER, force=True)

    assert [(topic.topic, topic.state, topic.problem) for topic in found.topics] == [
        ("orders", "stopped", "a gap")
    ]
    levels = {check.name: check.level for check in found.checks}
    assert levels["stopped topics"] is levels["groups"] is Level.WARN
