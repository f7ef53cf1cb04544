"""
Reads and counts the orphans of a promotion, without what a link has brought: that has a copy.

A range may be of any size; progress is told.  Retention on the old source does not wait.  Offsets that it has deleted
are named, and nothing is done until the caller accepts that they are lost.

Tells which records of an old source a link back has written: they are no orphans.

Their header says so, and the mark proves it: the header names the producer of its batch (docs/adr/0017).  An
application that emits a record again, with the header of another, writes a record of its own.  The loop guard of the
native plane decides by the same function, so what is counted here is what a merge mirrors.
"""

from __future__ import annotations

from bisect import bisect_right
from contextlib import closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from eomirror._native import last_hop
from eomirror.config.rights import Right, account_of
from eomirror.config.rights import named as named_right
from eomirror.errors import (
    AuthorizationError,
    ClusterError,
    DataLossError,
    TopicError,
    UnreachableError,
    some,
)
from eomirror.failover.open_transactions import await_ended, open_transactions
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.errors import Action
from eomirror.kafka.log_ends import existing_starts
from eomirror.kafka.partition_reader import GONE, PartitionReader
from eomirror.records.names import HOPS_HEADER
from eomirror.recovery.hanging_client import extension_client

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Cluster
    from eomirror.failover.open_transactions import OpenTransaction
    from eomirror.types import SourcePartition

    Headers = list[tuple[str, bytes | None]]

    from eomirror._native import HangingTransactionClient

__all__ = [
    "CopiedRecords",
    "ForeignRecords",
    "OrphanRange",
    "OrphanReader",
    "OrphanSink",
    "Reading",
    "headers_of",
    "log_starts",
    "lost_error",
    "named",
]

log = structlog.get_logger(__name__)

# Without a record: a broker skips over aborted records, which no client shows.
_STALL_SECONDS = 300.0
# Without a record: an open transaction is looked for.
_HELD_SECONDS = 5.0
_TELL_SECONDS = 5.0
# Offsets that one request covers at most, and how long it may take.
_OFFSETS = 200_000
_SECONDS = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRange:
    """
    Source offsets of one partition that never reached its copy.

    Attributes:
        source: Source partition.
        start: First offset: the position at the cut.
        end: Offset behind the last; markers and aborted records count.
        target: Id of the target cluster: records that a link back has brought from there are no orphans.
    """

    source: SourcePartition
    start: int
    end: int
    target: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignRecords:
    """
    Committed records of one partition that the link which writes there did not write.

    Attributes:
        source: The partition.
        start: Offset of the first.
        end: Offset behind the last.
        records: Their number.
    """

    source: SourcePartition
    start: int
    end: int
    records: int

    def __str__(self) -> str:
        return f"{self.source} [{self.start}, {self.end}): {self.records}"


@dataclass(slots=True)
class Reading:
    """
    Progress of reading orphans, and what can no longer be read.

    Args:
        accept_lost: Go on although retention has passed orphans; else that is an error.
        tell: Receives a short text every few seconds.
        wait: Wait for open transactions to end; else read up to them, and note them.

    Attributes:
        emitted_again: Records that applications wrote with the header of a copy.
        lost: Ranges that are not in the log any more.
        unreadable_headers: Records that were written without their headers.
        seen: Offset of the first record that was counted in each partition, and the one behind the last.
        open: Open transactions that hold back the end of a range, which was read up to there.
    """

    accept_lost: bool = False
    tell: Callable[[str], None] | None = None
    wait: bool = True
    emitted_again: int = 0
    lost: list[OrphanRange] = field(default_factory=list)
    unreadable_headers: int = 0
    seen: dict[SourcePartition, tuple[int, int]] = field(default_factory=dict)
    open: list[OpenTransaction] = field(default_factory=list)
    _left: dict[SourcePartition, int] = field(default_factory=dict)
    _ends: dict[SourcePartition, int] = field(default_factory=dict)
    _said_at: float = 0.0

    def without_lost(
        self, ranges: Sequence[OrphanRange], starts: Mapping[SourcePartition, int | None]
    ) -> list[OrphanRange]:
        """
        Returns what is left of ranges, and notes what is lost.

        Args:
            ranges: Ranges.
            starts: Log starts of their partitions; None for one that does not exist any more.

        Raises:
            DataLossError: Something is lost, and that is not accepted.
        """
        left, lost = [], []
        for each in ranges:
            start = starts[each.source]
            begin = each.end if start is None else min(max(each.start, start), each.end)
            if begin > each.start:
                lost.append(replace(each, end=begin))
            if begin < each.end:
                left.append(replace(each, start=begin))
        if lost and not self.accept_lost:
            raise lost_error(lost)
        self.lost += lost
        return left

    def begin(self, ranges: Sequence[OrphanRange], now: float) -> None:
        """Begins to read ranges."""
        self._ends = {each.source: each.end for each in ranges}
        self._left = {each.source: each.end - each.start for each in ranges}
        self._said_at = now

    def advance(self, source: SourcePartition, at: int, now: float) -> None:
        """Notes the next offset of a partition."""
        self._left[source] = self._ends[source] - at
        if self.tell is not None and now - self._said_at >= _TELL_SECONDS:
            self._said_at = now
            self.tell(f"{sum(self._left.values())} source offsets are left to read")


def lost_error(lost: Sequence[OrphanRange]) -> DataLossError:
    """Returns the error that names orphans which retention has deleted."""
    return DataLossError(
        f"orphans were deleted on the old source, by retention or with their topic: {named(lost)}",
        fix="to go on with the others: --accept-lost; raise retention.ms of the topics first, so that no more are lost",
    )


def named(ranges: Sequence[OrphanRange]) -> str:
    """Returns the first of some ranges, by partition and offsets."""
    return some([f"{each.source} [{each.start}, {each.end})" for each in ranges], most=5)


class OrphanSink(Protocol):
    """Place that orphans are exported to."""

    def resume(
        self, ranges: Sequence[OrphanRange], found: dict[SourcePartition, int]
    ) -> Mapping[SourcePartition, int]:
        """
        Continues what a killed call began.

        Args:
            ranges: Ranges to export, in any order.
            found: Receives the number of records of each that are there already.

        Returns:
            The next offset to export, of ranges that were begun.
        """

    def write(self, where: SourcePartition, message: Any, headers: Headers | None) -> None:
        """Takes the next record; ``headers`` is None if they cannot be shown."""

    def finish(self) -> None:
        """Returns when all records are kept."""

    def close(self) -> None:
        """Releases what is open; without `finish`, a later call continues."""


@dataclass(frozen=True, slots=True)
class OrphanReader:
    """
    Reads committed records of an old source, without those that a link has copied there.

    Args:
        cluster: The old source.
        client_id: Client id that its brokers see.
    """

    cluster: Cluster
    client_id: str
    clock: Clock

    def count(
        self, ranges: Sequence[OrphanRange], reading: Reading | None = None
    ) -> dict[SourcePartition, int]:
        """
        Returns the number of committed records in each range.

        Args:
            reading: Receives the progress, and what is lost.

        Raises:
            DataLossError: Retention has passed a record, and ``reading`` does not accept that.
            ClusterError: The cluster cannot be read.
        """
        found = {each.source: 0 for each in ranges}
        reading = reading or Reading()
        seen = reading.seen

        def take(where: SourcePartition, message: Any) -> None:
            found[where] += 1
            at = message.offset()
            seen[where] = seen.get(where, (at, at))[0], at + 1

        self._read(ranges, take, {}, reading)
        return found

    def foreign(self, ranges: Sequence[OrphanRange]) -> list[ForeignRecords]:
        """
        Returns the committed records in ranges that no link has brought from the cluster that each range names.

        What retention has deleted is passed over.

        Raises:
            ClusterError: The cluster cannot be read.
        """
        reading = Reading(accept_lost=True)
        counts = self.count(ranges, reading)
        return [
            ForeignRecords(source=source, start=start, end=end, records=counts[source])
            for source, (start, end) in sorted(reading.seen.items())
        ]

    def write(
        self, ranges: Sequence[OrphanRange], sink: OrphanSink, reading: Reading | None = None
    ) -> dict[SourcePartition, int]:
        """
        Exports the committed records of the ranges; a killed call is resumed.

        Returns:
            Number of records in the sink, of each range.

        Raises:
            DataLossError: Retention has passed a record, and ``reading`` does not accept that.
            ClusterError: A cluster cannot be read, or written.
            OSError: A file cannot be written.
        """
        reading = reading or Reading()
        found = {each.source: 0 for each in ranges}

        def take(where: SourcePartition, message: Any) -> None:
            found[where] += 1
            headers = headers_of(message)
            if headers is None:
                reading.unreadable_headers += 1
            sink.write(where, message, headers)

        with closing(sink):
            self._read(ranges, take, sink.resume(ranges, found), reading)
            sink.finish()
        return found

    def _read(
        self,
        ranges: Sequence[OrphanRange],
        take: Callable[[SourcePartition, Any], None],
        begins: Mapping[SourcePartition, int],
        reading: Reading,
    ) -> None:
        """Reads one partition after the other: the end of a range may be a marker, which no client shows."""
        copied = CopiedRecords(self.cluster, client_id=self.client_id)
        with (
            closing(PartitionReader(self.cluster, client_id=self.client_id, clock=self.clock)) as reader,
            closing(ClusterAdmin(self.cluster, client_id=self.client_id, clock=self.clock)) as admin,
        ):
            reader.connect(sorted({each.source.topic for each in ranges}))
            left = sorted(
                (
                    replace(each, start=max(each.start, begins.get(each.source, each.start)))
                    for each in ranges
                ),
                key=lambda each: each.source,
            )
            left = [each for each in left if each.start < each.end]
            left = reading.without_lost(left, log_starts(admin, left))
            reading.begin(left, self.clock.monotonic())
            while left:
                each = left.pop(0)
                is_copied = copied.judge(each.source, each.end, each.target)

                def taken(where: SourcePartition, message: Any, copied: Any = is_copied) -> None:
                    if not copied(message):
                        take(where, message)

                at = self._read_one(reader, each, taken, reading, admin)
                if at < each.end:
                    # Retention has passed us meanwhile.
                    rest = replace(each, start=at)
                    left[:0] = again = reading.without_lost([rest], log_starts(admin, [rest]))
                    if again and again[0].start == at:
                        raise UnreachableError(
                            f"{each.source} on {self.cluster.alias} ends before offset {each.end}: its log was "
                            "truncated",
                            fix="restore the topic, or leave its orphans out: `exclude` it from the link",
                        )
            reading.emitted_again += copied.emitted_again

    def _read_one(
        self,
        reader: PartitionReader,
        each: OrphanRange,
        take: Callable[[SourcePartition, Any], None],
        reading: Reading,
        admin: ClusterAdmin,
    ) -> int:
        """Reads one range; returns its end, or the offset at which the log does not go on."""
        at = each.start

        def taken(_: object, message: Any) -> None:
            nonlocal at
            at = message.offset() + 1
            take(each.source, message)
            reading.advance(each.source, at, self.clock.monotonic())

        unread = reader.read(
            {each.source: (at, each.end)}, taken, stall=_HELD_SECONDS, passing=GONE, partial=True
        )
        if unread and unread[each.source] is Action.UNREACHABLE:
            if not self._passed(each, reading, admin):
                return each.end
            # aborted records, or a slow broker
            unread = reader.read({each.source: (at, each.end)}, taken, stall=_STALL_SECONDS, passing=GONE)
        if unread:
            return at
        reading.advance(each.source, each.end, self.clock.monotonic())
        return each.end

    def _passed(self, each: OrphanRange, reading: Reading, admin: ClusterAdmin) -> bool:
        """Returns False if an open transaction holds back the end of a range and is not waited for."""
        ends = {each.source: each.end}
        if reading.wait:
            await_ended(
                self.cluster, admin, ends, client_id=self.client_id, clock=self.clock, tell=reading.tell
            )
            return True
        found = open_transactions(self.cluster, admin, ends, client_id=self.client_id)
        reading.open += found
        return not found


def log_starts(admin: ClusterAdmin, ranges: Sequence[OrphanRange]) -> dict[SourcePartition, int | None]:
    """Returns the log start of the partition of each range; None if the partition does not exist any more."""
    wanted = [each.source for each in ranges]
    found = existing_starts(admin, wanted, passing=(TopicError,))
    return {source: found.get(source) for source in wanted}


class CopiedRecords:
    """
    Copies of another cluster's records among those of a cluster.

    Args:
        cluster: Cluster whose records are judged.
        client_id: Client id that its brokers see.

    Attributes:
        emitted_again: Records that claim to be copies, and are none.
    """

    def __init__(self, cluster: Cluster, *, client_id: str) -> None:
        self._cluster, self._client_id = cluster, client_id
        self._client: HangingTransactionClient | None = None
        self._unserved = False
        self.emitted_again = 0

    def judge(self, source: SourcePartition, end: int, origin: str) -> Callable[[Any], bool]:
        """
        Returns a function that returns True for a message that a link has copied from the cluster with that id.

        Args:
            source: Partition of the messages, which come in the order of its log.
            end: Offset behind the last of them.
            origin: Id of the other cluster; empty for no copies.
        """
        copied: Sequence[tuple[int, int]] = ()
        until = -1

        def is_copied(message: Any) -> bool:
            nonlocal copied, until
            claimed = _claimed_origin(message)
            if not origin or claimed not in {origin, None}:
                return False
            offset = message.offset()
            if offset >= until:
                asked = self._ask(source, (offset, min(end, offset + _OFFSETS)), origin)
                if asked is None or asked[1] <= offset:
                    # retention has passed the record meanwhile, or nothing but the header tells
                    return claimed == origin
                copied, until = asked
            at = bisect_right(copied, (offset, end)) - 1
            found = at >= 0 and offset < copied[at][1]
            self.emitted_again += claimed == origin and not found
            return found

        return is_copied

    def _ask(
        self, source: SourcePartition, offsets: tuple[int, int], origin: str
    ) -> tuple[Sequence[tuple[int, int]], int] | None:
        if self._unserved:
            return None
        try:
            if self._client is None:
                self._client = extension_client(self._cluster, self._client_id)
            return self._client.copied((source.topic, source.partition), offsets, origin, _SECONDS)
        except AuthorizationError as error:
            right = Right("Read", "topic", source.topic)
            raise named_right(error, account_of(self._cluster), rights=[right]) from None
        except UnreachableError:
            raise
        except ClusterError as error:
            log.warning(
                "copies_judged_by_header_alone",
                cluster=self._cluster.alias,
                reason=error.message,
                effect="a record that an application emitted again with the header of a copy is taken for the copy",
            )
            self._unserved = True
            return None


def headers_of(message: Any) -> list[tuple[str, bytes | None]] | None:
    """Returns the headers; None if the client cannot show them, because a name is not UTF-8."""
    try:
        return message.headers() or []
    except (SystemError, UnicodeDecodeError):
        return None


def _claimed_origin(message: Any) -> str | None:
    """Returns the cluster that a record's header says it was copied from; empty for none, None if it is not shown."""
    headers = headers_of(message)
    if headers is None:
        return None
    found = next((value for name, value in reversed(headers) if name == HOPS_HEADER), None)
    return "" if found is None else last_hop(found, message.topic(), message.key(), message.value()) or ""
