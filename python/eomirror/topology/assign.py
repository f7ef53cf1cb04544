"""
Which lane mirrors which partition: pure, deterministic, and as sticky as rule 2 asks.

Within a generation no partition may change its lane, so known partitions stay and new ones go where there is
least.  With another number of lanes everything is laid out afresh, in a new generation.
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
    Lay partitions out over lanes.

    Args:
        previous: The layout before, if there was one.
        lanes: How many lanes there are to be.
        partitions: Everything to mirror now.

    Returns:
        The layout; partitions of ``previous`` that are not mirrored now are parked, not forgotten.
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
        # least loaded first; among equals the lane that has least of this topic, so that one busy topic spreads
        lane = min(range(lanes), key=lambda number: (load[number], by_topic[item.topic, number], number))
        layout[item] = lane
        load[lane] += 1
        by_topic[item.topic, lane] += 1
    return Assignment(lanes, layout, known - frozenset(layout))
