"""Orphans that are left, by what was decided about them."""

from __future__ import annotations

from eomirror.failover.orphan_reader import OrphanRange
from eomirror.failover.orphans import decided
from eomirror.records.dealt_ranges import DealtRange
from eomirror.types import SourcePartition


def test_the_parts_of_a_range_by_what_was_done_about_them() -> None:
    """What arrived later is undecided; what was exported stays exported when the rest is kept."""
    source = SourcePartition("t", 0)
    exported, kept = DealtRange(20, 30, "export", "/file"), DealtRange(20, 40, "keep")

    found = [
        (each.start, each.end, "" if done is None else done.action)
        for each, done in decided(OrphanRange(source=source, start=20, end=50), [exported, kept])
    ]

    assert found == [(20, 30, "export"), (30, 40, "keep"), (40, 50, "")]
    assert [
        (each.start, each.end, done)
        for each, done in decided(OrphanRange(source=source, start=20, end=50), [])
    ] == [(20, 50, None)]
