"""How partitions are dealt out to the tasks of a comparison."""

from __future__ import annotations

import random

import pytest

from eomirror.spark.verify import deal
from eomirror.verify.verdict import Range, Scope


def scope(number: int, offsets: int) -> Scope:
    """A partition with so many offsets on each side."""
    part = Range("t", number, 0, offsets, offsets)
    return Scope(source=part, target=part)


@pytest.mark.parametrize("groups", [1, 2, 3, 8, 100])
def test_every_partition_is_dealt_once_with_its_place(groups: int) -> None:
    """No group is empty, and there are no more than asked for."""
    scopes = [scope(number, number * 7 % 5) for number in range(20)]
    hands = deal(scopes, groups)
    assert len(hands) == min(groups, 20)
    assert all(hands)
    dealt = [each for hand in hands for each in hand]
    assert sorted(place for place, _ in dealt) == list(range(20))
    assert all(scopes[place] is one for place, one in dealt)


def test_groups_have_about_the_same_to_read() -> None:
    """No group has more than the mean and the largest partition (Graham's bound for this order)."""
    rng = random.Random(7)
    sizes = [rng.randrange(1_000_000) for _ in range(200)]
    hands = deal([scope(number, size) for number, size in enumerate(sizes)], 8)
    loads = [sum(sizes[place] for place, _ in hand) for hand in hands]
    assert max(loads) <= sum(sizes) / 8 + max(sizes)


def test_nothing_is_no_group() -> None:
    """A link without positions needs no task."""
    assert deal([], 4) == []
