"""
Reverses a promoted link: starts the link in the other direction at the cut.

Two steps, each in one transaction, with a crash point behind each::

    1. reversal in the control topic of the promoted link: the ends of the source's logs, before anything is written
       there.  The records from the cut to these ends are the orphans.
    2. first positions of the link back, at the ends of the copies at the cut.  If the link back is itself promoted (it
       was the way back once), its positions are set, and its promotion ends, in one transaction.

A second call reads the ends of step 1 from the record.  The link back cannot write before step 2, because it has no
position, or is promoted.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.crash import crash_point
from eomirror.errors import NotReadyError
from eomirror.failover.back_link import back_link, begins, returns
from eomirror.failover.facts import history_of
from eomirror.failover.orphans import refuse_forgotten
from eomirror.failover.promoted_link import PromotedLink
from eomirror.failover.uncut import uncut_partitions
from eomirror.link.state import LinkState
from eomirror.records.names import LinkNames
from eomirror.records.promotion import Resumption, Reversal
from eomirror.topics.discovery import Discovery

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.config import Config, Link
    from eomirror.kafka.session import LinkSessions
    from eomirror.records.promotion import Promotion, PromotionHistory
    from eomirror.records.recreation import Recreation
    from eomirror.types import SourcePartition

__all__ = ["ReversalReport", "ReversedPartition", "reverse"]

_LOOK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversedPartition:
    """
    One partition of the link back.

    Attributes:
        topic: Topic that the link back reads.
        begins: Offset at which it begins.
        to_topic: Topic that it writes: the source topic of the promoted link.
        orphans_from: First offset there that never reached the copy.
        orphans_to: Offset behind the last of them; offsets of markers count.
    """

    topic: str
    partition: int
    begins: int
    to_topic: str
    orphans_from: int
    orphans_to: int

    @property
    def orphans(self) -> int:
        """Number of offsets that never reached the copy."""
        return max(0, self.orphans_to - self.orphans_from)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReversalReport:
    """
    Result of a reversal.

    Attributes:
        link: The promoted link.
        back: The link in the other direction.
        number: Number of the promotion.
        resumed: True if the link back was promoted before, and mirrors again.
        committed: False for a dry run.
        partitions: One per partition.
        unseen: Offsets in source partitions that the promoted link never saw, so that they have no cut.
    """

    link: str
    back: str
    number: int
    resumed: bool
    committed: bool
    partitions: tuple[ReversedPartition, ...]
    unseen: int = 0

    @property
    def orphans(self) -> int:
        """Number of offsets that never reached the copies."""
        return self.unseen + sum(each.orphans for each in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {**asdict(self), "orphans": self.orphans}


def reverse(
    config: Config,
    *,
    link: str | None = None,
    dry_run: bool = False,
    on_event: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ReversalReport:
    """
    Starts the link in the other direction of a promoted link, at its cut; `eomirror run` mirrors it then.

    Args:
        config: Configuration that has both links.
        link: Name of the promoted link; required if there are several.
        dry_run: Only inspect.
        on_event: Receives a short text for each step.

    Raises:
        UsageError: The configuration has no link back; the fix is its entry.
        NotReadyError: The link is not promoted, the source is still written to, or the link back has run on its own.
        SupersededError: A mirror of one of the links runs.
        StateError: A state topic is not readable.
        MirrorError: A cluster cannot be reached or refuses the request.
    """
    with closing(_Reverse(config, link, "reverse", on_event=on_event, clock=clock)) as made:
        return made.run(dry_run=dry_run)


class _Reverse(PromotedLink):
    def run(self, *, dry_run: bool) -> ReversalReport:
        control, promotion = self.in_force()
        history = control.history
        back = back_link(self.config, self.link, promotion)
        if history.fence is not None and history.fence.method == "acl":
            raise NotReadyError(
                f"link {self.link.name}: writes to its source topics are denied by {len(history.fence.topics)} ACL "
                "entries, which also stop the link back",
                fix="repoint the applications first, then: `eomirror unfence CONFIG`",
            )
        self.ask_source()
        self._refuse_recreated(promotion, control.recreation)
        sessions = self.connect(back)
        before = history_of(back, sessions.target)
        self._refuse_stale(back, promotion, before)
        refuse_forgotten(
            back,
            self.config.clusters[back.source],
            before,
            client_id=LinkNames(back.state_name).client_id("reverse"),
            clock=self.clock,
        )
        started = self._started(back, sessions, before, promotion)
        noted = history.reversals.get(promotion.number)
        ends = noted.ends if noted is not None else self._ends(promotion)
        if not dry_run:
            if noted is None:
                self._record(back, promotion, ends)
            crash_point("failover.reversal_noted")
            if not started:
                self._start(back, sessions, before, promotion)
            crash_point("failover.reversed")
        return ReversalReport(
            link=self.link.name,
            back=back.name,
            number=promotion.number,
            resumed=before.current is not None,
            committed=not dry_run,
            partitions=tuple(
                ReversedPartition(
                    topic=cut.target_topic,
                    partition=cut.partition,
                    begins=cut.target_end,
                    to_topic=cut.topic,
                    orphans_from=cut.position,
                    orphans_to=ends.get(cut.source, cut.position),
                )
                for cut in promotion.cuts
            ),
            unseen=sum(ends[source] for source in ends.keys() - {cut.source for cut in promotion.cuts}),
        )

    # -- checks ----------------------------------------------------------------------------------

    def _refuse_recreated(self, promotion: Promotion, recreation: Recreation | None) -> None:
        """Raises if a topic is another one than at the cut: its offsets have no meaning for the cut."""
        ours = recreation.topics if recreation is not None and recreation.number == promotion.number else ()
        sides = (
            (
                self.sessions.source,
                {cut.topic: cut.topic_id for cut in promotion.cuts if cut.topic not in ours},
            ),
            (self.sessions.target, {cut.target_topic: cut.target_topic_id for cut in promotion.cuts}),
        )
        for session, ids in sides:
            for name, facts in session.admin.describe_topics(sorted(ids)).items():
                if facts is None or facts.topic_id != ids[name]:
                    what = "does not exist" if facts is None else "was deleted and created again"
                    raise NotReadyError(
                        f"topic {name} on {session.admin.name} {what} since link {self.link.name} was promoted",
                        fix="restore it, or `exclude` the topic from both links and start a new link for it",
                    )

    def _refuse_stale(self, back: Link, promotion: Promotion, before: PromotionHistory) -> None:
        """Raises if the link to resume was promoted later than this one: its positions would go back to an old cut."""
        ended = before.current
        if ended is None:
            return
        positions = {cut.source: cut.position for cut in promotion.cuts}
        if any(positions.get(cut.copy, cut.target_end) < cut.target_end for cut in ended.cuts):
            raise NotReadyError(
                f"link {self.link.name} has not mirrored since link {back.name} was promoted: its cut is an older one",
                fix=f"finish the reversal of that link first: `eomirror reverse CONFIG --link {quote(back.name)}`",
            )

    def _started(
        self, back: Link, sessions: LinkSessions, history: PromotionHistory, promotion: Promotion
    ) -> bool:
        """
        Returns True if the link back has begun already, by an earlier call.

        Raises:
            NotReadyError: It has positions that no reversal set.
        """
        if history.current is not None:
            return False
        topic = LinkNames(back.state_name).positions_topic
        if sessions.target.admin.describe_topics([topic])[topic] is None:
            return False
        state = LinkState(back, sessions.target)
        view = state.control(wait_for_open=False)
        if view.generation is None:
            return False
        positions = state.positions(wait_for_open=False, overruled=())
        starts = begins(promotion)
        known = {source: positions[source].offset for source in starts if source in positions}
        if len(known) == len(starts) and all(offset >= starts[source] for source, offset in known.items()):
            return True
        raise NotReadyError(
            f"link {back.name} has run on its own, and not from the cut of link {self.link.name}",
            fix=f"run it as it is: `eomirror run CONFIG --link {quote(back.name)}`; or use a link with another name "
            "for the way back",
        )

    def _ends(self, promotion: Promotion) -> Mapping[SourcePartition, int]:
        """
        Returns the ends of the source's logs, which must stand still.

        Raises:
            NotReadyError: Applications write there.
        """
        admin = self.sessions.source.admin
        wanted = [cut.source for cut in promotion.cuts]
        wanted += sorted(uncut_partitions(self.link, admin, wanted))
        first = admin.offsets(wanted, at="latest", read_committed=False)
        self.clock.sleep(_LOOK_SECONDS)
        ends = admin.offsets(wanted, at="latest", read_committed=False)
        if moved := sorted(str(source) for source in wanted if first[source] != ends[source]):
            raise NotReadyError(
                f"link {self.link.name}: applications still write to {', '.join(moved[:3])} on {admin.name}",
                fix="stop them: their records would lie among those that the link back writes",
            )
        return {source: ends[source] for source in wanted}

    # -- steps -----------------------------------------------------------------------------------

    def _record(self, back: Link, promotion: Promotion, ends: Mapping[SourcePartition, int]) -> None:
        self.tell(f"recording the reversal of {self.link.name}")
        self.note(
            Reversal(
                number=promotion.number,
                link=back.name,
                ends=ends,
                run=self.run_id,
                timestamp=self.clock.wall_ms(),
            )
        )

    def _start(
        self, back: Link, sessions: LinkSessions, history: PromotionHistory, promotion: Promotion
    ) -> None:
        self.tell(f"setting the positions of {back.name} to the cut")
        ended = history.current
        positions = (
            {}
            if ended is None
            else LinkState(back, sessions.target).positions(wait_for_open=False, overruled=())
        )
        starts = returns(promotion, ended, positions)
        partitions = Discovery(back, *sessions, clock=self.clock).prepare(strict=True)
        owner = self.owner(
            back,
            sessions,
            although_promoted=ended is not None,
            resume=None
            if ended is None
            else Resumption(
                number=ended.number,
                link=self.link.name,
                starts=starts,
                run=self.run_id,
                timestamp=self.clock.wall_ms(),
            ),
            adopt=starts,
        )
        with closing(owner):
            owner.acquire(back.lanes, partitions)
            owner.release()
