"""
Looks at a running mirror and its source, until everything is mirrored and the source stands still.

A dry run must not wait.  It looks once at the facts that the command decides on after its check: records that keep
arriving, the comparison of the copies, what the fence would do, and transactions that stayed open meanwhile.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from eomirror.errors import DifferenceError, MirrorError, some
from eomirror.failover.facts import cuts_of, mirrored, uncut_partitions
from eomirror.failover.readiness import QUIET_SECONDS, Verified
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.log_ends import existing_ends
from eomirror.records.names import LinkNames
from eomirror.recovery.copy_end import whole
from eomirror.status.topics import StatusTopics
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from eomirror.clock import Clock
    from eomirror.config import Config, Link
    from eomirror.failover.readiness import Facts
    from eomirror.kafka.session import LinkSessions
    from eomirror.records.promotion import Cut

__all__ = ["DrainLook", "DrainProgress", "SourceDrain", "planned_facts"]

# Without a record for this long, a read of a state topic has failed.
_STALL_SECONDS = 30.0
_TELL_SECONDS = 5.0
_SHOWN = 2


class DrainLook(NamedTuple):
    """
    One look at source and positions.

    Attributes:
        ends: Log ends of the source, open transactions included.
        behind: Cuts of partitions that are not mirrored to these ends.
        uncut: Source partitions with records that the mirror has not found yet.
    """

    ends: Mapping[SourcePartition, int]
    behind: tuple[Cut, ...]
    uncut: tuple[SourcePartition, ...]

    @property
    def drained(self) -> bool:
        """Returns True if everything up to the ends is mirrored."""
        return not self.behind and not self.uncut


class DrainProgress:
    """
    Says what a drain waits for: at once when records arrive, then every few seconds.  Pure.

    Args:
        by_user: True if the user stops the applications.
    """

    def __init__(self, *, by_user: bool) -> None:
        self._by_user = by_user
        self._ends: Mapping[SourcePartition, int] = {}
        self._since = self._said_at = 0.0
        self._arrived = False

    def told(self, look: DrainLook, now: float, left: float) -> str:
        """
        Returns a short text; empty for none.

        Args:
            look: A look that does not end the drain.
            now: Its time.
            left: Seconds until the drain is given up.
        """
        if not self._ends:
            self._ends, self._since, self._said_at = look.ends, now, now
            return ""
        grown = {
            source: end - self._ends.get(source, 0)
            for source, end in look.ends.items()
            if end > self._ends.get(source, 0)
        }
        if now - self._said_at < _TELL_SECONDS and (self._arrived or not grown):
            return ""
        rate = sum(grown.values()) / max(now - self._since, 0.001)
        self._ends, self._since, self._said_at = look.ends, now, now
        self._arrived |= bool(grown)
        if grown:
            names = sorted(map(str, grown))
            stop = "stop the producers now: " if self._by_user else ""
            text = f"{stop}records still arrive in {some(names, most=_SHOWN)} ({rate:,.0f}/s)"
        elif not look.drained:
            to_go = sum(max(0, look.ends.get(cut.source, 0) - cut.position) for cut in look.behind)
            text = f"the source stands still, and the mirror has {to_go:,} offsets to go"
        else:
            return ""
        return f"{text}, {left:.0f} s left"


class SourceDrain:
    """
    Watches how a running mirror drains its source; keeps its connections, and reads only new records of state topics.

    Applications cannot write between the fence and the promotion, so a look must be quick.  The first one connects.

    Args:
        sessions: Connections to both clusters.
    """

    def __init__(self, link: Link, sessions: LinkSessions, *, clock: Clock) -> None:
        self._link, self._sessions = link, sessions
        self._names = LinkNames(link.state_name)
        # The mirror's transactions are not waited for: a planned promotion compares again when no lane can commit.
        self._topics = StatusTopics(sessions.target, seconds=_STALL_SECONDS, clock=clock)

    def look(self) -> DrainLook:
        """
        Returns the source's ends beside the positions, which are read first.

        Raises:
            StateError: A record in the link's topics is not readable.
            ClusterError: A cluster does not answer.
        """
        control, _ = self._topics.control(self._names.control_topic)
        source, target = self._sessions.source.admin, self._sessions.target.admin
        known = self._topics.positions(self._names.positions_topic).valid()
        positions = mirrored(self._link, known, control, source)
        topics = target.describe_topics(sorted({one.target_topic for one in positions.values()}))
        # The copies are looked at when no lane can commit: here only the source counts.
        copies = {
            each: whole(one, one.target_topic_id, 0)
            for each, one in positions.items()
            if topics[one.target_topic] is not None
        }
        cuts = cuts_of(positions.values(), copies, source)
        ends = self.ends(cuts)
        uncut = self.uncut(positions.keys() - {each for each, cut in cuts.items() if cut.gone})
        return DrainLook(ends, tuple(self.behind(cuts, ends)), tuple(uncut))

    def behind(self, cuts: Mapping[SourcePartition, Cut], ends: Mapping[SourcePartition, int]) -> list[Cut]:
        """Returns the cuts that are not at their ends, and those of what was gone and is there again."""
        gone = sorted({cut.topic for cut in cuts.values() if cut.gone})
        topics = self._sessions.source.admin.describe_topics(gone) if gone else {}
        return [
            cut
            for cut in cuts.values()
            if (
                (facts := topics[cut.topic]) is not None and cut.partition < facts.partitions
                if cut.gone
                else cut.lost is None or cut.position != ends.get(cut.source)
            )
        ]

    def ends(self, cuts: Mapping[SourcePartition, Cut]) -> dict[SourcePartition, int]:
        """Returns the source's log ends, open transactions included: a planned command waits for these, too."""
        there = [cut.source for cut in cuts.values() if cut.source_end is not None]
        found = self._sessions.source.admin.offsets(there, at="latest", read_committed=False) if there else {}
        return {source: found[source] for source in there}

    def uncut(self, known: Collection[SourcePartition]) -> list[SourcePartition]:
        """Returns source partitions with records that the mirror has not found yet, sorted."""
        return sorted(uncut_partitions(self._link, self._sessions.source.admin, known))


def planned_facts(
    config: Config,
    link: Link,
    facts: Facts,
    *,
    verify: Callable[[], None] | None,
    fence: Callable[[], str] | None,
    clock: Clock,
) -> Facts:
    """
    Returns the facts with those of a planned promotion.

    Args:
        facts: Facts of a link whose source answers.
        verify: Compares the copies; raises if they differ.  None to leave that out.
        fence: Tells what the fence would do; raises if it cannot be set.  None for no fence.

    Raises:
        ClusterError: The source does not answer any more.
    """
    mirrored = [
        SourcePartition(item.topic, item.partition)
        for item in facts.status.partitions
        if not item.parked and item.source_lso is not None and item.topic != link.target_naming.heartbeats
    ]
    client_id = LinkNames(link.state_name).client_id("readiness")
    with closing(ClusterAdmin(config.clusters[link.source], client_id=client_id, clock=clock)) as admin:

        def ends() -> Mapping[tuple[str, int], int]:
            return existing_ends(admin, mirrored, read_committed=False)

        before = ends()
        clock.sleep(QUIET_SECONDS)
        after = ends()
    facts = replace(
        facts,
        moving=tuple(str(source) for source in mirrored if before.get(source) != after.get(source)),
    )
    if fence is not None:
        try:
            facts = replace(facts, fence=fence())
        except MirrorError as error:
            facts = replace(facts, fence_problem=error.message, fence_fix=error.fix)
    if verify is not None:
        facts = replace(facts, verified=_compared(verify, clock))
    # last, so that a transaction which ends soon has had the time
    return replace(facts, held=_held(config, link, facts, clock))


def _held(config: Config, link: Link, facts: Facts, clock: Clock) -> tuple[str, ...]:
    """Returns the partitions whose open transactions of the check are still the first ones."""
    opened = {SourcePartition(topic, number): stable for topic, number, stable, _ in facts.open_transactions}
    if not opened:
        return ()
    client_id = LinkNames(link.state_name).client_id("readiness")
    with closing(ClusterAdmin(config.clusters[link.source], client_id=client_id, clock=clock)) as admin:
        found = existing_ends(admin, list(opened), read_committed=True)
    return tuple(str(source) for source, stable in sorted(opened.items()) if found.get(source) == stable)


def _compared(verify: Callable[[], None], clock: Clock) -> Verified:
    began = clock.monotonic()
    problem = ""
    try:
        verify()
    except DifferenceError as error:
        problem = error.message
    return Verified(clock.monotonic() - began, "what --verify asks for", problem)
