"""
Names that grow with each time round: topics without end. Pure.

Prefix naming cannot do it, for a link leaves out what has passed one of its ends by its name.  Two links with a policy
of one's own can.  The loop guard keeps records from going round, but the topics that hold them are new to the other
link each time::

    east                         west
    orders                  ->   east_orders
    west_east_orders        <-
                            ->   east_west_east_orders      and so on, up to Kafka's 249 characters

Whether a regular expression takes what another makes is not decided here.  Names that the patterns spell out are
followed from link to link; one that has grown to half of what Kafka allows, on a way that took some link three times,
is the proof.
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
# a mesh of links with names of their own has a way for every sequence of them; the first that grows is enough
_MOST_NAMES = 2000
_ANYTHING = ("TOPIC", "topic")


@dataclass(frozen=True, slots=True)
class _Hop:
    """A topic, and by which links it has come: ``names[n]`` is read by ``links[n]``, the last name by none yet."""

    names: tuple[str, ...]
    links: tuple[int, ...]

    @property
    def grown(self) -> bool:
        return len(self.names[-1]) > _LONG and max(Counter(self.links).values(), default=0) >= _ROUNDS


def growing_names(links: Sequence[LinkShape]) -> Iterator[GraphFault]:
    """A fault for each circle of links in which a name grows, at its first link in the file."""
    told: set[frozenset[int]] = set()
    for start, link in enumerate(links):
        for topic in _samples(link):
            way = _growth(links, start, topic)
            if way is None:
                continue
            circle = frozenset(way.links)
            if circle not in told:
                told.add(circle)
                yield _fault(links, way)
            break


def _samples(link: LinkShape) -> list[str]:
    """Names that the link mirrors: what its patterns spell out, or any."""
    spelled = (re.sub(r"\\?[.][*+]|[^a-zA-Z0-9._-]", "", pattern) for pattern in link.topics)
    return [
        name
        for name in dict.fromkeys((*spelled, *_ANYTHING))
        if 0 < len(name) <= _SHORT and link.filter.matches(name)
    ]


def _growth(links: Sequence[LinkShape], start: int, topic: str) -> _Hop | None:
    """A way on which the name grows, beginning with a link; None where it was not found."""
    seen: set[tuple[str, str]] = set()
    waiting = [(start, _Hop((topic,), ()))]
    while waiting and len(seen) < _MOST_NAMES:
        number, hop = waiting.pop()
        link = links[number]
        try:
            name = link.target_naming.target_topic(hop.names[-1])
        except TopicError:
            continue  # the link says so when it meets the topic, and creates none
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
    shown = ", that becomes ".join(
        f"{name} on {links[number].target}"
        for name, number in zip(way.names[1:4], way.links[:3], strict=True)
    )
    return GraphFault(
        way.links[0],
        "naming",
        f"names grow without end: {way.names[0]} of {first.source} becomes {shown}, and so on",
        f"use `naming: prefix`, or put topics like {way.names[1]} under `exclude` of {second.name}",
    )
