"""
O5: what is written for MM2's readers is compared with the records that it names, on both sides.

Shares nothing with the mirror but the decoders of MM2's formats, which have golden bytes.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, KafkaError, TopicPartition
from confluent_kafka.admin import AdminClient

from eomirror.records.mm2 import Checkpoint, Mm2Names, OffsetSync, decode_checkpoint, decode_offset_sync

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["Copies", "check_link", "checkpoints", "committed", "offset_syncs"]

_HOPS = "eomirror.hops"
_SECONDS = 30.0
_READERS = 4

Read = tuple[int, bytes | None, bytes | None, tuple[Any, ...]]


def committed(properties: Mapping[str, Any], topic: str, partition: int = 0) -> tuple[list[Read], int]:
    """Committed records of a partition (offset, key, value, the rest), and its last stable offset."""
    found: list[Read] = []
    for each in _read(properties, topic, partition):
        if isinstance(each, int):
            return found, each
        found.append(each)
    raise AssertionError("a partition has an end")


def _read(properties: Mapping[str, Any], topic: str, partition: int) -> Iterator[Read | int]:
    """The records, one by one, and the last stable offset behind them."""
    consumer = Consumer(
        {
            **properties,
            "group.id": "eomirror.rig",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            # the end of a partition is told by an empty answer, which the broker holds back for this long
            "fetch.wait.max.ms": 10,
            "fetch.queue.backoff.ms": 10,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, partition, 0)])
        until = time.monotonic() + _SECONDS
        while True:
            messages = consumer.consume(1_000, 0.05)
            assert messages or time.monotonic() < until, f"{topic}-{partition} cannot be read"
            for message in messages:
                until = time.monotonic() + _SECONDS
                if message.error() is not None:
                    assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                    yield message.offset()
                    return
                headers = tuple(item for item in message.headers() or () if item[0] != _HOPS)
                rest = (message.timestamp()[1], headers)
                yield message.offset(), message.key(), message.value(), rest
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
    Both sides of one partition; of a record only its hash is kept, so that a million of them fit.

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
        self._there, self.source_end = _hashed(source, topic, partition)
        self._here, self.target_end = _hashed(target, copy, partition)
        # what stands on both sides, once on each: compaction may have taken the rest, which then proves nothing
        there, here = _once(self._there), _once(self._here)
        pairs = sorted((offset, here[content]) for content, offset in there.items() if content in here)
        self._sources = [offset for offset, _ in pairs]
        targets = [offset for _, offset in pairs]
        self._up_to = [-1, *accumulate(targets, max)]
        self._from = [*reversed([*accumulate(reversed(targets), min)]), self.target_end]
        self._targets = targets

    def check_sync(self, sync: OffsetSync) -> None:
        """Both offsets hold the same record; one that compaction took since is on neither side a proof."""
        assert sync.downstream < self.target_end, f"{sync} names no committed record"
        if sync.upstream in self._there and sync.downstream in self._here:
            assert self._there[sync.upstream] == self._here[sync.downstream], sync

    def check_checkpoint(self, checkpoint: Checkpoint, *, may_repeat: bool = False) -> bool:
        """
        A consumer that has read the source up to the one offset, and goes on at the other, reads all once.

        Returns:
            Whether it reads records twice, where that may be; it never skips one.
        """
        assert checkpoint.downstream <= self.target_end, f"{checkpoint} is beyond the target's end"
        read = bisect_left(self._sources, checkpoint.upstream)
        if self._up_to[read] >= checkpoint.downstream or self._from[read] < checkpoint.downstream:
            twice = sum(offset >= checkpoint.downstream for offset in self._targets[:read])
            skipped = sum(offset < checkpoint.downstream for offset in self._targets[read:])
            if may_repeat and not skipped:
                return True
            raise AssertionError(f"{checkpoint}: {twice} records are read twice, {skipped} are skipped")
        return False


def check_link(
    source: Mapping[str, Any],
    target: Mapping[str, Any],
    topic: str,
    copy: str,
    partitions: int,
    *,
    alias: str,
    may_repeat: bool = False,
) -> dict[str, int]:
    """
    Compare every committed sync and checkpoint of a topic with the records that it names.

    Args:
        source: Client properties of the source.
        target: Client properties of the target.
        topic: Topic on the source.
        copy: Topic on the target.
        partitions: How many it has.
        alias: Of the source.
        may_repeat: Whether a checkpoint may name an offset before which not all is that a consumer has read.

    Returns:
        How many syncs and checkpoints were compared, and, if there are any, how many checkpoints repeat.
    """
    names = Mm2Names()
    there = AdminClient(dict(target)).list_topics(timeout=_SECONDS).topics
    places = names.offset_syncs(alias), names.checkpoints(alias)
    syncs = offset_syncs(target, places[0], topic) if places[0] in there else []
    told = checkpoints(target, places[1], copy) if places[1] in there else []
    with ThreadPoolExecutor(_READERS) as readers:
        read = list(
            readers.map(lambda number: Copies(source, target, topic, copy, number), range(partitions))
        )
    repeat = 0
    for number, copies in enumerate(read):
        for sync in syncs:
            if sync.partition == number:
                copies.check_sync(sync)
        for checkpoint in told:
            if checkpoint.partition == number:
                repeat += copies.check_checkpoint(checkpoint, may_repeat=may_repeat)
    compared = {"syncs": len(syncs), "checkpoints": len(told)}
    return {**compared, "checkpoints that repeat": repeat} if repeat else compared


def _hashed(properties: Mapping[str, Any], topic: str, partition: int) -> tuple[dict[int, int], int]:
    found: dict[int, int] = {}
    for each in _read(properties, topic, partition):
        if isinstance(each, int):
            return found, each
        found[each[0]] = hash(each[1:])
    raise AssertionError("a partition has an end")


def _once(records: Mapping[int, int]) -> dict[int, int]:
    """Offset of what stands there once."""
    times = Counter(records.values())
    return {content: offset for offset, content in records.items() if times[content] == 1}
