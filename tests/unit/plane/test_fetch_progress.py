"""How far partitions were read: events, records and positions together, and few questions."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition

from eomirror.plane.client import source_consumer as fetch_progress
from eomirror.plane.client.source_consumer import FetchProgress
from eomirror.plane.protocol import Advance
from eomirror.types import SourcePartition

ONE = SourcePartition("t", 0)
MANY = [SourcePartition(f"t{number}", 0) for number in range(40)]


class Consumer:
    """Knows positions; counts the questions."""

    def __init__(self) -> None:
        self.offsets: dict[SourcePartition, tuple[int, int | None]] = {}
        self.asked: list[SourcePartition] = []

    def position(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        answer = []
        for one in partitions:
            source = SourcePartition(one.topic, one.partition)
            self.asked.append(source)
            offset, epoch = self.offsets.get(source, (-1001, None))
            answer.append(
                TopicPartition(one.topic, one.partition, offset)
                if epoch is None
                else TopicPartition(one.topic, one.partition, offset, leader_epoch=epoch)
            )
        return answer


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than ten partitions are many; four of them are asked in turn."""
    monkeypatch.setattr(fetch_progress, "ALL", 10)
    monkeypatch.setattr(fetch_progress, "TURN", 4)


def test_what_was_found_holds_until_something_is_consumed() -> None:
    """A transaction asks three times and consumes nothing in between."""
    consumer, state = Consumer(), FetchProgress()
    consumer.offsets[ONE] = (5, 1)
    assert state.find(consumer, [ONE], [], ()) == {ONE: Advance(5, 1)}
    consumer.offsets[ONE] = (9, 1)
    assert state.find(consumer, [ONE], [], ()) == {ONE: Advance(5, 1)}
    state.consumed()
    assert state.find(consumer, [ONE], [], ()) == {ONE: Advance(9, 1)}
    assert consumer.asked == [ONE, ONE]


def test_an_end_takes_its_leader_epoch_from_the_position_before_it() -> None:
    """Past an aborted range only the event moves, and it tells no epoch."""
    consumer, state = Consumer(), FetchProgress()
    consumer.offsets[ONE] = (5, 3)
    state.end(ONE, 8)
    assert state.find(consumer, [ONE], [], ()) == {ONE: Advance(8, 3, 5)}
    consumer.offsets[ONE] = (10, 3)
    state.consumed()
    assert state.find(consumer, [ONE], [], ()) == {ONE: Advance(10, 3)}


def test_of_a_partition_whose_records_are_held_back_only_the_planned_ones_tell() -> None:
    """Its position and its end are beyond records that were not planned."""
    consumer, state = Consumer(), FetchProgress()
    consumer.offsets[ONE] = (5, 1)
    state.end(ONE, 8)
    assert state.find(consumer, [ONE], [], {ONE}) == {}
    state.consumed()
    assert state.find(consumer, [ONE], [("t", 0, 4, 1)], {ONE}) == {ONE: Advance(4, 1)}
    assert consumer.asked == []


@pytest.mark.usefixtures("few")
def test_of_many_partitions_few_are_asked_and_everybody_is_asked_in_turn() -> None:
    """Positions of all cost too much; no partition is forgotten."""
    consumer, state = Consumer(), FetchProgress()
    consumer.offsets = dict.fromkeys(MANY, (7, 2))
    for _ in range(10):
        state.consumed()
        state.find(consumer, MANY, [], ())
    assert sorted(consumer.asked) == sorted(MANY)
    assert state.find(consumer, MANY, [], ()) == {source: Advance(7, 2) for source in MANY}


@pytest.mark.usefixtures("few")
def test_of_many_partitions_those_with_a_new_end_are_asked_at_once() -> None:
    """A committed position should know its leader epoch, so that a truncated log is noticed."""
    consumer, state = Consumer(), FetchProgress()
    state.find(consumer, MANY, [], ())
    consumer.offsets[MANY[30]] = (11, 2)
    state.end(MANY[30], 12)
    assert state.find(consumer, MANY, [], ())[MANY[30]] == Advance(12, 2, 11)
    consumer.asked.clear()
    state.consumed()
    state.find(consumer, MANY, [], ())
    assert MANY[30] not in consumer.asked


@pytest.mark.usefixtures("few")
def test_of_many_partitions_a_held_one_with_a_new_end_is_asked_when_it_is_let_go() -> None:
    """While it is held its position means nothing; later it does."""
    consumer, state = Consumer(), FetchProgress()
    state.end(MANY[30], 12)
    state.find(consumer, MANY, [], {MANY[30]})
    consumer.asked.clear()
    consumer.offsets[MANY[30]] = (11, 2)
    state.consumed()
    assert state.find(consumer, MANY, [], ())[MANY[30]] == Advance(12, 2, 11)


@pytest.mark.usefixtures("few")
def test_planned_records_move_a_partition_that_was_not_asked() -> None:
    """What the planner has is beyond an older position, and below a later one."""
    consumer, state = Consumer(), FetchProgress()
    consumer.offsets = {MANY[0]: (5, 1), MANY[1]: (50, 1)}
    found = state.find(consumer, MANY, [("t0", 0, 9, 2), ("t1", 0, 9, 1), ("t39", 0, 3, None)], ())
    assert found[MANY[0]] == Advance(9, 2)
    assert found[MANY[1]] == Advance(50, 1)
    assert found[MANY[39]] == Advance(3, None)


def test_partitions_that_are_fetched_no_more_are_forgotten() -> None:
    """After a restart only what is fetched now counts."""
    consumer, state = Consumer(), FetchProgress()
    consumer.offsets[ONE] = (5, 1)
    state.end(ONE, 8)
    state.find(consumer, [ONE], [], ())
    state.clear()
    assert state.find(consumer, [MANY[0]], [], ()) == {}
