"""What the topics of a link say to its owner: control, positions, and whether the offset map has records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import StateError
from eomirror.kafka.compacted_topic import CompactLogReader, control_view
from eomirror.link.valid_positions import valid_positions
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["LinkState"]


class LinkState:
    """
    Reads the topics of one link.

    Args:
        link: The link.
        target: Its target cluster.
        admin: Of the target cluster.
        client_id: What brokers see.
        clock: Where time comes from.
    """

    def __init__(
        self, link: Link, target: Cluster, admin: ClusterAdmin, *, client_id: str, clock: Clock
    ) -> None:
        self._names = LinkNames(link.state_name)
        self._admin = admin
        # somebody else's open transaction may hold us up for as long as its timeout
        self._patience = 2 * link.transaction_timeout + 10
        self._reader = CompactLogReader(target, admin, client_id=client_id, clock=clock)

    def control(self, *, wait_for_open: bool = True) -> ControlView:
        """
        What control says.

        Args:
            wait_for_open: See `CompactLogReader.read`.

        Raises:
            StateError: A record is not readable.
            MirrorError: The target refuses us, or does not answer.
        """
        topic = self._names.control_topic
        _, records = self._reader.read(topic, seconds=self._patience, wait_for_open=wait_for_open)
        return control_view(records)

    def positions(
        self, *, wait_for_open: bool, overruled: Collection[SourcePartition]
    ) -> Mapping[SourcePartition, Position]:
        """
        The valid position of every source partition.

        Args:
            wait_for_open: See `CompactLogReader.read`.
            overruled: Partitions whose positions do not matter; left out.

        Raises:
            StateError: A record is not readable, or goes back.
            MirrorError: The target refuses us, or does not answer.
        """
        topic = self._names.positions_topic
        _, records = self._reader.read(topic, seconds=self._patience, wait_for_open=wait_for_open)
        return valid_positions(records, overruled=overruled)

    def positions_partitions(self) -> int:
        """
        How many partitions the positions topic has.

        Raises:
            StateError: It is not there.
            MirrorError: The target refuses us, or does not answer.
        """
        topic = self._names.positions_topic
        facts = self._admin.describe_topics([topic])[topic]
        if facts is None:
            raise StateError(
                f"topic {topic} is not there",
                fix="restore the eomirror.* topics of the link together; see `eomirror plan CONFIG`",
            )
        return facts.partitions

    def map_has_records(self) -> bool:
        """
        Whether the offset map holds anything, committed or not.

        Raises:
            MirrorError: The target refuses us, or does not answer.
        """
        topic = self._names.offset_map_topic
        facts = self._admin.describe_topics([topic])[topic]
        if facts is None:
            return False
        names = [(topic, number) for number in range(facts.partitions)]
        ends = self._admin.offsets(names, at="latest", read_committed=False)
        return any(end > 0 for end in ends.values())

    def close(self) -> None:
        """Close the reader."""
        self._reader.close()
