"""A link that has returned translates what is before the cut, and names the link back for the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eomirror.groups.offset_translator import at_cut, before_back_link, behind_cut
from eomirror.groups.translation import Asked
from eomirror.records.promotion import Cut, Promotion, PromotionHistory, Resumption
from eomirror.types import SourcePartition
from support.fakes.lane_fakes import position

ORDERS = SourcePartition("orders", 0)
#: as a return sets it: it names no record
RETURNED = position(ORDERS, 90)
CUT = Cut(
    topic="orders", partition=0, topic_id="id-orders", position=40, target_topic="east.orders",
    target_topic_id="id-east.orders", target_end=50, timestamp=0,
)  # fmt: skip


def history(*, returned: bool = True, **changes: Any) -> PromotionHistory:
    promotion = Promotion(
        number=1, planned=True, run="r", host="h", generation=1, source_cluster_id="a", target_cluster_id="b",
        cuts=(replace(CUT, **changes),), started=0, timestamp=0,
    )  # fmt: skip
    back = Resumption(number=1, link="west->east", starts={ORDERS: 90}, run="r", timestamp=0)
    return PromotionHistory(promotions={1: promotion}, resumptions={1: back} if returned else {})


@pytest.mark.parametrize(("reverse", "below", "cut"), [(False, 39, 40), (True, 49, 50)])
def test_below_the_cut_the_position_of_the_cut_counts(*, reverse: bool, below: int, cut: int) -> None:
    """On the side of the question; from the cut on the offset map knows nothing."""
    found = at_cut(RETURNED, below, history(), reverse=reverse)
    assert found is not None
    assert (found.offset, found.target_offset) == (40, 49)
    assert at_cut(RETURNED, cut, history(), reverse=reverse) is None


@pytest.mark.parametrize(
    ("before", "past"),
    [
        (replace(RETURNED, target_offset=95), history()),
        (RETURNED, history(returned=False)),
        (RETURNED, history(proven=False)),
        (RETURNED, history(topic_id="another")),
        (RETURNED, history(target_topic_id="another")),
        (RETURNED, history(partition=1)),
        (RETURNED, PromotionHistory()),
    ],
    ids=["mirrors again", "promoted", "not whole", "recreated", "copy recreated", "no cut", "never promoted"],
)
def test_a_cut_that_does_not_prove_it_is_not_used(before: Any, past: PromotionHistory) -> None:
    """An offset is never guessed."""
    assert at_cut(before, 3, past, reverse=True) is None


def test_the_reason_is_the_command_that_knows() -> None:
    """In the direction of the other link, for an offset or a group."""
    asked = Asked(("east.orders", 0), 60)
    assert behind_cut(asked, RETURNED, history(), reverse=True).endswith(
        "is at 50, and the link has mirrored nothing since its return; ask the link back: `eomirror offsets translate "
        "CONFIG --link 'west->east' --topic east.orders --partition 0 --offset 60`"
    )
    group = Asked(("orders", 0), 60, "billing")
    assert behind_cut(group, RETURNED, history(), reverse=False).endswith("--group billing --reverse`")
    assert behind_cut(asked, RETURNED, PromotionHistory(), reverse=True) == ""
    assert "--link 'east->west' --topic east.orders --partition 0 --offset 60 --reverse`" in before_back_link(
        asked, "east->west", reverse=False
    )
