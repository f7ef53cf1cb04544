"""What a running mirror writes for MM2's readers: offset syncs, checkpoints and heartbeats that are true (O5)."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from eomirror import load_config
from eomirror.groups import group_offsets
from eomirror.records.mm2 import Checkpoint, decode_heartbeat
from support.judges.translated import Copies, checkpoints, committed, offset_syncs
from support.links.mirrors import CommandMirror, ThreadMirror
from support.traffic.records import create_topic, wait_for

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Iterator
    from pathlib import Path

PREFIX = "app-"

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def reading(cluster: dict[str, Any], topic: str, group: str, **settings: Any) -> Consumer:
    """A consumer that is a member of the group."""
    consumer = Consumer({**cluster, "group.id": group, "auto.offset.reset": "earliest", **settings})
    consumer.subscribe([topic])
    wait_for(lambda: consumer.poll(1), 60)
    return consumer


class Flow:
    """One link of a test, with a topic of one partition."""

    def __init__(
        self, east: Any, west: Any, name: str, spark: Any, policy: str = "delete", **settings: Any
    ) -> None:
        self.east = dict(east.client_properties)
        self.west = dict(west.client_properties)
        self.alias = name
        self.topic = f"{name}-orders"
        self.copy = f"{name}.{self.topic}"
        link = {"source": name, "target": "west", "topics": [self.topic], "lanes": 1, **settings}
        self.settings = {"clusters": {name: self.east, "west": self.west}, "links": [link]}
        self.mirror = ThreadMirror(self.settings, spark)
        self._spark = spark
        compaction = (
            {"segment.ms": "2000", "min.cleanable.dirty.ratio": "0.01"} if policy == "compact" else {}
        )
        create_topic(self.east, self.topic, **{"cleanup.policy": policy, **compaction})

    def restart(self) -> None:
        self.mirror.stop()
        self.mirror = ThreadMirror(self.settings, self._spark)
        self.mirror.start()

    def write(self, first: int, transactions: int, each: int = 5) -> None:
        """Transactions of records with a unique value each, every third aborted."""
        producer = Producer({**self.east, "transactional.id": self.topic, "linger.ms": 1})
        producer.init_transactions(30)
        for number in range(first, first + transactions):
            producer.begin_transaction()
            for one in range(each):
                producer.produce(self.topic, b"%d-%d" % (number, one), key=b"%d" % one, partition=0)
            producer.flush(30)
            (producer.abort_transaction if number % 3 == 2 else producer.commit_transaction)(30)

    def stand(self, group: str, offset: int, *, on: str = "east", metadata: str = "") -> None:
        """Commit an offset for a group without members."""
        cluster, topic = (self.east, self.topic) if on == "east" else (self.west, self.copy)
        consumer = Consumer({**cluster, "group.id": group, "enable.auto.commit": False})
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, offset, metadata)], asynchronous=False)
        finally:
            consumer.close()

    def standing(self, group: str) -> int:
        """Where a group stands on the target."""
        consumer = Consumer({**self.west, "group.id": group, "enable.auto.commit": False})
        try:
            return int(consumer.committed([TopicPartition(self.copy, 0)], timeout=20)[0].offset)
        finally:
            consumer.close()

    def last(self, group: str) -> Checkpoint | None:
        """Its newest checkpoint."""
        found = checkpoints(self.west, f"{self.alias}.checkpoints.internal", self.copy)
        return next((one for one in reversed(found) if one.group == group), None)

    def checkpointed(self, group: str, upstream: int) -> bool:
        """Whether its newest checkpoint is for this source offset."""
        last = self.last(group)
        return last is not None and last.upstream == upstream

    def copies(self) -> Copies:
        return Copies(self.east, self.west, self.topic, self.copy, 0)

    def mirrored(self) -> bool:
        """Whether everything that is committed has arrived."""
        return len(committed(self.west, self.copy)[0]) == len(committed(self.east, self.topic)[0])


@pytest.fixture
def make_flow(east: Any, west: Any, topic_name: str, spark_context: Any) -> Iterator[Callable[..., Flow]]:
    """A link whose source has an alias of this test's own, so that the topics for MM2's readers are its own too."""
    made: list[Flow] = []

    def make(policy: str = "delete", **settings: Any) -> Flow:
        made.append(Flow(east, west, topic_name.replace(".", "-"), spark_context, policy, **settings))
        return made[-1]

    yield make
    for flow in made:
        flow.mirror.close()


def test_syncs_and_heartbeats_come_with_the_records(make_flow: Callable[..., Flow]) -> None:
    """O5: each sync names one record on both sides; the last record of a quiet partition has one; hearts beat."""
    flow = make_flow()
    flow.write(0, 6)
    flow.mirror.start()
    wait_for(flow.mirrored, 60)
    flow.write(6, 6)
    topic = f"mm2-offset-syncs.{flow.alias}.internal"

    def at_the_end() -> bool:
        found = offset_syncs(flow.west, topic, flow.topic)
        return bool(found) and found[-1].upstream == committed(flow.east, flow.topic)[0][-1][0]

    wait_for(at_the_end, 30)
    flow.mirror.stop()

    copies = flow.copies()
    syncs = offset_syncs(flow.west, topic, flow.topic)
    assert len(syncs) >= 2
    for sync in syncs:
        copies.check_sync(sync)
    beats, _ = committed(flow.west, f"{flow.alias}.heartbeats")
    heard = [decode_heartbeat(key, value, where="beat") for _, key, value, _ in beats]
    assert {(beat.source, beat.target) for beat in heard} == {(flow.alias, "west")}
    assert abs(heard[-1].timestamp / 1000 - time.time()) < 60


@pytest.mark.slow
def test_syncs_and_heartbeats_on_the_source(make_flow: Callable[..., Flow]) -> None:
    """KIP-716's other place, never ahead of the commit; heartbeats there are mirrored, prefixed under every naming."""
    flow = make_flow(offset_syncs="source", heartbeats="source", naming="identity")
    flow.copy = flow.topic
    flow.write(0, 6)
    flow.mirror.start()
    topic = "mm2-offset-syncs.west.internal"
    wait_for(flow.mirrored, 60)
    wait_for(lambda: offset_syncs(flow.east, topic, flow.topic), 30)
    wait_for(lambda: committed(flow.west, f"{flow.alias}.heartbeats")[0], 30)
    flow.mirror.stop()

    copies = flow.copies()
    for sync in offset_syncs(flow.east, topic, flow.topic):
        copies.check_sync(sync)


def test_checkpoints_are_true_wherever_a_group_stands(
    make_flow: Callable[..., Flow], rng: random.Random
) -> None:
    """O5, with aborted transactions and a mirror that was away: every committed checkpoint splits both sides alike."""
    flow = make_flow(groups=[f"{PREFIX}.*"], sync_group_offsets=True)
    flow.write(0, 12)
    ends = committed(flow.east, flow.topic)[1]
    for number in range(5):
        flow.stand(f"{PREFIX}{number}", rng.randrange(1, ends), metadata=f"m{number}")
    flow.stand("another-group", 3)
    flow.mirror.start()
    wait_for(flow.mirrored, 60)
    wait_for(lambda: all(flow.last(f"{PREFIX}{number}") for number in range(5)), 30)

    # while no data flows, and back again
    flow.stand(f"{PREFIX}0", ends)
    wait_for(lambda: flow.checkpointed(f"{PREFIX}0", ends), 30)
    wait_for(lambda: flow.standing(f"{PREFIX}0") == flow.last(f"{PREFIX}0").downstream, 30)  # type: ignore[union-attr]
    flow.stand(f"{PREFIX}0", 2)
    wait_for(lambda: flow.checkpointed(f"{PREFIX}0", 2), 30)
    wait_for(lambda: flow.standing(f"{PREFIX}0") == flow.last(f"{PREFIX}0").downstream, 30)  # type: ignore[union-attr]

    # a mirror that was away: what its lanes do not remember is looked up
    flow.restart()
    flow.write(12, 6)
    flow.stand(f"{PREFIX}1", 7)
    wait_for(flow.mirrored, 60)
    wait_for(lambda: flow.checkpointed(f"{PREFIX}1", 7), 30)
    flow.mirror.stop()

    copies = flow.copies()
    found = checkpoints(flow.west, f"{flow.alias}.checkpoints.internal", flow.copy)
    assert {one.group for one in found} == {f"{PREFIX}{number}" for number in range(5)}
    # confluent-kafka ends what it commits with a NUL
    assert {one.metadata.rstrip("\0") for one in found} >= {"m1", "m4"}
    for one in found:
        copies.check_checkpoint(one)
    # and one that is wrong would be found out, in either direction
    rewound = next(one for one in found if one.upstream == 2)
    for wrong, what in ((0, "twice"), (rewound.downstream + 3, "skipped")):
        with pytest.raises(AssertionError, match=what):
            copies.check_checkpoint(rewound._replace(downstream=wrong))
    assert flow.standing("another-group") < 0

    # the source is lost: the target alone says where they go on
    lost = {
        **flow.settings,
        "clusters": {**flow.settings["clusters"], flow.alias: {"bootstrap.servers": "127.0.0.1:1"}},
    }
    moved = group_offsets(load_config(lost), groups=f"{PREFIX}.*", source_unavailable=True)
    last = {f"{PREFIX}{number}": flow.last(f"{PREFIX}{number}") for number in range(5)}
    assert {one.group: (one.offset, one.to_offset, one.kind, one.metadata) for one in moved} == {
        group: (one.upstream, one.downstream, "exact", one.metadata) for group, one in last.items() if one
    }
    assert len(moved) == 5


@pytest.mark.parametrize("protocol", [pytest.param("classic", marks=pytest.mark.slow), "consumer"])
def test_a_group_with_members_is_followed_on_the_source_and_left_alone_on_the_target(
    protocol: str, make_flow: Callable[..., Flow]
) -> None:
    """Of either protocol: a member there keeps its offset; when it has left, the group goes on where it stood."""
    flow = make_flow(groups=[f"{PREFIX}.*"], sync_group_offsets=True)
    group = f"{PREFIX}{protocol}"
    flow.write(0, 6)
    flow.mirror.start()
    wait_for(flow.mirrored, 60)
    settings = {"group.protocol": protocol, "enable.auto.commit": False, "isolation.level": "read_committed"}
    there = reading(flow.west, flow.copy, group, **settings)
    here = reading(flow.east, flow.topic, group, **settings)
    try:
        read = here.consume(4, 20)[-1].offset() + 1
        here.commit(offsets=[TopicPartition(flow.topic, 0, read)], asynchronous=False)
        wait_for(lambda: flow.checkpointed(group, read), 30)
        time.sleep(3)
        assert flow.standing(group) < 0
    finally:
        here.close()
        there.close()
    wait_for(lambda: flow.standing(group) == flow.last(group).downstream, 60)  # type: ignore[union-attr]
    flow.mirror.stop()
    flow.copies().check_checkpoint(flow.last(group))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_moving_at_a_random_moment_skips_none_and_repeats_none(
    policy: str, make_flow: Callable[..., Flow], rng: random.Random, tmp_path: Path
) -> None:
    """O5 and the purpose of it all: 20 consumers that move, kills of the mirror, aborted transactions, compaction."""
    flow = make_flow(
        policy, groups=[f"{PREFIX}.*"], sync_group_offsets=True, commit_interval="20ms", offset_syncs="target"
    )
    mirror = CommandMirror(flow.settings, tmp_path / "mirror")
    mirror.start()
    try:
        wanted: dict[str, int] = {}
        for trial in range(20):
            flow.write(6 * trial, 6)
            stable = committed(flow.east, flow.topic)[1]
            group = f"{PREFIX}{trial}"
            wanted[group] = rng.choice([stable, rng.randrange(1, stable + 1)])
            flow.stand(group, wanted[group])
            time.sleep(rng.random())
            if trial % 5 == 4:
                mirror.kill()
                mirror.start()
        wait_for(lambda: all(flow.checkpointed(group, at) for group, at in wanted.items()), 180)
        for group in wanted:
            last = flow.last(group)
            wait_for(lambda last=last: flow.standing(last.group) == last.downstream, 60)
    finally:
        mirror.close()
    copies = flow.copies()
    for checkpoint in checkpoints(flow.west, f"{flow.alias}.checkpoints.internal", flow.copy):
        copies.check_checkpoint(checkpoint)
    for sync in offset_syncs(flow.west, f"mm2-offset-syncs.{flow.alias}.internal", flow.topic):
        copies.check_sync(sync)
