"""Fences transactional ids that others may still use: InitProducerId for each, several at a time (KIP-98)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.kafka.parallel import run_all
from eomirror.plane.client.producer import TransactionalProducer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.clock import Clock
    from eomirror.config import Cluster

__all__ = ["fence"]

_THREADS = 8


def fence(
    cluster: Cluster,
    ids: Mapping[str, str],
    *,
    known_topic: str,
    transaction_timeout: float,
    clock: Clock,
    on_fenced: Callable[[], None] = lambda: None,
) -> None:
    """
    Abort what these ids have open, and refuse what their producers try from now on.

    Returns when all markers of aborted and committed transactions are written.

    Args:
        cluster: Where the transactions are.
        ids: transactional.id -> client.id that brokers see meanwhile.
        known_topic: A topic that exists there.
        transaction_timeout: Seconds.
        clock: Where time comes from.
        on_fenced: Called after each one, from several threads.

    Raises:
        AuthorizationError: We may not use an id.
        MirrorError: The cluster refuses us.
    """

    def fence_one(transactional_id: str) -> None:
        producer = TransactionalProducer(
            cluster,
            client_id=ids[transactional_id],
            transactional_id=transactional_id,
            transaction_timeout=transaction_timeout,
            known_topic=known_topic,
            clock=clock,
        )
        try:
            producer.init()
        finally:
            producer.close()
        on_fenced()

    run_all(fence_one, list(ids), threads=_THREADS, name="fence")
