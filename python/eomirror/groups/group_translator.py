"""
`group_offsets`: offsets of consumer groups on both sides of a link, and their resume offsets after a failover.

A consumer that moves to the target needs two lines::

    for each in group_offsets(load_config("mirror.yaml"), group="billing"):
        consumer.seek(TopicPartition(each.to_topic, each.to_partition, each.to_offset))
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from eomirror.errors import UnreachableError, UsageError
from eomirror.groups.bidirectional_reader import BidirectionalPair, opposite_link
from eomirror.groups.empty_partition import from_end_to_end
from eomirror.groups.from_checkpoints import (
    FindUnreachable,
    checkpointed,
    none_unreachable,
    refuse_reverse_without_source,
)
from eomirror.groups.log_start import from_log_start
from eomirror.groups.recreated_topic import replaced
from eomirror.groups.translation import Translation, never_mirrored, refuse_nameless, translation, voided
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.kafka.record_timestamps import TimestampReader
from eomirror.link.offset_map_reader import OffsetMapReader, Question
from eomirror.records.names import LinkNames
from eomirror.topology.filters import pattern_fault, topic_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.kafka.consumer_groups import Committed
    from eomirror.kafka.consumer_groups_proxy import GroupState
    from eomirror.records.position import Position

__all__ = ["GroupPartition", "group_offsets"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPartition:
    """
    A group in one partition of a link.

    Attributes:
        topic: Topic on the side that the group moves from.
        partition: Partition there.
        offset: Committed offset there.
        to_topic: Topic on the side that the group moves to.
        to_partition: Partition there.
        to_offset: Resume offset there; None if it is unknown.
        kind: ``exact``, ``next`` or ``unknown``, as in `Translation`; or ``earlier``: equal names are written on both
            sides, no single offset is exact, and resuming there skips none and reads ``again`` records again.
        again: Upper bound of the records that are read again there; not 0 for ``earlier`` only.
        metadata: Commit metadata of ``offset``; a consumer such as Kafka Streams may need it.
        from_checkpoint: True if the source was not asked: ``offset`` is that of the last checkpoint, and the group
            may have read further since; -1 if it has no checkpoint of this partition.
        has_offset: Its committed offset on the side that it moves to; None for none.
        delta: ``to_offset`` minus ``has_offset``, markers included: resuming at ``has_offset`` the group would read
            that
            many offsets again or, if negative, skip them; None if one of them is unknown.
        delta_seconds: The same in time, by the timestamps of the records there; None if unknown.
        age_seconds: Age of the record at ``to_offset``; None at the end of the log.
        state: State of the group on the side that it moves to, such as ``EMPTY``; ``DEAD`` if the group does not exist.
        skipped: Reason that an import would leave it out; empty if it would not.
    """

    link: str
    group: str
    topic: str
    partition: int
    offset: int
    to_topic: str
    to_partition: int
    to_offset: int | None
    kind: str
    has_offset: int | None = None
    delta: int | None = None
    delta_seconds: float | None = None
    age_seconds: float | None = None
    state: str = ""
    skipped: str = ""
    again: int = 0
    metadata: str = ""
    from_checkpoint: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``."""
        return asdict(self)


def group_offsets(
    config: Config,
    *,
    group: str | None = None,
    groups: str | None = None,
    link: str | None = None,
    reverse: bool = False,
    times: bool = False,
    include_deleted: bool = False,
    now_ms: int = 0,
    source_unavailable: bool = False,
    away: FindUnreachable = none_unreachable,
) -> list[GroupPartition]:
    """
    Returns offsets of groups, and their resume offsets on the other side.

    A source that does not answer may be lost: then the checkpoints of a running mirror (the link's `groups`)
    give the offsets of its groups, from the target alone; see ``from_checkpoint``.

    Args:
        config: Configuration of the mirror.
        group: Only this group; it is described by name, so that the right to list groups is not needed.
        groups: Only groups that this regular expression matches whole; by default those of each link's ``groups``.
        link: Name of a link; by default all are asked.
        reverse: From target to source, for the way back.
        times: Read records for ``delta_seconds`` and ``age_seconds``.
        include_deleted: Include groups that have checkpoints on the target and no offset on the source any more,
            with their last offsets on both sides.  Not with ``reverse``.
        now_ms: Wall clock, for ``age_seconds``.
        source_unavailable: Do not wait for the source, which takes half a minute if it does not answer.
        away: Finds the clusters of links that do not answer; by default each is waited for in turn.

    Returns:
        One per link, group and partition, sorted.

    Raises:
        UsageError: Both ``group`` and ``groups`` were given, the name is empty, or the expression is not valid; or
            ``source_unavailable`` with ``reverse``.
        UnreachableError: The source does not answer, and there are no checkpoints; or the target does not.
        StateError: A record in the link's topics is not readable.
        ClusterError: A cluster cannot be asked.
        AuthorizationError: A group may not be described.
    """
    if group is not None and groups is not None:
        raise UsageError(
            "both one group and an expression for groups were given", fix="give --group or --groups"
        )
    refuse_nameless(group)
    refuse_reverse_without_source(source_unavailable=source_unavailable, reverse=reverse)
    found: list[GroupPartition] = []
    links = [config.link(link)] if link is not None else list(config.links)
    unreachable = away(links)
    for each in links:
        look = _Look(config, each, reverse=reverse)
        try:
            committed = look.committed(group, groups, source_unavailable=source_unavailable, away=unreachable)
            if committed is None:
                found += look.checkpointed(group, groups, times=times, now_ms=now_ms)
                continue
            here = look.run(committed, times=times, now_ms=now_ms)
            found += here
            if include_deleted and not reverse:
                found += look.deleted({one.group for one in here}, group, groups)
        finally:
            look.close()
    return sorted(found, key=lambda item: (item.link, item.group, item.topic, item.partition))


class _Look:
    def __init__(self, config: Config, link: Link, *, reverse: bool) -> None:
        role = LinkNames(link.state_name).client_id("offsets")
        source, target = config.clusters[link.source], config.clusters[link.target]
        self._link = link
        self._reverse = reverse
        self._source, self._target = source, target
        self._to = source if reverse else target
        self._role = role
        self._from_groups = ClusterGroups(target if reverse else source, client_id=role)
        self._to_groups = ClusterGroups(self._to, client_id=role)
        self._reader = OffsetMapReader(link, target)
        self._unreachable: UnreachableError | None = None
        opposite = opposite_link(config, link)
        # None if only one side writes: the link's own map is then sufficient.
        self._pair = None if opposite is None else BidirectionalPair(config, link, opposite, reverse=reverse)

    def committed(
        self,
        group: str | None,
        groups: str | None,
        *,
        source_unavailable: bool,
        away: Mapping[str, UnreachableError],
    ) -> Mapping[str, Mapping[tuple[str, int], Committed]] | None:
        """Returns committed offsets on the side that groups move from; None if checkpoints have to be used."""
        if source_unavailable:
            return None
        if not self._reverse and self._link.source in away:
            self._unreachable = away[self._link.source]
            return None
        try:
            if group is not None:
                return self._from_groups.committed([group])
            matches = self._matcher(groups)
            names = [name for name in self._from_groups.names(strict=True)[0] if matches(name)]
            return self._from_groups.committed(names)
        except UnreachableError as error:
            if self._reverse:
                raise
            self._unreachable = error
            return None

    def checkpointed(
        self, group: str | None, groups: str | None, *, times: bool, now_ms: int
    ) -> list[GroupPartition]:
        """Returns resume offsets of groups from the target alone."""
        told, metadata = checkpointed(
            self._link,
            self._reader,
            self._target,
            matches=self._matcher(groups) if group is None else group.__eq__,
            client_id=self._role,
            error=self._unreachable,
        )
        return [
            replace(one, from_checkpoint=True)
            for one in self._beside(told, [0] * len(told), metadata, times=times, now_ms=now_ms)
        ]

    def deleted(self, here: Collection[str], group: str | None, groups: str | None) -> list[GroupPartition]:
        """Returns groups with checkpoints and without any offset on the source."""
        matches = self._matcher(groups)
        last = {
            (one.group, one.topic, one.partition): one
            for one in self._reader.checkpoints()
            if one.group not in here and (one.group == group if group is not None else matches(one.group))
        }
        names = sorted({one.group for one in last.values()})
        standing = self._from_groups.committed(names)
        names = [name for name in names if not standing[name]]
        there, states = self._to_groups.committed(names), self._to_groups.states(names)
        sources = {
            (position.target_topic, position.target_partition): position.source
            for position in self._reader.positions().values()
        }
        policy = self._link.group_deletions if self._link.sync_group_offsets else "keep"
        return [
            GroupPartition(
                link=self._link.name,
                group=one.group,
                topic=source.topic,
                partition=source.partition,
                offset=one.upstream,
                to_topic=one.topic,
                to_partition=one.partition,
                to_offset=one.downstream,
                kind="exact",
                has_offset=None if has is None else has.offset,
                delta=None if has is None else one.downstream - has.offset,
                state=states[one.group].name,
                skipped=f"deleted on the source; group_deletions is {policy}"
                + ("" if there[one.group] else ", and it is deleted there"),
            )
            for one in last.values()
            if one.group in there and (source := sources.get((one.topic, one.partition))) is not None
            for has in [there[one.group].get((one.topic, one.partition))]
        ]

    def _matcher(self, groups: str | None) -> Callable[[str], bool]:
        # The regular expression engine of the configuration, so that follower and query match the same groups.
        if groups is None:
            return self._link.follows
        if problem := pattern_fault(groups):
            raise UsageError(
                f"--groups {groups}: {problem}",
                fix="write a regular expression, as under the link's `groups`",
            )
        return topic_filter((groups,)).accepts

    def run(
        self, committed: Mapping[str, Mapping[tuple[str, int], Committed]], *, times: bool, now_ms: int
    ) -> list[GroupPartition]:
        """
        Returns resume offsets for committed ones, which were read before the positions.

        So no group is ahead of a mirror that keeps up.
        """
        positions = self._by_name()
        asked = [
            (group, name, one.offset)
            for group, offsets in committed.items()
            for name, one in offsets.items()
            if name in positions
        ]
        reasons = replaced(
            [positions[name] for name in {name for _, name, _ in asked}],
            source=self._source,
            target=self._target,
            client_id=self._role,
        )
        sound = [one for one in asked if positions[one[1]].source not in reasons]
        translated = self._translated(sound, positions) if sound else []
        again = [0] * len(translated)
        if self._pair is not None:
            settled = self._pair.settle(translated)
            translated, again = [each for each, _ in settled], [count for _, count in settled]
        translated = from_log_start(translated, self._to, client_id=self._role)
        translated += voided(self._link, asked, positions, reasons, reverse=self._reverse)
        # Only the positions say which of the target's topics are the link's.
        for group, offsets in () if self._reverse else committed.items():
            stands = [(name, one.offset) for name, one in offsets.items()]
            translated += never_mirrored(self._link, stands, positions, group=group)
        again += [0] * (len(translated) - len(again))
        metadata = {
            (group, *name): one.metadata
            for group, offsets in committed.items()
            for name, one in offsets.items()
        }
        return self._beside(translated, again, metadata, times=times, now_ms=now_ms)

    def _beside(
        self,
        translated: Sequence[Translation],
        again: Sequence[int],
        metadata: Mapping[tuple[str, str, int], str],
        *,
        times: bool,
        now_ms: int,
    ) -> list[GroupPartition]:
        """Combines the answers with the offsets that the groups have on the side that they move to."""
        if not translated:
            return []
        involved = sorted({each.group for each in translated})
        there, states = self._to_groups.committed(involved), self._to_groups.states(involved)
        stamps = self._stamps(translated, there) if times else {}
        return [
            _joined(
                each,
                there[each.group],
                states[each.group],
                stamps,
                now_ms,
                again=count,
                metadata=metadata.get((each.group, each.topic, each.partition), ""),
            )
            for each, count in zip(translated, again, strict=True)
        ]

    def _translated(
        self, asked: Sequence[tuple[str, tuple[str, int], int]], positions: Mapping[tuple[str, int], Position]
    ) -> list[Translation]:
        names = list({name for _, name, _ in asked})
        ends = self._reader.stable_ends(names) if self._reverse else {}
        questions = [Question(positions[name], offset, ends.get(name, 0)) for _, name, offset in asked]
        answers = self._reader.answers(questions, reverse=self._reverse)
        answers = from_end_to_end(self._reader, questions, answers, reverse=self._reverse)
        return [
            translation(
                self._link.name, question.position, offset, answer, group=group, reverse=self._reverse
            )
            for (group, _, offset), question, answer in zip(asked, questions, answers, strict=True)
        ]

    def close(self) -> None:
        if self._pair is not None:
            self._pair.close()
        self._reader.close()
        self._from_groups.close()
        self._to_groups.close()

    def _by_name(self) -> dict[tuple[str, int], Position]:
        positions = self._reader.positions()
        if not self._reverse:
            return {(source.topic, source.partition): position for source, position in positions.items()}
        return {
            (position.target_topic, position.target_partition): position for position in positions.values()
        }

    def _stamps(
        self, translated: Sequence[Translation], there: Mapping[str, Mapping[tuple[str, int], Committed]]
    ) -> Mapping[tuple[str, int, int], int]:
        wanted = set()
        for each in translated:
            name = each.to_topic, each.to_partition
            has = there[each.group].get(name)
            for offset in (each.to_offset, None if has is None else has.offset):
                if offset is not None:
                    wanted.add((*name, offset))
        reader = TimestampReader(self._to, client_id=self._role)
        try:
            return reader.read(wanted)
        finally:
            reader.close()


def _joined(
    each: Translation,
    there: Mapping[tuple[str, int], Committed],
    state: GroupState,
    stamps: Mapping[tuple[str, int, int], int],
    now_ms: int,
    *,
    again: int,
    metadata: str,
) -> GroupPartition:
    name = each.to_topic, each.to_partition
    standing = there.get(name)
    has = None if standing is None else standing.offset
    delta = None if has is None or each.to_offset is None else each.to_offset - has
    goes_on = None if each.to_offset is None else stamps.get((*name, each.to_offset))
    stands = None if has is None else stamps.get((*name, has))
    if each.to_offset is None:
        skipped = each.reason
    elif not state.idle:
        skipped = f"active there: {state.name}, {state.members} members"
    elif delta == 0:
        skipped = "is at that offset already"
    else:
        skipped = ""
    return GroupPartition(
        link=each.link,
        group=each.group,
        topic=each.topic,
        partition=each.partition,
        offset=each.offset,
        to_topic=each.to_topic,
        to_partition=each.to_partition,
        to_offset=each.to_offset,
        kind=each.kind,
        has_offset=has,
        delta=delta,
        delta_seconds=None if goes_on is None or stands is None else (goes_on - stands) / 1000,
        age_seconds=None if goes_on is None else max(0.0, (now_ms - goes_on) / 1000),
        state=state.name,
        skipped=skipped,
        again=again,
        metadata=metadata,
    )
