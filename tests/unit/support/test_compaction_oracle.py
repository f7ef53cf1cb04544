"""The comparison of compacted logs: it takes what compaction explains, and nothing else."""

from __future__ import annotations

import pytest

from support.traffic.records import Record, is_within, lost_beyond_compaction


def record(key: bytes | None, number: int) -> Record:
    return key, b"%d" % number, number, ()


LOG = [record(key, number) for number, key in enumerate((b"a", b"b", b"a", b"c", b"b", b"a", None))]
#: What is left when everything is compacted; null keys stay.
LEFT = [LOG[3], LOG[4], LOG[5], LOG[6]]


@pytest.mark.parametrize("copy", [LOG, LEFT, LOG[1:], [LOG[0], *LEFT]])
def test_a_copy_that_is_compacted_further_has_lost_nothing(copy: list[Record]) -> None:
    """Whatever is gone is superseded by a later record of its key in the copy."""
    assert is_within(copy, LOG)
    assert not lost_beyond_compaction(LOG, copy)


@pytest.mark.parametrize("lost", LEFT)
def test_the_last_record_of_a_key_is_missed(lost: Record) -> None:
    """An earlier record of the key, if the copy still has one, does not stand for it."""
    assert lost_beyond_compaction(LOG, [one for one in LOG if one != lost]) == [lost]
    assert lost in lost_beyond_compaction(LOG, [one for one in LEFT if one != lost])


def test_order_and_foreign_records_are_told_apart() -> None:
    """A copy must be a part of the log in its order."""
    assert not is_within([LOG[4], LOG[3]], LOG)
    assert not is_within([*LEFT, record(b"x", 9)], LOG)
