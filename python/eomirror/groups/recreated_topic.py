"""
Positions that speak of topics which are gone, or were created anew since (rule 5).

The offset map says where records of the topic before are in the copy before.  Of the present ones it says nothing,
although their offsets have the same numbers: a consumer that went there would skip records, or read strange ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.kafka.admin import ClusterAdmin

if TYPE_CHECKING:
    from collections.abc import Collection

    from eomirror.config import Cluster
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["replaced"]


def replaced(
    positions: Collection[Position], *, source: Cluster | None, target: Cluster, client_id: str
) -> dict[SourcePartition, str]:
    """
    Partitions of whose offsets nothing is known for that reason, and the reason in words.

    A topic that we may not see is taken for the one that it was.

    Args:
        positions: Of the partitions that are asked about.
        source: The link's source; None where only the target is asked.
        target: Its target.
        client_id: What brokers see.

    Raises:
        ClusterError: A cluster cannot be asked.
    """
    found: dict[SourcePartition, str] = {}
    if not positions:
        return found
    sides = [(target, {each.source: (each.target_topic, each.target_topic_id) for each in positions})]
    if source is not None:
        sides.append((source, {each.source: (each.topic, each.topic_id) for each in positions}))
    for cluster, topics in sides:
        admin = ClusterAdmin(cluster, client_id=client_id)
        try:
            seen, _ = admin.visible_topics(sorted({name for name, _ in topics.values()}))
        finally:
            admin.close()
        for partition, (name, topic_id) in topics.items():
            if name not in seen:
                continue
            facts = seen[name]
            if facts is None:
                found[partition] = f"topic {name} is gone on {cluster.alias}"
            elif facts.topic_id != topic_id:
                found[partition] = (
                    f"topic {name} was deleted and created again on {cluster.alias}: what the link knows is about the "
                    "one before"
                )
    return found
