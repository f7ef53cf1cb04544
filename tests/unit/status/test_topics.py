"""State that a status keeps between reads: the same as from all records, and bounded."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from eomirror.clock import SYSTEM_CLOCK
from eomirror.errors import StateError
from eomirror.kafka.compacted_topic import LogRecord, control_view
from eomirror.kafka.topic_follower import News
from eomirror.link.valid_positions import valid_positions
from eomirror.records.events import link_events
from eomirror.status.topics import PositionsLog, StatusTopics, without_renewals
from support.fakes.claims import claim
from support.fakes.lane_fakes import ORDERS, position


def record(at: int, offset: int, *, partition: int = 0, **changes: Any) -> LogRecord:
    """A position of ORDERS at a place of the topic."""
    value = position(ORDERS, offset, **changes)
    return LogRecord("positions", partition, at, value.key(), value.value())


def claimed(at: int, run: str, *, released: bool = False) -> LogRecord:
    """A claim, whose sequence is its place."""
    made = claim(run, at, released=released, timestamp=at)
    return LogRecord("control", 0, at, made.key(), made.value(), at)


class Follower:
    """Answers reads with these news."""

    def __init__(self, *news: News) -> None:
        self.news = list(news)
        self.forgotten: list[str] = []

    def read(self, topic: str, *, seconds: float) -> News:
        del topic, seconds
        return self.news.pop(0)

    def forget(self, topic: str) -> None:
        self.forgotten.append(topic)


def topics(*news: News) -> tuple[StatusTopics, Follower]:
    """State of topics whose reads give these news."""
    made = StatusTopics(Any, seconds=1.0, clock=SYSTEM_CLOCK)  # type: ignore[arg-type]  it is never asked
    follower = Follower(*news)
    made._follower = follower  # type: ignore[assignment]
    return made, follower


def test_positions_in_parts_are_those_of_all_records() -> None:
    """A late record of an old generation counts for nothing, in whichever part it comes."""
    records = [
        record(1, 500, generation=2),
        record(1, 7, generation=3, partition=1),
        record(2, 900, generation=2),
        record(2, 9, generation=3, partition=1),
    ]
    whole = valid_positions(records)
    for cut in range(len(records) + 1):
        parts = PositionsLog()
        parts.take(records[:cut], 0.0)
        parts.valid()
        parts.take(records[cut:], 3.0)
        assert parts.valid() == whole


def test_history_is_bounded_and_reaches_back() -> None:
    """The last minute is whole; of the time before, the oldest and a sample stay, and the last of each producer."""
    log = PositionsLog()
    for at in range(2_000):
        log.take([record(at, at, timestamp=at * 10_000, producer_id=at // 1_999)], at * 10.0)
    kept = sorted(one.offset for one in log.history())
    assert kept[0] == 0
    assert kept[-6:] == [1_994, 1_995, 1_996, 1_997, 1_998, 1_999]
    assert len(kept) < 30
    assert {one.producer_id for one in log.history()} == {0, 1}


def test_the_last_commits_of_a_link_that_stands_stay() -> None:
    """The rate before a source was lost is told for as long as it is away; older commits are forgotten."""
    log = PositionsLog()
    # begins with one read of everything, then looks every 3 s
    log.take([record(at, at, timestamp=at * 1_000, producer_id=1) for at in range(100)], 100.0)
    for at in range(100, 130, 3):
        log.take(
            [record(at + n, at + n, timestamp=(at + n) * 1_000, producer_id=1) for n in range(3)], at + 3.0
        )
    for now in range(133, 400, 3):
        log.take([], float(now))
    recent = [one.offset for one in log.history() if one.offset >= 119]
    assert sorted(recent) == list(range(119, 130))
    assert len(log.history()) < 40


def test_a_position_that_goes_back_is_refused_until_the_topic_is_read_anew() -> None:
    """The next read begins at the start: compaction may have removed the record that proves it."""
    made, follower = topics(
        News(restarted=True, records=[record(1, 500)]),
        News(restarted=False, records=[record(2, 100)]),
        News(restarted=True, records=[record(2, 100)]),
    )
    assert made.positions("positions").valid()[ORDERS].offset == 500
    with pytest.raises(StateError, match="goes back"):
        made.positions("positions")
    assert follower.forgotten == ["positions"]
    assert made.positions("positions").valid()[ORDERS].offset == 100


def test_renewals_between_the_first_and_the_last_are_dropped() -> None:
    """The view and the timeline are those of all records."""
    stop = LogRecord("control", 0, 4, orjson.dumps({"kind": "hand-back"}), None, 4)
    records = [
        claimed(1, "a"), claimed(2, "a"), claimed(3, "a"), stop, claimed(5, "a"), claimed(6, "a", released=True),
        claimed(7, "b"), claimed(8, "b"), claimed(9, "b"), claimed(10, "a"),
    ]  # fmt: skip
    kept = without_renewals(records)
    assert [each.offset for each in kept] == [1, 4, 5, 6, 7, 9, 10]
    assert control_view(kept) == control_view(records)
    for cut in range(len(records)):
        again = without_renewals([*without_renewals(records[:cut]), *records[cut:]])
        assert control_view(again) == control_view(records)
        assert _timeline(again) == _timeline(records)


def _timeline(records: list[LogRecord]) -> Any:
    return link_events(((each.key, each.value, each.timestamp) for each in records), ())


def test_what_is_not_a_claim_is_kept() -> None:
    """Foreign bytes are left to the readers that refuse them."""
    odd = [
        LogRecord("control", 0, at, key, value)
        for at, (key, value) in enumerate([(b"{", b""), (b"[]", b"1"), (None, None)])
    ]
    assert without_renewals(odd) == odd


def test_checkpoints_follow_their_keys() -> None:
    """A deleted checkpoint is gone, an unreadable one is told, and a recreated topic starts empty."""
    broken = LogRecord("checkpoints", 0, 1, b"key", b"value", 5)
    made, _ = topics(
        News(restarted=True, records=[broken, broken._replace(key=b"other")]),
        News(restarted=False, records=[broken._replace(value=None)]),
        News(restarted=True, records=[]),
    )
    (first, at), _ = made.checkpoints("checkpoints")
    assert isinstance(first, str)
    assert at == 5
    assert len(made.checkpoints("checkpoints")) == 1
    assert made.checkpoints("checkpoints") == []
