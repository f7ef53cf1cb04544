"""EO-11 on real brokers: what a lane was told of a copy when it came up may be over by the time it writes there."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    Producer,
    TopicPartition,
)

from eomirror.clock import new_run_id
from eomirror.config import load_config
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.session import link_sessions
from eomirror.lane.spec import Ending, LaneProgress, LaneSpec, StopReason
from eomirror.link.owner import LinkOwner
from eomirror.spark.attempt import run_lane
from eomirror.topics.discovery import Discovery
from support.fakes.quiet_mailbox import QuietMailbox
from support.links.plane import plane_under_test
from support.traffic.records import create_topic

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

pytestmark = pytest.mark.integration

_RECORDS = 200
# long before the source's broker appends them
_THEN = 1_600_000_000_000


class OnceUp(QuietMailbox):
    """A mailbox that does something when the lane is up, and stops the lane when it has mirrored all records."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then: Callable[[], None] | None = then
        self._position = 0
        self._end = time.monotonic() + 60

    def report(self, progress: LaneProgress) -> None:
        for item in progress.partitions:
            self._position = max(self._position, item.position)

    def stop(self) -> StopReason | None:
        assert time.monotonic() < self._end, "the lane does not get there"
        then, self._then = self._then, None
        if then is not None:
            then()
        return StopReason.SHUTDOWN if self._position >= _RECORDS else None


def write(properties: Mapping[str, Any], topic: str) -> None:
    """Records of a time long ago, in batches that are large enough to be passed on as they are."""
    producer = Producer({**properties, "linger.ms": 100})
    for number in range(_RECORDS):
        producer.produce(topic, b"%d" % number * 100, partition=0, timestamp=_THEN + number)
    assert producer.flush(30) == 0


def timestamps(properties: Mapping[str, Any], topic: str) -> list[tuple[int, int]]:
    """Type and milliseconds of each record of partition 0."""
    consumer = Consumer({**properties, "group.id": "reader", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = []
    while not (message := consumer.poll(10)) or message.error() is None:
        assert message is not None, f"{topic}: no end of partition within 10 s"
        found.append(message.timestamp())
    consumer.close()
    return found


def test_the_times_of_the_source_arrive_where_the_copy_set_its_own_when_the_lane_came_up(
    east: Any, west: Any, topic_name: str
) -> None:
    """
    An operator has told a copy to set its own times, and the link tells it not to, as it does with all of its copies.

    A lane that came up in between has seen the first.  What readers of the source see, the time at which its broker
    appended a record, is not what the record says of itself, and has to be written as that.
    """
    create_topic(east.client_properties, topic_name, **{"message.timestamp.type": "LogAppendTime"})
    link = {"name": topic_name, "source": "east", "target": "west", "topics": [topic_name], "lanes": 1}
    config = load_config(
        {
            "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
            "links": [link | {"plane": plane_under_test(), "groups": []}],
        }
    )
    source, target, copy = config.clusters["east"], config.clusters["west"], f"east.{topic_name}"
    sessions, run = link_sessions(config.links[0], source, target, "test"), new_run_id()
    discovery = Discovery(config.links[0], *sessions)
    owner = LinkOwner(config.links[0], *sessions, run=run)
    admin = ClusterAdmin(target, client_id="test")

    def set_right() -> None:
        admin.alter_configs(copy, {"message.timestamp.type": "CreateTime"})
        write(east.client_properties, topic_name)

    try:
        layout = owner.acquire(1, discovery.prepare())
        admin.alter_configs(copy, {"message.timestamp.type": "LogAppendTime"})
        spec = LaneSpec(
            link=config.links[0], source=source, target=target, source_cluster_id=layout.source_cluster_id,
            target_cluster_id=layout.target_cluster_id, run=run, generation=layout.generation, lane=0,
            epoch=1, attempt=1, seconds=60, partitions=layout.lanes[0],
        )  # fmt: skip
        report = run_lane(spec, OnceUp(set_right))
    finally:
        owner.release()
        owner.close()
        sessions.close()
        admin.close()

    assert report.ending is Ending.STOPPED, report
    seen, copied = timestamps(east.client_properties, topic_name), timestamps(west.client_properties, copy)
    assert {kind for kind, _ in seen} == {TIMESTAMP_LOG_APPEND_TIME}
    assert {kind for kind, _ in copied} == {TIMESTAMP_CREATE_TIME}
    assert [at for _, at in copied] == [at for _, at in seen]
