"""The pause between an EndTxn and the next registration of partitions."""

from __future__ import annotations

import random

from eomirror.plane.client.producer import CommitBackoff


def settled(markers: float, *, spread: float = 0.0, transactions: int = 3_000) -> tuple[CommitBackoff, float]:
    """The pause against markers that take so long, and the share of transactions sent away at the end."""
    rng = random.Random(7)
    pause = CommitBackoff()
    now = 0.0
    away = 0
    for number in range(transactions):
        retried = pause.left(now) < max(0.0, rng.gauss(markers, spread))
        away += retried and number >= transactions // 2
        now += 1.0
        pause.ended(now, retried=retried)
    return pause, away / (transactions / 2)


def test_it_settles_just_above_what_the_markers_take() -> None:
    """Steady markers of 4 ms: few transactions are sent away, and the pause is not much longer."""
    pause, away = settled(0.004)
    assert 0.003 < pause.seconds < 0.007
    assert away < 0.1


def test_it_bears_markers_that_take_now_longer_now_shorter() -> None:
    """With a spread of half the mean, one transaction in 16 is sent away, not most."""
    _, away = settled(0.004, spread=0.002)
    assert away < 0.12


def test_it_goes_away_where_markers_take_no_time() -> None:
    """A coordinator that never sends us away costs no latency."""
    pause, _ = settled(0.0)
    assert pause.seconds < 1e-6


def test_it_never_exceeds_what_being_sent_away_costs() -> None:
    """Librdkafka asks again after 20 ms: waiting longer than that would gain nothing."""
    pause, _ = settled(1.0)
    assert pause.seconds == 0.02


def test_nothing_is_waited_for_before_the_first_transaction() -> None:
    """A new producer has no markers to wait for."""
    assert CommitBackoff().left(100.0) == 0.0
