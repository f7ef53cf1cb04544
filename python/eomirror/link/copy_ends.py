"""
Reads how far the copies of a link hold what its positions say, from the target alone (`eomirror.recovery.copy_end`).

A promotion and `readiness` ask this; a lane that starts asks the same of its own copies, and stops their topic instead
(`eomirror.recovery.resume`, `eomirror.recovery.resolve_hanging`).

`ForeignTails` finds records behind the last one of a link in its copies, which other producers have written.  A
promotion lets the link in the other direction begin with them.  Until then they are on one side only, and a producer
that writes into a copy has most likely been forgotten.  Where a link in the other direction mirrors them now, as with
equal names on both sides, they are records like others.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import structlog

from eomirror._native import PartitionMap
from eomirror.clock import Deadline
from eomirror.config.rights import Right, account_of, named
from eomirror.errors import AuthorizationError, MirrorError
from eomirror.kafka.compacted_topic import CompactedTopicReader
from eomirror.kafka.log_ends import existing_ends
from eomirror.kafka.partition_reader import GONE
from eomirror.lane.spec import AssignedPartition
from eomirror.link.hanging import target_hanging_client
from eomirror.link.offset_map_reader import take_chunk
from eomirror.link.other_links import OtherLinks
from eomirror.link.source_comparison import other_batches
from eomirror.link.start_rules import meetings
from eomirror.plane.protocol import BatchMark
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import chunk_prefix, offset_map_partition, prefix_of_chunk
from eomirror.records.position import decode_attempt, decode_key, decode_position
from eomirror.recovery.copy_end import (
    CommittedBatch,
    CopyEnd,
    LastRecord,
    last_of_lanes,
    source_behind,
    unknown_end,
    whole,
)
from eomirror.recovery.hanging import RecordState, lost_error
from eomirror.recovery.hanging_client import extension_client
from eomirror.recovery.resume import copy_cut_error, copy_overwritten_error

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror._native import HangingTransactionClient
    from eomirror.config import Link
    from eomirror.kafka.compacted_topic import LogRecord
    from eomirror.kafka.session import ClusterSession, LinkSessions
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["CopyEnds", "ForeignTail", "ForeignTails"]

_SECONDS = 60.0
# Offsets of a copy to look at first, from its end backwards; each further look takes four times as many.
_FIRST_WINDOW = 20_000
_GROWTH = 4
# A transaction ends with its marker.
_MARKER = 1

_Where = tuple[str, int]


class CopyEnds:
    """
    Reads the ends of a link's copies.

    Args:
        target: Connections to the target.
    """

    def __init__(self, link: Link, target: ClusterSession) -> None:
        self._link, self._names = link, LinkNames(link.state_name)
        self._target = target
        self._client = target_hanging_client(link, target)
        self._shared = link.aggregate
        self._states = CompactedTopicReader(target)
        self._highest_lane = 0
        self._lanes: AbstractSet[int] | None = None

    def read(
        self,
        positions: Collection[Position],
        *,
        highest_lane: int,
        later: Callable[[], Mapping[SourcePartition, Position]] | None = None,
    ) -> dict[SourcePartition, CopyEnd]:
        """
        Returns the end of each copy that exists and has a leader.

        Args:
            positions: Valid positions, read before this is called.
            highest_lane: Highest lane number that any generation ever used.
            later: Reads the positions again, where the link may run: a lane has written behind those that it has moved
                since, and compares its copies itself.

        Raises:
            StateError: A record in the link's topics is not readable.
            ClusterError: The target does not answer.
        """
        self._highest_lane, self._lanes = highest_lane, None
        there, ids, ends = self._facts(positions)
        found = {source: whole(one, ids[one.target_topic], ends[_copy(one)]) for source, one in there.items()}
        problems = self._problems(there.values(), ids, ends)
        # Only markers and aborted records, or records that others committed, follow the last one of the link.
        longer = {
            _copy(one): start
            for source, one in there.items()
            # where several links, or all partitions of a topic, write into one copy, records of the others follow
            if source not in problems
            and not (one.keyed or self._shared)
            and (start := one.target_next) is not None
            and ends[_copy(one)] > start + (0 if one.target_offset is None else _MARKER)
        }
        behind = self._first_behind(longer)
        moved = there if later is None or not (problems or behind) else later()
        still = {source for source, one in there.items() if moved.get(source) == one}
        problems = {source: text for source, text in problems.items() if source in still}
        for source, one in there.items():
            first = behind.get(_copy(one)) if source in still else None
            if first is not None and self._is_of_lane(_copy(one), first):
                problems[source] = (
                    f"records of the link stand at offset {first} of {one.target_topic}-{one.target_partition}, and "
                    "its position knows of none there"
                )
            elif first is not None:
                found[source] = whole(one, ids[one.target_topic], first)
        searched = [there[source] for source in problems]
        ranges = self._ranges([one for one in searched if self._is_mapped(one, ids)])
        for one in searched:
            found[one.source] = self._searched(
                one, ids[one.target_topic], ends[_copy(one)], problems[one.source], ranges.get(one.source, ())
            )
        return found

    def problems(self, positions: Collection[Position]) -> dict[SourcePartition, str]:
        """Returns what is wrong with copies without the record that their position names last; a lane may run."""
        there, ids, ends = self._facts(positions)
        return self._problems(there.values(), ids, ends)

    # -- inside ----------------------------------------------------------------------------------

    def _facts(
        self, positions: Collection[Position]
    ) -> tuple[dict[SourcePartition, Position], dict[str, str], Mapping[_Where, int]]:
        """Returns the positions whose copy exists and has a leader, the ids of copies, and their ends."""
        topics = self._target.admin.describe_topics(sorted({one.target_topic for one in positions}))
        ids = {name: facts.topic_id for name, facts in topics.items() if facts is not None}
        copies = {copy for one in positions if one.target_topic in ids for copy in (_copy(one), *one.copies)}
        ends = existing_ends(self._target.admin, copies, read_committed=False)
        return {one.source: one for one in positions if _copy(one) in ends}, ids, ends

    def _problems(
        self, positions: Collection[Position], ids: Mapping[str, str], ends: Mapping[_Where, int]
    ) -> dict[SourcePartition, str]:
        """Returns what is wrong with copies whose last record is not there, or is another producer's."""
        problems: dict[SourcePartition, str] = {}
        asked: dict[_Where, list[tuple[Position, int, tuple[int, int]]]] = {}
        for position in positions:
            if ids[position.target_topic] != position.target_topic_id:
                problems[position.source] = (
                    f"{position.target_topic} was deleted and created again: nothing of the link is in it"
                )
                continue
            for one in position.by_copy():
                last, end = one.target_offset, ends.get(_copy(one))
                if last is not None and end is not None and last >= end:
                    problems.setdefault(position.source, copy_cut_error(one, end).message)
                elif last is not None and (writer := one.target_writer) is not None:
                    asked.setdefault(_copy(one), []).append((one, last, writer))
        # several positions name one copy where records are placed by key, or where links share it
        while left := {where: each.pop() for where, each in asked.items() if each}:
            records = {where: last for where, (_, last, _) in left.items()}
            batches, states = self._client.batches_at(records), self._client.record_states(records)
            for where, (one, _, writer) in left.items():
                there = batches.get(where)
                if there is not None and (there.producer_id, there.epoch) != writer:
                    problems.setdefault(one.source, copy_overwritten_error(one).message)
                elif states.get(where) is RecordState.ABORTED:
                    problems.setdefault(one.source, lost_error(one).message)
        return self._changed_before([one for one in positions if one.source not in problems], ends) | problems

    def _changed_before(
        self, positions: Iterable[Position], ends: Mapping[_Where, int]
    ) -> dict[SourcePartition, str]:
        """Returns what is wrong with copies without a record of the link, before the offset from which on it writes."""
        begun = {
            _copy(one): (one, begin)
            for one in positions
            if one.target_offset is None and (begin := one.target_begin) is not None
        }
        found = {
            where: f"it ends at offset {ends[where]}"
            for where, (_, begin) in begun.items()
            if begin > ends[where]
        }
        marks = {
            where: BatchMark(**one.target_batch)
            for where, (one, _) in begun.items()
            if one.target_batch and where not in found
        }
        if marks:
            starts = self._target.admin.offsets(list(marks), at="earliest", read_committed=False)
            marks = {where: mark for where, mark in marks.items() if mark.offset >= starts[where]}
            found |= other_batches(self._link, self._target, marks)
        return {begun[where][0].source: _begin_cut(begun[where][0], text) for where, text in found.items()}

    def _first_behind(self, starts: Mapping[_Where, int]) -> dict[_Where, int]:
        """Returns the offset of the first committed record at or behind each offset, where there is one."""
        if not starts:
            return {}
        with self._target.reader() as reader:
            reader.connect({topic for topic, _ in starts})
            found = reader.first(
                starts, deadline=Deadline(_SECONDS, self._target.clock), passing=GONE, partial=True
            )
        return {where: message.offset() for where, message in found.items()}

    def _is_of_lane(self, where: _Where, offset: int) -> bool:
        there = self._client.batch_at((*where, offset))
        return there is not None and there.producer_id in self._lane_producers()

    @staticmethod
    def _is_mapped(position: Position, ids: Mapping[str, str]) -> bool:
        """Returns True if the offset map can name the last record of the link in a copy that is not whole."""
        return ids[position.target_topic] == position.target_topic_id and not position.keyed

    def _searched(
        self,
        position: Position,
        topic_id: str,
        end: int,
        problem: str,
        ranges: Sequence[tuple[int, int, int]],
    ) -> CopyEnd:
        """Finds the last record of the link in a copy that is not whole, of which the offset map has these ranges."""
        where = _copy(position)
        if topic_id != position.target_topic_id:
            first = self._first_behind({where: 0}).get(where, end)
            return CopyEnd(
                offset=0,
                target_offset=None,
                writer=None,
                target_topic_id=topic_id,
                target_end=first,
                problem=problem,
            )
        if position.target_offset is None and position.target_begin is not None:
            # Nothing of the link is in the copy, or a lane has written there of which no position is left.
            begin = min(position.target_begin, end)
            first = self._first_behind({where: begin}).get(where, end)
            if first == end or not self._is_of_lane(where, first):
                return unknown_end(position, topic_id, first, problem)
        if position.keyed:
            # Its records are divided among several copies, and the map does not name them.
            return unknown_end(position, topic_id, end, problem)
        start = self._target.admin.offsets([where], at="earliest", read_committed=False)[where]
        last = self._last_record(where, start, end)
        at = None if last.batch is None else last.batch.last_offset
        behind = self._first_behind({where: start if at is None else at + 1}).get(where, end)
        source = None if last.doubtful is not None else source_behind(ranges, at, start)
        if source is None:
            why = (
                "the offset map does not name its last record"
                if last.doubtful is None
                else f"the producer of offset {last.doubtful} there is unknown"
            )
            return unknown_end(position, topic_id, behind, f"{problem}; {why}")
        return CopyEnd(
            offset=source,
            target_offset=at,
            writer=None if last.batch is None else (last.batch.producer_id, last.batch.epoch),
            target_topic_id=topic_id,
            target_end=behind,
            problem=problem,
        )

    def _last_record(self, where: _Where, start: int, end: int) -> LastRecord:
        """Returns the last record of a lane in a copy; reads backwards, in windows that grow."""
        lanes, others = self._lane_producers(), self._client.producers_of_others(where)
        high, size, doubtful = end, _FIRST_WINDOW, None
        while high > start:
            low = max(start, high - size)
            batches = self._client.committed(where, (low, high))
            found = last_of_lanes(
                batches if batches is not None else self._read(where, low, high),
                None if batches is None else lanes,
                others,
            )
            doubtful = found.doubtful if found.doubtful is not None else doubtful
            if found.batch is not None:
                last = min(found.batch.last_offset, high - 1)
                return LastRecord(found.batch._replace(last_offset=last), doubtful)
            high, size = low, size * _GROWTH
        return LastRecord(None, doubtful)

    def _read(self, where: _Where, low: int, high: int) -> list[CommittedBatch]:
        """Returns committed records as batches of one, where producers cannot be asked."""
        found: list[CommittedBatch] = []
        with self._target.reader() as reader:
            reader.connect([where[0]])
            reader.read(
                {where: (low, high)},
                lambda _, message: found.append(CommittedBatch(message.offset(), message.offset(), -1, -1)),
                deadline=Deadline(_SECONDS, self._target.clock),
                passing=GONE,
                partial=True,
            )
        return found

    def _lane_producers(self) -> AbstractSet[int]:
        """Returns the producer ids of lanes that positions, claims of lanes, or coordinators know."""
        if self._lanes is None:
            found = set(self._client.lanes(self._highest_lane))
            for record in self._states.records(self._names.positions_topic, wait_for_open=False):
                if record.value is None:
                    continue
                source = decode_key(record.key, where=record.where)
                if isinstance(source, int):
                    found.add(decode_attempt(source, record.value, where=record.where).producer_id)
                    continue
                one = decode_position(source, record.value, where=record.where)
                if one.epoch > 0:
                    found.add(one.producer_id)
                if one.target_producer_id is not None:
                    found.add(one.target_producer_id)
            self._lanes = found
        return self._lanes

    def _ranges(self, positions: Collection[Position]) -> dict[SourcePartition, list[tuple[int, int, int]]]:
        """Returns the ranges of partitions in the offset map, which is read once; none if it does not exist."""
        topic = self._names.offset_map_topic
        facts = self._target.admin.describe_topics([topic])[topic] if positions else None
        if facts is None:
            return {}
        asked = {
            (offset_map_partition(one.source, facts.partitions), chunk_prefix(one.source, one.topic_id)): (
                PartitionMap(),
                one,
            )
            for one in positions
        }

        def take(record: LogRecord) -> None:
            found = asked.get((record.partition, prefix_of_chunk(record.key)))
            if found is not None and record.value is not None:
                take_chunk(found[0], record, found[1])

        self._states.each(topic, take, wait_for_open=False)
        return {one.source: found.listed() for found, one in asked.values()}


def _begin_cut(position: Position, found: str) -> str:
    return (
        f"{position.target_topic}-{position.target_partition} on the target was truncated or restored from an older "
        f"state before offset {position.target_begin}, from which on {position.source} is copied there: {found}"
    )


def _copy(position: Position) -> _Where:
    return position.target_topic, position.target_partition


log = structlog.get_logger(__name__)

_TAIL_SECONDS = 2.0
# that one request covers
_OFFSETS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignTail:
    """
    Records behind the last one of a link in one copy.

    Attributes:
        topic: Source topic.
        partition: Partition of the copy.
        target_topic: Copy.
        start: Offset of the first of them, in the copy.
        end: End of the copy.
    """

    topic: str
    partition: int
    target_topic: str
    start: int = field(metadata={"name": "from"})
    end: int = field(metadata={"name": "to"})


class ForeignTails:
    """
    Looks behind the last records of a link; keeps what it has seen, for repeated looks.

    Args:
        sessions: Connections to the clusters of the link.
    """

    def __init__(self, link: Link, sessions: LinkSessions) -> None:
        self._link, self._sessions = link, sessions
        self._others = OtherLinks(link.name, sessions.source, event="opposite_link_unknown")
        self._client: HangingTransactionClient | None = None
        self._seen: dict[_Where, tuple[tuple[int, int], int | None]] = {}

    def look(
        self,
        positions: Iterable[Position],
        ends: Mapping[_Where, int],
        producers: Callable[[], Collection[int]],
    ) -> tuple[ForeignTail, ...]:
        """
        Returns such records, one item for each partition.

        Args:
            positions: Positions of the link, read before the ends.
            ends: Ends of the copies.
            producers: Returns the ids of producers of the link's lanes; called behind a record that may be theirs, of a
                transaction that was committed since the positions were read.
        """
        if self._link.aggregate or self._link.keyed:
            # other links, or other partitions, write into the same copy
            return ()
        longer = {
            _copy(one): one
            for one in positions
            if (start := one.target_next) is not None
            and ends.get(_copy(one), 0) > start + (0 if one.target_offset is None else _MARKER)
        }
        try:
            first = self._first(longer, ends, producers) if longer else {}
            mirrored = self._mirrored([longer[where] for where in first]) if first else set()
        except MirrorError as error:
            log.debug("copies_not_looked_at", link=self._link.name, reason=error.message)
            return ()
        return tuple(
            ForeignTail(
                topic=one.topic,
                partition=one.partition,
                target_topic=one.target_topic,
                start=offset,
                end=ends[where],
            )
            for where, offset in sorted(first.items())
            if (one := longer[where]).source not in mirrored
        )

    # -- inside ----------------------------------------------------------------------------------

    def _first(
        self,
        longer: Mapping[_Where, Position],
        ends: Mapping[_Where, int],
        producers: Callable[[], Collection[int]],
    ) -> dict[_Where, int]:
        """Returns the offset of the first committed record behind the last one of the link, of another producer."""
        facts = {where: (one.target_next or 0, ends[where]) for where, one in longer.items()}
        self._seen = {where: seen for where, seen in self._seen.items() if facts.get(where) == seen[0]}
        asked = {where: start for where, (start, _) in facts.items() if where not in self._seen}
        found = {
            where: batch for where, at in asked.items() if (batch := self._batch(where, at, ends[where]))
        }
        ours = producers() if found else ()
        for where in asked:
            offset, producer_id = found.get(where, (None, None))
            # one of ours is of a transaction that was committed since the position was read
            if offset is None or producer_id not in ours:
                self._seen[where] = facts[where], offset
        return {where: offset for where, (_, offset) in self._seen.items() if offset is not None}

    def _batch(self, where: _Where, at: int, end: int) -> tuple[int, int] | None:
        """Returns offset and producer of the first committed record from an offset on; None for none."""
        target = self._sessions.target
        if self._client is None:
            self._client = extension_client(target.cluster, target.client_id)
        while at < end:
            try:
                batches, until = self._client.committed(where, (at, min(end, at + _OFFSETS)), _TAIL_SECONDS)
            except AuthorizationError as error:
                right = Right("Read", "topic", where[0])
                raise named(error, account_of(target.cluster), rights=[right]) from None
            if batches:
                return max(at, batches[0][0]), batches[0][4]
            if until <= at:
                break
            at = until
        return None

    def _mirrored(self, positions: Iterable[Position]) -> set[SourcePartition]:
        """Returns the partitions whose copies a link in the other direction mirrors, or will when it runs again."""
        if not self._link.guard:
            return set()
        items = [
            AssignedPartition(one.source, one.topic_id, one.target_topic, one.target_topic_id)
            for one in positions
        ]
        cluster_id = self._sessions.target.admin.describe_cluster().cluster_id
        met = meetings(items, self._others.written(), target_cluster_id=cluster_id)
        return {source for source, links in met.items() if any(each.cut is None for each in links)}
