"""Quotas of brokers, set through Java's admin client: librdkafka's has no request for them."""

from __future__ import annotations

from typing import Any

__all__ = ["limit_topic_changes"]


def limit_topic_changes(gateway: Any, servers: str, user: str, rate: float) -> None:
    """
    Sets ``controller_mutation_rate`` of a user.

    Args:
        gateway: A JVM with the Kafka jars.
        servers: A plaintext listener of the cluster, where everything is allowed.
        user: Name of the user.
        rate: Partitions per second; eleven seconds of it may be spent at once.
    """
    jvm = gateway.jvm
    quota = jvm.org.apache.kafka.common.quota
    entity = quota.ClientQuotaEntity({"user": user})
    change = quota.ClientQuotaAlteration(
        entity, [quota.ClientQuotaAlteration.Op("controller_mutation_rate", rate)]
    )
    admin = jvm.org.apache.kafka.clients.admin.Admin.create({"bootstrap.servers": servers})
    try:
        admin.alterClientQuotas([change]).all().get()
    finally:
        admin.close()
