"""What restorations leave of a range, and what they have done together."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from eomirror.records.dealt_ranges import DealtRange, decoded_ranges, encoded_ranges, rest, united
from eomirror.types import SourcePartition

T = SourcePartition("t", 0)


@pytest.mark.parametrize(
    ("dealt", "left"),
    [
        ([], [(20, 50)]),
        ([(20, 50)], []),
        ([(0, 60)], []),
        ([(20, 30)], [(30, 50)]),
        ([(40, 60)], [(20, 40)]),
        ([(30, 40)], [(20, 30), (40, 50)]),
        ([(40, 45), (20, 30)], [(30, 40), (45, 50)]),
        ([(0, 20), (50, 60)], [(20, 50)]),
    ],
)
def test_the_rest_of_a_range(dealt: list[tuple[int, int]], left: list[tuple[int, int]]) -> None:
    """Half-open ranges in any order, also beyond its ends."""
    done = [DealtRange(start, end, "merge") for start, end in dealt]

    assert rest(20, 50, done) == left
    assert rest(20, 50, done, {"merge"}) == left
    assert rest(20, 50, done, {"export"}) == [(20, 50)]
    assert rest(50, 50, done) == []


def test_a_later_restoration_adds_to_the_earlier_ones() -> None:
    """Ranges of one kind that meet are one, with the sum of their records; other kinds stay beside them."""
    earlier = {T: (DealtRange(20, 30, "merge", records=8), DealtRange(20, 50, "keep", records=9))}

    assert united(earlier, {T: (DealtRange(30, 50, "merge", records=5),)}) == {
        T: (DealtRange(20, 50, "keep", records=9), DealtRange(20, 50, "merge", records=13))
    }
    assert united(earlier, {}) == earlier
    again = {T: (DealtRange(20, 30, "merge", records=8),)}
    assert united(again, again) == again
    wider = {T: (DealtRange(20, 40, "merge", records=11),)}
    assert united(again, wider) == wider


def test_exports_to_two_places_are_two_ranges() -> None:
    """Each may be lost on its own."""
    file = {T: (DealtRange(20, 30, "export", "/file", 8, "h"),)}
    topic = {T: (DealtRange(20, 40, "export", "topic", 9),)}

    assert united(file, topic) == {T: (*file[T], *topic[T])}
    assert united(file, {T: (DealtRange(20, 40, "export", "/file", 9, "i"),)}) == {
        T: (DealtRange(20, 40, "export", "/file", 9, "i"),)
    }


def test_a_range_knows_the_batch_before_its_end() -> None:
    """A record of an older release has none, one of a later release may have more; joined ranges have the last one."""
    mark = 7, 8, 9
    ranges = {T: (DealtRange(20, 30, "keep", records=3, mark=mark), DealtRange(30, 40, "merge"))}
    rows = orjson.loads(orjson.dumps(encoded_ranges(ranges)[T]))

    assert decoded_ranges({T.topic: {"0": rows}}) == ranges
    assert decoded_ranges({T.topic: {"0": [row[:6] for row in rows]}})[T][0] == DealtRange(
        20, 30, "keep", records=3
    )
    assert decoded_ranges({T.topic: {"0": [[*row, "more"] for row in rows]}}) == ranges
    joined = united(ranges, {T: (DealtRange(30, 50, "keep", mark=(1, 2, 3)),)})
    assert joined[T][1] == DealtRange(20, 50, "keep", records=3, mark=(1, 2, 3))


def test_a_range_of_a_log_that_had_another_end_stays_by_itself() -> None:
    """A newer range does not vouch for it, and it does not hide the newer one."""
    old, new = (1, 2, 3), (4, 5, 6)
    longer = DealtRange(20, 50, "keep", records=9, mark=old)
    shorter = DealtRange(20, 40, "keep", records=7, mark=new)
    grown = DealtRange(20, 60, "keep", records=12, mark=new)

    assert united({T: (longer,)}, {T: (shorter,)}) == {T: (longer, shorter)}
    assert united({T: (longer,)}, {T: (replace(longer, mark=new),)}) == {
        T: (longer, replace(longer, mark=new))
    }
    assert united({T: (longer, shorter)}, {T: (grown,)}) == {T: (grown,)}
    assert united({T: (shorter,)}, {T: (DealtRange(40, 50, "keep", records=1, mark=old),)}) == {
        T: (DealtRange(20, 50, "keep", records=8, mark=old),)
    }


def test_a_mark_is_read_again_and_older_records_have_none() -> None:
    """A later release may add fields."""
    ranges = {
        T: (DealtRange(20, 30, "export", "/file", 8, "h", (25, 2**32 - 1, -1)), DealtRange(30, 40, "keep"))
    }
    topics = {"t": {"0": [list(each) for each in encoded_ranges(ranges)[T]]}}

    assert decoded_ranges(orjson.loads(orjson.dumps(topics))) == ranges
    assert decoded_ranges({"t": {"0": [[30, 40, "keep", "", 0, ""]]}}) == {T: ranges[T][1:]}
    assert decoded_ranges({"t": {"0": [[30, 40, "keep", "", 0, "", None, "later"]]}}) == {T: ranges[T][1:]}
    with pytest.raises(TypeError):
        decoded_ranges({"t": {"0": [[30, 40, "keep", "", 0, "", [1, 2, "3"]]]}})
