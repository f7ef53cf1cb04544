"""
Finds source partitions that a link should mirror and has no position for.

The mirror looks for new topics and partitions every few seconds, and leaves topics out that it cannot serve.  What
applications write there has no cut: a planned promotion refuses it, and a failover counts it as lost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import TopicError
from eomirror.kafka.admin_client import skip_missing
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection

    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin

__all__ = ["uncut_partitions"]


def uncut_partitions(
    link: Link, source: ClusterAdmin, known: Collection[SourcePartition], *, every: bool = False
) -> dict[SourcePartition, tuple[int, int] | None]:
    """
    Returns the log start and the log end of each partition that holds records, and that the link does not know.

    None stands for a partition without a leader: its records cannot be counted.

    Args:
        source: Admin client of its source.
        known: Partitions with a position.
        every: Also topics whose name the target refuses.

    Raises:
        ClusterError: The source does not answer.
    """
    names = [topic for topic in source.topic_names() if _is_mirrored(link, topic, every=every)]
    unknown = {
        where: number in facts.leaderless
        for topic, facts in source.describe_topics(names).items()
        if facts is not None
        for number in range(facts.partitions)
        if (where := SourcePartition(topic, number)) not in known
    }
    there = [where for where, is_silent in unknown.items() if not is_silent]
    starts = skip_missing(lambda asked: source.offsets(asked, at="earliest", read_committed=False), there)
    ends = skip_missing(lambda asked: source.offsets(asked, at="latest", read_committed=False), there)
    return dict.fromkeys(where for where, is_silent in unknown.items() if is_silent) | {
        where: (starts[where], ends[where])
        for where in there
        if where in starts and where in ends and ends[where] > starts[where]
    }


def _is_mirrored(link: Link, topic: str, *, every: bool) -> bool:
    if topic == link.target_naming.heartbeats or not link.mirrors(topic):
        return False
    if every:
        return True
    try:
        link.target_topic(topic)
    except TopicError:
        return False
    return True
