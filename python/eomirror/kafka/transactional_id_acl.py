"""Checks the ACL of a transactional.id."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from confluent_kafka import KafkaException, Producer

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.config.clients import producer_properties
from eomirror.config.rights import Right, account_of
from eomirror.kafka.client_factory import create_client
from eomirror.kafka.errors import Action, classify_transaction, to_mirror_error

if TYPE_CHECKING:
    from eomirror.config import Cluster

__all__ = ["check_transactional_id"]

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
