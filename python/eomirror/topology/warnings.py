"""
Finds links that meet in one copy, that name copies without end, or that bring a record twice. Pure.

Records of two sources in one topic are an aggregate, which is a use as well as a common mistake.  The answer is certain
if a link spells out its topics, or if both have the same naming and their patterns overlap.

Each topic needs a copy of another name, which the link must not read again: it would mirror its own copies for ever.
This module knows the names that the configuration spells out, and those that its patterns suggest.  A topic that only
the cluster shows is refused by its name when the link discovers it (`eomirror.topics.discovery`).

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

In a mesh with ``topics: [".*"]`` each copy is a topic like any other, so it is mirrored onward::

    a: orders  ->  b: a.orders  ->  c: b.a.orders
               ----------------->  c: a.orders

A consumer of ``.*orders`` on c reads each record of a twice.  In a chain without the second path the same copy is the
only one, and meant.  The paths of sample names are followed, because patterns alone do not decide it.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.errors import TopicError
from eomirror.topology.filters import is_literal
from eomirror.topology.flow import Flow, GraphFault, covers, literal_targets, overlap
from eomirror.topology.naming import MAX_TOPIC_LENGTH

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eomirror.topology.flow import LinkShape

__all__ = ["copies_of_copies", "growing_names", "meeting", "own_cluster_fault", "sample_topics"]

# a mesh has a path for every sequence of its clusters; two hops show the links at fault
_MOST_HOPS = 3
_MOST_COPIES = 5000


@dataclass(frozen=True, slots=True)
class _Arrival:
    """A copy: ``topic`` on the source of the link ``last`` becomes ``name``, after ``hops`` links from its origin."""

    name: str
    topic: str
    last: int
    hops: int


def copies_of_copies(links: Sequence[LinkShape]) -> Iterator[GraphFault]:
    """Yields a warning for each link that mirrors copies of records which reach its target on a shorter path."""
    prefixed = {
        number for number, link in enumerate(links) if link.naming.kind == "prefix" and link.forward == "auto"
    }
    found: dict[int, set[str]] = {}
    shown: dict[int, tuple[str, str, str]] = {}
    for origin in sorted({links[number].source for number in prefixed}):
        starts = [number for number in prefixed if links[number].source == origin]
        for topic in dict.fromkeys(name for number in starts for name in sample_topics(links[number])):
            if any(topic.startswith(f"{links[number].source}.") for number in prefixed):
                continue  # a copy itself; its own origin is looked at
            for target, arrivals in _arrivals(links, prefixed, origin, topic).items():
                least = min(arrivals, key=lambda each: (each.hops, each.name))
                for each in arrivals:
                    if each.hops > least.hops:
                        found.setdefault(each.last, set()).add(each.topic.removesuffix(topic))
                        shown.setdefault(each.last, (target, each.name, least.name))
    for number in sorted(found):
        target, name, other = shown[number]
        pattern = _pattern(found[number], links[number].naming.separator)
        yield GraphFault(
            number,
            "topics",
            f"{links[number].name} also mirrors copies: on {target}, {name} has the same records as {other}, so a "
            "consumer of both reads them twice",
            f"add `exclude: ['{pattern}']` to {links[number].name}; or set `forward: local` under "
            "`defaults`, which mirrors each record only from the cluster where it was written",
        )


def _arrivals(
    links: Sequence[LinkShape], usable: set[int], origin: str, topic: str
) -> dict[str, list[_Arrival]]:
    """Returns the copies of a topic by the cluster that has them."""
    found: dict[str, list[_Arrival]] = {}
    seen = {(origin, topic)}
    edge = [(origin, topic)]
    for hops in range(1, _MOST_HOPS + 1):
        further = []
        for cluster, name in edge:
            for number in sorted(usable):
                link = links[number]
                if link.source != cluster or not link.filter.matches(name) or len(seen) > _MOST_COPIES:
                    continue
                try:
                    copy = link.target_naming.target_topic(name)
                except TopicError:
                    continue  # never created
                if (link.target, copy) not in seen:
                    seen.add((link.target, copy))
                    further.append((link.target, copy))
                    found.setdefault(link.target, []).append(_Arrival(copy, name, number, hops))
        edge = further
    return {cluster: arrivals for cluster, arrivals in found.items() if cluster != origin}


def _pattern(prefixes: set[str], separator: str) -> str:
    """Returns the expression of topics with one of the prefixes, without those that another one covers."""
    least = sorted(
        one for one in prefixes if not any(one != other and one.startswith(other) for other in prefixes)
    )
    texts = [re.escape(one.removesuffix(separator)).replace(r"\-", "-") for one in least]
    end = re.escape(separator).replace(r"\-", "-")
    return f"{texts[0]}{end}.*" if len(texts) == 1 else f"({'|'.join(texts)}){end}.*"


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


_ANY_TEXT = re.compile(r"\\?\.[*+]")
_FILLINGS = ("TOPIC", "topic", "")


def sample_topics(link: LinkShape) -> Iterator[str]:
    """Yields names that the link mirrors: its literal ones, and its patterns with a placeholder in place of ``.*``."""
    found = set()
    for pattern in (*link.topics, link.naming.match, *(old for old, _ in link.naming.names)):
        for filling in _FILLINGS:
            name = re.sub(r"[^a-zA-Z0-9._-]", "", _ANY_TEXT.sub(filling, pattern))
            if name and name not in found and link.filter.matches(name):
                found.add(name)
                yield name


_RENAME = (
    'rename the topics to names that `topics` do not match, as in topics: [".*_REPLICA"] with '
    'naming: {match: "(.*)_REPLICA", to: "$1"}'
)


def own_cluster_fault(link: LinkShape) -> tuple[str, str]:
    """Returns fault and fix of a link from a cluster to itself; empty texts if it is valid."""
    same = "source and target are the same cluster"
    if link.naming.kind in ("prefix", "identity"):
        return (
            f"{same}, where `naming: {link.naming.kind}` is of no use",
            f"name two different clusters; or, to copy topics within a cluster, {_RENAME}",
        )
    for topic in sample_topics(link):
        try:
            name = link.target_naming.target_topic(topic)
        except TopicError:
            continue  # never mirrored
        if name == topic or link.filter.accepts(name):
            return (
                f"{same}, and {topic} would be copied to {name}, which the link would mirror again",
                _RENAME,
            )
    return "", ""


def meeting(one: LinkShape, other: LinkShape) -> Flow:
    """Returns whether both links can write to a topic of the same name on the same cluster."""
    if one.target != other.target:
        return Flow.NO
    if _equally_named(one, other):
        return _overlap(one, other)
    known, other_known = _target_names(one), _target_names(other)
    if known is not None and other_known is not None:
        return _certain(yes=bool(known & other_known))
    for names, reader in ((known, other), (other_known, one)):
        if names is not None and reader.naming.kind in ("identity", "prefix"):
            return _certain(yes=any(_writes(reader, name) for name in names))
    kinds = {one.naming.kind, other.naming.kind}
    if "prefix" in kinds or (one.naming == other.naming and _names_source(one)):
        # Names that begin with the source's alias; a topic of such a name elsewhere is a coincidence.
        return Flow.NO
    return Flow.MAYBE


def _equally_named(one: LinkShape, other: LinkShape) -> bool:
    """Returns True if a topic has the same name on the target, whichever link mirrors it."""
    return one.naming == other.naming and (one.source == other.source or not _names_source(one))


def _names_source(link: LinkShape) -> bool:
    return link.naming.kind == "prefix" or "{source}" in link.naming.pattern


def _overlap(one: LinkShape, other: LinkShape) -> Flow:
    if not overlap(one, other):
        return Flow.NO
    # Literal names are certain; two patterns are certain only if one covers the other.
    spelled_out = any(all(map(is_literal, each.topics)) for each in (one, other))
    return Flow.YES if spelled_out or covers(one, other) or covers(other, one) else Flow.MAYBE


def _target_names(link: LinkShape) -> frozenset[str] | None:
    """Returns the names of all copies of a link; None if its patterns do not tell."""
    if link.naming.kind == "map":
        return frozenset(new for old, new in link.naming.names if link.filter.matches(old))
    if all(is_literal(pattern) for pattern in link.topics):
        return frozenset(literal_targets(link))
    return None


def _writes(link: LinkShape, name: str) -> bool:
    """Returns True if a link with names of the source, prefixed or not, may write a topic of this name."""
    prefix = f"{link.source}{link.naming.separator}" if link.naming.kind == "prefix" else ""
    return name.startswith(prefix) and link.filter.matches(name.removeprefix(prefix))


def _certain(*, yes: bool) -> Flow:
    return Flow.YES if yes else Flow.NO
