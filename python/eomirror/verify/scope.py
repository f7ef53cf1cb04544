"""
Finds the comparable ranges of a link: reads facts of both clusters, which `eomirror.verify.verdict` judges.

The order of the requests matters.  The target's ends come first and its positions after them, so that every record
before those ends is covered by a position that was read, unless no position covers it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.model import FrozenMapping
from eomirror.errors import DifferenceError, TopicError, UsageError
from eomirror.kafka.admin import identify
from eomirror.kafka.compacted_topic import CompactedTopicReader, control_view
from eomirror.link.valid_positions import valid_positions
from eomirror.records.dead_letter import read_letter
from eomirror.records.dealt_ranges import furthest, rest
from eomirror.records.names import LinkNames
from eomirror.recovery.resume import gone_sources
from eomirror.types import SourcePartition
from eomirror.verify.counts import RetentionBounds
from eomirror.verify.other_copies import OtherCopies
from eomirror.verify.verdict import CopyPartitionEnds, PartitionFacts, Range, Scope, scope

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin, TopicFacts
    from eomirror.kafka.compacted_topic import LogRecord
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.control import Generation
    from eomirror.records.position import Position
    from eomirror.records.promotion import PromotionHistory
    from eomirror.records.recreation import CopyBack

__all__ = ["ComparableScopes", "RequestedRange", "ScopeFinder", "with_origins"]

# Markers are written after the commit was answered, to each partition at its own time.
_MARKER_SECONDS = 5.0

# A topic that is deleted and created again is away for a moment.
_AWAY_SECONDS = 1.0

# Beyond any offset.
_FAR = 2**63

Partition = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestedRange:
    """
    Requested range of a link.

    Attributes:
        topics: Only source topics that this regular expression matches whole; None for all.
        from_offset: First source offset of every partition; None for the log's start.
        since_ms: First record whose timestamp is at least this, ms since 1970, by the brokers' index; None for all.
        from_offsets: First source offset of single partitions; later than ``from_offset`` if both are given.

    Raises:
        UsageError: ``topics`` is not a regular expression.
    """

    topics: str | None = None
    from_offset: int | None = None
    since_ms: int | None = None
    from_offsets: Mapping[SourcePartition, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            re.compile(self.topics or "")
        except re.error as error:
            raise UsageError(
                f"topics {self.topics}: not a regular expression: {error}",
                fix="name a topic, or give a pattern such as orders.*",
            ) from error

    @property
    def whole(self) -> bool:
        """True if all offsets are requested."""
        return self.from_offset is None and self.since_ms is None and not self.from_offsets


@dataclass(frozen=True, slots=True)
class ComparableScopes:
    """
    Comparable scopes of a link.

    Attributes:
        scopes: One for each source partition that has a position, and one for each non-empty partition of their targets
            that no position covers.
        waiting: Source topics, or partitions of them, that the link matches and has no position of.
        topic_ids: Ids of source and target topic, by source partition.
        positions: Positions, by source partition.
    """

    scopes: Sequence[Scope]
    waiting: Sequence[str]
    topic_ids: Mapping[SourcePartition, tuple[str, str]]
    positions: Mapping[SourcePartition, Position] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Unmarked:
    """Chunks that name records without a header: see `Scope`; ``ids`` are those of source and target topic."""

    ids: tuple[str, str]
    own: tuple[bytes, ...]
    returned: tuple[tuple[str, bytes], ...]


def _ids_of(position: Position) -> tuple[str, str]:
    return position.topic_id, position.target_topic_id


class ScopeFinder:
    """
    Finds the comparable scopes of one link.

    Raises:
        MirrorError: A cluster cannot be reached or refuses the request.
    """

    def __init__(
        self, link: Link, source: ClusterSession, target: ClusterSession, *, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._link = link
        self._clock = clock
        self._names = LinkNames(link.state_name)
        self._source, self._target = source.admin, target.admin
        self._states = CompactedTopicReader(target)
        self._others = OtherCopies(link, target, self._states)
        self._on_source = CompactedTopicReader(source)
        self._back = OtherCopies(link, source, self._on_source)
        # Source partitions that two looks did not find.
        self._gone: set[SourcePartition] = set()
        # Copies without a header are older than the look that found them.
        self._unmarked: dict[SourcePartition, _Unmarked] = {}
        # Dead letters, and the end of their topic before they were read.
        self._known_letters: tuple[
            tuple[str, Mapping[Partition, int]], list[tuple[SourcePartition, int, str, str]]
        ] = (("", {}), [])

    def cluster_ids(self) -> tuple[str, str]:
        """Ids of source and target cluster."""
        return self._source.describe_cluster().cluster_id, self._target.describe_cluster().cluster_id

    def find(self, bound: RequestedRange, *, thorough: bool = False) -> ComparableScopes:
        """
        Returns the scopes to compare.

        Args:
            bound: The requested range.
            thorough: Read the offset maps even if all logs begin at 0: they show if the copy begins with an earlier
                topic of the source's name, if other links write to it, and which copies are older than their header.

        Raises:
            DifferenceError: The link never ran.
            StateError: A record of the link's state cannot be read.
        """
        chosen, mirrors = re.compile(bound.topics or ".*"), self._link.mirrors
        matched = [
            topic for topic in self._source.topic_names() if mirrors(topic) and chosen.fullmatch(topic)
        ]
        if self._target.describe_topics([self._names.positions_topic])[self._names.positions_topic] is None:
            raise DifferenceError(
                f"link {self._link.name} never ran: the target has no {self._names.positions_topic}",
                fix="run `eomirror run CONFIG` first",
            )
        copies = {topic: copy for topic in matched if (copy := self._copy_of(topic))}
        stable = self._ends(self._target, self._target.describe_topics(sorted(copies.values())))
        _, records = self._states.read(self._names.positions_topic)
        found = {
            source: position
            for source, position in sorted(valid_positions(records).items())
            if chosen.fullmatch(source.topic) and mirrors(source.topic)
        }
        positions = list(found.values())
        sources = self._described(found, {*matched, *(each.topic for each in positions)})
        targets = self._target.describe_topics(
            sorted({*copies.values(), *(each.target_topic for each in positions)})
        )
        scopes = [
            scope(each) for each in self._facts(positions, sources, targets, stable, bound, thorough=thorough)
        ]
        scopes += self._unclaimed(positions, copies, targets, stable)
        scopes = self._with_unmarked(scopes, found, thorough=thorough)
        return ComparableScopes(
            self._without_others(scopes, targets, thorough=thorough),
            _waiting(matched, sources, found),
            {source: (each.topic_id, each.target_topic_id) for source, each in found.items()},
            found,
        )

    def _described(
        self, positions: Mapping[SourcePartition, Position], topics: set[str]
    ) -> dict[str, TopicFacts | None]:
        """Returns the source's topics, and notes the partitions that it has no more; looks twice at these."""
        sources = self._source.describe_topics(sorted(topics))
        gone = gone_sources(positions, sources)
        if not gone <= self._gone:
            self._clock.sleep(_AWAY_SECONDS)
            sources |= self._source.describe_topics(sorted({each.topic for each in gone}))
            gone = gone_sources(positions, sources)
        self._gone = gone
        return sources

    def _copy_of(self, topic: str) -> str:
        try:
            return self._link.target_topic(topic)
        except TopicError:
            # The topic cannot have been mirrored.
            return ""

    def _without_others(
        self, scopes: list[Scope], targets: Mapping[str, TopicFacts | None], *, thorough: bool
    ) -> list[Scope]:
        """Returns the scopes with the records of other links; all that is below their ends has been decided."""
        if (
            self._link.keyed
            or self._link.provenance_header
            or not (thorough or self._link.aggregate or self._others.any)
        ):
            # A header of each record names its source.
            return scopes
        found = self._others.read(
            {
                (one.target.topic, one.target.partition): (facts.topic_id, one.source.topic)
                for one in scopes
                if not one.problem and (facts := targets[one.target.topic]) is not None
            },
            source_cluster_id=self._source.describe_cluster().cluster_id,
        )
        return [
            replace(one, others=found.get((one.target.topic, one.target.partition), ())) for one in scopes
        ]

    def _with_unmarked(
        self, scopes: list[Scope], positions: Mapping[SourcePartition, Position], *, thorough: bool
    ) -> list[Scope]:
        """
        Returns the scopes with the copies that have no header, of this link and of its reverse links.

        With equal names both ways the header tells whose a record is.  Copies that are older than the link back have
        none, and only the offset maps name them.
        """
        if not self._link.guard:
            return scopes
        if thorough:
            self._unmarked = self._find_unmarked(positions)
        known = {
            source: each
            for source, each in self._unmarked.items()
            if source in positions and each.ids == _ids_of(positions[source])
        }
        result = []
        for one in scopes:
            each = known.get(SourcePartition(one.source.topic, one.source.partition))
            result.append(one if each is None else replace(one, own=each.own, returned=each.returned))
        return result

    def _find_unmarked(
        self, positions: Mapping[SourcePartition, Position]
    ) -> dict[SourcePartition, _Unmarked]:
        # A link without the header (`provenance: off`) claims all records of its copies.
        own = self._others.own(positions.values()) if self._link.provenance_header else {}
        returned = self._back.returned(
            {(each.topic, each.partition): (each.topic_id, each.target_topic) for each in positions.values()},
            target_cluster_id=self._target.describe_cluster().cluster_id,
        )
        return {
            source: _Unmarked(
                _ids_of(each),
                own.get((each.target_topic, each.target_partition), ()),
                returned.get((each.topic, each.partition), ()),
            )
            for source, each in positions.items()
        }

    def _unclaimed(
        self,
        positions: Sequence[Position],
        copies: Mapping[str, str],
        targets: Mapping[str, TopicFacts | None],
        stable: Mapping[Partition, int],
    ) -> list[Scope]:
        """
        Returns non-empty target partitions that no position covers, as copies without a source.

        Topics that the target's applications write to are left out.
        """
        if self._link.guard or self._link.keyed:
            return []
        claimed = {(each.target_topic, each.target_partition) for each in positions}
        starts = self._ends(self._target, {copy: targets[copy] for copy in copies.values()}, at="earliest")
        return [
            Scope(
                source=Range(topic, where[1], 0, 0, 0),
                target=Range(copy, where[1], start, stable[where], stable[where]),
            )
            for topic, copy in copies.items()
            for where, start in sorted(starts.items())
            if where[0] == copy and where not in claimed and start < stable.get(where, 0)
        ]

    def _facts(
        self,
        positions: Sequence[Position],
        sources: Mapping[str, TopicFacts | None],
        targets: Mapping[str, TopicFacts | None],
        stable: Mapping[Partition, int],
        bound: RequestedRange,
        *,
        thorough: bool,
    ) -> list[PartitionFacts]:
        sources = {each.topic: sources[each.topic] for each in positions}
        targets = {each.target_topic: targets[each.target_topic] for each in positions}
        source_starts = self._ends(self._source, sources, at="earliest")
        source_stable = self._ends(self._source, sources)
        target_starts = self._ends(self._target, targets, at="earliest")
        stable_now = self._settled([each for each in positions if each.source not in self._gone], targets)
        view = control_view(self._states.records(self._names.control_topic, wait_for_open=False))
        asked = self._bounds(sources, source_stable, bound)
        bounds = _behind_copies(_behind_returns(asked, view.history, guard=self._link.guard), view.copy_back)
        ends = _ends_where_parked(view.generation, positions) | _ends_at_cuts(view.history, positions)
        # They hold what the link back has copied there, and nothing of this link's before it returns.
        deleted = {each.source: each for each in positions if view.recreated.get(each.topic) == each.topic_id}
        bounds |= {(each.topic, each.partition): each.offset for each in deleted.values()}
        bounds |= _behind_moved_cuts(view.history, positions)
        # The link back of a promoted link may have created it again.
        gone = (self._gone | view.history.gone) - deleted.keys()
        policies = self._settings(sources, targets)
        from_start = self._link.start == "earliest"
        mapped: dict[SourcePartition, tuple[tuple[int, int, int], ...]] = {}
        replaced: set[SourcePartition] = set()
        adopted: Mapping[SourcePartition, tuple[int, int]] = {}
        starts = [*source_starts.values(), *target_starts.values()]
        shifted = not bound.whole or bounds != asked
        if not self._link.keyed and (thorough or not from_start or shifted or any(starts)):
            mapped, replaced = self._mapped(
                {
                    each.source: (
                        each,
                        max(source_starts.get(each.source, 0), bounds.get(each.source, 0)),
                        target_starts.get((each.target_topic, each.target_partition), 0),
                    )
                    for each in positions
                }
            )
            adopted = self._adopted()
        letters = self._letters(positions)
        facts = []
        for each in positions:
            target = (each.target_topic, each.target_partition)
            source_topic, target_topic = sources[each.topic], targets[each.target_topic]
            compacted, timestamps = policies(each)
            facts.append(
                PartitionFacts(
                    position=each,
                    source_id=each.topic_id
                    if each.source in deleted
                    else (None if source_topic is None else source_topic.topic_id),
                    target_id=None if target_topic is None else target_topic.topic_id,
                    source_start=source_starts.get(each.source, 0),
                    source_stable=max(
                        source_stable.get(each.source, 0), each.offset if each.source in deleted else 0
                    ),
                    target_start=target_starts.get(target, 0),
                    target_stable=min(stable.get(target, 0), ends.get(each.source, _FAR)),
                    target_stable_now=stable_now.get(target, 0),
                    expected_topic=self._copy_of(each.topic),
                    mapped=mapped.get(each.source, ()),
                    from_start=from_start,
                    bound=bounds.get(each.source, 0),
                    replaced=each.source in replaced,
                    letters=letters.get(each.source, ()),
                    adopted=adopted.get(each.source),
                    gone=each.source in gone,
                    compacted=compacted,
                    timestamps=timestamps,
                    placed=()
                    if not each.keyed or target_topic is None
                    else tuple(
                        CopyPartitionEnds(
                            number,
                            target_starts.get((each.target_topic, number), 0),
                            stable.get((each.target_topic, number), 0),
                            stable_now.get((each.target_topic, number), 0),
                        )
                        for number in range(target_topic.partitions)
                    ),
                )
            )
        return facts

    def _bounds(
        self, topics: Mapping[str, TopicFacts | None], ends: Mapping[Partition, int], bound: RequestedRange
    ) -> dict[Partition, int]:
        """Returns the first requested source offsets."""
        if bound.since_ms is None:
            lowest = bound.from_offset or 0
            return {where: max(lowest, bound.from_offsets.get(SourcePartition(*where), 0)) for where in ends}
        found = self._ends(self._source, topics, at=bound.since_ms)
        # No record is that young: all of them are before the bound.
        return {
            where: max(
                ends[where] if at < 0 else at,
                bound.from_offset or 0,
                bound.from_offsets.get(SourcePartition(*where), 0),
            )
            for where, at in found.items()
        }

    def _settled(
        self, positions: Sequence[Position], targets: Mapping[str, TopicFacts | None]
    ) -> dict[Partition, int]:
        """Returns the target's last stable offsets; waits for the markers of the positions' transactions."""
        deadline = Deadline(_MARKER_SECONDS, self._clock)
        while True:
            stable = self._ends(self._target, targets)
            if not behind(positions, stable) or deadline.passed:
                return stable
            self._clock.sleep(0.1)

    def _settings(
        self, sources: Mapping[str, TopicFacts | None], targets: Mapping[str, TopicFacts | None]
    ) -> Callable[[Position], tuple[bool, bool]]:
        """Returns a function of a position: (one of its topics is compacted, its target keeps timestamps)."""
        found = [
            admin.topic_configs(names)
            if (names := [name for name, facts in topics.items() if facts is not None])
            else {}
            for admin, topics in ((self._source, sources), (self._target, targets))
        ]

        def setting(side: int, topic: str, name: str) -> str:
            value = found[side].get(topic, {}).get(name)
            return (value.value or "") if value is not None else ""

        def policies(position: Position) -> tuple[bool, bool]:
            cleanup = setting(0, position.topic, "cleanup.policy") + setting(
                1, position.target_topic, "cleanup.policy"
            )
            stamped = setting(1, position.target_topic, "message.timestamp.type") == "LogAppendTime"
            return "compact" in cleanup, not stamped

        return policies

    def _mapped(
        self, wanted: Mapping[SourcePartition, tuple[Position, int, int]]
    ) -> tuple[dict[SourcePartition, tuple[tuple[int, int, int], ...]], set[SourcePartition]]:
        """
        Returns the offset map's ranges of present topics, and partitions with chunks of an earlier topic.

        Args:
            wanted: Position, first source offset and first target offset that can be compared.
        """
        topic = self._names.offset_map_topic
        if self._target.describe_topics([topic])[topic] is None:
            return {}, set()
        cuts = RetentionBounds(wanted)
        self._states.each(topic, cuts.take)
        return cuts.ranges(), cuts.replaced

    def _adopted(self) -> dict[SourcePartition, tuple[int, int]]:
        """Returns the offsets from which copies are the link's that another replicator had begun."""
        view = control_view(self._states.records(self._names.control_topic))
        return {
            each.source: (each.offset, 0 if each.target_offset is None else each.target_offset + 1)
            for each in view.adopted
        }

    def _letters(self, positions: Sequence[Position]) -> dict[SourcePartition, list[tuple[int, str]]]:
        """Returns the dead letters of present topics."""
        topic = self._names.dead_letter_topic
        found, refused = self._target.visible_topics([topic] if positions else [])
        if refused and self._link.on_refused == "dead-letter":
            raise refused[topic]
        # a link that writes none needs no right on a topic that does not exist
        if (facts := found.get(topic)) is None:
            return {}
        names = [(topic, number) for number in range(facts.partitions)]
        ends = self._target.offsets(names, at="latest", read_committed=False)
        # They hold whole records: a followed link does not read them again every second.
        if self._known_letters[0] != (facts.topic_id, ends):
            self._known_letters = (facts.topic_id, ends), self._read_letters(topic)
        ids = {each.source: each.topic_id for each in positions}
        letters: dict[SourcePartition, list[tuple[int, str]]] = {}
        for source, offset, topic_id, digest in self._known_letters[1]:
            if ids.get(source) == topic_id:
                letters.setdefault(source, []).append((offset, digest))
        return letters

    def _read_letters(self, topic: str) -> list[tuple[SourcePartition, int, str, str]]:
        letters: list[tuple[SourcePartition, int, str, str]] = []

        def take(record: LogRecord) -> None:
            # Only the digest of the dead letter's record is kept.
            if record.value is not None:
                letters.append(read_letter(record.key, record.value, where=record.where))

        self._states.each(topic, take)
        return letters

    def _ends(
        self, admin: ClusterAdmin, topics: Mapping[str, TopicFacts | None], *, at: str | int = "latest"
    ) -> dict[Partition, int]:
        partitions = [
            (name, number)
            for name, facts in topics.items()
            if facts is not None
            for number in range(facts.partitions)
        ]
        return admin.offsets(partitions, at=at, read_committed=True) if partitions else {}


def _ends_where_parked(
    layout: Generation | None, positions: Sequence[Position]
) -> dict[SourcePartition, int]:
    """Returns the end of the link's copies of partitions that it mirrors no more, or not yet again: others may."""
    parked = () if layout is None else layout.assignment.parked
    return {
        each.source: end
        for each in positions
        if each.source in parked and (end := each.target_next) is not None
    }


def _ends_at_cuts(history: PromotionHistory, positions: Sequence[Position]) -> dict[SourcePartition, int]:
    """
    Returns the end of the link's copies in a promoted link: applications write behind it.

    A partition whose orphans were merged has copies behind the cut as well, and the header tells which they are.
    """
    promotion = history.current
    cuts = {} if promotion is None else {cut.source: cut for cut in promotion.cuts}
    return {
        each.source: cut.target_end
        for each in positions
        if (cut := cuts.get(each.source)) is not None
        and (cut.position, cut.target_topic_id) == (each.offset, each.target_topic_id)
    }


def _behind_moved_cuts(history: PromotionHistory, positions: Sequence[Position]) -> dict[Partition, int]:
    """
    Returns first source offsets behind what was merged into a promoted link, where its source had lost records.

    Behind the cut, which was moved back for that, the copy holds what the source has lost, and the header tells it from
    no other copy.
    """
    promotion = history.current
    reversal = None if promotion is None else history.reversals.get(promotion.number)
    moved = {} if reversal is None else reversal.cuts
    return {
        (each.topic, each.partition): each.offset
        for each in positions
        if each.source in moved and each.offset != moved[each.source][0]
    }


def _behind_returns(
    bounds: Mapping[Partition, int], history: PromotionHistory, *, guard: bool
) -> dict[Partition, int]:
    """
    Returns first source offsets that are not before the last return from a promotion.

    Without the header nothing tells what applications wrote to the copies until then.  With it, only partitions whose
    orphans were left on the source are bounded: these records have no copy.
    """
    found = dict(bounds)
    for number, resumption in sorted(history.resumptions.items()):
        left = _left_behind(history, number)
        for source, start in resumption.starts.items():
            where = (source.topic, source.partition)
            if where in found and (not guard or source in left):
                found[where] = max(found[where], start)
    return found


def _left_behind(history: PromotionHistory, number: int) -> set[SourcePartition]:
    """Returns the partitions in which a promotion left orphans that were not merged, or whose source had changed."""
    promotion, reversal = history.promotions.get(number), history.reversals.get(number)
    if promotion is None or reversal is None:
        return set()
    dealt = history.dealt(number)
    # what was mirrored from records that the source has lost has no source any more
    return set(reversal.cuts) | {
        cut.source
        for cut in promotion.cuts
        for done in (dealt.get(cut.source, ()),)
        if rest(cut.position, furthest(reversal.ends.get(cut.source, 0), done), done, {"merge"})
    }


def _behind_copies(bounds: Mapping[Partition, int], order: CopyBack | None) -> dict[Partition, int]:
    """Returns first source offsets that are behind what the link copied back whole, whatever it had passed."""
    found = dict(bounds)
    for topic, ends in ({} if order is None else order.until).items():
        for number, end in ends.items():
            where = (topic, int(number))
            if where in found:
                found[where] = max(found[where], int(end))
    return found


def behind(positions: Sequence[Position], stable: Mapping[Partition, int]) -> list[Position]:
    """Returns positions whose last record is at or behind the last stable offset: its marker is missing yet."""
    return [
        each
        for position in positions
        for each in position.by_copy()
        if each.target_offset is not None
        and each.target_offset >= stable.get((each.target_topic, each.target_partition), 0)
    ]


def _waiting(
    matched: Sequence[str],
    topics: Mapping[str, TopicFacts | None],
    positions: Mapping[SourcePartition, Position],
) -> list[str]:
    """Returns topics without any position, and partitions without one of topics that have some."""
    begun = {source.topic for source in positions}
    waiting = [topic for topic in matched if topic not in begun]
    for topic in matched:
        facts = topics[topic]
        if topic in begun and facts is not None:
            numbers = range(facts.partitions)
            waiting += [f"{topic}-{n}" for n in numbers if SourcePartition(topic, n) not in positions]
    return waiting


class Identify(Protocol):
    """Returns the id of a cluster: `eomirror.kafka.admin.identify`."""

    def __call__(self, cluster: Cluster, *, client_id: str) -> str:
        """Returns the id, requested under a client id."""


def with_origins(link: Link, clusters: Mapping[str, Cluster], identify_cluster: Identify = identify) -> Link:
    """
    Returns the link with the ids of its origins, by which its loop guard distinguishes records.

    Args:
        link: The configured link.
        clusters: All clusters of the configuration, by alias.
        identify_cluster: Returns the id of a cluster, requested under a client id.

    Raises:
        ClusterError: One of these clusters cannot be reached or refuses the request.
    """
    ids = dict(link.cluster_ids)
    for alias in link.origins or ():
        if alias not in (*ids, link.source):
            client_id = LinkNames(link.state_name).client_id("verify")
            ids[alias] = identify_cluster(clusters[alias], client_id=client_id)
    return replace(link, cluster_ids=FrozenMapping(ids))
