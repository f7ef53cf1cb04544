"""Lists the orphans of a link that have no copy: ranges of source offsets that `verify` cannot compare."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.failover.facts import control_of
from eomirror.failover.orphans import Reading, count_orphans, orphan_ranges, standing, undecided
from eomirror.kafka.log_ends import existing_ends
from eomirror.kafka.session import link_sessions
from eomirror.records.dealt_ranges import furthest
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eomirror.config import Config, Link
    from eomirror.failover.orphans import OrphanRange
    from eomirror.kafka.session import LinkSessions
    from eomirror.records.control import ControlView
    from eomirror.records.dealt_ranges import DealtRange
    from eomirror.records.promotion import Promotion

__all__ = ["LeftOrphans", "left_orphans"]


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
    counts = [
        sum(
            count_orphans(
                clusters[0], [each], client_id=client_id, clock=clock, reading=Reading(accept_lost=True)
            ).values()
        )
        for _, each, _ in found
    ]
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
