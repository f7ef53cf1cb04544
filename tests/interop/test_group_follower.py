"""What following groups does to groups of the target over time, on real brokers: deletions, and offsets that expire."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from eomirror._native import encode_offset_map
from eomirror.clock import SYSTEM_CLOCK
from eomirror.config import load_config
from eomirror.groups import group_offsets, translate
from eomirror.groups.followed_groups import GONE_SECONDS, MirroredPartitions
from eomirror.groups.follower import GroupFollower
from eomirror.kafka.session import ClusterSession
from eomirror.lane.spec import GroupOffset
from eomirror.records.mm2 import Checkpoint, Mm2Names
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import offset_map_key
from eomirror.records.position import Position
from eomirror.types import SourcePartition
from support.traffic.raw_commit import commit_raw
from support.traffic.records import create_topic, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.config import Config

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


class Shifted:
    """The system's clock, ahead by as much as a test wants."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def monotonic(self) -> float:
        return SYSTEM_CLOCK.monotonic() + self.ahead

    def wall_ms(self) -> int:
        return SYSTEM_CLOCK.wall_ms()

    def sleep(self, seconds: float) -> None:
        SYSTEM_CLOCK.sleep(seconds)


def topic_id_of(properties: dict[str, str], topic: str) -> str:
    admin = AdminClient(properties)
    return str(admin.describe_topics(TopicCollection([topic]))[topic].result(30).topic_id)


class Flow:
    """A link whose groups are followed; its lanes are played by the test."""

    def __init__(self, east: Any, west: Any, name: str) -> None:
        self.east, self.west = dict(east.client_properties), dict(west.client_properties)
        # an alias of its own, so that the topic of checkpoints is its own too
        self.alias = name.replace(".", "-")
        self.topic, self.copy = f"{name}.orders", f"{self.alias}.{name}.orders"
        self.source = SourcePartition(self.topic, 0)
        self.clock = Shifted()
        self.followers: list[GroupFollower] = []
        for cluster, topic in ((self.east, self.topic), (self.west, self.copy)):
            create_topic(cluster, topic)
            producer = Producer(cluster)
            for _ in range(100):
                producer.produce(topic, b"x", partition=0)
            producer.flush(30)
        self._checkpoints = Mm2Names().checkpoints(self.alias)
        create_topic(self.west, self._checkpoints)

    def config(self, **settings: Any) -> Config:
        link = {
            "source": self.alias,
            "target": "west",
            "topics": [self.topic],
            "groups": [f"{self.alias}.*"],
            "sync_group_offsets": True,
            **settings,
        }
        return load_config({"clusters": {self.alias: self.east, "west": self.west}, "links": [link]})

    def follower(self, **settings: Any) -> GroupFollower:
        config = self.config(**settings)
        made = GroupFollower(
            config.links[0],
            config.clusters[self.alias],
            ClusterSession(config.clusters["west"], client_id="test"),
            send=lambda *_: None,
            clock=self.clock,
        )
        self.followers.append(made)
        return made

    def round(self, follower: GroupFollower) -> None:
        follower.round(MirroredPartitions({self.source: 0}, ()))
        assert follower.snapshot().error == ""

    def stand(self, group: str, offset: int, *, on: str) -> None:
        cluster, topic = (self.east, self.topic) if on == "east" else (self.west, self.copy)
        consumer = Consumer({**cluster, "group.id": f"{self.alias}.{group}", "enable.auto.commit": False})
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        finally:
            consumer.close()

    def placed(self, **groups: int) -> None:
        """Checkpoints as an earlier run has written them; and one that is none."""
        producer = Producer(self.west)
        for group, offset in groups.items():
            one = Checkpoint(f"{self.alias}.{group}", self.copy, 0, offset, offset, "")
            producer.produce(self._checkpoints, one.value(), key=one.key(), partition=0)
        producer.produce(self._checkpoints, b"\x00\x09nonsense", key=b"foreign", partition=0)
        producer.flush(30)

    def mirrored(self) -> None:
        """A position and its part of the offset map, as a lane has committed them."""
        names = LinkNames(f"{self.alias}.west")
        for topic in (names.positions_topic, names.offset_map_topic):
            create_topic(self.west, topic)
        topic_id, copy_id = topic_id_of(self.east, self.topic), topic_id_of(self.west, self.copy)
        position = Position(
            topic=self.topic, partition=0, offset=100, source_cluster_id="S", topic_id=topic_id, target_topic=self.copy,
            target_partition=0, target_topic_id=copy_id, target_offset=99, generation=1, lane=0, run="r", epoch=1,
            attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=1,
        )  # fmt: skip
        producer = Producer(self.west)
        producer.produce(names.positions_topic, position.value(), key=position.key(), partition=0)
        chunk = encode_offset_map(self.copy, 0, [(0, 0, 100)])
        key = offset_map_key(self.source, topic_id, 0)
        producer.produce(names.offset_map_topic, chunk, key=key, partition=0)
        producer.flush(30)

    def created_anew(self, properties: dict[str, str], topic: str) -> None:
        admin = AdminClient(properties)
        admin.delete_topics([topic])[topic].result(30)
        wait_for(lambda: topic not in admin.list_topics(timeout=30).topics)
        create_topic(properties, topic)

    def standing(self, group: str) -> int | None:
        """Where a group stands on the target; None if there is no such group."""
        admin = AdminClient(self.west)
        name = f"{self.alias}.{group}"
        request = [ConsumerGroupTopicPartitions(name)]
        try:
            admin.describe_consumer_groups([name])[name].result(30)
        except KafkaException:
            return None
        found = admin.list_consumer_group_offsets(request)[name].result(30).topic_partitions
        return next((each.offset for each in found), None)


@pytest.fixture
def flow(east: Any, west: Any, topic_name: str) -> Iterator[Flow]:
    made = Flow(east, west, topic_name)
    yield made
    for follower in made.followers:
        follower.close()


def test_a_group_that_is_gone_on_the_source_is_deleted_where_the_policy_says_so(flow: Flow) -> None:
    """Only if it stands where the link put it; after a while; a checkpoint that is not readable blocks no group."""
    groups = {"gone": 40, "read": 40, "here": 40}
    flow.placed(**groups)
    for group, offset in groups.items():
        flow.stand(group, offset + (group == "read"), on="west")
    flow.stand("here", 40, on="east")

    keeping = flow.follower()
    flow.round(keeping)
    flow.clock.ahead += GONE_SECONDS
    flow.round(keeping)
    assert flow.standing("gone") == 40
    assert keeping.snapshot().skipped == {
        "it was deleted on the source, and group_deletions is keep": 2,
    }

    flow.mirrored()
    (row,) = group_offsets(flow.config(), group=f"{flow.alias}.gone", include_deleted=True)
    assert (row.topic, row.offset, row.has_offset, row.state) == (flow.topic, 40, 40, "EMPTY")
    assert row.skipped == "deleted on the source; group_deletions is keep"

    deleting = flow.follower(group_deletions="delete")
    flow.round(deleting)
    assert flow.standing("gone") == 40
    flow.clock.ahead += GONE_SECONDS
    flow.round(deleting)

    assert flow.standing("gone") is None
    assert (flow.standing("read"), flow.standing("here")) == (41, 40)
    assert deleting.snapshot().deleted == 1
    assert list(deleting.snapshot().skipped) == [
        "it was deleted on the source and has been read on the target"
    ]
    (row,) = group_offsets(
        flow.config(group_deletions="delete"), group=f"{flow.alias}.gone", include_deleted=True
    )
    assert (row.has_offset, row.state) == (None, "DEAD")
    assert row.skipped == "deleted on the source; group_deletions is delete, and it is deleted there"
    # what is done is done
    flow.clock.ahead += GONE_SECONDS
    flow.round(deleting)
    assert deleting.snapshot().deleted == 1


def test_offsets_are_written_again_well_before_they_expire(flow: Flow) -> None:
    """After a quarter of the broker's offsets.retention.minutes, for a group that does not move."""
    follower = flow.follower()
    flow.stand("idle", 30, on="east")
    flow.round(follower)
    follower.record_answers((GroupOffset(f"{flow.alias}.idle", flow.source, 30, 25),))
    flow.round(follower)
    assert (follower.snapshot().moved, flow.standing("idle")) == (1, 25)

    retention = 7 * 86_400.0
    flow.clock.ahead += retention / 4 - 60
    flow.round(follower)
    assert follower.snapshot().moved == 1
    flow.clock.ahead += 120
    flow.round(follower)
    assert (follower.snapshot().moved, flow.standing("idle")) == (2, 25)


def test_a_consumer_that_begins_at_the_end_by_itself_skips_nothing_that_the_copy_holds(flow: Flow) -> None:
    """Retention took the copy of what its group stands at; what is left comes first, whatever the reset policy."""
    follower = flow.follower()
    flow.stand("late", 30, on="east")
    flow.round(follower)
    admin = AdminClient(flow.west)
    for future in admin.delete_records([TopicPartition(flow.copy, 0, 60)]).values():
        future.result(30)
    follower.record_answers((GroupOffset(f"{flow.alias}.late", flow.source, 30, 30),))
    flow.round(follower)

    consumer = Consumer({**flow.west, "group.id": f"{flow.alias}.late", "auto.offset.reset": "latest"})
    try:
        consumer.subscribe([flow.copy])
        read = [message.offset() for message in consumer.consume(40, 20.0) if message.error() is None]
    finally:
        consumer.close()
    assert read == list(range(60, 100))


def test_offsets_without_a_group_keep_no_group_from_being_followed(flow: Flow) -> None:
    """Kafka takes them, lists them as those of a group without a name, and librdkafka cannot ask for that one."""
    flow.stand("old", 30, on="east")
    commit_raw(flow.east["bootstrap.servers"], "", flow.topic, 0, 5)
    follower = flow.follower(groups=[".*"])
    flow.round(follower)
    follower.record_answers((GroupOffset(f"{flow.alias}.old", flow.source, 30, 25),))
    flow.round(follower)
    assert flow.standing("old") == 25
    rows = group_offsets(flow.config(groups=[".*"]))
    assert "" not in {row.group for row in rows}
    # and the group with it, which other tests would meet
    admin = AdminClient(flow.east)
    admin.delete_topics([flow.topic])[flow.topic].result(30)


@pytest.mark.parametrize("side", ["source", "target"])
def test_offsets_in_a_topic_that_was_created_anew_are_not_translated(flow: Flow, side: str) -> None:
    """The map speaks of the topic before, whose offsets have the same numbers: no consumer may go where it points."""
    flow.mirrored()
    flow.stand("old", 30, on="east")
    group = f"{flow.alias}.old"
    (row,) = group_offsets(flow.config(), group=group)
    (told,) = translate(flow.config(), group=group)
    assert (row.to_offset, told.to_offset) == (30, 30)

    if side == "source":
        flow.created_anew(flow.east, flow.topic)
        # its groups' offsets went with it; a consumer reads the new one
        flow.stand("old", 20, on="east")
    else:
        flow.created_anew(flow.west, flow.copy)
    (row,) = group_offsets(flow.config(), group=group)
    (told,) = translate(flow.config(), group=group)
    for each, reason in ((row, row.skipped), (told, told.reason)):
        assert (each.to_offset, each.kind) == (None, "unknown")
        assert "was deleted and created again on" in reason
