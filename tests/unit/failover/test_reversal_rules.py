"""Offsets at which a link begins in the other direction, or again: pure rules of the reversal."""

from __future__ import annotations

import pytest

from eomirror.errors import NotReadyError
from eomirror.failover.orphans import _holes, later_ends
from eomirror.failover.readiness import Check, Level, Readiness, with_refusal
from eomirror.failover.reversal import _behind_dealt
from eomirror.records.dealt_ranges import DealtRange
from eomirror.records.promotion import Reversal
from eomirror.types import SourcePartition

T0, T1 = SourcePartition("t", 0), SourcePartition("t", 1)


@pytest.mark.parametrize(
    ("dealt", "end", "wanted"),
    [
        pytest.param((), 30, 20, id="nothing"),
        pytest.param((DealtRange(10, 25, "merge"),), 30, 25, id="merged"),
        pytest.param(
            (DealtRange(25, 30, "keep"), DealtRange(20, 25, "export")), 30, 30, id="one behind the other"
        ),
        pytest.param((DealtRange(22, 25, "merge"),), 30, 20, id="records before it are left"),
        pytest.param((DealtRange(10, 25, "merge"),), 22, 22, id="the log has lost its end"),
        pytest.param((DealtRange(10, 25, "merge"),), 15, 20, id="and the beginning"),
    ],
)
def test_what_was_dealt_with_is_not_mirrored_again(
    dealt: tuple[DealtRange, ...], end: int, wanted: int
) -> None:
    """A link that returns begins behind it."""
    assert _behind_dealt({T0: 20}, {T0: dealt}, {(T0.topic, T0.partition): end}) == {T0: wanted}


def test_a_hole_is_more_than_the_marker_of_a_transaction() -> None:
    """Only between records of the link, since it began or returned, and before the cut."""
    ranges = [(0, 100, 5), (6, 106, 4), (10, 113, 2), (20, 120, 5), (30, 140, 2)]

    assert list(_holes(ranges, 0, 200, None)) == [(110, 113), (115, 120), (125, 140)]
    # a merge has written behind the cut
    assert list(_holes(ranges, 10, 130, None)) == [(115, 120), (125, 130)]
    assert list(_holes(ranges, 10, 130, 97)) == [(97, 113), (115, 120), (125, 130)]
    assert list(_holes([(0, 30, 5)], 0, 20, 4)) == [(4, 20)]
    assert list(_holes([], 0, 200, 0)) == []


def test_later_records_are_orphans_up_to_the_end_of_the_way_back() -> None:
    """What applications write behind the promotion of the link back is written rightly."""
    reversal = Reversal(number=1, link="back", ends={T0: 10, T1: 20}, run="r", timestamp=1)

    assert later_ends(reversal, {T0: 15, T1: 18}, None) == {T0: 15, T1: 20}
    assert later_ends(reversal, {T0: 15, T1: 30}, {T0: 12, T1: 40}) == {T0: 12, T1: 30}


def test_a_refusal_of_the_second_half_is_one_of_the_whole() -> None:
    """A dry run shows it among the checks."""
    ready = Readiness(
        link="back", verb="promote", ready=True, verdict="READY", lost=0, lost_seconds=None,
        checks=(Check("lag", Level.OK, "0"),),
    )  # fmt: skip

    refused = with_refusal(ready, "return", NotReadyError("there is no way", fix="do this"))

    assert (refused.ready, refused.verdict) == (False, "NOT READY")
    assert [(one.name, one.text, one.fix) for one in refused.refusals] == [
        ("return", "there is no way", "do this")
    ]
