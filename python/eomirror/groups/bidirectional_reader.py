"""
Queries both links of a bidirectional pair of equal names and combines their answers.

`eomirror.groups.bidirectional` decides.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.groups.bidirectional import Bound, Settled, bound_of_copies, bound_of_originals, settle
from eomirror.kafka.record_digests import RecordDigestReader
from eomirror.link.offset_map_reader import OffsetMapReader, Question

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.groups.translation import Name, Translation
    from eomirror.kafka.session import LinkSessions
    from eomirror.records.position import Position

__all__ = ["BidirectionalPair", "opposite_link"]

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
