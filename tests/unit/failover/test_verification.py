"""The tail that a planned promotion compares is a number of offsets, whatever the timestamps of records are."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK
from eomirror.failover.verification import tail_starts
from eomirror.records.promotion import PromotionHistory, Resumption
from eomirror.types import SourcePartition
from eomirror.verify.scope import Bound, ScopeFinder

if TYPE_CHECKING:
    import pytest

OLD, NEW = SourcePartition("orders", 0), SourcePartition("orders", 1)


def test_the_tail_ends_at_the_position_and_begins_after_the_last_return() -> None:
    """Between a promotion and a return the copies hold what applications wrote there."""
    returned = Resumption(number=1, link="back", starts={OLD: 190}, run="r", timestamp=0)

    assert tail_starts({OLD: 200, NEW: 5}, PromotionHistory(), 50) == {OLD: 150, NEW: 0}
    assert tail_starts({OLD: 200}, PromotionHistory(resumptions={1: returned}), 50) == {OLD: 190}
    assert tail_starts({OLD: 300}, PromotionHistory(resumptions={1: returned}), 50) == {OLD: 250}


def test_each_partition_is_compared_from_an_offset_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records of last year that were written a second ago are in the tail: no timestamp is asked for."""
    finder: Any = object.__new__(ScopeFinder)
    finder._clock = SYSTEM_CLOCK
    monkeypatch.setattr(ScopeFinder, "_ends", None)
    ends: Any = {tuple(OLD): 1000, tuple(NEW): 40}

    found = finder._bounds({}, ends, Bound(from_offsets={OLD: 900}))

    assert found == {tuple(OLD): 900, tuple(NEW): 0}
    assert not Bound(from_offsets={OLD: 900}).whole
