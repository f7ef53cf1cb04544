"""
Reverses a promoted link: starts the link in the other direction at the cut.

Two steps, each in one transaction, with a crash point behind each::

    1. reversal in the control topic of the promoted link: the ends of the source's logs, before anything is written
       there.  The records from the cut to these ends are the orphans.
    2. first positions of the link back, at the ends of the copies at the cut.  If the link back is itself promoted (it
       was the way back once), its positions are set, and its promotion ends, in one transaction.

A second call reads the ends of step 1 from the record.  The link back cannot write before step 2, because it has no
position, or is promoted.

The source's logs are first compared with the positions.  If one has lost records that the copy holds, or was restored
and written on, the reversal is refused, and names the offset up to which both sides hold the same records.  With
``from_common_end`` the cut of such a partition moves back to that offset: with step 1, in the same transaction, the
position of the promoted link does too, so that what the source holds beyond it are orphans.  With step 2 the link back
is ordered to copy the topics of these partitions whole: its loop guard would drop what the promoted link once wrote.

    3. this command mirrors them with the link back, from the cut to their ends
    4. the order is done, in the control topic of the link back: it may run
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.crash import crash_point
from eomirror.errors import NotReadyError, UsageError
from eomirror.failover.common_end import mirrored_copies, parted
from eomirror.failover.facts import cuts_of, mirrored, uncut_partitions
from eomirror.failover.orphan_reader import OrphanRange
from eomirror.failover.orphans import foreign_between, refuse_forgotten, standing
from eomirror.failover.promoted_link import PromotedLink, back_link, begins, returns, whole_link
from eomirror.link.first_positions import Begin
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.link.source_comparison import changed_sources, end_marks, states_before
from eomirror.link.state import control_of, history_of, link_discovery
from eomirror.records.names import LinkNames
from eomirror.records.promotion import Promotion, Resumption, Reversal, with_cuts
from eomirror.records.recreation import CopyBack
from eomirror.recovery.hanging import RecordState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.config import Config, Link
    from eomirror.failover.common_end import CommonEnd
    from eomirror.failover.orphan_reader import ForeignRecords
    from eomirror.kafka.session import LinkSessions
    from eomirror.records.control import ControlView
    from eomirror.records.dealt_ranges import DealtRanges
    from eomirror.records.position import Position
    from eomirror.records.promotion import PromotionHistory
    from eomirror.records.recreation import Recreation
    from eomirror.recovery.copy_end import CopyEnd
    from eomirror.topics.plan import ChangedSetting
    from eomirror.types import SourcePartition

__all__ = ["ReversalReport", "ReversedPartition", "refuse_no_return", "reverse"]

_LOOK_SECONDS = 0.5
_SHOWN = 3
# offsets that are read first for the first record of applications
_FIRST_RECORDS = 1_000


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
        moved: Partitions whose cut was moved back, because the source had changed, with the reason.
        foreign: Records that other producers have written between those of the promoted link, with their number by
            partition and offsets: the copies have no marks, so the link back cannot tell them from these.
        settings: Settings of existing topics that the link back needs and that this changes: those of the old source's
            own topics, which are its copies.
    """

    link: str
    back: str
    number: int
    resumed: bool
    committed: bool
    partitions: tuple[ReversedPartition, ...]
    unseen: int = 0
    moved: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    settings: tuple[ChangedSetting, ...] = ()

    @property
    def orphans(self) -> int:
        """Number of offsets that never reached the copies."""
        return self.unseen + sum(each.orphans for each in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {
            **asdict(self),
            "orphans": self.orphans,
            "settings": [each.as_dict() for each in self.settings],
        }


def reverse(
    config: Config,
    *,
    link: str | None = None,
    from_common_end: bool = False,
    mirror: Callable[[Config], None] | None = None,
    dry_run: bool = False,
    on_event: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> ReversalReport:
    """
    Starts the link in the other direction of a promoted link, at its cut; `eomirror run` mirrors it then.

    Args:
        config: Configuration that has both links.
        link: Name of the promoted link; required if there are several.
        from_common_end: Where the source has lost records since, or holds others, begin at the offset up to which both
            sides hold the same records.
        mirror: Mirrors the one link of the configuration that it is given until it has caught up; for
            ``from_common_end``.
        dry_run: Only inspect.
        on_event: Receives a short text for each step.

    Raises:
        UsageError: The configuration has no link back; the fix is its entry.
        NotReadyError: The link is not promoted, the source is still written to, or is not what was mirrored, or the
            link back has run on its own.
        SupersededError: A mirror of one of the links runs.
        StateError: A state topic is not readable.
        MirrorError: A cluster cannot be reached or refuses the request.
    """
    with _Reverse(config, link, "reverse", dry_run=dry_run, on_event=on_event, clock=clock) as made:
        return made.run(mirror, from_common_end=from_common_end)


def refuse_no_return(
    config: Config, link: str, *, to: str, clock: Clock = SYSTEM_CLOCK
) -> tuple[ChangedSetting, ...]:
    """
    Refuses to promote a link whose reversal would then be refused.

    Returns:
        Settings of existing topics that the reversal would change.

    Args:
        link: Name of a link that mirrors.
        to: Name of the link that its reversal is to start.

    Raises:
        UsageError: No link of the configuration, or another one, mirrors its copies in the other direction.
        NotReadyError: The reversal would be refused.
        MirrorError: As of `reverse`.
    """
    with _Reverse(config, link, "reverse", clock=clock) as made:
        return made.refuse_no_return(to)


class _Reverse(PromotedLink):
    def refuse_no_return(self, to: str) -> tuple[ChangedSetting, ...]:
        """See the function of this name."""
        control = control_of(self.link, self.sessions.target)
        positions = mirrored(self.link, self.positions(), control)
        if control.generation is None:
            # `promote` says so
            return ()
        copies = self.copy_ends(positions.values(), control)
        cuts = cuts_of(positions.values(), copies, None)
        promotion = Promotion(
            number=0,
            planned=True,
            run=self.run_id,
            host="",
            generation=0,
            source_cluster_id="",
            target_cluster_id="",
            cuts=tuple(cuts.values()),
            started=0,
            timestamp=0,
        )
        back = back_link(self.config, self.link, promotion)
        if back.name != to:
            raise UsageError(
                f"link {back.name} mirrors what link {self.link.name} copies in the other direction as well as {to}: "
                "it would be started in its place",
                fix=f"take {back.name} out of the configuration, or put it behind {to}",
            )
        self.ask_source()
        self._refuse_recreated(promotion, control.recreation, None)
        sessions = self.connect(back)
        self._refuse_stale(back, promotion, history_of(back, sessions.target))
        self._refuse_lost_copies(back, sessions)
        unknown = {source: copy for source, copy in copies.items() if not copy.proven}
        parted(self, promotion, control, unknown, accepted=False)
        return self._settings(back, sessions)

    def run(self, mirror: Callable[[Config], None] | None, *, from_common_end: bool) -> ReversalReport:
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
        noted = history.reversals.get(promotion.number)
        self._refuse_recreated(promotion, control.recreation, noted)
        sessions = self.connect(back)
        held = control_of(back, sessions.target)
        before = held.history
        self._refuse_stale(back, promotion, before, noted)
        client_id = LinkNames(back.state_name).client_id("reverse")
        refuse_forgotten(back, sessions, held, client_id=client_id, clock=self.clock, back=self.link)
        others: list[CommonEnd] = []
        moved: dict[SourcePartition, tuple[int, int]] = {}
        copies: Mapping[SourcePartition, CopyEnd] = {}
        # As long as the link back has not begun, what a killed call has found may have changed.
        is_new = (
            noted is None
            or self._unbegun(back, sessions, held, promotion, noted=True).keys()
            == begins(promotion, back).keys()
        )
        if noted is None or is_new:
            ends = self._ends(promotion)
            copies = mirrored_copies(self, promotion, control)
            others = parted(self, promotion, control, copies, accepted=from_common_end)
            moved = {
                each.cut.source: (each.cut.position, each.cut.target_end)
                for each in others
                if each.cut is not None
            }
            promotion = with_cuts(promotion, moved)
            noted = Reversal(
                number=promotion.number,
                link=back.name,
                ends=ends,
                run=self.run_id,
                timestamp=self.clock.wall_ms(),
                cuts={**({} if noted is None else noted.cuts), **moved},
            )
        ends = noted.ends
        unbegun = self._unbegun(back, sessions, held, promotion, noted=not is_new)
        # Without its marker, what others wrote stands right behind the last record of the link.
        nearer = {
            cut.copy: copies[cut.source].target_end
            for cut in promotion.cuts
            if cut.source in copies
            and cut.source not in noted.cuts
            and unbegun.get(cut.copy) == cut.target_end
        }
        unbegun = {source: min(start, nearer.get(source, start)) for source, start in unbegun.items()}
        # A link that was promoted before finds them as orphans of its promotion.  A repeated call names them again: the
        # first one may have been killed before it did.
        foreign = [] if before.promotions else foreign_between(self, promotion, history)
        # The loop guard of the link back drops what this link has marked between them, unless it copies all back.
        whole = {cut.target_topic for cut in promotion.cuts if cut.source in noted.cuts}
        marked = {
            each.source: each
            for each, is_marked in foreign
            if is_marked and back.guard and each.source.topic not in whole
        }
        unbegun = {
            source: min(start, marked[source].start) if source in marked else start
            for source, start in unbegun.items()
        }
        found = self._begins(back, sessions, promotion, unbegun, ends)
        if noted.cuts and mirror is None and not self.dry_run:
            raise UsageError("nothing was given that mirrors", fix="pass `mirror`")
        settings = self._settings(self.link, self.sessions) if is_new and moved else ()
        settings += self._settings(back, sessions) if unbegun else ()
        if not self.dry_run:
            for each in settings:
                self.tell(f"changing a setting of {each}")
            if is_new:
                self._record(noted, moved)
            crash_point("failover.reversal_noted")
            if unbegun:
                self._start(back, sessions, before.current, unbegun, noted, found=found)
            crash_point("failover.reversed")
            if noted.cuts and mirror is not None:
                self._copy_back(back, sessions, promotion, noted, mirror)
        return ReversalReport(
            link=self.link.name,
            back=back.name,
            number=promotion.number,
            resumed=before.current is not None,
            committed=not self.dry_run,
            partitions=tuple(
                ReversedPartition(
                    topic=cut.target_topic,
                    partition=cut.partition,
                    begins=unbegun.get(cut.copy, cut.target_end),
                    to_topic=cut.topic,
                    orphans_from=cut.position,
                    orphans_to=ends.get(cut.source, cut.position),
                )
                for cut in promotion.cuts
            ),
            unseen=sum(ends[source] for source in ends.keys() - {cut.source for cut in promotion.cuts}),
            moved=tuple(str(each) for each in others),
            foreign=tuple(str(each) for each, _ in foreign if each.source not in marked),
            settings=settings,
        )

    def _settings(self, link: Link, sessions: LinkSessions) -> tuple[ChangedSetting, ...]:
        """Returns the settings of existing topics that a link changes before it mirrors."""
        return link_discovery(link, *sessions, clock=self.clock).plan().settings(link.target)

    # -- checks ----------------------------------------------------------------------------------

    def _refuse_recreated(
        self, promotion: Promotion, recreation: Recreation | None, reversal: Reversal | None
    ) -> None:
        """
        Raises if a topic is another one than at the cut: its offsets have no meaning for the cut.

        What the source had no more at the cut must not be there again, unless the link back has created it.
        """
        ours = recreation.topics if recreation is not None and recreation.number == promotion.number else ()
        sides = (
            (
                self.sessions.source,
                {cut.topic: cut.topic_id for cut in promotion.cuts if cut.topic not in ours and not cut.gone},
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

        gone = {cut.source for cut in promotion.cuts if cut.gone and reversal is None}
        there = self.sessions.source.admin.describe_topics(sorted({each.topic for each in gone}))
        for each in sorted(gone):
            if (found := there[each.topic]) is not None and each.partition < found.partitions:
                raise NotReadyError(
                    f"{each} on {self.sessions.source.admin.name} was created again since link {self.link.name} was "
                    "promoted; it did not exist then",
                    fix="delete it, or `exclude` the topic from both links and start a new link for it",
                )

    def _refuse_stale(
        self, back: Link, promotion: Promotion, before: PromotionHistory, noted: Reversal | None = None
    ) -> None:
        """Raises if the link to resume was promoted later than this one: its positions would go back to an old cut."""
        ended = before.current
        if ended is None:
            return
        # A cut that was moved back since does not tell.
        moved = {} if noted is None else noted.cuts
        positions = {cut.source: cut.position for cut in promotion.cuts if cut.source not in moved}
        later = any(positions.get(cut.copy, cut.target_end) < cut.target_end for cut in ended.cuts)
        if later or (noted is not None and moved and ended.timestamp > noted.timestamp):
            raise NotReadyError(
                f"link {self.link.name} has not mirrored since link {back.name} was promoted: its cut is an older one",
                fix=f"finish the reversal of that link first: `eomirror reverse CONFIG --link {quote(back.name)}`",
            )

    def _refuse_lost_copies(self, back: Link, sessions: LinkSessions) -> None:
        """Raises if a copy has lost records of the link that returns, merged ones too: it begins behind them."""
        control = control_of(back, sessions.target)
        promotion = control.history.current
        if promotion is None or control.generation is None:
            return
        positions = self.positions(back, sessions)
        named = [positions[cut.source] for cut in promotion.cuts if cut.source in positions]
        written = [one for one in named if one.target_offset is not None]
        copies = self.copy_ends(written, control, back, sessions)
        if lost := [each.problem for _, each in sorted(copies.items()) if each.problem]:
            raise NotReadyError(
                f"link {back.name}: a copy does not hold any more what was mirrored into it: "
                f"{'; '.join(lost[:_SHOWN])}",
                fix=f"restore its log on {back.target}; or `exclude` the topic from both links and start a new link "
                "for it",
            )

    def _unbegun(
        self,
        back: Link,
        sessions: LinkSessions,
        control: ControlView,
        promotion: Promotion,
        *,
        noted: bool,
    ) -> dict[SourcePartition, int]:
        """
        Returns the offsets at which the link back has still to begin; empty if an earlier call has set them all.

        A position behind the cut does not tell: a link back that has begun there on its own lacks the records before
        it.  What it has mirrored does.

        Raises:
            NotReadyError: It has positions that no reversal set, and has mirrored from them.
        """
        starts = begins(promotion, back)
        topic = LinkNames(back.state_name).positions_topic
        if (ended := control.history.current) is not None:
            done = standing(back, sessions, control, ended)
            found = {
                source: offset
                for source, offset in returns(promotion, done.reached).items()
                if source in starts
            }
            ends = sessions.source.admin.offsets(sorted(found), at="latest", read_committed=False)
            return _behind_dealt(found, done.dealt, ends)
        if sessions.target.admin.describe_topics([topic])[topic] is None:
            return starts
        if control.generation is None:
            return starts
        positions = self.positions(back, sessions)
        if not noted and (
            behind := sorted(
                str(source)
                for source, start in starts.items()
                if source in positions and positions[source].offset < start
            )
        ):
            raise NotReadyError(
                f"link {back.name} has run on its own, and has not mirrored {', '.join(behind[:3])} up to the cut of "
                f"link {self.link.name}",
                fix=f"run it as it is, then repeat this: `eomirror run CONFIG --link {quote(back.name)}`; or use a "
                "link with another name for the way back",
            )
        passed = self._passed_over(back, sessions, starts, positions)
        if (mixed := [(each, later) for each, later in passed if later is not None]) and not noted:
            some = ", ".join(
                f"[{each.start}, {min(each.end, later)}) of {each.source}" for each, later in mixed[:3]
            )
            raise NotReadyError(
                f"link {back.name} has run on its own, and has begun behind the cut of link {self.link.name}: it has "
                f"mirrored what follows, and not the records in {some}",
                fix="use a link with another name for the way back, and delete on "
                f"{back.target} what {back.name} has written behind the cut; or bring the records by hand",
            )
        passed_over = {each.source for each, later in passed if later is None}
        return {
            source: start
            for source, start in starts.items()
            if source not in positions or source in passed_over
        }

    def _passed_over(
        self,
        back: Link,
        sessions: LinkSessions,
        starts: Mapping[SourcePartition, int],
        positions: Mapping[SourcePartition, Position],
    ) -> list[tuple[ForeignRecords, int | None]]:
        """
        Returns what the link back has to mirror from the cut on, and has not, though its position is behind it.

        Returns:
            Records of a partition from the first one on, and the offset at which the link has begun to mirror them.
        """
        # A killed call has begun before the cut, with records of others in between.
        there = [
            one
            for source, start in starts.items()
            if (one := positions.get(source)) is not None and one.offset > start
        ]
        # In a log that has lost its end since, the position tells what was mirrored: the lane stops there by name.
        changed = changed_sources(back, sessions.source, there)
        there = [one for one in there if one.source not in changed]
        maps = OffsetMapReader(back, sessions.target).maps(there)
        found: list[tuple[ForeignRecords, int | None]] = []
        ours = sessions.target.admin.describe_cluster().cluster_id
        for position in there:
            start, end, size = starts[position.source], position.offset, _FIRST_RECORDS
            listed = maps[position.source].listed()
            later = min((max(low, start) for low, _, count in listed if low + count > start), default=None)
            at, first = start, None
            while at < end and first is None:
                each = OrphanRange(source=position.source, start=at, end=min(at + size, end), target=ours)
                first = next(iter(self.reader(back.source).foreign([each])), None)
                at, size = each.end, size * 4
            if first is not None and not any(low <= first.start < low + count for low, _, count in listed):
                found.append((first, later))
        return found

    def _ends(self, promotion: Promotion) -> Mapping[SourcePartition, int]:
        """
        Returns the ends of the source's logs, which must stand still.

        Raises:
            NotReadyError: Applications write there.
        """
        admin = self.sessions.source.admin
        wanted = [cut.source for cut in promotion.cuts if not cut.gone]
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

    def _begins(
        self,
        back: Link,
        sessions: LinkSessions,
        promotion: Promotion,
        starts: Mapping[SourcePartition, int],
        ends: Mapping[SourcePartition, int],
    ) -> dict[SourcePartition, Begin]:
        """
        Returns how the logs are found where the link back begins, for its first start to compare with.

        Raises:
            NotReadyError: A transaction is open before that place.
        """
        behind = {
            cut.copy: (cut.source, ends[cut.source])
            for cut in promotion.cuts
            if cut.source in ends and cut.copy in starts
        }
        begins = {each: starts[each] for each in behind}
        read = end_marks(back, sessions.source, begins)
        written = end_marks(back, sessions.target, dict(behind.values()))
        # A transaction of the promoted link may reach over the beginning, and its marker may be lost.
        states = states_before(back, sessions.source, begins)
        if opened := sorted(each for each in begins if states.get(each) is RecordState.PENDING):
            raise NotReadyError(
                f"link {self.link.name}: a transaction is open on {back.source} before offset {begins[opened[0]]} of "
                f"{opened[0]}, at which link {back.name} begins, and may be aborted later"
                + (f"; and in {len(opened) - 1} more partitions" if opened[1:] else ""),
                fix="wait for its end, or end it: kafka-transactions.sh find-hanging, abort; then repeat "
                f"`eomirror reverse CONFIG --link {quote(self.link.name)}`",
            )
        return {
            each: Begin(end, written.get(source), read.get(each), states.get(each) is RecordState.COMMITTED)
            for each, (source, end) in behind.items()
        }

    # -- steps -----------------------------------------------------------------------------------

    def _record(self, record: Reversal, moved: Mapping[SourcePartition, tuple[int, int]]) -> None:
        self.tell(f"recording the reversal of {self.link.name}")
        if not moved:
            self.note(record)
            return
        partitions = link_discovery(self.link, *self.sessions, clock=self.clock).prepare(strict=True)
        positions = self.positions()
        self.take(
            self.link,
            self.sessions,
            partitions,
            although_promoted=True,
            adopt={source: position for source, (position, _) in moved.items()},
            # a call that takes this up looks for records of others again
            begins={
                source: Begin(begin)
                for source in moved
                if (one := positions.get(source)) is not None and (begin := one.target_begin) is not None
            },
            decided=record,
        )

    def _start(
        self,
        back: Link,
        sessions: LinkSessions,
        ended: Promotion | None,
        starts: Mapping[SourcePartition, int],
        reversal: Reversal,
        *,
        found: Mapping[SourcePartition, Begin],
    ) -> None:
        self.tell(f"setting the positions of {back.name} to the cut")
        discovery = link_discovery(back, *sessions, clock=self.clock, overruled=starts.keys())
        partitions = discovery.prepare(strict=True)
        order = None
        if reversal.cuts:
            back = whole_link(back)
            order = CopyBack(
                link=self.link.name,
                number=reversal.number,
                done=False,
                until={},
                run=self.run_id,
                timestamp=self.clock.wall_ms(),
                command="reverse",
            )
        self.take(
            back,
            sessions,
            partitions,
            although_promoted=ended is not None,
            decided=None
            if ended is None
            else Resumption(
                number=ended.number,
                link=self.link.name,
                starts=starts,
                run=self.run_id,
                timestamp=self.clock.wall_ms(),
            ),
            order=order,
            adopt=starts,
            begins=found,
        )

    def _copy_back(
        self,
        back: Link,
        sessions: LinkSessions,
        promotion: Promotion,
        reversal: Reversal,
        mirror: Callable[[Config], None],
    ) -> None:
        """Brings what the source has lost back, unless an earlier call has."""
        order = control_of(back, sessions.target).copy_back
        if order is None or order.done or order.command != "reverse":
            return
        copies = {cut.target_topic for cut in promotion.cuts if cut.source in reversal.cuts}
        self.tell(f"copying {', '.join(sorted(copies)[:_SHOWN])} back from where the two sides part")
        whole = whole_link(back, copies)
        mirror(replace(self.config, links=(whole,)))
        crash_point("failover.copied_back")
        self.finish_copy_back(whole, sessions, order)


def _behind_dealt(
    starts: Mapping[SourcePartition, int], dealt: DealtRanges, ends: Mapping[tuple[str, int], int]
) -> dict[SourcePartition, int]:
    """
    Returns where a link begins again: what a restoration has dealt with from there on is not mirrored a second time.

    Args:
        starts: Offset of the first record that the link back has not written, or the end of the log.
        dealt: What restorations have dealt with.
        ends: Ends of the logs.
    """
    found = {}
    for source, start in starts.items():
        at = start
        for one in sorted(dealt.get(source, ()), key=lambda one: one.start):
            if one.start <= at < one.end:
                at = one.end
        found[source] = max(start, min(at, ends[source]))
    return found
