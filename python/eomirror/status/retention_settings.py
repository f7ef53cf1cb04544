"""Reads the retention of source topics for the status, at most once a minute for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.errors import MirrorError
from eomirror.status.retention import RetentionLimits

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.clock import Clock
    from eomirror.kafka.admin import ClusterAdmin

__all__ = ["RetentionSettings"]

log = structlog.get_logger(__name__)

_KEPT_SECONDS = 60.0
# topics that refuse; of more, the others are unknown for a minute
_MOST_REFUSED = 10


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
        found = _limits(admin, missing) if missing else {}
        self._known |= {topic: (now, found.get(topic)) for topic in missing}
        known = {topic: self._known[topic][1] for topic in topics}
        return {topic: limits for topic, limits in known.items() if limits is not None}


def _limits(admin: ClusterAdmin, topics: Collection[str]) -> dict[str, RetentionLimits]:
    """Returns the limits of topics; one that refuses is left out, and the others are asked again."""
    asked = list(topics)
    for _ in range(_MOST_REFUSED):
        try:
            configs = admin.topic_configs(asked)
        except MirrorError as error:
            log.debug("retention_unknown", cluster=admin.name, reason=error.message)
            if getattr(error, "topic", None) not in asked:
                return {}
            asked = [topic for topic in asked if topic != error.topic]
            continue
        return {
            topic: limits
            for topic, entries in configs.items()
            if (limits := _limit({name: entry.value for name, entry in entries.items()})) is not None
        }
    return {}


def _limit(values: Mapping[str, str | None]) -> RetentionLimits | None:
    """Returns the limits of one topic; None if a setting is no number."""
    try:
        return RetentionLimits.of(values)
    except ValueError:
        return None
