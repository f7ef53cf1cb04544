"""
Reads bounded ranges of partitions with a librdkafka Consumer.

A read_committed consumer gets no record behind the first open transaction, and the end of the partition that it is told
is before that transaction.  So an end before the range's end means that a transaction is open: the reader waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import consumer_properties
from eomirror.config.rights import Right, account_of
from eomirror.errors import MirrorError, UnreachableError
from eomirror.kafka.client_factory import connect, create_client
from eomirror.kafka.errors import Action, ClassifiedError, classify_fetch, said, to_mirror_error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from eomirror.config import Cluster
    from eomirror.config.clients import Value

    Partition = tuple[str, int]

__all__ = ["GONE", "PartitionReader"]

log = structlog.get_logger(__name__)

_STALL_SECONDS = 60.0
_MOST_MESSAGES = 5_000
_POLL_SECONDS = 0.02
_MOST_NAMES = 10

#: Retention has passed the offset, the log was truncated, or the topic was deleted.
GONE = frozenset({Action.SOURCE_GAP, Action.SOURCE_TRUNCATED, Action.TOPIC_GONE})
# another reader, from the log's start as it is then, may get to the end
_AGAIN = frozenset({Action.REBUILD, Action.DAMAGED, Action.SOURCE_GAP, Action.SOURCE_TRUNCATED})


class PartitionReader:
    """
    Consumer of any partitions of one cluster; keeps its connections between reads.

    Args:
        uncommitted: Read pending and aborted records too; never to mirror them (EO-12).
        tuning: More properties of the consumer; a user's setting of the same property wins.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str,
        uncommitted: bool = False,
        clock: Clock = SYSTEM_CLOCK,
        tuning: Mapping[str, Value] | None = None,
    ) -> None:
        self._name = cluster.alias
        self._account = account_of(cluster)
        self._uncommitted = uncommitted
        self._clock = clock
        self._started: Partition = ("", 0)
        # the end of a partition is only reported by an empty answer, which the broker holds back for this long, and
        # every read waits for an end
        quick = {"fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 10}
        properties = consumer_properties(cluster, client_id=client_id, **quick, **(tuning or {}))
        if uncommitted:
            properties["isolation.level"] = "read_uncommitted"
        self._consumer: Any = create_client(Consumer, cluster, properties)

    def connect(self, topics: Collection[str]) -> None:
        """Connects, and learns the leaders of ``topics``, so that the next read does not wait for a timer."""
        connect(self._consumer, sorted(topics))

    def read(
        self,
        ranges: Mapping[Partition, tuple[int, int]],
        take: Callable[[Partition, Any], bool | None],
        *,
        deadline: Deadline | None = None,
        stall: float = _STALL_SECONDS,
        to_end: bool = False,
        passing: Collection[Action] = (),
        partial: bool = False,
    ) -> dict[Partition, Action]:
        """
        Passes records to ``take``, in log order per partition.

        Args:
            ranges: First offset, and end offset, of each partition.
            take: Called with the partition and a message of confluent-kafka; returns True if it needs no more of that
                partition.
            deadline: End of the wait.
            stall: Without a deadline: seconds to wait for the next record.
            to_end: Pass later records too, up to an end of the partition at or after the range's end.
            passing: Actions of errors that end the read of one partition without being raised.
            partial: Stop at the deadline, and raise nothing.

        Returns:
            The partitions that were not read to their ends, with the reason: one of ``passing``, or
            `Action.UNREACHABLE` at the deadline.

        Raises:
            UnreachableError: A partition was not read to its end in time, or broke off.
            MirrorError: The cluster refuses us.
        """
        waiting = dict(ranges)
        unread: dict[Partition, Action] = {}
        limit = deadline or Deadline(stall, self._clock)
        # absolute offsets: librdkafka looks up a logical one on a timer of 500 ms when it knows no leader yet
        self._consumer.assign([TopicPartition(*where, low) for where, (low, _) in ranges.items()])
        try:
            while waiting and not limit.passed:
                before = list(waiting)
                messages = self._consumer.consume(_MOST_MESSAGES, _POLL_SECONDS)
                came, refused = _taken(messages, waiting, take, to_end=to_end)
                for where, error, verdict in refused:
                    if verdict.action not in passing:
                        raise self._failure(where, error, verdict)
                    if waiting.pop(where, None):
                        unread[where] = verdict.action
                if came and deadline is None:
                    limit = Deadline(stall, self._clock)
                if waiting and len(waiting) < len(before):
                    over = [TopicPartition(*where) for where in before if where not in waiting]
                    self._consumer.incremental_unassign(over)
        finally:
            self._consumer.unassign()
        if waiting and not partial:
            raise self._late(waiting)
        return unread | dict.fromkeys(waiting, Action.UNREACHABLE)

    def first(
        self,
        offsets: Mapping[Partition, int],
        *,
        deadline: Deadline,
        passing: Collection[Action] = (),
        partial: bool = False,
    ) -> dict[Partition, Any]:
        """
        Returns the first message at or after each offset; none for a partition that ends there.

        Arguments and errors are those of `read`.
        """
        found: dict[Partition, Any] = {}

        def take(where: Partition, message: Any) -> bool:
            found[where] = message
            return True

        ranges = {where: (offset, offset) for where, offset in offsets.items()}
        self.read(ranges, take, deadline=deadline, to_end=True, passing=passing, partial=partial)
        return found

    def start(self, topic: str, partition: int, offset: int) -> None:
        """Starts one partition at ``offset``, for `poll`."""
        self._started = (topic, partition)
        self._consumer.assign([TopicPartition(topic, partition, offset)])

    def poll(self, most: int, seconds: float) -> Iterator[Any]:
        """
        Yields the next messages of the started partition: records, and its end, which has an ``error()``.

        Raises:
            MirrorError: The partition cannot be read.
        """
        for message in self._consumer.consume(most, seconds):
            where = message.topic(), message.partition()
            if where[0] and where != self._started:
                continue
            error = message.error()
            if error is None or error.code() == KafkaError._PARTITION_EOF:
                yield message
            elif (verdict := classify_fetch(error)).action is not Action.RETRY:
                raise self._failure(where, error, verdict)

    def close(self) -> None:
        """Closes the consumer."""
        try:
            self._consumer.close()
        except (KafkaException, RuntimeError) as error:
            log.debug("reader_close_failed", error=str(error))

    def _failure(self, where: Partition, error: KafkaError, verdict: ClassifiedError) -> MirrorError:
        doing = f"read {where[0]}-{where[1]}" if where[0] else "read"
        if verdict.action in _AGAIN:
            return UnreachableError(
                f"could not {doing} on cluster {self._name}: {verdict.reason}: {said(error)}",
                fix=f"see the logs of the brokers of {self._name}",
            )
        right = Right("Read", "topic", where[0]) if where[0] else None
        return to_mirror_error(error, doing=doing, cluster=self._account, right=right)

    def _late(self, waiting: Mapping[Partition, tuple[int, int]]) -> MirrorError:
        names = [
            f"{topic}-{number} to offset {high}" for (topic, number), (_, high) in sorted(waiting.items())
        ]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        hanging = ", and whether a transaction is left open there: kafka-transactions.sh find-hanging"
        return UnreachableError(
            f"could not read {', '.join(names[:_MOST_NAMES])}{more} on cluster {self._name} in time",
            fix=f"check that the brokers of {self._name} run{'' if self._uncommitted else hanging}",
        )


def _taken(
    messages: Sequence[Any],
    waiting: dict[Partition, tuple[int, int]],
    take: Callable[[Partition, Any], bool | None],
    *,
    to_end: bool,
) -> tuple[bool, list[tuple[Partition, KafkaError, ClassifiedError]]]:
    """
    Passes records of ranges to ``take``, and removes the partitions from ``waiting`` of which no more is wanted.

    A state topic may hold 100,000 records, so a record costs no calls but those of its message and ``take``.

    Returns:
        True if a record came; and errors that librdkafka does not retry.  An error of a broker names no partition.
    """
    came = False
    refused = []
    for message in messages:
        where = message.topic(), message.partition()
        span = waiting.get(where)
        if span is None and where[0]:
            continue
        error = message.error()
        if error is None and span is not None:
            came = True
            offset = message.offset()
            if offset < span[0]:
                # of an earlier assignment: librdkafka's version barrier drops those, and so do we
                continue
            enough = take(where, message) if to_end or offset < span[1] else False
            if enough or (offset >= span[1] - 1 and not to_end):
                del waiting[where]
        elif error is None:
            continue
        elif error.code() == KafkaError._PARTITION_EOF:
            if span is not None and message.offset() >= span[1]:
                del waiting[where]
        elif (verdict := classify_fetch(error)).action is not Action.RETRY:
            refused.append((where, error, verdict))
    return came, refused
