"""
Topics for MirrorMaker 2's readers, as a link needs them: created explicitly, never altered. Pure.

One partition, compact, as MM2 makes them (Kafka 4.3, MirrorUtils.createSinglePartitionCompactedTopic), with the
replication factor of our own state topics and small segments: MM2's clients read checkpoints from the beginning, and
the active segment is never compacted.  Several links, and an MM2 that runs beside them, may share such a topic.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.topics.diff import TIMESTAMPS, default_replication_factor
from eomirror.topics.state_topics import Drift

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Link

__all__ = ["mm2_drift", "mm2_source_topics", "mm2_target_topics"]

_REPLICAS = 3
_CONFIGS = {
    "cleanup.policy": "compact",
    # Timestamps of a wrong clock are accepted, as by the state topics.
    **TIMESTAMPS,
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": "600000",
}


def mm2_target_topics(link: Link, *, brokers: int) -> tuple[CreateTopic, ...]:
    """
    Returns the topics that the link writes for MM2's readers on the target.

    Args:
        brokers: Broker count of the target.
    """
    names = link.mm2_names
    wanted = []
    if link.offset_syncs == "target":
        wanted.append(names.offset_syncs(link.source))
    if link.groups:
        wanted.append(names.checkpoints(link.source))
    if link.beats_on_target:
        wanted.append(names.remote_heartbeats(link.source))
    return tuple(_topic(name, brokers, link.replication_factor) for name in wanted)


def mm2_source_topics(link: Link, *, brokers: int) -> tuple[CreateTopic, ...]:
    """
    Returns the topics that the link writes for MM2's readers on the source.

    Args:
        brokers: Broker count of the source.
    """
    names = link.mm2_names
    wanted = []
    if link.offset_syncs == "source":
        wanted.append(names.offset_syncs(link.target))
    if link.heartbeats == "source":
        wanted.append(names.heartbeats)
    # A link's `replication_factor` applies to its target.
    return tuple(_topic(name, brokers, None) for name in wanted)


def mm2_drift(topic: CreateTopic, found: Mapping[str, str | None]) -> tuple[Drift, ...]:
    """Returns settings of an existing topic that make its readers miss records; the mirror does not depend on it."""
    policy = found.get("cleanup.policy")
    if policy == "compact":
        return ()
    return (Drift(topic.name, "cleanup.policy", "compact", policy),)


def _topic(name: str, brokers: int, configured: int | None) -> CreateTopic:
    factor = default_replication_factor(brokers, configured)
    # With two replicas, a minimum of two in sync would stop the mirror whenever a broker restarts.
    in_sync = "2" if factor >= _REPLICAS else "1"
    return CreateTopic(name, 1, factor, {**_CONFIGS, "min.insync.replicas": in_sync})
