"""What the pump asks of the link's state topics and of both clusters' topics; `eomirror.kafka` answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from eomirror.errors import DataLossError
    from eomirror.lane.commit import StateTopics
    from eomirror.lane.poison_records import Limits
    from eomirror.plane.protocol import ProducerIdentity
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position
    from eomirror.recovery.hanging import Fate, OpenRange
    from eomirror.recovery.resume import SourceFacts, TargetFacts
    from eomirror.types import SourcePartition

__all__ = ["ChunkSweep", "CopyWatch", "Leftovers", "PendingIds", "StateReader", "TopicComparer"]


class StateReader(Protocol):
    """Reads the link's state topics to their ends (rule 3)."""

    def read_control(self) -> ControlView:
        """What control says."""

    def read_positions(self) -> Mapping[SourcePartition, Position]:
        """The valid position of every source partition."""

    def state_topics(self) -> StateTopics:
        """Names and partition counts of the topics a lane writes."""


class Leftovers(Protocol):
    """Sees and ends what is open in partitions of the target (`eomirror.recovery.hanging`)."""

    def open(self, partitions: Collection[tuple[str, int]]) -> Sequence[OpenRange]:
        """
        Open transactions in these partitions; none where nobody can tell whose they are.

        Raises:
            UnreachableError: A partition has no leader that answers.
            MirrorError: The target refuses us.
        """

    def records(self, found: OpenRange) -> Sequence[tuple[bytes | None, bytes | None]]:
        """Keys and values of all records of its range, of other producers too; for topics of ours."""

    def fates(self, records: Mapping[tuple[str, int], int]) -> Mapping[tuple[str, int], Fate]:
        """What became of acknowledged records, one in each partition, by their offsets."""

    def is_written_by(self, where: tuple[str, int], offset: int, writer: ProducerIdentity) -> bool:
        """Whether a record of this producer stands at an offset, and not a marker, or what somebody else wrote."""

    def overwritten(
        self, records: Mapping[tuple[str, int], tuple[int, ProducerIdentity]]
    ) -> AbstractSet[tuple[str, int]]:
        """
        Partitions in which something else stands at an offset than a record of this producer.

        Of partitions that `fates` was asked about just before, and only where something stands behind the record.  A
        record that was deleted or compacted away says nothing.
        """

    def shown_behind(
        self, records: Mapping[tuple[str, int], int], producer_ids: Callable[[], AbstractSet[int]]
    ) -> AbstractSet[tuple[str, int]]:
        """
        Partitions in which committed records of these producers stand behind a record, by its offset.

        Of partitions that `fates` was asked about just before.  Who they are is asked only where something stands
        behind one.
        """

    def mapped_behind(self, positions: Collection[Position]) -> AbstractSet[tuple[str, int]]:
        """
        Copies in which deleted records stood, by the offset map, behind the last one that the position knows.

        Of partitions that `fates` was asked about just before.
        """

    def writers(self, partitions: Collection[tuple[str, int]]) -> Mapping[tuple[str, int], AbstractSet[str]]:
        """Transactional ids that have written to partitions, as far as brokers remember: about a day."""

    def lanes(self, highest: int) -> Mapping[int, int]:
        """Producer id -> lane, of the lanes up to this one."""

    def rest(self) -> None:
        """Let go of connections; the next look makes new ones."""

    def end(
        self,
        lane: int | None,
        partitions: Collection[tuple[str, int]],
        *,
        commit: bool,
        held: ProducerIdentity | None = None,
    ) -> ProducerIdentity:
        """
        Take over a lane's transactional.id, or the owner's (None), and end what its producer has open there.

        Args:
            lane: The lane.
            partitions: Where.
            commit: How.
            held: Of the id, if it is ours: then only if it is still.

        Returns:
            The id's identity from now on.

        Raises:
            FencedError: Somebody else has taken the id since, or took it at the same time.
            MirrorError: The target does not do it, or not in time.
        """


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
