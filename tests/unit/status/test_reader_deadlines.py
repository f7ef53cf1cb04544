"""Status while a cluster is away: it waits for each cluster once, and for both at the same time."""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import OffsetSpec

from eomirror.config import Cluster, Link
from eomirror.errors import ClusterError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.compacted_topic import LogRecord
from eomirror.kafka.topic_follower import News
from eomirror.records.control import Generation
from eomirror.records.position import Position
from eomirror.status.reader import StatusReader
from eomirror.types import Assignment, SourcePartition
from support.fakes.claims import claim
from support.fakes.clocks import PlayedClock
from support.fakes.kafka_answers import described

#: A command may take 5 s in all, of which its own start takes one.
MOST_SECONDS = 3.0
NOWHERE = Cluster("east", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
LINK = Link(name="a->b", source="a", target="b", topics=(".*",), groups=())


class Unanswered:
    """A future that no broker completes; waiting for it passes played time."""

    def __init__(self, clock: PlayedClock) -> None:
        self.clock = clock

    def result(self, timeout: float) -> Any:
        self.clock.sleep(timeout)
        raise FutureTimeoutError

    def add_done_callback(self, _: Any) -> None:
        """Never calls it."""


class Brokers:
    """
    A cluster that answers, or is away.

    Args:
        silent: Requests that are not answered: ``metadata``, ``describe``, ``offsets``.
        topics: Topics that exist, with one partition each.
    """

    def __init__(self, clock: PlayedClock, silent: set[str], *topics: str) -> None:
        self.clock, self.silent, self.topics = clock, silent, topics

    def list_topics(self, timeout: float) -> Any:
        if "metadata" in self.silent:
            self.clock.sleep(timeout)
            raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return SimpleNamespace(topics=dict.fromkeys(self.topics))

    def describe_topics(self, names: Any, **_: Any) -> dict[str, Any]:
        wanted = names.topic_names
        if "describe" in self.silent:
            return dict.fromkeys(wanted, Unanswered(self.clock))
        return described(
            {name: {0: 1} for name in wanted if name in self.topics},
            errors={
                name: KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
                for name in wanted
                if name not in self.topics
            },
        )

    def list_offsets(self, wanted: Any, **_: Any) -> Any:
        if "offsets" in self.silent:
            return dict.fromkeys(wanted, Unanswered(self.clock))
        found: dict[Any, Any] = {where: Future() for where in wanted}
        for where, future in found.items():
            first = isinstance(wanted[where], type(OffsetSpec.earliest()))
            future.set_result(SimpleNamespace(offset=0 if first else 7, leader_epoch=1))
        return found

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = {resource: Future() for resource in resources}
        for future in found.values():
            future.set_result({})
        return found

    def poll(self, _: float) -> int:
        return 0


class State:
    """Reads the state topics of a link that was released at position 5."""

    offset = 5

    def read(self, topic: str, **_: Any) -> News:
        layout = Assignment(1, {SourcePartition("t", 0): 0})
        records: list[Any] = [
            Position(
                topic="t", partition=0, offset=self.offset, source_cluster_id="c", topic_id="id", target_topic="a.t",
                target_partition=0, target_topic_id="id", target_offset=4, generation=1, lane=0, run="r", epoch=1,
                attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=0,
            )
        ]  # fmt: skip
        if topic.endswith("control"):
            records = [
                Generation(generation=1, revision=0, run="r", highest_lane=0, assignment=layout, timestamp=0),
                claim(released=True),
            ]
        found = [LogRecord(topic, 0, at, one.key(), one.value(), 1) for at, one in enumerate(records)]
        return News(restarted=True, records=found)


class Rig:
    """A reader between two clusters, each with its own time: a wait for one is not a wait for the other."""

    def __init__(self, source: set[str], target: set[str], *topics: str) -> None:
        self.source_clock, self.target_clock = PlayedClock(), PlayedClock()
        self.reader = StatusReader(LINK, NOWHERE, NOWHERE, clock=self.target_clock)
        seconds = self.reader._source._timeout
        self.reader.close()
        self.reader._topics._follower = State()  # type: ignore[assignment]
        self.reader._peek = SimpleNamespace(read=lambda _: {})  # type: ignore[assignment]
        self.reader._source = self.admin(Brokers(self.source_clock, source, "t"), seconds)
        self.reader._target = self.admin(Brokers(self.target_clock, target, *topics), seconds)

    def admin(self, brokers: Brokers, seconds: float) -> ClusterAdmin:
        made = ClusterAdmin(NOWHERE, client_id="test", timeout=seconds, clock=brokers.clock)
        made.close()
        made._retrying._new_client = lambda: brokers  # type: ignore[method-assign]
        made._retrying._client = brokers
        return made

    @property
    def waited(self) -> float:
        """Seconds that the reader waited, if it asks both clusters at the same time."""
        return max(self.source_clock.now, self.target_clock.now)


RAN = ("eomirror.a.b.control", "eomirror.a.b.positions", "a.t")
ALL = {"metadata", "describe", "offsets"}


def test_a_target_that_is_away_is_waited_for_once() -> None:
    """Also if the source is away with it."""
    for source in (set(), ALL):
        rig = Rig(source, ALL, *RAN)
        with pytest.raises(ClusterError):
            rig.reader.read()
        assert 0 < rig.waited <= MOST_SECONDS


@pytest.mark.parametrize("silent", [ALL, {"describe", "offsets"}, {"offsets"}])
def test_a_source_that_is_away_is_waited_for_once(silent: set[str]) -> None:
    """Or one that answers the first request and no later one; the link is shown without a lag."""
    rig = Rig(silent, set(), *RAN)
    found = rig.reader.read()
    assert (found.state, found.lag_records, bool(found.problem)) == ("stopped", None, True)
    assert [item.position for item in found.partitions] == [5]
    assert 0 < rig.waited <= MOST_SECONDS
    assert rig.target_clock.now == 0


def test_a_link_that_never_ran_waits_no_longer() -> None:
    """Its source is asked while the target is."""
    rig = Rig(ALL, set())
    found = rig.reader.read()
    assert (found.state, bool(found.problem)) == ("never ran", True)
    assert 0 < rig.waited <= MOST_SECONDS


def test_nothing_is_waited_for_where_both_answer() -> None:
    """The rig counts what it is meant to count."""
    rig = Rig(set(), set(), *RAN)
    found = rig.reader.read()
    assert [item.problem for item in found.partitions] == [""]
    assert (found.lag_records, found.problem, rig.waited) == (2, "", 0)


class Moving(State):
    """The same while its mirror commits the end of the source between two reads."""

    def read(self, topic: str, **more: Any) -> News:
        found = super().read(topic, **more)
        if topic.endswith("positions"):
            self.offset = 7
        return found


def test_what_is_mirrored_while_the_ends_are_read_is_no_lag() -> None:
    """A lag is counted from positions that are newer than the ends: else it is rate by the time of the read."""
    rig = Rig(set(), set(), *RAN)
    assert rig.reader.read().lag_records == 2
    rig.reader._topics._follower = Moving()  # type: ignore[assignment]
    found = rig.reader.read()
    assert (found.lag_records, found.lag_seconds) == (0, 0.0)
    assert [item.position for item in found.partitions] == [7]
