"""What decides where a comparison begins: chunks of the offset map, in the order in which they were written."""

from __future__ import annotations

from eomirror._native import encode_offset_map
from eomirror.kafka.compacted_topic import LogRecord
from eomirror.records.offset_map import merged_chunk_key, offset_map_key
from eomirror.records.position import Position
from eomirror.types import SourcePartition
from eomirror.verify import counts as retention
from eomirror.verify.counts import RetentionBounds

SOURCE = SourcePartition("t", 0)
POSITION = Position(
    topic="t", partition=0, offset=1000, source_cluster_id="s", topic_id="id", target_topic="e.t", target_partition=0,
    target_topic_id="target-id", target_offset=1000, generation=1, lane=0, run="r", epoch=1, attempt=1, producer_id=1,
    producer_epoch=0, txn=1, timestamp=1,
)  # fmt: skip

Range = tuple[int, int, int]


def chunk(
    ranges: list[Range], *, topic: str = "e.t", topic_id: str = "id", parts: int | None = None
) -> LogRecord:
    """A record of the map."""
    first = ranges[0][0]
    key = (
        offset_map_key(SOURCE, topic_id, first)
        if parts is None
        else merged_chunk_key(SOURCE, topic_id, first, parts)
    )
    return LogRecord("map", 0, 0, key, encode_offset_map(topic, 0, ranges))


def cuts(source: int, target: int, *records: LogRecord) -> tuple[Range, ...]:
    """The ranges that decide for these log starts."""
    found = RetentionBounds({SOURCE: (POSITION, source, target)})
    for record in records:
        found.take(record)
    return found.ranges()[SOURCE]


def test_what_a_replaced_target_has_overruled_decides_nothing() -> None:
    """A new target was filled from the source's beginning: where records were in the old one is no news."""
    old = [chunk([(n, 5000 + n, 10)]) for n in range(0, 300, 20)]
    new = [chunk([(n, n, 30)]) for n in range(0, 300, 50)]
    assert cuts(110, 0, *old, *new) == ((0, 0, 30), (100, 100, 30))
    assert cuts(0, 110, *old, *new) == ((0, 0, 30), (100, 100, 30))


def test_a_target_that_begins_in_the_middle_has_nothing_of_the_one_before() -> None:
    """The mirror went on where it stood, into a new target."""
    old, new = chunk([(0, 0, 500)]), chunk([(500, 0, 100)])
    assert cuts(550, 20, old, new) == ((500, 0, 100),)


def test_a_merged_chunk_that_repeats_what_is_known_changes_nothing() -> None:
    """It stands behind its parts, and goes back without overruling anything."""
    parts = [chunk([(n, n + 7, 5)]) for n in range(0, 50, 10)]
    merged = chunk([(n, n + 7, 5) for n in range(0, 50, 10)], parts=5)
    assert (
        cuts(23, 0, *parts, merged) == cuts(23, 0, *parts) == cuts(23, 0, merged) == ((0, 7, 5), (20, 27, 5))
    )


def test_chunks_of_another_target_or_an_earlier_source_are_left_out() -> None:
    """The latter are told: the copy begins with them."""
    found = RetentionBounds({SOURCE: (POSITION, 50, 0)})
    for record in (
        chunk([(0, 90, 5)], topic_id="old"),
        chunk([(40, 8, 5)], topic="e.other"),
        chunk([(30, 3, 5)]),
    ):
        found.take(record)
    assert found.ranges() == {SOURCE: ((30, 3, 5),)}
    assert found.replaced == {SOURCE}


def test_what_is_kept_does_not_grow_with_the_map() -> None:
    """Far more ranges than are kept, and the same answer."""
    wanted = {SourcePartition("t", n): (POSITION, 0, 0) for n in range(retention._KEPT_RANGES // 64)}
    found = RetentionBounds({**wanted, SOURCE: (POSITION, 9_003, 4_003)})
    for n in range(0, 10_000, 10):
        found.take(chunk([(n, n // 2, 4)]))
        assert found._maps[SOURCE].ranges() <= 4 * 64
    assert found.ranges()[SOURCE] == ((0, 0, 4), (8000, 4000, 4), (9000, 4500, 4))
