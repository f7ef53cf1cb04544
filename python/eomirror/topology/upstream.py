"""
Finds where a topic that a link names would come from if its source does not have it yet. Pure.

On several clusters with equal names an application may create `orders` on one of them.  The links create it on the
others, so a link whose source lacks it waits for another link.  A topic that no cluster of the chain has is a mistake::

    spoke1 orders --spoke1->hub--> hub (no orders yet) --hub->spoke2--> spoke2
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from eomirror.errors import TopicError
from eomirror.topology.flow import UpstreamTopic
from eomirror.topology.naming import illegal_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eomirror.topology.flow import LinkShape

__all__ = ["upstream"]


def upstream(links: Sequence[LinkShape], link: LinkShape) -> tuple[UpstreamTopic, ...]:
    """Returns the topics that ``link`` lists by name and that other links can create on its source."""
    topics = (pattern.replace("\\.", ".") for pattern in link.topics)
    found = (
        _chain(links, link.source, topic)
        for topic in topics
        if not illegal_name(topic) and link.filter.matches(topic)
    )
    return tuple(each for each in found if each is not None)


def _chain(links: Sequence[LinkShape], cluster: str, topic: str) -> UpstreamTopic | None:
    """Returns the places that a topic may be copied from; None if no link copies it."""
    start = (cluster, topic)
    seen, waiting, first = {start: None}, [start], ""
    while waiting:
        alias, name = waiting.pop(0)
        for link in links:
            if link.target != alias:
                continue
            for original in _originals(link, name):
                place = (link.source, original)
                if place not in seen:
                    first = first or link.name
                    seen[place] = None
                    waiting.append(place)
    return UpstreamTopic(topic, first, tuple(place for place in seen if place != start)) if first else None


def _originals(link: LinkShape, name: str) -> Iterator[str]:
    """Yields the source topics of a link whose copy has this name."""
    naming = link.naming
    pattern = naming.pattern.replace("{source}", link.source).replace("{target}", link.target)
    before, _, after = pattern.partition("{topic}")
    candidates = {
        "identity": [name],
        "prefix": [name.removeprefix(f"{link.source}{naming.separator}")],
        "pattern": [name.removeprefix(before).removesuffix(after)],
        "map": _old_names(naming.names).get(name, []),
        # an expression cannot be inverted: only topics that the link names
        "match": [each.replace("\\.", ".") for each in link.topics] if naming.kind == "match" else [],
    }[naming.kind]
    return (each for each in candidates if link.filter.matches(each) and _copy(link, each) == name)


@lru_cache(maxsize=256)
def _old_names(names: tuple[tuple[str, str], ...]) -> Mapping[str, Sequence[str]]:
    found: dict[str, list[str]] = {}
    for old, new in names:
        found.setdefault(new, []).append(old)
    return found


def _copy(link: LinkShape, topic: str) -> str:
    """Returns the name of a copy; empty if there can be none."""
    try:
        return link.target_naming.target_topic(topic)
    except TopicError:
        return ""
