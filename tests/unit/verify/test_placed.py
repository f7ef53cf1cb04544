"""Verification where records are placed by key: a source partition has copies in several target partitions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from eomirror.errors import TopicError
from eomirror.verify.placed import PlacedComparer
from eomirror.verify.verdict import CopyPartitionEnds, PartitionFacts, Range, Scope, scope
from support.fakes.lane_fakes import ORDERS, position
from support.judges.java_partitioner import java_partition

_COUNT = 3


@dataclass
class Message:
    """Answers what a consumed message answers."""

    topic_: str
    partition_: int
    offset_: int
    key_: bytes | None
    value_: bytes | None
    headers_: list[tuple[str, bytes]] | None = None

    def error(self) -> None:
        return None

    def topic(self) -> str:
        return self.topic_

    def partition(self) -> int:
        return self.partition_

    def offset(self) -> int:
        return self.offset_

    def key(self) -> bytes | None:
        return self.key_

    def value(self) -> bytes | None:
        return self.value_

    def timestamp(self) -> tuple[int, int]:
        return (1, 1_000)

    def headers(self) -> list[tuple[str, bytes]] | None:
        return self.headers_

    def leader_epoch(self) -> int:
        return 3


class FakeLogs:
    """A `CommittedPartition` of these messages, three at a time."""

    def __init__(self, *messages: Message) -> None:
        self._messages = messages
        self._left: list[Message] = []
        self.reads = 0

    def assign(self, topic: str, partition: int, offset: int) -> None:
        self._left = [
            each
            for each in self._messages
            if (each.topic_, each.partition_) == (topic, partition) and each.offset_ >= offset
        ]

    def read(self, most: int, seconds: float) -> tuple[list[Message], int | None]:
        assert most > 0
        assert seconds > 0
        self.reads += 1
        some, self._left = self._left[:3], self._left[3:]
        return some, None if self._left or not some else some[-1].offset_ + 2


def originals(count: int) -> list[Message]:
    """Records of a source partition."""
    return [Message("orders", 4, at, b"k%d" % at, b"v%d" % at) for at in range(count)]


def copies(sources: list[Message], **changes: bytes) -> list[Message]:
    """Each in the partition of its key, one behind the other."""
    ends = dict.fromkeys(range(_COUNT), 0)
    found = []
    for each in sources:
        number = java_partition(each.key_ or b"", _COUNT)
        value = changes.get(f"at{each.offset_}", each.value_)
        origin = [("h", b"1"), ("eomirror.origin", f"shop/orders/4/{each.offset_}".encode())]
        found.append(Message("all", number, ends[number], each.key_, value, origin))
        ends[number] += 1
    return found


def compare(sources: list[Message], targets: list[Message], *, most: int = 100) -> Any:
    """The counts; the originals have the header ``h`` of their copies."""
    for each in sources:
        each.headers_ = [("h", b"1")]
    one = Scope(
        source=Range("orders", 4, 0, len(sources), len(sources)),
        target=Range("all", -1, 0, 0, 0),
        placed=tuple(
            Range("all", number, 0, end, end)
            for number in range(_COUNT)
            for end in (sum(each.partition_ == number for each in targets),)
        ),
    )
    comparer = PlacedComparer(
        "shop", FakeLogs(*sources), FakeLogs(*targets), from_start=True, show=5, most=most, patience=0.2
    )  # type: ignore[arg-type]
    return comparer.compare(one, None, lambda: False)


@pytest.mark.parametrize("most", [100, 7])
def test_equal_records_match_in_any_number_of_shares(most: int) -> None:
    """Each share reads everything again, and the records are counted once."""
    sources = originals(40)

    counts = compare(sources, copies(sources), most=most)

    assert counts.matched == len(sources)
    assert not any(counts.differences.values())
    assert counts.source["records"] == counts.target["records"] == len(sources)
    assert counts.whole


@pytest.mark.parametrize("most", [100, 7])
def test_differences_name_their_places(most: int) -> None:
    """A lost, an altered and a repeated record."""
    sources = originals(40)
    targets = [each for each in copies(sources, at8=b"else") if not each.headers_[1][1].endswith(b"/5")]  # type: ignore[index]
    again = targets[0]
    targets.append(Message("all", again.partition_, len(targets), again.key_, again.value_, again.headers_))
    for number in range(_COUNT):
        for at, each in enumerate(each for each in targets if each.partition_ == number):
            each.offset_ = at

    counts = compare(sources, targets, most=most)

    assert {kind: count for kind, count in counts.differences.items() if count} == {
        "missing": 1, "altered": 1, "duplicate": 1,
    }  # fmt: skip
    found = dict(zip(counts.found, counts.places, strict=True))
    assert found["missing", 5, None] is None
    assert [place for (kind, *_), place in found.items() if kind == "duplicate"] == [again.partition_]
    assert counts.matched == len(sources) - 2


def test_a_log_that_ends_early_is_an_error() -> None:
    """It was truncated meanwhile, or its brokers do not answer."""
    sources = originals(4)
    targets = copies(sources)
    one = Scope(
        source=Range("orders", 4, 0, 4, 4),
        target=Range("all", -1, 0, 0, 0),
        placed=(Range("all", 0, 0, 1_000, 1_000),),
    )
    comparer = PlacedComparer(
        "shop", FakeLogs(*sources), FakeLogs(*targets), from_start=True, show=5, most=9, patience=0.1
    )  # type: ignore[arg-type]

    with pytest.raises(TopicError, match="all-0"):
        comparer.compare(one, None, lambda: False)


KEYED = position(
    ORDERS, 100, target_partition=2, target_offset=70, keyed={"0": 30, "1": -1, "2": 70}, total_records=50
)
ENDS = (CopyPartitionEnds(0, 5, 40, 40), CopyPartitionEnds(1, 0, 9, 9), CopyPartitionEnds(2, 0, 60, 71))


def facts(**changes: Any) -> PartitionFacts:
    """Facts of a partition whose records are placed by key."""
    values: dict[str, Any] = {
        "position": KEYED, "source_id": "id-orders", "target_id": "id-east.orders", "source_start": 20,
        "source_stable": 130, "target_start": 0, "target_stable": 0, "placed": ENDS, **changes,
    }  # fmt: skip
    return PartitionFacts(**values)


def test_the_scope_has_the_ranges_of_all_target_partitions() -> None:
    """Each ends where it ended before the positions were read, or behind the last record that they name."""
    found = scope(facts(bound=25))

    assert (found.source.start, found.source.end, found.lag) == (25, 100, 30)
    assert [(part.partition, part.start, part.end) for part in found.placed] == [
        (0, 5, 40),
        (1, 0, 9),
        (2, 0, 71),
    ]
    assert found.target.partition == -1
    assert not found.problem


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"placed": (CopyPartitionEnds(0, 0, 30, 30), *ENDS[1:])}, "partition 0 of the target ends at 30"),
        ({"compacted": True}, "compacted"),
        ({"target_id": "other"}, "was recreated"),
        ({"source_stable": 99}, "the source ends at 99"),
    ],
)
def test_what_cannot_be_compared_is_a_problem(changes: dict[str, Any], words: str) -> None:
    """The reason is named, and no record is compared."""
    found = scope(facts(**changes))

    assert words in found.problem
    assert found.source.start == found.source.end
