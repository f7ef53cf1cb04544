"""
Detects positions of topics that were deleted or recreated since (EO-5).

The offset map translates offsets of the old topic to the old copy.  It knows nothing about the present ones,
although their offsets have the same numbers: a consumer that used them would skip records, or read unrelated ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from eomirror.kafka.session import ClusterSession
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["replaced"]


def replaced(
    positions: Collection[Position], *, source: ClusterSession | None, target: ClusterSession
) -> dict[SourcePartition, str]:
    """
    Returns the partitions whose offsets cannot be translated for that reason, with a text.

    A topic that may not be seen is taken for unchanged.

    Args:
        positions: Positions of the queried partitions.
        source: The link's source; None to check only the target.

    Raises:
        ClusterError: A cluster cannot be asked.
    """
    found: dict[SourcePartition, str] = {}
    if not positions:
        return found
    sides = [(target, {each.source: (each.target_topic, each.target_topic_id) for each in positions})]
    if source is not None:
        sides.append((source, {each.source: (each.topic, each.topic_id) for each in positions}))
    for session, topics in sides:
        cluster = session.cluster
        seen, _ = session.admin.visible_topics(sorted({name for name, _ in topics.values()}))
        for partition, (name, topic_id) in topics.items():
            if name not in seen:
                continue
            facts = seen[name]
            if facts is None:
                found[partition] = f"topic {name} does not exist on {cluster.alias}"
            elif facts.topic_id != topic_id:
                found[partition] = (
                    f"topic {name} was deleted and created again on {cluster.alias}: the link's offsets "
                    "belong to the old topic"
                )
    return found
