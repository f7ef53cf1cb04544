"""`eomirror offsets translate` on real brokers: every record of a mirrored topic, both ways, and what lies between."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror import Mirror, UsageError, load_config
from eomirror.groups import group_offsets, translate
from eomirror.kafka.session import ClusterSession
from eomirror.link.offset_map_reader import OffsetMapReader, Question
from support.links.plane import plane_under_test
from support.traffic.records import create_topic

if TYPE_CHECKING:
    from pathlib import Path

    from eomirror.config import Config

pytestmark = [pytest.mark.integration, pytest.mark.spark]

PARTITIONS = 2
PER_TRANSACTION = 7


class Flow:
    """One link of a test, with one topic of transactions, of which every fourth is aborted."""

    def __init__(self, east: Any, west: Any, name: str, folder: Path, spark: Any) -> None:
        self.east = dict(east.client_properties)
        self.west = dict(west.client_properties)
        self.name = name
        self.topic = f"{name}.orders"
        self.target = f"east.{self.topic}"
        self.spark = spark
        self.path = folder / "mirror.yaml"
        settings = {
            "clusters": {"east": self.east, "west": self.west},
            "links": [{"name": name, "source": "east", "target": "west", "topics": [f"{name}\\..*"]}],
            "defaults": {"lanes": 1, "plane": plane_under_test(), "commit_interval": "20ms"},
        }
        self.path.write_text(yaml.safe_dump(settings))
        self.path.chmod(0o600)

    @property
    def config(self) -> Config:
        return load_config(self.path)

    def write(self, first: int, transactions: int) -> None:
        """Records with a unique value each."""
        producer = Producer({**self.east, "transactional.id": self.name, "linger.ms": 1})
        producer.init_transactions(30)
        for number in range(first, first + transactions):
            producer.begin_transaction()
            for each in range(PER_TRANSACTION):
                producer.produce(self.topic, b"%d-%d" % (number, each), partition=each % PARTITIONS)
            if number % 4 == 3:
                producer.flush(30)
                producer.abort_transaction(30)
            else:
                producer.commit_transaction(30)

    def catch_up(self) -> None:
        with Mirror(self.config, spark=self.spark) as mirror:
            mirror.run(until="caught-up")

    def command(self, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "offsets", "translate", str(self.path), *arguments],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)["offsets"]


@pytest.fixture
def flow(east: Any, west: Any, topic_name: str, tmp_path: Path, spark_context: Any) -> Flow:
    """A link named after the test's unique topic name, mirrored twice so that there are several runs."""
    made = Flow(east, west, topic_name, tmp_path, spark_context)
    create_topic(made.east, made.topic, PARTITIONS)
    made.write(0, 20)
    made.catch_up()
    made.write(20, 20)
    made.catch_up()
    return made


def placed(properties: dict[str, Any], topic: str, partition: int) -> tuple[dict[bytes, int], int]:
    """Offset of each committed value, and the last stable offset."""
    consumer = Consumer(
        {
            **properties,
            "group.id": "look",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: dict[bytes, int] = {}
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF
                return found, message.offset()
            found[message.value()] = message.offset()
    finally:
        consumer.close()


@pytest.mark.parametrize("window", [1, 10, 20_000])
def test_every_offset_translates_exactly_both_ways(flow: Flow, window: int) -> None:
    """Every record is found; offsets between records split the mirrored records the same way on both sides."""
    config = flow.config
    session = ClusterSession(config.clusters["west"], client_id="test")
    reader = OffsetMapReader(config.links[0], session, first_window=window)
    try:
        positions = {position.partition: position for position in reader.positions().values()}
        assert len(positions) == PARTITIONS
        for partition, position in positions.items():
            there, source_end = placed(flow.east, flow.topic, partition)
            here, target_end = placed(flow.west, flow.target, partition)
            assert there.keys() == here.keys()
            assert len(there) > 50
            pairs = [(there[value], here[value]) for value in there]
            for reverse, end in ((False, source_end), (True, target_end)):
                split = [(b, a) for a, b in pairs] if reverse else pairs
                exact = dict(split)
                answers = reader.answers(
                    [Question(position, offset, target_end) for offset in range(end + 1)], reverse=reverse
                )
                for offset, (kind, at) in enumerate(answers):
                    if offset in exact:
                        assert (kind, at) == ("exact", exact[offset])
                    elif offset < split[0][0]:
                        assert (kind, at) == ("before", split[0][0])
                    else:
                        assert kind == "next"
                        assert all((a < offset) == (b < at) for a, b in split)
    finally:
        session.close()


def test_a_group_goes_on_at_the_record_it_would_have_read_next(flow: Flow) -> None:
    """A group in the middle, and one at the end; there and back again; one that is not mirrored is unknown."""
    there, source_end = placed(flow.east, flow.topic, 0)
    here, _ = placed(flow.west, flow.target, 0)
    middle = sorted(there.values())[20]
    consumer = Consumer({**flow.east, "group.id": flow.name})
    consumer.commit(
        offsets=[TopicPartition(flow.topic, 0, middle), TopicPartition(flow.topic, 1, 10**6)],
        asynchronous=False,
    )

    code, found = flow.command("--group", flow.name, "-o", "json")

    at = {offset: value for value, offset in there.items()}[middle]
    assert [(each["partition"], each["kind"], each["to_offset"]) for each in found] == [
        (0, "exact", here[at]),
        (1, "unknown", None),
    ]
    assert found[1]["reason"].startswith("not mirrored yet")
    assert code == 3
    consumer.commit(offsets=[TopicPartition(flow.topic, 1, 0)], asynchronous=False)
    consumer.close()
    back = Consumer({**flow.west, "group.id": flow.name})
    back.commit(offsets=[TopicPartition(flow.target, 0, here[at])], asynchronous=False)
    back.close()
    (returned,) = translate(flow.config, group=flow.name, reverse=True)
    assert (returned.to_topic, returned.to_offset, returned.kind) == (flow.topic, middle, "exact")
    code, (end,) = flow.command(
        "--topic", flow.topic, "--partition", "0", "--offset", str(source_end), "-o", "json"
    )
    assert (code, end["kind"]) == (0, "next")
    assert end["to_offset"] > max(here.values())


def test_a_topic_that_no_link_knows_is_a_usage_error(flow: Flow) -> None:
    """Nothing is guessed about a partition that was never mirrored, nor about a question with two meanings."""
    with pytest.raises(UsageError, match="no link has mirrored"):
        translate(flow.config, topic=flow.target, partition=0, offset=0)
    with pytest.raises(UsageError, match="name either"):
        translate(flow.config, topic=flow.topic, partition=0)
    assert translate(flow.config, group="unknown") == []


def test_a_group_is_told_no_offset_that_retention_took_from_the_copy(flow: Flow) -> None:
    """Below the log start a consumer with ``auto.offset.reset=latest`` would skip what is left, too."""
    east, west = AdminClient(flow.east), AdminClient(flow.west)
    group = ConsumerGroupTopicPartitions(flow.name, [TopicPartition(flow.topic, 0, 3)])
    east.alter_consumer_group_offsets([group])[flow.name].result(30)
    copy = TopicPartition(flow.target, 0, 40)
    west.delete_records([copy])[copy].result(30)

    (there,) = group_offsets(flow.config, group=flow.name)
    (told,) = translate(flow.config, group=flow.name)

    assert (there.to_offset, there.kind) == (told.to_offset, told.kind) == (40, "next")
