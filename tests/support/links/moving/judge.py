"""
What a consumer that moved has skipped and read twice: pure, offsets in, counts out.

Every record has a value of its own, so that it is known on both sides.  A consumer that has read one side up to
``read_to`` has read exactly the records below it; going on at ``start`` of the other side it reads exactly the records
from there on.  Shares nothing with the mirror.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["Count", "Log", "Outcome", "judge"]

Log = dict[bytes, int]
"""Offset of every committed value of one partition, also of those that compaction has taken since."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """
    What one consumer has missed and repeated in one partition.

    Attributes:
        skipped: Records that it had not read, and will not read where it goes on.
        again: Records that it had read, and will read there once more.
    """

    skipped: int
    again: int


def judge(read_to: int, start: int, there: Mapping[bytes, int], here: Mapping[bytes, int]) -> Outcome:
    """
    Compare what was read with what will be.

    Args:
        read_to: Next offset to read on the side that it comes from.
        start: Next offset to read on the side that it goes to.
        there: The log of the side that it comes from.
        here: The log of the side that it goes to.  A record that is on this side only was not read.
    """
    skipped = again = 0
    for value, offset in here.items():
        read = there.get(value, read_to) < read_to
        skipped += offset < start and not read
        again += offset >= start and read
    return Outcome(skipped, again)


@dataclass(slots=True)
class Count:
    """
    Sums over many moves of one kind.

    Attributes:
        consumers: Groups that moved.
        places: Partitions in which they moved.
        unanswered: Of these, how many had no answer: who starts at the beginning there reads all of it again.
        skipping: Of these, how many skipped records.
        skipped: Records skipped.
        repeating: How many read records twice.
        again: Records read twice.
        most: Most records that one read twice in one partition.
        beyond: In how many partitions more was read twice than was announced.
    """

    consumers: int = 0
    places: int = 0
    unanswered: int = 0
    skipping: int = 0
    skipped: int = 0
    repeating: int = 0
    again: int = 0
    most: int = 0
    beyond: int = 0

    def enter(self, outcome: Outcome | None, *, announced: int | None = None) -> None:
        """Add what came of one partition; None for no answer."""
        self.places += 1
        if outcome is None:
            self.unanswered += 1
            return
        self.skipping += outcome.skipped > 0
        self.skipped += outcome.skipped
        self.repeating += outcome.again > 0
        self.again += outcome.again
        self.most = max(self.most, outcome.again)
        self.beyond += announced is not None and outcome.again > announced

    @staticmethod
    def total(counts: Iterable[Count]) -> Count:
        """Their sum."""
        whole = Count()
        for one in counts:
            for name in Count.__slots__:
                most = max(whole.most, one.most)
                setattr(whole, name, getattr(whole, name) + getattr(one, name))
                whole.most = most
        return whole
