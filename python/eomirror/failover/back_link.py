"""Finds the link that brings the records of a promoted link back, and the offsets at which it begins. Pure."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.errors import TopicError, UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.config import Config, Link
    from eomirror.records.position import Position
    from eomirror.records.promotion import Promotion
    from eomirror.types import SourcePartition

__all__ = ["back_link", "back_link_name", "begins", "merged", "returns", "whole_link"]


def back_link(config: Config, link: Link, promotion: Promotion) -> Link:
    """
    Returns the link of the configuration that mirrors the copies of a link back to its source topics.

    A topic that the source had no more at the promotion may be missing there: what was deleted need not come back.

    Args:
        link: The promoted link.
        promotion: Its promotion, which names the topics.

    Raises:
        UsageError: No link does; the fix is the entry to add.
    """
    topics = {cut.target_topic: cut.topic for cut in promotion.cuts if not cut.gone}
    there = [other for other in config.links if (other.source, other.target) == (link.target, link.source)]
    for other in there:
        if all(_returns(other, copy, topic) for copy, topic in topics.items()):
            return other
    missing = sorted(
        copy for copy, topic in topics.items() if not any(_returns(other, copy, topic) for other in there)
    )
    raise UsageError(
        f"no link of the configuration mirrors {', '.join(missing[:3]) or 'the copies'} from {link.target} back to "
        f"{link.source}",
        fix=f"add this entry under `links`, then repeat the command: {_entry(link, topics)}",
    )


def begins(promotion: Promotion, back: Link | None = None) -> dict[SourcePartition, int]:
    """
    Returns the offset at which the link back begins in each copy: the end at the cut.

    So of a topic that was deleted on the source, only what applications write after the cut comes back, and nothing if
    the link back leaves it out.

    Args:
        back: The link back; None if it leaves out nothing.
    """
    return {
        cut.copy: cut.target_end
        for cut in promotion.cuts
        if not cut.gone or back is None or _returns(back, cut.target_topic, cut.topic)
    }


def whole_link(back: Link, copies: Collection[str] | None = None) -> Link:
    """
    Returns the link back without its loop guard, to bring back what the old source once wrote and has lost.

    Args:
        copies: Only these topics, and nothing but their records; None for the link as it is.
    """
    whole = replace(back, loops=replace(back.loops, whole=True))
    if copies is None:
        return whole
    return replace(
        whole,
        topics=tuple(re.escape(copy) for copy in sorted(copies)),
        exclude=(),
        groups=(),
        sync_group_offsets=False,
        heartbeats="off",
    )


def merged(promotion: Promotion, positions: Mapping[SourcePartition, Position]) -> dict[SourcePartition, int]:
    """
    Returns the offset up to which a promoted link has mirrored its orphans, of partitions in which it has.

    Only a merge writes positions while the link is promoted, and does so with a lane layout of its own.
    """
    return {source: one.offset for source, one in positions.items() if one.generation > promotion.generation}


def returns(
    promotion: Promotion, ended: Promotion | None, positions: Mapping[SourcePartition, Position]
) -> dict[SourcePartition, int]:
    """
    Returns the offset at which a link mirrors again after its link back was promoted.

    That is the end of the copy at the cut, unless a merge has mirrored on behind it: then its position, because each
    record is mirrored once.

    Args:
        promotion: Promotion of the link back.
        ended: Promotion of the link that mirrors again; None if it is not promoted.
        positions: Its positions.
    """
    reached = {} if ended is None else merged(ended, positions)
    ids = {cut.copy: cut.target_topic_id for cut in promotion.cuts}
    return {
        # An older position behind the cut is one in a log that has lost its end since.
        source: reached[source]
        if reached.get(source, 0) > begin
        and positions[source].topic_id == ids[source]
        and positions[source].timestamp >= promotion.started
        else begin
        for source, begin in begins(promotion).items()
    }


def back_link_name(link: Link) -> str:
    """Returns the name that the entry of a missing link back has."""
    return f"{link.state_name.replace('.', '-')}-back"


def _returns(link: Link, copy: str, topic: str) -> bool:
    try:
        return link.mirrors(copy) and link.target_topic(copy) == topic
    except TopicError:
        return False


def _entry(link: Link, topics: dict[str, str]) -> str:
    """Returns the link back in YAML, on one line."""
    head = f"{{name: {back_link_name(link)}, source: {link.target}, target: {link.source}"
    if link.naming.kind == "identity":
        patterns = ", ".join(f'"{_quoted(pattern)}"' for pattern in link.topics)
        mark = link.naming.separator
        same = "identity" if mark == "." else f'{{policy: identity, separator: "{mark}"}}'
        return f"{head}, topics: [{patterns}], naming: {same}}}"
    if link.naming.kind == "prefix":
        prefix = _quoted(f"{link.source}{link.naming.separator}".replace(".", "\\."))
        patterns = ", ".join(f'"{prefix}({_quoted(pattern)})"' for pattern in link.topics)
        return f'{head}, topics: [{patterns}], naming: {{match: "{prefix}(.*)", to: "$1"}}}}'
    names = ", ".join(f"{copy}: {topic}" for copy, topic in sorted(topics.items()))
    escaped = [copy.replace(".", "\\.") for copy in sorted(topics)]
    patterns = ", ".join(f'"{_quoted(copy)}"' for copy in escaped)
    return f"{head}, topics: [{patterns}], naming: {{map: {{{names}}}}}}}"


def _quoted(pattern: str) -> str:
    return pattern.replace("\\", "\\\\").replace('"', '\\"')
