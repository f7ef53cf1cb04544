"""What a cluster says about itself and its topics: plain values."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ClusterFacts", "ConfigValue", "TopicFacts"]


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
