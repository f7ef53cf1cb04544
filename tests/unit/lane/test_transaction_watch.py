"""How long transactions and advances have waited, with time as an argument."""

from __future__ import annotations

import pytest

from eomirror.lane.machine import LaneState
from eomirror.lane.plane import Pumped
from eomirror.lane.transaction_watch import TransactionWatch


def test_what_was_pumped_adds_up_until_the_next_transaction() -> None:
    """The cut looks at one transaction, and at the time since the one before it was begun."""
    watch = TransactionWatch()
    watch.open(10.0)
    watch.add(Pumped(3, 30, drained=False))
    watch.add(Pumped(1, 10, drained=True))

    first = watch.facts(11.0, Pumped(1, 10, drained=True, enough=True), leaving=True)
    watch.open(12.0)
    second = watch.facts(12.5, Pumped(0, 0, drained=False), leaving=False)

    assert (first.records, first.bytes, first.seconds, first.since_last) == (4, 40, 1.0, float("inf"))
    assert (first.drained, first.enough, first.leaving) == (True, True, True)
    assert (second.records, second.bytes, second.seconds, second.since_last) == (0, 0, 0.5, 2.5)


def test_an_advance_is_due_within_a_second_of_the_first_move() -> None:
    """EO-4: the time counts from the first look that saw it, and again after a commit or a look that saw none."""
    watch = TransactionWatch()

    assert [watch.advance_due(now, moved=True) for now in (1.0, 1.7, 1.9)] == [False, False, True]
    watch.committed()
    assert not watch.advance_due(2.0, moved=True)
    assert not watch.advance_due(2.5, moved=False)
    assert not watch.advance_due(3.0, moved=True)


@pytest.mark.parametrize(
    ("state", "now", "overdue"),
    [
        (LaneState.SEALING, 13.6, True),
        (LaneState.COMMITTING, 13.6, True),
        (LaneState.SEALING, 13.4, False),
        (LaneState.OPEN, 99.0, False),
    ],
)
def test_only_what_was_sent_can_be_too_much(state: LaneState, now: float, *, overdue: bool) -> None:
    """F15: open for most of the timeout while acknowledgements or the commit were waited for."""
    watch = TransactionWatch()
    watch.open(0.0)

    assert watch.overdue(now, state, 15.0) is overdue


def test_a_target_has_answered_lately_once_it_has_taken_a_transaction() -> None:
    """And not before the first."""
    watch = TransactionWatch()
    assert not watch.answered_lately(1.0)
    watch.open(1.0)
    assert watch.answered_lately(5.9)
    assert not watch.answered_lately(6.1)
