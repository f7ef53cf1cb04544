"""
Assigns partitions to lanes: deterministic, and as sticky as EO-2 requires. Pure.

Within a generation no partition may change its lane, so known partitions keep theirs and new ones go to the least
loaded lane.  With another number of lanes all partitions are assigned again, in a new generation.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from eomirror.types import Assignment, SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["assign"]


def assign(previous: Assignment | None, lanes: int, partitions: Iterable[SourcePartition]) -> Assignment:
    """
    Assigns partitions to lanes.

    Args:
        previous: The layout before; None for the first.
        lanes: Number of lanes.
        partitions: All partitions to mirror.

    Returns:
        The layout; partitions of ``previous`` that are no longer mirrored are parked.
    """
    wanted = sorted(set(partitions))
    kept: dict[SourcePartition, int] = {}
    known: frozenset[SourcePartition] = frozenset()
    if previous is not None:
        known = previous.known
        if previous.lanes == lanes:
            kept = {item: previous.partitions[item] for item in wanted if item in previous.partitions}
    load = Counter(kept.values())
    by_topic = Counter((item.topic, lane) for item, lane in kept.items())
    layout = dict(kept)
    for item in wanted:
        if item in layout:
            continue
        # the least loaded lane; among equals the one with the fewest partitions of this topic, to spread a busy topic
        lane = min(range(lanes), key=lambda number: (load[number], by_topic[item.topic, number], number))
        layout[item] = lane
        load[lane] += 1
        by_topic[item.topic, lane] += 1
    return Assignment(lanes, layout, known - frozenset(layout))
