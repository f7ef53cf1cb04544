"""
Finds source topics whose copies would take the name of the link's own heartbeats on the target. Pure.

Each cluster that MirrorMaker 2 wrote to has a topic ``heartbeats``, and its copy is ``SOURCE.heartbeats``: the topic
that a link with ``heartbeats: link`` writes, for the same readers.  The copy gives way, because the link's own
heartbeats continue after MirrorMaker 2 is gone.  An application's topic of this name is refused rather than skipped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import TopicError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.topics.skipped import SkippedTopics

__all__ = ["log_heartbeat_copies", "refuse_heartbeat_copies"]


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
