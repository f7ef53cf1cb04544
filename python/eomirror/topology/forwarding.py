"""
Builds the forwarding trees of records when several clusters use equal names. Pure.

One tree per origin cluster: shortest path over the links, ties by the names of the clusters on it.  A tree presumes
that its links mirror the same topics.  If a link outside the tree would drop an origin, but the tree does not certainly
mirror all of the link's topics, there is no valid tree and the user must set `forward`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from eomirror.topology.flow import GraphFault, LinkShape, covers, overlap

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["forwarding"]


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
