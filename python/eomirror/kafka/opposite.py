"""Finds links that write what a link reads, by their own topics on its source (`eomirror.lane.opposite` decides)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.errors import MirrorError
from eomirror.formats.names import INTERNAL_TOPICS, LinkNames
from eomirror.kafka.claim import is_dead
from eomirror.kafka.compact_log import CompactLogReader, control_view
from eomirror.kafka.positions import valid_positions
from eomirror.lane.opposite import Opposite, copies_back, meetings, round_trip, runs
from eomirror.topology.filters import topic_filter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.lane.spec import AssignedPartition
    from eomirror.types import SourcePartition

__all__ = ["OppositeLinks"]

log = structlog.get_logger(__name__)

_PREFIX, _SUFFIX = "eomirror.", ".positions"


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
        self._source = source
        self._admin = admin
        self._client_id = client_id
        self._clock = clock
        self._reader: CompactLogReader | None = None
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
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _see(self, items: Sequence[AssignedPartition], target_cluster_id: str) -> None:
        self._met = {}
        # a prefixed copy is never read by the link that would bring it back: its name says where it has been
        if items and self._link.naming.kind != "prefix":
            self._met = meetings(items, self._opposites(), target_cluster_id=target_cluster_id)

    def _opposites(self) -> Iterator[Opposite]:
        internal = topic_filter((INTERNAL_TOPICS,))
        for topic in self._admin.topic_names():
            if topic.endswith(_SUFFIX) and internal.accepts(topic):
                try:
                    yield from self._written_by(topic.removeprefix(_PREFIX).removesuffix(_SUFFIX))
                except MirrorError as error:
                    # not ours to read, or not in order: what it would say remains unknown, as it was before
                    log.warning(
                        "opposite_link_unknown", link=self._link.name, topic=topic, reason=error.message
                    )

    def _written_by(self, link: str) -> list[Opposite]:
        names = LinkNames(link)
        if self._reader is None:
            self._reader = CompactLogReader(
                self._source, self._admin, client_id=self._client_id, clock=self._clock
            )
        _, records = self._reader.read(names.positions_topic, wait_for_open=False)
        _, said = self._reader.read(names.control_topic, wait_for_open=False)
        control = control_view(said)
        adopted = {each.source: each.target_offset for each in control.adopted}
        claim = control.claim
        living = runs(claim, dead=claim is not None and is_dead(claim), now_ms=self._clock.wall_ms())
        mirrored = control.generation.assignment.partitions if living and control.generation else {}
        return [
            Opposite(link, position, adopted.get(source), source in mirrored)
            for source, position in valid_positions(records).items()
        ]
