"""Finds links that write a link's source topics, from their state topics (`eomirror.link.reverse_link` decides)."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import NotReadyError
from eomirror.link.other_links import OtherLinks
from eomirror.link.reverse_link import ReverseLink, copies_back, meetings, round_trip

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.errors import MirrorError
    from eomirror.kafka.session import ClusterSession
    from eomirror.lane.spec import AssignedPartition
    from eomirror.types import SourcePartition

__all__ = ["ReverseLinks"]

log = structlog.get_logger(__name__)


class ReverseLinks:
    """
    Other links that write the topics that one link reads.

    Args:
        source: Connections to the source.
    """

    def __init__(self, link: Link, source: ClusterSession) -> None:
        self._link = link
        # Topics that cannot be read remain unknown.
        self._others = OtherLinks(link.name, source, event="opposite_link_unknown")
        self._met: dict[SourcePartition, tuple[ReverseLink, ...]] = {}

    def look(self, items: Sequence[AssignedPartition], *, target_cluster_id: str) -> None:
        """
        Finds links that write these partitions from our copies; the result is kept until the next look.

        Args:
            items: Partitions that the link mirrors.
            target_cluster_id: Id of the cluster that it writes to.

        Raises:
            TopicError: Such links run, and records would cycle for ever.
            ClusterError: The source does not answer.
        """
        self._see(items, target_cluster_id)
        if refused := round_trip(self._link.name, self._met, guard=self._link.guard):
            raise refused

    def refuse_copies(self, starts: Mapping[SourcePartition, int]) -> None:
        """
        Refuses to begin before copies that look like records of the source's applications.

        Args:
            starts: Start offset of partitions of which the link has mirrored no record.

        Raises:
            TopicError: There are such copies.
        """
        if self._link.loops.whole:
            return
        if refused := copies_back(self._link.name, starts, self._met, guard=self._link.guard):
            raise refused

    def refuse_first_run(self, adopted: Collection[SourcePartition]) -> None:
        """
        Refuses to begin where the link's ``start`` says in copies of a promoted link: its cut alone is the beginning.

        Before it stand that link's own records, and behind it what applications have written since.

        Args:
            adopted: Partitions whose start offset a command, or the user, has chosen.

        Raises:
            NotReadyError: A topic is such a copy.
        """
        for source, met in sorted(self._met.items()):
            for each in met:
                if each.cut is not None and source not in adopted:
                    raise NotReadyError(
                        f"link {self._link.name} never ran, and {source} is a copy of link {each.link}, which was "
                        f"promoted: it begins at the end of that copy at the cut, {each.cut}, and not where its "
                        "`start` says",
                        fix=f"start it there: `eomirror reverse CONFIG --link {quote(each.link)}`; then repeat this",
                    )

    def harmless(
        self, items: Sequence[AssignedPartition], *, target_cluster_id: str
    ) -> list[AssignedPartition]:
        """
        Returns the new partitions that bring no copies back from their beginning; logs the others.

        Args:
            items: New partitions.
            target_cluster_id: Id of the cluster that the link writes to.

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

    def _see(self, items: Sequence[AssignedPartition], target_cluster_id: str) -> None:
        self._met = {}
        # A prefixed copy is never read by the reverse link: its name shows its origin.
        if items and not self._link.naming.shows(self._link.source):
            self._met = meetings(items, self._others.written(), target_cluster_id=target_cluster_id)
