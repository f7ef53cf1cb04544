"""Reads the retention of source topics for the status, at most once a minute for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.errors import MirrorError
from eomirror.link.retention import RetentionLimits

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.clock import Clock
    from eomirror.kafka.admin import ClusterAdmin

__all__ = ["RetentionSettings"]

log = structlog.get_logger(__name__)

_KEPT_SECONDS = 60.0


class RetentionSettings:
    """Retention of the topics of one cluster, as it was asked for last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # with the time at which each was asked; None if it was refused
        self._known: dict[str, tuple[float, RetentionLimits | None]] = {}

    def of(self, admin: ClusterAdmin, topics: Collection[str]) -> Mapping[str, RetentionLimits]:
        """
        Returns the limits of topics, of those that are known.

        A cluster that refuses is not asked again for a minute, and its refusal is no reason to fail: the rest of a
        status holds without it.
        """
        now = self._clock.monotonic()
        old = {topic for topic, (at, _) in self._known.items() if now - at >= _KEPT_SECONDS}
        self._known = {topic: each for topic, each in self._known.items() if topic not in old}
        missing = sorted(set(topics) - self._known.keys())
        found: dict[str, RetentionLimits] = {}
        try:
            configs = admin.topic_configs(missing) if missing else {}
            found = {
                topic: RetentionLimits.of({name: entry.value for name, entry in entries.items()})
                for topic, entries in configs.items()
            }
        except (MirrorError, ValueError) as error:
            log.debug("retention_unknown", cluster=admin.name, reason=str(error))
        self._known |= {topic: (now, found.get(topic)) for topic in missing}
        known = {topic: self._known[topic][1] for topic in topics}
        return {topic: limits for topic, limits in known.items() if limits is not None}
