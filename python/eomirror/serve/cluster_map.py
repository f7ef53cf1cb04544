"""
Lays out the map of clusters and links. Pure.

Clusters stand in columns: a link leads to the right, unless links lead back to where it starts, as in two clusters that
mirror each other.  Each link has a row for its label between two columns, so that no two labels meet::

    +------+          +------+
    |      |--label-->|      |
    | east |          | west |
    |      |<--label--|      |
    +------+          +------+
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.serve.body import Judged

__all__ = ["Box", "ClusterMap", "Edge", "cluster_map"]

#: More links than these are a grid: a map of them would be a tangle.
MOST_LINKS = 12
MOST_COLUMNS = 4

# four columns fill a page
_NODE_WIDTH = 130
_NODE_HEIGHT = 46
_LABEL_WIDTH = 128
_CURVE = 36
_GAP = _LABEL_WIDTH + 2 * _CURVE
_ROW = 58
_PORT = 16
_EDGE = 8
_MOST_LETTERS = 14


@dataclass(frozen=True, slots=True)
class Box:
    """A cluster: the upper left corner, its size, and its name, shortened if it is long."""

    name: str
    shown: str
    x: int
    y: int
    width: int
    height: int


@dataclass(frozen=True, slots=True)
class Edge:
    """
    A link, the path of its line and the middle of its label.

    Attributes:
        back: True if it leads to the left.
    """

    link: Judged
    path: str
    x: int
    y: int
    back: bool


@dataclass(frozen=True, slots=True)
class ClusterMap:
    """A picture of clusters and links, with its size and the number of its columns."""

    boxes: tuple[Box, ...]
    edges: tuple[Edge, ...]
    columns: int
    width: int
    height: int
    label_width: int = _LABEL_WIDTH


# a cluster, or the place where a long link passes a column: link and column
_Place = tuple[str, int]


@dataclass(slots=True)
class _Route:
    """A link with the places that it passes, from left to right."""

    link: Judged
    places: list[_Place]
    back: bool


def cluster_map(links: Sequence[Judged]) -> ClusterMap | None:
    """Returns the map of links, or None if they are too many for one."""
    if not 0 < len(links) <= MOST_LINKS:
        return None
    columns = _columns([(link.facts.source, link.facts.target) for link in links])
    if max(columns.values()) >= MOST_COLUMNS:
        return None
    routes = [_route(number, link, columns) for number, link in enumerate(links)]
    return _drawn(routes)


def _columns(ends: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Returns the column of each cluster: behind all from which it is mirrored, unless they are mirrored from it."""
    after: dict[str, set[str]] = defaultdict(set)
    for source, target in ends:
        if source != target and not _reaches(after, target, source):
            after[source].add(target)
    found = dict.fromkeys([cluster for pair in ends for cluster in pair], 0)
    # as long as the longest path: each pass settles one more column
    for _ in found:
        for source, targets in after.items():
            for target in targets:
                found[target] = max(found[target], found[source] + 1)
    return found


def _reaches(after: Mapping[str, set[str]], start: str, goal: str) -> bool:
    seen, waiting = set(), [start]
    while waiting:
        here = waiting.pop()
        if here == goal:
            return True
        if here not in seen:
            seen.add(here)
            waiting += after.get(here, ())
    return False


def _route(number: int, link: Judged, columns: Mapping[str, int]) -> _Route:
    ends = sorted((link.facts.source, link.facts.target), key=lambda cluster: columns[cluster])
    left, right = columns[ends[0]], columns[ends[1]]
    passed = [(f"\0{number}", column) for column in range(left + 1, right)]
    back = ends[0] != link.facts.source
    return _Route(link, [(ends[0], left), *passed, (ends[1], right)], back)


def _drawn(routes: Sequence[_Route]) -> ClusterMap:
    centers = _centers(routes)
    # the rows of the labels between each two columns; a link that passes a column has its label before it
    steps = sorted(
        ((route, at) for route in routes for at in range(len(route.places) - 1)),
        key=lambda step: sum(centers[place] for place in step[0].places[step[1] : step[1] + 2]),
    )
    rows: dict[tuple[int, int], int] = {}
    lowest: dict[int, int] = defaultdict(lambda: _EDGE + _ROW // 2)
    for route, at in steps:
        column = route.places[at][1]
        middle = (centers[route.places[at]] + centers[route.places[at + 1]]) // 2
        rows[id(route), at] = max(middle - _spread(steps, route, at), lowest[column])
        lowest[column] = rows[id(route), at] + _ROW
    ports = _ports(steps, rows, centers)
    edges = [_edge(route, rows, ports) for route in routes]
    boxes = [_box(place, centers[place], ports) for place in centers if not place[0].startswith("\0")]
    bottom = max([box.y + box.height for box in boxes] + [row + _ROW // 2 for row in rows.values()])
    columns = 1 + max(column for _, column in centers)
    width = _left(columns - 1) + _NODE_WIDTH + _EDGE
    return ClusterMap(tuple(boxes), tuple(edges), columns, width, bottom + _EDGE)


def _spread(steps: Sequence[tuple[_Route, int]], route: _Route, at: int) -> int:
    """Returns how far a link stands above the middle of all links between the same two places."""
    pair = route.places[at : at + 2]
    same = [id(one) for one, step in steps if one.places[step : step + 2] == pair]
    return round(((len(same) - 1) / 2 - same.index(id(route))) * _ROW)


def _centers(routes: Sequence[_Route]) -> dict[_Place, int]:
    """Returns the vertical middle of each place; a column is as high as the links at its places need."""
    sides: dict[_Place, list[int]] = defaultdict(lambda: [0, 0])
    neighbours: dict[_Place, list[_Place]] = defaultdict(list)
    for route in routes:
        for left, right in pairwise(route.places):
            sides[left][1] += 1
            sides[right][0] += 1
            neighbours[right].append(left)
            neighbours[left].append(right)
    columns: dict[int, list[_Place]] = defaultdict(list)
    for place in sides:
        columns[place[1]].append(place)
    needed = {place: max(sides[place]) * _ROW for place in sides}
    height = max(sum(needed[place] for place in places) for places in columns.values())
    found: dict[_Place, int] = {}
    for _, places in sorted(columns.items()):
        before = {
            place: [found[other] for other in neighbours[place] if other in found] or [0] for place in places
        }
        places.sort(key=lambda place: sum(before[place]) / len(before[place]))
        y = _EDGE + (height - sum(needed[place] for place in places)) // 2
        for place in places:
            found[place] = y + needed[place] // 2
            y += needed[place]
    return found


def _ports(
    steps: Sequence[tuple[_Route, int]], rows: Mapping[tuple[int, int], int], centers: Mapping[_Place, int]
) -> dict[tuple[_Place, int, int], int]:
    """Returns the height at which each link leaves and enters each place, those with higher labels above."""
    ends: dict[tuple[_Place, str], list[tuple[int, int, int]]] = defaultdict(list)
    for route, at in steps:
        row = rows[id(route), at]
        ends[route.places[at], "right"].append((row, id(route), at))
        ends[route.places[at + 1], "left"].append((row, id(route), at + 1))
    found = {}
    for (place, _), some in ends.items():
        some.sort()
        for number, (_, route_id, at) in enumerate(some):
            found[place, route_id, at] = centers[place] + round((number - (len(some) - 1) / 2) * _PORT)
    return found


def _left(column: int) -> int:
    return _EDGE + column * (_NODE_WIDTH + _GAP)


def _edge(
    route: _Route, rows: Mapping[tuple[int, int], int], ports: Mapping[tuple[_Place, int, int], int]
) -> Edge:
    """Returns a line from box to box; the arrow stands at the end of its path."""
    # corners of the line, from left to right; between two of them it is a curve
    points: list[tuple[int, int]] = []
    for at, place in enumerate(route.places):
        y = ports[place, id(route), at]
        if at:
            points.append((_left(place[1]), y))
        if at < len(route.places) - 1:
            x = _left(place[1]) + _NODE_WIDTH
            row = rows[id(route), at]
            points += [(x, y), (x + _CURVE, row), (x + _CURVE + _LABEL_WIDTH, row)]
    label = rows[id(route), 0]
    x = _left(route.places[0][1]) + _NODE_WIDTH + _GAP // 2
    if route.back:
        points.reverse()
    path = f"M{points[0][0]} {points[0][1]}"
    for (ax, ay), (bx, by) in pairwise(points):
        middle = (ax + bx) // 2
        path += f"H{bx}" if ay == by else f"C{middle} {ay} {middle} {by} {bx} {by}"
    return Edge(route.link, path, x, label, route.back)


def _box(place: _Place, center: int, ports: Mapping[tuple[_Place, int, int], int]) -> Box:
    heights = [y for (each, _, _), y in ports.items() if each == place]
    height = max(_NODE_HEIGHT, max(heights) - min(heights) + 2 * _PORT)
    name = place[0]
    shown = name if len(name) <= _MOST_LETTERS else f"{name[: _MOST_LETTERS - 1]}…"
    return Box(name, shown, _left(place[1]), center - height // 2, _NODE_WIDTH, height)
