"""Topics of the sinks on the target: progress and claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror._native import key_partition
from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import UnreachableError
from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.kafka.session import ClusterSession
from eomirror.records.sink_progress import CLAIMS_TOPIC, PROGRESS_TOPIC
from eomirror.topics.diff import TIMESTAMPS, default_replication_factor

if TYPE_CHECKING:
    from eomirror.dataframe.settings import SinkSettings

__all__ = ["create_topics", "progress_partition"]

_PARTITIONS = 8
_REPLICAS = 3
_READY_SECONDS = 30.0


def progress_partition(name: str, partitions: int) -> int:
    """Returns the partition of a sink's progress: that of its name as a key."""
    return key_partition(name.encode(), partitions)


def create_topics(settings: SinkSettings, clock: Clock = SYSTEM_CLOCK) -> int:
    """
    Creates the topics of the sinks unless they exist; for a link only the claims: its positions are its progress.

    Returns:
        The number of partitions of the progress topic; 0 for a link.

    Raises:
        MirrorError: The cluster refuses, or does not answer.
    """
    session = ClusterSession(settings.cluster, client_id=settings.transactional_id)
    try:
        admin = session.admin
        names = [CLAIMS_TOPIC] if settings.link_id else [PROGRESS_TOPIC, CLAIMS_TOPIC]
        found = admin.describe_topics(names)
        if any(facts is None for facts in found.values()):
            factor = default_replication_factor(admin.describe_cluster().brokers)
            safe = {"min.insync.replicas": "2" if factor >= _REPLICAS else "1"}
            wanted = (
                CreateTopic(
                    PROGRESS_TOPIC, _PARTITIONS, factor, {"cleanup.policy": "compact", **TIMESTAMPS, **safe}
                ),
                # a claim matters until its batch ends, at the latest after the longest transaction
                CreateTopic(CLAIMS_TOPIC, 1, factor, {"retention.ms": "86400000", **TIMESTAMPS, **safe}),
            )
            admin.create_topics([one for one in wanted if one.name in found and found[one.name] is None])
        deadline = Deadline(_READY_SECONDS, clock)
        while True:
            found = admin.describe_topics(names)
            if all(found.values()):
                progress = found.get(PROGRESS_TOPIC)
                return 0 if progress is None else progress.partitions
            if deadline.passed:
                raise UnreachableError(
                    f"{' and '.join(names)}: created, and no broker knows them",
                    fix="check the controller of the cluster",
                )
            clock.sleep(0.1)
    finally:
        session.close()
