"""Groups that have read all there is of a partition without mirrored records."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from eomirror.groups.corrections import from_end_to_end
from eomirror.link.offset_map_reader import OffsetMapReader, Question
from eomirror.records.position import Position

if TYPE_CHECKING:
    from eomirror.types import SourcePartition

NOTHING = "nothing", -1
AT_FOUR = Position(
    topic="t", partition=0, offset=4, source_cluster_id="c", topic_id="i", target_topic="a.t",
    target_partition=0, target_topic_id="j", target_offset=None, generation=1, lane=0, run="r", epoch=1,
    attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=0,
)  # fmt: skip


class Reader:
    """A copy that ends at 9, and what becomes of its position once that was asked."""

    def __init__(self, later: Position | None) -> None:
        self._later = later
        self.asked: list[str] = []

    def stable_ends(self, partitions: Any) -> dict[tuple[str, int], int]:
        self.asked.append("ends")
        return dict.fromkeys(partitions, 9)

    def positions(self) -> dict[SourcePartition, Position]:
        self.asked.append("positions")
        return {} if self._later is None else {self._later.source: self._later}


def _moved(later: Position | None, offset: int, *, reverse: bool) -> tuple[str, int]:
    reader = Reader(later)
    asked = [Question(AT_FOUR, offset)]
    (found,) = from_end_to_end(cast("OffsetMapReader", reader), asked, [NOTHING], reverse=reverse)
    # a record that is mirrored in between must show in the position
    assert reader.asked == ["ends", "positions"]
    return found


@pytest.mark.parametrize(("reverse", "here", "there"), [(False, 4, 9), (True, 9, 4)])
def test_a_group_at_one_end_goes_on_at_the_other(reverse: bool, here: int, there: int) -> None:
    """There it skips nothing, whatever comes; anywhere else nothing is known."""
    assert _moved(AT_FOUR, here, reverse=reverse) == ("next", there)
    assert _moved(AT_FOUR, here - 1, reverse=reverse) == NOTHING


@pytest.mark.parametrize(
    "later",
    [
        None,
        replace(AT_FOUR, target_offset=8),
        replace(AT_FOUR, topic_id="another"),
        replace(AT_FOUR, target_topic_id="another"),
    ],
    ids=["gone", "mirrored by now", "source created anew", "copy created anew"],
)
def test_what_has_changed_meanwhile_is_not_known(later: Position | None) -> None:
    """The end that was asked for may lie behind what was mirrored, or be another topic's."""
    assert _moved(later, 4, reverse=False) == NOTHING


def test_other_answers_stay_and_cost_nothing() -> None:
    """The target is not asked again for them."""
    reader = Reader(None)
    answers = [("exact", 3), ("next", 4), ("beyond", 5), ("before", 0)]
    asked = [Question(AT_FOUR, 1)] * len(answers)
    assert from_end_to_end(cast("OffsetMapReader", reader), asked, answers, reverse=False) == answers
    assert reader.asked == []
