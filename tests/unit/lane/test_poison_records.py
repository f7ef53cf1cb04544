"""How a refused record is found, and that nothing goes round for ever."""

from __future__ import annotations

import pytest

from eomirror.lane.poison_records import Limits, Narrow, Raise, RejectionPolicy, SkipRecord, StopTopic
from eomirror.plane.protocol import RefusedRecord, Rejection, RejectionReason, SendPlan
from support.fakes.lane_fakes import ORDERS, PAYMENTS, position

LIMITS = Limits({"max.message.bytes": "3000"}, {"max.message.bytes": "1000", "cleanup.policy": "compact"})


def rejection(
    end: int,
    *,
    begin: int = 0,
    record: RefusedRecord | None = None,
    reason: RejectionReason = RejectionReason.SIZE,
    words: str = "no",
) -> Rejection:
    return Rejection(
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
    """A target that refuses any range with one of them: all are left out, within a bounded number of rejections."""
    rejections = RejectionPolicy("dead-letter", None)
    committed, end, left_out, rounds, ranges = 0, 10_000, set(), 0, 0
    while committed < end:
        send_plan = rejections.send_plan
        skipped = set(send_plan.left_out.get(ORDERS, {}))
        assert skipped == left_out - set(range(committed))
        begin = committed
        while begin < end:
            until, most = send_plan.range_at(ORDERS, begin) if ORDERS in send_plan.ranges else (end, end)
            until = min(begin + most, until, end)
            ranges += 1
            sent = [offset for offset in range(begin, until) if offset not in skipped]
            if poison & set(sent):
                rounds += 1
                only = one(sent[0]) if len(sent) == 1 else None
                decision = rejections.decide(rejection(until, begin=begin, record=only), committed, LIMITS)
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
        rejections.passed({ORDERS: position(ORDERS, committed)})

    assert left_out == poison
    assert rounds <= 4 + 3 * len(poison)
    assert ranges <= rounds * 100
    assert rejections.send_plan == SendPlan(batch_bytes=1_000)


def test_neighbours_of_a_refused_record_cost_one_refusal_each() -> None:
    """Refused records come in groups: what lies behind one is sent one by one for a while."""
    rejections = RejectionPolicy("dead-letter", None)
    rejections.decide(rejection(9_000, begin=5_000), 5_000, LIMITS)
    rejections.decide(rejection(7_001, begin=7_000, record=one(7_000)), 5_000, LIMITS)

    send_plan = rejections.send_plan
    assert send_plan.range_at(ORDERS, 5_000) == (7_000, 250)
    assert send_plan.range_at(ORDERS, 7_001) == (7_017, 1)
    assert send_plan.range_at(ORDERS, 7_017) == (7_273, 16)
    assert send_plan.range_at(ORDERS, 7_273) == (9_000, 250)


def test_ranges_shrink_until_one_record_is_left() -> None:
    """Each rejection makes the range a sixteenth; one that single records do not explain stops the topic."""
    rejections = RejectionPolicy("stop", None)
    sizes = []
    while isinstance(decision := rejections.decide(rejection(9_000, begin=5_000), 5_000, LIMITS), Narrow):
        sizes.append(decision.records)

    assert sizes == [250, 15, 1]
    assert isinstance(decision, StopTopic)
    assert "[5000, 9000)" in decision.error.message


def test_a_target_that_refuses_something_else_each_time_is_not_tried_for_ever() -> None:
    """The position does not move, and the refused range does: after eight rejections the topic stops."""
    rejections = RejectionPolicy("stop", None)
    decisions = [
        rejections.decide(rejection(100_000, begin=number * 10_000), 0, LIMITS) for number in range(10)
    ]

    assert any(isinstance(decision, StopTopic) for decision in decisions)


def test_a_batch_that_was_too_large_makes_batches_smaller() -> None:
    """The topic's limit may be below the client's batch: no record needs to be refused."""
    rejections = RejectionPolicy("stop", None)
    rejections.decide(rejection(9_000), 5_000, LIMITS)

    assert rejections.send_plan.batch_bytes == 1_000


@pytest.mark.parametrize(
    ("reason", "record", "words"),
    [
        (
            RejectionReason.SIZE,
            one(7),
            ("orders-0@7", "2000 bytes", "max.message.bytes=1000", "compression.type"),
        ),
        (RejectionReason.CLIENT_SIZE, one(7), ("orders-0@7", "this client", "message.max.bytes")),
        (RejectionReason.SEGMENT, one(7), ("orders-0@7", "segment.bytes")),
        (RejectionReason.TIMESTAMP, one(7), ("orders-0@7", "timestamp 77", "message.timestamp.after.max.ms")),
        (RejectionReason.INVALID, one(7, keyless=True), ("orders-0@7", "no key", "cleanup.policy=compact")),
    ],
)
def test_the_text_names_record_and_limit(
    reason: RejectionReason, record: RefusedRecord, words: tuple[str, ...]
) -> None:
    """Topic, partition, offset, what it breaks, and what to do."""
    decision = RejectionPolicy("stop", None).decide(rejection(9, record=record, reason=reason), 0, LIMITS)

    assert isinstance(decision, StopTopic)
    assert decision.error.topic == "orders"
    for word in words:
        assert word in str(decision.error)


@pytest.mark.parametrize(
    "reason",
    [
        RejectionReason.TIMESTAMP,
        RejectionReason.INVALID,
        RejectionReason.CLIENT_SIZE,
        RejectionReason.SEGMENT,
    ],
)
def test_only_a_size_limit_can_be_raised(reason: RejectionReason) -> None:
    """`raise-limit` stops the topic where size is not the reason."""
    decision = RejectionPolicy("raise-limit", 9_000).decide(
        rejection(9, record=one(7), reason=reason), 0, LIMITS
    )

    assert isinstance(decision, StopTopic)


def test_a_limit_is_raised_to_fit_and_not_for_ever() -> None:
    """Up to the bound; a target that refuses all the same ends it after five times."""
    rejections = RejectionPolicy("raise-limit", None)
    decisions = [rejections.decide(rejection(9, record=one(7)), 0, LIMITS) for _ in range(6)]

    assert decisions[:5] == [Raise("east.orders", 1_000, 2_000)] * 5
    assert isinstance(decisions[5], StopTopic)
    assert isinstance(rejections.decide(rejection(9, record=one(8, 3_001)), 0, LIMITS), StopTopic)
    assert RejectionPolicy("raise-limit", 5_000).decide(
        rejection(9, record=one(8, 4_000)), 0, LIMITS
    ) == Raise("east.orders", 1_000, 4_000)


def test_without_the_source_s_limit_nothing_is_raised() -> None:
    """Settings that may not be read give no bound, and a bound is never guessed."""
    decision = RejectionPolicy("raise-limit", None).decide(rejection(9, record=one(7)), 0, Limits())

    assert isinstance(decision, StopTopic)


def test_a_record_that_is_left_out_and_refused_again_stops_the_topic() -> None:
    """Never a loop, whatever the target says."""
    rejections = RejectionPolicy("dead-letter", None)

    assert isinstance(rejections.decide(rejection(9, record=one(7)), 0, LIMITS), SkipRecord)
    assert isinstance(rejections.decide(rejection(9, record=one(7)), 0, LIMITS), StopTopic)


def test_a_partition_is_sent_as_usual_once_it_is_past_the_rejection() -> None:
    """Not before its position is behind all that was in question; other partitions keep their send plan."""
    rejections = RejectionPolicy("dead-letter", None)
    rejections.decide(rejection(900), 500, LIMITS)

    assert not rejections.passed({ORDERS: position(ORDERS, 899), PAYMENTS: position(PAYMENTS, 5)})
    assert rejections.passed({ORDERS: position(ORDERS, 900)})
    assert not rejections.send_plan.ranges


def test_a_stopped_topic_is_forgotten() -> None:
    """A partition that the lane mirrors no longer needs no send plan."""
    rejections = RejectionPolicy("stop", None)
    rejections.decide(rejection(900), 500, LIMITS)

    assert rejections.passed({PAYMENTS: position(PAYMENTS, 5)})
