"""
State topics of a link on the target: desired settings, and the actions if they differ. Pure.

They are always created explicitly: an auto-created topic would have the broker's retention, which deletes
positions.  An existing one is never altered, because its settings may be intended; it is logged if it
drifted, and refused if its settings would lose the mirror's state.
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

# Brokers refuse records from more than an hour ahead by default, so a wrong clock would end the mirror (F34).
_COMPACT = {"cleanup.policy": "compact", **TIMESTAMPS}
# Small segments and an eager cleaner: reading control and positions after a million commits takes seconds, and merged
# chunks of the offset map are removed soon.
_SMALL = {
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}
# A generation names every partition of every lane in one record.
_LARGE_RECORDS = {"max.message.bytes": str(8 * 1024 * 1024)}
_POSITIONS_PARTITIONS = 8
_OFFSET_MAP_PARTITIONS = 8
_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Drift:
    """A setting of a state topic that differs from its value at creation, and is harmless."""

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
    Returns the link's state topics: control, positions, offset map, dead letters (contract.md, "Topics on the target").

    Args:
        names: Names of the link.
        lanes: Lane count; each lane writes its positions to a partition of its own.
        brokers: Broker count of the target.
        replication_factor: As configured; None for three, or the number of brokers if that is smaller.
        dead_letters: True if the link writes dead letters.
    """
    factor = default_replication_factor(brokers, replication_factor)
    configs = dict(_COMPACT)
    # With two replicas, a minimum of two in sync would stop the mirror whenever a broker restarts.
    configs["min.insync.replicas"] = "2" if factor >= _REPLICAS else "1"
    small = {**configs, **_SMALL}
    topics = (
        CreateTopic(names.control_topic, 1, factor, {**small, **_LARGE_RECORDS}),
        CreateTopic(names.positions_topic, max(_POSITIONS_PARTITIONS, lanes), factor, small),
        CreateTopic(names.offset_map_topic, _OFFSET_MAP_PARTITIONS, factor, small),
    )
    if not dead_letters:
        return topics
    # Each key is written once, so compaction keeps every dead letter for as long as the topic lives.
    large = {**configs, "max.message.bytes": str(LARGEST_MESSAGE)}
    return (*topics, CreateTopic(names.dead_letter_topic, 1, factor, large))


def state_changes(
    wanted: tuple[CreateTopic, ...], found: Mapping[str, TopicFacts | None]
) -> tuple[CreateTopic | AddPartitions, ...]:
    """
    Returns the changes that must precede the mirror's first write to its state topics, in order.

    The offset map is never grown: a source partition's chunks are found by a hash over the partition count.

    Args:
        wanted: Result of `state_topics`.
        found: Topics of the target, by name.

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
                f"topic {topic.name} has {facts.partitions} partitions, but must have exactly one",
                fix="find out which tool grew or created it; with the mirror stopped, recreate it with one partition "
                "and start with a new link name, or adopt the positions",
            )
        elif topic.name.endswith(".positions") and facts.partitions < topic.partitions:
            changes.append(AddPartitions(topic.name, topic.partitions, facts.partitions))
    return tuple(changes)


def policy_fix(topic: str) -> str:
    """Returns the command that restores the cleanup policy of a state topic."""
    return (
        "set it back: kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
        f"--entity-name {topic} --add-config cleanup.policy=compact"
    )


def state_drift(topic: CreateTopic, found: Mapping[str, str | None]) -> tuple[Drift, ...]:
    """
    Returns settings of an existing topic that differ from their values at creation.

    Args:
        topic: The desired topic.
        found: Its effective settings.

    Raises:
        StateError: The topic would delete the mirror's state.
    """
    policy = found.get("cleanup.policy")
    if policy != "compact":
        raise StateError(
            f"topic {topic.name} has cleanup.policy={policy}: retention would delete the mirror's state",
            fix=policy_fix(topic.name),
        )
    return tuple(
        Drift(topic.name, setting, value, found.get(setting))
        for setting, value in topic.configs.items()
        if found.get(setting) != value
    )
