"""The offset map on real brokers: few chunks for many transactions, and the same answers, whatever happens to it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror._native import encode_offset_map
from eomirror.clock import new_run_id
from eomirror.config import load_config
from eomirror.errors import StateError
from eomirror.kafka.session import ClusterSession, link_sessions
from eomirror.lane import transaction
from eomirror.lane.spec import Ending, LaneProgress, LaneSpec, StopReason
from eomirror.link import background_looks as offset_map_gc
from eomirror.link.offset_map_reader import OffsetMapReader, Question
from eomirror.link.owner import LinkOwner
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import offset_map_key, offset_map_partition
from eomirror.records.position import Position
from eomirror.spark.attempt import run_lane
from eomirror.topics.discovery import Discovery
from eomirror.types import SourcePartition
from support.fakes.quiet_mailbox import QuietMailbox
from support.judges.audited import assert_audited
from support.judges.translated import committed
from support.links.plane import plane_under_test
from support.traffic.records import create_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.lane.spec import LaneReport

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

# as few as a lane merges when it leaves
EACH = 16


class Killed(BaseException):
    """Ends a lane where it stands."""


class OneByOne(QuietMailbox):
    """A mailbox that writes a record to the source when the one before is mirrored, and then stops the lane."""

    def __init__(self, write: Callable[[], int], count: int, enough: Callable[[], bool]) -> None:
        self._write, self._left, self._enough = write, count, enough
        self._position = self._wanted = 0
        self._end = time.monotonic() + 60

    def report(self, progress: LaneProgress) -> None:
        for item in progress.partitions:
            self._position = max(self._position, item.position)

    def stop(self) -> StopReason | None:
        assert time.monotonic() < self._end, "the lane does not get there"
        if self._position < self._wanted:
            return None
        if self._left:
            self._left -= 1
            self._wanted = self._write() + 1
            return None
        return StopReason.SHUTDOWN if self._enough() else None


class Flow:
    """One link with one partition, whose lane runs in this process."""

    def __init__(self, east: Any, west: Any, name: str) -> None:
        self.east, self.west = dict(east.client_properties), dict(west.client_properties)
        self.name, self.topic = name, f"{name}.orders"
        link = {"name": name, "source": "east", "target": "west", "topics": [self.topic], "lanes": 1}
        link |= {"plane": plane_under_test(), "groups": [], "commit_interval_min": "1ms"}
        self.config = load_config({"clusters": {"east": self.east, "west": self.west}, "links": [link]})
        self.written = 0
        create_topic(self.east, self.topic)
        self._producer = Producer({**self.east, "linger.ms": 0})

    def write(self) -> int:
        """One record; its offset."""
        where: list[int] = []
        self._producer.produce(
            self.topic,
            b"%d" % self.written,
            partition=0,
            on_delivery=lambda _, message: where.append(message.offset()),
        )
        self._producer.flush(30)
        self.written += 1
        return where[0]

    def mirror(self, count: int, enough: Callable[[], bool] = lambda: True) -> LaneReport:
        """Mirror so many records, each in a transaction of its own, and stop in order."""
        link = self.config.links[0]
        source, target = self.config.clusters["east"], self.config.clusters["west"]
        sessions, run = link_sessions(link, source, target, "test"), new_run_id()
        discovery, owner = Discovery(link, *sessions), LinkOwner(link, *sessions, run=run)
        try:
            layout = owner.acquire(1, discovery.prepare())
            spec = LaneSpec(
                link=link, source=source, target=target, source_cluster_id=layout.source_cluster_id,
                target_cluster_id=layout.target_cluster_id, run=run, generation=layout.generation, lane=0,
                epoch=1, attempt=1, seconds=60, partitions=layout.lanes[0],
            )  # fmt: skip
            return run_lane(spec, OneByOne(self.write, count, enough))
        finally:
            owner.release()
            owner.close()
            sessions.close()

    def map(self) -> dict[bytes, bytes]:
        """Chunks that are left when the map's topic is compacted."""
        left: dict[bytes, bytes] = {}
        number = offset_map_partition(SourcePartition(self.topic, 0), 8)
        for _, key, value, _ in committed(self.west, LinkNames(self.name).offset_map_topic, number)[0]:
            left.pop(key, None)
            if value is not None:
                left[key] = value
        return left

    def places(self) -> list[tuple[int, int]]:
        """Where each record is on both sides."""
        sides = [
            {value: offset for offset, _, value, _ in committed(cluster, topic)[0]}
            for cluster, topic in ((self.east, self.topic), (self.west, f"east.{self.topic}"))
        ]
        return [(sides[0][b"%d" % one], sides[1][b"%d" % one]) for one in range(self.written)]

    def check(self, pairs: list[tuple[int, int]]) -> None:
        """Every record is found, both ways, however much of the map is read for it."""
        for window in (1, 20_000):
            session = ClusterSession(self.config.clusters["west"], client_id="test")
            reader = OffsetMapReader(self.config.links[0], session, first_window=window)
            try:
                (position,) = reader.positions().values()
                end = max(at for _, at in pairs) + 1
                there = reader.answers([Question(position, at) for at, _ in pairs])
                back = reader.answers([Question(position, at, end) for _, at in pairs], reverse=True)
            finally:
                session.close()
            # a part of the map may say where to go on, with nothing in between, instead of which record it is
            assert [at for _, at in back] == [at for at, _ in pairs]
            for (kind, at), (_, wanted) in zip(there, pairs, strict=True):
                assert at == wanted or (kind == "next" and at == wanted - 1), (window, kind, at, wanted)


def merged(flow: Flow) -> list[int]:
    """How many chunks each merged one stands for."""
    return sorted(found["merged"] for key in flow.map() if "merged" in (found := orjson.loads(key)))


@pytest.mark.slow
def test_many_transactions_leave_few_chunks_and_the_same_map(
    east: Any, west: Any, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the middle of tidying, tidied, and dropped below both log starts: each record is still found."""
    flow = Flow(east, west, topic_name)

    def die(point: str) -> None:
        if point == "lane.map_compacted":
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(transaction, "crash_point", die)
        with pytest.raises(Killed):
            flow.mirror(EACH)
    assert (len(flow.map()), merged(flow)) == (EACH, [])
    flow.check(flow.places())

    assert flow.mirror(EACH).ending is Ending.STOPPED
    assert (len(flow.map()), merged(flow)) == (EACH + 1, [EACH])
    places = flow.places()
    flow.check(places)
    # a merged chunk claims no records, and every record is still covered by the chunk of its own transaction
    assert_audited(flow.config, topic_name)

    # the first half of what was never merged is gone on both sides
    for cluster, topic, start in zip(
        (flow.east, flow.west), (flow.topic, f"east.{flow.topic}"), places[EACH // 2], strict=True
    ):
        admin = AdminClient(cluster)
        for future in admin.delete_records([TopicPartition(topic, 0, start)]).values():
            future.result(30)
    monkeypatch.setattr(offset_map_gc, "_FIRST_SECONDS", 0.0)
    assert flow.mirror(1, lambda: len(flow.map()) < EACH).ending is Ending.STOPPED
    # but for the nearest one, which answers for a log start in a hole
    assert len(flow.map()) == EACH // 2 + 1 + 1 + 1
    flow.check(places[EACH // 2 :])


@pytest.mark.parametrize(("bad", "what"), [(b"\x09", "version 9"), (b"\x01\x01t", "not readable")])
def test_what_is_no_chunk_is_passed_over_or_named(west: Any, topic_name: str, bad: bytes, what: str) -> None:
    """A foreign key blocks no lane; a chunk that cannot be read is an error that says where, never a guess."""
    properties = dict(west.client_properties)
    link = {"name": topic_name, "source": "east", "target": "west", "topics": ["orders"]}
    config = load_config({"clusters": {"east": properties, "west": properties}, "links": [link]})
    position = Position(
        topic="orders", partition=0, offset=100, source_cluster_id="S", topic_id="A", target_topic="east.orders",
        target_partition=0, target_topic_id="B", target_offset=108, generation=1, lane=0, run="r", epoch=1,
        attempt=1, producer_id=1, producer_epoch=0, txn=1, timestamp=1,
    )  # fmt: skip
    topic = LinkNames(topic_name).offset_map_topic
    create_topic(properties, topic)
    producer = Producer(properties)

    def write(key: bytes | None, value: bytes | None) -> None:
        producer.produce(topic, value, key, 0)
        producer.flush(30)

    write(b"foreign", b"record")
    write(None, b"no key")
    write(offset_map_key(position.source, "another", 0), bad)
    write(offset_map_key(position.source, "A", 0), encode_offset_map("east.orders", 0, [(0, 9, 100)]))
    session = ClusterSession(config.clusters["west"], client_id="test")
    reader = OffsetMapReader(config.links[0], session)
    try:
        assert reader.answers([Question(position, 5)]) == [("exact", 14)]
        write(offset_map_key(position.source, "A", 7), bad)
        with pytest.raises(StateError, match=what) as raised:
            reader.answers([Question(position, 5)])
        assert f"{topic}-0@4" in raised.value.message
    finally:
        session.close()
