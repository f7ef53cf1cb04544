"""When MM2's readers get a new offset sync: MM2's own rule, and the last record of a quiet partition."""

from __future__ import annotations

from eomirror.lane.mm2_records import MAX_LAG, MirroredRanges, OffsetSyncs
from eomirror.records.mm2 import OffsetSync
from eomirror.types import SourcePartition

ORDERS = SourcePartition("orders", 1)


def mirrored(*ranges: tuple[int, int, int], source: SourcePartition = ORDERS) -> MirroredRanges:
    return MirroredRanges(source, ranges)


def commit(syncs: OffsetSyncs, *items: MirroredRanges, quiet: bool = False) -> list[tuple[int, int]]:
    due = syncs.due(items, quiet=quiet)
    syncs.committed(items, quiet=quiet)
    return [(sync.upstream, sync.downstream) for sync in due]


def test_the_first_transaction_of_an_attempt_is_synced() -> None:
    """Whatever was written before, this lane does not know what its readers know."""
    syncs = OffsetSyncs()

    assert syncs.due([mirrored((40, 7, 3))], quiet=False) == (OffsetSync("orders", 1, 42, 9),)


def test_records_in_a_row_are_synced_when_a_reader_would_read_a_hundred_again() -> None:
    """MM2's offset.lag.max: a reader of the last sync goes on one record behind it."""
    syncs = OffsetSyncs()
    commit(syncs, mirrored((0, 0, 1)))

    assert commit(syncs, mirrored((1, 1, MAX_LAG))) == []
    assert commit(syncs, mirrored((MAX_LAG + 1, MAX_LAG + 1, 1))) == [(MAX_LAG + 1, MAX_LAG + 1)]


def test_our_own_markers_on_the_target_are_no_reason() -> None:
    """Each of our transactions leaves a hole there; a sync in every one would be no rule."""
    syncs = OffsetSyncs()
    commit(syncs, mirrored((0, 0, 1)))

    assert commit(syncs, mirrored((1, 2, 1))) == []


def test_a_hole_on_the_source_is_a_reason() -> None:
    """Between two transactions and within one: markers, aborted records, what compaction took."""
    syncs = OffsetSyncs()
    commit(syncs, mirrored((0, 0, 2)))

    assert commit(syncs, mirrored((3, 3, 2))) == [(4, 4)]
    assert commit(syncs, mirrored((5, 5, 1), (7, 6, 2))) == [(8, 7)]


def test_a_target_that_went_back_is_a_reason() -> None:
    """A replaced target begins at 0 again, which the lag alone would not show for a long time."""
    syncs = OffsetSyncs()
    commit(syncs, mirrored((0, 500, 1)))

    assert commit(syncs, mirrored((1, 0, 1))) == [(1, 0)]


def test_what_the_rule_leaves_out_is_synced_when_the_lane_is_quiet() -> None:
    """The last record of a partition at rest has a sync, once."""
    syncs = OffsetSyncs()
    commit(syncs, mirrored((0, 0, 1)))
    commit(syncs, mirrored((1, 2, 3)))
    assert syncs.tails

    assert commit(syncs, quiet=True) == [(3, 4)]
    assert not syncs.tails
    assert commit(syncs, quiet=True) == []


def test_an_aborted_transaction_changes_nothing() -> None:
    """What is due stays due until it is committed."""
    syncs = OffsetSyncs()
    item = mirrored((0, 0, 1))

    assert syncs.due([item], quiet=False) == syncs.due([item], quiet=False)


def test_partitions_have_rules_of_their_own() -> None:
    """One partition's sync says nothing of another."""
    syncs = OffsetSyncs()
    other = SourcePartition("orders", 2)
    commit(syncs, mirrored((0, 0, 1)))

    assert syncs.due([mirrored((1, 1, 1)), mirrored((9, 4, 1), source=other)], quiet=False) == (
        OffsetSync("orders", 2, 9, 4),
    )
