"""
Reads the facts about a link that a failover decides on; works from the target alone if the source is gone.

The mirror looks for new topics and partitions every few seconds, and leaves topics out that it cannot serve.  What
applications write there has no cut: a planned promotion refuses it, and a failover counts it as lost.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import MirrorError, TopicError
from eomirror.failover.group_reader import GroupReader
from eomirror.failover.open_transactions import open_transactions
from eomirror.failover.readiness import Facts
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.kafka.log_ends import existing_ends, existing_starts
from eomirror.kafka.reachability import unreachable_clusters
from eomirror.kafka.session import ClusterSession, link_sessions
from eomirror.link.copy_ends import CopyEnds
from eomirror.link.state import control_of, link_discovery
from eomirror.records.names import LinkNames
from eomirror.records.promotion import Cut, lost
from eomirror.recovery.resume import gone_sources
from eomirror.status.hanging import HangingTransactions
from eomirror.status.reader import StatusReader
from eomirror.topics.diff import AlterConfig, Differs
from eomirror.topology.covered import covered_text
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from eomirror.config import Cluster, Config, Link
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position
    from eomirror.records.promotion import PromotionHistory
    from eomirror.recovery.copy_end import CopyEnd
    from eomirror.topics.plan import Plan

__all__ = [
    "beside_cuts",
    "cuts_of",
    "mirrored",
    "read_facts",
    "source_answers",
    "uncut_partitions",
]


def uncut_partitions(
    link: Link, source: ClusterAdmin, known: Collection[SourcePartition], *, every: bool = False
) -> dict[SourcePartition, tuple[int, int] | None]:
    """
    Returns the log start and the log end of each partition that holds records, and that the link does not know.

    None stands for a partition without a leader: its records cannot be counted.

    Args:
        source: Admin client of its source.
        known: Partitions with a position.
        every: Also topics whose name the target refuses.

    Raises:
        ClusterError: The source does not answer.
    """
    names = [topic for topic in source.topic_names() if _is_mirrored(link, topic, every=every)]
    unknown = {
        where: number in facts.leaderless
        for topic, facts in source.describe_topics(names).items()
        if facts is not None
        for number in range(facts.partitions)
        if (where := SourcePartition(topic, number)) not in known
    }
    there = [where for where, is_silent in unknown.items() if not is_silent]
    starts = existing_starts(source, there)
    ends = existing_ends(source, there, read_committed=False)
    return dict.fromkeys(where for where, is_silent in unknown.items() if is_silent) | {
        where: (starts[where], ends[where])
        for where in there
        if where in starts and where in ends and ends[where] > starts[where]
    }


def _is_mirrored(link: Link, topic: str, *, every: bool) -> bool:
    if topic == link.target_naming.heartbeats or not link.mirrors(topic):
        return False
    if every:
        return True
    try:
        link.target_topic(topic)
    except TopicError:
        return False
    return True


def source_answers(config: Config, link: Link) -> bool:
    """
    Returns True if the source of a link answers.

    Raises:
        MirrorError: The target does not.
    """
    clusters = [config.clusters[alias] for alias in (link.source, link.target)]
    away = unreachable_clusters(clusters)
    if link.target in away:
        raise away[link.target]
    return link.source not in away


def mirrored(
    link: Link,
    positions: Mapping[SourcePartition, Position],
    control: ControlView,
    source: ClusterAdmin | None = None,
) -> dict[SourcePartition, Position]:
    """
    Returns the positions of partitions that have a cut.

    Topics that have left the link's filter have none.  Neither has the topic of heartbeats, to which a running mirror
    itself writes on the source.  What the source has no more is in no layout once the mirror has started again, but its
    copies are promoted with the others.

    Args:
        source: Admin client of the source, to tell such partitions from others; None if it does not answer.

    Raises:
        ClusterError: The source does not answer.
    """
    assigned = {} if control.generation is None else control.generation.assignment.partitions
    beats = link.target_naming.heartbeats
    parked = sorted(
        {each.topic for each in positions if each not in assigned and link.mirrors(each.topic)} - {beats}
    )
    gone: Collection[SourcePartition] = ()
    if source is not None and parked:
        # A topic that an ACL hides is not known to be gone.
        gone = gone_sources(positions, source.visible_topics(parked)[0])
    return {
        each: position
        for each, position in positions.items()
        if (each in assigned or each in gone) and link.filter.matches(each.topic) and each.topic != beats
    }


def cuts_of(
    positions: Iterable[Position],
    copies: Mapping[SourcePartition, CopyEnd],
    source: ClusterAdmin | None,
    known: Mapping[SourcePartition, int] | None = None,
) -> dict[SourcePartition, Cut]:
    """
    Returns the cut of each partition, as far as its copy proves it.

    A topic that was deleted on the target has no cut; one that was deleted on the source has no source end, and is gone
    if the source answers.

    Args:
        positions: Positions of the link.
        copies: Ends of their copies.
        source: Admin client of the source; None if it does not answer.
        known: Ends of the source that stand for its answer, if it gives none.

    Raises:
        ClusterError: The source does not answer.
    """
    wanted = list(positions)
    sources: Mapping[tuple[str, int], int] = dict((known or {}).items())
    gone: Collection[SourcePartition] = ()
    if source is not None:
        topics = source.describe_topics(sorted({one.topic for one in wanted}))
        there = [
            one.source
            for one in wanted
            if (facts := topics[one.topic]) is not None and facts.topic_id == one.topic_id
        ]
        # The high watermark: records that the source has acknowledged stand behind open transactions of others.
        sources = existing_ends(source, there, read_committed=False)
        gone = gone_sources({one.source: one for one in wanted}, topics)
    return {
        one.source: Cut(
            topic=one.topic,
            partition=one.partition,
            topic_id=one.topic_id,
            position=copy.offset,
            target_topic=one.target_topic,
            target_topic_id=copy.target_topic_id,
            target_end=copy.target_end,
            timestamp=one.timestamp,
            source_end=sources.get(one.source),
            proven=copy.proven,
            gone=one.source in gone,
        )
        for one in wanted
        if (copy := copies.get(one.source)) is not None
    }


def beside_cuts(
    link: Link,
    positions: Mapping[SourcePartition, Position],
    control: ControlView,
    source: ClusterAdmin | None,
) -> dict[SourcePartition, tuple[int, int] | None]:
    """
    Returns the source offsets of partitions that the link should mirror and that have no cut: all of them are lost.

    None stands for a partition without a leader, as in `uncut_partitions`.

    Args:
        positions: All positions of the link: what stands before one has a copy.
        control: Control topic of the link; without the source it has the last known ends.
        source: Admin client of the source; None if it does not answer.

    Raises:
        ClusterError: The source does not answer.
    """
    cut = mirrored(link, positions, control, source)
    offsets = {source: position.offset for source, position in positions.items()}
    if source is None:
        found = control.ends_beside(cut, offsets)
        return {where: some for where, some in found.items() if where.topic != link.target_naming.heartbeats}
    ranges = {
        where: None if some is None else (max(some[0], offsets.get(where, 0)), some[1])
        for where, some in uncut_partitions(link, source, cut, every=True).items()
    }
    return {where: some for where, some in ranges.items() if some is None or some[1] > some[0]}


def read_facts(
    config: Config,
    link: Link,
    *,
    answers: bool,
    groups: GroupReader | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Facts:
    """
    Reads everything that `eomirror.failover.readiness.assess` needs.

    Args:
        answers: Result of `source_answers`.
        groups: Reads the groups of the link; by default a reader of its own.

    Raises:
        StateError: A record in the link's topics is not readable.
        ClusterError: The target does not answer.
    """
    target = config.clusters[link.target]
    source = config.clusters[link.source]
    with closing(
        # Without groups: their checkpoints are read below, for resume offsets.
        StatusReader(
            replace(link, groups=()),
            source,
            target,
            hanging=lambda _, cluster, admin: HangingTransactions(link, cluster, admin),
            ask_source=answers,
            clock=clock,
        )
    ) as reader:
        status = reader.read()
    role = LinkNames(link.state_name).client_id("readiness")
    facts = Facts(
        status=status,
        source_answers=answers,
        now_ms=clock.wall_ms(),
        follows=bool(link.groups),
        covered=covered_text(link.groups, link.exclude_groups, "exclude_groups"),
        no_checkpoints=link.guard and bool(link.groups),
    )
    if status.state == "never ran":
        return facts
    with ExitStack() as stack:
        session = stack.enter_context(closing(ClusterSession(target, client_id=role, clock=clock)))
        source_admin = stack.enter_context(closing(ClusterAdmin(source, client_id=role, clock=clock)))
        groups = groups or stack.enter_context(closing(GroupReader(config, link, session)))
        view = control_of(link, session)
        every = groups.positions()
        positions = mirrored(link, every, view, source_admin if answers else None)
        history = view.history
        leaderless, facts = _replicas(positions.values(), session.admin, facts)
        if leaderless:
            return replace(facts, promotion=history.current, leaderless=leaderless)
        assert view.generation is not None, "it has run"  # noqa: S101  for the type checker
        copies = CopyEnds(link, session).read(
            positions.values(), highest_lane=view.generation.highest_lane, later=groups.positions
        )
        torn = {source: copy for source, copy in copies.items() if copy.problem}
        asked = source_admin if answers else None
        cuts = cuts_of(positions.values(), copies, asked, view.ends)
        beside = beside_cuts(link, every, view, asked)
        counted: Collection[Cut] = cuts.values()
        if answers and status.state == "running":
            # The ends are older than these positions: what arrived during the read is no loss.
            counted = _advanced(cuts, groups.positions(), torn)
        newest = max((one.timestamp for one in positions.values()), default=None)
        opened = _open(source_admin, cuts) if answers else ()
        facts = replace(
            facts,
            promotion=history.current,
            open_transactions=opened,
            open_producers=_producers(config, link, opened, clock) if opened else {},
            # the mirror wrote both times, by its own clock
            silent_seconds=None
            if newest is None
            else max(0.0, (facts.now_ms - newest) / 1000 + status.clock_offset_seconds),
            drifts=_drifts(config, link, clock) if answers else None,
            last_pause_ms=_last_pause(history),
            torn_copies={str(source): copy for source, copy in torn.items()},
            known_lost=_known_loss(counted, beside, answers=answers),
            seen_seconds=status.source_seen_seconds,
            uncut=tuple(
                f"{where} ({'no leader' if some is None else f'{some[1] - some[0]} offsets'})"
                for where, some in sorted(beside.items())
            ),
            uncounted=None in beside.values(),
        )
        if answers and link.groups:
            facts = replace(facts, unfollowed=_unfollowed(source, link))
        try:
            return replace(facts, groups=tuple(groups.moves(cuts, history, answers=answers)))
        except MirrorError as error:
            return replace(facts, groups_problem=error.message)


def _advanced(
    cuts: Mapping[SourcePartition, Cut],
    later: Mapping[SourcePartition, Position],
    torn: Collection[SourcePartition],
) -> list[Cut]:
    """Returns the cuts at the positions that a running mirror has reached since, but for torn copies."""
    return [
        replace(cut, position=max(cut.position, there.offset))
        if source not in torn and (there := later.get(source)) is not None and there.topic_id == cut.topic_id
        else cut
        for source, cut in cuts.items()
    ]


def _known_loss(
    cuts: Iterable[Cut], beside: Mapping[SourcePartition, tuple[int, int] | None], *, answers: bool
) -> int | None:
    """Returns the source offsets beyond the cuts and in partitions without one; None if an end is not known."""
    # A source that answers without an end of a partition has no such log, and the status has the reason.
    beyond = lost(cut for cut in cuts if not answers or cut.source_end is not None)
    return None if beyond is None else beyond + sum(some[1] - some[0] for some in beside.values() if some)


def _replicas(
    positions: Iterable[Position], target: ClusterAdmin, facts: Facts
) -> tuple[tuple[str, ...], Facts]:
    """Returns the copies' partitions without a leader, and the facts with those that have a replica out of sync."""
    wanted = [(one.target_topic, one.target_partition) for one in positions]
    known = target.describe_topics(sorted({topic for topic, _ in wanted}))
    there = [(topic, number, found) for topic, number in wanted if (found := known[topic]) is not None]
    return (
        tuple(f"{topic}-{number}" for topic, number, found in there if number in found.leaderless),
        replace(
            facts,
            under_replicated=tuple(
                f"{topic}-{number}" for topic, number, found in there if number in found.under_replicated
            ),
        ),
    )


def _drifts(config: Config, link: Link, clock: Clock) -> tuple[str, ...] | str:
    """Returns the settings of copies and state topics that are not as the link wants them; or why that is unknown."""
    clusters = config.clusters[link.source], config.clusters[link.target]
    try:
        with closing(link_sessions(link, *clusters, "readiness", clock=clock)) as sessions:
            plan = link_discovery(link, *sessions, clock=clock, clusters=config.clusters).plan()
    except MirrorError as error:
        return error.message
    return drifts_of(plan)


def drifts_of(plan: Plan) -> tuple[str, ...]:
    """Returns the settings that a plan would change, or leaves to the target although they differ; pure."""
    found = [f"{drift.topic}: {drift.setting}={drift.found}, not {drift.wanted}" for drift in plan.drifts]
    for _, changes in sorted(plan.changes.items()):
        for change in changes:
            if isinstance(change, AlterConfig):
                found += [
                    f"{change.name}: {name}={change.before.get(name)}, not {value}"
                    for name, value in sorted(change.values.items())
                ]
            elif isinstance(change, Differs):
                found += [
                    f"{change.name}: {name}={change.found.get(name)}, not {value}"
                    for name, value in sorted(change.wanted.items())
                ]
    return tuple(found)


def _unfollowed(source: Cluster, link: Link) -> tuple[str, ...] | None:
    """Returns share and streams groups that match the link's `groups`: no offset of theirs can be translated."""
    with closing(ClusterGroups(source, client_id=LinkNames(link.state_name).client_id("groups"))) as groups:
        try:
            return tuple(name for name in groups.shared() if link.follows(name))
        except MirrorError:
            return None


def _last_pause(history: PromotionHistory) -> int | None:
    """Returns the milliseconds that the last planned promotion took behind its verification; None for none."""
    planned = [one for one in history.promotions.values() if one.planned]
    if not planned:
        return None
    last = max(planned, key=lambda one: one.number)
    # The record cannot hold the duration of its own commit.
    return sum(last.milliseconds.get(step, 0) for step in ("drain", "take", "end", "read", "groups"))


def _open(source: ClusterAdmin, cuts: Mapping[SourcePartition, Cut]) -> tuple[tuple[str, int, int, int], ...]:
    """Returns the source partitions whose last stable offset is before the end of the cut, with both."""
    ends = {cut.source: cut.source_end for cut in cuts.values() if cut.source_end is not None}
    stable = existing_ends(source, list(ends), read_committed=True)
    return tuple(
        (where.topic, where.partition, stable[where], end)
        for where, end in ends.items()
        if where in stable and stable[where] < end
    )


def _producers(
    config: Config, link: Link, opened: Iterable[tuple[str, int, int, int]], clock: Clock
) -> dict[tuple[str, int], str]:
    """Returns the producers of open transactions on the source; none where a broker does not tell (KIP-664)."""
    role = LinkNames(link.state_name).client_id("readiness")
    with closing(ClusterSession(config.clusters[link.source], client_id=role, clock=clock)) as session:
        now_ms = clock.wall_ms()
        ends = {SourcePartition(topic, number): end for topic, number, _, end in opened}
        try:
            found = open_transactions(session.cluster, session.admin, ends, client_id=role)
        except MirrorError:
            return {}
    return {(one.topic, one.partition): one.named(now_ms) for one in found if one.producer_id is not None}
