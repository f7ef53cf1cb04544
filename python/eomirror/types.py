"""Value types that all packages share. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["Assignment", "SourcePartition", "lane_of"]


class SourcePartition(NamedTuple):
    """A partition of a topic on the source cluster."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


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
