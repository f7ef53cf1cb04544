"""Finds links that write what a link reads, by their own topics on its source (`eomirror.link.reverse_link` decides)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.link.other_links import OtherLinks
from eomirror.link.reverse_link import Opposite, copies_back, meetings, round_trip

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link
    from eomirror.errors import MirrorError
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.lane.spec import AssignedPartition
    from eomirror.types import SourcePartition

__all__ = ["OppositeLinks"]

log = structlog.get_logger(__name__)


class OppositeLinks:
    """
    What other links write of what one link reads.

    Args:
        link: The link.
        source: Its source cluster.
        admin: Of the source cluster.
        client_id: What brokers see.
        clock: Where time comes from.
    """

    def __init__(
        self, link: Link, source: Cluster, admin: ClusterAdmin, *, client_id: str, clock: Clock
    ) -> None:
        self._link = link
        # what cannot be read remains unknown
        self._others = OtherLinks(
            link.name, source, admin, client_id=client_id, clock=clock, event="opposite_link_unknown"
        )
        self._met: dict[SourcePartition, tuple[Opposite, ...]] = {}

    def look(self, items: Sequence[AssignedPartition], *, target_cluster_id: str) -> None:
        """
        See who writes these partitions from where we would write them to; what is found is kept until the next look.

        Args:
            items: What the link mirrors.
            target_cluster_id: Of the cluster that it writes.

        Raises:
            TopicError: They run, and records would go round for ever.
            ClusterError: The source does not answer.
        """
        self._see(items, target_cluster_id)
        if refused := round_trip(self._link.name, self._met, guard=self._link.guard):
            raise refused

    def refuse_copies(self, starts: Mapping[SourcePartition, int]) -> None:
        """
        Refuse to begin before copies that could not be told from records of the source's applications.

        Args:
            starts: Where the link would begin, of partitions of which it has mirrored nothing.

        Raises:
            TopicError: There are such copies.
        """
        if refused := copies_back(self._link.name, starts, self._met, guard=self._link.guard):
            raise refused

    def harmless(
        self, items: Sequence[AssignedPartition], *, target_cluster_id: str
    ) -> list[AssignedPartition]:
        """
        Those of these new partitions, which begin at their beginning, that bring nothing back; the others are named.

        Args:
            items: New partitions.
            target_cluster_id: Of the cluster that the link writes.

        Raises:
            ClusterError: The source does not answer.
        """
        self._see(items, target_cluster_id)
        refused: dict[str, MirrorError] = {}
        guard = self._link.guard
        for source, found in self._met.items():
            met = {source: found}
            error = round_trip(self._link.name, met, guard=guard) or copies_back(
                self._link.name, {source: 0}, met, guard=guard
            )
            if error is not None and refused.setdefault(source.topic, error) is error:
                log.error(
                    "topic_left_out",
                    link=self._link.name,
                    topic=source.topic,
                    reason=error.message,
                    fix=error.fix,
                )
        return [item for item in items if item.source.topic not in refused]

    def close(self) -> None:
        """Close the reader."""
        self._others.close()

    def _see(self, items: Sequence[AssignedPartition], target_cluster_id: str) -> None:
        self._met = {}
        # a prefixed copy is never read by the link that would bring it back: its name says where it has been
        if items and self._link.naming.kind != "prefix":
            self._met = meetings(items, self._others.written(), target_cluster_id=target_cluster_id)
