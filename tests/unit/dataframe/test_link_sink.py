"""How many records a query leaves out of each partition."""

from __future__ import annotations

import pytest

from eomirror.dataframe.link_sink import divided
from eomirror.types import SourcePartition

A, B = SourcePartition("orders", 0), SourcePartition("orders", 1)


@pytest.mark.parametrize(
    ("moved", "written", "read", "expected"),
    [
        # every offset is a record
        ({A: (10, 20), B: (0, 5)}, {A: 4, B: 5}, 15, {A: 6, B: 0}),
        # two offsets are markers
        ({A: (10, 20), B: (0, 5)}, {A: 4, B: 1}, 13, {A: 5, B: 3}),
        # Spark does not tell
        ({A: (10, 20)}, {A: 4}, None, {A: 6}),
        # more rows than records
        ({A: (10, 12)}, {A: 8}, 2, {A: 0}),
        ({A: (10, 13), B: (0, 4)}, {}, 0, {A: 0, B: 0}),
        ({}, {}, 0, {}),
    ],
)
def test_the_sum_of_what_is_left_out_is_exact(
    moved: dict[SourcePartition, tuple[int, int]],
    written: dict[SourcePartition, int],
    read: int | None,
    expected: dict[SourcePartition, int],
) -> None:
    found = divided(moved, written, read)

    assert found == expected
    if read is not None:
        assert sum(found.values()) == max(0, read - sum(written.values()))
