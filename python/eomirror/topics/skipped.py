"""Says which topics are left out, and why, once for as long as that lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from eomirror.errors import MirrorError
    from eomirror.topology.filters import TopicFilter

__all__ = ["Complaints"]

log = structlog.get_logger(__name__)

_SHOWN = 5


class Complaints:
    """
    What was said of the topics of one link.

    Args:
        link: Name of the link.
    """

    def __init__(self, link: str) -> None:
        self._link = link
        self._said: set[tuple[str, str]] = set()
        #: The last word on each topic that is not in order.
        self.standing: dict[str, MirrorError] = {}

    def say(self, topic: str, error: MirrorError) -> None:
        """Why a topic is left out, unless that has been said since it last was in order."""
        self.standing[topic] = error
        if (topic, error.message) not in self._said:
            self._said.add((topic, error.message))
            log.warning("topic_left_out", link=self._link, topic=topic, reason=error.message, fix=error.fix)

    def tell_passed(self, patterns: TopicFilter, names: Iterable[str]) -> None:
        """
        Which topics would be mirrored but for their names, that say that they have been on source or target.

        Most are copies, for which that is meant; but `sales.east.q1` may be somebody's own.

        Args:
            patterns: What the link mirrors.
            names: Topics of the source.
        """
        passed = [name for name in names if patterns.has_passed(name)]
        if passed:
            log.info(
                "topics_left_out_by_name",
                link=self._link,
                count=len(passed),
                topics=passed[:_SHOWN],
                reason=patterns.reason(passed[0]),
            )

    def settled(self, topics: Collection[str]) -> None:
        """These are in order now: what keeps them out another time is news."""
        if self._said:
            self._said = {said for said in self._said if said[0] not in topics}
        for topic in self.standing.keys() & topics:
            del self.standing[topic]
