"""
Requests of an administrator through the extension, which librdkafka (2.16) lacks.

They are client quotas (KIP-546), and the deletion of topics by their ids (KIP-516).  The extension's client does not
support every login that librdkafka has, such as Kerberos.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror._native import (
    PlaneReader,
    alter_client_quotas,
    delete_topics_by_id,
    describe_client_quotas,
)
from eomirror.config.clients import consumer_properties
from eomirror.config.rights import Right, lacking
from eomirror.errors import AuthorizationError, ClusterError
from eomirror.kafka.cluster_metadata import QuotaEntry, is_topic_id, native_id
from eomirror.plane.native.oauth import as_text, with_tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.errors import MirrorError
    from eomirror.kafka.session import ClusterSession

__all__ = ["client_quotas", "delete_topics", "native_properties", "set_client_quotas"]

_SECONDS = 30.0


def native_properties(session: ClusterSession) -> tuple[dict[str, str], Any]:
    """
    Returns the properties and the token source of a cluster for the extension's client.

    Raises:
        ClusterError: That client does not support a property.
    """
    given = as_text(consumer_properties(session.cluster, client_id=session.client_id))
    properties, tokens = with_tokens(given)
    if refused := PlaneReader.unsupported_properties(properties, tokens):
        raise ClusterError(
            f"{session.admin.name}: " + "; ".join(f"{name}: {reason}" for name, reason in refused),
            fix="only librdkafka's client serves these properties",
        )
    return properties, tokens


def client_quotas(session: ClusterSession) -> dict[QuotaEntry, float]:
    """
    Returns all client quotas that are set on a cluster.

    Raises:
        AuthorizationError: They may not be described.
        ClusterError: The cluster does not answer, or the client does not support its properties.
    """
    properties, tokens = native_properties(session)
    try:
        found = describe_client_quotas(properties, tokens, _SECONDS)
    except AuthorizationError as error:
        raise _lacking(session, "DescribeConfigs", error) from error
    return {QuotaEntry(tuple(sorted(entity, key=_by_type)), key): value for entity, key, value in found}


def set_client_quotas(
    session: ClusterSession, changes: Mapping[QuotaEntry, float | None]
) -> dict[QuotaEntry, ClusterError]:
    """
    Sets quotas, and removes those without a value; returns the error of each that is refused.

    Raises:
        AuthorizationError: They may not be altered.
        ClusterError: The cluster does not answer, or the client does not support its properties.
    """
    if not changes:
        return {}
    properties, tokens = native_properties(session)
    asked = [(list(entry.entity), entry.key, value) for entry, value in changes.items()]
    refused = alter_client_quotas(properties, tokens, asked, _SECONDS)
    if any("AUTHORIZATION_FAILED" in reason for _, reason in refused):
        raise _lacking(session, "AlterConfigs", None)
    reasons = {tuple(sorted(entity, key=_by_type)): reason for entity, reason in refused}
    return {
        entry: ClusterError(f"{session.admin.name}: quota {entry}: {reasons[entry.entity]}")
        for entry in changes
        if entry.entity in reasons
    }


def delete_topics(session: ClusterSession, ids: Mapping[str, str]) -> dict[str, MirrorError]:
    """
    Deletes topics by their ids; returns the error of each that is refused.

    A topic that has the name of one by the time the request arrives is left alone: another process may have deleted and
    created it meanwhile.  Topics without an id are deleted by their names, and all where the extension cannot ask.

    Args:
        ids: Name and id of each topic.

    Raises:
        ClusterError: The cluster refuses or cannot be reached.
    """
    admin = session.admin
    names = {native_id(topic_id): name for name, topic_id in ids.items() if is_topic_id(topic_id)}
    by_name = set(ids) - set(names.values())
    refused: dict[str, str] = {}
    try:
        properties, tokens = native_properties(session)
    except ClusterError:
        by_name = set(ids)
    else:
        found = delete_topics_by_id(properties, tokens, [*names], _SECONDS) if names else []
        refused = {names[one]: why for one, why in found if why != "NOT_CONTROLLER"}
        # with a ZooKeeper, brokers do not pass the request on
        by_name |= {names[one] for one, _ in found} - refused.keys()
    admin.deleted(ids)
    if by_name:
        admin.delete_topics(sorted(by_name))
    return {
        name: lacking(f"delete topic {name}: ", admin.account, [Right("Delete", "topic", name)])
        if "AUTHORIZATION_FAILED" in why
        else ClusterError(f"{admin.name}: topic {name} is not deleted: {why}")
        for name, why in refused.items()
    }


def _by_type(part: tuple[str, str | None]) -> str:
    return part[0]


def _lacking(session: ClusterSession, operation: str, error: AuthorizationError | None) -> AuthorizationError:
    if error is not None and "AUTHORIZATION_FAILED" not in error.message:
        # a login that is refused
        return error
    return lacking("client quotas: ", session.admin.account, [Right(operation, "cluster")])
