"""
Deals with the orphans of a failover: records of the old source that never reached the copies.

They stand in the source's log behind the cut, so every one of them is known by its offset:

* ``export`` writes them to a file, or to a topic on the target, for the user to decide;
* ``merge`` mirrors them with the link itself, so that each reaches the copy exactly once, behind what applications
  have written there since;
* ``keep`` leaves them where they are; the link back writes behind them.

A compacted topic is not merged: an old value could overwrite a newer one.  Its orphans go to the file.

Applications may write on, before the reversal and after it, so a restoration records the ranges of offsets that it has
dealt with, and a later one deals with the rest::

    cut                     log end then            log end now
     |---- merge ------------|---- undecided --------|

A merge has gone as far as the link's position, which says so also after the command was killed.  The log ends at each
call bound what it counts; what the link mirrors beyond them it mirrors once, because it returns behind its position.
Once the link back is promoted applications write to the source rightly, and nothing is merged any more.

A range may be of any size, and a killed call is repeated: a file goes on where it ended, and so does the link that
merges.  Orphans that retention has deleted on the old source are named, and the others wait until that is accepted.
"""

from __future__ import annotations

import socket
from dataclasses import asdict, dataclass, replace
from shlex import quote
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.crash import crash_point
from eomirror.errors import NotReadyError, TopicError, UnreachableError, UsageError
from eomirror.failover.common_end import refuse_changed
from eomirror.failover.facts import uncut_partitions
from eomirror.failover.open_transactions import await_ended, open_transactions
from eomirror.failover.orphan_reader import Reading, log_starts
from eomirror.failover.orphan_sinks import OrphanFile, OrphanTopic
from eomirror.failover.orphans import later_ends, orphan_ranges, standing, undecided, way_back
from eomirror.failover.promoted_link import PromotedLink, back_link, merged
from eomirror.failover.recreation import refuse_recreated
from eomirror.kafka.log_ends import existing_ends, existing_starts
from eomirror.link.source_comparison import changed_sources, end_marks
from eomirror.link.state import control_of, link_discovery
from eomirror.records.dealt_ranges import DealtRange, united
from eomirror.records.promotion import Restoration
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from eomirror.config import Config, Link
    from eomirror.failover.open_transactions import OpenTransaction
    from eomirror.failover.orphan_reader import OrphanRange
    from eomirror.kafka.cluster_metadata import ConfigValue
    from eomirror.kafka.session import LinkSessions
    from eomirror.plane.protocol import BatchMark
    from eomirror.records.dealt_ranges import DealtRanges
    from eomirror.records.promotion import Promotion, PromotionHistory, Reversal

__all__ = ["OrphanPartition", "RestorationReport", "restore"]

_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanPartition:
    """
    Orphans of one partition.

    Attributes:
        topic: Source topic.
        start: First offset beyond the cut.
        end: Offset behind the last.
        records: Committed records in between.
        action: ``export``, ``merge`` or ``keep``.
        lost: Ranges of offsets that the source has deleted since; they may hold records.
    """

    topic: str
    partition: int
    start: int
    end: int
    records: int
    action: str
    lost: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorationReport:
    """
    Result of a restoration.

    Attributes:
        link: The promoted link.
        number: Number of the promotion.
        orphans: What was asked for.
        committed: False for a dry run.
        place: File or topic with exported records; empty for none.
        partitions: Partitions with orphans.
        unreadable_headers: Records that were exported without their headers: a name is not UTF-8.
        open: For a dry run: open transactions of the source.  What they hold back is not counted: it may hold more.
        at: Time of the report, ms since the epoch.
    """

    link: str
    number: int
    orphans: str
    committed: bool
    place: str
    partitions: tuple[OrphanPartition, ...]
    unreadable_headers: int = 0
    open: tuple[OpenTransaction, ...] = ()
    at: int = 0

    @property
    def lost(self) -> int:
        """Number of source offsets that were deleted before they could be read; markers count."""
        return sum(end - start for each in self.partitions for start, end in each.lost)

    @property
    def records(self) -> int:
        """Number of orphans."""
        return sum(each.records for each in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return {
            **{key: value for key, value in asdict(self).items() if key != "at"},
            "records": self.records,
            "lost": self.lost,
            "open": [one.as_dict(self.at) for one in self.open],
        }


def restore(
    config: Config,
    orphans: str,
    *,
    link: str | None = None,
    to: Path | None = None,
    to_topic: bool = False,
    merge: Callable[[Config], None] | None = None,
    accept_lost: bool = False,
    dry_run: bool = False,
    on_event: Callable[[str], None] | None = None,
    clock: Clock = SYSTEM_CLOCK,
) -> RestorationReport:
    """
    Finds the orphans of a promoted link and deals with them; may be repeated.

    Args:
        config: Configuration that has both links.
        orphans: ``export``, ``merge`` or ``keep``.
        link: Name of the promoted link; required if there are several.
        to: File for exported records.
        to_topic: Export to the topic ``eomirror.LINK.orphans`` on the target instead.
        merge: Mirrors the one link of the configuration that it is given until it has caught up, although the link is
            promoted.
        accept_lost: Deal with the other orphans although the old source has deleted some.
        dry_run: Only inspect.
        on_event: Receives a short text for each step.

    Raises:
        UsageError: A file or ``merge`` is missing, the configuration has no link back, or the file holds records that
            the new one would lack.
        NotReadyError: The link is not promoted, or its source is not what was mirrored; or a merge, and its link back
            is promoted or does not mark its copies.
        DataLossError: Orphans were deleted on the old source, and that is not accepted.
        SupersededError: A mirror of the link runs.
        StateError: A state topic is not readable.
        MirrorError: A cluster cannot be reached or refuses the request.
    """
    with _Restore(config, link, "restore", dry_run=dry_run, on_event=on_event, clock=clock) as made:
        return made.run(orphans, to, merge, to_topic=to_topic, accept_lost=accept_lost)


class _Restore(PromotedLink):
    def run(
        self,
        orphans: str,
        to: Path | None,
        merge: Callable[[Config], None] | None,
        *,
        to_topic: bool,
        accept_lost: bool,
    ) -> RestorationReport:
        chosen, sessions, tell, dry_run = self.link, self.sessions, self.tell, self.dry_run
        reader = self.reader(chosen.source)
        control, promotion = self.in_force()
        refuse_recreated(chosen, control, promotion)
        self.ask_source()
        if orphans == "merge" and not chosen.guard:
            raise UsageError(
                f"link {chosen.name}: merged records would be brought back as new ones: the configuration has no "
                "link back, so they would carry no origin",
                fix="add the link back to the configuration first: `eomirror reverse CONFIG --dry-run` shows its entry",
            )
        history = control.history
        self._refuse_changed(orphans, promotion, history)
        ends = self._ends(promotion, history.reversals.get(promotion.number), orphans)
        uncut = ends.keys() - {cut.source for cut in promotion.cuts}
        done = standing(chosen, sessions, control, promotion)
        dealt = done.dealt
        # An orphan that was merged has a copy; what was exported or kept may be dealt with in another way.
        ranges = _one_each(
            undecided(
                orphan_ranges(promotion, ends, _starts(sessions, uncut)),
                dealt,
                by=None if orphans == "keep" else {"merge"},
            )
        )
        exports = _compacted(sessions.source.admin.topic_configs({each.source.topic for each in ranges}))
        if orphans == "merge":
            exports |= self._passed(promotion, ranges)
        actions = {each.source: _action(orphans, each, exports) for each in ranges}
        exported = [each for each in ranges if actions[each.source] == "export"]
        held = self._held(ranges, reader.client_id)
        # Before they are read: what a log holds that changes from here on was not dealt with.
        unstable = {(one.topic, one.partition) for one in held}
        marks = self._marks(
            {
                each.source: each.end
                for each in ranges
                if actions[each.source] != "merge" and each.source not in unstable
            }
        )
        reading = Reading(accept_lost=accept_lost or dry_run, tell=tell, wait=not dry_run)
        placed = to is not None or to_topic
        written = exported if placed and not dry_run else []
        counted = [each for each in ranges if each not in written]
        tell("counting orphans")
        counts = reader.count(_before(counted, held), reading)
        if not placed and not dry_run and (unwritten := sum(counts[each.source] for each in exported)):
            raise UsageError(
                f"link {chosen.name}: {unwritten} records are to be exported",
                fix="name a file: --to FILE; or --to-topic",
            )
        topic = OrphanTopic(chosen, sessions.target, promotion.number)
        place = topic.name if to is None else str(to.absolute())
        if written:
            tell(f"writing orphans to {place}")
            starts = log_starts(sessions.source.admin, written)
            sink = topic if to is None else OrphanFile(to, chosen.source, starts)
            counts |= reader.write(written, sink, reading)
        report = RestorationReport(
            link=chosen.name,
            number=promotion.number,
            orphans=orphans,
            committed=not dry_run,
            place=place if placed and any(counts[each.source] for each in exported) else "",
            partitions=tuple(
                OrphanPartition(
                    topic=each.source.topic,
                    partition=each.source.partition,
                    start=each.start,
                    end=each.end,
                    records=counts[each.source],
                    action=actions[each.source],
                    lost=tuple((one.start, one.end) for one in reading.lost if one.source == each.source),
                )
                for each in ranges
            ),
            unreadable_headers=reading.unreadable_headers,
            open=(*held, *reading.open),
            at=self.clock.wall_ms(),
        )
        if dry_run:
            return report
        reached: Mapping[SourcePartition, int] = {}
        if "merge" in actions.values():
            if merge is None:
                raise UsageError("nothing was given that merges", fix="pass `merge`")
            self._begin(done.short)
            self._mirror(merge, exports, reading)
            reached = merged(promotion, self.positions())
        crash_point("failover.orphans_written")
        self.note(
            self._restoration(report, history, dealt, uncut, reached, marks=marks, to_file=to is not None)
        )
        crash_point("failover.restored")
        return report

    def _held(self, ranges: Sequence[OrphanRange], client_id: str) -> list[OpenTransaction]:
        """Waits until no transaction is open in the ranges; returns those that are, for a dry run."""
        cluster, admin = self.config.clusters[self.link.source], self.sessions.source.admin
        ends = {each.source: each.end for each in ranges}
        if self.dry_run:
            return open_transactions(cluster, admin, ends, client_id=client_id)
        await_ended(cluster, admin, ends, client_id=client_id, clock=self.clock, tell=self.tell)
        return []

    def _refuse_changed(self, orphans: str, promotion: Promotion, history: PromotionHistory) -> None:
        """
        Refuses a source that is not what was mirrored: by the offsets of its log some orphans would not be found.

        Behind the reversal, which moves no cut any more, what the log holds may still be exported.
        """
        if promotion.number not in history.reversals:
            refuse_changed(self.config, self.link.name, clock=self.clock)
            return
        positions = self.positions()
        named = [positions[cut.source] for cut in promotion.cuts if cut.source in positions]
        changed = changed_sources(self.link, self.sessions.source, named).values()
        if not (parted := [str(each) for each in changed if each.parts]):
            return
        some = "; ".join(parted[:_SHOWN]) + (
            f"; and {len(parted) - _SHOWN} more" if len(parted) > _SHOWN else ""
        )
        text = f"link {self.link.name}: {self.link.source} is not what was mirrored: {some}"
        if orphans == "export":
            self.tell(text)
            return
        raise NotReadyError(
            text,
            fix="restore its logs, and repeat this; to keep what they hold: `eomirror restore CONFIG --link "
            f"{quote(self.link.name)} --orphans export --to FILE`",
        )

    def _marks(self, ends: Mapping[SourcePartition, int]) -> Mapping[SourcePartition, BatchMark | None]:
        """Returns the batches before the ends of ranges that are read; raises if a log does not go that far."""
        marks = end_marks(self.link, self.sessions.source, ends)
        for source, mark in marks.items():
            if mark is None:
                raise UnreachableError(
                    f"{source} on {self.link.source} ends before offset {ends[source]}: its log was truncated",
                    fix="restore the topic, or leave its orphans out: `exclude` it from the link",
                )
        return marks

    def _mirror(self, merge: Callable[[Config], None], exports: frozenset[str], reading: Reading) -> None:
        """Mirrors the orphans with the link itself, without those of topics that are exported."""
        merging = _merging(self.config, self.link, exports, accept_lost=reading.accept_lost)
        if reading.emitted_again:
            # librdkafka does not report producer ids: the client plane takes such a record for the copy.
            self.tell(f"{reading.emitted_again} orphans have the header of a copy: the native plane serves")
            merging = replace(merging, links=(replace(merging.links[0], plane="native"),))
        self.tell("mirroring the orphans")
        merge(merging)

    def _begin(self, short: Mapping[SourcePartition, int]) -> None:
        """Sets the positions of partitions whose copies have lost merged orphans: they are merged once more."""
        if not short:
            return
        self.tell(f"copies of {', '.join(map(str, sorted(short)[:_SHOWN]))} have lost merged records")
        partitions = link_discovery(self.link, *self.sessions, clock=self.clock).prepare(strict=True)
        self.take(self.link, self.sessions, partitions, although_promoted=True, adopt=short)

    # -- how far the orphans reach ---------------------------------------------------------------

    def _ends(
        self, promotion: Promotion, reversal: Reversal | None, orphans: str
    ) -> Mapping[SourcePartition, int]:
        """
        Returns the end of each source partition, behind which nothing is an orphan.

        Raises:
            NotReadyError: A merge that would mirror what is no orphan.
        """
        admin = self.sessions.source.admin
        wanted = [cut.source for cut in promotion.cuts if not cut.gone]
        if reversal is None:
            found = admin.offsets(wanted, at="latest", read_committed=False)
            unseen = uncut_partitions(self.link, admin, wanted)
            if silent := sorted(str(source) for source, some in unseen.items() if some is None):
                self.tell(f"{', '.join(silent[:_SHOWN])} have no leader: their records are not dealt with")
            return {
                **{source: found[source] for source in wanted},
                **{source: some[1] for source, some in unseen.items() if some is not None},
            }
        now = existing_ends(
            admin,
            sorted(reversal.ends),
            read_committed=False,
            passing=(TopicError,),
        )
        later = {source: max(end, now.get(source, 0)) for source, end in reversal.ends.items()}
        grown = later != reversal.ends
        if not grown and orphans != "merge":
            return reversal.ends
        marks, returned = self._way_back(promotion)
        if orphans == "merge" and (returned is not None or (grown and not marks)):
            name = quote(self.link.name)
            raise NotReadyError(
                f"link {self.link.name}: "
                + (
                    f"{reversal.link} is promoted, and applications write to {self.link.source} again: a merge would "
                    "mirror that as well"
                    if returned is not None
                    else f"{reversal.link} has written to {self.link.source} without marks: a merge would mirror that "
                    "as well"
                ),
                fix=f"`eomirror restore CONFIG --link {name} --orphans export|keep` deals with orphans"
                + (f"; `eomirror failback CONFIG --link {name}` returns" if returned is not None else ""),
            )
        if orphans == "merge" and reversal.cuts and not self._copied_back(promotion, reversal):
            # the link back has no loop guard then, and would bring back what is merged before it has come by
            raise NotReadyError(
                f"link {self.link.name}: {reversal.link} has not copied back what {self.link.source} has lost: it "
                "would return what a merge brings before that",
                fix=f"repeat `eomirror reverse CONFIG --link {quote(self.link.name)}`, which goes on from here; then "
                "repeat this",
            )
        if not marks:
            return reversal.ends
        return later_ends(reversal, {source: now.get(source, 0) for source in reversal.ends}, returned)

    def _way_back(self, promotion: Promotion) -> tuple[bool, Mapping[SourcePartition, int] | None]:
        """
        Returns whether the link back marks what it writes, and the ends of its copies at its promotion, if any.

        A configuration without the link back tells nothing: what stands behind the reversal may be its copies.
        """
        try:
            back = back_link(self.config, self.link, promotion)
        except UsageError:
            return False, None
        return way_back(back, self.connect(back).target)

    def _copied_back(self, promotion: Promotion, reversal: Reversal) -> bool:
        """Returns true if the link back has brought what the source had lost when the reversal moved its cuts."""
        back = back_link(self.config, self.link, promotion)
        order = control_of(back, self.connect(back).target).copy_back
        return order is not None and order.number == reversal.number and order.done

    def _passed(self, promotion: Promotion, ranges: Sequence[OrphanRange]) -> frozenset[str]:
        """Returns topics with orphans before the position of the link, which begins behind them."""
        cuts = {cut.source: cut.position for cut in promotion.cuts}
        positions = self.positions()
        reached = merged(promotion, positions)
        return frozenset(
            each.source.topic
            for each in ranges
            if (one := positions.get(each.source)) is not None
            and each.start < (cuts.get(each.source, 0) if each.source in reached else one.offset)
        )

    # -- what was done ---------------------------------------------------------------------------

    def _restoration(
        self,
        report: RestorationReport,
        history: PromotionHistory,
        dealt: DealtRanges,
        uncut: Collection[SourcePartition],
        reached: Mapping[SourcePartition, int],
        *,
        marks: Mapping[SourcePartition, BatchMark | None],
        to_file: bool,
    ) -> Restoration:
        """
        Returns the record of this call, with what earlier ones have done.

        Args:
            dealt: What these have dealt with and still stands.
            marks: Batches before the ends of what was read.
        """
        before = history.restorations.get(report.number)
        ranges: dict[SourcePartition, tuple[DealtRange, ...]] = {}
        for each in report.partitions:
            source = SourcePartition(each.topic, each.partition)
            # The log of a partition without a cut may have begun later than at 0.
            start = 0 if source in uncut else each.start
            end = reached.get(source, start) if each.action == "merge" else each.end
            if start < end:
                kept = each.action == "export" and each.records > 0
                ranges[source] = (
                    *ranges.get(source, ()),
                    DealtRange(
                        start, end, each.action, report.place if kept else "", each.records,
                        socket.gethostname() if kept and to_file else "",
                        None if (mark := marks.get(source)) is None else (mark.offset, mark.crc, mark.timestamp),
                    ),
                )  # fmt: skip
        # What the source has lost since must not vouch for what stands there.
        stands = {
            source: tuple(one for one in some if one.action == "merge" or one in dealt.get(source, ()))
            for source, some in history.dealt(report.number).items()
        }
        every = united({source: some for source, some in stands.items() if some}, ranges)
        lost = {} if before is None else dict(before.lost)
        for each in report.partitions:
            if each.lost:
                source = SourcePartition(each.topic, each.partition)
                lost[source] = tuple(sorted({*lost.get(source, ()), *each.lost}))
        return Restoration(
            number=report.number,
            orphans=report.orphans,
            records=sum(one.records for some in every.values() for one in _outermost(some)),
            place=report.place or ("" if before is None else before.place),
            run=self.run_id,
            timestamp=self.clock.wall_ms(),
            lost=lost,
            ranges=every,
        )


def _before(ranges: Sequence[OrphanRange], held: Sequence[OpenTransaction]) -> list[OrphanRange]:
    """Returns ranges up to the open transactions, behind which nothing can be read."""
    starts = {SourcePartition(one.topic, one.partition): one.start for one in held}
    return [
        replace(each, end=max(each.start, min(each.end, starts.get(each.source, each.end))))
        for each in ranges
    ]


def _one_each(ranges: Sequence[OrphanRange]) -> list[OrphanRange]:
    """Returns one range for each partition, from its first offset to its last."""
    found: dict[SourcePartition, OrphanRange] = {}
    for each in ranges:
        found[each.source] = replace(found.get(each.source, each), end=each.end)
    return list(found.values())


def _outermost(ranges: Sequence[DealtRange]) -> list[DealtRange]:
    """Returns ranges without those that another one covers: their orphans were dealt with in several ways."""
    found: list[DealtRange] = []
    for each in sorted(ranges, key=lambda one: (one.start, -one.end)):
        if not found or each.end > found[-1].end:
            found.append(each)
    return found


def _starts(sessions: LinkSessions, partitions: set[SourcePartition]) -> Mapping[SourcePartition, int]:
    """Returns the log starts of partitions that have no cut."""
    found = existing_starts(sessions.source.admin, partitions)
    return {source: found[source] for source in partitions if source in found}


def _action(orphans: str, each: OrphanRange, exports: frozenset[str]) -> str:
    return "export" if orphans == "merge" and each.source.topic in exports else orphans


def _compacted(configs: Mapping[str, Mapping[str, ConfigValue]]) -> frozenset[str]:
    return frozenset(
        topic
        for topic, settings in configs.items()
        if "compact" in ((policy.value or "") if (policy := settings.get("cleanup.policy")) else "")
    )


def _merging(config: Config, link: Link, exports: frozenset[str], *, accept_lost: bool) -> Config:
    """
    Returns a configuration of the link alone, for its orphans: groups stay where the promotion has put them.

    Its rules come from all links of the file, so it still marks what it copies.
    """
    excluded = tuple(topic.replace(".", "\\.") for topic in sorted(exports))
    merging = replace(
        link,
        groups=(),
        sync_group_offsets=False,
        heartbeats="off",
        exclude=(*link.exclude, *excluded),
        on_gap="accept" if accept_lost else link.on_gap,
    )
    return replace(config, links=(merging,))
