"""
A consumer that has moved to the target reads what was mirrored before what is written there (prefix naming).

    python docs/examples/mirrored_first.py mirror.yaml --group billing --topic orders --target 127.0.0.1:29092

After a failover two topics hold its records: ``east.orders``, the copy of what the source had, and ``orders``, where
applications write now.  Partition by partition the copy is read to its end, as it is when this program starts; only
then the local topic is begun.  Records of one key are in one partition of either, so that they come in order.

Stop the mirror first, or let it catch up: what arrives in the copy later is read as it comes, beside the local topic.
"""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from confluent_kafka import Consumer, KafkaError, TopicPartition

from eomirror import load_config
from eomirror.groups import group_offsets

if TYPE_CHECKING:
    from collections.abc import Iterator

    from confluent_kafka import Message

    from eomirror import Config


def mirrored_first(config: Config, properties: dict[str, str], group: str, topic: str) -> Iterator[Message]:
    """Every record once: the copy from where the group stood on the source, then the local topic from its start."""
    (link,) = [each for each in config.links if each.mirrors(topic)]
    moved = [each for each in group_offsets(config, group=group, link=link.name) if each.topic == topic]
    if not moved or any(each.to_offset is None for each in moved):
        raise SystemExit(f"{group} cannot move yet: {[each.skipped for each in moved]}")
    consumer = Consumer(
        {
            **properties,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    copies = [TopicPartition(each.to_topic, each.to_partition, each.to_offset) for each in moved]
    # where the group has been here before, it goes on there
    numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
    local = consumer.committed([TopicPartition(topic, number) for number in numbers], timeout=30)
    for each in local:
        each.offset = max(each.offset, 0)
    waiting = {each.partition for each in copies}
    consumer.assign([*copies, *local])
    consumer.pause([each for each in local if each.partition in waiting])
    try:
        while True:
            message = consumer.poll(1.0)
            if message is None:
                continue
            if message.error() is None:
                yield message
                continue
            if message.error().code() != KafkaError._PARTITION_EOF:
                raise SystemExit(str(message.error()))
            if message.topic() != topic and message.partition() in waiting:
                waiting.discard(message.partition())
                consumer.resume([TopicPartition(topic, message.partition())])
    finally:
        consumer.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("config")
    parser.add_argument("--group", required=True)
    parser.add_argument("--topic", required=True, help="its name on the source")
    parser.add_argument("--target", required=True, help="bootstrap servers of the target")
    asked = parser.parse_args()
    client = {"bootstrap.servers": asked.target}
    for record in mirrored_first(load_config(asked.config), client, asked.group, asked.topic):
        print(
            record.topic(), record.partition(), record.offset(), record.value(), file=sys.stdout, flush=True
        )
