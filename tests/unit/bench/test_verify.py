"""Whether the bench sees that a copy is wrong."""

from __future__ import annotations

from array import array

import pytest
from bench.verify import Ledger, WrongCopyError, check_copy

SOURCE = Ledger({0: array("Q", [1, 2, 3, 4]), 1: array("Q", [5, 6])})


def copied(first: list[int], second: list[int] | None = None) -> Ledger:
    """A target with these records."""
    return Ledger({0: array("Q", first), 1: array("Q", [5, 6] if second is None else second)})


def test_an_equal_copy_is_right_and_a_prefix_is_right_while_the_run_was_timed() -> None:
    """A timed run ends in the middle of the source."""
    check_copy(SOURCE, copied([1, 2, 3, 4]), complete=True)
    check_copy(SOURCE, copied([1, 2], []), complete=False)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ([1, 2, 2, 3], "record 1: a duplicate"),
        ([1, 3, 4], "out of its order, or records before it are missing"),
        ([1, 2, 9], "record 2 is altered"),
        ([1, 2, 3, 4, 4], "a duplicate|more than the source"),
    ],
)
def test_a_wrong_copy_is_refused_with_its_first_difference(first: list[int], reason: str) -> None:
    """Duplicate, missing, altered and surplus records are told apart."""
    with pytest.raises(WrongCopyError, match=reason):
        check_copy(SOURCE, copied(first), complete=False)


def test_a_copy_that_should_be_complete_and_is_not_is_refused() -> None:
    """A paced run waits for its end, so what is missing is lost."""
    with pytest.raises(WrongCopyError, match="2 records missing at the end"):
        check_copy(SOURCE, copied([1, 2]), complete=True)


def test_a_partition_that_does_not_exist_on_the_target_is_missing() -> None:
    """Not an empty prefix that happens to be right."""
    target = Ledger({0: SOURCE.hashes[0]})
    with pytest.raises(WrongCopyError, match="partition 1"):
        check_copy(SOURCE, target, complete=True)


def test_records_before_offsets_are_counted_without_markers() -> None:
    """Throughput counts records; offsets count transaction markers too."""
    ledger = Ledger({0: array("Q", [1, 2, 3])}, {0: array("q", [0, 1, 3])}, {0: 5})
    assert ledger.records_before({0: 3}) == 2
    assert ledger.records_before({0: 5}) == 3
    assert ledger.unused_offsets == 2
