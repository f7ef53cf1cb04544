"""Ends of very many partitions: a bounded number of looks per call, and everybody's turn comes."""

from __future__ import annotations

import pytest

from eomirror.plane.client import position_checks as end_offsets
from eomirror.plane.client.position_checks import EndOffsets
from eomirror.types import SourcePartition

MANY = [SourcePartition(f"t{number % 50}", number // 50) for number in range(100)]


class Fetches:
    """What the last fetches have shown; counts who asks."""

    def __init__(self) -> None:
        self.shown: dict[SourcePartition, int] = {}
        self.asked: list[SourcePartition] = []

    def look(self, source: SourcePartition) -> int | None:
        self.asked.append(source)
        return self.shown.get(source)


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Fetches:
    """Ten looks a call."""
    monkeypatch.setattr(end_offsets, "MAX_LOOKUPS", 10)
    return Fetches()


def test_few_partitions_are_all_looked_at(fetches: Fetches) -> None:
    """As long as there are no more than one call may look at, every answer is fresh."""
    ends = EndOffsets(fetches.look)
    for end in (5, 6, 7):
        fetches.shown = dict.fromkeys(MANY[:10], end)
        assert ends.ends(dict.fromkeys(MANY[:10], 3), {}) == fetches.shown


def test_an_event_tells_the_end_without_a_look(fetches: Fetches) -> None:
    """It is the last stable offset; the high watermark may be beyond it."""
    ends = EndOffsets(fetches.look)
    fetches.shown = dict.fromkeys(MANY, 99)

    assert ends.ends(dict.fromkeys(MANY, 3), dict.fromkeys(MANY, 4)) == dict.fromkeys(MANY, 4)
    assert fetches.asked == []


def test_many_partitions_take_turns(fetches: Fetches) -> None:
    """Ten looks a call, each partition once in ten calls, and what is known is said again in between."""
    ends = EndOffsets(fetches.look)
    fetches.shown = dict.fromkeys(MANY, 7)
    committed = dict.fromkeys(MANY, 3)

    known = [len(ends.ends(committed, {})) for _ in range(12)]

    assert known == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100, 100, 100]
    assert len(fetches.asked) == 120
    assert sorted(fetches.asked[:100]) == sorted(MANY)


def test_a_turn_is_not_lost_on_those_that_caught_up(fetches: Fetches) -> None:
    """Partitions that come, go and come back: all that are behind are looked at within as many calls as it takes."""
    ends = EndOffsets(fetches.look)
    fetches.shown = dict.fromkeys(MANY, 7)
    committed = dict.fromkeys(MANY, 3)
    ends.ends(committed, {})
    behind = MANY[90:]

    ends.ends(committed, dict.fromkeys(MANY[:90], 7))

    assert fetches.asked[10:] == behind
    back = ends.ends(committed, {})
    assert set(back) == {*behind, *fetches.asked[20:]}


def test_an_end_before_the_position_is_none(fetches: Fetches) -> None:
    """Fetches lag behind what was committed since; a lag below 0 would be shown as a miracle."""
    ends = EndOffsets(fetches.look)
    fetches.shown = dict.fromkeys(MANY[:5], 7)

    assert ends.ends(dict.fromkeys(MANY[:5], 8), {}) == {}
    assert ends.ends(dict.fromkeys(MANY[:5], 8), dict.fromkeys(MANY[:5], 6)) == {}


def test_what_was_never_shown_is_left_out(fetches: Fetches) -> None:
    """Before a partition's first fetch nothing is known of its end."""
    assert EndOffsets(fetches.look).ends(dict.fromkeys(MANY[:5], 0), {}) == {}
