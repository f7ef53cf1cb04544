"""
Deletes topics of an old source that have orphans, and copies them back whole from the promoted side.

Afterwards the topic on both sides holds the same records, in the order of the promoted side, without the orphans that
were exported.  Steps, each with a crash point behind it::

    1. take the link back; check that nothing would be lost; recreation in the control topic of the promoted link
    2. copy-back in the control topic of the link back: only this command runs it from here on
    3. delete the topics that the recreation names by their ids
    4. create them again, and set the positions of the link back to the beginning of the copies, with the new ids
    5. the link back copies these topics without its loop guard, which would drop what the old source once wrote
    6. recreation done; copy-back done, with the offsets up to which all was copied

A second call finds the recreation, checks nothing again (the records are gone), and takes the steps that are left.  A
topic that has another id than the recreation names was deleted already.  A position with the new id was set already.
"""

from __future__ import annotations

import re
import socket
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.crash import crash_point
from eomirror.errors import NotReadyError, TopicError, UnreachableError
from eomirror.failover.common_end import common_ends
from eomirror.failover.orphan_reader import OrphanRange, Reading, named
from eomirror.failover.orphan_sinks import HeldRecords, OrphanFile, OrphanTopic
from eomirror.failover.orphans import orphan_ranges, standing, undecided
from eomirror.failover.promoted_link import PromotedLink, back_link, by_topic, whole_link
from eomirror.kafka.log_ends import existing_ends
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.link.ownership import refuse_copying_back
from eomirror.link.state import LinkState, control_of
from eomirror.records.names import LinkNames
from eomirror.records.recreation import CopyBack, Recreation
from eomirror.topics.discovery import Discovery
from eomirror.topics.native_admin import delete_topics
from eomirror.types import SourcePartition
from eomirror.verify.runner import Verifier
from eomirror.verify.scope import with_origins
from eomirror.verify.verdict import are

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.kafka.session import LinkSessions
    from eomirror.link.source_comparison import ChangedSource
    from eomirror.records.control import ControlView
    from eomirror.records.dealt_ranges import DealtRanges
    from eomirror.records.promotion import Promotion, Restoration, Reversal

__all__ = ["Recreated", "RecreatedTopic", "recreate", "refuse_recreated", "unchecked_exports"]

_GONE_SECONDS = 60.0
_LOOK_SECONDS = 0.5
_SHOWN = 3
# What leaves orphans elsewhere than on the old source.
_KEPT = frozenset({"export", "merge"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RecreatedTopic:
    """
    A topic that is deleted on the old source, and copied back.

    Attributes:
        topic: Source topic.
        copy: Topic that it is copied back from.
        orphans: Its committed records beyond the cut, which were exported or merged; None if it is deleted already.
        state: ``to delete``, ``deleted`` or ``copied back``.
    """

    topic: str
    copy: str
    orphans: int | None
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Recreated:
    """
    Result of a recreation.

    Attributes:
        back: The link back.
        before: What was done with the orphans: ``export`` or ``merge``; empty if there were none.
        records: Number of these orphans.
        place: File or topic that holds exported orphans; empty for none.
        topics: One per topic.
        unchecked: Files on other hosts that hold exported orphans, which was not checked.
    """

    back: str
    before: str
    records: int
    place: str
    topics: tuple[RecreatedTopic, ...]
    unchecked: tuple[str, ...] = ()


def refuse_recreated(
    link: Link, control: ControlView, promotion: Promotion, *, unfinished: bool = False
) -> None:
    """
    Refuses other work on the orphans of a link whose topics were deleted: their offsets have no meaning any more.

    Args:
        unfinished: Refuse only as long as the topics are not copied back.

    Raises:
        NotReadyError: Topics are recreated, or were.
    """
    found = control.recreation
    if found is None or found.number != promotion.number or not found.topics or (unfinished and found.done):
        return
    names = ", ".join(sorted(found.topics)[:_SHOWN])
    raise NotReadyError(
        f"link {link.name}: {names} of {link.source} {'were' if found.done else 'are being'} deleted and copied back "
        "whole: there are no orphans any more",
        fix=f"`eomirror failback CONFIG --link {quote(link.name)}` returns"
        if found.done
        else f"repeat `eomirror restore CONFIG --link {quote(link.name)} --orphans recreate`",
    )


def unchecked_exports(
    config: Config, *, link: str | None = None, clock: Clock = SYSTEM_CLOCK
) -> tuple[str, ...]:
    """
    Returns the files with exported orphans of a promoted link that cannot be checked, because another host wrote them.

    Args:
        link: Name of the promoted link; required if there are several.

    Raises:
        NotReadyError: The link is not promoted.
        ClusterError: The target does not answer.
    """
    with PromotedLink(config, link, "restore", clock=clock) as promoted:
        control, promotion = promoted.in_force()
        restoration = control.history.restorations.get(promotion.number)
        return _elsewhere(_recorded(restoration))


def recreate(
    config: Config,
    *,
    link: str | None = None,
    topics: str = "",
    mirror: Callable[[Config], None] | None = None,
    dry_run: bool = False,
    on_event: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> Recreated:
    """
    Deletes the topics of a promoted link's source that have orphans, and copies them back whole; may be repeated.

    Args:
        config: Configuration that has both links.
        link: Name of the promoted link; required if there are several.
        topics: Full-match regular expression of source topics; empty for all that have orphans.
        mirror: Mirrors the one link of the configuration that it is given until it has caught up.
        dry_run: Only inspect.
        on_event: Receives a short text for each step.

    Raises:
        UsageError: The configuration has no link back.
        NotReadyError: The link is not promoted and reversed, or records of the old source would be lost.
        SupersededError: A mirror of one of the links runs.
        MirrorError: A cluster cannot be reached or refuses the request.
    """
    with _Recreate(config, link, "restore", dry_run=dry_run, on_event=on_event, clock=clock) as made:
        return made.run(topics, mirror)


class _Recreate(PromotedLink):
    def run(self, topics: str, mirror: Callable[[Config], None] | None) -> Recreated:
        control, promotion = self.in_force()
        reversal = control.history.reversals.get(promotion.number)
        if reversal is None:
            raise NotReadyError(
                f"link {self.link.name} is promoted, but not reversed: no link copies its topics back",
                fix=f"`eomirror reverse CONFIG --link {quote(self.link.name)}` starts the link back; then repeat this",
            )
        back = back_link(self.config, self.link, promotion)
        self.ask_source()
        restoration = control.history.restorations.get(promotion.number)
        found = control.recreation
        if found is not None and (found.number != promotion.number or not found.topics):
            found = None
        copies = {cut.topic: cut.target_topic for cut in promotion.cuts}
        sessions = self.connect(back)
        orphans: Mapping[str, int] = {}
        if found is None:
            # one of a reversal, which its command ends
            refuse_copying_back(back.name, control_of(back, sessions.target))
            found, orphans = self._decided(back, sessions, control, (promotion, reversal), topics)
            crash_point("failover.recreation_noted")
        chosen = {topic: copies[topic] for topic in sorted(found.topics)}
        if not self.dry_run and chosen and not found.done:
            self._carry_out(back, sessions, found, chosen, mirror)
        elif not self.dry_run and chosen:
            # A call that was killed behind its last but one step.
            self._finish(whole_link(back, chosen.values()), sessions)
        states = {True: "copied back", False: "to delete" if self.dry_run else "copied back"}
        return Recreated(
            back=back.name,
            before="" if restoration is None else restoration.orphans,
            records=found.records,
            place=found.place,
            topics=tuple(
                RecreatedTopic(
                    topic=topic, copy=copies[topic], orphans=orphans.get(topic), state=states[found.done]
                )
                for topic in sorted(found.topics)
            ),
            unchecked=_elsewhere(
                {
                    source: ranges
                    for source, ranges in _recorded(restoration).items()
                    if source.topic in found.topics
                }
            ),
        )

    # -- the decision ----------------------------------------------------------------------------

    def _decided(
        self,
        back: Link,
        sessions: LinkSessions,
        control: ControlView,
        given: tuple[Promotion, Reversal],
        topics: str,
    ) -> tuple[Recreation, Mapping[str, int]]:
        """Checks, with the link back held, that nothing is lost; returns the decision, and orphans by topic."""
        promotion, reversal = given
        restoration = control.history.restorations.get(promotion.number)
        owner = None if self.dry_run else self.owner(whole_link(back), sessions)
        try:
            if owner is not None:
                self.tell(f"taking {back.name}")
                owner.retake()
            ranges = [
                each
                for each in orphan_ranges(promotion, self._there(reversal.ends))
                if not topics or re.fullmatch(topics, each.source.topic)
            ]
            orphans = self._counted(ranges)
            done = standing(self.link, self.sessions, control, promotion)
            # An older release has recorded no ranges.
            older = restoration is not None and restoration.ranges is None
            recorded = {} if older else done.dealt
            torn = {one.topic for one in done.lost if not topics or re.fullmatch(topics, one.topic)}
            chosen = sorted({topic for topic, count in orphans.items() if count} | torn)
            # Also what was exported behind the reversal: applications have written there.
            exported = {
                cut.source: max(
                    reversal.ends.get(cut.source, 0),
                    *(one.end for one in recorded.get(cut.source, ()) if one.action == "export"),
                    0,
                )
                for cut in promotion.cuts
                if cut.topic in chosen
            }
            self._refuse_undecided(
                [each for each in ranges if each.source.topic in chosen], recorded, older=older
            )
            self._refuse_not_exported(orphan_ranges(promotion, self._there(exported)), recorded)
            self._refuse_shared(back, chosen)
            ids = self._refuse_other_topics(promotion, chosen)
            ends: Mapping[SourcePartition, int] = {}
            if chosen:
                self.tell("comparing what is deleted with what is copied back")
                ends = self._compared((promotion, reversal), control, chosen, recorded, done.lost)
            found = Recreation(
                number=promotion.number,
                link=back.name,
                topics={topic: ids[topic] for topic in chosen},
                ends=by_topic(ends),
                records=0 if restoration is None else restoration.records,
                place="" if restoration is None else restoration.place,
                done=not chosen,
                run=self.run_id,
                timestamp=self.clock.wall_ms(),
            )
            if not self.dry_run and chosen:
                self.note(found)
            if owner is not None:
                owner.release()
        finally:
            if owner is not None:
                owner.close()
        return found, orphans

    def _there(self, ends: Mapping[SourcePartition, int]) -> Mapping[SourcePartition, int]:
        """Returns ends, or those of the logs where these have lost theirs."""
        now = existing_ends(
            self.sessions.source.admin,
            sorted(ends),
            read_committed=False,
            passing=(TopicError,),
        )
        return {source: min(end, now.get(source, end)) for source, end in ends.items()}

    def _refuse_undecided(self, ranges: Sequence[OrphanRange], recorded: DealtRanges, *, older: bool) -> None:
        """Refuses to delete orphans that were neither exported nor merged: they exist nowhere else."""
        left = undecided(ranges, recorded, by=_KEPT)
        counts = self._count(left) if left else {}
        if not any(counts.values()):
            return
        raise NotReadyError(
            f"link {self.link.name}: {sum(counts.values())} records of {self.link.source} never reached the copies, "
            "were neither exported nor merged"
            + (" as far as is known, because an older release has restored them," if older else "")
            + f" and would be deleted with their topics: {named([each for each in left if counts[each.source]])}",
            fix=("repeat it: " if older else "keep them first: ")
            + f"`eomirror restore CONFIG --link {quote(self.link.name)} --orphans export|merge`",
        )

    def _refuse_not_exported(self, ranges: Sequence[OrphanRange], recorded: DealtRanges) -> None:
        """Refuses to delete orphans that were exported, and that the file or topic does not hold any more."""
        exported = undecided(ranges, recorded, by={"merge"})
        counts = self._count(exported) if exported else {}
        held = self._held([each for each in exported if counts[each.source]], recorded)
        for source, count in counts.items():
            if count <= held.get(source, count):
                continue
            places = sorted({one.place for one in recorded.get(source, ()) if one.place})
            raise NotReadyError(
                f"{self.link.source} has {count} records in "
                f"{named([each for each in exported if each.source == source])} that were exported, and "
                f"{' and '.join(places)} hold {held[source]} of them: the others would be deleted",
                fix=f"export them again: `eomirror restore CONFIG --link {quote(self.link.name)} --orphans export`, "
                "with --to FILE or --to-topic",
            )

    def _held(self, exported: Sequence[OrphanRange], recorded: DealtRanges) -> Mapping[SourcePartition, int]:
        """Returns the number of records that files and topics hold; none of a partition with a file elsewhere."""
        here = [each for each in exported if not _elsewhere({each.source: recorded.get(each.source, ())})]
        if not here:
            return {}
        there = HeldRecords(here)
        for place in sorted(
            {one.place for each in here for one in recorded.get(each.source, ()) if one.place}
        ):
            if place == LinkNames(self.link.state_name).orphans_topic:
                OrphanTopic(self.link, self.sessions.target, self.in_force()[1].number).read(there.take)
            else:
                OrphanFile(Path(place)).read(there.take)
        self.reader(self.link.source).write(here, there, Reading(accept_lost=True, tell=self.tell))
        return there.compared

    def _refuse_shared(self, back: Link, chosen: Sequence[str]) -> None:
        """Refuses topics that other links read or write there: those would stop at a topic that is another one."""
        for each in self.config.links:
            if each.name in {self.link.name, back.name}:
                continue
            reads = [topic for topic in chosen if each.source == self.link.source and each.mirrors(topic)]
            if reads:
                raise NotReadyError(
                    f"link {each.name} mirrors {', '.join(reads[:_SHOWN])} from {self.link.source} as well, and would "
                    "stop, or copy every record a second time",
                    fix="leave the topic out with --topics, or end that link first",
                )

    def _refuse_other_topics(self, promotion: Promotion, chosen: Sequence[str]) -> Mapping[str, str]:
        """Returns the ids of the topics; refuses others than those of the promotion, and those without a whole copy."""
        cuts = {cut.source: cut for cut in promotion.cuts}
        ids = {cut.topic: cut.topic_id for cut in promotion.cuts}
        for topic, facts in self.sessions.source.admin.describe_topics(list(chosen)).items():
            if facts is None or facts.topic_id != ids.get(topic):
                raise NotReadyError(
                    f"topic {topic} on {self.link.source} is not the one that link {self.link.name} has mirrored",
                    fix="leave it out with --topics",
                )
            without = [n for n in range(facts.partitions) if SourcePartition(topic, n) not in cuts]
            if without:
                raise NotReadyError(
                    f"{topic}-{without[0]} on {self.link.source} was never mirrored before the promotion: the link "
                    "back does not write it",
                    fix="leave the topic out with --topics",
                )
        return ids

    def _compared(
        self,
        given: tuple[Promotion, Reversal],
        control: ControlView,
        chosen: Sequence[str],
        recorded: DealtRanges,
        lost: Mapping[SourcePartition, ChangedSource],
    ) -> Mapping[SourcePartition, int]:
        """
        Refuses to delete records that the copies do not hold, beside the orphans that were exported or merged.

        Where the source has lost merged ones, the copy is compared up to the cut: what stands behind it there was
        exported, or is the link back's.

        Returns:
            The log end of each partition: what is behind it was not compared.
        """
        promotion, reversal = given
        clusters = self.config.clusters[self.link.source], self.config.clusters[self.link.target]
        names = tuple(re.escape(topic) for topic in chosen)
        link = replace(with_origins(self.link, self.config.clusters), topics=names, exclude=())
        with closing(Verifier(link, *clusters, clock=self.clock)) as verifier:
            verdict = verifier.run()
        begins = self._copied_up_to_cut(promotion, control, lost)
        wrong = [
            each
            for each in verdict.partitions
            if (each.differs or not each.whole)
            and SourcePartition(each.scope.source.topic, each.scope.source.partition) not in begins
        ]
        if wrong:
            scope = wrong[0].scope
            raise NotReadyError(
                f"{scope.source.topic}-{scope.source.partition}: source and copy {are(wrong[0].word)}"
                + (f": {scope.problem}" if scope.problem else ""),
                fix="`eomirror verify CONFIG` shows the differences; leave the topic out with --topics",
            )
        compared = {
            SourcePartition(each.scope.source.topic, each.scope.source.partition): each.scope.source.start
            for each in verdict.partitions
        } | begins
        admin = self.sessions.source.admin
        wanted = [cut.source for cut in promotion.cuts if cut.topic in chosen]
        starts = admin.offsets(wanted, at="earliest", read_committed=False)
        ends = admin.offsets(wanted, at="latest", read_committed=False)
        target = promotion.target_cluster_id
        ranges = [
            OrphanRange(source=source, start=start, end=end, target=target)
            for source in wanted
            for start, end in (
                (starts[source], min(compared.get(source, ends[source]), ends[source])),
                (max(starts[source], reversal.ends.get(source, 0)), ends[source]),
            )
            if start < end
        ]
        for each in undecided(ranges, recorded, by=_KEPT):
            if count := sum(self._counted([each]).values()):
                before = each.start < reversal.ends.get(each.source, 0)
                raise NotReadyError(
                    f"{each.source} on {self.link.source} holds {count} records in offsets [{each.start}, {each.end}) "
                    + (
                        "that the copy does not hold"
                        if before
                        else "that the link back has not written, or not marked"
                    )
                    + ": they would be lost",
                    fix="leave the topic out with --topics"
                    + (
                        ""
                        if before
                        else "; or stop the applications that write there, and keep their records: `eomirror restore "
                        f"CONFIG --link {quote(self.link.name)} --orphans export|merge`"
                    ),
                )
        self.clock.sleep(_LOOK_SECONDS)
        later = admin.offsets(wanted, at="latest", read_committed=False)
        if moved := sorted(str(source) for source in wanted if later[source] != ends[source]):
            raise NotReadyError(
                f"{', '.join(moved[:_SHOWN])} on {self.link.source} is still written to",
                fix="stop the applications that write there, then repeat this",
            )
        return {source: ends[source] for source in wanted}

    def _copied_up_to_cut(
        self, promotion: Promotion, control: ControlView, lost: Mapping[SourcePartition, ChangedSource]
    ) -> dict[SourcePartition, int]:
        """
        Returns the first mirrored offset of partitions that have lost merged orphans, and hold the rest as mirrored.

        There is none of a partition that a link has returned from before, or whose copy has lost its beginning: then
        the whole comparison decides.
        """
        if not lost or control.history.resumptions:
            return {}
        parted = common_ends(self.link, self.sessions, lost, promotion.cuts, control.history)
        same = lost.keys() - {each.changed.source for each in parted}
        copies = {cut.source: cut.copy for cut in promotion.cuts if cut.source in same}
        maps = OffsetMapReader(self.link, self.sessions.target).maps(
            [lost[source].position for source in copies]
        )
        starts = self.sessions.target.admin.offsets(
            sorted(copies.values()), at="earliest", read_committed=False
        )
        return {
            source: min(ranges)[0]
            for source, copy in copies.items()
            if (ranges := maps[source].listed()) and starts[copy] <= min(target for _, target, _ in ranges)
        }

    def _count(self, ranges: Sequence[OrphanRange]) -> dict[SourcePartition, int]:
        return self.reader(self.link.source).count(ranges, Reading(accept_lost=True, tell=self.tell))

    def _counted(self, ranges: Sequence[OrphanRange]) -> dict[str, int]:
        counts: dict[str, int] = {}
        for source, count in self._count(ranges).items():
            counts[source.topic] = counts.get(source.topic, 0) + count
        return counts

    # -- its steps -------------------------------------------------------------------------------

    def _carry_out(
        self,
        back: Link,
        sessions: LinkSessions,
        found: Recreation,
        copies: Mapping[str, str],
        mirror: Callable[[Config], None] | None,
    ) -> None:
        whole = whole_link(back, copies.values())
        self._order(whole, sessions, found)
        crash_point("failover.copy_back_noted")
        self._refuse_later(whole, sessions, found)
        self._delete(found)
        crash_point("failover.topics_deleted")
        self._begin(whole, sessions, found, copies)
        crash_point("failover.copy_back_begun")
        self.tell(f"copying {', '.join(sorted(copies)[:_SHOWN])} back")
        if mirror is not None:
            mirror(replace(self.config, links=(whole,)))
        crash_point("failover.copied_back")
        self.note(replace(found, done=True))
        crash_point("failover.recreation_done")
        self._finish(whole, sessions)

    def _order(self, back: Link, sessions: LinkSessions, found: Recreation) -> None:
        order = LinkState(back, sessions.target).control(wait_for_open=False).copy_back
        if order is not None and not order.done:
            return
        with closing(self.owner(back, sessions)) as owner:
            owner.retake()
            owner.note(self._copy_back(found))
            owner.release()

    def _finish(self, back: Link, sessions: LinkSessions) -> None:
        order = LinkState(back, sessions.target).control(wait_for_open=False).copy_back
        if order is not None and not order.done:
            self.finish_copy_back(back, sessions, order)

    def _copy_back(self, found: Recreation) -> CopyBack:
        return CopyBack(
            link=self.link.name,
            number=found.number,
            done=False,
            until={},
            run=self.run_id,
            timestamp=self.clock.wall_ms(),
        )

    def _refuse_later(self, back: Link, sessions: LinkSessions, found: Recreation) -> None:
        """Withdraws the decision, if applications have written to a topic since it was compared."""
        there = self._not_deleted(found)
        admin = self.sessions.source.admin
        target = sessions.source.admin.describe_cluster().cluster_id
        compared = {
            SourcePartition(topic, int(number)): end
            for topic, partitions in found.ends.items()
            if topic in there
            for number, end in partitions.items()
        }
        now = admin.offsets(sorted(compared), at="latest", read_committed=False) if compared else {}
        ranges = [
            OrphanRange(source=source, start=end, end=now[source], target=target)
            for source, end in sorted(compared.items())
            if end < now[source]
        ]
        late = {topic: count for topic, count in self._counted(ranges).items() if count} if ranges else {}
        if not late:
            return
        if there == set(found.topics):
            self._finish(back, sessions)
            self.note(replace(found, topics={}, done=True))
        raise NotReadyError(
            f"applications have written {sum(late.values())} records to {', '.join(sorted(late)[:_SHOWN])} on "
            f"{self.link.source} since it was compared",
            fix="stop them and keep these records, then repeat this"
            + ("" if there == set(found.topics) else "; another topic is deleted already"),
        )

    def _not_deleted(self, found: Recreation) -> set[str]:
        facts = self.sessions.source.admin.describe_topics(sorted(found.topics))
        return {
            topic for topic, one in facts.items() if one is not None and one.topic_id == found.topics[topic]
        }

    def _delete(self, found: Recreation) -> None:
        there = self._not_deleted(found)
        if not there:
            return
        self.tell(f"deleting {', '.join(sorted(there)[:_SHOWN])} on {self.link.source}")
        # not by name: a command that takes over meanwhile creates the topics again
        refused = delete_topics(self.sessions.source, {topic: found.topics[topic] for topic in sorted(there)})
        for error in refused.values():
            raise error
        deadline = Deadline(_GONE_SECONDS, self.clock)
        while self._not_deleted(found):
            if deadline.passed:
                raise UnreachableError(
                    f"{', '.join(sorted(there)[:_SHOWN])} on {self.link.source} were deleted, and brokers still "
                    f"answer for them after {_GONE_SECONDS:.0f} s",
                    fix="repeat this: it goes on from here",
                )
            self.clock.sleep(_LOOK_SECONDS)

    def _begin(
        self, back: Link, sessions: LinkSessions, found: Recreation, copies: Mapping[str, str]
    ) -> None:
        """Creates the topics, and sets the positions of the link back to the beginning of their copies."""
        self.tell(f"creating {', '.join(sorted(copies)[:_SHOWN])} again")
        # without positions: these topics were deleted by this command
        partitions = Discovery(back, *sessions, clock=self.clock).prepare(strict=True)
        positions = self.positions(back, sessions)
        gone = set(found.topics.values())
        wanted = [
            item.source
            for item in partitions
            if item.source not in positions or positions[item.source].target_topic_id in gone
        ]
        if not wanted:
            return
        starts = sessions.source.admin.offsets(wanted, at="earliest", read_committed=False)
        self.take(back, sessions, partitions, adopt={source: starts[source] for source in wanted})


def _recorded(restoration: Restoration | None) -> DealtRanges:
    """Returns what a restoration has recorded; nothing for an older release, which recorded no ranges."""
    return {} if restoration is None or restoration.ranges is None else restoration.ranges


def _elsewhere(recorded: DealtRanges) -> tuple[str, ...]:
    """Returns the files with exported orphans that are on other hosts."""
    files = {(one.host, one.place) for some in recorded.values() for one in some if one.host}
    here = socket.gethostname()
    return tuple(
        f"{host}:{place}" for host, place in sorted(files) if host != here and not Path(place).exists()
    )
