"""Denies and allows writes to topics with ACLs: one entry a topic, for all principals but super users."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from eomirror.errors import ClusterError
from eomirror.kafka.admin_client import OPERATION_SECONDS, RetryingAdmin, error_code
from eomirror.kafka.errors import Right

if TYPE_CHECKING:
    from collections.abc import Collection

    from eomirror.clock import Clock
    from eomirror.config import Cluster

__all__ = ["WriteDenials"]

_EVERYONE = "User:*"
_ANY_HOST = "*"
_ALTER = Right("Alter", "cluster")
_DESCRIBE = Right("Describe", "cluster")


class WriteDenials:
    """
    DENY Write entries of one cluster, for ``User:*`` from every host.

    Raises:
        ClusterError: librdkafka does not take the cluster's properties.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, clock: Clock) -> None:
        self._retrying = RetryingAdmin(cluster, client_id=client_id, timeout=OPERATION_SECONDS, clock=clock)

    def existing(self) -> frozenset[str]:
        """
        Returns the topics that have such an entry.

        Raises:
            AuthorizationError: ACLs may not be described.
            ClusterError: The cluster has no authorizer, or does not answer.
        """
        every = AclBindingFilter(
            ResourceType.TOPIC,
            None,
            ResourcePatternType.LITERAL,
            _EVERYONE,
            _ANY_HOST,
            AclOperation.WRITE,
            AclPermissionType.DENY,
        )

        def ask() -> Any:
            return self._client.describe_acls(every, request_timeout=OPERATION_SECONDS).result(
                OPERATION_SECONDS + 1
            )

        return frozenset(one.name for one in self._sent(ask, "describe ACLs", _DESCRIBE))

    def deny(self, topics: Collection[str]) -> None:
        """
        Adds an entry for each topic.

        Raises:
            AuthorizationError: ACLs may not be altered.
            ClusterError: The cluster has no authorizer, or does not answer.
        """
        bindings = [AclBinding(*_entry(topic)) for topic in sorted(topics)]

        def ask() -> None:
            for future in self._client.create_acls(bindings, request_timeout=OPERATION_SECONDS).values():
                future.result(OPERATION_SECONDS + 1)

        if bindings:
            self._sent(ask, "deny writes to topics", _ALTER)

    def allow(self, topics: Collection[str]) -> None:
        """
        Deletes the entry of each topic; one that is gone already is no error, and neither is a missing authorizer.

        Raises:
            AuthorizationError: ACLs may not be altered.
            ClusterError: The cluster does not answer.
        """
        filters = [AclBindingFilter(*_entry(topic)) for topic in sorted(topics)]

        def ask() -> None:
            for future in self._client.delete_acls(filters, request_timeout=OPERATION_SECONDS).values():
                try:
                    future.result(OPERATION_SECONDS + 1)
                except KafkaException as raised:
                    if error_code(raised) != KafkaError.SECURITY_DISABLED:
                        raise

        if filters:
            self._sent(ask, "allow writes to topics", _ALTER)

    def close(self) -> None:
        """Releases the client."""
        self._retrying.close()

    def _sent(self, ask: Any, doing: str, right: Right) -> Any:
        def without_authorizer() -> Any:
            try:
                return ask()
            except Exception as raised:
                if error_code(raised) != KafkaError.SECURITY_DISABLED:
                    raise
                raise ClusterError(
                    f"{self._retrying.name}: cannot {doing}: the cluster has no authorizer",
                    fix="fence with another method: `--method wait`, or `--method command` with a hook of your own",
                ) from raised

        return self._retrying.with_retries(without_authorizer, doing, right)

    @property
    def _client(self) -> Any:
        return self._retrying.client


def _entry(topic: str) -> tuple[Any, ...]:
    literal, write, deny = ResourcePatternType.LITERAL, AclOperation.WRITE, AclPermissionType.DENY
    return ResourceType.TOPIC, topic, literal, _EVERYONE, _ANY_HOST, write, deny
