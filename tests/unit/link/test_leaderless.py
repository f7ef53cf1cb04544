"""A partition whose replicas are all on brokers that are down: it is there, and answers nothing, until one is back."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import Cluster, Link
from eomirror.errors import UnreachableError
from eomirror.kafka.admin import ClusterAdmin
from eomirror.lane.spec import LaneSpec
from eomirror.link.lane_state import LaneTopics
from eomirror.records.position import Position
from eomirror.status.reader import StatusReader
from eomirror.types import SourcePartition
from support.fakes.clocks import PlayedClock
from support.fakes.kafka_answers import described

if TYPE_CHECKING:
    from confluent_kafka import TopicPartition
from confluent_kafka.admin import ConfigEntry

NOWHERE = Cluster("east", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
LINK = Link(name="one", source="east", target="west", topics=("t",))


class Brokers:
    """Partition 1 of t has no leader until ``elected``."""

    def __init__(self, clock: PlayedClock, elected: float) -> None:
        self.clock, self.elected = clock, elected

    def list_offsets(self, wanted: dict[TopicPartition, Any], **_: Any) -> dict[TopicPartition, Any]:
        found: dict[TopicPartition, Any] = {where: Future() for where in wanted}
        for where, future in found.items():
            # what has no leader is not asked about
            assert self.leaders(where.topic)[where.partition] == 1
            future.set_result(SimpleNamespace(offset=7))
        return found

    def leaders(self, topic: str) -> dict[int, int]:
        return {0: 1, 1: -1 if topic == "t" and self.clock.now < self.elected else 1}

    def describe_topics(self, names: Any, **_: Any) -> dict[str, Any]:
        return described({name: self.leaders(name) for name in names.topic_names})

    def describe_configs(self, resources: Any, **_: Any) -> dict[Any, Any]:
        found: dict[Any, Any] = {resource: Future() for resource in resources}
        for future in found.values():
            future.set_result({"cleanup.policy": ConfigEntry("cleanup.policy", "delete")})
        return found

    def poll(self, seconds: float) -> int:
        return int(seconds) * 0


def admin(clock: PlayedClock, elected: float) -> ClusterAdmin:
    made = ClusterAdmin(NOWHERE, client_id="test", clock=clock)
    made.close()
    made._retrying._client = Brokers(clock, elected)
    return made


def position(partition: int) -> Position:
    return Position(
        topic="t", partition=partition, offset=5, source_cluster_id="c", topic_id="id", target_topic="east.t",
        target_partition=partition, target_topic_id="id", target_offset=4, generation=1, lane=0, run="r", epoch=1,
        attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=0,
    )  # fmt: skip


def test_a_leader_that_is_elected_in_time_is_waited_for() -> None:
    """Elections are nothing to speak of."""
    both = [("t", 0), ("t", 1)]
    assert admin(PlayedClock(), 3).offsets(both, at="latest", read_committed=False) == dict.fromkeys(both, 7)


def test_a_partition_without_a_leader_is_not_called_gone() -> None:
    """Who takes it for gone stops its topic for good, or leaves it out of what is to be caught up with."""
    with pytest.raises(UnreachableError, match="t-1 has no leader on cluster east") as raised:
        admin(PlayedClock(), 1e9).offsets([("t", 0), ("t", 1)], at="latest", read_committed=False)
    assert raised.value.topic == "t"


@pytest.fixture
def lane_topics() -> Any:
    """What a lane asks both clusters with; partition 1 has no leader on the source for 1000 s."""
    spec = LaneSpec(
        link=LINK, source=NOWHERE, target=NOWHERE, source_cluster_id="a", target_cluster_id="b", run="r", generation=1,
        lane=0, epoch=1, attempt=1, seconds=60.0, partitions=(),
    )  # fmt: skip
    clock = PlayedClock()
    return LaneTopics(spec, admin(clock, 1000), admin(clock, 0), clock)


def test_the_fetch_of_a_lane_waits_for_a_leader_and_nothing_waits_with_it(lane_topics: LaneTopics) -> None:
    """Other partitions of the topic are mirrored; where the log begins and ends, the first fetch shows."""
    facts = lane_topics.facts([position(0), position(1)])

    assert lane_topics._clock.monotonic() == 0
    answering, silent = (facts[SourcePartition("t", number)][0] for number in (0, 1))
    assert (answering.silent, answering.high_watermark) == (False, 7)
    assert (silent.silent, silent.refused) == (True, None)
    assert silent.topic_id == answering.topic_id


def test_a_topic_is_set_aside_where_an_answer_could_not_be_told_from_another_logs(
    lane_topics: LaneTopics,
) -> None:
    """Its epoch is compared before the position: retention may have passed there, which is no truncated log."""
    refused = lane_topics.facts([replace(position(1), epoch_offset=3)])[SourcePartition("t", 1)][0].refused

    assert isinstance(refused, UnreachableError)
    assert refused.topic == "t"


def test_a_copy_without_a_leader_is_waited_for_once(lane_topics: LaneTopics) -> None:
    """For as long as an election takes; it is tried again without another wait, until it answers."""
    lane_topics._source, lane_topics._target = lane_topics._target, lane_topics._source
    clock, copied = lane_topics._clock, replace(position(1), topic="origin", target_topic="t")

    def refused() -> Any:
        return lane_topics.facts([copied])[copied.source][1].refused

    assert isinstance(refused(), UnreachableError)
    waited = clock.monotonic()
    assert 0 < waited < 30
    assert isinstance(refused(), UnreachableError)
    assert clock.monotonic() == waited
    clock.sleep(1000)
    assert refused() is None


def test_a_copy_without_a_leader_concerns_its_source_topic(lane_topics: LaneTopics) -> None:
    """That is what a lane stops; the name of the copy would stop nothing, again and again."""
    lane_topics._source, lane_topics._target = lane_topics._target, lane_topics._source
    copied = replace(position(1), topic="origin", target_topic="t")

    refused = lane_topics.facts([copied])[copied.source][1].refused

    assert isinstance(refused, UnreachableError)
    assert refused.topic == "origin"


def test_status_tells_of_the_others() -> None:
    """At once, and not that the topic is gone."""
    clock = PlayedClock()
    reader = StatusReader(LINK, NOWHERE, NOWHERE, clock=clock)
    reader.close()
    reader._source, reader._target = admin(clock, 1e9), admin(clock, 0)

    observed = reader._observe([position(0), position(1)])

    assert clock.now == 0
    assert observed[SourcePartition("t", 0)].lso == 7
    assert observed[SourcePartition("t", 0)].source.refused is None
    assert "has no leader" in str(observed[SourcePartition("t", 1)].source.refused)
