"""A reader that keeps positions and checkpoints reads each record once, and never answers from a log that is gone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.clock import SYSTEM_CLOCK
from eomirror.config import Link
from eomirror.errors import StateError
from eomirror.kafka.compacted_topic import LogRecord
from eomirror.kafka.topic_follower import News
from eomirror.link import offset_map_reader
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.records.mm2 import Checkpoint
from eomirror.records.position import Position
from eomirror.types import SourcePartition

ORDERS = SourcePartition("orders", 0)
FIRST = Position(
    topic="orders", partition=0, offset=10, source_cluster_id="S", topic_id="A", target_topic="east.orders",
    target_partition=0, target_topic_id="B", target_offset=9, generation=1, lane=0, run="r", epoch=1, attempt=1,
    producer_id=1, producer_epoch=0, txn=1, timestamp=1,
)  # fmt: skip


class Follower:
    """Hands out prepared news."""

    def __init__(self, *news: News) -> None:
        self.news = list(news)
        self.forgotten: list[str] = []

    def read(self, topic: str, **_: Any) -> News:
        del topic
        return self.news.pop(0)

    def forget(self, topic: str) -> None:
        self.forgotten.append(topic)


def reading(monkeypatch: pytest.MonkeyPatch, *news: News) -> tuple[OffsetMapReader, Follower]:
    """A reader that keeps what such a follower reads."""
    follower = Follower(*news)

    def made(_: Any, *, wait_for_open: bool) -> Follower:
        assert wait_for_open, "positions and checkpoints decide (EO-3)"
        return follower

    monkeypatch.setattr(offset_map_reader, "TopicFollower", made)
    target: Any = SimpleNamespace(admin=None, clock=SYSTEM_CLOCK)
    link = Link(name="one", source="east", target="west", topics=("t",))
    return OffsetMapReader(link, target, keeps=True), follower


def stands(at: int, offset: int) -> LogRecord:
    """A record of the positions topic."""
    one = replace(FIRST, offset=offset, txn=at + 1)
    return LogRecord("positions", 0, at, one.key(), one.value())


def checkpoint(at: int, group: str, downstream: int, *, deleted: bool = False) -> LogRecord:
    """A record of the checkpoints topic."""
    one = Checkpoint(group, "east.orders", 0, downstream + 1, downstream)
    return LogRecord("checkpoints", 0, at, one.key(), None if deleted else one.value())


def test_later_records_join_those_that_were_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """And all are void when the log is another one."""
    reader, _ = reading(
        monkeypatch,
        News(restarted=True, records=[stands(0, 10)]),
        News(restarted=False, records=[stands(1, 20)]),
        News(restarted=False, records=[]),
        News(restarted=True, records=[]),
    )
    found = [reader.positions().get(ORDERS) for _ in range(4)]
    assert [None if one is None else one.offset for one in found] == [10, 20, 20, None]


def test_a_position_that_is_not_readable_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compaction may remove it: it must not stay as long as the reader does."""
    broken = stands(1, 20)._replace(value=b"{")
    reader, follower = reading(
        monkeypatch,
        News(restarted=True, records=[stands(0, 10)]),
        News(restarted=False, records=[broken]),
        News(restarted=True, records=[stands(2, 30)]),
    )
    reader.positions()
    with pytest.raises(StateError):
        reader.positions()
    assert follower.forgotten == ["eomirror.one.positions"]
    assert reader.positions()[ORDERS].offset == 30


def test_checkpoints_follow_their_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """The newest counts, all in the log may be placed, and a deleted one is gone."""
    reader, _ = reading(
        monkeypatch,
        News(restarted=True, records=[checkpoint(0, "pay", 5), checkpoint(1, "ship", 6)]),
        News(restarted=False, records=[checkpoint(2, "pay", 8), checkpoint(3, "ship", 6, deleted=True)]),
        News(restarted=False, records=[]),
    )
    assert {one.group: one.downstream for one in reader.checkpoints()} == {"pay": 5, "ship": 6}
    assert {one.group: one.downstream for one in reader.checkpoints()} == {"pay": 8}
    assert reader.placed() == {("pay", "east.orders", 0): frozenset({5, 8})}
