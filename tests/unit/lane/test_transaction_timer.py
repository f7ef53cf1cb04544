"""How long transactions and advances have waited, with time as an argument."""

from __future__ import annotations

import pytest

from eomirror.lane.machine import LaneState
from eomirror.lane.transaction import CommitTrigger, TransactionTimer
from eomirror.plane.protocol import Pumped

CUT = CommitTrigger(interval=0.1, interval_min=0.01)


def test_what_was_pumped_adds_up_until_the_next_transaction() -> None:
    """The cut looks at one transaction, and at the time since the one before it was begun."""
    watch = TransactionTimer(CUT)
    watch.open(10.0)
    watch.add(Pumped(3, 30, drained=False))
    watch.add(Pumped(1, 10, drained=True, enough=True))
    watch.add_round()

    first = watch.facts(11.0, leaving=True)
    watch.open(12.0)
    second = watch.facts(12.5, leaving=False)

    assert (first.records, first.bytes, first.seconds, first.since_last) == (4, 40, 1.0, float("inf"))
    assert (first.drained, first.enough, first.leaving, first.rounds) == (True, True, True, 1)
    assert (second.records, second.bytes, second.seconds, second.since_last) == (0, 0, 0.5, 2.5)
    assert (second.drained, second.enough, second.rounds) == (True, False, 0)


def test_the_cut_is_asked_about_what_was_pumped() -> None:
    """A drained transaction waits for the shortest interval, and is cut then."""
    watch = TransactionTimer(CUT)
    watch.open(9.999)
    watch.open(10.0)
    watch.add(Pumped(3, 30, drained=True))

    assert watch.max_wait(10.004) == pytest.approx(0.005)
    assert [watch.commit_due(now, leaving=False) for now in (10.004, 10.010)] == [False, True]


def test_a_transaction_behind_a_pause_takes_more_once() -> None:
    """One that follows another at once does not: it took along what came during that one."""
    watch = TransactionTimer(CUT)
    takes = []
    for opened in (10.0, 10.019, 10.040):
        watch.open(opened)
        watch.add(Pumped(3, 30, drained=True))
        takes.append(watch.takes_more(opened + 0.005))
        watch.committed(opened + 0.010)
    watch.add_round()

    assert takes == [True, False, True]
    assert not watch.takes_more(10.045)
    assert watch.commit_due(10.041, leaving=False)


def test_an_advance_is_due_within_a_second_of_the_first_move() -> None:
    """EO-4: the time counts from the first look that saw it, and again after a commit or a look that saw none."""
    watch = TransactionTimer(CUT)

    assert [watch.advance_due(now, moved=True) for now in (1.0, 1.7, 1.9)] == [False, False, True]
    watch.committed(1.9)
    assert not watch.advance_due(2.0, moved=True)
    assert not watch.advance_due(2.5, moved=False)
    assert not watch.advance_due(3.0, moved=True)


@pytest.mark.parametrize(
    ("state", "now", "overdue"),
    [
        (LaneState.FLUSHING, 13.6, True),
        (LaneState.COMMITTING, 13.6, True),
        (LaneState.FLUSHING, 13.4, False),
        (LaneState.OPEN, 99.0, False),
    ],
)
def test_only_what_was_sent_can_be_too_much(state: LaneState, now: float, *, overdue: bool) -> None:
    """F15: open for most of the timeout while acknowledgements or the commit were waited for."""
    watch = TransactionTimer(CUT)
    watch.open(0.0)

    assert watch.overdue(now, state, 15.0) is overdue


def test_a_target_answers_quickly_once_it_has_taken_a_transaction() -> None:
    """Not before the first, long after the last, or behind one that took long: a stop has seconds."""
    watch = TransactionTimer(CUT)
    assert not watch.answers_quickly(1.0)
    watch.open(1.0)
    assert not watch.answers_quickly(1.1)
    watch.committed(1.2)
    assert watch.answers_quickly(5.9)
    assert not watch.answers_quickly(6.1)
    watch.open(7.0)
    watch.committed(8.1)
    assert not watch.answers_quickly(8.2)
