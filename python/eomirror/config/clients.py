"""
Builds client properties from a cluster's properties; the only module that reveals secrets.

librdkafka warns about properties of the wrong role (a consumer's on a producer), and users write one set of
properties per cluster.  So a property of one role is not passed to clients of the other.  The two lists follow the
columns of librdkafka's CONFIGURATION.md (2.16); a test compares them with the library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.config.rules import CONSUMER_FORCED, PRODUCER_FORCED
from eomirror.config.secret import Secret
from eomirror.config.token_function import OAUTH_CB, TokenFunction

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from eomirror.config.model import Cluster

__all__ = [
    "CONSUMER_ONLY",
    "PRODUCER_ONLY",
    "admin_properties",
    "consumer_properties",
    "plain_producer_properties",
    "producer_properties",
]

CONSUMER_ONLY = frozenset(
    {
        "auto.commit.enable",
        "auto.commit.interval.ms",
        "auto.offset.reset",
        "check.crcs",
        "consume.callback.max.messages",
        "coordinator.query.interval.ms",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.partition.eof",
        "fetch.error.backoff.ms",
        "fetch.max.bytes",
        "fetch.message.max.bytes",
        "fetch.min.bytes",
        "fetch.queue.backoff.ms",
        "fetch.wait.max.ms",
        "group.id",
        "group.instance.id",
        "group.protocol",
        "group.protocol.type",
        "group.remote.assignor",
        "heartbeat.interval.ms",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.poll.interval.ms",
        "max.poll.records",
        "offset.store.method",
        "offset.store.path",
        "offset.store.sync.interval.ms",
        "partition.assignment.strategy",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "session.timeout.ms",
        "share.acknowledgement.mode",
    }
)

PRODUCER_ONLY = frozenset(
    {
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.level",
        "compression.type",
        "delivery.report.only.error",
        "delivery.timeout.ms",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "linger.ms",
        "message.send.max.retries",
        "message.timeout.ms",
        "msg_order_cmp",
        "partitioner",
        "produce.offset.report",
        "queue.buffering.backpressure.threshold",
        "queue.buffering.max.kbytes",
        "queue.buffering.max.messages",
        "queue.buffering.max.ms",
        "queuing.strategy",
        "request.required.acks",
        "request.timeout.ms",
        "retries",
        "sticky.partitioning.linger.ms",
        "transaction.timeout.ms",
        "transactional.id",
    }
)

# librdkafka requires a group id; the mirror never commits to this group or joins it
_NO_GROUP = "eomirror.none"

Value = str | int | float | bool


def consumer_properties(cluster: Cluster, *, client_id: str, **extra: Value) -> dict[str, Any]:
    """
    Returns properties of a consumer that reads committed records by manual assignment (EO-6, EO-12).

    Args:
        cluster: Cluster to read.
        client_id: Client id shown to brokers.
        extra: Defaults of the caller; a user's setting of the same property wins.

    Raises:
        ClusterError: The function named by ``oauth_cb`` cannot be imported here.
    """
    return {
        **extra,
        **_revealed(cluster.properties, without=PRODUCER_ONLY),
        **_revealed(cluster.consumer),
        "group.id": _NO_GROUP,
        "client.id": client_id,
        **CONSUMER_FORCED,
    }


def producer_properties(
    cluster: Cluster,
    *,
    client_id: str,
    transactional_id: str,
    transaction_timeout_ms: int,
    **extra: Value,
) -> dict[str, Any]:
    """
    Returns properties of a transactional producer (EO-7, EO-12).

    Args:
        cluster: Cluster to write.
        client_id: Client id shown to brokers.
        transactional_id: Id that fences older producers with the same id.
        transaction_timeout_ms: Time after which the coordinator aborts an open transaction.
        extra: Defaults of the caller; a user's setting of the same property wins.

    Raises:
        ClusterError: The function named by ``oauth_cb`` cannot be imported here.
    """
    return {
        **plain_producer_properties(cluster, client_id=client_id, **extra),
        "transactional.id": transactional_id,
        "transaction.timeout.ms": transaction_timeout_ms,
    }


def plain_producer_properties(cluster: Cluster, *, client_id: str, **extra: Value) -> dict[str, Any]:
    """Returns properties of an idempotent producer without transactions; arguments as in `producer_properties`."""
    return {
        **extra,
        **_revealed(cluster.properties, without=CONSUMER_ONLY),
        **_revealed(cluster.producer),
        "client.id": client_id,
        **PRODUCER_FORCED,
    }


def admin_properties(cluster: Cluster, *, client_id: str, **extra: Value) -> dict[str, Any]:
    """Returns properties of an admin client: those of the connection only."""
    return {
        **extra,
        **_revealed(cluster.properties, without=CONSUMER_ONLY | PRODUCER_ONLY),
        "client.id": client_id,
        "allow.auto.create.topics": "false",
    }


def _revealed(
    properties: Mapping[str, str | Secret], without: frozenset[str] = frozenset()
) -> dict[str, Any]:
    revealed: dict[str, Any] = {
        key: value.reveal() if isinstance(value, Secret) else value
        for key, value in properties.items()
        if key not in without
    }
    if OAUTH_CB in revealed:
        revealed[OAUTH_CB] = TokenFunction.load(revealed[OAUTH_CB])
    return revealed
