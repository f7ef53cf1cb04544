"""How large transactions may be, against targets of any speed."""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING

import pytest

from eomirror.plane.transaction_size import MOST_RECORDS, TransactionSize

if TYPE_CHECKING:
    import random

_SECONDS = 0.4
_MB = 1_000_000


def mirror(
    pace: TransactionSize,
    rate: float,
    *,
    record: int,
    transactions: int,
    latency: float = 0.005,
    ways: int = 2,
    rng: random.Random | None = None,
) -> list[float]:
    """
    Seconds that each transaction of a lane far behind takes.

    The target takes ``rate`` bytes a second, and answers ``latency`` seconds after it was asked, which data waits for
    ``ways`` times; with ``rng`` give or take the half of it, and every tenth transaction meets a pause of 3 s.
    """

    def answer() -> float:
        return latency if rng is None else latency * rng.uniform(0.5, 1.5)

    taken = []
    for _ in range(transactions):
        used = 0
        while not pace.enough(used):
            records = pace.records(used)
            used += records * record
            pace.fetched(records, records * record)
        paused = 3.0 if rng is not None and rng.random() < 0.1 else 0.0
        taken.append(used / rate + sum(answer() for _ in range(ways)) + paused)
        pace.acknowledged(used, taken[-1])
        pace.committed(answer())
    return taken


def test_a_fast_target_gets_full_fetches_within_a_few_transactions() -> None:
    """Beginning small costs a local target a fifth of a second, once."""
    pace = TransactionSize(_SECONDS)
    taken = mirror(pace, 100 * _MB, record=1_000, transactions=8)
    assert pace.records(0) == MOST_RECORDS
    assert sum(taken[:4]) < 0.6


@pytest.mark.parametrize("record", [100, 10_000, 500_000])
@pytest.mark.parametrize("rate", [0.05 * _MB, 1 * _MB, 20 * _MB])
def test_no_transaction_outlives_its_timeout(rate: float, record: int) -> None:
    """From the first on, also with a backlog of large records over a slow link."""
    taken = mirror(TransactionSize(_SECONDS), rate, record=record, transactions=20)
    assert max(taken) < max(15.0, 2 * record / rate)


def test_a_slow_link_settles_at_what_it_takes_in_time() -> None:
    """1 MB/s: transactions of about 0.4 s."""
    taken = mirror(TransactionSize(_SECONDS), 1 * _MB, record=1_000, transactions=20)
    assert all(0.2 < seconds < 0.6 for seconds in taken[5:])


@pytest.mark.parametrize("latency", [0.1, 0.2, 0.4, 0.8])
def test_a_long_way_is_not_a_slow_one(latency: float) -> None:
    """20 MB/s, from the other side of the earth: a transaction holds at least what its waiting would have carried."""
    pace = TransactionSize(_SECONDS)
    taken = mirror(pace, 20 * _MB, record=1_000, transactions=30, latency=latency)
    assert pace.bytes > 20 * _MB * latency
    assert max(taken) < 2 * _SECONDS + 5 * latency


@pytest.mark.parametrize("ways", [2, 3, 5])
@pytest.mark.parametrize("latency", [0.2, 0.4])
def test_a_long_and_uneven_way_is_learnt_and_not_assumed(
    latency: float, ways: int, rng: random.Random
) -> None:
    """20 MB/s: however many answers data waits for, and whatever pauses, the bytes take a good part of the time."""
    pace = TransactionSize(_SECONDS, most_seconds=5.0)
    mirror(pace, 20 * _MB, record=1_000, transactions=30, latency=latency, ways=ways, rng=rng)
    sizes = []
    for _ in range(40):
        mirror(pace, 20 * _MB, record=1_000, transactions=1, latency=latency, ways=ways, rng=rng)
        sizes.append(pace.bytes)
    assert statistics.median(sizes) > 20 * _MB * latency * 0.8


@pytest.mark.parametrize("latency", [0.1, 0.4, 3.0])
def test_a_long_way_makes_no_slow_one_fast(latency: float) -> None:
    """40 kB/s with any latency: the bytes of a transaction take two seconds and not the half of its timeout."""
    taken = mirror(TransactionSize(_SECONDS), 40_000, record=1_000, transactions=30, latency=latency)
    assert max(taken[1:]) < 4.5 + 2 * latency


@pytest.mark.parametrize("latency", [0.4, 3.0])
def test_a_long_way_buys_no_more_than_a_part_of_the_transaction_timeout(latency: float) -> None:
    """With a timeout of 3 s nothing may take 4 s: every such transaction would be aborted, and the lane rebuilt."""
    pace = TransactionSize.for_link(0.1, transaction_timeout=3.0)
    pace.fetched(1, 1_000)
    for _ in range(30):
        pace.committed(latency)
        used = int(pace.bytes)
        pace.acknowledged(used, used / (1 * _MB))
    assert pace.bytes <= 1.01 * _MB


def test_a_pause_is_not_taken_for_a_slow_link() -> None:
    """The target stood still for 4 s once: full transactions again within four more."""
    pace = TransactionSize(_SECONDS, most_seconds=5.0)
    mirror(pace, 20 * _MB, record=1_000, transactions=30, latency=0.4, ways=3)
    before = pace.bytes
    pace.acknowledged(int(before), 5.5)
    mirror(pace, 20 * _MB, record=1_000, transactions=4, latency=0.4, ways=3)
    assert pace.bytes > before / 2


def test_one_slow_commit_is_soon_forgotten() -> None:
    """A broker that pauses for seconds says nothing of the way."""
    pace = TransactionSize(_SECONDS)
    mirror(pace, 1 * _MB, record=1_000, transactions=20)
    pace.committed(30.0)
    pace.committed(0.005)
    taken = mirror(pace, 1 * _MB, record=1_000, transactions=3)
    assert max(taken) < 0.6


def test_small_transactions_of_a_lane_that_has_caught_up_say_nothing() -> None:
    """Three records in 30 ms do not mean that the target is slow."""
    pace = TransactionSize(_SECONDS)
    mirror(pace, 100 * _MB, record=1_000, transactions=8)
    before = pace.bytes
    for _ in range(100):
        pace.fetched(3, 300)
        pace.acknowledged(300, 0.03)
    assert pace.bytes == before


def test_it_recovers_when_the_target_does() -> None:
    """A target that was slow for a while gets full transactions again."""
    pace = TransactionSize(_SECONDS)
    mirror(pace, 0.5 * _MB, record=1_000, transactions=10)
    mirror(pace, 100 * _MB, record=1_000, transactions=8)
    assert pace.records(0) == MOST_RECORDS


def test_a_fetch_is_never_empty() -> None:
    """A record that is larger than everything allowed still has to go."""
    pace = TransactionSize(_SECONDS)
    pace.fetched(1, 50 * _MB)
    assert pace.records(0) == 1


def test_an_attempt_begins_with_less_than_the_one_that_gave_up() -> None:
    """F15: whole batches over a link of 40 kB/s, given up after 4 s: something gets through in the second try."""
    began = [TransactionSize.for_link(0.1, overdue=overdue).bytes for overdue in range(5)]
    assert began == [256 * 1024, 64 * 1024, 16 * 1024, 4 * 1024, 4 * 1024]
    assert began[0] / 40_000 > 4.0 > began[1] / 40_000

    least = TransactionSize.for_link(0.1, overdue=3)
    least.acknowledged(4 * 1024, 2.0)
    assert least.bytes == 4 * 1024
    least.acknowledged(4 * 1024, 0.01)
    assert least.bytes == 16 * 1024
