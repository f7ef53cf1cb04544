"""Ports of the lane's runner: Protocols that `eomirror.link` and `eomirror.kafka` implement. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.errors import DataLossError
    from eomirror.lane.poison_records import Limits
    from eomirror.records.control import ControlView
    from eomirror.records.names import StateTopics
    from eomirror.records.position import Position
    from eomirror.recovery.resume import SourceFacts, TargetFacts
    from eomirror.types import SourcePartition

__all__ = ["ChunkSweep", "CopyWatch", "PendingIds", "StateReader", "TopicComparer"]


class StateReader(Protocol):
    """Reads the link's state topics to their ends (EO-3)."""

    def read_control(self) -> ControlView:
        """Returns the content of control."""

    def read_positions(self) -> Mapping[SourcePartition, Position]:
        """Returns the valid position of every source partition."""

    def state_topics(self) -> StateTopics:
        """Returns names and partition counts of the topics that a lane writes."""


class PendingIds(Protocol):
    """Topic ids of an in-flight request."""

    def result(self) -> tuple[Mapping[str, str | None], Mapping[str, str | None]]:
        """Returns the ids on the source and on the target; None for a topic that does not exist."""


class TopicComparer(Protocol):
    """Reads topics of both clusters."""

    def facts(
        self, positions: Sequence[Position]
    ) -> Mapping[SourcePartition, tuple[SourceFacts, TargetFacts]]:
        """Returns the current state of both sides of each partition."""

    def request_ids(self, source_topics: Sequence[str], target_topics: Sequence[str]) -> PendingIds:
        """Requests the ids of exactly these topics, one request per side, without waiting (EO-5)."""

    def limits(self, source_topic: str, target_topic: str) -> Limits:
        """
        Returns the effective settings of both topics; empty for a side where they may not be read.

        Raises:
            UnreachableError: A cluster does not answer.
        """

    def raise_limit(self, target_topic: str, size: int) -> None:
        """
        Sets max.message.bytes of a target topic.

        Raises:
            MirrorError: An ACL is missing, or the cluster refuses or does not answer.
        """


class CopyWatch(Protocol):
    """Checks in the background that copies still hold all acknowledged records (EO-5)."""

    def begin(self, positions: Mapping[SourcePartition, Position]) -> None:
        """Starts a check if one is due; returns at once."""

    def take(self) -> Sequence[DataLossError]:
        """Returns the findings since the last call, one error per topic."""


class ChunkSweep(Protocol):
    """Finds unreadable chunks of the offset map in the background."""

    def begin(self, positions: Mapping[SourcePartition, Position]) -> None:
        """Starts a scan if one is due; returns at once."""

    def take(self) -> Sequence[tuple[int, bytes]]:
        """Returns the chunks found since the last call: partition of the map and key."""
