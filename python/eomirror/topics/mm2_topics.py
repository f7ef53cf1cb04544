"""
Topics for MirrorMaker 2's readers, as a link needs them: created explicitly, never altered.

One partition, compact, as MM2 makes them (Kafka 4.3, MirrorUtils.createSinglePartitionCompactedTopic), with the
replication factor of our own state topics and small segments: MM2's clients read checkpoints from the beginning, and
the active segment is never compacted.  Several links, and an MM2 that runs beside them, may share such a topic.

Each cluster that MirrorMaker 2 wrote to has a topic ``heartbeats``, and its copy is ``SOURCE.heartbeats``: the topic
that a link with ``heartbeats: link`` writes, for the same readers.  The copy gives way, because the link's own
heartbeats continue after MirrorMaker 2 is gone.  An application's topic of this name is refused rather than skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import TopicError
from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.topics.diff import TIMESTAMPS, default_replication_factor
from eomirror.topics.state_topics import Drift

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.topics.skipped import SkippedTopics

__all__ = [
    "log_heartbeat_copies",
    "mm2_drift",
    "mm2_source_topics",
    "mm2_target_topics",
    "refuse_heartbeat_copies",
]


def log_heartbeat_copies(link: Link, names: Iterable[str], skipped: SkippedTopics) -> None:
    """
    Logs the topics that give way to the link's own heartbeats.

    Args:
        names: Topics of the source.
        skipped: Logs each once.
    """
    for topic in _beaten(link, names):
        skipped.record(topic, _error(link, topic, "so it is not mirrored"))


def refuse_heartbeat_copies(
    link: Link, source: ClusterAdmin, names: Sequence[str], skipped: SkippedTopics
) -> None:
    """
    Logs the topics that give way, or refuses them if MirrorMaker 2 cannot have made them.

    MirrorMaker 2's own have one compacted partition.

    Args:
        source: Admin client of the source.
        names: Topics of the source.
        skipped: Logs each once.

    Raises:
        TopicError: An application's topic has this name.
        ClusterError: The source does not answer.
    """
    for topic in _beaten(link, names):
        facts, _ = source.visible_topics([topic])
        if (found := facts.get(topic)) is None:
            continue
        policy = source.topic_configs([topic])[topic].get("cleanup.policy")
        if found.partitions != 1 or (policy is not None and "compact" not in (policy.value or "")):
            raise _error(link, topic, "and it does not look like MirrorMaker 2's heartbeats")
    log_heartbeat_copies(link, names, skipped)


def _beaten(link: Link, names: Iterable[str]) -> list[str]:
    return [topic for topic in names if link.filter.matches(topic) and link.beats_for(topic)]


def _error(link: Link, topic: str, what: str) -> TopicError:
    copy = link.target_topic(topic)
    return TopicError(
        f"topic {topic} would be written to {copy}, where the link writes its own heartbeats, {what}",
        fix=f"if it holds an application's records, name it in the link's `topics` ({topic}), and the link writes no "
        "heartbeats there; to mirror MirrorMaker 2's, set `heartbeats: source` or `heartbeats: off`; or `exclude` it",
        topic=topic,
    )


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
