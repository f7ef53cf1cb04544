"""
Reads the orphans of a promotion: source records beyond the cut, which have no copy.

A range may be of any size; progress is told.  Retention on the old source does not wait.  Offsets that it has deleted
are named, and nothing is done until the caller accepts that they are lost.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, Protocol

from eomirror.errors import DataLossError, NotReadyError, TopicError, UnreachableError
from eomirror.failover.copied_records import CopiedRecords, headers_of
from eomirror.failover.facts import control_of
from eomirror.failover.open_transactions import await_ended, open_transactions
from eomirror.failover.promoted_link import begins, merged
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.errors import Action
from eomirror.kafka.log_ends import existing_ends, existing_starts
from eomirror.kafka.partition_reader import GONE, PartitionReader
from eomirror.kafka.session import ClusterSession
from eomirror.link.copy_ends import CopyEnds
from eomirror.link.source_comparison import changed_ends, changed_sources
from eomirror.link.state import LinkState
from eomirror.plane.protocol import BatchMark
from eomirror.records.dealt_ranges import rest

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link
    from eomirror.failover.open_transactions import OpenTransaction
    from eomirror.kafka.session import LinkSessions
    from eomirror.link.source_comparison import ChangedSource
    from eomirror.records.control import ControlView
    from eomirror.records.dealt_ranges import DealtRange, DealtRanges
    from eomirror.records.position import Position
    from eomirror.records.promotion import Promotion, Reversal
    from eomirror.recovery.copy_end import CopyEnd
    from eomirror.types import SourcePartition

    Headers = list[tuple[str, bytes | None]]

__all__ = [
    "ForeignRecords",
    "OrphanRange",
    "OrphanSink",
    "Reading",
    "Standing",
    "count_orphans",
    "foreign_records",
    "later_ends",
    "log_starts",
    "lost_error",
    "named",
    "orphan_ranges",
    "refuse_forgotten",
    "standing",
    "undecided",
    "way_back",
    "write_orphans",
]

# Without a record: a broker skips over aborted records, which no client shows.
_STALL_SECONDS = 300.0
# Without a record: an open transaction is looked for.
_HELD_SECONDS = 5.0
_TELL_SECONDS = 5.0
_SHOWN = 5


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """
    State of the orphans of a promotion, as far as both logs still show what was done with them.

    Attributes:
        dealt: What restorations have dealt with: the source still holds that, and the copies what was merged.
        reached: Offset up to which a merge has mirrored, and both logs hold that; of partitions in which one has.
        short: Of these, offsets before which the copy has lost its end, and that the offset map proves.
        lost: Partitions whose source does not hold any more what was merged: the copies alone have that, and the link
            back would drop it as its own.
    """

    dealt: DealtRanges
    reached: Mapping[SourcePartition, int]
    short: Mapping[SourcePartition, int]
    lost: Mapping[SourcePartition, ChangedSource]


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
    names = [f"{each.source} [{each.start}, {each.end})" for each in ranges]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def orphan_ranges(
    promotion: Promotion,
    ends: Mapping[SourcePartition, int],
    starts: Mapping[SourcePartition, int] | None = None,
) -> list[OrphanRange]:
    """
    Returns the ranges that may hold orphans, sorted; empty ones are left out.

    Args:
        promotion: The promotion.
        ends: End of each source partition; one without a cut was never mirrored, and is an orphan as a whole.
        starts: Log start of partitions without a cut; 0 by default.
    """
    cuts = {cut.source: cut.position for cut in promotion.cuts}
    begin = {source: cuts.get(source, (starts or {}).get(source, 0)) for source in ends}
    return [
        OrphanRange(source=source, start=begin[source], end=end, target=promotion.target_cluster_id)
        for source, end in sorted(ends.items())
        if end > begin[source]
    ]


def undecided(
    ranges: Sequence[OrphanRange], dealt: DealtRanges, *, by: Collection[str] | None = None
) -> list[OrphanRange]:
    """
    Returns what is left of ranges that may hold orphans without what restorations have dealt with.

    Args:
        ranges: As of `orphan_ranges`.
        dealt: What was dealt with (`PromotionHistory.dealt`).
        by: Actions that count; None for all.
    """
    return [
        replace(each, start=start, end=end)
        for each in ranges
        for start, end in rest(each.start, each.end, dealt.get(each.source, ()), by)
    ]


def standing(link: Link, sessions: LinkSessions, control: ControlView, promotion: Promotion) -> Standing:
    """
    Returns what was done with the orphans of a promotion, as far as the logs of both sides still show it.

    A log that has lost its end, and was perhaps written on, holds other records at the same offsets: about them nothing
    was decided.  A copy that has lost merged orphans does not have them.

    Args:
        link: The promoted link.
        sessions: Connections to its clusters.
        control: Its control topic.
        promotion: A promotion; what was merged after one from which the link has returned is mirrored, as all else.

    Raises:
        StateError: Its state topics are not readable.
        ClusterError: A cluster does not answer.
    """
    cuts = {cut.source: cut.position for cut in promotion.cuts}
    there = []
    again: dict[SourcePartition, int] = {}
    if promotion is control.history.current:
        positions = LinkState(link, sessions.target).positions(wait_for_open=False, overruled=())
        again = merged(promotion, positions)
        there = [
            positions[source] for source, offset in sorted(again.items()) if offset > cuts.get(source, 0)
        ]
    changed = changed_sources(link, sessions.source, there)
    reached, short = {}, {}
    for source, end in _copies(link, sessions, control, there).items():
        # Nothing proves how far a copy goes that is not whole, and of which the map does not tell.
        reached[source] = end.offset if end.proven else cuts.get(source, 0)
        if end.problem and end.proven and source not in changed:
            short[source] = end.offset
    dealt = control.history.dealt(promotion.number)
    gone = _changed_since(link, sessions.source, promotion, dealt)
    found = {}
    for source, some in dealt.items():
        # A restoration that was to merge once more what a copy has lost, and was killed, has set the position back.
        until = 0 if source in changed else reached.get(source, again.get(source))
        ranges = [
            replace(one, end=min(one.end, until)) if one.action == "merge" and until is not None else one
            for one in some
            if (source, one) not in gone
        ]
        found[source] = tuple(one for one in ranges if one.start < one.end)
    return Standing(
        dealt=found,
        reached={source: offset for source, offset in reached.items() if source not in changed},
        short=short,
        # Retention, and topics that were deleted, are judged where their orphans are dealt with.
        lost={source: each for source, each in changed.items() if each.parts},
    )


def _copies(
    link: Link, sessions: LinkSessions, control: ControlView, positions: Sequence[Position]
) -> Mapping[SourcePartition, CopyEnd]:
    if not positions or control.generation is None:
        return {}
    return CopyEnds(link, sessions.target).read(positions, highest_lane=control.generation.highest_lane)


def _changed_since(
    link: Link, source: ClusterSession, promotion: Promotion, dealt: DealtRanges
) -> set[tuple[SourcePartition, DealtRange]]:
    """Returns what was exported or kept of logs that have lost it since, or hold other records there."""
    ids = {cut.topic: cut.topic_id for cut in promotion.cuts}
    topics = source.admin.describe_topics(sorted({where.topic for where in dealt})) if dealt else {}
    asked = [
        (where, one)
        for where, some in dealt.items()
        # of a topic that was deleted on purpose nothing is to be compared
        if (facts := topics[where.topic]) is not None
        and ids.get(where.topic, facts.topic_id) == facts.topic_id
        for one in some
        if one.action != "merge"
    ]
    gone = set()
    # One range of each partition at a time.
    while asked:
        now = dict(asked)
        ends = {where: (one.end, one.mark and BatchMark(*one.mark)) for where, one in now.items()}
        gone |= {(where, now[where]) for where in changed_ends(link, source, ends)}
        asked = [(where, one) for where, one in asked if now[where] is not one]
    return gone


def way_back(back: Link, target: ClusterSession) -> tuple[bool, Mapping[SourcePartition, int] | None]:
    """
    Returns whether a link back marks what it writes, and the ends of its copies at its promotion, if it is promoted.

    Args:
        target: Connections to the old source, which it writes to.

    Raises:
        StateError: Its state topics are not readable.
        ClusterError: The old source does not answer.
    """
    control = control_of(back, target)
    if control.generation is None:
        return True, None
    positions = LinkState(back, target).positions(wait_for_open=False, overruled=())
    current = control.history.current
    return (
        all(one.header for one in positions.values()),
        None if current is None else begins(current),
    )


def later_ends(
    reversal: Reversal, now: Mapping[SourcePartition, int], returned: Mapping[SourcePartition, int] | None
) -> dict[SourcePartition, int]:
    """
    Returns the offsets behind which nothing is an orphan, of a link back that marks what it writes.

    A record without a mark was written by an application that was not stopped.  What the link back had not written when
    it was promoted was written rightly.

    Args:
        now: Ends of the logs.
        returned: Ends of its copies at its promotion; None as long as it is not promoted.
    """
    bounds = returned or {}
    return {
        source: max(end, min(now.get(source, 0), bounds.get(source, now.get(source, 0))))
        for source, end in reversal.ends.items()
    }


def _ends_now(
    back: Link, cluster: Cluster, reversal: Reversal, *, client_id: str, clock: Clock
) -> Mapping[SourcePartition, int]:
    with closing(ClusterSession(cluster, client_id=client_id, clock=clock)) as session:
        marks, returned = way_back(back, session)
        if not marks:
            return reversal.ends
        now = existing_ends(
            session.admin,
            sorted(reversal.ends),
            read_committed=False,
            passing=(TopicError,),
        )
    return later_ends(reversal, {source: now[source] for source in reversal.ends if source in now}, returned)


def refuse_forgotten(
    link: Link,
    sessions: LinkSessions,
    control: ControlView,
    *,
    client_id: str,
    clock: Clock,
    back: Link | None = None,
) -> None:
    """
    Refuses to let a promoted link mirror again while nothing was decided about some of its orphans.

    From then on the link begins behind them: they would stay on the old source alone, and no command would find them.
    Those that were merged, and that the source has lost since, would stay on the copies alone.

    Args:
        link: The promoted link.
        sessions: Connections to its clusters.
        control: Its control topic.
        back: The link back: with it, records that it has not written behind the reversal are orphans too.

    Raises:
        NotReadyError: There are orphans with which no `eomirror restore` has dealt, or that are lost.
        StateError: Its state topics are not readable.
        ClusterError: A cluster cannot be read.
    """
    history = control.history
    promotion = history.current
    if promotion is None or (reversal := history.reversals.get(promotion.number)) is None:
        return
    cluster = sessions.source.cluster
    found = standing(link, sessions, control, promotion)
    if found.lost:
        name = quote(link.name)
        raise NotReadyError(
            f"link {link.name}: orphans were merged, and {link.source} has lost them since, so that the copies alone "
            f"hold them: {'; '.join(map(str, list(found.lost.values())[:_SHOWN]))}",
            fix=f"restore the logs of {link.source} and repeat this; or, as long as the link back mirrors, `eomirror "
            f"restore CONFIG --link {name} --orphans export` keeps what else stands there, and then `eomirror restore "
            f"CONFIG --link {name} --orphans recreate` copies the topics back whole",
        )
    ends = (
        reversal.ends
        if back is None
        else _ends_now(back, cluster, reversal, client_id=client_id, clock=clock)
    )
    ranges = undecided(orphan_ranges(promotion, ends), found.dealt)
    if not ranges:
        return
    reading = Reading(accept_lost=True, wait=False)
    counts = count_orphans(cluster, ranges, client_id=client_id, clock=clock, reading=reading)
    count = sum(counts.values())
    if reading.open and not count:
        now_ms = clock.wall_ms()
        raise NotReadyError(
            f"link {link.name}: records of {link.source} that never reached the copies may stand behind open "
            f"transactions: {'; '.join(one.described(now_ms) for one in reading.open[:_SHOWN])}",
            fix=f"wait until they end, or {reading.open[0].way_on(cluster)}; then repeat this",
        )
    if count or reading.lost:
        where = [
            OrphanRange(source=source, start=start, end=end)
            for source, (start, end) in sorted(reading.seen.items())
        ]
        deleted = sum(each.end - each.start for each in reading.lost)
        gone = f"; up to {deleted} more were deleted there meanwhile" if deleted else ""
        raise NotReadyError(
            f"link {link.name}: {count} records of {link.source} never reached the copies, and would be left behind"
            f"{gone}: {named(where or reading.lost)}",
            fix=f"decide about them first: `eomirror restore CONFIG --link {quote(link.name)} --orphans "
            "merge|export|keep`",
        )


def count_orphans(
    cluster: Cluster,
    ranges: Sequence[OrphanRange],
    *,
    client_id: str,
    clock: Clock,
    reading: Reading | None = None,
) -> dict[SourcePartition, int]:
    """
    Returns the number of committed records in each range.

    Args:
        cluster: The old source.
        ranges: Ranges of it.
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

    _read(cluster, ranges, take, {}, reading, client_id=client_id, clock=clock)
    return found


def foreign_records(
    cluster: Cluster,
    ranges: Sequence[OrphanRange],
    *,
    client_id: str,
    clock: Clock,
    tell: Callable[[str], None] | None = None,
) -> list[ForeignRecords]:
    """
    Returns the committed records in ranges that no link has brought from the cluster that each range names.

    What retention has deleted is passed over.

    Raises:
        ClusterError: The cluster cannot be read.
    """
    reading = Reading(accept_lost=True, tell=tell)
    counts = count_orphans(cluster, ranges, client_id=client_id, clock=clock, reading=reading)
    return [
        ForeignRecords(source=source, start=start, end=end, records=counts[source])
        for source, (start, end) in sorted(reading.seen.items())
    ]


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


def write_orphans(
    cluster: Cluster,
    ranges: Sequence[OrphanRange],
    sink: OrphanSink,
    *,
    client_id: str,
    clock: Clock,
    reading: Reading | None = None,
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
        begins = sink.resume(ranges, found)
        _read(cluster, ranges, take, begins, reading, client_id=client_id, clock=clock)
        sink.finish()
    return found


def _read(
    cluster: Cluster,
    ranges: Sequence[OrphanRange],
    take: Callable[[SourcePartition, Any], None],
    begins: Mapping[SourcePartition, int],
    reading: Reading,
    *,
    client_id: str,
    clock: Clock,
) -> None:
    """Reads one partition after the other: the end of a range may be a marker, which no client shows."""
    copied = CopiedRecords(cluster, client_id=client_id)
    with (
        closing(PartitionReader(cluster, client_id=client_id, clock=clock)) as reader,
        closing(ClusterAdmin(cluster, client_id=client_id, clock=clock)) as admin,
    ):
        reader.connect(sorted({each.source.topic for each in ranges}))
        left = sorted(
            (replace(each, start=max(each.start, begins.get(each.source, each.start))) for each in ranges),
            key=lambda each: each.source,
        )
        left = [each for each in left if each.start < each.end]
        left = reading.without_lost(left, log_starts(admin, left))
        reading.begin(left, clock.monotonic())
        while left:
            each = left.pop(0)
            is_copied = copied.judge(each.source, each.end, each.target)
            waits = _Waits(cluster, admin, client_id, clock)
            at = _read_one(reader, each, _without(is_copied, take), reading, waits)
            if at < each.end:
                # Retention has passed us meanwhile.
                rest = replace(each, start=at)
                left[:0] = again = reading.without_lost([rest], log_starts(admin, [rest]))
                if again and again[0].start == at:
                    raise UnreachableError(
                        f"{each.source} on {cluster.alias} ends before offset {each.end}: its log was truncated",
                        fix="restore the topic, or leave its orphans out: `exclude` it from the link",
                    )
        reading.emitted_again += copied.emitted_again


def _without(
    is_copied: Callable[[Any], bool], take: Callable[[SourcePartition, Any], None]
) -> Callable[[SourcePartition, Any], None]:
    """Returns ``take`` for the records that no link has copied."""

    def taken(where: SourcePartition, message: Any) -> None:
        if not is_copied(message):
            take(where, message)

    return taken


@dataclass(frozen=True, slots=True)
class _Waits:
    """Finds open transactions, and waits for their end."""

    cluster: Cluster
    admin: ClusterAdmin
    client_id: str
    clock: Clock

    def passed(self, each: OrphanRange, reading: Reading) -> bool:
        """Returns False if an open transaction holds back the end of a range and is not waited for."""
        ends = {each.source: each.end}
        if reading.wait:
            await_ended(
                self.cluster, self.admin, ends, client_id=self.client_id, clock=self.clock, tell=reading.tell
            )
            return True
        found = open_transactions(self.cluster, self.admin, ends, client_id=self.client_id)
        reading.open += found
        return not found


def _read_one(
    reader: PartitionReader,
    each: OrphanRange,
    take: Callable[[SourcePartition, Any], None],
    reading: Reading,
    waits: _Waits,
) -> int:
    """Reads one range; returns its end, or the offset at which the log does not go on."""
    at, clock = each.start, waits.clock

    def taken(_: object, message: Any) -> None:
        nonlocal at
        at = message.offset() + 1
        take(each.source, message)
        reading.advance(each.source, at, clock.monotonic())

    unread = reader.read(
        {each.source: (at, each.end)}, taken, stall=_HELD_SECONDS, passing=GONE, partial=True
    )
    if unread and unread[each.source] is Action.UNREACHABLE and waits.passed(each, reading):
        # aborted records, or a slow broker
        unread = reader.read({each.source: (at, each.end)}, taken, stall=_STALL_SECONDS, passing=GONE)
    elif unread and unread[each.source] is Action.UNREACHABLE:
        return each.end
    if unread:
        return at
    reading.advance(each.source, each.end, clock.monotonic())
    return each.end


def log_starts(admin: ClusterAdmin, ranges: Sequence[OrphanRange]) -> dict[SourcePartition, int | None]:
    """Returns the log start of the partition of each range; None if the partition does not exist any more."""
    wanted = [each.source for each in ranges]
    found = existing_starts(admin, wanted, passing=(TopicError,))
    return {source: found.get(source) for source in wanted}
