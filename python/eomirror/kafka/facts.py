"""What a cluster says about itself and its topics: plain values, read from confluent-kafka's answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

__all__ = ["ClusterFacts", "ConfigValue", "TopicFacts", "config_value", "operations", "topic_facts"]

# ConfigSource of the protocol (DescribeConfigs v1 and later), by number
_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "broker default",
    4: "broker file",
    5: "default",
}


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster's id and how many brokers it has."""

    cluster_id: str
    brokers: int


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """
    A topic as the cluster describes it.

    Attributes:
        name: Its name.
        topic_id: Its id, which a topic of the same name that is created later does not have.
        partitions: How many it has.
        replication_factor: Of its first partition.
        leaderless: Partitions without a leader; a fresh topic has some for a moment.
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    leaderless: int = 0


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """
    A topic's setting.

    Attributes:
        value: Its effective value; None when the broker does not tell.
        is_default: It is not set on the topic itself.
        source: Where it is set: ``topic``, ``broker``, ``broker default``, ``broker file``, or ``default`` for
            Kafka's own value.
        read_only: It cannot be set.
        sensitive: The broker hides it.
    """

    value: str | None
    is_default: bool
    source: str = "default"
    read_only: bool = False
    sensitive: bool = False


def topic_facts(description: Any) -> TopicFacts:
    """From a `TopicDescription`."""
    partitions = description.partitions
    return TopicFacts(
        description.name,
        str(description.topic_id),
        len(partitions),
        len(partitions[0].replicas) if partitions else 0,
        sum(1 for partition in partitions if partition.leader is None),
    )


def config_value(entry: Any) -> ConfigValue:
    """From a `ConfigEntry`."""
    source = _SOURCES.get(int(getattr(entry.source, "value", entry.source)), "unknown")
    return ConfigValue(
        entry.value,
        is_default=source != "topic",
        source=source,
        read_only=bool(entry.is_read_only),
        sensitive=bool(entry.is_sensitive),
    )


def operations(description: Any) -> frozenset[str]:
    """Authorized operations of a description that was asked for with them (KIP-430)."""
    return frozenset(operation.name for operation in description.authorized_operations or ())
