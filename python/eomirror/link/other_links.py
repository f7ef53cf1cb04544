"""Reads the positions and the fences of all links that write to a cluster, from their state topics there."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.errors import MirrorError
from eomirror.kafka.compacted_topic import CompactedTopicReader, control_view
from eomirror.link.claim import is_dead
from eomirror.link.start_rules import LIVING_MS, ReverseLink, runs
from eomirror.link.valid_positions import valid_positions
from eomirror.records.names import INTERNAL_TOPICS, LinkNames
from eomirror.topology.filters import topic_filter

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.kafka.session import ClusterSession
    from eomirror.records.promotion import Fence

__all__ = ["OtherLinks"]


log = structlog.get_logger(__name__)

_PREFIX, _SUFFIX = "eomirror.", ".positions"


class OtherLinks:
    """
    Reads positions and fences of links that write to a cluster.

    Args:
        link: Name of the reading link, for the log.
        cluster: Connections to the cluster.
        event: Name of the log event for a link whose topics cannot be read.
    """

    def __init__(self, link: str, cluster: ClusterSession, *, event: str) -> None:
        self._link = link
        self._admin = cluster.admin
        self._clock = cluster.clock
        self._event = event
        self._states = CompactedTopicReader(cluster)

    def written(
        self, *, but: str = "", running_only: bool = False, since: int | None = None
    ) -> Iterator[ReverseLink]:
        """
        Yields each partition that a link writes, with the link's position.

        A link whose topics may not be read, or are damaged, is logged and skipped.

        Args:
            but: State name of a link to leave out.
            running_only: Skips links without a living owner; their positions are not read.
            since: Skips links that have written nothing to control since then, in ms; None for no such limit.

        Raises:
            ClusterError: The cluster does not list its topics.
        """
        links = [link for link in self._links() if link != but]
        if running_only:
            since = self._clock.wall_ms() - LIVING_MS
        for link in links if since is None else self._recent(links, since):
            try:
                yield from self._of(link, running_only=running_only)
            except MirrorError as error:
                log.warning(
                    self._event,
                    link=self._link,
                    topic=LinkNames(link).positions_topic,
                    reason=error.message,
                )

    def of(self, link: str) -> list[ReverseLink]:
        """
        Returns the partitions of a link that has given them up, at its last positions.

        Args:
            link: State name of the link.

        Raises:
            MirrorError: Its topics cannot be read.
        """
        return self._of(link, settled=True)

    def fences(self, *, but: str) -> Iterator[tuple[str, Fence]]:
        """
        Yields the fence that stands on the source of each link, with the link's state name.

        A link whose control topic may not be read, or is damaged, is logged and skipped.

        Args:
            but: State name of a link to leave out.

        Raises:
            ClusterError: The cluster does not list its topics.
        """
        for link in self._links():
            if link == but:
                continue
            topic = LinkNames(link).control_topic
            try:
                fence = control_view(self._states.records(topic, wait_for_open=False)).history.fence
            except MirrorError as error:
                log.warning(self._event, link=self._link, topic=topic, reason=error.message)
                continue
            if fence is not None:
                yield link, fence

    def _links(self) -> list[str]:
        internal = topic_filter((INTERNAL_TOPICS,))
        return [
            topic.removeprefix(_PREFIX).removesuffix(_SUFFIX)
            for topic in self._admin.topic_names()
            if topic.endswith(_SUFFIX) and internal.accepts(topic)
        ]

    def _recent(self, links: list[str], since: int) -> list[str]:
        """Returns the links whose control topic has a record since that time; sends one request."""
        if not links:
            return []
        controls = {(LinkNames(link).control_topic, 0): link for link in links}
        try:
            found = self._admin.offsets(list(controls), at=since, read_committed=False)
        except MirrorError as error:
            # A topic is deleted or not visible: each link is read separately, and logged if it cannot be read.
            log.debug("other_links_asked_one_by_one", link=self._link, reason=error.message)
            return links
        return [link for where, link in controls.items() if found[where] >= 0]

    def _of(self, link: str, *, running_only: bool = False, settled: bool = False) -> list[ReverseLink]:
        names = LinkNames(link)
        _, said = self._states.read(names.control_topic, wait_for_open=False)
        control = control_view(said)
        claim = control.claim
        living = runs(claim, dead=claim is not None and is_dead(claim), now_ms=self._clock.wall_ms())
        if running_only and not living:
            return []
        # an open transaction, of any lane, hides what was committed behind its beginning
        _, records = self._states.read(names.positions_topic, wait_for_open=settled)
        adopted = {each.source: each.target_offset for each in control.adopted}
        mirrored = control.generation.assignment.partitions if living and control.generation else {}
        promotion = control.history.current
        cuts = {} if promotion is None else {cut.source: cut.target_end for cut in promotion.cuts}
        return [
            ReverseLink(link, position, adopted.get(source), source in mirrored, cuts.get(source))
            for source, position in valid_positions(records).items()
        ]
