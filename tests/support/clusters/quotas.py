"""Quotas of brokers, set and read through Java's admin client: librdkafka's has no request for them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["client_quotas", "limit_topic_changes", "set_quota"]


def limit_topic_changes(gateway: Any, servers: str, user: str, rate: float) -> None:
    """
    Sets ``controller_mutation_rate`` of a user.

    Args:
        gateway: A JVM with the Kafka jars.
        servers: A plaintext listener of the cluster, where everything is allowed.
        user: Name of the user.
        rate: Partitions per second; eleven seconds of it may be spent at once.
    """
    set_quota(gateway, servers, {"user": user}, "controller_mutation_rate", rate)


def set_quota(
    gateway: Any, servers: str, entity: Mapping[str, str | None], key: str, value: float | None
) -> None:
    """
    Sets a quota of an entity, whose default has no name; removes it without a value.

    Args:
        gateway: As of `limit_topic_changes`.
        servers: As of `limit_topic_changes`.
    """
    quota = gateway.jvm.org.apache.kafka.common.quota
    change = quota.ClientQuotaAlteration(
        quota.ClientQuotaEntity(dict(entity)), [quota.ClientQuotaAlteration.Op(key, value)]
    )
    with _admin(gateway, servers) as admin:
        admin.alterClientQuotas([change]).all().get()


def client_quotas(gateway: Any, servers: str) -> dict[tuple[tuple[tuple[str, str | None], ...], str], float]:
    """Returns all quotas of a cluster: entity and name of the quota -> value."""
    wanted = gateway.jvm.org.apache.kafka.common.quota.ClientQuotaFilter.all()
    with _admin(gateway, servers) as admin:
        found = admin.describeClientQuotas(wanted).entities().get()
        return {
            (tuple(sorted(dict(entity.entries()).items())), str(key)): float(value)
            for entity in found
            for key, value in dict(found[entity]).items()
        }


@contextmanager
def _admin(gateway: Any, servers: str) -> Iterator[Any]:
    admin = gateway.jvm.org.apache.kafka.clients.admin.Admin.create({"bootstrap.servers": servers})
    try:
        yield admin
    finally:
        admin.close()
