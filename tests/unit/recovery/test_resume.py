"""What a lane makes of a position when it comes up (rules 5 and 6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eomirror.errors import AuthorizationError, DataLossError, TopicError
from eomirror.plane.protocol import BatchMark, History, Holes, RecordMark
from eomirror.recovery.resume import Resume, SourceFacts, Stop, TargetFacts, decide_resume
from support.fakes.lane_fakes import ORDERS, position

POSITION = position(ORDERS, 100, leader_epoch=4, target_offset=120)
SOURCE = SourceFacts("id-orders", 0, 500)
TARGET = TargetFacts("id-east.orders", 121)


def decide(
    source: SourceFacts = SOURCE, target: TargetFacts = TARGET, *, accept_gaps: bool = False
) -> Resume | Stop:
    return decide_resume(POSITION, source, target, accept_gaps=accept_gaps)


def test_a_sound_position_is_resumed_with_its_leader_epoch() -> None:
    """Nothing changed: go on exactly there, and let the broker compare the epoch."""
    assert decide() == Resume(100, 4)


def test_an_epoch_is_compared_where_it_is_known() -> None:
    """EO-5: before a tail without records, unless that was deleted meanwhile."""
    tail = position(ORDERS, 100, leader_epoch=4, epoch_offset=90, target_offset=120)

    assert decide_resume(tail, SOURCE, TARGET, accept_gaps=False) == Resume(100, 4, epoch_offset=90)
    deleted = SourceFacts("id-orders", 95, 500)
    assert decide_resume(tail, deleted, TARGET, accept_gaps=False) == Resume(100, None)


@pytest.mark.parametrize("source", [SourceFacts("id-orders", 100, 500), SourceFacts("id-orders", 0, 100)])
def test_a_position_at_either_end_of_the_log_is_no_gap(source: SourceFacts) -> None:
    """EO-6: a position equal to log start or log end lost nothing."""
    assert decide(source) == Resume(100, 4)


@pytest.mark.parametrize(
    ("source", "target", "error", "words"),
    [
        (SourceFacts(None, 0, 0), TARGET, TopicError, "source topic is gone"),
        (SourceFacts("other", 0, 500), TARGET, DataLossError, "deleted and created again"),
        (SourceFacts("other", 0, 100), TARGET, DataLossError, "deleted and created again"),
        (SourceFacts("other", 0, 5), TARGET, DataLossError, "deleted and created again"),
        (SourceFacts("id-orders", 0, 99), TARGET, DataLossError, "truncated or restored"),
        (SourceFacts("id-orders", 101, 500), TARGET, DataLossError, "[100, 101)"),
        (SOURCE, TargetFacts(None, 0), TopicError, "target topic east.orders is gone"),
        (SOURCE, TargetFacts("other", 121), TopicError, "target topic east.orders was deleted"),
        (SOURCE, TargetFacts("id-east.orders", 120), DataLossError, "target was truncated"),
    ],
)
def test_a_changed_cluster_stops_the_topic(
    source: SourceFacts, target: TargetFacts, error: type[Exception], words: str
) -> None:
    """EO-5, EO-6: each change is named, with what to do."""
    decision = decide(source, target)

    assert isinstance(decision, Stop)
    assert type(decision.error) is error
    assert words in decision.error.message
    assert decision.error.fix


def test_an_accepted_gap_resumes_at_the_log_start_without_an_epoch() -> None:
    """EO-6: the epoch belonged to a record that is gone, so there is nothing to compare."""
    decision = decide(SourceFacts("id-orders", 150, 500), accept_gaps=True)

    assert decision == Resume(150, None, accepted_gap=(100, 150))


def test_accepting_gaps_does_not_accept_another_topic() -> None:
    """EO-5: on_gap says nothing about a recreated topic."""
    assert isinstance(decide(SourceFacts("other", 150, 500), accept_gaps=True), Stop)


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_topic_that_we_may_not_see_is_stopped_for_that(side: str) -> None:
    """Nothing else about it is known: not that it is gone, nor that it lost anything; other topics go on."""
    error = AuthorizationError("lacks Describe on topic orders", fix="kafka-acls.sh")
    source, target = SOURCE, TARGET
    if side == "source":
        source = SourceFacts(None, 0, 0, error)
    else:
        target = TargetFacts(None, 0, error)

    decision = decide(source, target)

    assert decision == Stop(error)


def test_a_partition_without_a_leader_is_fetched_from_where_it_stood() -> None:
    """Where its log begins and ends is unknown; what its topic's id and the copy say counts all the same."""
    silent = SourceFacts("id-orders", 0, 0, silent=True)
    assert decide(silent) == Resume(100, POSITION.leader_epoch, epoch_offset=POSITION.epoch_offset)
    assert isinstance(decide(SourceFacts("other", 0, 0, silent=True)), Stop)


def kept(**changes: Any) -> History:
    """What is known of the log before a position that names its last batch."""
    mirrored = replace(POSITION, batch_offset=95, batch_crc=7, batch_timestamp=9, missing=3)
    source = SourceFacts("id-orders", 0, 500, policy="delete")
    values = {"position": mirrored, "source": source, "target": TARGET, "accept_gaps": False, **changes}
    decision = decide_resume(**values)
    assert isinstance(decision, Resume)
    return decision.history


def test_the_last_batch_is_compared_where_the_topic_was_never_compacted() -> None:
    """EO-5, EO-6: elsewhere it proves nothing, as holes do not; nor is there anything to compare behind retention."""
    batch = BatchMark(95, 7, 9)
    assert kept() == History(batch, None, Holes.STOP, 3)
    assert kept(accept_gaps=True) == History(batch, None, Holes.NAME, 3)
    for policy in ("compact", "compact,delete", None):
        source = SourceFacts("id-orders", 0, 500, policy=policy)
        assert kept(source=source) == History(missing=3)
    source = SourceFacts("id-orders", 96, 500, policy="delete")
    assert kept(source=source) == History(None, None, Holes.STOP, 3)


def test_that_a_topic_was_compacted_is_remembered() -> None:
    """EO-6: a policy that is changed back leaves the holes that compaction made."""
    decision = decide(SourceFacts("id-orders", 0, 500, policy="compact,delete"))
    assert isinstance(decision, Resume)
    assert decision.compacted
    source = SourceFacts("id-orders", 0, 500, policy="delete")
    later = decide_resume(replace(POSITION, compacted=True), source, TARGET, accept_gaps=False)
    assert isinstance(later, Resume)
    assert later.history.holes is Holes.COUNT


def test_the_last_record_is_compared_where_no_batch_is_known() -> None:
    """EO-5: the client plane sees no batches."""
    mirrored = replace(POSITION, record_offset=97, record_digest="0" * 16 + "1" * 16)
    assert kept(position=mirrored).record == RecordMark(97, "0" * 16, "1" * 16)


def test_the_batch_before_an_accepted_gap_is_not_looked_for() -> None:
    """EO-6: it is gone with the gap."""
    source = SourceFacts("id-orders", 150, 500, policy="delete")
    assert kept(source=source, accept_gaps=True).batch is None
