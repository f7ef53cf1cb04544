"""
Checks what must hold before a link begins or continues to write (`eomirror.link.start_rules` decides).

A check reads clusters and yields refusals: a source topic and an error.  A start raises the first one.  A topic that is
new to a link which runs is left out, with the same error in the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from eomirror._native import last_hop
from eomirror.clock import Deadline
from eomirror.errors import AuthorizationError, DataLossError, MirrorError, NotReadyError, StateError
from eomirror.kafka.partition_reader import GONE
from eomirror.link.copy_ends import CopyEnds
from eomirror.link.offset_map_reader import OffsetMapReader
from eomirror.link.other_links import OtherLinks
from eomirror.link.source_comparison import changed_sources
from eomirror.link.start_rules import (
    Copy,
    Held,
    MissedTombstones,
    ReverseLink,
    ahead,
    carried_on_error,
    copies_back,
    filled,
    filled_error,
    link_of,
    meetings,
    missed_tombstones,
    round_trip,
    running_twin,
    sharers,
    twins,
)
from eomirror.records.connect_offsets import Mm2Flow
from eomirror.records.mm2 import Mm2Names, decode_heartbeat
from eomirror.records.names import HOPS_HEADER
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.session import ClusterSession
    from eomirror.lane.spec import AssignedPartition
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position
    from eomirror.recovery.hanging import HangingClient

__all__ = [
    "BEFORE",
    "FENCED",
    "FILLED",
    "FIRST",
    "FIRST_RUN",
    "NEW",
    "NEW_COPIES",
    "Refused",
    "StartChecks",
    "StartFacts",
    "partition_counts",
    "warn_of_lost_deletions",
]

log = structlog.get_logger(__name__)

# A copy with records of applications is read in full, and the start must not take for ever.
_SECONDS = 30.0
_SHOWN = 3
# Tombstones live longer than this in practice, and a mirror that was just restarted need not ask.
_LEAST_AGE_MS = 60_000

# Links that stop together write their last records to control within it, also by the clocks of two machines.
_TOGETHER_MS = 10_000

_Where = tuple[str, int]
_Refusals = Iterator[tuple[str, MirrorError]]

_RUNNING = ("round_trips", "running_twins")
#: Before the layout is published.
BEFORE = (*_RUNNING, "copies_come_back", "copies_of_a_promoted_link")
#: With first positions: of a first run, of every one, and of a first run when its start offsets are known.
FIRST_RUN, FIRST, FILLED = ("filled_by_mm2",), ("copies_come_back",), ("filled_copies",)
#: When all lanes are fenced.
FENCED = (*_RUNNING, "moved_beginnings")
#: Topics that are new to a link that runs; and what their copies hold, also if it has run before.
NEW, NEW_COPIES = ("round_trips", "copies_come_back"), ("carried_on", "filled_by_mm2", "filled_copies")


class Refused(NamedTuple):
    """
    A topic that is left out.

    Attributes:
        error: The reason.
        twin: State name of the link that has written the copies from the same partitions; empty if none is known.
    """

    error: MirrorError
    twin: str = ""


@dataclass(frozen=True, kw_only=True)
class StartFacts:
    """
    Partitions that a link is about to mirror, and what its checks need to know of them.

    Attributes:
        items: The partitions.
        starts: Start offsets of those of which the link has mirrored no record; None: it begins at 0 in all.
        known: Partitions that have a position, or whose start offset a command, or the user, has chosen.
        first_run: True if the link never ran.
        waiting: Positions of partitions that are mirrored.
        highest_lane: Highest lane number that any generation ever used.
        offsets: Next source offset of partitions that the link had, and mirrors again.
        since: Time in ms after which others may have mirrored them.
    """

    items: Sequence[AssignedPartition] = ()
    starts: Mapping[SourcePartition, int] | None = None
    known: Collection[SourcePartition] = ()
    first_run: bool = False
    waiting: Sequence[Position] = field(default=(), repr=False)
    highest_lane: int = 0
    offsets: Mapping[SourcePartition, int] = field(default_factory=dict, repr=False)
    since: int = 0

    def of_others(
        self,
        view: ControlView,
        positions: Mapping[SourcePartition, Position],
        *,
        but: Collection[SourcePartition],
    ) -> StartFacts:
        """
        Returns the facts with those that tell if another link has mirrored partitions since the link had them.

        Where the link has all of them in its layout, only links count that have run since its last claim.  Those that
        stopped with it do not, unless it has ended alone.

        Args:
            view: Control of the link.
            positions: Its positions.
            but: Partitions whose positions do not count.
        """
        had = () if view.generation is None else view.generation.assignment.partitions
        offsets = {
            item.source: positions[item.source].offset
            for item in self.items
            if item.source in positions and item.source not in but
        }
        parked = any(source not in had for source in offsets)
        claim = view.claim
        since = 0 if parked or claim is None else claim.timestamp + (0 if claim.alone else _TOGETHER_MS)
        return replace(self, offsets=offsets, since=since)


class StartChecks:
    """
    Runs the checks of one link.

    Args:
        source: Connections to the source.
        target: Connections to the target.
        into_filled: True if existing records in the copies stay (``--into-filled``).
        hanging_client: Knows which transactional ids wrote to a partition, where the brokers report it.

    Attributes:
        cluster_ids: Ids of source and target.
        refused: Topics that `without_refused` has left out last.
    """

    def __init__(
        self,
        link: Link,
        source: ClusterSession,
        target: ClusterSession,
        *,
        into_filled: bool = False,
        hanging_client: HangingClient | None = None,
    ) -> None:
        self._link, self._source, self._target = link, source, target
        self._admin, self._hanging_client = target.admin, hanging_client
        self.into_filled, self.cluster_ids = into_filled, ("", "")
        self.refused: dict[str, Refused] = {}
        # the link that has written the copies of a topic from the same partitions
        self._twins: dict[str, str] = {}
        # Topics that cannot be read remain unknown.
        self._upstream = OtherLinks(link.name, source, event="opposite_link_unknown")
        self._beside = OtherLinks(link.name, target, event="other_link_unknown")
        # Links that write our partitions from our copies, as of the last look for round trips.
        self._met: dict[SourcePartition, tuple[ReverseLink, ...]] = {}

    def refuse(self, checks: Iterable[str], asked: StartFacts) -> None:
        """
        Raises the first refusal.

        Raises:
            MirrorError: A check does not hold, or a cluster does not answer.
        """
        for check in checks:
            for _, error in getattr(self, check)(asked):
                raise error

    def without_refused(self, checks: Iterable[str], asked: StartFacts) -> list[AssignedPartition]:
        """
        Returns the partitions without new topics that a check refuses; logs the latter.

        Raises:
            ClusterError: A cluster does not answer.
        """
        items = list(asked.items)
        for item in items:
            self.refused.pop(item.source.topic, None)
        found: dict[str, MirrorError] = {}
        for check in checks:
            for topic, error in getattr(self, check)(replace(asked, items=items)):
                if found.setdefault(topic, error) is error:
                    log.error(
                        "topic_left_out",
                        link=self._link.name,
                        topic=topic,
                        reason=error.message,
                        fix=error.fix,
                    )
            # what another link has carried on is refused with its position
            kept = () if check == "carried_on" else asked.known
            items = [item for item in items if item.source in kept or item.source.topic not in found]
        self.refused |= {topic: Refused(error, self._twins.get(topic, "")) for topic, error in found.items()}
        return items

    def joining(
        self,
        items: Sequence[AssignedPartition],
        known: Collection[SourcePartition],
        offsets: Mapping[SourcePartition, int],
        given_up: Mapping[str, str],
    ) -> tuple[list[AssignedPartition], dict[SourcePartition, ReverseLink]]:
        """
        Returns the partitions that join a link which runs, and those of them at which another link has left off.

        Args:
            items: Partitions that are offered to it.
            known: Partitions that have a position.
            offsets: Next source offset of those of them that had left the link.
            given_up: Topics that another link of this run had until now, with the state name of that link.

        Raises:
            ClusterError: A cluster does not answer.
        """
        given: dict[SourcePartition, ReverseLink] = {}
        for link in set(given_up.values()):
            theirs = [item for item in items if given_up.get(item.source.topic) == link]
            # a mirror of another file may have taken it since
            stopped = [each for each in self._beside.of(link) if not each.running]
            given |= self._with_ranges(link, self._ahead(theirs, offsets, stopped), offsets)
        # the link that had the topic last may have been refused it, for one that is further
        newest = {**offsets, **{source: each.position.offset for source, each in given.items()}}
        asked = StartFacts(items=items, known={*known, *given}, offsets=newest)
        served = self.without_refused(NEW_COPIES, asked)
        sources = {item.source for item in served}
        return served, {source: each for source, each in given.items() if source in sources}

    def _with_ranges(
        self, link: str, given: Mapping[SourcePartition, ReverseLink], offsets: Mapping[SourcePartition, int]
    ) -> dict[SourcePartition, ReverseLink]:
        """
        Adds the ranges of the other link's offset map behind our own positions.

        To our map these records would be a hole, as if none of them was mirrored: a group there would pass them all.
        """
        back = (
            [] if self._link.keyed else [each.position for source, each in given.items() if source in offsets]
        )
        maps = OffsetMapReader(replace(self._link, name=link), self._target).maps(back) if back else {}
        return {
            source: replace(each, ranges=tuple(_behind(offsets[source], maps[source].listed())))
            if source in maps
            else each
            for source, each in given.items()
        }

    # -- cycles ----------------------------------------------------------------------------------

    def round_trips(self, asked: StartFacts) -> _Refusals:
        """Finds links that run and bring the records back, which would cycle for ever; later checks know them."""
        self._met = {}
        # A prefixed copy is never read by the reverse link: its name shows its origin.
        if asked.items and not self._link.naming.shows(self._link.source):
            self._met = meetings(asked.items, self._upstream.written(), target_cluster_id=self.cluster_ids[1])
        for source, met in sorted(self._met.items()):
            if error := round_trip(self._link.name, {source: met}, guard=self._link.guard):
                yield source.topic, error

    def copies_come_back(self, asked: StartFacts) -> _Refusals:
        """Finds copies at the beginning of the link that look like records of the source's applications."""
        if self._link.loops.whole and asked.starts is not None:
            return
        for source, met in sorted(self._met.items()):
            starts = {source: 0} if asked.starts is None else asked.starts
            start = {source: starts[source]} if source in starts else {}
            if error := copies_back(self._link.name, start, {source: met}, guard=self._link.guard):
                yield source.topic, error

    def copies_of_a_promoted_link(self, asked: StartFacts) -> _Refusals:
        """
        Finds copies of a promoted link in which a first run would begin where ``start`` says: its cut alone is that.

        Before it stand that link's own records, and behind it what applications have written since.
        """
        for source, met in sorted(self._met.items() if asked.first_run else ()):
            for each in met:
                if each.cut is not None and source not in asked.known:
                    error = NotReadyError(
                        f"link {self._link.name} never ran, and {source} is a copy of link {each.link}, which was "
                        f"promoted: it begins at the end of that copy at the cut, {each.cut}, and not where its "
                        "`start` says",
                        fix=f"start it there: `eomirror reverse CONFIG --link {quote(each.link)}`; then repeat this",
                    )
                    yield source.topic, error

    # -- copies that others write ----------------------------------------------------------------

    def running_twins(self, asked: StartFacts) -> _Refusals:
        """Finds another link that runs, and writes the same copies from the same partitions."""
        others = self._beside.written(but=self._link.state_name, running_only=True)
        if error := running_twin(
            self._link.name, twins(asked.items, others, source_cluster_id=self.cluster_ids[0])
        ):
            yield "", error

    def carried_on(self, asked: StartFacts) -> _Refusals:
        """Finds partitions that another link has mirrored since this link had them."""
        had = [item for item in asked.items if item.source in asked.offsets]
        by_topic: dict[str, dict[SourcePartition, ReverseLink]] = {}
        others = self._beside.written(but=self._link.state_name, since=asked.since) if had else ()
        for source, each in self._ahead(had, asked.offsets, others).items():
            by_topic.setdefault(source.topic, {})[source] = each
        for topic, found in sorted(by_topic.items()):
            self._twins[topic] = min(found.items())[1].link
            yield topic, carried_on_error(self._link.name, found, asked.offsets)

    def _ahead(
        self,
        items: Sequence[AssignedPartition],
        offsets: Mapping[SourcePartition, int],
        others: Iterable[ReverseLink],
    ) -> dict[SourcePartition, ReverseLink]:
        return ahead(items, offsets, others, source_cluster_id=self.cluster_ids[0], keyed=self._link.keyed)

    def filled_by_mm2(self, asked: StartFacts) -> _Refusals:
        """Finds copies with records and no position, where MirrorMaker 2 has kept source offsets."""
        topic = Mm2Flow.dedicated(self._link.source, self._link.target).offsets_topic
        items = [item for item in asked.items if item.source not in asked.known]
        # The principal may lack the right to see MM2's topics.
        if self.into_filled or not items or self._admin.visible_topics([topic])[0].get(topic) is None:
            return
        copies = {_where(item): item.source.topic for item in self._all_copies(items)}
        ends = self._admin.offsets(list(copies), at="latest", read_committed=False)
        found = {copies[copy]: copy[0] for copy, end in ends.items() if end > 0}
        kept = (
            f"has records, and MirrorMaker 2 has kept source offsets in {topic}: what it has mirrored would be written "
            "a second time"
        )
        for name, copy in sorted(found.items(), key=lambda one: one[asked.first_run]):
            text, fix = (
                f"it is new to the link, but {copy} {kept}",
                (
                    "stop the mirror and MirrorMaker 2, and resume where that stopped: `eomirror adopt CONFIG`; or set "
                    "the resume offset of each partition, 0 if these records are not MirrorMaker 2's: "
                    f"`eomirror run CONFIG --resume-at {name}-0=OFFSET`"
                ),
            )
            if asked.first_run:
                text, fix = (
                    f"link {self._link.name}: it never ran, but {copy} {kept}",
                    (
                        "to resume where it stopped: `eomirror adopt CONFIG`; if these records are not its own, delete "
                        f"topic {topic}"
                    ),
                )
            yield name, NotReadyError(text, fix=fix)

    def filled_copies(self, asked: StartFacts) -> _Refusals:
        """Finds copies with records that the link would write again, where it has no position."""
        fresh = [item for item in asked.items if item.source not in asked.known]
        if self._link.keyed:
            # the copies hold the records of the other partitions
            begun = {source.topic for source in asked.known}
            fresh = [item for item in fresh if item.source.topic not in begun]
        found: dict[str, list[Copy]] = {}
        for copy in self._filled(fresh):
            # the error of a first run names all copies
            found.setdefault("" if asked.first_run else copy.item.source.topic, []).append(copy)
        for topic, copies in sorted(found.items()):
            if copies[0].twin is not None:
                self._twins[topic] = copies[0].twin.link
            yield (
                topic,
                filled_error(self._link.name, self._link.state_name, copies, first_run=asked.first_run),
            )

    def _filled(self, items: Sequence[AssignedPartition]) -> list[Copy]:
        # Heartbeats that the link mirrors: an earlier `heartbeats: link` may have left its own there.
        asked = {
            _where(item): item
            for item in self._all_copies(items)
            if item.source.topic != self._link.target_naming.heartbeats
        }
        ends = self._admin.offsets(list(asked), at="latest", read_committed=False) if asked else {}
        if not any(ends.values()):
            return []
        starts = self._admin.offsets(list(asked), at="earliest", read_committed=False)
        inside = {where: item for where, item in asked.items() if ends[where] > starts[where]}
        if not inside:
            return []
        if self.into_filled:
            log.warning(
                "copies_hold_records",
                link=self._link.name,
                copies=len(inside),
                most_records=sum(ends[where] - starts[where] for where in inside),
                reason="--into-filled: existing records stay",
            )
            return []
        source_id = self.cluster_ids[0]
        others = list(self._beside.written(but=self._link.state_name))
        same = twins(inside.values(), others, source_cluster_id=source_id)
        shared = sharers(inside.values(), others, source_cluster_id=source_id)
        held = self._held({where: (starts[where], ends[where]) for where in inside})
        writers = self._writers([where for where in inside if held[where] is not Held.NOTHING])
        copies = [
            Copy(
                item,
                starts[where],
                ends[where],
                held[where],
                max(same.get(item.source, ()), key=lambda each: each.position.offset, default=None),
                shared[item.source],
                writers.get(where, frozenset()),
            )
            for where, item in sorted(inside.items())
        ]
        return [copy for copy in copies if filled(copy, link=self._link.state_name, guard=self._link.guard)]

    def _held(self, logs: Mapping[_Where, tuple[int, int]]) -> dict[_Where, Held]:
        """Returns the content of copies, given log start and end, as far as it can be read in half a minute."""
        stable = self._admin.offsets(list(logs), at="latest", read_committed=True)
        held: dict[_Where, Held] = {}

        def take(where: _Where, message: Any) -> bool:
            if not self._link.guard:
                held[where] = Held.HEARTBEATS if _is_heartbeat(message) else Held.RECORDS
                return True
            ours = _copied_from(message) == self.cluster_ids[0]
            # A record of an application or another cluster; a later one may be ours.
            held[where] = Held.OURS if ours else Held.RECORDS
            return ours or bool(message.offset() + 1 >= stable[where])

        ranges = {
            where: (start, stable[where]) for where, (start, _) in logs.items() if start < stable[where]
        }
        if ranges:
            deadline = Deadline(_SECONDS, self._target.clock)
            try:
                with self._target.reader(tuning={"queued.max.messages.kbytes": 8192}) as reader:
                    unread = reader.read(
                        ranges, take, deadline=deadline, to_end=True, passing=GONE, partial=True
                    )
            except AuthorizationError as error:
                log.warning("copies_not_readable", link=self._link.name, reason=error.message, fix=error.fix)
                return dict.fromkeys(logs, Held.UNSEEN)
            held.update(dict.fromkeys(unread, Held.UNSEEN))
        for where, (_, end) in logs.items():
            held.setdefault(where, Held.OPEN if stable[where] < end else Held.NOTHING)
        return held

    def _writers(self, partitions: Sequence[_Where]) -> Mapping[_Where, frozenset[str]]:
        """Returns links whose lanes have written to each partition; empty where brokers do not report it."""
        if self._hanging_client is None or not partitions:
            return {}
        try:
            ids = self._hanging_client.writers(partitions)
        except MirrorError as error:
            log.info("writers_unknown", link=self._link.name, reason=error.message)
            return {}
        return {
            where: frozenset(filter(None, map(link_of, transactional_ids)))
            for where, transactional_ids in ids.items()
        }

    def _all_copies(self, items: Sequence[AssignedPartition]) -> Sequence[AssignedPartition]:
        """
        Returns the partitions by their copies, for a look at what the copies hold.

        If records are placed by key, any partition of a source topic writes to each partition of the target.  Then the
        result has one item for each target partition, whose source partition has that number and may not exist.
        """
        if not self._link.keyed:
            return items
        counts = partition_counts(self._admin, items)
        one_of = {(item.source.topic, item.target_topic): item for item in items}
        return [
            replace(item, source=SourcePartition(item.source.topic, number))
            for item in one_of.values()
            for number in range(counts.get(item.target_topic, 0))
        ]

    # -- logs that have changed ------------------------------------------------------------------

    def moved_beginnings(self, asked: StartFacts) -> _Refusals:
        """
        Compares both logs of partitions that a reversal has begun, until the link has written its first record (EO-5).

        The positions that a reversal sets name what stands before them in both logs, as the reversal has found it.  A
        lane compares its source with that, and a copy only behind its own first record.  So a log that loses its end
        between the reversal and that record, or is restored and written on, is looked for whenever the link is taken.
        """
        begun = [one for one in asked.waiting if one.target_batch and one.target_offset is None]
        unread = [one for one in asked.waiting if one.epoch == 0 and one.batch_offset is not None]
        texts = [str(each) for each in changed_sources(self._link, self._source, unread).values()]
        if begun:
            ends = CopyEnds(self._link, self._target).read(begun, highest_lane=asked.highest_lane)
            texts += [end.problem for end in ends.values() if end.problem]
        if texts:
            some = "; ".join(texts[:_SHOWN])
            more = f"; and {len(texts) - _SHOWN} more" if len(texts) > _SHOWN else ""
            error = DataLossError(
                f"link {self._link.name}: the logs have changed since its way was recorded, and it has mirrored "
                f"nothing since: {some}{more}",
                fix="restore the logs; or compare both sides, bring by hand what one of them lacks, and begin where "
                f"both are complete: `eomirror run CONFIG --link {quote(self._link.name)} --resume-at TOPIC-PARTITION="
                "OFFSET`",
            )
            yield "", error


def _behind(offset: int, ranges: Iterable[tuple[int, int, int]]) -> Iterator[tuple[int, int, int]]:
    for source, target, count in ranges:
        before = max(0, offset - source)
        if before < count:
            yield source + before, target + before, count - before


def _where(item: AssignedPartition) -> _Where:
    return item.target_topic, item.source.partition


def _copied_from(message: Any) -> str | None:
    try:
        headers = message.headers() or []
    except (SystemError, UnicodeDecodeError):
        # The mirror writes only UTF-8 names, and the client shows no headers of such a record.
        return None
    found = next((value for name, value in reversed(headers) if name == HOPS_HEADER), None)
    return None if found is None else last_hop(found, message.topic(), message.key(), message.value())


def _is_heartbeat(message: Any) -> bool:
    name = Mm2Names().heartbeats
    # An alias and any separator may stand before it; the decoder is strict.
    if not message.topic().endswith(name):
        return False
    try:
        decode_heartbeat(message.key(), message.value(), where=message.topic())
    except StateError:
        return False
    return True


def partition_counts(target: ClusterAdmin, items: Sequence[AssignedPartition]) -> dict[str, int]:
    """
    Returns the number of partitions of each target topic of these partitions.

    Raises:
        ClusterError: The target does not answer.
    """
    topics = sorted({item.target_topic for item in items})
    return {
        topic: facts.partitions
        for topic, facts in target.describe_topics(topics).items()
        if facts is not None
    }


def warn_of_lost_deletions(
    link: str,
    source: ClusterAdmin,
    partitions: Iterable[AssignedPartition],
    positions: Mapping[SourcePartition, Position],
    now_ms: int,
) -> None:
    """
    Logs a warning for each topic whose position is older than delete.retention.ms; never fails.

    Args:
        partitions: Partitions that the link mirrors.
        positions: Positions of the link.
        now_ms: Wall clock; positions may carry the clock of another machine.
    """
    try:
        known = [positions[item.source] for item in partitions if item.source in positions]
        topics = _look(source, known, now_ms)
    except MirrorError as error:
        # A deleted topic or an unreachable cluster: the lane that mirrors it reports the error.
        log.info("deletions_not_checked", link=link, reason=error.message)
        return
    for item in topics:
        log.warning(
            "deletions_may_be_lost",
            link=link,
            topic=item.topic,
            position_age_seconds=round(item.seconds),
            reason=f"the position is older than delete.retention.ms ({item.kept_seconds:g} s): the source may have "
            "forgotten deleted keys that the copy still has",
            fix="compare the final state of each key on both sides; raise delete.retention.ms for longer pauses",
        )


def _look(source: ClusterAdmin, positions: Collection[Position], now_ms: int) -> list[MissedTombstones]:
    old = {position.source: position for position in positions if now_ms - position.timestamp > _LEAST_AGE_MS}
    names = [(item.topic, item.partition) for item in old]
    found = source.offsets(names, at="latest", read_committed=True)
    ends = {item: found[item.topic, item.partition] for item in old}
    kept: dict[str, int] = {}
    behind = sorted({item.topic for item, position in old.items() if position.offset < ends[item]})
    for topic, configs in source.topic_configs(behind).items():
        if "compact" in (configs["cleanup.policy"].value or ""):
            kept[topic] = int(configs["delete.retention.ms"].value or 0)
    young: dict[SourcePartition, int] = {}
    for topic, milliseconds in kept.items():
        of_topic = [name for name in names if name[0] == topic]
        first = source.offsets(of_topic, at=now_ms - milliseconds, read_committed=False)
        young |= {item: first[item.topic, item.partition] for item in old if item.topic == topic}
    return missed_tombstones(old.values(), kept_ms=kept, ends=ends, young_from=young, now_ms=now_ms)
