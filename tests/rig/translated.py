"""
O5: what is written for MM2's readers is compared with the records that it names, on both sides.

Shares nothing with the mirror but the decoders of MM2's formats, which have golden bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from eomirror.formats.mm2 import Checkpoint, OffsetSync, decode_checkpoint, decode_offset_sync

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Copies", "checkpoints", "committed", "offset_syncs"]

_HOPS = "eomirror.hops"

Read = tuple[int, bytes | None, bytes | None, tuple[Any, ...]]


def committed(properties: Mapping[str, Any], topic: str, partition: int = 0) -> tuple[list[Read], int]:
    """Committed records of a partition (offset, key, value, the rest), and its last stable offset."""
    consumer = Consumer(
        {
            **properties,
            "group.id": "eomirror.rig",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    found: list[Read] = []
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        while True:
            message = consumer.poll(30)
            assert message is not None, f"{topic}-{partition} cannot be read"
            if message.error() is not None:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                return found, message.offset()
            headers = tuple(item for item in message.headers() or () if item[0] != _HOPS)
            rest = (message.timestamp()[1], headers)
            found.append((message.offset(), message.key(), message.value(), rest))
    finally:
        consumer.close()


def offset_syncs(properties: Mapping[str, Any], topic: str, of: str) -> list[OffsetSync]:
    """Every committed sync of a source topic, in the order of the log."""
    records, _ = committed(properties, topic)
    syncs = [decode_offset_sync(key, value, where=f"{topic}@{at}") for at, key, value, _ in records]
    return [sync for sync in syncs if sync.topic == of]


def checkpoints(properties: Mapping[str, Any], topic: str, of: str) -> list[Checkpoint]:
    """Every committed checkpoint of a target topic, in the order of the log; those taken away are left out."""
    records, _ = committed(properties, topic)
    found = [
        decode_checkpoint(key, value, where=f"{topic}@{at}")
        for at, key, value, _ in records
        if value is not None
    ]
    return [checkpoint for checkpoint in found if checkpoint.topic == of]


class Copies:
    """
    Both sides of one partition.

    Args:
        source: Client properties of the source.
        target: Client properties of the target.
        topic: Topic on the source.
        copy: Topic on the target.
        partition: Partition of both.
    """

    def __init__(
        self, source: Mapping[str, Any], target: Mapping[str, Any], topic: str, copy: str, partition: int
    ) -> None:
        self.source, self.source_end = committed(source, topic, partition)
        self.target, self.target_end = committed(target, copy, partition)

    def check_sync(self, sync: OffsetSync) -> None:
        """Both offsets hold the same record; one that compaction took since is on neither side a proof."""
        there = {read[0]: read[1:] for read in self.source}
        here = {read[0]: read[1:] for read in self.target}
        assert sync.downstream < self.target_end, f"{sync} names no committed record"
        if sync.upstream in there and sync.downstream in here:
            assert there[sync.upstream] == here[sync.downstream], sync

    def check_checkpoint(self, checkpoint: Checkpoint) -> None:
        """
        A consumer that has read the source up to the one offset, and goes on at the other, reads all once.

        Records that compaction took from one side only prove nothing and are left out.
        """
        assert checkpoint.downstream <= self.target_end, f"{checkpoint} is beyond the target's end"
        both = {read[1:] for read in self.source} & {read[1:] for read in self.target}
        read = [one[1:] for one in self.source if one[0] < checkpoint.upstream and one[1:] in both]
        rest = [one[1:] for one in self.target if one[0] >= checkpoint.downstream and one[1:] in both]
        assert not set(read) & set(rest), f"{checkpoint}: {len(set(read) & set(rest))} records are read twice"
        assert set(read) | set(rest) == both, f"{checkpoint}: {len(both - set(read) - set(rest))} are skipped"
