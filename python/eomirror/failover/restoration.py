"""
Deals with the orphans of a failover: records of the old source that never reached the copies.

They stand in the source's log from the cut to the end at the reversal, so every one of them is known by its offset:

* ``export`` writes them to a file, or to a topic on the target, for the user to decide;
* ``merge`` mirrors just that range with the link itself, so that each reaches the copy exactly once, behind what
  applications have written there since;
* ``keep`` leaves them where they are; the link back writes behind them.

A compacted topic is not merged: an old value could overwrite a newer one.  Its orphans go to the file.

A range may be of any size, and a killed call is repeated: a file goes on where it ended, and so does the link that
merges.  Orphans that retention has deleted on the old source are named, and the others wait until that is accepted.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.crash import crash_point
from eomirror.errors import UsageError
from eomirror.failover.orphan_sinks import OrphanFile, OrphanTopic
from eomirror.failover.orphans import Reading, count_orphans, orphan_ranges, write_orphans
from eomirror.failover.promoted_link import PromotedLink
from eomirror.failover.recreation import refuse_recreated
from eomirror.failover.uncut import uncut_partitions
from eomirror.kafka.admin_client import skip_missing
from eomirror.records.names import LinkNames
from eomirror.records.promotion import Restoration
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from eomirror.config import Config, Link
    from eomirror.failover.orphans import OrphanRange
    from eomirror.kafka.cluster_metadata import ConfigValue
    from eomirror.kafka.session import LinkSessions

__all__ = ["OrphanPartition", "RestorationReport", "restore"]


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
    """

    link: str
    number: int
    orphans: str
    committed: bool
    place: str
    partitions: tuple[OrphanPartition, ...]
    unreadable_headers: int = 0

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
        return {**asdict(self), "records": self.records, "lost": self.lost}


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
        UsageError: A file or ``merge`` is missing, or the configuration has no link back.
        NotReadyError: The link is not promoted.
        DataLossError: Orphans were deleted on the old source, and that is not accepted.
        SupersededError: A mirror of the link runs.
        StateError: A state topic is not readable.
        MirrorError: A cluster cannot be reached or refuses the request.
    """
    with closing(PromotedLink(config, link, "restore", on_event=on_event, clock=clock)) as promoted:
        chosen, sessions, tell = promoted.link, promoted.sessions, promoted.tell
        source = config.clusters[chosen.source]
        client_id = LinkNames(chosen.state_name).client_id("restore")
        control, promotion = promoted.in_force()
        refuse_recreated(chosen, control, promotion)
        promoted.ask_source()
        reversal = control.history.reversals.get(promotion.number)
        wanted = [cut.source for cut in promotion.cuts if not cut.gone]
        if reversal is None:
            found = sessions.source.admin.offsets(wanted, at="latest", read_committed=False)
            unseen = uncut_partitions(chosen, sessions.source.admin, wanted)
            ends: Mapping[SourcePartition, int] = {
                **{source: found[source] for source in wanted},
                **{source: end for source, (_, end) in unseen.items()},
            }
        else:
            ends = reversal.ends
        ranges = orphan_ranges(promotion, ends, _starts(sessions, ends.keys() - set(wanted)))
        compacted = _compacted(sessions.source.admin.topic_configs({each.source.topic for each in ranges}))
        actions = {each.source: _action(orphans, each, compacted) for each in ranges}
        exported = [each for each in ranges if actions[each.source] == "export"]
        if orphans == "merge" and not chosen.guard:
            raise UsageError(
                f"link {chosen.name}: merged records would be brought back as new ones: the configuration has no "
                "link back, so they would carry no origin",
                fix="add the link back to the configuration first: `eomirror reverse CONFIG --dry-run` shows its entry",
            )
        reading = Reading(accept_lost=accept_lost or dry_run, tell=tell)
        placed = to is not None or to_topic
        written = exported if placed and not dry_run else []
        counted = [each for each in ranges if each not in written]
        tell("counting orphans")
        counts = count_orphans(source, counted, client_id=client_id, clock=clock, reading=reading)
        if not placed and (unwritten := sum(counts[each.source] for each in exported)):
            raise UsageError(
                f"link {chosen.name}: {unwritten} records are to be exported",
                fix="name a file: --to FILE; or --to-topic",
            )
        topic = OrphanTopic(chosen, sessions.target, promotion.number)
        place = topic.name if to is None else str(to)
        if written:
            tell(f"writing orphans to {place}")
            sink = topic if to is None else OrphanFile(to, source.alias)
            counts |= write_orphans(source, written, sink, client_id=client_id, clock=clock, reading=reading)
        report = RestorationReport(
            link=chosen.name,
            number=promotion.number,
            orphans=orphans,
            committed=not dry_run,
            place=place if any(counts[each.source] for each in exported) else "",
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
        )
        if dry_run:
            return report
        if orphans == "merge":
            if merge is None:
                raise UsageError("nothing was given that merges", fix="pass `merge`")
            tell("mirroring the orphans")
            merge(_merging(config, chosen, compacted, accept_lost=accept_lost))
        crash_point("failover.orphans_written")
        promoted.note(
            Restoration(
                number=report.number,
                orphans=report.orphans,
                records=report.records,
                place=report.place,
                run=promoted.run_id,
                timestamp=clock.wall_ms(),
                lost=_lost(report),
            )
        )
        crash_point("failover.restored")
    return report


def _starts(sessions: LinkSessions, partitions: set[SourcePartition]) -> Mapping[SourcePartition, int]:
    """Returns the log starts of partitions that have no cut."""
    found = skip_missing(
        lambda asked: sessions.source.admin.offsets(asked, at="earliest", read_committed=False), partitions
    )
    return {source: found[source] for source in partitions if source in found}


def _action(orphans: str, each: OrphanRange, compacted: frozenset[str]) -> str:
    return "export" if orphans == "merge" and each.source.topic in compacted else orphans


def _compacted(configs: Mapping[str, Mapping[str, ConfigValue]]) -> frozenset[str]:
    return frozenset(
        topic
        for topic, settings in configs.items()
        if "compact" in ((policy.value or "") if (policy := settings.get("cleanup.policy")) else "")
    )


def _merging(config: Config, link: Link, compacted: frozenset[str], *, accept_lost: bool) -> Config:
    """
    Returns a configuration of the link alone, for its orphans: groups stay where the promotion has put them.

    Its rules come from all links of the file, so it still marks what it copies.
    """
    excluded = tuple(topic.replace(".", "\\.") for topic in sorted(compacted))
    merging = replace(
        link,
        groups=(),
        sync_group_offsets=False,
        heartbeats="off",
        exclude=(*link.exclude, *excluded),
        on_gap="accept" if accept_lost else link.on_gap,
    )
    return replace(config, links=(merging,))


def _lost(report: RestorationReport) -> dict[SourcePartition, tuple[tuple[int, int], ...]]:
    return {SourcePartition(each.topic, each.partition): each.lost for each in report.partitions if each.lost}
