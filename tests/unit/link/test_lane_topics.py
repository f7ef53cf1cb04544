"""Which topics a position's partition is found in: what a lane is told, and what `status` sees."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config import Cluster, Link
from eomirror.errors import DataLossError, TopicError
from eomirror.kafka.cluster_metadata import ConfigValue, TopicFacts
from eomirror.lane.spec import LaneSpec
from eomirror.link.lane_state import LaneTopics
from eomirror.records.position import Position
from eomirror.recovery.resume import Stop, decide_resume
from eomirror.status.reader import StatusReader

if TYPE_CHECKING:
    from collections.abc import Iterable

NOWHERE = Cluster("east", {"bootstrap.servers": "127.0.0.1:1", "log_level": "0"})
LINK = Link(name="one", source="east", target="west", topics=("t",))
POSITION = Position(
    topic="t", partition=2, offset=3, source_cluster_id="c", topic_id="old", target_topic="east.t",
    target_partition=2, target_topic_id="copy", target_offset=4, generation=1, lane=0, run="r", epoch=1,
    attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=0,
)  # fmt: skip


class FakeAdmin:
    """A cluster with one topic."""

    name = "east"

    def __init__(self, topic: TopicFacts) -> None:
        self._topic = topic

    def begin_describe(self, _names: Iterable[str]) -> Any:
        return SimpleNamespace(visible=lambda _seconds: (self.describe_topics(()), {}))

    def describe_topics(self, _names: Iterable[str]) -> dict[str, TopicFacts | None]:
        return {self._topic.name: self._topic}

    def topic_configs(self, names: Iterable[str], **_: Any) -> dict[str, dict[str, ConfigValue]]:
        return {name: {"cleanup.policy": ConfigValue("delete", is_default=True)} for name in names}

    def offsets(self, partitions: Iterable[tuple[str, int]], **_: Any) -> dict[tuple[str, int], int]:
        return dict.fromkeys(partitions, 5)


def lane_topics() -> Any:
    spec = LaneSpec(
        link=LINK, source=NOWHERE, target=NOWHERE, source_cluster_id="a", target_cluster_id="b", run="r", generation=1,
        lane=0, epoch=1, attempt=1, seconds=60.0, partitions=(),
    )  # fmt: skip
    never: Any = None
    return LaneTopics(spec, never, never)


SHRUNK = pytest.mark.parametrize(("topic_id", "error"), [("new", DataLossError), ("old", TopicError)])


@SHRUNK
def test_a_source_topic_that_comes_back_with_fewer_partitions_is_another_one(
    topic_id: str, error: type[Exception]
) -> None:
    """EO-5: exit code 4 and what to do about it, also from the lane whose partition it lacks."""
    topics = lane_topics()
    topics._source = FakeAdmin(TopicFacts("t", topic_id, 1, 1))
    topics._target = FakeAdmin(TopicFacts("east.t", "copy", 3, 1))

    decision = decide_resume(POSITION, *topics.facts([POSITION])[POSITION.source], accept_gaps=True)

    assert isinstance(decision, Stop)
    assert type(decision.error) is error


@SHRUNK
def test_status_says_the_same_of_it(topic_id: str, error: type[Exception]) -> None:
    """Not that it is gone, beside other partitions of which it was created again."""
    reader: Any = StatusReader(LINK, NOWHERE, NOWHERE)
    reader.close()
    reader._source = FakeAdmin(TopicFacts("t", topic_id, 1, 1))
    reader._target = FakeAdmin(TopicFacts("east.t", "copy", 3, 1))

    observed = reader._observe([POSITION])[POSITION.source]

    decision = decide_resume(POSITION, observed.source, observed.target, accept_gaps=True)
    assert isinstance(decision, Stop)
    assert type(decision.error) is error
