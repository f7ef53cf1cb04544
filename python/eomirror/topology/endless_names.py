"""
Detects links whose target names grow without end. Pure.

Prefix naming is safe: a link skips topics whose name shows that they have passed its target, unless the separator
occurs in its alias.  Two links with other naming policies can form such a cycle.  The loop guard drops the records, but
every topic is new to the other link::

    east                         west
    orders                  ->   east_orders
    west_east_orders        <-
                            ->   east_west_east_orders      and so on, up to Kafka's 249 characters

This module does not decide whether a regular expression matches all names that another produces.  It follows the
literal parts of the patterns from link to link.  A name that reaches half of Kafka's limit, on a path that passes a
link three times, is the proof.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.errors import TopicError
from eomirror.topology.flow import GraphFault
from eomirror.topology.naming import MAX_TOPIC_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eomirror.topology.flow import LinkShape

__all__ = ["growing_names"]

_LONG = MAX_TOPIC_LENGTH // 2
_SHORT = MAX_TOPIC_LENGTH // 4
_ROUNDS = 3
# a mesh of links with other naming policies has a path for every sequence of them; one growing path is enough
_MOST_NAMES = 2000
_ANYTHING = ("TOPIC", "topic")


@dataclass(frozen=True, slots=True)
class _Hop:
    """A topic with its path: ``links[n]`` reads ``names[n]``; the last name has no reader yet."""

    names: tuple[str, ...]
    links: tuple[int, ...]

    @property
    def grown(self) -> bool:
        return len(self.names[-1]) > _LONG and max(Counter(self.links).values(), default=0) >= _ROUNDS


def growing_names(links: Sequence[LinkShape]) -> Iterator[GraphFault]:
    """Yields a fault for each cycle of links in which a name grows, at its first link in the file."""
    if all(link.naming.kind == "identity" or link.naming.shows(link.target) for link in links):
        return  # a mesh of ten clusters has too many paths to follow them for nothing
    reported: set[frozenset[int]] = set()
    for start, link in enumerate(links):
        for topic in _samples(link):
            way = _growth(links, start, topic)
            if way is None:
                continue
            circle = frozenset(way.links)
            if circle not in reported:
                reported.add(circle)
                yield _fault(links, way)
            break


def _samples(link: LinkShape) -> list[str]:
    """Returns sample names that the link mirrors: the literal parts of its patterns, or placeholders."""
    spelled = (re.sub(r"\\?[.][*+]|[^a-zA-Z0-9._-]", "", pattern) for pattern in link.topics)
    return [
        name
        for name in dict.fromkeys((*spelled, *_ANYTHING))
        if 0 < len(name) <= _SHORT and link.filter.matches(name)
    ]


def _growth(links: Sequence[LinkShape], start: int, topic: str) -> _Hop | None:
    """Returns a path from a link on which the name grows; None if there is none."""
    seen: set[tuple[str, str]] = set()
    waiting = [(start, _Hop((topic,), ()))]
    while waiting and len(seen) < _MOST_NAMES:
        number, hop = waiting.pop()
        link = links[number]
        try:
            name = link.target_naming.target_topic(hop.names[-1])
        except TopicError:
            continue  # the link reports this when it discovers the topic, and creates no target topic
        further = _Hop((*hop.names, name), (*hop.links, number))
        if further.grown:
            return further
        if (link.target, name) not in seen:
            seen.add((link.target, name))
            waiting.extend(
                (other, further)
                for other, then in enumerate(links)
                if then.source == link.target and then.filter.matches(name)
            )
    return None


def _fault(links: Sequence[LinkShape], way: _Hop) -> GraphFault:
    first, second = links[way.links[0]], links[way.links[1]]
    shown = ", which becomes ".join(
        f"{name} on {links[number].target}"
        for name, number in zip(way.names[1:4], way.links[:3], strict=True)
    )
    return GraphFault(
        way.links[0],
        "naming",
        f"names grow without end: {way.names[0]} of {first.source} becomes {shown}, and so on",
        f"use `naming: prefix`, or put topics like {way.names[1]} under `exclude` of {second.name}",
    )
