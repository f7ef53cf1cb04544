"""
Compares positions with the source's log: epochs, end offsets, and the last mirrored record (client plane, EO-5).

A cluster that is restored as a whole from an older state assigns topic ids and leader epochs again.  So fetching begins
at the last mirrored record instead of after it, when a lane starts and after each lost connection.  The record is
compared and skipped.  This costs no request.

librdkafka returns records only.  A missing offset may be a marker, an aborted record, or part of a hole in the log.  So
the batches of such a range are read through a connection of the native plane.  A topic without transactions has no
jumps, and its first one is examined before the commit.  A topic with transactions has one for each marker: the largest
jumps are examined, once a minute.
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition

from eomirror._native import digest_behind
from eomirror.clock import Clock, Deadline
from eomirror.errors import TransactionFailedError, changed_error, hole_error
from eomirror.kafka.errors import said
from eomirror.plane.protocol import Holes, RecordMark, is_compacting, is_near
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from confluent_kafka import Consumer

    from eomirror.errors import DataLossError
    from eomirror.plane.protocol import Advance, History, Start

__all__ = ["EndOffsets", "Expected", "LastRecords", "LogComparison", "OffsetGaps", "validate_epochs"]

_AGAIN_SECONDS = 60.0
# jumps per partition, and in all of one transaction
_MOST, _MOST_AT_ONCE = 8, 16


@dataclass(slots=True)
class _Waiting:
    due: float = float("-inf")
    jumps: list[tuple[int, int]] = field(default_factory=list)


class OffsetGaps:
    """
    Jumps of the partitions whose log was never compacted.

    Args:
        explain: Examines a range of the log.
    """

    def __init__(
        self, explain: Callable[[SourcePartition, int, int], tuple[list[tuple[int, int]], bool] | None]
    ) -> None:
        self._explain = explain
        self._partitions: dict[SourcePartition, _Waiting] = {}
        # a log that cannot be read delays an open transaction: it is skipped for a while, across attempts
        self._rests_until = float("-inf")

    def clear(self) -> None:
        """Forgets everything."""
        self._partitions.clear()

    def stop(self, source: SourcePartition) -> None:
        """Forgets a partition."""
        self._partitions.pop(source, None)

    def begin(self, source: SourcePartition) -> None:
        """Starts a partition whose log was never compacted."""
        self._partitions[source] = _Waiting()

    def examine(
        self, jumps: Iterable[tuple[SourcePartition, Iterable[tuple[int, int]]]], now: float
    ) -> dict[SourcePartition, tuple[tuple[tuple[int, int], ...], bool]]:
        """
        Examines the jumps that are due.

        Args:
            jumps: Of the transaction to commit, by partition.
            now: Seconds.

        Returns:
            By partition, if there is a finding: holes in order, and whether the log was compacted, in which case they
            mean nothing.
        """
        left = _MOST_AT_ONCE
        found: dict[SourcePartition, tuple[tuple[tuple[int, int], ...], bool]] = {}
        for source, more in jumps:
            waiting = self._partitions.get(source)
            if waiting is None:
                continue
            waiting.jumps = heapq.nlargest(_MOST, (*waiting.jumps, *more), key=lambda jump: jump[1] - jump[0])
            if not waiting.jumps or now < max(waiting.due, self._rests_until) or len(waiting.jumps) > left:
                continue
            left -= len(waiting.jumps)
            explained = self._explained(source, sorted(waiting.jumps))
            if explained is None:
                self._rests_until = now + _AGAIN_SECONDS
                continue
            holes, compacted = explained
            waiting.jumps, waiting.due = [], now + _AGAIN_SECONDS
            if compacted:
                del self._partitions[source]
            if holes or compacted:
                found[source] = (tuple(holes), compacted)
        return found

    def _explained(
        self, source: SourcePartition, jumps: Iterable[tuple[int, int]]
    ) -> tuple[list[tuple[int, int]], bool] | None:
        """Returns None when a range could not be looked at; the jumps are kept for the next look."""
        holes: list[tuple[int, int]] = []
        compacted = False
        for start, end in jumps:
            answer = self._explain(source, start, end)
            if answer is None:
                return None
            holes += answer[0]
            compacted = compacted or answer[1]
        return holes, compacted


_SECONDS = 5.0
_PAUSE_SECONDS = 0.01


def validate_epochs(consumer: Consumer, positions: Sequence[Any], clock: Clock) -> None:
    """
    Seeks every partition to its assigned offset, if its epoch is known.

    librdkafka validates an epoch when it learns of a leader, or on a seek.  A partition whose leader is known at
    assignment is fetched without validation (measured with 2.16): a log that was restored from an older one and then
    extended past the position would be mirrored from its middle (fault F19).

    Args:
        consumer: Partitions are assigned, and nothing was consumed yet.
        positions: TopicPartitions as assigned.

    Raises:
        TransactionFailedError: The client was not ready to seek in time; nothing may be fetched without validation.
    """
    deadline = Deadline(_SECONDS, clock)
    for position in positions:
        if position.leader_epoch is None:
            continue
        while True:
            try:
                consumer.seek(position)
            except KafkaException as raised:
                # the partition is assigned in the background, and cannot be sought before it is
                error: KafkaError = raised.args[0]
                if not deadline.passed:
                    clock.sleep(_PAUSE_SECONDS)
                    continue
                where = f"{position.topic}-{position.partition}"
                raise TransactionFailedError(
                    f"{where}: could not compare its leader epoch: {said(error)}"
                ) from raised
            break


#: Lookups per call; librdkafka searches the list of all its topics for each.
MAX_LOOKUPS = 500


class EndOffsets:
    """
    Tracks the ends of partitions.

    An end-of-partition event reports the end of a caught-up partition at no cost.  The others need a lookup, and
    librdkafka (2.16, `rd_kafka_get_watermark_offsets`) compares the name with those of all topics, one by one: with
    every partition in every call, ten times the topics take a hundred times as long.  So each call looks up
    `MAX_LOOKUPS` of them in turn, and repeats known ends of the rest.  With 10,000 lagging partitions, an end is at
    most twenty reports old.

    Args:
        lookup: Returns the end of a partition in its last fetch; None before the first.
    """

    def __init__(self, lookup: Callable[[SourcePartition], int | None]) -> None:
        self._lookup = lookup
        self._known: dict[SourcePartition, int] = {}
        self._turn: deque[SourcePartition] = deque()
        self._waiting: set[SourcePartition] = set()

    def ends(
        self, committed: Mapping[SourcePartition, int], events: Mapping[SourcePartition, int]
    ) -> dict[SourcePartition, int]:
        """
        Returns the known end of each partition.

        Args:
            committed: Position of each partition; an older end is ignored.
            events: Ends from end-of-partition events; an open transaction of the source may follow them.
        """
        found: dict[SourcePartition, int] = {}
        behind: dict[SourcePartition, int] = {}
        for source, offset in committed.items():
            end = events.get(source, -1)
            if end >= offset:
                found[source] = end
                continue
            behind[source] = offset
            if source not in self._waiting:
                self._waiting.add(source)
                self._turn.append(source)
        self._read(behind)
        for source, offset in behind.items():
            end = self._known.get(source, -1)
            if end >= offset:
                found[source] = end
        return found

    def _read(self, behind: Mapping[SourcePartition, int]) -> None:
        lookups = 0
        for _ in range(len(self._turn)):
            if lookups == MAX_LOOKUPS:
                return
            source = self._turn.popleft()
            if source not in behind:
                # caught up, or not ours any more
                self._waiting.discard(source)
                self._known.pop(source, None)
                continue
            lookups += 1
            self._turn.append(source)
            end = self._lookup(source)
            if end is not None:
                self._known[source] = end


@dataclass(frozen=True, slots=True)
class Expected:
    """
    A record that the next fetch must return first.

    Attributes:
        following: Offset of the first record to mirror.
    """

    mark: RecordMark
    following: int


class LastRecords:
    """Tracks the last mirrored record of each partition whose log was never compacted."""

    def __init__(self) -> None:
        self._known: dict[SourcePartition, RecordMark | None] = {}
        self._expected: dict[SourcePartition, Expected] = {}

    @property
    def expecting(self) -> bool:
        """Returns whether a record is to be compared."""
        return bool(self._expected)

    def clear(self) -> None:
        """Forgets everything."""
        self._known.clear()
        self._expected.clear()

    def stop(self, sources: Collection[SourcePartition]) -> None:
        """Forgets partitions."""
        for source in sources:
            self._known.pop(source, None)
            self._expected.pop(source, None)

    def begin(self, source: SourcePartition, mark: RecordMark | None, following: int) -> None:
        """Starts a partition that was never compacted from its last mirrored record, if known."""
        self._known[source] = mark
        if mark is not None:
            self._expected[source] = Expected(mark, following)

    def mirrored(self, source: SourcePartition, mark: RecordMark) -> None:
        """Records a later mirrored record."""
        if source in self._known:
            self._known[source] = mark

    def again(
        self, open_records: Mapping[SourcePartition, RecordMark], committed: Mapping[SourcePartition, int]
    ) -> Mapping[SourcePartition, Expected]:
        """
        Expects the last record of each partition again, because its log may have changed.

        Args:
            open_records: Last record of each partition in the open transaction.
            committed: Next offset of each partition that is committed or planned.

        Returns:
            Records to fetch again.
        """
        for source, known in self._known.items():
            mark = open_records.get(source, known)
            if mark is not None and is_near(mark.offset, committed.get(source, 0)):
                following = max(mark.offset + 1, committed.get(source, 0))
                before = self._expected.get(source)
                if before is not None:
                    following = max(following, before.following)
                self._expected[source] = Expected(mark, following)
        return dict(self._expected)

    def compare(self, messages: Sequence[Any]) -> tuple[list[Any], DataLossError | None]:
        """
        Removes records that were fetched again for comparison.

        Args:
            messages: As a Consumer returned them.

        Returns:
            The remaining messages; the error of a log that no longer holds the record, after which nothing counts.
        """
        kept: list[Any] = []
        for message in messages:
            source = SourcePartition(message.topic(), message.partition())
            expected = self._expected.get(source)
            if expected is None:
                kept.append(message)
                continue
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                kept.append(message)
                continue
            mark = expected.mark
            if error is None and message.offset() == mark.offset:
                found = digest_behind(mark.before, message)
                if found != mark.after:
                    return kept, changed_error(
                        source, f"record {mark.offset} has digest {found}, where {mark.after} was mirrored"
                    )
                self._expected[source] = Expected(mark._replace(offset=-1), expected.following)
                continue
            if message.offset() < expected.following:
                continue
            if mark.offset >= 0:
                return kept, changed_error(
                    source, f"there is no record at offset {mark.offset}, where one was mirrored"
                )
            del self._expected[source]
            kept.append(message)
        return kept, None


class LogComparison:
    """
    Compares the source's log with the positions: last mirrored records, and holes at jumps of offsets.

    Args:
        policies: Reads ``cleanup.policy`` of source topics; None to compare nothing.
        explain: Reads the batches of a range of the log; None to ignore holes.

    Attributes:
        last_records: Last mirrored record of each partition.
    """

    def __init__(
        self,
        policies: Callable[[Sequence[str]], Mapping[str, str | None]] | None,
        explain: Callable[[SourcePartition, int, int], tuple[list[tuple[int, int]], bool] | None] | None,
    ) -> None:
        self.last_records = LastRecords()
        self._policies = policies
        self._jumps = None if explain is None else OffsetGaps(explain)
        self._histories: dict[SourcePartition, History] = {}

    def clear(self) -> None:
        """Forgets everything."""
        self.last_records.clear()
        self._histories.clear()
        if self._jumps is not None:
            self._jumps.clear()

    def stop(self, sources: Collection[SourcePartition]) -> None:
        """Forgets partitions."""
        self.last_records.stop(sources)
        for source in sources:
            self._histories.pop(source, None)
            if self._jumps is not None:
                self._jumps.stop(source)

    def begin(self, start: Start) -> None:
        """Starts a partition; a log that was compacted is not compared."""
        if start.history.holes is Holes.COUNT or self._policies is None:
            return
        self.last_records.begin(start.source, start.history.record, start.offset)
        self._histories[start.source] = start.history
        if self._jumps is not None:
            self._jumps.begin(start.source)

    def explain(
        self,
        accounts: Sequence[Any],
        committed: Mapping[SourcePartition, int],
        advances: dict[SourcePartition, Advance],
        now: float,
    ) -> None:
        """Adds holes in the source's logs at jumps of offsets to ``advances`` (EO-6)."""
        if self._jumps is None:
            return
        jumps = (
            (
                source := SourcePartition(account.source_topic, account.source_partition),
                _jumps(account, committed[source]),
            )
            for account in accounts
        )
        for source, (holes, compacted) in self._jumps.examine(jumps, now).items():
            history, advance = self._histories[source], advances[source]
            if compacted or self._is_compacting(source.topic):
                advances[source] = replace(advance, seen=replace(advance.seen, compacted=True))
                continue
            if history.holes is Holes.STOP:
                raise hole_error(source, *holes[0])
            missing = history.missing + sum(end - start for start, end in holes)
            self._histories[source] = replace(history, missing=missing)
            advances[source] = replace(advance, seen=replace(advance.seen, missing=missing, holes=holes))

    def compare(self, messages: list[Any]) -> list[Any]:
        """Compares the last mirrored records with the log (EO-5), and returns the other messages."""
        if not self.last_records.expecting:
            return messages
        messages, changed = self.last_records.compare(messages)
        if changed is not None:
            if self._is_compacting(changed.topic):
                # since the policy was read: the next attempt reads it again, and compares nothing
                raise TransactionFailedError(f"{changed.message}, and the topic is compacted now")
            raise changed
        return messages

    def fetch_again(
        self,
        messages: list[Any],
        consumer: Consumer,
        *,
        tails: Iterable[tuple[str, int, tuple[int, str, str]]],
        planned: Mapping[SourcePartition, int],
    ) -> list[Any]:
        """
        Seeks to the last mirrored records; drops messages of those partitions, which will be fetched again.

        Args:
            messages: Messages of the last consume.
            consumer: Consumer of the source.
            tails: Last record of each partition in the open transaction.
            planned: Next offset of each partition that is committed or planned.
        """
        marks = {SourcePartition(topic, partition): RecordMark(*tail) for topic, partition, tail in tails}
        expected = self.last_records.again(marks, planned)
        try:
            for source, one in expected.items():
                consumer.seek(TopicPartition(*source, one.mark.offset))
        except KafkaException as raised:
            raise TransactionFailedError(
                f"could not fetch the last mirrored records again: {raised.args[0].str()}"
            ) from raised
        return [
            message
            for message in messages
            if SourcePartition(message.topic(), message.partition()) not in expected
            # an end of partition from before the seek proves nothing; it comes again behind the record
            or (message.error() is not None and message.error().code() != KafkaError._PARTITION_EOF)
        ]

    def _is_compacting(self, topic: str) -> bool:
        policies = {} if self._policies is None else self._policies([topic])
        return is_compacting(policies.get(topic, "compact"))


def _jumps(account: Any, committed: int) -> list[tuple[int, int]]:
    """Returns the offset ranges without a record in a transaction, from the committed position on."""
    first = account.first_source_offset
    return [*([(committed, first)] if first > committed else []), *account.jumps]
