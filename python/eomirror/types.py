"""Value types that all packages share. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Assignment", "RunOptions", "SourcePartition", "lane_of"]


class SourcePartition(NamedTuple):
    """A partition of a topic on the source cluster."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """
    Orders of the user for the links of one run, from the command line to the owner of each link.

    Attributes:
        take_over: Take links over from a mirror that still runs (EO-10).
        adopt: Resume offsets for partitions whose position is missing or invalid; requires exactly one link.
        into_filled: Start even if target partitions hold records but the link has no position for them; mirrored
            records are appended.
        standby: Wait until a link's owner is gone before it is taken, and again after another mirror has taken it.
        although_promoted: Mirror links although they are promoted, as `eomirror restore --orphans merge` does.
        by_backlog: Assign all partitions to lanes again, by what each has left to copy (docs/adr/0029).
    """

    take_over: bool = False
    adopt: Mapping[SourcePartition, int] = field(default_factory=dict)
    into_filled: bool = False
    standby: bool = False
    although_promoted: bool = False
    by_backlog: bool = False


@dataclass(frozen=True, slots=True)
class Assignment:
    """
    Assignment of source partitions to lanes.

    Attributes:
        lanes: Number of lanes of the generation, numbered from 0.
        partitions: Lane of each assigned source partition.
        parked: Partitions that have a position but are no longer mirrored (their topic left the filter).
    """

    lanes: int
    partitions: dict[SourcePartition, int]
    parked: frozenset[SourcePartition] = frozenset()

    @property
    def known(self) -> frozenset[SourcePartition]:
        """All partitions that must have a position record."""
        return frozenset(self.partitions) | self.parked

    def of(self, lane: int) -> tuple[SourcePartition, ...]:
        """Returns the partitions of one lane, in a stable order."""
        return tuple(sorted(partition for partition, owner in self.partitions.items() if owner == lane))


def lane_of(assignment: Assignment, partition: SourcePartition) -> int | None:
    """Returns the lane that mirrors ``partition``, or None."""
    return assignment.partitions.get(partition)
