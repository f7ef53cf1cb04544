"""The tail that a planned promotion compares is a number of offsets, whatever the timestamps of records are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.clock import SYSTEM_CLOCK
from eomirror.errors import DifferenceError
from eomirror.failover import verification
from eomirror.failover.verification import tail_starts
from eomirror.records.promotion import PromotionHistory, Resumption
from eomirror.types import SourcePartition
from eomirror.verify.scope import RequestedRange, ScopeFinder
from eomirror.verify.verdict import LinkVerdict, PartitionVerdict, are

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

    found = finder._bounds({}, ends, RequestedRange(from_offsets={OLD: 900}))

    assert found == {tuple(OLD): 900, tuple(NEW): 0}
    assert not RequestedRange(from_offsets={OLD: 900}).whole


@pytest.mark.parametrize(
    ("problem", "word"), [("recreated", "differ: t-0: differs"), ("", "are not compared: t-0: not compared")]
)
def test_a_refusal_says_in_a_sentence_how_the_copies_are(
    monkeypatch: pytest.MonkeyPatch, problem: str, word: str
) -> None:
    """A planned promotion and a recreation end with it."""
    scope: Any = SimpleNamespace(
        source=SimpleNamespace(topic="t", partition=0), problem=problem, gone=False, others=()
    )
    partition: Any = object.__new__(PartitionVerdict)
    for name, value in {"scope": scope, "changed": "", "differences": {}}.items():
        object.__setattr__(partition, name, value)
    monkeypatch.setattr(PartitionVerdict, "whole", False)
    verdict: Any = object.__new__(LinkVerdict)
    object.__setattr__(verdict, "partitions", (partition,))
    monkeypatch.setattr(verification, "Verifier", lambda *_, **__: Compared(verdict))
    monkeypatch.setattr(verification, "with_origins", lambda link, _: link)
    link: Any = SimpleNamespace(name="l", source="a", target="b")
    config: Any = SimpleNamespace(clusters={"a": None, "b": None})

    with pytest.raises(DifferenceError, match=f"^link l: source and copies {word}") as raised:
        verification.CopyComparison(config, tail=None).compare(link)

    assert "are differs" not in str(raised.value)
    assert [are(each) for each in ("differs", "equal", "gone")] == ["differ", "are equal", "are gone"]


class Compared:
    """A comparison that has its verdict."""

    def __init__(self, verdict: LinkVerdict) -> None:
        self._verdict = verdict

    def run(self, **_: Any) -> LinkVerdict:
        return self._verdict

    def close(self) -> None:
        """Nothing to release."""
