"""
What offset translation costs: a lookup in a large map, many groups at once, and what the map adds to a transaction.

The groups are real (their offsets are committed on a broker), and so are the positions and the map that they are
translated with, written as a lane writes them.  What is measured is what `eomirror offsets export` does: read the
positions, ask the coordinators for what the groups have committed, read the map, answer.
"""

from __future__ import annotations

import random
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import psutil
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.topics import Topics
from eomirror import load_config
from eomirror._native import PartitionMap, encode_offset_map
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.kafka.session import ClusterSession
from eomirror.link.offset_map_reader import OffsetMapReader, Question
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import offset_map_key, offset_map_partition
from eomirror.records.position import Position
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.peers.process import Site
    from eomirror.config import Config

__all__ = ["TranslationCost", "commit_offsets", "measure_translation", "translation_markdown"]

_TOPIC = "bench-groups"
_LINK = "bench"
_CHUNKS = 100
_PER_CHUNK = 1_000
_TRANSACTION_BYTES = 100_000
_LOOKUPS = 200_000
_MAP_PARTITIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslationCost:
    """
    What was measured.

    Attributes:
        groups: How many were translated.
        partitions: In how many partitions each.
        asking_seconds: Reading what they have committed.
        translating_seconds: Positions, map and answers.
        translating_cpu_seconds: The same, of this process's CPU: what is left of it where no other process is at work.
        ranges: Of the large map.
        lookup_us: Mean CPU of a lookup in it, from Python.
        range_bytes: Memory of a range, by the growth of the process.
        record_bytes: Key and value of the map's record of a transaction without holes, of one partition.
        share: The same beside what it describes, at 1 MB/s per partition and a commit every 100 ms, in per cent.
    """

    groups: int
    partitions: int
    asking_seconds: float
    translating_seconds: float
    translating_cpu_seconds: float
    ranges: int
    lookup_us: float
    range_bytes: float
    record_bytes: int
    share: float

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def translation_markdown(cost: TranslationCost) -> str:
    """A table for a report."""
    return "\n".join(
        [
            "| what | figure |",
            "|---|---:|",
            f"| translate {cost.groups:,} groups x {cost.partitions} partitions | {cost.translating_seconds:.2f} s |",
            f"| the same, CPU | {cost.translating_cpu_seconds:.2f} s |",
            f"| ask coordinators for their offsets before | {cost.asking_seconds:.2f} s |",
            f"| a lookup in a map of {cost.ranges:,} ranges, CPU | {cost.lookup_us:.2f} us |",
            f"| memory of a range | {cost.range_bytes:.0f} bytes |",
            f"| map record of a transaction and partition | {cost.record_bytes} bytes |",
            f"| beside 100 kB of records in it | {cost.share:.2f} % |",
        ]
    )


def measure_translation(
    site: Site, *, groups: int, partitions: int, ranges: int, say: Callable[[str], None]
) -> TranslationCost:
    """Measure; most of the time goes into making what is measured."""
    say(f"a map of {ranges:,} ranges")
    lookup_us, range_bytes = _lookups(ranges)
    config = _flow(site, partitions)
    say(f"committing offsets of {groups:,} groups")
    names = commit_offsets(site, _TOPIC, groups, partitions)
    say("translating")
    link = config.links[0]
    asked = ClusterGroups(config.clusters["source"], client_id="bench")
    began = time.perf_counter()
    committed = asked.committed(names)
    asking = time.perf_counter() - began
    asked.close()
    session = ClusterSession(config.clusters["target"], client_id="bench.translation")
    reader = OffsetMapReader(link, session)
    began, cpu = time.perf_counter(), time.process_time()
    positions = {(at.topic, at.partition): at for at in reader.positions().values()}
    questions = []
    for group, offsets in committed.items():
        if isinstance(offsets, str):
            raise SystemExit(f"the offsets of group {group} cannot be read: {offsets}")
        questions += [Question(positions[name], one.offset) for name, one in offsets.items()]
    answers = reader.answers(questions)
    translating, cpu = time.perf_counter() - began, time.process_time() - cpu
    session.close()
    wrong = [
        (question.offset, answer)
        for question, answer in zip(questions, answers, strict=True)
        if answer != ("exact", _copied(question.offset))
    ]
    if len(answers) != groups * partitions or wrong:
        raise RuntimeError(f"{len(wrong)} of {len(answers)} answers are wrong: {wrong[:3]}")
    key, value = _chunk(SourcePartition("orders.created", 7), "A" * 22, 10**9)
    size = len(key) + len(value)
    return TranslationCost(
        groups=groups,
        partitions=partitions,
        asking_seconds=asking,
        translating_seconds=translating,
        translating_cpu_seconds=cpu,
        ranges=ranges,
        lookup_us=lookup_us,
        range_bytes=range_bytes,
        record_bytes=size,
        share=100 * size / _TRANSACTION_BYTES,
    )


def _lookups(ranges: int) -> tuple[float, float]:
    """CPU of a lookup in microseconds, and memory of a range in bytes."""
    numbers = random.Random(7)
    process = psutil.Process()
    map_ = PartitionMap()
    # a hole behind every record, on either side, so that nothing merges
    size = 10_000
    before = process.memory_info().rss
    for first in range(0, ranges, size):
        rows = [(3 * index, 2 * index, 1) for index in range(first, first + size)]
        map_.take_in(encode_offset_map("copy", 0, rows), "copy", 0)
    grown = process.memory_info().rss - before
    if map_.ranges() != ranges:
        raise RuntimeError(f"the map has {map_.ranges()} ranges")
    wanted = [numbers.randrange(3 * ranges) for _ in range(_LOOKUPS)]
    map_.to_target(0, 3 * ranges)
    began = time.process_time()
    for offset in wanted:
        map_.to_target(offset, 3 * ranges)
    return (time.process_time() - began) / _LOOKUPS * 1e6, grown / ranges


def _copied(offset: int) -> int:
    """Where a source offset is on the target: every chunk is a transaction, and leaves a marker there."""
    return offset + offset // _PER_CHUNK


def _chunk(source: SourcePartition, topic_id: str, first: int) -> tuple[bytes, bytes]:
    rows = [(first, _copied(first), _PER_CHUNK)]
    return (
        offset_map_key(source, topic_id, first),
        encode_offset_map(f"source.{source.topic}", source.partition, rows),
    )


def _flow(site: Site, partitions: int) -> Config:
    """A link that has mirrored `_CHUNKS` transactions of every partition, as far as its state topics tell."""
    names = LinkNames(_LINK)
    Topics(site.source).create(_TOPIC, partitions)
    there = Topics(site.target)
    there.create(names.positions_topic, 1, {"cleanup.policy": "compact"})
    there.create(names.offset_map_topic, _MAP_PARTITIONS, {"cleanup.policy": "compact"})
    producer = Producer(
        {"bootstrap.servers": site.target, "transactional.id": "bench-groups", "linger.ms": 5}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(partitions):
        source = SourcePartition(_TOPIC, number)
        part = offset_map_partition(source, _MAP_PARTITIONS)
        for index in range(_CHUNKS):
            key, value = _chunk(source, "id", index * _PER_CHUNK)
            producer.produce(names.offset_map_topic, value, key, part)
        end = _CHUNKS * _PER_CHUNK
        position = Position(
            topic=_TOPIC, partition=number, offset=end, source_cluster_id="s", topic_id="id",
            target_topic=f"source.{_TOPIC}", target_partition=number, target_topic_id="t",
            target_offset=_copied(end - 1), generation=1, lane=0, run="r", epoch=1, attempt=1, producer_id=1,
            producer_epoch=0, txn=_CHUNKS, timestamp=0,
        )  # fmt: skip
        producer.produce(names.positions_topic, position.value(), position.key(), 0)
    producer.commit_transaction(30)
    return load_config(
        {
            "clusters": {
                "source": {"bootstrap.servers": site.source},
                "target": {"bootstrap.servers": site.target},
            },
            "links": [{"name": _LINK, "source": "source", "target": "target", "topics": [_TOPIC]}],
        }
    )


def commit_offsets(
    site: Site, topic: str, count: int, partitions: int, *, prefix: str = "group"
) -> list[str]:
    """Groups that stand somewhere in a topic; their names."""
    numbers = random.Random(7)
    admin = AdminClient({"bootstrap.servers": site.source, "log_level": 3})
    # the first group of a cluster makes the topic in which they are kept
    Consumer({"bootstrap.servers": site.source, "group.id": "bench-first"}).committed(
        [TopicPartition(topic, 0)], 60
    )
    names = [f"{prefix}-{number}" for number in range(count)]
    for first in range(0, count, 500):
        futures = [
            admin.alter_consumer_group_offsets(
                [
                    ConsumerGroupTopicPartitions(
                        name,
                        [
                            TopicPartition(topic, number, numbers.randrange(_CHUNKS * _PER_CHUNK))
                            for number in range(partitions)
                        ],
                    )
                ]
            )[name]
            for name in names[first : first + 500]
        ]
        for future in futures:
            for each in future.result(120).topic_partitions:
                if each.error is not None:
                    raise KafkaException(each.error)
    return names
