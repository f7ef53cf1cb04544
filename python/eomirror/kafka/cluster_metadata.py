"""Metadata of clusters and topics as plain values, read from confluent-kafka's answers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from eomirror.errors import UnreachableError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "AclEntry",
    "ClusterFacts",
    "ConfigValue",
    "CreateTopic",
    "QuotaEntry",
    "ScramUser",
    "TopicFacts",
    "TopicShape",
    "are_other_ids",
    "config_value",
    "current_topic_id",
    "is_deleted",
    "is_topic_id",
    "leaderless_error",
    "native_id",
    "operations",
    "topic_facts",
    "topic_shape",
]

# topic id of brokers that have none
_NO_ID: Final = "A" * 22

# ConfigSource of the protocol (DescribeConfigs v1 and later), by number
_SOURCES: Final = {
    1: "topic",
    2: "broker",
    3: "broker default",
    4: "broker file",
    5: "default",
}


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A topic to create, with the settings that are set on the topic itself."""

    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """A cluster's id and how many brokers it has."""

    cluster_id: str
    brokers: int


class TopicShape(NamedTuple):
    """The part of `TopicFacts` that a listing of all topics has as well."""

    partitions: int
    replication_factor: int
    leaderless: frozenset[int]
    under_replicated: frozenset[int]


@dataclass(frozen=True, slots=True)
class TopicFacts:
    """
    A topic as the cluster describes it.

    Attributes:
        topic_id: Its id, which a topic of the same name that is created later does not have.
        partitions: How many it has.
        replication_factor: Of its first partition.
        leaderless: Numbers of partitions without a leader; a fresh topic has some for a moment, and one whose replicas
            are all on brokers that are down has them until these are back.
        under_replicated: Numbers of partitions of which a replica is not in sync.
    """

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    leaderless: frozenset[int] = frozenset()
    under_replicated: frozenset[int] = frozenset()

    @property
    def shape(self) -> TopicShape:
        """Its partitions, without its id."""
        return TopicShape(self.partitions, self.replication_factor, self.leaderless, self.under_replicated)


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """
    A topic's setting.

    Attributes:
        value: Its effective value; None when the broker does not tell.
        is_default: It is not set on the topic itself.
        source: Where it is set: ``topic``, ``broker``, ``broker default``, ``broker file``, or ``default`` for Kafka's
            own value.
        read_only: It cannot be set.
        sensitive: The broker hides it.
    """

    value: str | None
    is_default: bool
    source: str = "default"
    read_only: bool = False
    sensitive: bool = False


class AclEntry(NamedTuple):
    """
    An ACL entry of a cluster.

    Attributes:
        resource: ``topic`` or ``group``.
        pattern: ``literal`` or ``prefixed``.
        name: Of the resource, or the beginning of names; ``*`` for all.
        principal: With its type, such as ``User:app``.
        host: Address of the client; ``*`` for all.
        operation: As kafka-acls.sh spells it, such as ``DescribeConfigs``.
        permission: ``allow`` or ``deny``.
    """

    resource: str
    pattern: str
    name: str
    principal: str
    host: str
    operation: str
    permission: str

    def __str__(self) -> str:
        beginning = "*" if self.pattern == "prefixed" else ""
        host = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission} {self.principal}{host} {self.operation} on {self.resource} {self.name}{beginning}"


class QuotaEntry(NamedTuple):
    """
    A client quota of a cluster, without its value (KIP-546).

    Attributes:
        entity: Types (``user``, ``client-id``, ``ip``) with names, sorted; None is the default entity.
        key: Name of the quota, such as ``producer_byte_rate``.
    """

    entity: tuple[tuple[str, str | None], ...]
    key: str

    def __str__(self) -> str:
        return f"{self.key} of " + ", ".join(
            f"{kind} {'<default>' if name is None else name}" for kind, name in self.entity
        )


class ScramUser(NamedTuple):
    """A user with a SCRAM password, whose salt and keys no request tells (KIP-554)."""

    name: str
    mechanism: str
    iterations: int


def topic_facts(description: Any) -> TopicFacts:
    """Returns the facts of a `TopicDescription`."""
    partitions = description.partitions
    return TopicFacts(
        description.name,
        str(description.topic_id),
        len(partitions),
        len(partitions[0].replicas) if partitions else 0,
        frozenset(partition.id for partition in partitions if partition.leader is None),
        frozenset(partition.id for partition in partitions if len(partition.isr) < len(partition.replicas)),
    )


def topic_shape(metadata: Any) -> TopicShape | None:
    """Returns the shape of a `TopicMetadata`; None if brokers tell an error of it."""
    partitions = metadata.partitions
    if metadata.error is not None or not partitions:
        return None
    first = partitions.get(0)
    return TopicShape(
        len(partitions),
        0 if first is None else len(first.replicas),
        frozenset(number for number, one in partitions.items() if one.leader < 0),
        frozenset(number for number, one in partitions.items() if len(one.isrs) < len(one.replicas)),
    )


def current_topic_id(topic: TopicFacts | None, remembered: str, *, there: bool) -> str | None:
    """
    Returns the current topic id of one of our partitions.

    Args:
        topic: As described; None if it does not exist.
        remembered: Id of the topic that held the partition.
        there: Whether the partition exists.

    Returns:
        None if it is gone.  A recreated topic takes precedence, because it may have fewer partitions (EO-5).
    """
    if topic is None:
        return None
    return topic.topic_id if there or topic.topic_id != remembered else None


def are_other_ids(one: str, other: str) -> bool:
    """Returns True if two topic ids prove that they are of two topics."""
    return one != other and is_topic_id(one) and is_topic_id(other)


def is_topic_id(text: str) -> bool:
    """Returns True if a text is the id of one topic; brokers without ids report one for all."""
    return text not in {"", _NO_ID}


def native_id(topic_id: str) -> str:
    """Returns a topic id as the extension and Kafka's tools write it: URL-safe, where librdkafka has plain base64."""
    return topic_id.replace("+", "-").replace("/", "_")


def is_deleted(name: str, topic_id: str, topics: Mapping[str, TopicFacts | None]) -> bool:
    """
    Returns True if a topic does not exist any more, whatever has its name now.

    Args:
        name: Its name.
        topic_id: Its id.
        topics: Topics as described, without those that are hidden; None for one that does not exist.
    """
    found = topics.get(name)
    return name in topics and (found is None or are_other_ids(found.topic_id, topic_id))


def config_value(entry: Any) -> ConfigValue:
    """Returns the value of a `ConfigEntry`, or of what has its fields."""
    if isinstance(entry, ConfigValue):
        return entry
    source = _SOURCES.get(int(getattr(entry.source, "value", entry.source)), "unknown")
    return ConfigValue(
        entry.value,
        is_default=source != "topic",
        source=source,
        read_only=bool(entry.is_read_only),
        sensitive=bool(entry.is_sensitive),
    )


def leaderless_error(partition: tuple[str, int], cluster: str, *, topic: str = "") -> UnreachableError:
    """
    Returns the error for a partition that exists but has no leader.

    Args:
        partition: Topic and number.
        cluster: Its name, for the message.
        topic: The affected source topic; by default that of the partition.
    """
    name, number = partition
    return UnreachableError(
        f"{name}-{number} has no leader on cluster {cluster}",
        fix="start a broker that holds a replica of it; nothing is lost, and a running mirror resumes automatically",
        topic=topic or name,
    )


def operations(description: Any) -> frozenset[str]:
    """Returns the authorized operations of a description (KIP-430)."""
    return frozenset(operation.name for operation in description.authorized_operations or ())
