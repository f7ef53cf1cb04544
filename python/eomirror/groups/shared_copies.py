"""
Finds records of other links in the copies of a link, from the state topics of all links of the target.

It asks neither source, and knows links of other configuration files too.  It looks behind the translation: another link
only appends, so that its first record is behind every offset that was translated before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from eomirror.groups.translation import OtherRecords
from eomirror.kafka.log_ends import skip_missing
from eomirror.link.offset_map_reader import OffsetMapReader, Question
from eomirror.link.other_links import OtherLinks
from eomirror.topology.flow import Flow
from eomirror.topology.warnings import meeting

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.groups.translation import Name
    from eomirror.kafka.session import ClusterSession
    from eomirror.link.start_rules import ReverseLink
    from eomirror.records.position import Position

__all__ = ["WrittenTopic", "copies_of", "may_be_shared", "other_records"]


class WrittenTopic(NamedTuple):
    """
    A topic to which a link writes.

    Attributes:
        topic_id: Its id; records in an earlier topic of its name are gone.
        source: Cluster id and topic that the link mirrors to it; None if the link is unknown.
    """

    topic_id: str
    source: tuple[str, str] | None


def may_be_shared(link: Link, links: Iterable[Link] = ()) -> bool:
    """
    Returns True if another link may write to the copies of a link.

    A prefixed name has the alias of its source, so that only a link of the same file that is told to write there does.

    Args:
        links: The links of the file, if they are known.
    """
    return link.naming.kind != "prefix" or any(
        other is not link and meeting(link, other) is not Flow.NO for other in links
    )


def copies_of(positions: Iterable[Position]) -> dict[Name, WrittenTopic]:
    """Returns the copies of a link by topic and partition."""
    return {
        (each.target_topic, each.target_partition): WrittenTopic(
            each.target_topic_id, (each.source_cluster_id, each.topic)
        )
        for each in positions
    }


def other_records(
    link: Link, target: ClusterSession, copies: Mapping[Name, WrittenTopic], *, own: str
) -> dict[Name, OtherRecords]:
    """
    Returns the first record of another source in each copy that has one.

    A link of another name that mirrors the same source topic is no other source.  A link whose state topics cannot be
    read is logged.

    Args:
        link: The link, for its settings.
        copies: Copies to look at.
        own: State name of the link; empty if it is unknown.  A copy with one source alone has no other one then.

    Raises:
        StateError: A map is not readable.
        ClusterError: The target does not answer.
    """
    if not copies:
        return {}
    writers: dict[Name, list[ReverseLink]] = {}
    for each in OtherLinks(link.name, target, event="other_link_unknown").written(but=own):
        where = each.position.target_topic, each.position.target_partition
        copy = copies.get(where)
        if copy is not None and each.position.target_topic_id == copy.topic_id != "":
            writers.setdefault(where, []).append(each)
    others = {
        where: [each for each in some if _source(each) != copies[where].source]
        for where, some in writers.items()
        if copies[where].source is not None or len(set(map(_source, some))) > 1
    }
    starts = skip_missing(
        OffsetMapReader(link, target).log_starts, [where for where, some in others.items() if some]
    )
    by_link: dict[str, list[tuple[Name, ReverseLink]]] = {}
    for where, some in others.items():
        for each in some:
            if where in starts:
                by_link.setdefault(each.link, []).append((where, each))
    found: dict[Name, OtherRecords] = {}
    for name, written in sorted(by_link.items()):
        # The reader needs the name of the link alone: another file may hold its settings.
        reader = OffsetMapReader(replace(link, name=name), target)
        for where, first in _first_records(reader, written, starts).items():
            known = found.get(where)
            if known is None or first < known.first:
                found[where] = OtherRecords(name, first)
    return found


def _source(each: ReverseLink) -> tuple[str, str]:
    return each.position.source_cluster_id, each.position.topic


def _first_records(
    reader: OffsetMapReader, written: Sequence[tuple[Name, ReverseLink]], starts: Mapping[Name, int]
) -> dict[Name, int]:
    """Returns the offset of the first record of one link that each copy still has, or an earlier one."""
    found: dict[Name, int] = {}
    asked: list[tuple[Name, Position]] = []
    for where, each in written:
        at, start = each.position, starts[where]
        if each.adopted is not None and each.adopted >= start:
            # Records from before the position was set by hand: the map need not know all of them.
            found[where] = start
        elif at.target_offset is not None and at.target_offset >= start:
            asked.append((where, at))
    if not asked:
        return found
    ends = reader.stable_ends([where for where, _ in asked])
    answers = reader.answers([Question(at, starts[where], ends[where]) for where, at in asked], reverse=True)
    behind: list[tuple[Name, Position, int]] = []
    for (where, at), (kind, offset) in zip(asked, answers, strict=True):
        if kind == "before":
            found[where] = min(offset, found.get(where, offset))
        elif kind == "next":
            behind.append((where, at, offset))
        else:
            found[where] = starts[where]
    again = reader.answers([Question(at, offset) for _, at, offset in behind]) if behind else []
    for (where, _, _), (kind, offset) in zip(behind, again, strict=True):
        first = offset if kind in {"exact", "next"} else starts[where]
        found[where] = min(first, found.get(where, first))
    return found
