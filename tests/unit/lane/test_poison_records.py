"""How a refused record is found, and that nothing goes round for ever."""

from __future__ import annotations

import pytest

from eomirror.lane.poison_records import Limits, Narrow, Raise, RefusalPolicy, SkipRecord, Stopped
from eomirror.plane.protocol import Refusal, RefusalReason, RefusedRecord, Treatment
from support.lane_fakes import ORDERS, PAYMENTS, position

LIMITS = Limits({"max.message.bytes": "3000"}, {"max.message.bytes": "1000", "cleanup.policy": "compact"})


def refusal(
    end: int,
    *,
    begin: int = 0,
    record: RefusedRecord | None = None,
    reason: RefusalReason = RefusalReason.SIZE,
    words: str = "no",
) -> Refusal:
    return Refusal(
        source=ORDERS,
        target_topic="east.orders",
        reason=reason,
        words=words,
        begin=begin,
        end=end,
        record=record,
    )


def one(offset: int, size: int = 2_000, *, keyless: bool = False) -> RefusedRecord:
    return RefusedRecord(offset=offset, timestamp=77, keyless=keyless, batch_bytes=size)


@pytest.mark.parametrize("poison", [{0}, {9_999}, {4_711}, {17, 18, 9_000}, set(range(40, 60))])
def test_every_refused_record_is_found_and_no_other(poison: set[int]) -> None:
    """A target that refuses any range with one of them: all are left out, within a bounded number of refusals."""
    refusals = RefusalPolicy("dead-letter", None)
    committed, end, left_out, rounds, ranges = 0, 10_000, set(), 0, 0
    while committed < end:
        treatment = refusals.treatment
        skipped = set(treatment.left_out.get(ORDERS, {}))
        assert skipped == left_out - set(range(committed))
        begin = committed
        while begin < end:
            until, most = treatment.range_at(ORDERS, begin) if ORDERS in treatment.ranges else (end, end)
            until = min(begin + most, until, end)
            ranges += 1
            sent = [offset for offset in range(begin, until) if offset not in skipped]
            if poison & set(sent):
                rounds += 1
                only = one(sent[0]) if len(sent) == 1 else None
                decision = refusals.decide(refusal(until, begin=begin, record=only), committed, LIMITS)
                if isinstance(decision, SkipRecord):
                    left_out.add(decision.record.offset)
                else:
                    assert isinstance(decision, Narrow)
                    assert decision.records < most
                break
            begin = until
        else:
            # one transaction: nothing is committed as long as anything in it is refused
            committed = end
        refusals.passed({ORDERS: position(ORDERS, committed)})

    assert left_out == poison
    assert rounds <= 4 + 3 * len(poison)
    assert ranges <= rounds * 100
    assert refusals.treatment == Treatment(batch_bytes=1_000)


def test_neighbours_of_a_refused_record_cost_one_refusal_each() -> None:
    """Refused records come in groups: what lies behind one is sent one by one for a while."""
    refusals = RefusalPolicy("dead-letter", None)
    refusals.decide(refusal(9_000, begin=5_000), 5_000, LIMITS)
    refusals.decide(refusal(7_001, begin=7_000, record=one(7_000)), 5_000, LIMITS)

    treatment = refusals.treatment
    assert treatment.range_at(ORDERS, 5_000) == (7_000, 250)
    assert treatment.range_at(ORDERS, 7_001) == (7_017, 1)
    assert treatment.range_at(ORDERS, 7_017) == (7_273, 16)
    assert treatment.range_at(ORDERS, 7_273) == (9_000, 250)


def test_ranges_shrink_until_one_record_is_left() -> None:
    """Each refusal makes the range a sixteenth; one that single records do not explain stops the topic."""
    refusals = RefusalPolicy("stop", None)
    sizes = []
    while isinstance(decision := refusals.decide(refusal(9_000, begin=5_000), 5_000, LIMITS), Narrow):
        sizes.append(decision.records)

    assert sizes == [250, 15, 1]
    assert isinstance(decision, Stopped)
    assert "[5000, 9000)" in decision.error.message


def test_a_target_that_refuses_something_else_each_time_is_not_tried_for_ever() -> None:
    """The position does not move, and the refused range does: after eight refusals the topic stops."""
    refusals = RefusalPolicy("stop", None)
    decisions = [refusals.decide(refusal(100_000, begin=number * 10_000), 0, LIMITS) for number in range(10)]

    assert any(isinstance(decision, Stopped) for decision in decisions)


def test_a_batch_that_was_too_large_makes_batches_smaller() -> None:
    """The topic's limit may be below the client's batch: no record needs to be refused."""
    refusals = RefusalPolicy("stop", None)
    refusals.decide(refusal(9_000), 5_000, LIMITS)

    assert refusals.treatment.batch_bytes == 1_000


@pytest.mark.parametrize(
    ("reason", "record", "words"),
    [
        (
            RefusalReason.SIZE,
            one(7),
            ("orders-0@7", "2000 bytes", "max.message.bytes=1000", "compression.type"),
        ),
        (RefusalReason.CLIENT_SIZE, one(7), ("orders-0@7", "this client", "message.max.bytes")),
        (RefusalReason.SEGMENT, one(7), ("orders-0@7", "segment.bytes")),
        (RefusalReason.TIMESTAMP, one(7), ("orders-0@7", "timestamp 77", "message.timestamp.after.max.ms")),
        (RefusalReason.INVALID, one(7, keyless=True), ("orders-0@7", "no key", "cleanup.policy=compact")),
    ],
)
def test_the_text_names_record_and_limit(
    reason: RefusalReason, record: RefusedRecord, words: tuple[str, ...]
) -> None:
    """Topic, partition, offset, what it breaks, and what to do."""
    decision = RefusalPolicy("stop", None).decide(refusal(9, record=record, reason=reason), 0, LIMITS)

    assert isinstance(decision, Stopped)
    assert decision.error.topic == "orders"
    for word in words:
        assert word in str(decision.error)


@pytest.mark.parametrize(
    "reason",
    [RefusalReason.TIMESTAMP, RefusalReason.INVALID, RefusalReason.CLIENT_SIZE, RefusalReason.SEGMENT],
)
def test_only_a_size_limit_can_be_raised(reason: RefusalReason) -> None:
    """`raise-limit` stops the topic where size is not the reason."""
    decision = RefusalPolicy("raise-limit", 9_000).decide(refusal(9, record=one(7), reason=reason), 0, LIMITS)

    assert isinstance(decision, Stopped)


def test_a_limit_is_raised_to_fit_and_not_for_ever() -> None:
    """Up to the bound; a target that refuses all the same ends it after five times."""
    refusals = RefusalPolicy("raise-limit", None)
    decisions = [refusals.decide(refusal(9, record=one(7)), 0, LIMITS) for _ in range(6)]

    assert decisions[:5] == [Raise("east.orders", 1_000, 2_000)] * 5
    assert isinstance(decisions[5], Stopped)
    assert isinstance(refusals.decide(refusal(9, record=one(8, 3_001)), 0, LIMITS), Stopped)
    assert RefusalPolicy("raise-limit", 5_000).decide(refusal(9, record=one(8, 4_000)), 0, LIMITS) == Raise(
        "east.orders", 1_000, 4_000
    )


def test_without_the_source_s_limit_nothing_is_raised() -> None:
    """Settings that may not be read give no bound, and a bound is never guessed."""
    decision = RefusalPolicy("raise-limit", None).decide(refusal(9, record=one(7)), 0, Limits())

    assert isinstance(decision, Stopped)


def test_a_record_that_is_left_out_and_refused_again_stops_the_topic() -> None:
    """Never a loop, whatever the target says."""
    refusals = RefusalPolicy("dead-letter", None)

    assert isinstance(refusals.decide(refusal(9, record=one(7)), 0, LIMITS), SkipRecord)
    assert isinstance(refusals.decide(refusal(9, record=one(7)), 0, LIMITS), Stopped)


def test_a_partition_is_sent_as_usual_once_it_is_past_the_refusal() -> None:
    """Not before its position is behind all that was in question; other partitions keep their treatment."""
    refusals = RefusalPolicy("dead-letter", None)
    refusals.decide(refusal(900), 500, LIMITS)

    assert not refusals.passed({ORDERS: position(ORDERS, 899), PAYMENTS: position(PAYMENTS, 5)})
    assert refusals.passed({ORDERS: position(ORDERS, 900)})
    assert not refusals.treatment.ranges


def test_a_stopped_topic_is_forgotten() -> None:
    """A partition that the lane mirrors no longer needs no treatment."""
    refusals = RefusalPolicy("stop", None)
    refusals.decide(refusal(900), 500, LIMITS)

    assert refusals.passed({PAYMENTS: position(PAYMENTS, 5)})
