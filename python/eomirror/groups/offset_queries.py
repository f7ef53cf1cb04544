"""
Answers queries for translated offsets (`translate`, `group_offsets`), as two views of `OffsetTranslator`.

A consumer that moves to the target needs two lines::

    for each in group_offsets(load_config("mirror.yaml"), group="billing"):
        consumer.seek(TopicPartition(each.to_topic, each.to_partition, each.to_offset))
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from eomirror.config.rights import Right, lacking, told
from eomirror.errors import UsageError
from eomirror.groups.offset_translator import OffsetTranslator
from eomirror.groups.translation import Asked, Translation, translated
from eomirror.kafka.consumer_groups_proxy import ClusterGroups
from eomirror.kafka.record_reader import TimestampReader
from eomirror.topology.filters import pattern_fault, topic_filter

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.config import Config, Link
    from eomirror.errors import UnreachableError
    from eomirror.groups.translation import Name
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.consumer_groups import GroupState, Offsets

__all__ = [
    "FindUnreachable",
    "GroupPartition",
    "GroupsThere",
    "group_matcher",
    "group_offsets",
    "groups_there",
    "none_unreachable",
    "translate",
    "unreadable_topics",
]

_DEAD = "DEAD"


class GroupsThere(NamedTuple):
    """
    Groups on the side that they move to.

    Attributes:
        states: State of each group.
        offsets: Committed offsets of each group that exists there.
        problems: Reason for each group whose offsets there cannot be read.
    """

    states: Mapping[str, GroupState]
    offsets: Mapping[str, Offsets]
    problems: Mapping[str, str] = MappingProxyType({})

    def offset(self, group: str, name: Name) -> int | None:
        """Returns the committed offset of a group in a partition; None for none."""
        found = self.offsets.get(group)
        committed = None if found is None else found.get(name)
        return None if committed is None else committed.offset


def groups_there(groups: ClusterGroups, names: Sequence[str]) -> GroupsThere:
    """
    Reads states, then the offsets of groups that exist: one without members and offsets needs no second request.

    Offsets are read last, because a consumer that starts in between commits them.

    Raises:
        AuthorizationError: A group may not be described.
        ClusterError: A coordinator does not answer.
    """
    states = groups.states(names)
    living = [name for name in names if states[name].name != _DEAD]
    found = groups.committed(living) if living else {}
    return GroupsThere(
        states,
        {name: one for name, one in found.items() if not isinstance(one, str)},
        {
            name: f"its offsets there cannot be read: {one}"
            for name, one in found.items()
            if isinstance(one, str)
        },
    )


def unreadable_topics(admin: ClusterAdmin, topics: Iterable[str]) -> dict[str, str]:
    """
    Returns the topics that we may not read, for which brokers refuse commits, with who lacks the right and the command.

    None where brokers tell no rights.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    rights = admin.topic_rights(sorted({topic for topic in topics if topic}))
    return {
        topic: told(lacking("", admin.account, [Right("Read", "topic", topic)]))
        for topic, operations in rights.items()
        if not operations & {"READ", "ALL"}
    }


_NOT_MIRRORED = "no link has mirrored this partition"
_TRANSLATED = tuple(each.name for each in fields(Translation))


class FindUnreachable(Protocol):
    """Finds the clusters that do not answer."""

    def __call__(self, links: Sequence[Link], /) -> Mapping[str, UnreachableError]:
        """Returns the errors of these links' sources that do not answer, by alias; raises if a target does not."""


def none_unreachable(_: Sequence[Link]) -> Mapping[str, UnreachableError]:
    """Returns an empty mapping, without asking."""
    return {}


@dataclass(slots=True, kw_only=True)
class GroupPartition(Translation):
    """
    A group in one partition of a link: the translation of its committed offset, and its state there.

    Attributes:
        from_checkpoint: True if the source was not asked: ``offset`` is that of the last checkpoint, and the group
            may have read further since; -1 if it has no checkpoint of this partition.
        has_offset: Its committed offset on the side that it moves to; None for none.
        delta: ``to_offset`` minus ``has_offset``, markers included: resuming at ``has_offset`` the group would read
            that many offsets again or, if negative, skip them; None if one of them is unknown.
        delta_seconds: The same in time, by the timestamps of the records there; None if unknown.
        age_seconds: Age of the record at ``to_offset``; None at the end of the log.
        state: State of the group on the side that it moves to, such as ``EMPTY``; ``DEAD`` if the group does not exist.
        skipped: Reason that an import would leave it out; empty if it would not.
    """

    has_offset: int | None = None
    delta: int | None = None
    delta_seconds: float | None = None
    age_seconds: float | None = None
    state: str = ""
    skipped: str = ""
    from_checkpoint: bool = False

    def as_dict(self) -> dict[str, Any]:
        """Returns the fields for ``-o json``; ``skipped`` has the reason."""
        return {name: value for name, value in asdict(self).items() if name not in {"reason", "others"}}


def translate(
    config: Config,
    *,
    group: str | None = None,
    topic: str | None = None,
    partition: int | None = None,
    offset: int | None = None,
    offsets: Sequence[tuple[str, int, int]] = (),
    reverse: bool = False,
    link: str | None = None,
    source_unavailable: bool = False,
    away: FindUnreachable = none_unreachable,
) -> list[Translation]:
    """
    Translates offsets to the other side of a link.

    Either ``group``: resume offsets for all of its committed offsets in topics of the link; or ``topic``,
    ``partition`` and ``offset``: the offset of that record; or ``offsets``: those of many records at once.  If equal
    names are written on both sides a group's offset is another than that of a record, and ``group`` queries the maps of
    both links.

    Args:
        group: A consumer group of the source (of the target with ``reverse``).
        topic: A topic of the source (of the target with ``reverse``).
        partition: A partition of it.
        offset: Next offset to read there.
        offsets: Topic, partition and next offset to read of each record.  One that no link has mirrored is unknown.
        reverse: From target to source.  Of the source, only equal names that are written on both sides are read.
        link: Name of the link; by default all links that know the topic or the group's topics are queried.
        source_unavailable: For a group: use its checkpoints on the target, as for a source that does not answer.
        away: Finds the clusters of links that do not answer; by default each is waited for in turn.

    Returns:
        One per link and partition, sorted.

    Raises:
        UsageError: Neither or both were given, or no link has a position for the topic.
        StateError: A record in the link's topics is not readable.
        ClusterError: A cluster cannot be asked.
    """
    plain = (topic, partition, offset)
    given = [group is not None, any(item is not None for item in plain), bool(offsets)]
    if given.count(True) != 1 or (given[1] and None in plain):
        raise UsageError(
            "name either a group, or a topic, a partition and an offset, or a file of offsets",
            fix="give --group, or all of --topic, --partition and --offset, or --file",
        )
    _refuse(group, source_unavailable=source_unavailable, reverse=reverse)
    if offset is not None and offset < 0:
        raise UsageError(f"{offset} is not an offset", fix="give an offset of 0 or more")
    asked = [Asked((name, number), at) for name, number, at in offsets]
    if topic is not None and partition is not None and offset is not None:
        asked = [Asked((topic, partition), offset)]
    found: list[Translation] = []
    links = config.mapped_links(link)
    unreachable = away(links)
    for each in links:
        ask_source = group is not None and not reverse
        with closing(OffsetTranslator(config, each, reverse=reverse, ask_source=ask_source)) as translator:
            if asked:
                found += translator.translate_records(asked)
                continue
            matches = group_matcher(each, group)
            found += translator.translate_groups(
                group, matches, source_unavailable=source_unavailable, away=unreachable
            )[0]
    if not found and topic is not None:
        side = "target" if reverse else "source"
        raise UsageError(
            f"no link has mirrored {topic}-{partition} on its {side}",
            fix="`eomirror status CONFIG` lists the partitions; without --reverse, name the source's topic",
        )
    if offsets:
        mirrored = {(each.topic, each.partition) for each in found}
        found += [
            translated("", each, ("", -1), reason=_NOT_MIRRORED)
            for each in asked
            if each.name not in mirrored
        ]
    return sorted(found, key=lambda item: (item.link, item.topic, item.partition))


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
    _refuse(group, source_unavailable=source_unavailable, reverse=reverse)
    found: list[GroupPartition] = []
    links = config.mapped_links(link)
    unreachable = away(links)
    for each in links:
        matches = group_matcher(each, group, groups)
        with closing(_BothSides(config, each, reverse=reverse)) as look:
            rows, from_checkpoint = look.translator.translate_groups(
                group, matches, source_unavailable=source_unavailable, away=unreachable
            )
            found += look.beside(rows, times=times, now_ms=now_ms, from_checkpoint=from_checkpoint)
            if include_deleted and not reverse and not from_checkpoint:
                found += look.deleted({one.group for one in rows}, matches)
    return sorted(found, key=lambda item: (item.link, item.group, item.topic, item.partition))


def group_matcher(link: Link, group: str | None, groups: str | None = None) -> Callable[[str], bool]:
    """
    Returns a function that is true for wanted groups; by default those that the link follows.

    Expressions have the engine of the configuration, so that follower and query match the same groups.

    Raises:
        UsageError: The expression ``groups`` is not valid.
    """
    if group is not None:
        return group.__eq__
    if groups is None:
        return link.follows
    if problem := pattern_fault(groups):
        raise UsageError(
            f"--groups {groups}: {problem}",
            fix="write a regular expression, as under the link's `groups`",
        )
    return topic_filter((groups,)).accepts


def _refuse(group: str | None, *, source_unavailable: bool, reverse: bool) -> None:
    if group == "":
        # It cannot be queried (`eomirror.kafka.consumer_groups`).
        raise UsageError("the name of a group is empty", fix="name one, such as --group billing")
    if source_unavailable and reverse:
        raise UsageError(
            "the way back begins on the target, and needs the source",
            fix="leave out --source-gone or --reverse",
        )


class _BothSides:
    """Offsets of groups on both sides of one link."""

    def __init__(self, config: Config, link: Link, *, reverse: bool) -> None:
        self._link = link
        self.translator = OffsetTranslator(config, link, reverse=reverse)
        sessions = self.translator.sessions
        self._to = sessions.source if reverse else sessions.target
        self._groups = ClusterGroups(self._to.cluster, client_id=self._to.client_id)

    def close(self) -> None:
        self._groups.close()
        self.translator.close()

    def beside(
        self, rows: Sequence[Translation], *, times: bool, now_ms: int, from_checkpoint: bool
    ) -> list[GroupPartition]:
        """Returns resume offsets beside the offsets that the groups have on the side that they move to."""
        if not rows:
            return []
        there = groups_there(self._groups, sorted({each.group for each in rows}))
        stamps = self._stamps(rows, there) if times else {}
        found = []
        for each in rows:
            name, state = (each.to_topic, each.to_partition), there.states[each.group]
            has = there.offset(each.group, name)
            delta = None if has is None or each.to_offset is None else each.to_offset - has
            resumes = None if each.to_offset is None else stamps.get((*name, each.to_offset))
            stands = None if has is None else stamps.get((*name, has))
            skipped = each.reason
            if each.to_offset is not None and not state.idle:
                skipped = f"active there: {state.name}, {state.members} members"
            elif each.group in there.problems:
                skipped = there.problems[each.group]
            elif delta == 0:
                skipped = "is at that offset already"
            found.append(
                _row(
                    each,
                    has_offset=has,
                    delta=delta,
                    delta_seconds=None if resumes is None or stands is None else (resumes - stands) / 1000,
                    age_seconds=None if resumes is None else max(0.0, (now_ms - resumes) / 1000),
                    state=state.name,
                    skipped=skipped,
                    from_checkpoint=from_checkpoint,
                )
            )
        return found

    def deleted(self, present: Collection[str], matches: Callable[[str], bool]) -> list[GroupPartition]:
        """Returns groups with checkpoints and without any offset on the source."""
        reader = self.translator.reader
        last = [one for one in reader.checkpoints() if one.group not in present and matches(one.group)]
        names = sorted({one.group for one in last})
        standing = self.translator.groups.committed(names)
        # One whose offsets cannot be read may have some.
        names = [name for name in names if not standing[name]]
        there = groups_there(self._groups, names)
        sources = {
            (each.target_topic, each.target_partition): each.source for each in reader.positions().values()
        }
        policy = self._link.group_deletions if self._link.sync_group_offsets else "keep"
        found = []
        for one in last:
            name = one.topic, one.partition
            if one.group not in there.states or name not in sources:
                continue
            asked = Asked(sources[name], one.upstream, one.group)
            has = there.offset(one.group, name)
            found.append(
                _row(
                    translated(self._link.name, asked, name, one.downstream, kind="exact"),
                    has_offset=has,
                    delta=None if has is None else one.downstream - has,
                    state=there.states[one.group].name,
                    skipped=f"deleted on the source; group_deletions is {policy}"
                    + ("" if there.offsets.get(one.group) else ", and it is deleted there"),
                )
            )
        return found

    def _stamps(self, rows: Sequence[Translation], there: GroupsThere) -> Mapping[tuple[str, int, int], int]:
        wanted = {
            (each.to_topic, each.to_partition, offset)
            for each in rows
            for offset in (
                each.to_offset,
                there.offset(each.group, (each.to_topic, each.to_partition)),
            )
            if offset is not None
        }
        return TimestampReader(self._to).read(wanted)


def _row(each: Translation, **more: Any) -> GroupPartition:
    # Not asdict: a link may have 1,000 groups in 100 partitions, and asdict copies every value.
    return GroupPartition(**{name: getattr(each, name) for name in _TRANSLATED}, **more)
