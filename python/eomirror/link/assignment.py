"""
Lane assignment of a published generation, as the driver hands it to the lanes. Pure.

Within a generation no partition may change its lane, so known partitions keep theirs and new ones go to the least
loaded lane: that of the fewest partitions, or of the fewest bytes where these are known.  With another number of lanes
all partitions are assigned again, in a new generation; for a backfill too, by the offsets that each has left to copy::

    left    9 M, 4 M, 3 M, 2 M and 60 partitions without any; 2 lanes
    lanes   9 M and 31 of the 60  |  4 + 3 + 2 M and 29 of the 60
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.types import Assignment, SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from eomirror.lane.spec import AssignedPartition
    from eomirror.records.control import Generation, Pause, Stopped
    from eomirror.records.position import Position

__all__ = ["Layout", "assign", "by_lane", "estimated_bytes", "layout_of", "lent"]


def assign(
    previous: Assignment | None,
    lanes: int,
    partitions: Iterable[SourcePartition],
    *,
    backlog: Mapping[SourcePartition, int] | None = None,
    weights: Mapping[SourcePartition, float] | None = None,
) -> Assignment:
    """
    Assigns partitions to lanes.

    Args:
        previous: The layout before; None for the first.
        lanes: Number of lanes.
        partitions: All partitions to mirror.
        backlog: Offsets that each has left to copy: all partitions are assigned again, so that no lane has much more of
            them than it must; empty to assign all again.  None to keep what ``previous`` says.
        weights: Bytes that partitions need or have had, of those that are known; another one counts as their mean.
            Without any, and without a backlog, partitions are assigned by their number.

    Returns:
        The layout; partitions of ``previous`` that are no longer mirrored are parked.
    """
    wanted = sorted(set(partitions))
    kept: dict[SourcePartition, int] = {}
    known: frozenset[SourcePartition] = frozenset()
    if previous is not None:
        known = previous.known
        if previous.lanes == lanes and backlog is None:
            kept = {item: previous.partitions[item] for item in wanted if item in previous.partitions}
    given = backlog or weights or {}
    # what a partition has left to copy is known of all; nothing is known of a new one
    usual = 0.0 if backlog else sum(given.values()) / max(1, len(given))
    weight = {item: given.get(item, usual) for item in wanted}
    # largest first, each into the lane with the least: within 4/3 of the best layout (Graham, 1969)
    wanted.sort(key=lambda item: -weight[item])
    heavy: defaultdict[int, float] = defaultdict(float)
    for item, lane in kept.items():
        heavy[lane] += weight[item]
    load = Counter(kept.values())
    by_topic = Counter((item.topic, lane) for item, lane in kept.items())
    layout = dict(kept)
    for item in wanted:
        if item in layout:
            continue
        # the least loaded lane; among equals the one with the fewest partitions of this topic, to spread a busy topic
        lane = min(
            range(lanes),
            key=lambda number: (
                heavy[number] if weight[item] else 0.0,
                load[number],
                by_topic[item.topic, number],
                number,
            ),
        )
        layout[item] = lane
        heavy[lane] += weight[item]
        load[lane] += 1
        by_topic[item.topic, lane] += 1
    return Assignment(lanes, layout, known - frozenset(layout))


def estimated_bytes(positions: Collection[Position]) -> dict[SourcePartition, float]:
    """
    Returns the bytes that were mirrored of each partition since the link first ran, as far as its positions tell.

    They count the records, and the bytes of the last transaction only.
    """
    records = sum(one.records for one in positions)
    usual = sum(one.bytes for one in positions) / records if records else 1.0
    return {
        one.source: one.total_records * (one.bytes / one.records if one.records else usual)
        for one in positions
        if one.total_records
    }


def lent(
    partitions: Mapping[SourcePartition, int], lane: int, to: Collection[int]
) -> dict[SourcePartition, int]:
    """
    Returns the lanes that get the partitions of a lane, the least loaded first.

    Args:
        partitions: Lane of each partition.
        lane: The lane that gives its partitions.
        to: Lanes that can take them; none for no move.
    """
    load = {other: 0 for other in to if other != lane}
    for other in partitions.values():
        if other in load:
            load[other] += 1
    taken: dict[SourcePartition, int] = {}
    for source in sorted(source for source, number in partitions.items() if number == lane):
        if not load:
            break
        taken[source] = least = min(load, key=lambda number: (load[number], number))
        load[least] += 1
    return taken


@dataclass(frozen=True, slots=True)
class Layout:
    """
    Partitions of each lane of a generation.

    Attributes:
        lanes: Lane number -> partitions; a lane without partitions has an empty tuple.
        provenance_header: True if lanes add the provenance header to copies.
        stopped: Topics that earlier runs stopped, as control says.
        pause: Pause that stands.
    """

    generation: int
    source_cluster_id: str
    target_cluster_id: str
    lanes: dict[int, tuple[AssignedPartition, ...]]
    provenance_header: bool = False
    stopped: tuple[Stopped, ...] = ()
    pause: Pause | None = None


def layout_of(
    generation: Generation,
    partitions: Sequence[AssignedPartition],
    cluster_ids: tuple[str, str],
    *,
    provenance_header: bool,
    stopped: tuple[Stopped, ...] = (),
    pause: Pause | None = None,
) -> Layout:
    """
    Returns the layout of a generation; a lane without partitions has an empty entry.

    Args:
        generation: The published generation.
        partitions: All partitions that it mirrors.
        cluster_ids: Ids of source and target.
        provenance_header: True if lanes add the provenance header to copies.
        stopped: Topics that control shows as stopped.
        pause: Pause that stands.
    """
    none = dict.fromkeys(range(generation.assignment.lanes), ())
    lanes = {**none, **by_lane(generation, partitions)}
    return Layout(generation.generation, *cluster_ids, lanes, provenance_header, stopped, pause)


def by_lane(
    generation: Generation, partitions: Sequence[AssignedPartition]
) -> dict[int, tuple[AssignedPartition, ...]]:
    """Groups partitions by the lane that the generation assigns them to; a running lane learns its generation so."""
    lanes: dict[int, list[AssignedPartition]] = {}
    for one in partitions:
        lane = generation.assignment.partitions[one.source]
        item = replace(one, generation=generation.of_lane(lane)) if generation.since else one
        lanes.setdefault(lane, []).append(item)
    return {lane: tuple(items) for lane, items in lanes.items()}
