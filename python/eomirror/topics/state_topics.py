"""
The link's own topics on the target: how they must be, and what to do where they are not (pure).

They are always created explicitly: an auto-created topic would have the broker's retention, which deletes
positions.  One that exists is never altered, because somebody may have had a reason; it is named where it
drifted, and refused where its settings would lose what the mirror must remember.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.errors import StateError
from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.records.dead_letter import LARGEST_MESSAGE
from eomirror.topics.diff import TIMESTAMPS, AddPartitions, default_replication_factor

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.kafka.cluster_metadata import TopicFacts
    from eomirror.records.names import LinkNames

__all__ = ["Drift", "policy_fix", "state_changes", "state_drift", "state_topics"]

# brokers refuse records from more than an hour ahead by default, so a clock that is wrong would end the mirror (F34)
_COMPACT = {"cleanup.policy": "compact", **TIMESTAMPS}
# small segments and an eager cleaner: reading control and positions after a million commits takes seconds, and what
# lanes have merged in the offset map goes soon
_SMALL = {
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}
# a generation names every partition of every lane in one record
_LARGE_RECORDS = {"max.message.bytes": str(8 * 1024 * 1024)}
_POSITIONS_PARTITIONS = 8
_OFFSET_MAP_PARTITIONS = 8
_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Drift:
    """A setting of one of the link's own topics that is not as it was created, and does no harm by itself."""

    topic: str
    setting: str
    wanted: str
    found: str | None


def state_topics(
    names: LinkNames,
    *,
    lanes: int,
    brokers: int,
    replication_factor: int | None = None,
    dead_letters: bool = False,
) -> tuple[CreateTopic, ...]:
    """
    The link's own topics: control, positions, offset map, dead letters (contract.md, "Topics on the target").

    Args:
        names: Of the link.
        lanes: How many lanes; each writes its positions to a partition of its own.
        brokers: Of the target cluster.
        replication_factor: As configured; None for three, or as many as there are brokers.
        dead_letters: Whether the link writes dead letters.
    """
    factor = default_replication_factor(brokers, replication_factor)
    configs = dict(_COMPACT)
    # with two replicas a second one in sync would stop the mirror whenever a broker restarts
    configs["min.insync.replicas"] = "2" if factor >= _REPLICAS else "1"
    small = {**configs, **_SMALL}
    topics = (
        CreateTopic(names.control_topic, 1, factor, {**small, **_LARGE_RECORDS}),
        CreateTopic(names.positions_topic, max(_POSITIONS_PARTITIONS, lanes), factor, small),
        CreateTopic(names.offset_map_topic, _OFFSET_MAP_PARTITIONS, factor, small),
    )
    if not dead_letters:
        return topics
    # each key is written once, so compaction keeps every letter for as long as the topic lives
    large = {**configs, "max.message.bytes": str(LARGEST_MESSAGE)}
    return (*topics, CreateTopic(names.dead_letter_topic, 1, factor, large))


def state_changes(
    wanted: tuple[CreateTopic, ...], found: Mapping[str, TopicFacts | None]
) -> tuple[CreateTopic | AddPartitions, ...]:
    """
    What must happen before the mirror can write its own topics, in order.

    The offset map is never grown: a source partition's chunks are found by a hash over the partition count.

    Args:
        wanted: From `state_topics`.
        found: What the target has, by name.

    Raises:
        StateError: The control topic has more than one partition: it has no order, and no last record.
    """
    changes: list[CreateTopic | AddPartitions] = []
    for topic in wanted:
        facts = found[topic.name]
        if facts is None:
            changes.append(topic)
        elif topic.name.endswith(".control") and facts.partitions > 1:
            raise StateError(
                f"topic {topic.name} has {facts.partitions} partitions, and may have one only",
                fix="find out who grew or made it; with the mirror stopped, recreate it with one partition and "
                "start with a new link name, or adopt the positions",
            )
        elif topic.name.endswith(".positions") and facts.partitions < topic.partitions:
            changes.append(AddPartitions(topic.name, topic.partitions, facts.partitions))
    return tuple(changes)


def policy_fix(topic: str) -> str:
    """How the cleanup policy of one of the link's own topics is put right."""
    return (
        "set it back: kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
        f"--entity-name {topic} --add-config cleanup.policy=compact"
    )


def state_drift(topic: CreateTopic, found: Mapping[str, str | None]) -> tuple[Drift, ...]:
    """
    Settings of an existing topic that are not as they were created.

    Args:
        topic: The topic as it should be.
        found: Its effective settings.

    Raises:
        StateError: It would delete what the mirror must remember.
    """
    policy = found.get("cleanup.policy")
    if policy != "compact":
        raise StateError(
            f"topic {topic.name} has cleanup.policy={policy}: retention would delete the mirror's own memory",
            fix=policy_fix(topic.name),
        )
    return tuple(
        Drift(topic.name, setting, value, found.get(setting))
        for setting, value in topic.configs.items()
        if found.get(setting) != value
    )
