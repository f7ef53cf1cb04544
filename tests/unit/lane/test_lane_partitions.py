"""What a lane knows of its partitions, and what stops their topics."""

from __future__ import annotations

import pytest

from eomirror.errors import (
    AuthorizationError,
    BrokerFailedError,
    FencedError,
    MirrorError,
    TopicError,
    UnreachableError,
)
from eomirror.lane.partitions import LanePartitions
from eomirror.lane.spec import StoppedTopic
from eomirror.plane.protocol import Advance, Flushed
from eomirror.recovery.resume import SourceFacts, TargetFacts
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import ORDERS, PAYMENTS, position, spec

MORE = SourcePartition("orders", 1)


def facts(
    source: SourcePartition, *, log_start: int = 0, topic_id: str = ""
) -> tuple[SourceFacts, TargetFacts]:
    """Both sides of a partition, as its position speaks of them unless said otherwise."""
    return (
        SourceFacts(topic_id or f"id-{source.topic}", log_start, 100),
        TargetFacts(f"id-east.{source.topic}", 100),
    )


def holding(*sources: SourcePartition) -> LanePartitions:
    """Partitions with position 10 each."""
    partitions = LanePartitions(spec(*sources).partitions)
    known = {source: position(source, 10) for source in sources}
    partitions.take(partitions.assigned, known, generation=2, topic="positions")
    return partitions


def test_a_position_of_a_newer_generation_fences() -> None:
    """EO-2: another run owns the link's partitions, whichever of them it was."""
    partitions = LanePartitions(spec(ORDERS).partitions)
    known = {ORDERS: position(ORDERS, 10), PAYMENTS: position(PAYMENTS, 1, generation=3)}
    with pytest.raises(FencedError, match="generation 3"):
        partitions.take(partitions.assigned, known, generation=2, topic="positions")


def test_a_partition_without_a_position_names_the_topic_and_the_way_out() -> None:
    """It is never replaced by 0."""
    partitions = LanePartitions(spec(ORDERS).partitions)
    with pytest.raises(MirrorError, match="no position in here") as raised:
        partitions.take(partitions.assigned, {}, generation=2, topic="here")
    assert raised.value.fix == "choose a resume offset: --resume-at orders-0=OFFSET"


@pytest.mark.parametrize("first", [ORDERS, MORE])
def test_one_broken_partition_stops_all_of_its_topic(first: SourcePartition) -> None:
    """EO-5: whichever is looked at first; the reason is told once, and the other topic begins."""
    partitions = holding(ORDERS, MORE, PAYMENTS)
    both = {source: facts(source) for source in (ORDERS, MORE, PAYMENTS)}
    both[first] = facts(first, topic_id="recreated")

    resumed = partitions.resume(
        tuple(partitions.positions.values()), both, accept_gaps=False, run="r", wall_ms=1
    )

    assert [start.source for start in resumed.starts] == [PAYMENTS]
    assert [topic for topic, _ in resumed.stopped] == ["orders"]
    assert set(partitions.positions) == {PAYMENTS}


def test_a_gap_is_noted_only_while_its_topic_goes_on() -> None:
    """EO-6: what is accepted waits for the claim, and is forgotten with its topic."""
    partitions = holding(ORDERS, PAYMENTS)
    both = {ORDERS: facts(ORDERS, log_start=25), PAYMENTS: facts(PAYMENTS)}

    resumed = partitions.resume(
        tuple(partitions.positions.values()), both, accept_gaps=True, run="r", wall_ms=7
    )

    assert [start.offset for start in resumed.starts] == [25, 10]
    assert [(gap.start, gap.end, gap.run, gap.timestamp) for gap in partitions.gaps] == [(10, 25, "r", 7)]
    assert partitions.stop("orders", TopicError("gone"))
    assert partitions.gaps == []


def test_a_topic_is_stopped_once_and_keeps_its_first_reason() -> None:
    """A missing right is remembered as one; what comes after it is only what follows from it."""
    partitions = holding(ORDERS)
    assert partitions.stop("orders", AuthorizationError("lacks Read", fix="grant it"))
    assert not partitions.stop("orders", TopicError("gone"))
    assert partitions.stopped == {"orders": StoppedTopic("lacks Read", "grant it", retried=True)}


def test_advances_of_a_stopped_topic_are_left_out() -> None:
    """Their fetches were on the way when it was stopped."""
    partitions = holding(ORDERS, PAYMENTS)
    partitions.stop("orders", TopicError("gone"))
    flushed = Flushed((), {ORDERS: Advance(11, None), PAYMENTS: Advance(12, None)})
    assert partitions.without_stopped(flushed).advances == {PAYMENTS: Advance(12, None)}


def test_what_is_told_twice_is_new_once() -> None:
    """EO-2: a revision may repeat what the lane has, and itself."""
    partitions = holding(ORDERS)
    told = spec(ORDERS, PAYMENTS, PAYMENTS).partitions
    assert [item.source for item in partitions.new_among(told)] == [PAYMENTS]
    partitions.assign(partitions.new_among(told))
    assert partitions.new_among(told) == ()
    assert partitions.targets == {"orders": "east.orders", "payments": "east.payments"}


@pytest.mark.parametrize("kind", [UnreachableError, BrokerFailedError])
def test_a_topic_that_its_leader_does_not_serve_is_tried_again(kind: type[MirrorError]) -> None:
    """As one that lacks a right: no operator shall have to start the mirror again when its brokers are back."""
    partitions = holding(ORDERS)
    assert partitions.stop("orders", kind("orders-0 has no leader", topic="orders"))
    assert partitions.stopped["orders"].retried
