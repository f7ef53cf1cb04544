"""What is answered about offsets from a position alone, without reading the map."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eomirror._native import encode_offset_map
from eomirror.clock import SYSTEM_CLOCK
from eomirror.config import Cluster, Link
from eomirror.kafka.cluster_metadata import TopicFacts
from eomirror.kafka.compacted_topic import LogRecord
from eomirror.link.offset_map_reader import OffsetMapReader, Question
from eomirror.records.offset_map import merged_chunk_key, offset_map_key
from eomirror.records.position import Position
from eomirror.types import SourcePartition

NOWHERE = Cluster("west", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})


class Admin:
    """The map's topic exists; a caller that asks for more has to read it."""

    def describe_topics(self, names: list[str]) -> dict[str, TopicFacts]:
        return {name: TopicFacts(name, "id", 7, 1) for name in names}

    def offsets(self, names: list[tuple[str, int]], *, at: str, **_: Any) -> dict[tuple[str, int], int]:
        return dict.fromkeys(names, 0 if at == "earliest" else self.end)

    def close(self) -> None:
        pass

    end = 0


def position(target_offset: int | None) -> Position:
    """At source offset 1000."""
    return Position(
        topic="orders", partition=0, offset=1000, source_cluster_id="S", topic_id="A", target_topic="east.orders",
        target_partition=0, target_topic_id="B", target_offset=target_offset, generation=2, lane=0, run="r", epoch=0,
        attempt=0, producer_id=1, producer_epoch=0, txn=0, timestamp=1,
    )  # fmt: skip


@pytest.fixture
def reader() -> Any:
    """One that cannot reach anything."""
    target: Any = SimpleNamespace(admin=Admin(), clock=SYSTEM_CLOCK)
    return OffsetMapReader(Link(name="one", source="east", target="west", topics=("t",)), target)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_copy_without_records_of_ours_has_no_offsets(reader: OffsetMapReader, *, reverse: bool) -> None:
    """
    Adopted at 1000 behind a copy that was deleted and created again: the map speaks of the one before.

    Its chunks say 500 for 500 and 1000 for 1000; a group that is set to either in the empty copy skips as many records.
    """
    asked = [Question(position(None), offset, stable_end=0) for offset in (500, 999, 1000)]

    assert reader.answers(asked, reverse=reverse) == [("nothing", -1)] * 3


def test_where_the_mirror_stands_needs_no_map(reader: OffsetMapReader) -> None:
    """Behind the last record that it has written; and further on it is not known yet."""
    asked = [Question(position(41), 1000), Question(position(41), 1001), Question(position(None), 1001)]

    assert reader.answers(asked) == [("next", 42), ("beyond", 1000), ("beyond", 1000)]


SOURCE = SourcePartition("orders", 0)


def chunk(*ranges: tuple[int, int, int], copy: str = "east.orders") -> tuple[bytes, bytes]:
    """A record of the map: its key and value."""
    merged = len(ranges) > 1
    first = ranges[0][0]
    key = merged_chunk_key(SOURCE, "A", first, len(ranges)) if merged else offset_map_key(SOURCE, "A", first)
    return key, encode_offset_map(copy, 0, ranges)


LAST = chunk((990, 31, 10))
BEFORE, BEHIND = chunk((900, 0, 31)), chunk((1000, 42, 5))


@pytest.mark.parametrize(
    ("held", "ahead"),
    [
        pytest.param([BEFORE, LAST], False, id="nothing behind the position"),
        pytest.param([BEFORE, LAST, BEHIND], True, id="a chunk behind it"),
        pytest.param(
            [BEFORE, LAST, BEHIND, chunk((900, 0, 31), (990, 31, 10), (1000, 42, 5))],
            True,
            id="merged with it",
        ),
        pytest.param([chunk((1000, 42, 900)), LAST], False, id="what the user went back behind"),
        pytest.param([chunk((0, 0, 5_000)), LAST], False, id="of a copy before, with the same offsets"),
        pytest.param([LAST, chunk((1000, 42, 5), copy="another")], False, id="of another copy"),
        pytest.param([LAST, chunk((500, 42, 5))], False, id="of records before the position"),
        pytest.param([BEHIND], False, id="the position's own chunk is dropped"),
        pytest.param([], False, id="an empty map"),
    ],
)
def test_what_the_map_knows_behind_a_position(
    reader: OffsetMapReader, monkeypatch: pytest.MonkeyPatch, held: list[tuple[bytes, bytes]], *, ahead: bool
) -> None:
    """EO-5: chunks of committed records behind the position; what stands before its own chunk says nothing."""

    def window(topic: str, part: int, low: int, high: int, **_: Any) -> list[LogRecord]:
        return [LogRecord(topic, part, at, *held[at]) for at in range(low, high)]

    monkeypatch.setattr(reader._log, "connect", lambda *_: None)
    monkeypatch.setattr(reader._log, "range", window)
    monkeypatch.setattr(reader, "_first_window", 1)
    monkeypatch.setattr(reader._admin, "end", len(held))

    assert reader.ahead([position(40)]) == ({SOURCE} if ahead else set())
