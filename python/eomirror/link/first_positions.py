"""
First positions: the offsets at which a link begins, decided once and committed before any data.

They are written in the transaction that publishes the partitions in control.  Control therefore never knows a partition
without a position, and a lost position is detected rather than replaced by offset 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog

from eomirror._native import encode_offset_map
from eomirror.errors import UsageError
from eomirror.kafka.cluster_metadata import are_other_ids, is_deleted
from eomirror.kafka.log_ends import existing_ends
from eomirror.link.start_checks import FILLED, FIRST, FIRST_RUN, StartFacts, partition_counts
from eomirror.plane.protocol import BatchMark, MetadataRecord, ProducerIdentity
from eomirror.records.control import Adopted
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import offset_map_key, offset_map_partition
from eomirror.records.position import Position

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.lane.spec import AssignedPartition
    from eomirror.link.start_checks import StartChecks
    from eomirror.link.start_rules import ReverseLink
    from eomirror.records.control import Generation
    from eomirror.types import SourcePartition

__all__ = [
    "Begin",
    "FirstPositions",
    "Predecessor",
    "backlog",
    "of_grown_topics",
    "without_surplus",
]

log = structlog.get_logger(__name__)

# A partition without an answer counts as small; its lane waits for its leader anyway.
_BACKLOG_SECONDS = 10.0

# in a chunk of the offset map, which is far smaller than the least that brokers take
_MOST_RANGES = 10_000


@dataclass(frozen=True, slots=True)
class Predecessor:
    """
    State of another replicator for one partition, committed with the first position.

    Attributes:
        record: Record that control keeps of it.
        ranges: Source offset, target offset and record count of ranges that both logs hold; ascending.
    """

    record: Adopted
    ranges: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Begin:
    """
    Beginning of a link in one partition, as a command of failover found both logs.

    Attributes:
        target: Offset of the copy from which on the link writes.
        target_batch: Batch before it; None if unknown.
        source_batch: Batch before the source offset at which the link begins; None if unknown.
        committed: True if the record before that offset is committed.
    """

    target: int
    target_batch: BatchMark | None = None
    source_batch: BatchMark | None = None
    committed: bool = False


@dataclass(slots=True)
class FirstPositions:
    """
    Makes the first positions of one link.

    Args:
        source: Returns log offsets of the source.
        target: Returns the partition count of the positions topic.
        run: Id of the mirror's run.
        identity: Identity of the control producer, whose transaction will hold the positions.
        now_ms: Wall clock.
        predecessors: State of another replicator for the partitions that are adopted from it.
        checks: Checks of the start, which has looked for other links already.
        before: Positions that the link has, as far as they are readable.
        begins: Beginnings of partitions for which a command knows them.
        given: Partitions that another link of the run has given up, with its position, which this link takes as it is.
    """

    link: Link
    names: LinkNames
    source: ClusterAdmin
    target: ClusterAdmin
    source_cluster_id: str
    run: str
    identity: ProducerIdentity
    now_ms: int
    predecessors: Mapping[SourcePartition, Predecessor] = field(default_factory=dict)
    checks: StartChecks | None = None
    before: Mapping[SourcePartition, Position] = field(default_factory=dict)
    begins: Mapping[SourcePartition, Begin] = field(default_factory=dict)
    given: Mapping[SourcePartition, ReverseLink] = field(default_factory=dict)
    _map_partitions: int | None = None
    # partition counts of target topics whose records are placed by key
    _counts: Mapping[str, int] = field(default_factory=dict)

    def records(
        self,
        generation: Generation,
        partitions: Sequence[AssignedPartition],
        known: frozenset[SourcePartition],
        *,
        adopt: Mapping[SourcePartition, int],
        start: str,
    ) -> list[MetadataRecord]:
        """
        Returns position records of partitions that are new to control and of those that the user adopts.

        Args:
            generation: Layout that they are published with.
            partitions: All mirrored partitions.
            known: Partitions that control knows, which have a position.
            adopt: Partition -> resume offset, which overrules its position.
            start: Offset to begin at; empty for the link's ``start``, which applies to its first run only.

        Raises:
            UsageError: The link does not mirror a partition to adopt.
            NotReadyError: This is the link's first run, and MirrorMaker 2 or a mirror has filled its copies.
            TopicError: The link would write back copies that another link made.
        """
        adopt = {**adopt, **{source: each.position.offset for source, each in self.given.items()}}
        unknown = sorted(adopt.keys() - {item.source for item in partitions})
        if unknown:
            raise UsageError(
                f"--resume-at {unknown[0]}: the link does not mirror this partition",
                fix="name a topic and partition that the link's topics match; one that the log names as left out, or "
                "that has no leader, can be adopted as soon as it can be served",
            )
        fresh = [item for item in partitions if item.source not in known or item.source in adopt]
        if not fresh:
            return []
        begun = [item for item in fresh if item.source not in adopt]
        # For a link that has run before, the caller leaves topics with filled copies out.
        checks = self.checks
        if checks is not None and not start:
            checks.refuse(FIRST_RUN, StartFacts(items=begun, first_run=True))
        offsets = self._starts([item.source for item in begun], start or self.link.start)
        if checks is not None:
            checks.refuse(FIRST, StartFacts(starts=offsets))
        if checks is not None and not start:
            checks.refuse(FILLED, StartFacts(items=self._repeating(begun, offsets), first_run=True))
        offsets.update(adopt)
        topic = self.names.positions_topic
        facts = self.target.describe_topics([topic])[topic]
        count = 1 if facts is None else facts.partitions
        self._counts = partition_counts(self.target, fresh) if self.link.keyed else {}
        begins = self._target_begins(fresh, adopt)
        records = []
        for item in fresh:
            lane = generation.assignment.partitions[item.source]
            position = self._position(
                generation, item, lane, offsets[item.source], begins.get(item.source, Begin(0))
            )
            records.append(MetadataRecord(topic, lane % count, position.key(), position.value()))
            if item.source in adopt:
                # An overruled position may be unreadable, so its generation may be unknown.
                records += [
                    MetadataRecord(topic, number, position.key(), None)
                    for number in range(count)
                    if number != lane % count
                ]
                records += self._left(item)
        return records

    def published_and_adopted(
        self,
        generation: Generation,
        partitions: Sequence[AssignedPartition],
        known: frozenset[SourcePartition],
        *,
        adopt: Mapping[SourcePartition, int],
        grown: Collection[SourcePartition],
        again: Collection[SourcePartition],
        first_run: bool,
    ) -> tuple[list[MetadataRecord], list[MetadataRecord]]:
        """
        Returns the records that are published with a layout, and those that wait until older lanes are fenced.

        Args:
            generation: The layout.
            partitions: All mirrored partitions.
            known: Partitions that control knows.
            adopt: Partition -> resume offset, which overrules its position.
            grown: Result of `of_grown_topics`.
            again: Result of `begun_again`.
            first_run: True if the link never ran.

        Raises:
            MirrorError: As for `records`.
        """
        first = self.records(
            generation,
            partitions,
            known - (set(grown) - adopt.keys()),
            adopt={source: offset for source, offset in adopt.items() if source not in known},
            start="" if first_run else "earliest",
        )
        overruled = self.records(
            generation,
            partitions,
            frozenset(item.source for item in partitions) - set(again),
            adopt={source: offset for source, offset in adopt.items() if source in known},
            start="earliest",
        )
        return first, overruled

    def begun_again(
        self, partitions: Iterable[AssignedPartition], adopted: Iterable[SourcePartition]
    ) -> set[SourcePartition]:
        """
        Returns partitions whose position is of an earlier topic that has left the link, by `deletions: delete`.

        The topic was made again since, and the copy that its positions name is deleted.  A process that died before it
        could forget them leaves such positions (`LinkOwner.forget`).

        Args:
            partitions: Partitions to mirror.
            adopted: Partitions about whose topics the user decides.

        Raises:
            ClusterError: The target does not answer.
        """
        ids = {item.source.topic: item.topic_id for item in partitions} if self.link.deletes_copies else {}
        for source in adopted:
            ids.pop(source.topic, None)
        earlier: dict[str, list[Position]] = {}
        for one in self.before.values():
            if one.topic in ids:
                earlier.setdefault(one.topic, []).append(one)
        earlier = {
            topic: found
            for topic, found in earlier.items()
            if all(
                one.source_cluster_id == self.source_cluster_id and are_other_ids(one.topic_id, ids[topic])
                for one in found
            )
        }
        if not earlier:
            return set()
        names = sorted({one.target_topic for found in earlier.values() for one in found})
        copies, _ = self.target.visible_topics(names)
        again = {
            topic: found
            for topic, found in earlier.items()
            if all(is_deleted(one.target_topic, one.target_topic_id, copies) for one in found)
        }
        if again:
            log.info("topics_begun_again", link=self.link.name, topics=sorted(again))
        return {one.source for found in again.values() for one in found}

    def _repeating(
        self, items: Sequence[AssignedPartition], offsets: Mapping[SourcePartition, int]
    ) -> Sequence[AssignedPartition]:
        """Returns the partitions that begin before their end: later records cannot be in the copy already."""
        if self.link.start == "earliest":
            return items
        if self.link.start == "latest":
            return ()
        ends = self.source.offsets([item.source for item in items], at="latest", read_committed=True)
        return [item for item in items if offsets[item.source] < ends[item.source]]

    def _left(self, item: AssignedPartition) -> list[MetadataRecord]:
        """Returns control records of the previous replicator, which translate offsets of groups that lag behind."""
        before = self.predecessors.get(item.source) or self._giver(item.source)
        if before is None:
            return []
        kept = [MetadataRecord(self.names.control_topic, 0, before.record.key(), before.record.value())]
        topic = self.names.offset_map_topic
        if self._map_partitions is None:
            facts = self.target.describe_topics([topic])[topic]
            self._map_partitions = 0 if facts is None else facts.partitions
        for index in range(0, len(before.ranges) if self._map_partitions else 0, _MOST_RANGES):
            ranges = before.ranges[index : index + _MOST_RANGES]
            kept.append(
                MetadataRecord(
                    topic,
                    offset_map_partition(item.source, self._map_partitions),
                    offset_map_key(item.source, item.topic_id, ranges[0][0]),
                    encode_offset_map(item.target_topic, item.source.partition, ranges),
                )
            )
        return kept

    def _giver(self, source: SourcePartition) -> Predecessor | None:
        """Returns the link that has given up a partition; None for none."""
        if (each := self.given.get(source)) is None:
            return None
        at = each.position
        record = Adopted(
            topic=at.topic,
            partition=at.partition,
            offset=at.offset,
            target_offset=at.target_offset,
            replicator=f"link {each.link}",
            place=LinkNames(each.link).positions_topic,
            committed=at.offset,
            evidence="the link has given it up, at its last position",
            run=self.run,
            timestamp=self.now_ms,
        )
        return Predecessor(record, each.ranges)

    def _target_begins(
        self, items: Sequence[AssignedPartition], adopted: Collection[SourcePartition]
    ) -> dict[SourcePartition, Begin]:
        """
        Returns the beginnings of the link, where it is not that of the copy.

        A copy that the link has just begun is empty, or holds what applications have written there too early.
        """
        into_filled = self.checks is not None and self.checks.into_filled
        known = [
            item for item in items if into_filled or item.source in adopted or item.source in self.before
        ]
        copies = {
            item.source: (item.target_topic, item.source.partition)
            for item in known
            if item.source not in self.begins
        }
        ends: Mapping[tuple[str, int], int] = {}
        if copies and not self.link.keyed:
            ends = existing_ends(
                self.target,
                set(copies.values()),
                read_committed=False,
            )
        found = {item.source: self.begins[item.source] for item in items if item.source in self.begins}
        for item in known:
            if item.source in found:
                continue
            end, before = ends.get(copies[item.source], 0), self.before.get(item.source)
            begin = None if before is None else before.target_next
            if before is not None and before.target_topic_id != item.target_topic_id:
                begin = 0
            found[item.source] = Begin(end if begin is None else min(begin, end))
        return found

    def _position(
        self, generation: Generation, item: AssignedPartition, lane: int, offset: int, begin: Begin
    ) -> Position:
        set_here: dict[str, Any] = {
            "generation": generation.of_lane(lane), "lane": lane, "run": self.run, "epoch": 0, "attempt": 0,
            "producer_id": self.identity.producer_id, "producer_epoch": self.identity.producer_epoch, "txn": 0,
            "timestamp": self.now_ms,
        }  # fmt: skip
        if (given := self.given.get(item.source)) is not None:
            # what follows is marked by this link's settings
            header = given.position.header and self.link.provenance_header
            return given.position.handed(header=header, **set_here)
        before = self.predecessors.get(item.source)
        number, keyed = item.source.partition, {}
        if copies := self._counts.get(item.target_topic):
            # that of records without a key, until the first record
            number, keyed = number % copies, {str(each): -1 for each in range(copies)}
        return Position(
            topic=item.source.topic,
            partition=item.source.partition,
            offset=offset,
            source_cluster_id=self.source_cluster_id,
            topic_id=item.topic_id,
            target_topic=item.target_topic,
            target_partition=number,
            target_topic_id=item.target_topic_id,
            target_offset=None if before is None else before.record.target_offset,
            target_begin=None if copies else begin.target,
            target_batch={} if begin.target_batch is None or copies else begin.target_batch._asdict(),
            **_batch(begin.source_batch),
            batch_committed=begin.committed and begin.source_batch is not None,
            header=self.link.provenance_header,
            keyed=keyed,
            **set_here,
        )

    def _starts(self, sources: Sequence[SourcePartition], start: str | int) -> dict[SourcePartition, int]:
        """Returns the offsets of ``earliest``, ``latest``, or the first record at or after a time in ms."""
        if not sources:
            return {}
        if start in {"earliest", "latest"}:
            asked = self.source.offsets(sources, at=start, read_committed=True)
            return {source: asked[source] for source in sources}
        # Ends are requested first: a record that arrives between both answers is then not skipped.
        ends = self.source.offsets(sources, at="latest", read_committed=True)
        found = self.source.offsets(sources, at=start, read_committed=True)
        # -1: every record is older than that time.
        return {source: found[source] if found[source] >= 0 else ends[source] for source in sources}


def _batch(mark: BatchMark | None) -> dict[str, Any]:
    """Returns the fields of a position that name the batch before it."""
    if mark is None:
        return {}
    return {"batch_offset": mark.offset, "batch_crc": mark.crc, "batch_timestamp": mark.timestamp}


def without_surplus(
    link: Link,
    source: ClusterAdmin,
    adopt: Mapping[SourcePartition, int],
    *,
    offered: Collection[SourcePartition],
    known: Collection[SourcePartition],
) -> dict[SourcePartition, int]:
    """
    Returns the partitions to adopt without those that the source has no more; logs the latter.

    They are surplus, not wrong: the link has mirrored them, and their topic was deleted or made again with fewer
    partitions.  Anything else that cannot be adopted stays, for `FirstPositions.records` to refuse.

    Args:
        link: The link.
        source: Admin client of its source.
        adopt: Partition -> resume offset.
        offered: Partitions that are mirrored.
        known: Partitions that have a position.

    Raises:
        ClusterError: The source does not answer.
    """
    unserved = [each for each in adopt if each not in offered and each in known and link.mirrors(each.topic)]
    # A topic that an ACL hides may exist.
    topics = source.visible_topics(sorted({each.topic for each in unserved}))[0] if unserved else {}
    surplus = sorted(
        each
        for each in unserved
        if each.topic in topics
        and ((facts := topics[each.topic]) is None or each.partition >= facts.partitions)
    )
    for each in surplus:
        log.warning(
            "adopt_skipped",
            link=link.name,
            partition=str(each),
            reason=f"--resume-at {each}: the source has no such partition any more; its copy stays as it is",
            fix="leave the option out",
        )
    return {each: offset for each, offset in adopt.items() if each not in surplus}


def backlog(
    source: ClusterAdmin, partitions: Iterable[AssignedPartition], resume_at: Mapping[SourcePartition, int]
) -> dict[SourcePartition, int]:
    """Returns the offsets of each partition between its position, or the start of its log, and the end of its log."""
    wanted = sorted(item.source for item in partitions)
    ends, _ = source.answered_offsets(wanted, at="latest", seconds=_BACKLOG_SECONDS)
    starts, _ = source.answered_offsets(wanted, at="earliest", seconds=_BACKLOG_SECONDS)
    return {
        where: max(0, ends.get(where, 0) - max(starts.get(where, 0), resume_at.get(where, 0)))
        for where in wanted
    }


def of_grown_topics(
    partitions: Iterable[AssignedPartition],
    positions: Mapping[SourcePartition, Position],
    had: Collection[SourcePartition],
) -> set[SourcePartition]:
    """
    Returns partitions that have a position of an earlier topic of this name, and are new in the one that is mirrored.

    A topic was made again with fewer partitions, the user has adopted these, and it has grown since.  What is in its
    new partitions is on no copy, so they begin like any new partition.

    Args:
        partitions: Partitions to mirror.
        positions: Valid positions.
        had: Partitions that the newest layout has.
    """
    mirrored = {
        (position.topic, position.topic_id) for source, position in positions.items() if source in had
    }
    return {
        item.source
        for item in partitions
        if item.source not in had
        and (position := positions.get(item.source)) is not None
        and position.topic_id != item.topic_id
        and (item.source.topic, item.topic_id) in mirrored
    }
