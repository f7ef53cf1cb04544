"""
Queries both links of a bidirectional pair of equal names and combines their answers.

Both links bring the other side's records into the same partition, and each keeps only the order of its own.  So a
consumer that has read one side up to an offset has read a prefix of each origin's records, and on the other side the
two prefixes end at different offsets.  `Bound` is one link's answer; `settle` takes the first record that
was not read, so that none is skipped, and counts the later ones that were read::

    east, read to here: | e1 w1 e2 | w2 e3          e: written on east, w: written on west
    west:                 w1 w2 e1 e2 e3            resumes at w2; e1 and e2 are read again

Answers of both offset maps go in, an offset comes out.

`handed_over` finds offsets on the target from which a group left for the source, by the checkpoints of the link back.
A link keeps the offsets of groups on its target (`sync_group_offsets`).  One that it did not write was reached by
consumers there, and is left alone.  After a failover and the way back, consumers have read on both sides in turn::

    promoted:     the group reads the copies to 500
    way back:     the link back moves it to the source, and writes a checkpoint there
    mirror again: the group reads on from there; 500 is the offset with which it left, and moves

The same holds for the link back, whose target is where the group stood before the failover.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import MirrorError, TopicError
from eomirror.kafka.record_digests import RecordDigestReader
from eomirror.link.offset_map_reader import OffsetMapReader, Question

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.groups.translation import Name, Translation
    from eomirror.kafka.session import ClusterSession, LinkSessions
    from eomirror.records.position import Position

__all__ = [
    "BidirectionalPair",
    "Bound",
    "bound_of_copies",
    "bound_of_originals",
    "handed_over",
    "link_wrote",
    "opposite_link",
    "settle",
]


@dataclass(frozen=True, slots=True)
class Bound:
    """
    Progress of a consumer through the records of one origin, in offsets of the side that it moves to.

    Attributes:
        unread: No unread record of this origin is before this offset.
        read: Every read record of this origin is before this offset.
        exact: True if the record at ``unread`` is the very next record of the consumer.
    """

    unread: int
    read: int
    exact: bool = False


@dataclass(frozen=True, slots=True)
class Settled:
    """
    Resume offset of a consumer.

    Attributes:
        offset: No unread record is before this offset.
        again: Number of records at or after it that were read; an upper bound if not all were inspected.
        exact: True if the record there is the very next record of the consumer.
    """

    offset: int
    again: int
    exact: bool


def bound_of_copies(
    answer: tuple[str, int], first: int | None, position: Position, stable_end: int
) -> Bound | None:
    """
    Returns the bound from the link that copies records from the side that was read.

    Args:
        answer: Answer of the link's map for the consumer's offset.
        first: For an answer ``before``: offset of the first record that the map knows.
        position: Position of the link.
        stable_end: Last stable offset of the side that the consumer moves to, read before the position, so that later
            copies are behind it.

    Returns:
        None if the link has not mirrored that far.
    """
    # Behind the link's last record: all following copies will be behind the end.
    last = position.target_offset is not None and answer[1] == position.target_offset + 1
    return _bound(answer, first, stable_end, last=last)


def bound_of_originals(
    answer: tuple[str, int], first: int | None, position: Position | None, offset: int
) -> Bound | None:
    """
    Returns the bound from the opposite link, which copies records from the side that the consumer moves to.

    Args:
        answer: Answer of the opposite link's map in reverse, for the consumer's offset.
        first: As for `bound_of_copies`.
        position: Position of the opposite link, read before its map; None if it has no position of the partition.
        offset: Offset of the consumer.

    Returns:
        None if the offset is beyond the last stable offset.
    """
    if position is None:
        return Bound(0, 0)
    # Behind the last copy: records that the link has skipped since are not of that side.
    last = position.target_offset is None or offset > position.target_offset
    return _bound(answer, first, position.offset, last=last)


def _bound(answer: tuple[str, int], first: int | None, end: int, *, last: bool) -> Bound | None:
    kind, at = answer
    if kind == "nothing":
        return Bound(end, 0)
    if kind == "before":
        return None if first is None else Bound(first, 0)
    if kind == "exact":
        return Bound(at, at, exact=True)
    return Bound(max(at, end) if last else at, at) if kind == "next" else None


def settle(copies: Bound, originals: Bound, records: Sequence[tuple[int, bool]], *, whole: bool) -> Settled:
    """
    Returns the first record that was not read.

    Args:
        copies: Bound of the records that were written on the side that was read.
        originals: Bound of the records that were written on the side that the consumer moves to.
        records: Offset of every record between ``unread`` and ``read`` of both, ascending, and True for a copy.
        whole: True if these are all of them; else only the first ones.
    """
    low, high = min(copies.unread, originals.unread), max(copies.read, originals.read)
    if low >= high:
        return Settled(
            low, 0, (copies.exact and low == copies.read) or (originals.exact and low == originals.read)
        )
    start: int | None = None
    again = 0
    for offset, is_copy in records:
        read = offset < (copies.read if is_copy else originals.read)
        if start is None:
            start = None if read else offset
        else:
            again += read
    looked_to = records[-1][0] + 1 if records and not whole else high if whole else low
    if start is None:
        start = looked_to
    return Settled(start, again + high - looked_to, exact=False)


# Records to inspect between the two answers of one partition; beyond that the count is an upper bound.
_MOST_RECORDS = 20_000


def opposite_link(config: Config, link: Link) -> Link | None:
    """Returns the link that brings records of the same names back; None if there is none."""
    for other in config.links:
        # A link within one cluster brings nothing back: its names never return.
        back = (other.source, other.target) == (link.target, link.source) and link.source != link.target
        if back and link.guard and other.guard:
            return other
    return None


class BidirectionalPair:
    """
    Two links between the same clusters, of which each writes the topics that the other reads.

    Args:
        link: The link that is translated.
        opposite: The other link.
        sessions: Connections to the clusters of ``link``.
        reverse: True to translate from the link's target to its source.
    """

    def __init__(
        self, config: Config, link: Link, opposite: Link, sessions: LinkSessions, *, reverse: bool
    ) -> None:
        there, self._back = (opposite, link) if reverse else (link, opposite)
        here, away = reversed(sessions) if reverse else sessions
        self._copies = OffsetMapReader(there, away)
        self._originals = OffsetMapReader(self._back, here)
        self._log = RecordDigestReader(away)
        self._others = [
            each
            for each in config.links
            if each.guard
            and each.target in {link.source, link.target}
            and each.source not in {link.source, link.target}
        ]

    def settle(self, asked: Sequence[Translation]) -> list[Translation]:
        """
        Returns the resume offsets of consumers.

        Args:
            asked: Answers of the link alone; their offsets are those of the side that the consumers come from.

        Raises:
            StateError: A record in the links' topics is not readable.
            ClusterError: A cluster cannot be asked.
        """
        shared = [each for each in asked if self._meets(each)]
        if not shared:
            return list(asked)
        # First ends, then positions, then maps: a record that arrives in between is behind the end.
        ends = self._copies.stable_ends(sorted({_there(each) for each in shared}))
        positions = {(each.topic, each.partition): each for each in self._copies.positions().values()}
        back = {
            (each.target_topic, each.target_partition): each for each in self._originals.positions().values()
        }
        here_ends = self._originals.stable_ends(sorted({_here(each) for each in shared}))
        known = [each for each in shared if _here(each) in positions]
        copies = {
            id(each): bound_of_copies(answer, first, positions[_here(each)], ends[_there(each)])
            for each, answer, first in self._answers(self._copies, known, positions, {}, reverse=False)
        }
        known = [each for each in shared if _here(each) in back]
        originals = {
            id(each): bound_of_originals(answer, first, back[_here(each)], each.offset)
            for each, answer, first in self._answers(self._originals, known, back, here_ends, reverse=True)
        }
        unseen = bound_of_originals(("nothing", -1), None, None, 0)
        found = {
            id(each): self._settled(
                each, positions, ends, copies.get(id(each)), originals.get(id(each), unseen)
            )
            for each in shared
        }
        return [found.get(id(each), each) for each in asked]

    def _meets(self, each: Translation) -> bool:
        """Returns True if the opposite link brings the records back under the same name."""
        back = self._back
        return back.mirrors(each.to_topic) and back.target_naming.target_topic(each.to_topic) == each.topic

    @staticmethod
    def _answers(
        reader: OffsetMapReader,
        asked: Sequence[Translation],
        positions: Mapping[Name, Position],
        ends: Mapping[Name, int],
        *,
        reverse: bool,
    ) -> Iterator[tuple[Translation, tuple[str, int], int | None]]:
        """Yields answers of a map, each with the first known record's offset if it is before that."""
        questions = [
            Question(positions[_here(each)], each.offset, ends.get(_here(each), 0)) for each in asked
        ]
        answers = reader.answers(questions, reverse=reverse) if questions else []
        early = [index for index, (kind, _) in enumerate(answers) if kind == "before"]
        first_records = [replace(questions[index], offset=answers[index][1]) for index in early]
        again = reader.answers(first_records, reverse=reverse) if early else []
        firsts = {index: at for index, (kind, at) in zip(early, again, strict=True) if kind == "exact"}
        for index, (each, answer) in enumerate(zip(asked, answers, strict=True)):
            yield each, answer, firsts.get(index)

    def _settled(
        self,
        each: Translation,
        positions: Mapping[Name, Position],
        ends: Mapping[Name, int],
        copies: Bound | None,
        originals: Bound | None,
    ) -> Translation:
        if self._others:
            others = ", ".join(sorted({other.source for other in self._others}))
            reason = f"records of {others} arrive under the same name: no known offset skips no record"
            return replace(each, to_offset=None, kind="unknown", reason=reason)
        if copies is None or originals is None:
            # `each` holds the reason, unless only the opposite link does not know the offset.
            reason = each.reason or f"link {self._back.name} does not know the records before {each.offset}"
            return replace(each, to_offset=None, kind="unknown", reason=reason)
        found = self._looked(each, positions[_here(each)], ends, copies, originals)
        kind = "earlier" if found.again else "exact" if found.exact else "next"
        return replace(each, to_offset=found.offset, kind=kind, reason="", again=found.again)

    def _looked(
        self,
        each: Translation,
        position: Position,
        ends: Mapping[Name, int],
        copies: Bound,
        originals: Bound,
    ) -> Settled:
        """Inspects the records between both answers, if they differ."""
        where = _there(each)
        low, high = min(copies.unread, originals.unread), max(copies.read, originals.read)
        if low >= high:
            return settle(copies, originals, [], whole=True)
        low = max(low, self._copies.log_starts([where])[where])
        logged = self._log.read(*where, low, high, most=_MOST_RECORDS, timestamps=False)
        offsets = [record.offset for record in logged]
        answers = self._copies.answers(
            [Question(position, offset, ends[where]) for offset in offsets], reverse=True
        ) if offsets else []  # fmt: skip
        records = [(offset, kind == "exact") for offset, (kind, _) in zip(offsets, answers, strict=True)]
        return settle(copies, originals, records, whole=len(records) < _MOST_RECORDS)


def _here(each: Translation) -> Name:
    return each.topic, each.partition


def _there(each: Translation) -> Name:
    return each.to_topic, each.to_partition


log = structlog.get_logger(__name__)


def handed_over(link: Link, source: ClusterSession) -> frozenset[tuple[str, str, int]]:
    """
    Returns group, target topic and partition of every offset that the link back has translated.

    It is empty if the link back never ran, or if its checkpoints cannot be read.
    """
    back = OffsetMapReader(replace(link, source=link.target, target=link.source), source)
    found = set()
    try:
        for one in back.checkpoints():
            try:
                found.add((one.group, link.target_topic(one.topic), one.partition))
            except TopicError:
                # The topic has no legal name on the target, so that the link does not mirror it.
                continue
    except MirrorError as error:
        log.info("way_back_unknown", link=link.name, reason=error.message)
    return frozenset(found)


def link_wrote(has: int, downstream: Collection[int], start: int | None) -> bool:
    """
    Returns True for an offset that the link may have written.

    A checkpoint before the log start of its copy is committed as the log start, which only moves forward.

    Args:
        has: Offset of the group on the target.
        downstream: Target offsets of its checkpoints.
        start: Log start of the copy; None if it is unknown.
    """
    return has in downstream or (start is not None and has <= start and any(one <= has for one in downstream))
