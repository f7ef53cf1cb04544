"""What the pump asks of the link's state topics and of both clusters' topics; `eomirror.kafka` answers. Pure."""

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
    """Reads the link's state topics to their ends (rule 3)."""

    def read_control(self) -> ControlView:
        """What control says."""

    def read_positions(self) -> Mapping[SourcePartition, Position]:
        """The valid position of every source partition."""

    def state_topics(self) -> StateTopics:
        """Names and partition counts of the topics a lane writes."""


class PendingIds(Protocol):
    """Topic ids that were asked for and are on their way."""

    def result(self) -> tuple[Mapping[str, str | None], Mapping[str, str | None]]:
        """Ids on the source and on the target; None for a topic that does not exist."""


class TopicComparer(Protocol):
    """Looks at the topics of both sides."""

    def facts(
        self, positions: Sequence[Position]
    ) -> Mapping[SourcePartition, tuple[SourceFacts, TargetFacts]]:
        """Both sides of each partition, now."""

    def ask_ids(self, source_topics: Sequence[str], target_topics: Sequence[str]) -> PendingIds:
        """Ask for the ids of exactly these topics, one request a side, without waiting (rule 5)."""

    def limits(self, source_topic: str, target_topic: str) -> Limits:
        """
        Effective settings of both topics; empty for a side where they may not be read.

        Raises:
            UnreachableError: A cluster does not answer.
        """

    def raise_limit(self, target_topic: str, size: int) -> None:
        """
        Set max.message.bytes of a target topic.

        Raises:
            MirrorError: We may not, or the cluster refuses or does not answer.
        """


class CopyWatch(Protocol):
    """Looks in the background whether copies still hold all that was acknowledged (rule 5)."""

    def begin(self, positions: Mapping[SourcePartition, Position]) -> None:
        """Look, if it is time; returns at once."""

    def take(self) -> Sequence[DataLossError]:
        """What was found since the last call, one error for each topic."""


class ChunkSweep(Protocol):
    """Looks in the background for chunks of the offset map that nobody can read any more."""

    def begin(self, positions: Mapping[SourcePartition, Position]) -> None:
        """Look, if it is time; returns at once."""

    def take(self) -> Sequence[tuple[int, bytes]]:
        """Partition of the map and key of each chunk that was found since the last call."""
