"""What the lanes of a published generation mirror, as the driver hands it to them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eomirror.lane.spec import AssignedPartition
    from eomirror.records.control import Generation, Stopped

__all__ = ["Layout", "by_lane", "layout_of"]


@dataclass(frozen=True, slots=True)
class Layout:
    """
    What the lanes of a generation mirror.

    Attributes:
        generation: Its number.
        source_cluster_id: Id of the source cluster.
        target_cluster_id: Id of the target cluster.
        lanes: Partitions of each lane.
        provenance_header: Whether they mark what they copy.
        stopped: Topics that control shows as stopped, by earlier runs.
    """

    generation: int
    source_cluster_id: str
    target_cluster_id: str
    lanes: dict[int, tuple[AssignedPartition, ...]]
    provenance_header: bool = False
    stopped: tuple[Stopped, ...] = ()


def layout_of(
    generation: Generation,
    partitions: Sequence[AssignedPartition],
    cluster_ids: tuple[str, str],
    *,
    provenance_header: bool,
    stopped: tuple[Stopped, ...] = (),
) -> Layout:
    """
    The layout of a generation; a lane without partitions has an empty entry.

    Args:
        generation: As published.
        partitions: Everything that it mirrors.
        cluster_ids: Of source and target.
        provenance_header: Whether lanes mark what they copy.
        stopped: Topics that control shows as stopped.
    """
    none = dict.fromkeys(range(generation.assignment.lanes), ())
    lanes = {**none, **by_lane(generation, partitions)}
    return Layout(generation.generation, *cluster_ids, lanes, provenance_header, stopped)


def by_lane(
    generation: Generation, partitions: Sequence[AssignedPartition]
) -> dict[int, tuple[AssignedPartition, ...]]:
    """Of these partitions, what each lane of the generation has."""
    lanes: dict[int, list[AssignedPartition]] = {}
    for item in partitions:
        lanes.setdefault(generation.assignment.partitions[item.source], []).append(item)
    return {lane: tuple(items) for lane, items in lanes.items()}
