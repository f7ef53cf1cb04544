"""Offsets of a query: their JSON form, limits of a batch, and the parts of tasks."""

from __future__ import annotations

from eomirror.dataframe.offsets import QueryOffsets, ReadRange, limited_by_bytes, limited_by_rows, split


def test_offsets_survive_a_round_trip_and_have_ids() -> None:
    """Spark compares documents as texts, so that the order counts, too."""
    offsets = QueryOffsets({("b", 0): 5, ("a", 10): 2, ("a", 2): 1}, {"a": "ida", "gone": "x"})
    document = offsets.as_json()
    assert document == {"a": {"2": 1, "10": 2}, "b": {"0": 5}, "$ids": {"a": "ida"}}
    assert list(document["a"]) == ["2", "10"]
    assert QueryOffsets.of_json(document).as_json() == document
    assert QueryOffsets.of_json({"a": {"0": 7}}).ids == {}


def test_a_limit_is_shared_in_proportion() -> None:
    """A partition with few records is not starved by one with many."""
    starts, ends = {("t", 0): 0, ("t", 1): 0, ("t", 2): 5}, {("t", 0): 900, ("t", 1): 100, ("t", 2): 5}
    assert limited_by_rows(starts, ends, 100) == {("t", 0): 90, ("t", 1): 10, ("t", 2): 5}
    assert limited_by_rows(starts, ends, 1000) == ends
    assert limited_by_rows(starts, ends, 1) == {("t", 0): 1, ("t", 1): 1, ("t", 2): 5}


def test_a_limit_in_bytes_takes_the_size_of_offsets() -> None:
    """The same number of bytes is fewer large records; a partition without a sample counts as the others."""
    starts, ends = {("t", 0): 0, ("t", 1): 0}, {("t", 0): 100, ("t", 1): 100}
    assert limited_by_bytes(starts, ends, {("t", 0): 10.0, ("t", 1): 30.0}, 400) == {
        ("t", 0): 10,
        ("t", 1): 10,
    }
    assert limited_by_bytes(starts, ends, {("t", 0): 10.0}, 1000) == {("t", 0): 50, ("t", 1): 50}


def test_ranges_are_cut_for_more_tasks() -> None:
    """Nothing is lost between two parts, and nothing is read twice."""
    ranges = [ReadRange("t", 0, 10, 110, "id"), ReadRange("t", 1, 0, 0, "id")]
    found = split(ranges, 4)
    assert [(one.start, one.end) for one in found] == [(10, 35), (35, 60), (60, 85), (85, 110)]
    assert {one.topic_id for one in found} == {"id"}
    assert split(ranges, 0) == ranges[:1]
    assert len(split([ReadRange("t", 0, 0, 2)], 10)) == 2
