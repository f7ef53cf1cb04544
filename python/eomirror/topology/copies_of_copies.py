"""
Detects links with prefixed names that bring a cluster records which reach it on another path already. Pure.

In a mesh with ``topics: [".*"]`` each copy is a topic like any other, so it is mirrored onward::

    a: orders  ->  b: a.orders  ->  c: b.a.orders
               ----------------->  c: a.orders

A consumer of ``.*orders`` on c reads each record of a twice.  In a chain without the second path the same copy is the
only one, and meant.  The paths of sample names are followed, because patterns alone do not decide it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.errors import TopicError
from eomirror.topology.flow import GraphFault
from eomirror.topology.own_cluster import sample_topics

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eomirror.topology.flow import LinkShape

__all__ = ["copies_of_copies"]

# a mesh has a path for every sequence of its clusters; two hops show the links at fault
_MOST_HOPS = 3
_MOST_NAMES = 5000


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
                if link.source != cluster or not link.filter.matches(name) or len(seen) > _MOST_NAMES:
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
