"""Copies as MirrorMaker 2 leaves them, adopted: where the link goes on, and what `eomirror verify` says of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror import Mirror
from eomirror.errors import StateError, SupersededError, TopicError, UsageError
from eomirror.mm2 import adopt
from eomirror.records.connect_offsets import Mm2Flow, encode_source_offset
from eomirror.types import SourcePartition
from support.links.mm2_link import Mm2Link
from support.traffic.records import create_topic, read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def write(properties: Mapping[str, Any], topic: str, numbers: Iterable[int]) -> None:
    """Records that are unlike each other, to partition 0."""
    producer = Producer({**properties, "linger.ms": 5, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, b"value %d" % number, b"key", 0, timestamp=1_700_000_000_000 + number)
        producer.poll(0)
    assert producer.flush(60) == 0


def delete_before(properties: Mapping[str, Any], topic: str, offset: int) -> None:
    """As retention does."""
    admin = AdminClient(dict(properties))
    for future in admin.delete_records([TopicPartition(topic, 0, offset)]).values():
        future.result(30)


class Flow(Mm2Link):
    """One partition of which an at-least-once MM2 has written a copy and committed an offset."""

    def __init__(self, east: Any, west: Any, name: str, folder: Path, spark: Any) -> None:
        super().__init__(east, west, name, folder, spark, exactly_once=False, partitions=1)
        create_topic(self.west, self.copy(), 1)
        self._flow = Mm2Flow.dedicated(name, "west")
        create_topic(self.west, self._flow.offsets_topic, 5, **{"cleanup.policy": "compact"})

    def commit(self, offset: int, topic: str = "") -> None:
        """What MM2 commits behind the record at this offset."""
        key, value = encode_source_offset(SourcePartition(topic or self.topic, 0), offset, self._flow)
        producer = Producer(self.west)
        producer.produce(self._flow.offsets_topic, value, key, 0)
        assert producer.flush(30) == 0

    def filled_by_mm2(self, *, count: int, mirrored: int) -> str:
        """Another topic of the link, of which MM2 has mirrored and committed so many records."""
        later = f"{self.topic}-later"
        self.take_too(later)
        for properties, topic, records in (
            (self.east, later, count),
            (self.west, self.copy(later), mirrored),
        ):
            create_topic(properties, topic, 1)
            write(properties, topic, range(records))
        self.commit(mirrored - 1, later)
        return later

    def verified(self) -> tuple[int, int, dict[str, int]]:
        """Exit code of `verify`, records that match, and differences."""
        code, told = self.command("verify")
        (partition,) = told["links"][0]["partitions"]
        assert not partition["scope"]["problem"]
        found = {kind: count for kind, count in partition["differences"].items() if count}
        return code, partition["matched"], found


@pytest.fixture
def flow(
    east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any, monkeypatch: pytest.MonkeyPatch
) -> Flow:
    """Nothing is written yet; adoption does not watch for long."""
    monkeypatch.setattr(adopt, "WATCH_SECONDS", 0.2)
    return Flow(east, west, topic_name, tmp_path, spark_context)


def test_an_adopted_copy_is_equal_also_when_retention_deletes_what_mm2_has_mirrored(flow: Flow) -> None:
    """The map knows the last of MM2's records only: it does not tell where an earlier one is on the other side."""
    write(flow.east, flow.topic, range(600))
    write(flow.west, flow.copy(), range(500))
    flow.commit(499)
    assert adopt.adopt_mm2(flow.config).generation == 1
    delete_before(flow.east, flow.topic, 50)
    # nothing was mirrored yet
    assert flow.verified() == (0, 200, {})
    flow.catch_up()
    delete_before(flow.east, flow.topic, 100)
    assert flow.verified() == (0, 300, {})
    delete_before(flow.west, flow.copy(), 220)
    assert flow.verified() == (0, 300, {})
    # what an application adds behind, and what retention leaves of what is known, is found and compared
    delete_before(flow.west, flow.copy(), 400)
    write(flow.west, flow.copy(), [7])
    assert flow.verified() == (3, 200, {"foreign": 1})


@pytest.mark.slow
def test_a_run_of_mm2_that_got_far_and_crashed_is_seen_behind_a_short_one(flow: Flow) -> None:
    """It is among the last records of the copy, and further on the source than these reach behind the commit."""
    write(flow.east, flow.topic, range(6000))
    write(flow.west, flow.copy(), [*range(5000), *range(100, 110)])
    flow.commit(99)
    (found,) = adopt.adopt_mm2(flow.config).partitions
    assert (found.resume, found.problem) == (5000, "")
    flow.catch_up()
    copied = [value for _, value, *_ in read_committed(flow.west, flow.copy())[0]]
    assert copied[5010:] == [b"value %d" % number for number in range(5000, 6000)]


def test_a_link_that_has_run_takes_over_topics_that_are_added(flow: Flow) -> None:
    """Its own positions stay; the new topic goes on behind the last of MM2's records."""
    write(flow.east, flow.topic, range(20))
    write(flow.west, flow.copy(), range(10))
    flow.commit(9)
    adopt.adopt_mm2(flow.config)
    later = flow.filled_by_mm2(count=30, mirrored=12)
    with pytest.raises(UsageError, match="at its own position"):
        adopt.adopt_mm2(flow.config, at={SourcePartition(flow.topic, 0): 3})
    assert adopt.adopt_mm2(flow.config, dry_run=True).generation is None

    adopted = adopt.adopt_mm2(flow.config)

    assert (adopted.generation, adopted.left_out) == (2, ())
    assert [(each.source.topic, each.resume) for each in adopted.partitions] == [(later, 12)]
    with pytest.raises(StateError, match="positions of its own"):
        adopt.adopt_mm2(flow.config)
    flow.catch_up()
    for topic in (flow.topic, later):
        assert read_committed(flow.west, flow.copy(topic)) == read_committed(flow.east, topic)
    code, told = flow.command("verify")
    assert code == 0
    assert sorted(each["matched"] for each in told["links"][0]["partitions"]) == [20, 30]


@pytest.mark.slow
def test_a_link_that_runs_takes_nothing_over(flow: Flow) -> None:
    """Its mirror goes on undisturbed, and nothing is committed."""
    write(flow.east, flow.topic, range(20))
    flow.catch_up()
    later = flow.filled_by_mm2(count=30, mirrored=12)
    with Mirror(flow.config, spark=flow.spark) as mirror, ThreadPoolExecutor(1) as pool:
        running = pool.submit(mirror.run, until=20.0)
        wait_for(lambda: flow.state() == "running", 60)
        with pytest.raises(SupersededError, match="is owned by"):
            adopt.adopt_mm2(flow.config)
        assert running.result(60).exit_code == 0
    assert flow.mirrored(later) == 12


@pytest.mark.slow
def test_a_topic_that_mm2_has_filled_is_left_out_of_a_link_that_has_run(flow: Flow) -> None:
    """Topics are taken over in groups; what MM2 has mirrored of the next one is not mirrored again."""
    write(flow.east, flow.topic, range(20))
    write(flow.west, flow.copy(), range(10))
    flow.commit(9)
    adopt.adopt_mm2(flow.config)
    flow.catch_up()
    later = flow.filled_by_mm2(count=30, mirrored=12)

    with pytest.raises(TopicError, match=later):
        flow.catch_up()
    with Mirror(flow.config, spark=flow.spark) as mirror:
        mirror.run(until=3.0)
    assert flow.mirrored(later) == 12

    with Mirror(flow.config, spark=flow.spark, adopt={SourcePartition(later, 0): 12}) as mirror:
        assert mirror.run(until="caught-up").exit_code == 0
    assert read_committed(flow.west, flow.copy(later)) == read_committed(flow.east, later)
