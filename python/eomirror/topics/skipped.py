"""Logs skipped topics with the reason, once for as long as it lasts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.errors import QuotaError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from eomirror.errors import MirrorError
    from eomirror.topology.filters import TopicFilter

__all__ = ["SkippedTopics"]

log = structlog.get_logger(__name__)

_SHOWN = 100


class SkippedTopics:
    """Tracks the skipped topics of one link that have been logged."""

    def __init__(self, link: str) -> None:
        self._link = link
        self._said: set[tuple[str, str]] = set()
        #: The last error of each skipped topic.
        self.errors: dict[str, MirrorError] = {}

    def record(self, topic: str, error: MirrorError) -> None:
        """Logs the reason that a topic is left out, unless it was logged since the topic was last in order."""
        self.errors[topic] = error
        if (topic, error.message) not in self._said:
            self._said.add((topic, error.message))
            log.warning("topic_left_out", link=self._link, topic=topic, reason=error.message, fix=error.fix)

    def hold(self, topics: Iterable[str], error: MirrorError) -> None:
        """Logs, in one line for all of them, that topics wait for a quota."""
        self.errors.update(dict.fromkeys(topics, error))
        if ("", error.message) not in self._said:
            self._said.add(("", error.message))
            log.warning("topics_held_back", link=self._link, reason=error.message, fix=error.fix)

    def held(self) -> frozenset[str]:
        """Returns the topics that wait for a quota."""
        return frozenset(topic for topic, error in self.errors.items() if isinstance(error, QuotaError))

    def log_names(self, patterns: TopicFilter, names: Iterable[str]) -> None:
        """
        Logs topics that `topics` matches and whose names keep them from being mirrored, once for each reason.

        Most are meant to be skipped; but an internal name, one of `exclude`, or `sales.west.q1` may be an original.

        Args:
            patterns: Topics that the link mirrors.
            names: Topics of the source.
        """
        for reason, topics in patterns.left_out(names).items():
            new = [topic for topic in topics if (topic, reason) not in self._said]
            if new:
                self._said.update((topic, reason) for topic in new)
                log.info(
                    "topics_left_out_by_name",
                    link=self._link,
                    count=len(new),
                    topics=new[:_SHOWN],
                    reason=reason,
                )

    def clear(self, topics: Collection[str]) -> None:
        """Marks topics as in order: their next error is logged again."""
        if self._said:
            self._said = {said for said in self._said if said[0] not in topics}
        for topic in self.errors.keys() & topics:
            del self.errors[topic]
