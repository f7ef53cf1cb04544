"""Laws of the offset map's chunks, as Python writes and reads them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from laws import law

from eomirror._native import decode_offset_map, encode_offset_map
from eomirror.errors import StateError

Range = tuple[int, int, int]

_MOST = 2**63 - 1

topics = st.text("abzAZ09._-", min_size=1, max_size=20) | st.integers(1, 249).map("t".__mul__)
partitions = st.integers(0, 2**31 - 1)


@st.composite
def ranges(draw: st.DrawFn) -> list[Range]:
    """Ranges that grow on both sides; gaps of 0 on one side, on both, or on none."""
    gap = st.one_of(st.just(0), st.integers(0, 3), st.integers(0, 2**40))
    count = st.one_of(st.just(1), st.integers(1, 9), st.integers(1, 2**40))
    source, target = draw(gap), draw(gap)
    made = []
    for source_gap, target_gap, length in draw(st.lists(st.tuples(gap, gap, count), min_size=1, max_size=12)):
        source, target = source + source_gap, target + target_gap
        made.append((source, target, length))
        source, target = source + length, target + length
    return made


def joined(found: list[Range]) -> list[Range]:
    """The same map in as few ranges as it takes."""
    made: list[Range] = []
    for source, target, count in found:
        if made and (made[-1][0] + made[-1][2], made[-1][1] + made[-1][2]) == (source, target):
            made[-1] = (*made[-1][:2], made[-1][2] + count)
        else:
            made.append((source, target, count))
    return made


def translated(found: list[Range], offset: int) -> int | None:
    """Where a reader of the ranges finds a source offset."""
    return next((to + offset - of for of, to, count in found if of <= offset < of + count), None)


@law(150)
@given(topics, partitions, ranges())
def test_what_is_written_is_read(topic: str, partition: int, written: list[Range]) -> None:
    """Target topic, partition and ranges; neighbours come back joined."""
    value = encode_offset_map(topic, partition, written)

    assert decode_offset_map(value) == (topic, partition, joined(written))


@law(100)
@given(ranges())
def test_ranges_are_read_in_order_and_disjoint(written: list[Range]) -> None:
    """On both sides; and no two of them could be one."""
    _, _, read = decode_offset_map(encode_offset_map("t", 0, written))

    for (source, target, count), (next_source, next_target, _) in pairwise(read):
        assert source + count <= next_source
        assert target + count <= next_target
        assert (source + count, target + count) != (next_source, next_target)
    assert all(count >= 1 for _, _, count in read)


@law(100)
@given(ranges(), st.data())
def test_how_a_map_was_cut_does_not_show(written: list[Range], data: st.DataObject) -> None:
    """A batch that was acknowledged in two parts is the same map, byte for byte."""
    index = data.draw(st.integers(0, len(written) - 1))
    source, target, count = written[index]
    first = data.draw(st.integers(1, count))
    parts = [(source, target, first), (source + first, target + first, count - first)]
    cut = written[:index] + [part for part in parts if part[2]] + written[index + 1 :]

    assert encode_offset_map("t", 0, cut) == encode_offset_map("t", 0, written)


@law(100)
@given(ranges(), st.data())
def test_a_reader_finds_every_offset_where_it_went(written: list[Range], data: st.DataObject) -> None:
    """The first, the last and any other of a range; what lies between two ranges is nowhere; order is kept."""
    _, _, read = decode_offset_map(encode_offset_map("t", 0, written))
    source, target, count = data.draw(st.sampled_from(written))
    step = data.draw(st.integers(0, count - 1))
    places = []
    for distance in sorted({0, step, count - 1}):
        places.append(translated(read, source + distance))
        assert places[-1] == target + distance
    assert places == sorted(set(places))

    ends = [0, *(end for of, _, length in written for end in (of, of + length))]
    holes = [(ends[at], ends[at + 1]) for at in range(0, len(ends) - 1, 2) if ends[at] < ends[at + 1]]
    for begin, end in holes:
        assert translated(read, begin) is None
        assert translated(read, end - 1) is None


def broken(kind: str, written: list[Range], index: int) -> list[Range]:
    """Ranges with one thing wrong at ``index``."""
    source, target, count = written[index]
    after = source + count, target + count
    wrong: dict[str, list[Range]] = {
        "empty": [(source, target, 0)],
        "negative count": [(source, target, -count)],
        "negative source": [(-1, target, count)],
        "negative target": [(source, -1, count)],
        "source goes back": [(source, target, count), (after[0] - 1, after[1], 1)],
        "target goes back": [(source, target, count), (after[0], after[1] - 1, 1)],
        "twice": [(source, target, count), (source, target, count)],
        "beyond the last offset": [(source, target, count), (_MOST, _MOST, 1)],
    }
    return written[:index] + wrong[kind] + written[index + 1 :]


@pytest.mark.parametrize(
    "kind",
    [
        "empty", "negative count", "negative source", "negative target", "source goes back", "target goes back",
        "twice", "beyond the last offset",
    ],
)  # fmt: skip
@law(25)
@given(written=ranges(), data=st.data())
def test_ranges_that_cannot_be_are_never_written(kind: str, written: list[Range], data: Any) -> None:
    """A map that says two things about one offset would translate a group to a wrong place."""
    with pytest.raises(StateError):
        encode_offset_map("t", 0, broken(kind, written, data.draw(st.integers(0, len(written) - 1))))


@law(150)
@given(ranges(), st.data())
def test_a_changed_byte_is_refused_or_is_another_map(written: list[Range], data: st.DataObject) -> None:
    """Never the same map from other bytes, and never bytes that no lane would have written."""
    value = bytearray(encode_offset_map("topic", 3, written))
    place = data.draw(st.integers(0, len(value) - 1))
    change = data.draw(st.integers(1, 255))
    value[place] ^= change

    try:
        topic, partition, read = decode_offset_map(bytes(value))
    except StateError:
        return
    assert (topic, partition, read) != ("topic", 3, joined(written))
    assert encode_offset_map(topic, partition, read) == bytes(value)


@law(100)
@given(ranges(), st.data())
def test_a_chunk_has_exactly_its_bytes(written: list[Range], data: st.DataObject) -> None:
    """Cut anywhere, or with anything behind it, it is refused."""
    value = encode_offset_map("topic", 3, written)
    cut = data.draw(st.integers(0, len(value) - 1))
    more = data.draw(st.binary(min_size=1, max_size=8))

    for wrong in (value[:cut], value + more):
        with pytest.raises(StateError):
            decode_offset_map(wrong)


@law(60)
@given(st.integers(0, 300), st.integers(-(2**31), 2**31 - 1))
def test_names_and_partitions_have_kafkas_limits(length: int, partition: int) -> None:
    """Topics of 1 to 249 characters, partitions from 0 on."""
    fits = 1 <= length <= 249 and partition >= 0
    if fits:
        encode_offset_map("t" * length, partition, [(0, 0, 1)])
        return
    with pytest.raises(StateError):
        encode_offset_map("t" * length, partition, [(0, 0, 1)])
