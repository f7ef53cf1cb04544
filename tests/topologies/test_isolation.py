"""
Isolation (GDPR): nothing of what a link's filter excludes is ever written to the target, while the filter changes.

Judges every byte in the folder of the target's broker, not only topics: segments, indexes, metadata log, group offsets,
transaction state, the broker's own log.  State topics may be compressed, so every topic is also read through a client,
uncommitted records included.
"""

from __future__ import annotations

import errno
import os
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from eomirror import Mirror, load_config
from support.links.plane import plane_under_test
from support.traffic.records import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_TOPICS = ("orders", "orders-pii", "clicks", "clicks-pii", "health")
_ROUNDS = 4
_RECORDS = 60
# of a record that follows an overlap of two blocks, the first bytes are in the block before
_BLOCK, _OVERLAP = 1 << 22, 4096


@dataclass
class Written:
    """
    Records of the source, each with a mark that occurs nowhere else.

    Attributes:
        name: Prefix of the topics.
        marks: Round in which a mark was written, by topic; the mark is in key, value, header name and header value.
    """

    name: str
    marks: dict[str, dict[int, str]] = field(default_factory=lambda: {word: {} for word in _TOPICS})

    def topic(self, word: str) -> str:
        """Returns the name of a source topic; no other text of the test contains it."""
        return f"{self.name}.{word}"

    def write(self, properties: Mapping[str, Any], number: int, rng: random.Random) -> None:
        """Writes one round to all topics; a transactional producer also aborts some, and a group commits everywhere."""
        for word in _TOPICS:
            mark = f"mark{rng.getrandbits(96):024x}"
            self.marks[word][number] = mark
            producer = Producer({**properties, "transactional.id": f"writer-{mark}"})
            producer.init_transactions(30)
            for committed in (True, False, True):
                producer.begin_transaction()
                for place in range(_RECORDS // 3):
                    text = f"{mark}-{place}".encode()
                    producer.produce(
                        self.topic(word), text, text, partition=place % 2, headers={f"h-{mark}": text}
                    )
                # an abort must find the records on the broker
                producer.flush(30)
                producer.commit_transaction(30) if committed else producer.abort_transaction(30)
            group = Consumer({**properties, "group.id": f"group-of-{self.name}"})
            group.commit(offsets=[TopicPartition(self.topic(word), 0, 1, metadata=mark)], asynchronous=False)
            group.close()


def every_topic(properties: Mapping[str, Any]) -> Iterator[bytes]:
    """Yields key, value and headers of every record of a cluster, internal topics and aborted records included."""
    consumer = Consumer(
        {
            **properties,
            "group.id": "everything",
            "isolation.level": "read_uncommitted",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
        }
    )
    try:
        topics = consumer.list_topics(timeout=30).topics
        left = {(name, number) for name, topic in topics.items() for number in topic.partitions}
        consumer.assign([TopicPartition(name, number, 0) for name, number in left])
        while left:
            for message in consumer.consume(2000, 5):
                error = message.error()
                if error is None:
                    yield b"|".join((message.key() or b"", message.value() or b""))
                    for name, value in message.headers() or ():
                        yield name.encode() + b"|" + (value or b"")
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard((message.topic(), message.partition()))
    finally:
        consumer.close()


def every_byte(folder: Path) -> Iterator[bytes]:
    """Yields the bytes of all files of a broker, in overlapping blocks."""
    for path in sorted(folder.rglob("*")):
        yield str(path.relative_to(folder)).encode()
        if not path.is_file():
            continue
        with path.open("rb") as file:
            kept = b""
            for block in written_blocks(file.fileno()):
                yield kept + block
                kept = block[-_OVERLAP:]


def written_blocks(file: int) -> Iterator[bytes]:
    """Yields what was ever written to a file: Kafka creates indexes of 10 MB that are holes but for some entries."""
    end = 0
    while True:
        try:
            start = os.lseek(file, end, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            return  # no data behind this
        end = os.lseek(file, start, os.SEEK_HOLE)
        while start < end and (block := os.pread(file, min(_BLOCK, end - start), start)):
            yield block
            start += len(block)


def found(west: LocalCluster, texts: set[str]) -> set[str]:
    """Returns those of the texts that occur anywhere on the target."""
    wanted = {text.encode(): text for text in texts}
    seen: set[bytes] = set()
    for source in (every_byte(west.folder), every_topic(west.client_properties)):
        for block in source:
            seen |= {text for text in wanted.keys() - seen if text in block}
    return {wanted[text] for text in seen}


def test_what_a_filter_excludes_never_leaves_the_source_cluster(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, spark_context: Any, seed: int
) -> None:
    """After each round, the target holds all marks of topics that were mirrored so far, and no byte of any other."""
    rng = random.Random(seed)
    written = Written(topic_name)
    for word in _TOPICS:
        create_topic(east.client_properties, written.topic(word), 2)
    ever: set[str] = set()
    allowed: set[str] = set()
    for number in range(_ROUNDS):
        # a topic that ends in "-pii" is never mirrored; of the others each round excludes one, health first
        excluded = "health" if number == 0 else rng.choice(["orders", "clicks", "health"])
        mirrored = {word for word in _TOPICS if word != excluded and not word.endswith("-pii")}
        written.write(east.client_properties, number, rng)
        path = tmp_path / f"mirror-{number}.yaml"
        path.write_text(
            yaml.safe_dump(
                {
                    "clusters": {
                        "east": dict(east.client_properties),
                        "west": dict(west.client_properties),
                    },
                    "links": [
                        {
                            "name": topic_name,
                            "source": "east",
                            "target": "west",
                            # the configuration does not name an excluded topic, so its name has no other way out
                            "topics": [f"{topic_name}\\..*"],
                            "exclude": [".*-pii", f".*\\.{excluded}"],
                            "plane": plane_under_test(),
                            "sync_group_offsets": True,
                        }
                    ],
                }
            )
        )
        path.chmod(0o600)
        with Mirror(load_config(path), spark=spark_context) as mirror:
            assert mirror.run(until="caught-up").exit_code == 0
        ever |= mirrored
        allowed |= {mark for word in mirrored for mark in written.marks[word].values()}
        texts = {mark for marks in written.marks.values() for mark in marks.values()}
        names = {written.topic(word) for word in _TOPICS if word not in ever}
        assert found(west, texts | names) == allowed, (number, excluded)
