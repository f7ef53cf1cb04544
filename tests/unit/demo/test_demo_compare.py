"""The demo's judge, on records made by hand: every kind of difference is found, and only that one."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from eomirror.demo.clients import ReadRecord
from eomirror.demo.compare import SeenRecords, compare_partition, fingerprint
from eomirror.demo.traffic import Stamp, TrafficPlan, checksum
from eomirror.records.names import HOPS_HEADER

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

Records = list[ReadRecord]


def originals(count: int = 60, *, stamped: bool = True) -> Records:
    """A partition's committed records, as a consumer would get them."""
    plan = TrafficPlan(seed=7, partitions=1, per_transaction=count, abort_every=0)
    transaction = plan.transaction(1, plan.new_ledger(), sent_us=5, wall_ms=1_700_000_000_000)
    return [
        ReadRecord(
            0,
            offset,
            record.key,
            record.value,
            record.headers if stamped else (("n", b"%d" % (offset // 2)),),
            1,
            record.timestamp,
        )
        for offset, record in enumerate(transaction.records)
    ]


def without(records: Records) -> Records:
    return records[:10] + records[13:]


def again(records: Records) -> Records:
    return records[:20] + records[15:]


def swapped(records: Records) -> Records:
    return [*records[:5], records[6], records[5], *records[7:]]


def moved(records: Records) -> Records:
    return [*records[1:], records[0]]


def changed(**parts: object) -> Callable[[Records], Records]:
    def change(records: Records) -> Records:
        return [*records[:8], dataclasses.replace(records[8], **parts), *records[9:]]

    return change


def other_header(records: Records) -> Records:
    return changed(headers=(*records[8].headers, ("late", None)))(records)


def leaked(records: Records) -> Records:
    """A record of an aborted transaction: same place in the partition, sent at another time."""
    stamp = Stamp(0, 9, 4, checksum(b"k", b"v")).encode()
    return [*records[:9], dataclasses.replace(records[9], headers=(("demo-stamp", stamp),)), *records[9:]]


@pytest.mark.parametrize(
    ("plant", "line"),
    [
        (list, "0 missing, 0 duplicate, 0 reordered, 0 altered"),
        (without, "3 missing, 0 duplicate, 0 reordered, 0 altered"),
        (again, "0 missing, 5 duplicate, 0 reordered, 0 altered"),
        (swapped, "0 missing, 0 duplicate, 1 reordered, 0 altered"),
        (moved, "0 missing, 0 duplicate, 1 reordered, 0 altered"),
        (changed(key=b"other"), "0 missing, 0 duplicate, 0 reordered, 1 altered"),
        (changed(value=b"other"), "0 missing, 0 duplicate, 0 reordered, 1 altered"),
        (changed(timestamp=1), "0 missing, 0 duplicate, 0 reordered, 1 altered"),
        (changed(timestamp_type=2), "0 missing, 0 duplicate, 0 reordered, 1 altered"),
        (other_header, "0 missing, 0 duplicate, 0 reordered, 1 altered"),
        (leaked, "0 missing, 0 duplicate, 0 reordered, 0 altered, 1 foreign"),
    ],
)
def test_a_planted_difference_is_told_by_name(plant: Callable[[Records], Records], line: str) -> None:
    """One kind of damage gives one kind of count."""
    source = originals()
    comparison = compare_partition(0, source, plant(source))
    assert comparison.line == line
    assert comparison.perfect == (plant is list)
    assert bool(comparison.differences) != comparison.perfect


def test_an_altered_record_names_its_parts_and_places() -> None:
    """The details lead to the record on both sides."""
    source = originals()
    target = changed(value=b"other", offset=80)(source)
    (difference,) = compare_partition(0, source, target).differences
    assert (difference.what, difference.source_offset, difference.target_offset) == (("value",), 8, 80)


def test_the_provenance_header_is_not_compared() -> None:
    """Our one header may be there; any other may not."""
    source = originals()
    target = [
        dataclasses.replace(record, offset=record.offset + 3, headers=(*record.headers, (HOPS_HEADER, b"x")))
        for record in source
    ]
    assert compare_partition(0, source, target).perfect


def test_null_and_empty_are_different() -> None:
    """A tombstone is no empty value, and a null key no empty key."""
    record = originals()[0]
    shapes = [
        dataclasses.replace(record, key=key, value=value) for key in (None, b"") for value in (None, b"")
    ]
    assert len({fingerprint(shape) for shape in shapes}) == 4
    assert len({checksum(shape.key, shape.value) for shape in shapes}) == 4


def test_equal_records_without_stamps_are_counted() -> None:
    """Foreign traffic has no stamps and may repeat itself; occurrences then stand for identity."""
    record = originals()[0]
    plain = [dataclasses.replace(record, offset=offset, headers=()) for offset in range(4)]
    assert compare_partition(0, plain, plain).perfect
    assert compare_partition(0, plain, plain[:3]).missing == 1
    assert compare_partition(0, plain[:3], plain).foreign == 1


def test_reordering_counts_the_records_that_moved(rng: random.Random) -> None:
    """As few records as would have to move to restore the order, found for any shuffle."""
    source = originals(200)
    chosen = set(rng.sample(range(200), 5))
    target = [record for record in source if record.offset not in chosen]
    target += [source[offset] for offset in sorted(chosen, reverse=True)]
    found = compare_partition(0, source, target)
    assert 4 <= found.reordered <= 5
    assert (found.missing, found.duplicate, found.altered) == (0, 0, 0)


def test_a_history_notices_every_revision() -> None:
    """What a reader was shown must lie there in the end, unchanged, with nothing slipped in between."""
    shown = originals()
    history = SeenRecords()
    for record in shown[:50]:
        if record.offset != 30:
            history.see(record)
    final = [record for record in shown if record.offset != 10]
    final[20] = dataclasses.replace(final[20], value=b"other")
    revision = history.revised(final)
    assert (revision.seen, revision.retracted, revision.changed, revision.inserted) == (49, 1, 1, 1)
    assert not revision.stable


def test_a_history_of_a_quiet_log_is_stable() -> None:
    """Records beyond the reader's place are no revision."""
    history = SeenRecords()
    for record in originals()[:50]:
        history.see(record)
    assert history.revised(originals()).stable
    assert SeenRecords().revised(originals()).stable
