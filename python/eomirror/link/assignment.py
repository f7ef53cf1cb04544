"""Lane assignment of a published generation, as the driver hands it to the lanes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.lane.spec import AssignedPartition
    from eomirror.records.control import Generation, Pause, Stopped

__all__ = ["Layout", "by_lane", "layout_of"]


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
    """Groups partitions by the lane that the generation assigns them to."""
    lanes: dict[int, list[AssignedPartition]] = {}
    for item in partitions:
        lanes.setdefault(generation.assignment.partitions[item.source], []).append(item)
    return {lane: tuple(items) for lane, items in lanes.items()}
