"""A comparison that has come to its end and goes on: with what compaction did meanwhile, and behind what is lost."""

from __future__ import annotations

from typing import Any

from eomirror._native import PartitionComparison

MOST = 1000


class Message:
    """What a consumer hands out."""

    def __init__(self, offset: int, key: bytes, value: bytes | None) -> None:
        self._parts: dict[str, Any] = {
            "topic": "t", "partition": 0, "offset": offset, "key": key, "value": value, "timestamp": (1, 1_000),
            "leader_epoch": 0, "headers": None,
        }  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        return lambda: self._parts[name]


def by_key(source_tail: int = 10, target_tail: int = 10) -> PartitionComparison:
    """Of ten offsets on each side."""
    return PartitionComparison(
        ("t", 0, 0, 10, source_tail), ("e.t", 0, 0, 10, target_tail), by_key=(MOST, 0, 1)
    )


def differences(comparison: PartitionComparison) -> dict[str, int]:
    """Those that there are."""
    return {kind: count for kind, count in comparison.counts()["differences"].items() if count}


def test_what_compaction_removed_for_a_record_that_came_meanwhile_is_excused() -> None:
    """
    Between the look at the ends and the reading, a key got a younger record and its older one was removed.

    On the source it looks as if the copy had a foreign record, on the target as if one were missing.
    """
    old, young = Message(3, b"k", b"old"), Message(11, b"k", b"young")
    for lacks, has, kind in (("source", "target", "foreign"), ("target", "source", "missing")):
        comparison = by_key()
        comparison.feed(has, [old], 10)
        assert comparison.feed(lacks, [], 10)
        assert differences(comparison) == {kind: 1}
        comparison.read_on(*((12, 10) if lacks == "source" else (10, 12)))
        assert comparison.counts()[lacks]["position"] == 10
        assert comparison.feed(lacks, [young], 12)
        assert differences(comparison) == {}
        assert comparison.take() == []


def test_reading_on_excuses_nothing_that_compaction_cannot_have_done() -> None:
    """Neither a key without a younger record nor a record that is another; and nothing is counted twice."""
    comparison = by_key()
    records = [Message(0, b"equal", b"1"), Message(1, b"lost", b"1"), Message(2, b"altered", b"1")]
    comparison.feed("source", records, 10)
    assert comparison.feed("target", [records[0], Message(2, b"altered", b"2")], 10)
    assert differences(comparison) == {"missing": 1, "altered": 1}
    comparison.read_on(12, 12)
    comparison.feed("target", [Message(11, b"altered", b"3")], 12)
    assert comparison.feed("source", [Message(11, b"altered", b"3")], 12)
    assert differences(comparison) == {"missing": 1, "altered": 1}
    assert comparison.counts()["matched"] == 1
    assert sorted(kind for kind, *_ in comparison.take()) == ["altered", "missing"]


def test_going_on_begins_behind_what_cannot_be_compared_any_more() -> None:
    """A gap that was accepted, or retention: the reader does not look for offsets that are gone."""
    comparison = PartitionComparison(("t", 0, 0, 5, 5), ("e.t", 0, 0, 5, 5))
    first = [Message(n, b"k%d" % n, b"v") for n in range(5)]
    comparison.feed("source", first, None)
    assert comparison.feed("target", first, None)
    comparison.extend(20, 8, [], (17, 5))
    counts = comparison.counts()
    assert (counts["source"]["position"], counts["target"]["position"]) == (17, 5)
    comparison.feed("source", [Message(n, b"k%d" % n, b"v") for n in (17, 18, 19)], None)
    copies = [Message(target, b"k%d" % source, b"v") for source, target in ((17, 5), (18, 6), (19, 7))]
    assert comparison.feed("target", copies, None)
    assert differences(comparison) == {}
    assert comparison.counts()["matched"] == 8
    assert comparison.resume_at() == (20, 8)
