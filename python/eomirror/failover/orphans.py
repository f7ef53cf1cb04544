"""
Finds the orphans of a promotion: source records beyond the cut, which have no copy.

`eomirror.failover.orphan_reader` reads them.  Here stands which ranges hold some, what was done about them, and which
are left: `verify` cannot compare these, and a link does not return before it is decided about them.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from shlex import quote
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import NotReadyError, TopicError
from eomirror.failover.orphan_reader import OrphanRange, OrphanReader, Reading, named
from eomirror.failover.promoted_link import begins, merged
from eomirror.kafka.log_ends import existing_ends
from eomirror.kafka.session import ClusterSession, link_sessions
from eomirror.link.copy_ends import CopyEnds
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.link.source_comparison import changed_ends, changed_sources
from eomirror.link.state import LinkState, control_of
from eomirror.plane.protocol import BatchMark
from eomirror.records.dealt_ranges import furthest, rest
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.failover.orphan_reader import ForeignRecords
    from eomirror.failover.promoted_link import PromotedLink
    from eomirror.kafka.session import LinkSessions
    from eomirror.link.source_comparison import ChangedSource
    from eomirror.records.control import ControlView
    from eomirror.records.dealt_ranges import DealtRange, DealtRanges
    from eomirror.records.position import Position
    from eomirror.records.promotion import Promotion, PromotionHistory, Reversal
    from eomirror.recovery.copy_end import CopyEnd
    from eomirror.types import SourcePartition

Headers = list[tuple[str, bytes | None]]

__all__ = [
    "LeftOrphans",
    "Standing",
    "foreign_between",
    "later_ends",
    "left_orphans",
    "orphan_ranges",
    "refuse_forgotten",
    "standing",
    "undecided",
    "way_back",
]

_SHOWN = 5


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


def _ends_now(back: Link, reader: OrphanReader, reversal: Reversal) -> Mapping[SourcePartition, int]:
    with closing(ClusterSession(reader.cluster, client_id=reader.client_id, clock=reader.clock)) as session:
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
    reader = OrphanReader(sessions.source.cluster, client_id, clock)
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
    ends = reversal.ends if back is None else _ends_now(back, reader, reversal)
    ranges = undecided(orphan_ranges(promotion, ends), found.dealt)
    if not ranges:
        return
    reading = Reading(accept_lost=True, wait=False)
    counts = reader.count(ranges, reading)
    count = sum(counts.values())
    if reading.open and not count:
        now_ms = clock.wall_ms()
        raise NotReadyError(
            f"link {link.name}: records of {link.source} that never reached the copies may stand behind open "
            f"transactions: {'; '.join(one.described(now_ms) for one in reading.open[:_SHOWN])}",
            fix=f"wait until they end, or {reading.open[0].way_on(reader.cluster)}; then repeat this",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOrphans:
    """
    Source offsets of one partition that a promotion does not cover.

    Attributes:
        number: Number of the promotion.
        topic: Source topic.
        start: First offset.
        end: Offset behind the last; markers count.
        records: Committed records in between that are still there.
        decided: ``export`` or ``keep``, as `eomirror restore` was asked; empty as long as nothing was decided.
        place: File or topic that holds exported orphans; empty for none.
    """

    number: int
    topic: str
    partition: int
    start: int
    end: int
    records: int
    decided: str
    place: str

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return asdict(self)


def left_orphans(
    config: Config, *, link: str | None = None, clock: Clock = SYSTEM_CLOCK
) -> tuple[LeftOrphans, ...]:
    """
    Returns the orphans of all promotions of a link, without those that were merged or deleted with their topics.

    A link that places records by key cannot be promoted, and has none.

    Args:
        link: Name of the link; required if there are several.

    Raises:
        StateError: A record in the link's topics is not readable.
        ClusterError: A cluster does not answer.
    """
    chosen = config.only_link(link)
    if chosen.keyed:
        return ()
    clusters = config.clusters[chosen.source], config.clusters[chosen.target]
    client_id = LinkNames(chosen.state_name).client_id("verify")
    with closing(link_sessions(chosen, *clusters, "verify", clock=clock)) as sessions:
        control = control_of(chosen, sessions.target)
        found = [
            (promotion, *each)
            for _, promotion in sorted(control.history.promotions.items())
            for each in _ranges(chosen, control, promotion, sessions)
        ]
    # One call for each range: two promotions may have left some in one partition.
    reader = OrphanReader(clusters[0], client_id, clock)
    counts = [sum(reader.count([each], Reading(accept_lost=True)).values()) for _, each, _ in found]
    return tuple(
        LeftOrphans(
            number=promotion.number,
            topic=each.source.topic,
            partition=each.source.partition,
            start=each.start,
            end=each.end,
            records=count,
            decided="" if done is None else done.action,
            place="" if done is None else done.place,
        )
        for (promotion, each, done), count in zip(found, counts, strict=True)
        if count
    )


def _ranges(
    link: Link, control: ControlView, promotion: Promotion, sessions: LinkSessions
) -> Iterator[tuple[OrphanRange, DealtRange | None]]:
    """
    Yields the ranges of one promotion that may hold orphans, and what was done about each; merged ones are left out.

    Until its reversal they end where the logs end.
    """
    history = control.history
    reversal = history.reversals.get(promotion.number)
    dealt = standing(link, sessions, control, promotion).dealt
    topics = {cut.topic: cut.topic_id for cut in promotion.cuts}
    there = sessions.source.admin.describe_topics(sorted(topics))
    # A topic with another id is another topic: a recreation, or the user, has deleted the orphans.
    same = {name for name, facts in there.items() if facts is not None and facts.topic_id == topics[name]}
    if reversal is not None:
        ends = {
            source: furthest(end, dealt.get(source, ()))
            for source, end in reversal.ends.items()
            if source.topic in same
        }
    elif promotion is history.current:
        wanted = [cut.source for cut in promotion.cuts if cut.topic in same]
        found = existing_ends(sessions.source.admin, wanted, read_committed=True)
        ends = {source: found[source] for source in wanted if source in found}
    else:
        return
    for each in undecided(orphan_ranges(promotion, ends), dealt, by={"merge"}):
        yield from decided(each, dealt.get(each.source, ()))


def decided(
    each: OrphanRange, dealt: Sequence[DealtRange]
) -> Iterator[tuple[OrphanRange, DealtRange | None]]:
    """Yields the parts of a range by what was done last about them, ascending; None for nothing."""
    edges = {each.start, each.end, *(edge for one in dealt for edge in (one.start, one.end))}
    inside = sorted(edge for edge in edges if each.start <= edge <= each.end)
    # What was exported stays exported.
    order = sorted(dealt, key=lambda one: one.action == "export")
    parts: list[tuple[OrphanRange, DealtRange | None]] = []
    for start, end in pairwise(inside):
        done = next((one for one in reversed(order) if one.start <= start and end <= one.end), None)
        if parts and parts[-1][1] is done:
            parts[-1] = replace(parts[-1][0], end=end), done
        else:
            parts.append((replace(each, start=start, end=end), done))
    yield from parts


def foreign_between(
    made: PromotedLink, promotion: Promotion, history: PromotionHistory
) -> list[tuple[ForeignRecords, bool]]:
    """
    Returns what other producers have written into copies between records of the link, since it began or returned.

    With each: True if the records of the link there have its marks.  The offset map names every record of the link;
    between two of its transactions there is one marker.
    """
    if made.link.aggregate:
        return []
    positions = made.positions()
    cuts = {
        cut.source: cut
        for cut in promotion.cuts
        if cut.source in positions and not positions[cut.source].keyed
    }
    if not cuts:
        return []
    maps = OffsetMapReader(made.link, made.sessions.target).maps([positions[source] for source in cuts])
    returned = {
        source: start
        for _, resumption in sorted(history.resumptions.items())
        for source, start in resumption.starts.items()
    }
    holes = [
        OrphanRange(source=cut.copy, start=start, end=end)
        for source, cut in cuts.items()
        for start, end in _holes(
            maps[source].listed(),
            returned.get(source, 0),
            cut.target_end,
            positions[source].target_begin,
        )
    ]
    if not holes:
        return []
    found = made.reader(made.link.target).foreign(holes)
    marked = {cut.copy: positions[source].header for source, cut in cuts.items()}
    return [(each, marked[each.source]) for each in found]


def _holes(
    ranges: Sequence[tuple[int, int, int]], start: int, end: int, begin: int | None
) -> Iterator[tuple[int, int]]:
    """
    Yields the offsets of a copy between records of the link in which there is more than the marker of a transaction.

    Args:
        ranges: Source offset, target offset and count, from the offset map.
        start: First source offset that counts.
        end: End of the copy at the cut.
        begin: Offset of the copy from which on the link writes; None if unknown.
    """
    there = sorted(
        (target, target + count) for source, target, count in ranges if source >= start and target < end
    )
    # Behind the cut a merge has written: then the position does not tell that the copy has lost its end before the cut,
    # where others may have written.
    if any(source >= start and target >= end for source, target, _ in ranges):
        there.append((end, end))
    if there and begin is not None and begin < there[0][0]:
        yield begin, there[0][0]
    for (_, low), (high, _) in pairwise(there):
        if high - low > 1:
            yield low, high
