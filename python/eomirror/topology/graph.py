"""
Detects replication cycles and duplicates between links, and decides the rules that prevent them. Pure.

Prefix naming needs names only: `TopicFilter` refuses a topic that has passed source or target.  With equal names the
record must tell: the provenance header names its origin cluster, and a link drops records that have passed its target.
That stops cycles, but not duplicates: with equal names on A, B and C a record of A reaches C from A and again from B.
So every origin cluster O gets one fixed tree of links (shortest path, ties by the names of its clusters), and link
X -> Y forwards records of O only if it is in O's tree::

    full mesh          X -> Y carries what is local to X
    ring A-B-C-D       D gets A's records directly, C gets them through B (A.B.C before A.D.C)
    hub H, leaves      leaf -> H carries the leaf; H -> leaf carries H and all other leaves

A tree presumes that its links mirror the same topics.  If a link outside the tree would drop an origin, but the tree
does not certainly mirror all of the link's topics, there is no valid tree and the user must set `forward`.

`Flow.MAYBE` counts as yes here, except that only a certain yes forbids ``provenance: off``.

On several clusters with equal names an application may create `orders` on one of them.  The links create it on the
others, so a link whose source lacks it waits for another link.  A topic that no cluster of the chain has is a mistake::

    spoke1 orders --spoke1->hub--> hub (no orders yet) --hub->spoke2--> spoke2
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from eomirror.errors import TopicError
from eomirror.topology.flow import (
    Flow,
    GraphFault,
    LinkShape,
    LoopRules,
    UpstreamTopic,
    covers,
    flow,
    overlap,
)
from eomirror.topology.naming import illegal_name, shortens
from eomirror.topology.warnings import copies_of_copies, growing_names

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

__all__ = ["GraphFault", "LinkShape", "LoopRules", "Topology", "forwarding", "topology"]


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


@dataclass(frozen=True, slots=True)
class Topology:
    """
    Result for all links.

    Attributes:
        rules: Rules of each link, in their order.
        faults: Faults: the configuration is refused.
        warnings: Possible problems that the file alone does not decide.
    """

    rules: tuple[LoopRules, ...]
    faults: tuple[GraphFault, ...] = ()
    warnings: tuple[GraphFault, ...] = ()


def topology(links: Sequence[LinkShape]) -> Topology:
    """
    Decides the rules of all links against cycles and duplicates.

    Args:
        links: Links of one configuration; aliases differ, names are unique.

    Returns:
        Rules, faults and warnings; rules are meaningful only without faults.
    """
    possible = _cycles(links, Flow.MAYBE)
    certain = _cycles(links, Flow.YES)
    equal = [index for index, link in enumerate(links) if link.naming.kind == "identity"]
    duplicates = _duplicates([links[index] for index in equal])
    meet = {equal[position] for position in duplicates}
    guarded = possible | meet
    faults = list(growing_names(links))
    warnings = list(copies_of_copies(links))
    for index in sorted(guarded):
        link = links[index]
        if link.provenance != "off":
            continue
        what = "return to their origin" if index in possible else "arrive twice"
        fault = GraphFault(
            index,
            "provenance",
            f"without provenance, records that {link.name} mirrors {'' if index in certain | meet else 'may '}{what}",
            "remove `provenance: off`, or use `naming: prefix`, or mirror different topics in each direction",
        )
        (faults if index in certain | meet else warnings).append(fault)
    headers = {
        index
        for index, link in enumerate(links)
        if link.provenance == "on"
        or (link.provenance == "auto" and (index in guarded or link.forward != "auto"))
    }
    origins, tree_faults = forwarding(links, [index for index in equal if index in guarded], headers)
    faults.extend(tree_faults)
    rules = []
    following = _following(links, Flow.MAYBE)
    for index, link in enumerate(links):
        on = index in headers
        if link.forward != "auto" and link.provenance == "off":
            faults.append(
                GraphFault(
                    index,
                    "forward",
                    "`forward` needs the provenance header, which `provenance: off` forbids",
                    "remove one of the two",
                )
            )
        back = [then for then in following[index] if index in _reachable(following, [then])]
        onward = tuple(links[then].filter for then in back) if index in possible else ()
        why = _why(link, index, possible, meet)
        rules.append(
            LoopRules(on, on or index in guarded, origins.get(index), why, onward, upstream(links, link))
        )
    return Topology(tuple(rules), tuple(faults), tuple(warnings))


def _why(link: LinkShape, index: int, possible: Collection[int], meet: Collection[int]) -> str:
    if link.provenance != "auto":
        return f"provenance: {link.provenance}"
    if index in possible:
        return "its records could return through other links"
    if index in meet:
        return "equal names reach a cluster on more than one path"
    if link.forward != "auto":
        return "`forward` selects origins"
    return "prefixed names show the origin" if link.naming.shows(link.source) else LoopRules().why


# -- cycles: links on a closed path along which names can flow ------------------------------------


def _cycles(links: Sequence[LinkShape], least: Flow) -> set[int]:
    following = _following(links, least)
    reach = {index: _reachable(following, following[index]) for index in following}
    found = set()
    for index in range(len(links)):
        if index not in reach[index]:
            continue
        circle = {index} | {other for other in reach[index] if index in reach[other]}
        if not any(_ends(links, following, index, circle, one_way) for one_way in _ONE_WAY):
            found.add(index)
    return found


#: Links whose names do not return: the filter refuses a prefixed one, and a name cannot get shorter for ever.
_ONE_WAY: tuple[Callable[[LinkShape], bool], ...] = (
    lambda link: link.naming.shows(link.target),
    lambda link: shortens(link.naming),
)


def _ends(
    links: Sequence[LinkShape],
    following: Mapping[int, Sequence[int]],
    index: int,
    circle: Collection[int],
    one_way: Callable[[LinkShape], bool],
) -> bool:
    """Returns True if all paths from a link back to itself pass such a policy, and no policy undoes it."""
    ending = {n for n in circle if one_way(links[n])}
    if not all(n in ending or links[n].naming.kind == "identity" for n in circle):
        return False
    rest = {n: [m for m in following[n] if m in circle and m not in ending] for n in circle}
    return index in ending or index not in _reachable(rest, rest[index])


def _following(links: Sequence[LinkShape], least: Flow) -> dict[int, list[int]]:
    """Returns, for each link, the links that can mirror its target topics onward."""
    return {
        index: [other for other, then in enumerate(links) if flow(link, then) >= least]
        for index, link in enumerate(links)
    }


def _reachable(following: Mapping[int, Sequence[int]], start: Iterable[int]) -> set[int]:
    seen: set[int] = set()
    waiting = list(start)
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            waiting.extend(following.get(node, ()))
    return seen


# -- duplicates: two paths for equal names into one cluster ---------------------------------------


def _duplicates(links: Sequence[LinkShape]) -> set[int]:
    """Returns the positions of links on one of several paths between the same two clusters."""
    following = _following(links, Flow.MAYBE)
    found: set[int] = set()
    for origin in sorted({link.source for link in links}):
        starts = [index for index, link in enumerate(links) if link.source == origin]
        reached = _reachable(following, starts)
        for target in {links[index].target for index in reached} - {origin}:
            last = [index for index in reached if links[index].target == target]
            if len({links[index].source for index in last}) > 1 and _meet(links, last):
                ways = _ways_to(following, reached, last)
                found |= ways
    return found


def _meet(links: Sequence[LinkShape], last: Sequence[int]) -> bool:
    """Returns True if two of the links into one cluster can mirror the same topic."""
    return any(
        overlap(links[one], links[other])
        for one in last
        for other in last
        if one < other and links[one].source != links[other].source
    )


def _ways_to(following: Mapping[int, Sequence[int]], reached: set[int], last: Iterable[int]) -> set[int]:
    before: dict[int, list[int]] = {}
    for index in reached:
        for then in following[index]:
            before.setdefault(then, []).append(index)
    return _reachable(before, last) & reached


@dataclass(slots=True)
class _Trees:
    links: Sequence[LinkShape]
    tree: Sequence[int]
    chosen: dict[int, set[str]]
    carried: dict[int, set[str]]
    faults: list[GraphFault] = field(default_factory=list)

    def grow(self, origin: str, root: str) -> None:
        """Adds ``origin`` to every link of the tree that starts at ``root``."""
        usable = [n for n in self.tree if n in self.carried or origin in self.chosen.get(n, ())]
        ways = _shortest_ways(self.links, usable, root)
        for index in usable:
            link = self.links[index]
            if link.source not in ways or link.target == root:
                continue
            if ways[link.target][:-1] != ways[link.source]:
                self._check_left_out(index, origin, ways[link.target], usable)
            elif index in self.carried:
                self.carried[index].add(origin)

    def _check_left_out(self, index: int, origin: str, way: tuple[str, ...], usable: Sequence[int]) -> None:
        """Checks that a link outside of the tree may drop the origin, and that the tree mirrors all of its topics."""
        link = self.links[index]
        steps = [
            [n for n in usable if (self.links[n].source, self.links[n].target) == step]
            for step in pairwise(way)
        ]
        if index in self.chosen:
            if any(overlap(link, self.links[n]) for n in steps[-1]):
                self.faults.append(
                    GraphFault(
                        index,
                        "forward",
                        f"records of {origin} would reach {link.target} from {link.source} and from {way[-2]}",
                        f"leave {origin} out of `forward` here, or set `forward: local` on {way[-2]}->{link.target}",
                    )
                )
            return
        for step, (before, after) in zip(steps, pairwise(way), strict=True):
            if not any(covers(self.links[n], link) for n in step):
                self.faults.append(
                    GraphFault(
                        index,
                        "forward",
                        f"auto finds no tree: records of {origin} reach {link.target} through {' -> '.join(way)}, "
                        f"but {before} -> {after} does not certainly mirror all topics of {link.name}",
                        "give these links the same `topics` and `exclude`, or set `forward` (local, or a list)",
                    )
                )
                return


def forwarding(
    links: Sequence[LinkShape], tree: Sequence[int], headers: Collection[int]
) -> tuple[dict[int, tuple[str, ...]], list[GraphFault]]:
    """
    Returns the forwarded origins of each link that needs them, and faults; an explicit ``forward`` is used as it is.

    Args:
        links: All links.
        tree: Indexes of links with equal names on which records can meet: they form the trees.
        headers: Indexes of links that add the provenance header; records from outside the trees enter through them.
    """
    chosen = {
        index: {link.source} if link.forward == "local" else set(link.forward)
        for index, link in enumerate(links)
        if link.forward != "auto"
    }
    trees = _Trees(links, tree, chosen, {index: set() for index in tree if index not in chosen})
    inside = {links[index].source for index in tree} | {links[index].target for index in tree}
    for origin in sorted(inside):
        trees.grow(origin, origin)
    for origin, entries in sorted(_entries(links, inside, set(headers) - set(tree)).items()):
        for root in sorted({links[index].target for index in entries}):
            trees.grow(origin, root)
        if len({links[index].target for index in entries}) > 1:
            trees.faults.append(
                GraphFault(
                    entries[-1],
                    "target",
                    f"records of {origin} enter at {' and '.join(sorted(links[n].target for n in entries))}, and "
                    "would be duplicated: these clusters use equal names and forward records to each other",
                    f"mirror {origin} to one of these clusters only, or set `forward: local` between them",
                )
            )
    result = {index: tuple(sorted(origins)) for index, origins in {**trees.carried, **chosen}.items()}
    return result, trees.faults


def _entries(
    links: Sequence[LinkShape], inside: Collection[str], feeders: Collection[int]
) -> dict[str, list[int]]:
    """Returns, for every origin outside of the trees, the links through which its records enter with a header."""
    found: dict[str, list[int]] = {}
    for index in sorted(feeders):
        if links[index].target not in inside:
            continue
        origins = {links[index].source}
        while more := {links[n].source for n in feeders if links[n].target in origins} - origins:
            origins |= more
        for origin in origins - set(inside):
            found.setdefault(origin, []).append(index)
    return found


def _shortest_ways(
    links: Sequence[LinkShape], usable: Sequence[int], origin: str
) -> dict[str, tuple[str, ...]]:
    """Returns the shortest path from ``origin`` to every cluster, as clusters; ties by name."""
    ways: dict[str, tuple[str, ...]] = {origin: (origin,)}
    edge: list[tuple[str, ...]] = [(origin,)]
    while edge:
        found: dict[str, tuple[str, ...]] = {}
        for way in edge:
            for index in usable:
                link = links[index]
                if link.source == way[-1] and link.target not in ways:
                    longer = (*way, link.target)
                    found[link.target] = min(found.get(link.target, longer), longer)
        ways.update(found)
        edge = sorted(found.values())
    return ways
