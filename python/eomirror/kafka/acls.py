"""
Reads, adds and deletes ACL entries, denies and allows writes to topics, and checks the right to a transactional.id.

A denial is one entry a topic, for all principals but super users.
"""

from __future__ import annotations

from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import producer_properties
from eomirror.config.rights import TOLD_AS, Right, account_of
from eomirror.errors import ClusterError
from eomirror.kafka.admin_client import OPERATION_SECONDS, RetryingAdmin, error_code
from eomirror.kafka.client_factory import create_client
from eomirror.kafka.cluster_metadata import AclEntry, ScramUser, operations
from eomirror.kafka.errors import Action, classify_transaction, to_mirror_error

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from eomirror.config import Cluster
    from eomirror.errors import MirrorError

__all__ = ["AclAdmin", "WriteDenials", "check_transactional_id"]

_SECONDS = 10.0


def check_transactional_id(
    cluster: Cluster,
    transactional_id: str,
    *,
    client_id: str,
    transaction_timeout: float,
    clock: Clock = SYSTEM_CLOCK,
) -> None:
    """
    Runs InitProducerId once, to check the ACL.

    It fences the current producer of the id, so it is only for ids without one, such as those of a link without a
    control topic.  No request tests it without side effects: the authorized operations of KIP-430 cover topics, groups
    and the cluster.

    Args:
        transaction_timeout: Seconds; brokers refuse one above their transaction.max.timeout.ms here.

    Raises:
        AuthorizationError: The ACL is missing.
        ClusterError: The timeout is refused, or no coordinator answers within 10 s.
    """
    producer = create_client(
        Producer,
        cluster,
        {
            **producer_properties(
                cluster,
                client_id=client_id,
                transactional_id=transactional_id,
                transaction_timeout_ms=int(transaction_timeout * 1000),
            ),
            "logger": _Silent(),
        },
    )
    deadline = Deadline(_SECONDS, clock)
    while True:
        try:
            producer.init_transactions(max(0.1, deadline.remaining()))
        except KafkaException as raised:
            error = raised.args[0]
            again = classify_transaction(error).action in {Action.RETRY, Action.UNREACHABLE}
            if again and not deadline.passed:
                continue
            raise to_mirror_error(
                error,
                doing=f"use transactional.id {transactional_id}",
                cluster=account_of(cluster),
                right=Right("Write", "transactional-id", transactional_id),
            ) from raised
        return


class _Silent:
    """Keeps librdkafka's log off stderr; relevant errors are raised."""

    def log(self, *_: Any) -> None:
        """Drops a line."""


_EVERYONE = "User:*"
_ANY_HOST = "*"
_ANY_TOPIC = "*"
_ALTER = Right("Alter", "cluster")
_DESCRIBE = Right("Describe", "cluster")


_ANY_ENTRY = ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
# as kafka-acls.sh spells an operation -> as the client library does
_OPERATIONS = {"".join(map(str.capitalize, each.name.split("_"))): each for each in AclOperation}


class AclAdmin:
    """
    ACL entries and SCRAM users of one cluster.

    Args:
        retrying: Client of the cluster.
    """

    def __init__(self, retrying: RetryingAdmin) -> None:
        self._retrying = retrying

    def entries(self) -> tuple[AclEntry, ...] | None:
        """
        Returns all entries on topics and groups; None if the cluster has no authorizer.

        Raises:
            AuthorizationError: ACLs may not be described.
            ClusterError: The cluster does not answer.
        """
        try:
            found = [
                one
                for kind in (ResourceType.TOPIC, ResourceType.GROUP)
                for one in self.found(AclBindingFilter(kind, None, *_ANY_ENTRY))
            ]
        except NoAuthorizerError:
            return None
        return tuple(sorted(_entry_of(one) for one in found))

    def add(self, entries: Sequence[AclEntry]) -> dict[AclEntry, MirrorError]:
        """
        Adds entries; returns the error of each that is refused.

        Raises:
            AuthorizationError: ACLs may not be altered.
            ClusterError: The cluster has no authorizer, or does not answer.
        """
        bindings = {AclBinding(*_fields(entry)): entry for entry in entries}

        def request() -> dict[AclEntry, MirrorError]:
            refused = {}
            asked = self._client.create_acls(list(bindings), request_timeout=OPERATION_SECONDS)
            for binding, future in asked.items():
                if (error := self._outcome(future, f"add ACL entry {bindings[binding]}")) is not None:
                    refused[bindings[binding]] = error
            return refused

        return self.sent(request, "add ACL entries", _ALTER) if bindings else {}

    def delete(self, entries: Sequence[AclEntry]) -> dict[AclEntry, MirrorError]:
        """
        Deletes entries; one that is gone already is no error.  Returns the error of each that is refused.

        Raises:
            AuthorizationError: ACLs may not be altered.
            ClusterError: The cluster has no authorizer, or does not answer.
        """
        filters = {AclBindingFilter(*_fields(entry)): entry for entry in entries}

        def request() -> dict[AclEntry, MirrorError]:
            refused = {}
            asked = self._client.delete_acls(list(filters), request_timeout=OPERATION_SECONDS)
            for wanted, future in asked.items():
                if (error := self._outcome(future, f"delete ACL entry {filters[wanted]}")) is not None:
                    refused[filters[wanted]] = error
            return refused

        return self.sent(request, "delete ACL entries", _ALTER) if filters else {}

    def scram_users(self) -> tuple[ScramUser, ...]:
        """
        Returns the users with a SCRAM password, sorted; a mechanism each.

        Raises:
            AuthorizationError: They may not be described.
            ClusterError: The cluster does not answer.
        """

        def request() -> Any:
            asked = self._client.describe_user_scram_credentials(request_timeout=OPERATION_SECONDS)
            return asked.result(OPERATION_SECONDS + 1)

        found = self.sent(request, "describe SCRAM users", _DESCRIBE)
        return tuple(
            sorted(
                ScramUser(name, info.mechanism.name.replace("_", "-"), info.iterations)
                for name, told in found.items()
                for info in told.scram_credential_infos
            )
        )

    def found(self, wanted: AclBindingFilter) -> list[AclBinding]:
        """
        Returns the entries that a filter matches.

        Raises:
            AuthorizationError: ACLs may not be described.
            NoAuthorizerError: The cluster has no authorizer.
            ClusterError: The cluster does not answer.
        """

        def request() -> Any:
            return self._client.describe_acls(wanted, request_timeout=OPERATION_SECONDS).result(
                OPERATION_SECONDS + 1
            )

        found = self.sent(request, "describe ACLs", _DESCRIBE)
        if not found:
            # librdkafka (2.16) drops a refusal of this request, and says that there are no entries
            self.need(self.described(), _DESCRIBE, "describe ACLs")
        return list(found)

    def described(self) -> Any:
        """Returns the description of the cluster with our rights (KIP-430)."""

        def request() -> Any:
            asked = self._client.describe_cluster(
                include_authorized_operations=True, request_timeout=OPERATION_SECONDS
            )
            return asked.result(OPERATION_SECONDS + 1)

        return self.sent(request, "describe the cluster", None)

    def need(self, described: Any, right: Right, doing: str) -> None:
        """
        Raises if our rights on the cluster lack one.

        Args:
            described: Result of `described`.
            right: The right.
            doing: What it is for.

        Raises:
            AuthorizationError: It is missing.
        """
        # the client gives None for a principal without any right
        if TOLD_AS[right.operation] not in operations(described):
            lacking = KafkaException(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED))
            raise self._retrying.translated(lacking, doing, right)

    def sent(self, request: Any, doing: str, right: Right | None) -> Any:
        """Sends a request, with retries; names a missing authorizer."""

        def without_authorizer() -> Any:
            try:
                return request()
            except Exception as raised:
                if error_code(raised) != KafkaError.SECURITY_DISABLED:
                    raise
                raise NoAuthorizerError(
                    f"{self._retrying.name}: cannot {doing}: the cluster has no authorizer",
                    fix="fence with another method: `--method wait`, or `--method command` with a hook of your own",
                ) from raised

        return self._retrying.with_retries(without_authorizer, doing, right)

    def _outcome(self, future: Any, doing: str) -> MirrorError | None:
        """Returns the error of one entry, which others do not share; raises one of the whole request."""
        try:
            future.result(OPERATION_SECONDS + 1)
        except (KafkaException, FutureTimeoutError) as raised:
            if error_code(raised) not in {KafkaError.INVALID_REQUEST, KafkaError.INVALID_PRINCIPAL_TYPE}:
                raise
            return self._retrying.translated(raised, doing, _ALTER)
        return None

    @property
    def _client(self) -> Any:
        return self._retrying.client


def _fields(entry: AclEntry) -> tuple[Any, ...]:
    return (
        ResourceType[entry.resource.upper()],
        entry.name,
        ResourcePatternType[entry.pattern.upper()],
        entry.principal,
        entry.host,
        _OPERATIONS[entry.operation],
        AclPermissionType[entry.permission.upper()],
    )


def _entry_of(one: AclBinding) -> AclEntry:
    return AclEntry(
        one.restype.name.lower(),
        one.resource_pattern_type.name.lower(),
        one.name,
        one.principal,
        one.host,
        "".join(map(str.capitalize, one.operation.name.split("_"))),
        one.permission_type.name.lower(),
    )


class NoAuthorizerError(ClusterError):
    """The cluster has no authorizer."""


class WriteDenials:
    """
    DENY Write entries of one cluster, for ``User:*`` from every host.

    Raises:
        ClusterError: librdkafka does not take the cluster's properties.
    """

    def __init__(self, cluster: Cluster, *, client_id: str, clock: Clock) -> None:
        self._retrying = RetryingAdmin(cluster, client_id=client_id, timeout=OPERATION_SECONDS, clock=clock)
        self._acls = AclAdmin(self._retrying)

    def cluster_id(self) -> str:
        """
        Returns the id of the cluster, of which entries may be described and altered.

        Raises:
            AuthorizationError: ACLs may not be described, or not be altered.
            ClusterError: The cluster does not answer.
        """
        found = self._acls.described()
        for right in (_DESCRIBE, _ALTER):
            self._acls.need(found, right, "deny writes to topics")
        return str(found.cluster_id)

    def existing(self) -> frozenset[str]:
        """
        Returns the topics that have such an entry.

        Raises:
            AuthorizationError: ACLs may not be described.
            ClusterError: The cluster does not answer.
        """
        return frozenset(name for name, _ in self._entries(AclBindingFilter(*_entry(None))))

    def bare(self, topics: Collection[str]) -> frozenset[str]:
        """
        Returns the topics that no entry of any kind names, by its name, its prefix or ``*``.

        Raises:
            AuthorizationError: ACLs may not be described.
            ClusterError: The cluster does not answer.
        """
        found = self._entries(AclBindingFilter(ResourceType.TOPIC, None, *_ANY_ENTRY))
        names = {name for name, prefixed in found if not prefixed}
        prefixes = tuple(name for name, prefixed in found if prefixed)
        if _ANY_TOPIC in names:
            return frozenset()
        return frozenset(one for one in topics if one not in names and not one.startswith(prefixes))

    def deny(self, topics: Collection[str]) -> None:
        """
        Adds an entry for each topic.

        Raises:
            AuthorizationError: ACLs may not be altered.
            ClusterError: The cluster has no authorizer, or does not answer.
        """
        bindings = [AclBinding(*_entry(topic)) for topic in sorted(topics)]

        def request() -> None:
            for future in self._client.create_acls(bindings, request_timeout=OPERATION_SECONDS).values():
                future.result(OPERATION_SECONDS + 1)

        if bindings:
            self._acls.sent(request, "deny writes to topics", _ALTER)

    def allow(self, topics: Collection[str]) -> None:
        """
        Deletes the entry of each topic; one that is gone already is no error, and neither is a missing authorizer.

        Raises:
            AuthorizationError: ACLs may not be altered.
            ClusterError: The cluster does not answer.
        """
        filters = [AclBindingFilter(*_entry(topic)) for topic in sorted(topics)]

        def request() -> None:
            for future in self._client.delete_acls(filters, request_timeout=OPERATION_SECONDS).values():
                try:
                    future.result(OPERATION_SECONDS + 1)
                except KafkaException as raised:
                    if error_code(raised) != KafkaError.SECURITY_DISABLED:
                        raise

        if filters:
            self._acls.sent(request, "allow writes to topics", _ALTER)

    def close(self) -> None:
        """Releases the client."""
        self._retrying.close()

    def _entries(self, wanted: AclBindingFilter) -> list[tuple[str, bool]]:
        """Returns the names of entries, each with True if it is a prefix."""
        found = self._acls.found(wanted)
        return [(one.name, one.resource_pattern_type is ResourcePatternType.PREFIXED) for one in found]

    @property
    def _client(self) -> Any:
        return self._retrying.client


def _entry(topic: str | None) -> tuple[Any, ...]:
    literal, write, deny = ResourcePatternType.LITERAL, AclOperation.WRITE, AclPermissionType.DENY
    return ResourceType.TOPIC, topic, literal, _EVERYONE, _ANY_HOST, write, deny
