"""
Translates offsets to the other side of a link, in one pipeline of ordered reads.

Mirror, producers and retention go on while it reads.  Each step is valid only behind the one before it, and in another
order a consumer would skip records:

1. *Committed offsets* of groups, before everything else.  A position that is read later is at or beyond a group that
   has read everything, unless the mirror really is behind.
2. *Positions*, which name the partitions, topic ids and ends that the map is valid for.  Without a position, a
   partition is reported: a consumer that assigns the listed partitions would never read one that was left out.
3. *Recreated topics*, by the topic ids of the positions.  The map's offsets belong to the old topic; the new one has
   the same numbers, so that its offsets must not reach the map at all.
4. *Offset map*.  From target to source, last stable ends of the copies are read first: an offset behind the last
   record has an answer only if the end is older than the map.  A partition without mirrored records is in no map: its
   two ends are each other's translation, if the position is read again behind the end of the copy
   (`eomirror.groups.corrections`).
5. *Both sides*, if the opposite link writes the same names: one map knows nothing of records that were written on the
   other side, and a group would skip them.  This reads ends, positions and maps of both links again, in that order
   (`eomirror.groups.bidirectional_reader`).
6. *Log start*: retention only moves it forward, and an older one would send a consumer out of range.
7. *Records of other links* in the copy, behind all offsets that were translated: a later one is behind them.  An offset
   that would pass them is unknown (`eomirror.groups.offset_rule`).

Every offset that is unknown after this has its reason.  A plain offset asks for one record, and not for an offset to
resume at: it takes steps 2 to 4.  Without the source, checkpoints replace steps 1 and 4
(`eomirror.groups.offset_translator`).

A checkpoint holds both offsets of a group exactly, and was committed behind the records that it refers to.  Offsets
that a group committed after the last look at the source, or of records that were never mirrored, are in no checkpoint:
such a group resumes a little earlier, and skips no record.

The return sets the position of each partition by a command, so that the position names no record of the copy until the
link mirrors the next one.  What the link mirrored before the promotion is still in both logs and in its offset map::

    source    0 ---- mirrored ---- position of the cut ---- written by the link back, or orphans ---- position
    copy      0 ---- mirrored ---- end of the cut --------- written by applications ----------------- end

Below the cut the map is valid, as it was at the cut.  Behind the cut the link back knows.
"""

from __future__ import annotations

from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.errors import MirrorError, TopicError, UnreachableError
from eomirror.groups.bidirectional_reader import BidirectionalPair, opposite_link
from eomirror.groups.corrections import from_end_to_end, from_log_start, replaced
from eomirror.groups.offset_rule import past_others
from eomirror.groups.shared_copies import copies_of, may_be_shared, other_records
from eomirror.groups.translation import Asked, Translation, translated, unknown_reason, unreadable
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.kafka.session import link_sessions
from eomirror.link.offset_map_reader import OffsetMapReader, Question
from eomirror.link.state import LinkState
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.groups.translation import Name
    from eomirror.kafka.session import ClusterSession
    from eomirror.records.mm2 import Checkpoint
    from eomirror.records.position import Position
    from eomirror.records.promotion import Cut, PromotionHistory

__all__ = ["NO_OFFSET", "OffsetTranslator", "at_cut", "before_back_link", "behind_cut", "from_checkpoints"]


def at_cut(position: Position, offset: int, history: PromotionHistory, *, reverse: bool) -> Position | None:
    """
    Returns the position as it was at the cut from which the link has returned, for an offset below it; else None.

    Args:
        position: Position of the partition today.
        offset: Offset on the source, or on the copy in ``reverse``.
        history: Promotions of the link.
    """
    cut = _cut(position, history)
    if cut is None or not cut.proven or offset >= (cut.target_end if reverse else cut.position):
        return None
    if (cut.topic_id, cut.target_topic_id) != (position.topic_id, position.target_topic_id):
        return None
    return replace(position, offset=cut.position, target_offset=cut.target_end - 1)


def behind_cut(asked: Asked, position: Position, history: PromotionHistory, *, reverse: bool) -> str:
    """Returns why a link that has returned does not know an offset, and the command of the link that does."""
    cut = _cut(position, history)
    if cut is None:
        return ""
    at = cut.target_end if reverse else cut.position
    back = history.resumptions[max(history.promotions)].link
    where = "behind" if asked.offset >= at else "before"
    if where == "before":
        return (
            f"it is before the cut of promotion {max(history.promotions)}, which is at {at}; a topic was recreated, or "
            "the copy was not whole there, so that the offset map of that time is not valid"
        )
    return (
        f"it is behind the cut of promotion {max(history.promotions)}, which is at {at}, and the link has mirrored "
        f"nothing since its return; ask the link back: {_command(asked, back, reverse=not reverse)}"
    )


def before_back_link(asked: Asked, link: str, *, reverse: bool) -> str:
    """
    Returns the command that translates what stands before the beginning of a link, as copies do before a way back.

    Args:
        link: The link in the other direction.
        reverse: Direction of the question to the link back.
    """
    return f"if it is a copy of the link in the other direction, ask that: {_command(asked, link, reverse=not reverse)}"


def _cut(position: Position, history: PromotionHistory) -> Cut | None:
    """Returns the cut of a position that a return has set and that names no record yet."""
    last = history.last
    if position.target_offset is not None or last is None or last.number not in history.resumptions:
        return None
    return next((cut for cut in last.cuts if cut.source == position.source), None)


def _command(asked: Asked, link: str, *, reverse: bool) -> str:
    what = (
        f"--group {quote(asked.group)}"
        if asked.group
        else f"--topic {quote(asked.name[0])} --partition {asked.name[1]} --offset {asked.offset}"
    )
    return f"`eomirror offsets translate CONFIG --link {quote(link)} {what}{' --reverse' if reverse else ''}`"


#: Source offset of a group that has no checkpoint of a partition.
NO_OFFSET = -1

_NONE = (
    "the group has no checkpoint of this partition: it has read nothing of what was mirrored, or the source was gone "
    "before it was seen; begin at `earliest`"
)


def from_checkpoints(
    link: str, checkpoints: Iterable[Checkpoint], positions: Iterable[Position]
) -> list[Translation]:
    """
    Returns the offsets of groups on the target.

    Args:
        checkpoints: The newest of each group and partition; those of other links' topics are ignored.
        positions: Positions of the link.

    Returns:
        One per group and partition of the topics in which it has a checkpoint, sorted where a copy has one source.
    """
    copies: dict[str, list[Position]] = {}
    for position in sorted(positions, key=lambda one: one.source):
        copies.setdefault(position.target_topic, []).append(position)
    place = {topic: index for index, topic in enumerate(copies)}
    groups: dict[str, dict[str, dict[int, Checkpoint]]] = {}
    for one in checkpoints:
        if one.topic in place:
            groups.setdefault(one.group, {}).setdefault(one.topic, {})[one.partition] = one
    return [
        _of_checkpoint(link, group, position, topics[topic].get(position.target_partition))
        for group, topics in sorted(groups.items())
        for topic in sorted(topics, key=place.__getitem__)
        for position in copies[topic]
    ]


def _of_checkpoint(link: str, group: str, position: Position, one: Checkpoint | None) -> Translation:
    offset, at, kind, reason, metadata = NO_OFFSET, None, "unknown", _NONE, ""
    if one is not None:
        offset, at, kind, reason, metadata = one.upstream, one.downstream, "exact", "", one.metadata
    elif position.target_offset is None:
        # The copy has no record yet, so none can be skipped.
        at, kind, reason = 0, "next", ""
    return Translation(
        link=link,
        group=group,
        topic=position.topic,
        partition=position.partition,
        offset=offset,
        to_topic=position.target_topic,
        to_partition=position.target_partition,
        to_offset=at,
        kind=kind,
        reason=reason,
        metadata=metadata,
    )


log = structlog.get_logger(__name__)

_NEVER_MIRRORED = "the link has no position of this partition: it was never mirrored"


class OffsetTranslator:
    """
    Translates offsets to the other side of one link for commands; keeps its connections.

    A lane translates the checkpoints of its own transactions: `eomirror.lane.checkpoints`.

    Args:
        reverse: From target to source.
        ask_source: False to translate from the target alone, without the steps that ask the source.
        reader: Reader of the link that keeps what it has read; by default one of its own.

    Attributes:
        reader: Positions, checkpoints and offset map of the link.
        groups: Groups on the side that they move from.
        sessions: Connections to both clusters.
    """

    def __init__(
        self,
        config: Config,
        link: Link,
        *,
        reverse: bool = False,
        ask_source: bool = True,
        reader: OffsetMapReader | None = None,
    ) -> None:
        source, target = config.clusters[link.source], config.clusters[link.target]
        self.sessions = link_sessions(link, source, target, "offsets")
        self._config = config
        self._link = link
        self._reverse = reverse
        self._target = self.sessions.target
        self._source = self.sessions.source if ask_source else None
        self.reader = reader or OffsetMapReader(link, self._target)
        self.groups = ClusterGroups(target if reverse else source, client_id=self._target.client_id)

    def close(self) -> None:
        """Closes all clients."""
        self.groups.close()
        self.sessions.close()

    def translate_groups(
        self,
        group: str | None,
        matches: Callable[[str], bool],
        *,
        source_unavailable: bool,
        away: Mapping[str, UnreachableError],
    ) -> tuple[list[Translation], bool]:
        """
        Returns the resume offsets of groups in partitions of the link.

        Args:
            group: Only this one; groups are not listed then, which is another right.
            matches: Returns True for wanted groups.
            source_unavailable: Use the groups' checkpoints on the target, as for a source that does not answer.
            away: Errors of sources that do not answer, by alias.

        Returns:
            One per group and partition; and True if they come from checkpoints.

        Raises:
            StateError: A record in the link's topics is not readable.
            UnreachableError: The source does not answer, and there are no checkpoints; or the target does not.
            ClusterError: A cluster cannot be asked.
        """
        error = None if source_unavailable or self._reverse else away.get(self._link.source)
        committed: tuple[list[Asked], list[Translation]] | None = None
        if not source_unavailable and error is None:
            try:
                committed = self._committed(group, matches)
            except UnreachableError as caught:
                if self._reverse:
                    raise
                error = caught
        if committed is None:
            return self._from_checkpoints(matches, error), True
        asked, refused = committed
        return self.translate_readers(asked) + refused, False

    def translate_readers(self, asked: Sequence[Asked]) -> list[Translation]:
        """
        Returns the resume offsets of readers, such as groups; those are left out that the link does not mirror.

        Raises:
            StateError: A record in the link's topics is not readable.
            ClusterError: A cluster cannot be asked.
        """
        positions = self._positions()
        found, unknown = self._mapped(asked, positions)
        found = self._both_sides(found)
        if not self._reverse:
            found = self._beside_others(from_log_start(found, self._target), positions.values())
            # Only the positions say which of the target's topics are the link's.
            unknown += self._never_mirrored(asked, positions)
        elif self._source is not None:
            found = from_log_start(found, self._source)
        return found + unknown

    def translate_records(self, asked: Sequence[Asked]) -> list[Translation]:
        """
        Returns the offsets of records; those are left out of whose partition the link has no position.

        Raises:
            StateError: A record in the link's topics is not readable.
            ClusterError: A cluster cannot be asked.
        """
        found, unknown = self._mapped(asked, self._positions())
        return found + unknown

    def _committed(
        self, group: str | None, matches: Callable[[str], bool]
    ) -> tuple[list[Asked], list[Translation]]:
        """Returns the committed offsets, and a row for each group whose offsets cannot be read."""
        names = self.groups.names(strict=True)[0] if group is None else [group]
        found = self.groups.committed([name for name in names if matches(name)])
        return [
            Asked(name, one.offset, each, one.metadata)
            for each, offsets in found.items()
            if not isinstance(offsets, str)
            for name, one in offsets.items()
        ], [
            unreadable(self._link.name, each, reason)
            for each, reason in found.items()
            if isinstance(reason, str)
        ]

    def _from_checkpoints(
        self, matches: Callable[[str], bool], error: UnreachableError | None
    ) -> list[Translation]:
        # A link with loop guard needs both sides: one side's checkpoints would skip the other's records.
        checkpoints = [] if self._link.guard else self.reader.checkpoints()
        wanted = set(filter(matches, {one.group for one in checkpoints}))
        checkpoints = [one for one in checkpoints if one.group in wanted]
        positions = self.reader.positions()
        found = from_checkpoints(self._link.name, checkpoints, positions.values())
        if error is not None and not found:
            raise UnreachableError(
                f"{error.message}; and there are no checkpoints of these groups on {self._link.target}",
                fix="start at the offsets of an `eomirror offsets export` file, or from `earliest`; "
                "or retry when the source is back",
            ) from error
        if error is not None:
            log.warning("offsets_from_checkpoints", link=self._link.name, reason=error.message)
        copies = {one.to_topic for one in found}
        reasons = self._replaced(
            [position for position in positions.values() if position.target_topic in copies], source=None
        )
        if reasons:
            found = [
                replace(one, to_offset=None, kind="unknown", reason=reasons[source])
                if (source := SourcePartition(one.topic, one.partition)) in reasons
                else one
                for one in found
            ]
        return self._beside_others(from_log_start(found, self._target), positions.values())

    def _positions(self) -> dict[Name, Position]:
        """Returns the link's positions by the partition on the side of the question (step 2)."""
        return {self._sides(each)[0]: each for each in self.reader.positions().values()}

    def _mapped(
        self, asked: Iterable[Asked], positions: Mapping[Name, Position]
    ) -> tuple[list[Translation], list[Translation]]:
        """Returns the map's answers, and unknown offsets for recreated topics; without a position none (steps 3, 4)."""
        asked = [each for each in asked if each.name in positions]
        reasons = self._replaced(
            [positions[name] for name in {each.name for each in asked}], source=self._source
        )
        void = {each: reasons.get(positions[each.name].source, "") for each in asked}
        return (
            self._answers([each for each in asked if not void[each]], positions),
            [
                translated(self._link.name, each, self._sides(positions[each.name])[1], reason=reason)
                for each, reason in void.items()
                if reason
            ],
        )

    def _replaced(
        self, positions: Collection[Position], *, source: ClusterSession | None
    ) -> Mapping[SourcePartition, str]:
        return replaced(positions, source=source, target=self._target)

    def _answers(self, asked: Sequence[Asked], positions: Mapping[Name, Position]) -> list[Translation]:
        if not asked:
            return []
        ends = self.reader.stable_ends(list({each.name for each in asked})) if self._reverse else {}
        questions = [Question(positions[each.name], each.offset, ends.get(each.name, 0)) for each in asked]
        answers = self.reader.answers(questions, reverse=self._reverse)
        answers = from_end_to_end(self.reader, questions, answers, reverse=self._reverse)
        history = self._history() if ("nothing", -1) in answers else None
        if history is not None:
            answers = self._before_return(questions, answers, history)
        found = []
        for each, (kind, at) in zip(asked, answers, strict=True):
            there = self._sides(positions[each.name])[1]
            if reason := unknown_reason(kind, at, reverse=self._reverse):
                if kind == "nothing" and history:
                    position = positions[each.name]
                    reason = behind_cut(each, position, history, reverse=self._reverse) or reason
                elif kind == "before" and (other := self._other_way(positions[each.name])):
                    reason += f"; {before_back_link(each, other, reverse=self._reverse)}"
                found.append(translated(self._link.name, each, there, reason=reason))
            else:
                found.append(translated(self._link.name, each, there, at, kind=kind))
        return found

    def _before_return(
        self, questions: Sequence[Question], answers: Sequence[tuple[str, int]], history: PromotionHistory
    ) -> list[tuple[str, int]]:
        """Returns the answers, with those that the map gives as of the cut from which the link has returned."""
        found = list(answers)
        again = {}
        for index, (question, (kind, _)) in enumerate(zip(questions, answers, strict=True)):
            before = at_cut(question.position, question.offset, history, reverse=self._reverse)
            if kind == "nothing" and before is not None and before.target_offset is not None:
                end = min(question.stable_end, before.target_offset + 1)
                again[index] = replace(question, position=before, stable_end=end)
        told = self.reader.answers(list(again.values()), reverse=self._reverse) if again else []
        for index, answer in zip(again, told, strict=True):
            found[index] = answer
        return found

    def _history(self) -> PromotionHistory | None:
        """Returns the promotions of the link; None for none, or if they are not known."""
        try:
            found = LinkState(self._link, self._target).control(wait_for_open=False).history
        except MirrorError as error:
            log.debug("promotions_unknown", link=self._link.name, reason=error.message)
            return None
        return found if found.promotions else None

    def _other_way(self, position: Position) -> str:
        """Returns the link that mirrors the copy of a partition in the other direction; empty for none."""
        for other in self._config.links:
            if (other.source, other.target) != (self._link.target, self._link.source):
                continue
            try:
                if (
                    other.mirrors(position.target_topic)
                    and other.target_topic(position.target_topic) == position.topic
                ):
                    return other.name
            except TopicError:
                continue
        return ""

    def _both_sides(self, found: list[Translation]) -> list[Translation]:
        opposite = opposite_link(self._config, self._link)
        if opposite is None or not found:
            return found
        pair = BidirectionalPair(self._config, self._link, opposite, self.sessions, reverse=self._reverse)
        return pair.settle(found)

    def _beside_others(self, found: list[Translation], positions: Iterable[Position]) -> list[Translation]:
        """Returns the translations with what other links wrote into the copies; unknown where they would pass it."""
        if not may_be_shared(self._link, self._config.links):
            return found
        wanted = {(each.to_topic, each.to_partition) for each in found}
        copies = {where: copy for where, copy in copies_of(positions).items() if where in wanted}
        others = other_records(self._link, self._target, copies, own=self._link.state_name)
        if not others:
            return found
        result = []
        for each in found:
            where = each.to_topic, each.to_partition
            reason = past_others(where, each.to_offset, others.get(where))
            unknown: dict[str, Any] = {"to_offset": None, "kind": "unknown", "reason": reason, "again": 0}
            result.append(replace(each, others=others.get(where), **(unknown if reason else {})))
        return result

    def _never_mirrored(
        self, asked: Iterable[Asked], positions: Mapping[Name, Position]
    ) -> list[Translation]:
        """Returns unknown offsets for partitions that the link should mirror, such as a new or a leaderless one."""
        return [
            translated(self._link.name, each, (self._target_topic(topic), partition), reason=_NEVER_MIRRORED)
            for each in asked
            for topic, partition in [each.name]
            if each.name not in positions and self._link.mirrors(topic)
        ]

    def _target_topic(self, topic: str) -> str:
        try:
            return self._link.target_topic(topic)
        except TopicError:
            # The topic has no legal name there, and the link leaves it out.
            return ""

    def _sides(self, position: Position) -> tuple[Name, Name]:
        """Returns a partition on the side of the question and on the other side."""
        source, target = position.source, (position.target_topic, position.target_partition)
        return (target, source) if self._reverse else (source, target)
