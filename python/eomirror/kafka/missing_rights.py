"""
Finds rights that our user lacks, with requests that change nothing.

Topics that exist, and the cluster, report our rights on them to a user with Describe (KIP-430).  Of others a request
tells that brokers refuse for a missing right before they find another fault, or that is only validated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, TopicCollection
from confluent_kafka.admin import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from eomirror.config.rights import TOLD_AS, Right
from eomirror.kafka.admin_client import MISSING, OPERATION_SECONDS, RetryingAdmin, error_code
from eomirror.kafka.cluster_metadata import operations

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    _Probe = Callable[[Any, Sequence[str], float], Mapping[Any, Any]]

__all__ = ["missing_rights"]

_REFUSED = frozenset({KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED})
_SET = [ConfigEntry("cleanup.policy", "delete", incremental_operation=AlterConfigOpType.SET)]
# what a user without Describe lacks as well
_WITH_DESCRIBE = frozenset({"Describe", "Read", "Write", "Alter"})
# operation on a topic that may not exist -> request that needs it
_PROBES: dict[str, _Probe] = {
    "Create": lambda client, names, seconds: client.create_topics(
        [NewTopic(name, 1, 1) for name in names], request_timeout=seconds, validate_only=True
    ),
    "Alter": lambda client, names, seconds: client.create_partitions(
        [NewPartitions(name, 1) for name in names], request_timeout=seconds, validate_only=True
    ),
    "DescribeConfigs": lambda client, names, seconds: client.describe_configs(
        [ConfigResource(ResourceType.TOPIC, name) for name in names], request_timeout=seconds
    ),
    "AlterConfigs": lambda client, names, seconds: client.incremental_alter_configs(
        [ConfigResource(ResourceType.TOPIC, name, incremental_configs=_SET) for name in names],
        request_timeout=seconds,
        validate_only=True,
    ),
}
_UNSET = [ConfigEntry("log.cleaner.threads", None, incremental_operation=AlterConfigOpType.DELETE)]
# operation on the cluster that does not imply Describe -> request about a broker that needs it
_CLUSTER_PROBES: dict[str, _Probe] = {
    "DescribeConfigs": lambda client, names, seconds: client.describe_configs(
        [ConfigResource(ResourceType.BROKER, name) for name in names], request_timeout=seconds
    ),
    "AlterConfigs": lambda client, names, seconds: client.incremental_alter_configs(
        [ConfigResource(ResourceType.BROKER, name, incremental_configs=_UNSET) for name in names],
        request_timeout=seconds,
        validate_only=True,
    ),
}


def missing_rights(retrying: RetryingAdmin, asked: Sequence[Right]) -> tuple[set[Right], list[Right]]:
    """
    Returns the missing ones of rights, and those that the client library has no request for.

    Raises:
        ClusterError: The cluster cannot be reached.
    """
    told, hidden = _told(retrying, sorted({right.name for right in asked if right.resource == "topic"}))
    missing: set[Right] = set()
    others: list[Right] = []
    on_cluster = {right.operation for right in asked if right.resource == "cluster"}
    denied = _denied_on_cluster(retrying, on_cluster) if on_cluster else frozenset()
    for right in asked:
        if right.resource == "cluster":
            if right.operation in denied:
                missing.add(right)
        elif right.resource != "topic":
            others.append(right)
        elif right.name in told:
            if TOLD_AS[right.operation] not in told[right.name]:
                missing.add(right)
        elif right.name in hidden and right.operation in _WITH_DESCRIBE:
            missing.add(right)
        else:
            others.append(right)
    for operation, probe in _PROBES.items():
        names = {
            right.name: right
            for right in others
            if right.resource == "topic" and right.operation == operation
        }
        missing |= {names[name] for name in _denied(retrying, sorted(names), probe)}
    # no request tells of Delete on a topic that does not exist
    known = {*_PROBES, "Describe", "Delete"}
    return missing, [right for right in others if right.resource != "topic" or right.operation not in known]


def _denied_on_cluster(retrying: RetryingAdmin, asked: Collection[str]) -> frozenset[str]:
    """Returns the operations on the cluster that we lack."""

    def ask() -> Any:
        described = retrying.client.describe_cluster(
            include_authorized_operations=True, request_timeout=OPERATION_SECONDS
        )
        return described.result(OPERATION_SECONDS + 1)

    described = retrying.with_retries(ask, "read our rights on the cluster")
    if told := operations(described):
        return frozenset(operation for operation in asked if TOLD_AS[operation] not in told)
    # a user without Describe is told nothing, also of what does not imply it
    broker = [str(described.nodes[0].id)]
    return frozenset(
        operation
        for operation in asked
        if operation not in _CLUSTER_PROBES or _denied(retrying, broker, _CLUSTER_PROBES[operation])
    )


def _told(retrying: RetryingAdmin, topics: Sequence[str]) -> tuple[dict[str, frozenset[str]], set[str]]:
    """Returns the operations that brokers report for topics, and the topics that we may not describe."""
    hidden: set[str] = set()

    def send(waiting: Sequence[str], seconds: float) -> Mapping[str, Any]:
        return retrying.client.describe_topics(  # type: ignore[no-any-return]
            TopicCollection(list(waiting)), include_authorized_operations=True, request_timeout=seconds
        )

    def failed(name: str, raised: Exception) -> None:
        if error_code(raised) == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            hidden.add(name)
        elif error_code(raised) not in MISSING:
            raise retrying.translated(
                raised, f"read our rights on topic {name}", Right("Describe", "topic", name)
            ) from raised

    found = retrying.each(topics, send, failed, reads=True)
    told = {name: operations(answer) for name, answer in found.items() if answer is not None}
    # brokers that report nothing: they support no rights to be asked for
    return {name: rights or frozenset(TOLD_AS.values()) for name, rights in told.items()}, hidden


def _denied(retrying: RetryingAdmin, names: Sequence[str], probe: _Probe) -> set[str]:
    denied: set[str] = set()

    def send(waiting: Sequence[str], seconds: float) -> Mapping[str, Any]:
        futures = probe(retrying.client, waiting, seconds)
        return {str(getattr(key, "name", key)): future for key, future in futures.items()}

    def failed(name: str, raised: Exception) -> None:
        # any other fault was found behind the right
        if error_code(raised) in _REFUSED:
            denied.add(name)

    retrying.each(names, send, failed)
    return denied
