"""Where idle consumer groups stand, set past every mirror under test."""

from __future__ import annotations

import bisect
import time
from typing import TYPE_CHECKING, Any, TypeVar

from confluent_kafka import (
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Mapping, Sequence

    from support.links.moving.judge import Log

__all__ = ["Standing", "somewhere"]

_SECONDS = 30
_TRIES = 20

_Answer = TypeVar("_Answer")


class Standing:
    """
    The groups of one cluster.

    Args:
        properties: Client properties.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._admin = AdminClient(dict(properties))

    def stable_ends(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        """Last stable offsets: how far a consumer can have read."""
        places = [TopicPartition(topic, number) for number in partitions]
        return {where.partition: end for where, end in self._listed(places, OffsetSpec.latest())}

    def start(self, topic: str, partition: int) -> int:
        """Where a partition begins."""
        ((_, start),) = self._listed([TopicPartition(topic, partition)], OffsetSpec.earliest())
        return start

    def stand(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """A group without members has committed these offsets."""
        self.stand_all({group: offsets})

    def stand_all(self, groups: Mapping[str, Mapping[tuple[str, int], int]]) -> None:
        """Groups without members have committed these offsets, as much at once as that goes."""

        def set_them() -> None:
            wanted = [
                ConsumerGroupTopicPartitions(
                    group, [TopicPartition(*where, offset) for where, offset in offsets.items()]
                )
                for group, offsets in groups.items()
            ]
            # the client takes one group for each call
            asked = [
                future
                for each in wanted
                for future in self._admin.alter_consumer_group_offsets(
                    [each], request_timeout=_SECONDS
                ).values()
            ]
            for future in asked:
                for each in future.result(2 * _SECONDS).topic_partitions:
                    if each.error is not None:
                        raise KafkaException(each.error)

        _again(set_them)

    def standing(self, group: str, places: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
        """What a group has committed; a partition without is left out."""
        wanted = [ConsumerGroupTopicPartitions(group, [TopicPartition(*where) for where in places])]

        def ask() -> Any:
            (future,) = self._admin.list_consumer_group_offsets(wanted, request_timeout=_SECONDS).values()
            return future.result(2 * _SECONDS)

        return {
            (each.topic, each.partition): each.offset
            for each in _again(ask).topic_partitions
            if each.error is None and each.offset >= 0
        }

    def _listed(self, places: Sequence[TopicPartition], spec: OffsetSpec) -> list[tuple[TopicPartition, int]]:
        def ask() -> list[tuple[TopicPartition, int]]:
            futures = self._admin.list_offsets(
                dict.fromkeys(places, spec),
                isolation_level=IsolationLevel.READ_COMMITTED,
                request_timeout=_SECONDS,
            )
            return [(where, future.result(2 * _SECONDS).offset) for where, future in futures.items()]

        return _again(ask)


def _again(ask: Callable[[], _Answer]) -> _Answer:
    """A coordinator that is new on a busy machine has to be found again, or takes longer than a request."""
    for _ in range(_TRIES - 1):
        try:
            return ask()
        except (KafkaException, TimeoutError):
            time.sleep(1)
    return ask()


def somewhere(rng: random.Random, log: Log, stable_end: int) -> int:
    """
    Where a consumer may have committed: behind a record, at the end, or (by hand) anywhere.

    Args:
        rng: Draws.
        log: Committed records of the partition.
        stable_end: Its last stable offset.
    """
    kind = rng.random()
    known = sorted(log.values())
    known = known[: bisect.bisect_left(known, stable_end)]
    if kind < 0.5 and known:
        # most consumers are near the end
        return known[-1 - min(int(rng.expovariate(1 / 40)), len(known) - 1)] + 1
    if kind < 0.75:
        return stable_end
    return rng.randrange(stable_end + 1)
