"""A comparison that has come to its end and goes on: with what compaction did meanwhile, and behind what is lost."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror._native import PartitionComparison, Planner, Policy
from eomirror.clock import SYSTEM_CLOCK
from eomirror.verify.partition import Comparer
from eomirror.verify.verdict import Range, Scope

if TYPE_CHECKING:
    from eomirror.verify.counts import PartitionCounts

MOST = 1000


class Message:
    """What a consumer hands out."""

    def __init__(
        self, offset: int, key: bytes, value: bytes | None, headers: list[Any] | None = None
    ) -> None:
        self._parts: dict[str, Any] = {
            "topic": "t", "partition": 0, "offset": offset, "key": key, "value": value, "timestamp": (1, 1_000),
            "leader_epoch": 0, "headers": headers, "error": None,
        }  # fmt: skip

    def __getattr__(self, name: str) -> Any:
        return lambda: self._parts[name]

    def place(self, topic: str) -> None:
        """It is of another topic."""
        self._parts["topic"] = topic


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


class Log:
    """A partition of ten offsets and two more, read by a consumer: once after the other, as it is by then."""

    def __init__(self, *readings: list[Message]) -> None:
        self._readings = list(readings)
        self._at = 0

    def assign(self, topic: str, partition: int, offset: int) -> None:
        del topic, partition
        if offset == 0 and self._at > 0 and len(self._readings) > 1:
            del self._readings[0]
        self._at = offset

    def read(self, most: int, seconds: float) -> tuple[list[Message], int]:
        del most, seconds
        found = [message for message in self._readings[0] if message.offset() >= self._at]
        self._at = 12
        return found, 12

    def close(self) -> None:
        """Nothing is open."""


def compared(source: Log, target: Log, *, by_key: bool = True, **link: Any) -> PartitionCounts:
    """What the comparer says of them."""
    comparer = object.__new__(Comparer)
    comparer._ids = ("S", "T")
    comparer._link = SimpleNamespace(  # type: ignore[assignment]
        compiled=lambda: None,
        **{
            "guard": False, "provenance_header": False, "origin_header": False, "source": "s",
            "origin_ids": lambda *_: None, **link,
        }
    )  # fmt: skip
    comparer._show, comparer._most_keys, comparer._clock, comparer._readers = 10, MOST, SYSTEM_CLOCK, None
    comparer._clients = (source, target)  # type: ignore[assignment]
    comparer._ends = SimpleNamespace(stable=lambda _: (12, 12))  # type: ignore[assignment]
    return comparer.compare(
        Scope(source=Range("t", 0, 0, 10, 10), target=Range("e.t", 0, 0, 10, 10), by_key=by_key)
    )


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_record_that_was_compacted_away_while_its_key_was_read_is_no_difference(side: str) -> None:
    """The older one had been read, and the younger one was gone when the reader came to it."""
    old, last, young = Message(1, b"k", b"old"), Message(8, b"k", b"last"), Message(11, b"k", b"young")
    cleaned = Log([old, young], [young])
    whole = Log([old, last, young])
    told = compared(*((cleaned, whole) if side == "source" else (whole, cleaned)))
    assert not any(told.differences.values())
    assert told.found == ()


def test_what_differs_when_it_is_read_again_differs() -> None:
    """A record that was changed on its way, and has a younger one since, is there at the second look, too."""
    young = Message(11, b"k", b"young")
    source = Log([Message(1, b"k", b"old"), Message(8, b"k", b"last"), young])
    target = Log([Message(1, b"k", b"old"), Message(8, b"k", b"altered"), young])
    told = compared(source, target)
    assert {kind: count for kind, count in told.differences.items() if count} == {"altered": 1}
    assert told.found == (("altered", 8, 8),)


@pytest.mark.parametrize("marked", [True, False])
def test_what_a_guard_leaves_out_is_left_out_also_where_the_link_marks_nothing(*, marked: bool) -> None:
    """`provenance: off` on one of the links of a way round: it drops what has passed its target all the same."""
    there = Planner(Policy({"x": "t"}, source_cluster_id="T", target_cluster_id="S", header=True, guard=True))
    here = Planner(
        Policy({"t": "e.t"}, source_cluster_id="S", target_cluster_id="T", header=marked, guard=True)
    )
    message = Message(0, b"k", b"back")
    message.place("x")
    (back,) = there.plan([message]).records
    source = [Message(1, b"k", b"back", back[7]), Message(2, b"k", b"own")]
    (sent,) = here.plan(source).records
    told = compared(
        Log(source),
        Log([Message(5, b"k", b"own", sent[7])]),
        by_key=False,
        guard=True,
        provenance_header=marked,
    )
    assert (told.matched, told.source["left_out"]) == (1, 1)
    assert not any(told.differences.values())


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
