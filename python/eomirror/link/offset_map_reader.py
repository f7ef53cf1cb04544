"""
Reads from a link's offset map the chunks of a few partitions, without reading all of it.

All chunks of a source partition are in one partition of the map topic, and a later one overrules an earlier one.  So
the log is read backwards, in windows that grow: the newest chunks suffice for recent offsets
(`PartitionMap.part_to_target`), and only a question about the distant past, or about a hole between two chunks,
reads to the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from eomirror._native import PartitionMap, decode_offset_map
from eomirror.clock import Deadline
from eomirror.errors import ClusterError, StateError
from eomirror.kafka.compacted_topic import CompactedTopicReader, LogRecord
from eomirror.kafka.topic_follower import News, TopicFollower
from eomirror.link.valid_positions import PositionSelection
from eomirror.records.mm2 import decode_checkpoint
from eomirror.records.names import LinkNames
from eomirror.records.offset_map import chunk_prefix, offset_map_partition, prefix_of_chunk

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.mm2 import Checkpoint
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["OffsetMapReader", "Question", "chunk_of", "take_chunk"]

log = structlog.get_logger(__name__)

_FIRST_WINDOW = 20_000
_GROWTH = 4
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Question:
    """
    An offset to translate.

    Attributes:
        position: Position of the source partition.  For an answer beyond the last record, it must have been read before
            the question is made.
        offset: Offset on the source, or on the target in reverse.
        stable_end: In reverse: the target partition's last stable offset, read before the question is made.
    """

    position: Position
    offset: int
    stable_end: int = 0


class OffsetMapReader:
    """
    Translates offsets to the other side of a link, from the target alone.

    Args:
        first_window: Records of the map topic to read first.
        keeps: True to keep what was read of positions and checkpoints: the next call then reads only what is new.
    """

    def __init__(
        self, link: Link, target: ClusterSession, *, first_window: int = _FIRST_WINDOW, keeps: bool = False
    ) -> None:
        self._names = LinkNames(link.state_name)
        self._topic = self._names.offset_map_topic
        self._checkpoints_topic = link.mm2_names.checkpoints(link.source)
        self._clock = target.clock
        self._first_window = first_window
        self._named: set[str] = set()
        self._admin = target.admin
        self._log = CompactedTopicReader(target)
        self._follower = TopicFollower(target, wait_for_open=True) if keeps else None
        self._positions = PositionSelection()
        self._checkpoints: dict[bytes | None, list[Checkpoint]] = {}

    def positions(self) -> Mapping[SourcePartition, Position]:
        """
        Returns the valid position of every source partition; empty if the link never ran.

        Raises:
            StateError: A position is not readable.
            ClusterError: The target cannot be read.
        """
        topic = self._names.positions_topic
        news = self._news(topic)
        found = PositionSelection() if news.restarted else self._positions
        try:
            for record in news.records:
                found.take(record)
            valid = found.valid()
        except StateError:
            # Compaction may remove the record: the next read begins at the log's start.
            self._forget(topic)
            raise
        if self._follower is not None:
            self._positions = found
        return valid

    def checkpoints(self) -> list[Checkpoint]:
        """
        Returns the newest committed checkpoint of each group and partition; empty without a checkpoint topic.

        Unreadable records are skipped and logged: other tools write there too.

        Raises:
            ClusterError: The target cannot be read.
        """
        return [each[-1] for each in self.checkpoint_log()]

    def placed(self) -> dict[tuple[str, str, int], frozenset[int]]:
        """
        Returns the offsets that the link may have committed on the target, by group, target topic and partition.

        These are the offsets of all checkpoints in the log, not only of the newest: the newest may be committed to the
        group a moment later, or after a restart.  Compaction removes earlier ones.

        Raises:
            ClusterError: The target cannot be read.
        """
        return {
            (last.group, last.topic, last.partition): frozenset(one.downstream for one in each)
            for each in self.checkpoint_log()
            for last in each[-1:]
        }

    def checkpoint_log(self) -> list[list[Checkpoint]]:
        """
        Returns the checkpoints of each group and partition since the last tombstone, oldest first; none is empty.

        Raises:
            ClusterError: The target cannot be read.
        """
        news = self._news(self._checkpoints_topic)
        found = {} if news.restarted else self._checkpoints
        for record in news.records:
            if record.value is None:
                # Deleted, and not compacted away yet.
                found.pop(record.key, None)
                continue
            try:
                one = decode_checkpoint(record.key, record.value, where=record.where)
            except StateError as error:
                log.warning("checkpoint_not_readable", reason=error.message)
            else:
                found.setdefault(record.key, []).append(one)
        if self._follower is not None:
            self._checkpoints = found
        # A group without a name cannot be queried (`eomirror.kafka.consumer_groups`).
        return [each for each in found.values() if each[-1].group]

    def stable_ends(self, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """
        Returns last stable offsets of target partitions.

        Raises:
            TopicError: A partition does not exist.
            ClusterError: The target cannot be read.
        """
        return self._admin.offsets(partitions, at="latest", read_committed=True) if partitions else {}

    def with_leader(self, partitions: Iterable[tuple[str, int]]) -> set[tuple[str, int]]:
        """
        Returns the target partitions that have a leader: a request for another one would wait for an election.

        Raises:
            ClusterError: The target cannot be asked.
        """
        asked = set(partitions)
        facts, _ = self._admin.visible_topics(sorted({topic for topic, _ in asked})) if asked else ({}, {})
        return {
            (topic, number)
            for topic, number in asked
            if (known := facts.get(topic)) is not None
            and number < known.partitions
            and number not in known.leaderless
        }

    def log_starts(self, partitions: Sequence[tuple[str, int]]) -> Mapping[tuple[str, int], int]:
        """
        Returns log start offsets of target partitions.

        Raises:
            TopicError: A partition does not exist.
            ClusterError: The target cannot be read.
        """
        return self._admin.offsets(partitions, at="earliest", read_committed=True) if partitions else {}

    def answers(self, questions: Sequence[Question], *, reverse: bool = False) -> list[tuple[str, int]]:
        """
        Returns kind and offset of each answer, as `PartitionMap` gives them.

        Args:
            questions: Many about one partition cost little more than one.
            reverse: Offsets are on the target, answers on the source.

        Raises:
            StateError: A chunk is not readable.
            ClusterError: The target cannot be read.
        """
        parts = self._parts({question.position.source for question in questions})
        if parts is None:
            raise ClusterError(
                f"topic {self._topic} does not exist on the target",
                fix="run `eomirror plan CONFIG` to see what is missing",
            )
        found: list[tuple[str, int] | None] = [
            _without_map(question, reverse=reverse) for question in questions
        ]
        by_part: dict[int, list[tuple[int, Question]]] = {}
        for index, question in enumerate(questions):
            if found[index] is None:
                by_part.setdefault(parts[question.position.source], []).append((index, question))
        for part, span in self._spans(by_part).items():
            self._answer_part(part, span, by_part[part], found, reverse=reverse)
        return [answer for answer in found if answer is not None]

    def maps(self, positions: Collection[Position]) -> dict[SourcePartition, PartitionMap]:
        """
        Returns all that is known of each partition; reads the map to its beginning.

        Raises:
            StateError: A chunk is not readable.
            ClusterError: The target cannot be read.
        """
        parts = self._parts([position.source for position in positions]) or {}
        found = {position.source: PartitionMap() for position in positions}
        by_part: dict[int, list[Position]] = {}
        for position in positions if parts else ():
            by_part.setdefault(parts[position.source], []).append(position)
        for part, span in self._spans(by_part, read_committed=True).items():
            wanted = {_prefix(position) for position in by_part[part]}
            chunks: list[LogRecord] = []
            for window, _ in self._backwards(part, span):
                chunks[:0] = [one for one in window if prefix_of_chunk(one.key) in wanted]
            found |= _maps(chunks, by_part[part])
        return found

    def oldest(self, sources: Iterable[SourcePartition], most: int) -> dict[int, list[LogRecord]]:
        """
        Returns the first committed records of the map, by partition of its topic.

        Args:
            sources: Only partitions that hold chunks of these source partitions.
            most: Offsets to read of each.

        Raises:
            ClusterError: The target cannot be read.
        """
        spans = self._spans(set((self._parts(sources) or {}).values()), read_committed=True)
        deadline = Deadline(_SECONDS, self._clock)
        return {
            part: self._log.range(self._topic, part, low, min(low + most, end), deadline=deadline)
            for part, (low, end) in spans.items()
            if low < end
        }

    def ahead(self, positions: Collection[Position]) -> set[SourcePartition]:
        """
        Returns the source partitions for which the map has committed records beyond their positions.

        Chunks of an earlier copy, or from before a user moved back (``--resume-at``), do not count: they precede the
        chunk that names the last record of the position.

        Args:
            positions: Each with a ``target_offset``.

        Raises:
            StateError: A chunk is not readable.
            ClusterError: The target cannot be read.
        """
        parts = self._parts([position.source for position in positions]) or {}
        by_part: dict[int, list[Position]] = {}
        for position in positions if parts else ():
            by_part.setdefault(parts[position.source], []).append(position)
        found: set[SourcePartition] = set()
        for part, span in self._spans(by_part).items():
            waiting = {_prefix(position): position for position in by_part[part]}
            beyond: set[SourcePartition] = set()
            for window, _ in self._backwards(part, span):
                for record in reversed(window):
                    prefix = prefix_of_chunk(record.key)
                    one = waiting.get(prefix)
                    if one is None or record.value is None:
                        continue
                    covers, further = _compared(record, one)
                    if further:
                        beyond.add(one.source)
                    if covers:
                        del waiting[prefix]
                        found |= beyond & {one.source}
                if not waiting:
                    break
        return found

    def _news(self, topic: str) -> News:
        """Returns the records of a topic that this reader has not kept; none if the topic does not exist."""
        if self._follower is None:
            return News(restarted=True, records=self._log.records(topic))
        return self._follower.read(topic, seconds=_SECONDS, missing=True)

    def _forget(self, topic: str) -> None:
        if self._follower is not None:
            self._follower.forget(topic)

    def _parts(self, sources: Iterable[SourcePartition]) -> dict[SourcePartition, int] | None:
        """Returns the partition of the map topic for each source partition; None if the topic does not exist."""
        facts = self._admin.describe_topics([self._topic])[self._topic]
        if facts is None:
            return None
        return {source: offset_map_partition(source, facts.partitions) for source in sources}

    def _spans(self, parts: Collection[int], *, read_committed: bool = False) -> dict[int, tuple[int, int]]:
        """Returns log start and end of partitions of the map topic, and connects."""
        names = [(self._topic, part) for part in sorted(parts)]
        if not names:
            return {}
        starts = self._admin.offsets(names, at="earliest", read_committed=False)
        ends = self._admin.offsets(names, at="latest", read_committed=read_committed)
        self._log.connect(self._topic)
        return {name[1]: (starts[name], ends[name]) for name in names}

    def _backwards(self, part: int, span: tuple[int, int]) -> Iterator[tuple[list[LogRecord], bool]]:
        """Yields the windows of one partition of the map topic, newest first; True with the one at the log's start."""
        deadline = Deadline(_SECONDS, self._clock)
        size = self._first_window
        start, low = span
        whole = False
        while not whole:
            high, low = low, max(start, low - size)
            size *= _GROWTH
            whole = low <= start
            yield (
                (self._log.range(self._topic, part, low, high, deadline=deadline) if low < high else []),
                whole,
            )

    def _answer_part(
        self,
        part: int,
        span: tuple[int, int],
        questions: Sequence[tuple[int, Question]],
        found: list[tuple[str, int] | None],
        *,
        reverse: bool,
    ) -> None:
        """Reads backwards until every question about one partition of the map topic is answered."""
        chunks: list[LogRecord] = []
        wanted = {_prefix(position) for position in _positions(questions)}
        waiting = list(questions)
        for window, whole in self._backwards(part, span):
            self._name_foreign(window)
            chunks[:0] = [
                record
                for record in window
                if record.value is not None and prefix_of_chunk(record.key) in wanted
            ]
            maps = _maps(chunks, _positions(waiting))
            left = []
            for index, question in waiting:
                answer = _answer(maps[question.position.source], question, reverse=reverse, whole=whole)
                if answer is None:
                    left.append((index, question))
                else:
                    found[index] = answer
            waiting = left
            if not waiting:
                return

    def _name_foreign(self, records: Sequence[LogRecord]) -> None:
        """Logs each record once that is no chunk of any partition, because another program wrote it."""
        for record in records:
            if not prefix_of_chunk(record.key) and record.where not in self._named:
                self._named.add(record.where)
                log.warning(
                    "record_passed_over",
                    reason=f"{record.where}: its key is not an offset map key: {record.key!r:.120}",
                )


def chunk_of(record: LogRecord) -> tuple[str, int, list[tuple[int, int, int]]]:
    """
    Returns target topic, partition and ranges of a map record that has a value.

    Raises:
        StateError: The value is not readable, or has an unknown version; names the record.
    """
    try:
        return decode_offset_map(record.value or b"")
    except StateError as error:
        raise StateError(f"{record.where}: {error.message}", fix=error.fix) from error


def take_chunk(found: PartitionMap, record: LogRecord, position: Position) -> None:
    """
    Adds a map record that has a value to what is known of its partition.

    Args:
        found: Known ranges; a chunk of another target partition than the position's is ignored.
        record: A record later than all that were added before.
        position: Position of the source partition.

    Raises:
        StateError: As for `chunk_of`.
    """
    try:
        found.take_in(record.value or b"", position.target_topic, position.target_partition)
    except StateError as error:
        raise StateError(f"{record.where}: {error.message}", fix=error.fix) from error


def _without_map(question: Question, *, reverse: bool) -> tuple[str, int] | None:
    """
    Returns the answer that the position alone gives; None if the map has to be read.

    No look-up is needed at the mirror's own position: a group that has read everything is there.  A position without a
    target record was adopted, and the map's chunks are about the copy before, which may have been deleted since.  A
    group that was set to an offset of that copy would skip records.
    """
    position = question.position
    if question.offset > position.offset and not reverse:
        return "beyond", position.offset
    if position.target_offset is None:
        return "nothing", -1
    if question.offset == position.offset and not reverse:
        return "next", position.target_offset + 1
    return None


def _positions(questions: Sequence[tuple[int, Question]]) -> list[Position]:
    """Returns each position once: very many groups may ask about the same few partitions."""
    return list({question.position.source: question.position for _, question in questions}.values())


def _prefix(position: Position) -> bytes:
    return chunk_prefix(position.source, position.topic_id)


def _maps(records: Sequence[LogRecord], positions: Sequence[Position]) -> dict[SourcePartition, PartitionMap]:
    maps = {position.source: PartitionMap() for position in positions}
    by_prefix = {_prefix(position): position for position in positions}
    for record in records:
        position = by_prefix.get(prefix_of_chunk(record.key))
        if position is None or record.value is None:
            continue
        take_chunk(maps[position.source], record, position)
    return maps


def _compared(record: LogRecord, position: Position) -> tuple[bool, bool]:
    """Returns two flags: the chunk names the last record of the position; the chunk names later ones."""
    topic, number, ranges = chunk_of(record)
    last = position.target_offset
    if (topic, number) != (position.target_topic, position.target_partition) or last is None or not ranges:
        return False, False
    covers = any(target <= last < target + count for _, target, count in ranges)
    source, target, count = ranges[-1]
    return covers, target + count - 1 > last and source + count - 1 >= position.offset


def _answer(map_: PartitionMap, question: Question, *, reverse: bool, whole: bool) -> tuple[str, int] | None:
    if not whole:
        return map_.part_to_source(question.offset) if reverse else map_.part_to_target(question.offset)
    if reverse:
        return map_.to_source(question.offset, question.stable_end)
    return map_.to_target(question.offset, question.position.offset)
