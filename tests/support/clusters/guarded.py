"""Clusters with an authorizer whose users have no right, and the entries that allow and deny."""

from __future__ import annotations

from typing import TYPE_CHECKING

from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from eomirror.localkafka.cluster import ClusterSpec

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["acl", "add_acls", "delete_acls", "guarded_spec"]


def guarded_spec(name: str = "guarded", *users: str, **properties: str) -> ClusterSpec:
    """A cluster where who has no entry may do nothing, as is Kafka's default; its users are no super users."""
    return ClusterSpec(
        name, security="sasl_plaintext", authorizer=True, heap="384m", properties=properties,
        users=dict.fromkeys(users or ("mirror",), "secret"),
    )  # fmt: skip


def acl(
    name: str,
    principal: str = "User:mirror",
    permission: AclPermissionType = AclPermissionType.ALLOW,
    *,
    operation: AclOperation = AclOperation.ALL,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
) -> AclBinding:
    """An entry; by default all operations on one topic for the mirror."""
    return AclBinding(kind, name, pattern, principal, "*", operation, permission)


def add_acls(admin: AdminClient, entries: Sequence[AclBinding]) -> None:
    """Add entries, as `kafka-acls.sh --add` does."""
    for future in admin.create_acls(list(entries)).values() if entries else ():
        future.result(30)


def delete_acls(admin: AdminClient, entries: Sequence[AclBinding]) -> None:
    """Delete entries, as `kafka-acls.sh --remove` does; fields may be ANY or None."""
    wanted = [
        AclBindingFilter(
            one.restype, one.name, one.resource_pattern_type, one.principal, one.host, one.operation,
            one.permission_type,
        )
        for one in entries
    ]  # fmt: skip
    for future in admin.delete_acls(wanted).values() if wanted else ():
        assert future.result(30), entries
