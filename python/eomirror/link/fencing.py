"""Fences transactional ids that other producers may still use, with parallel InitProducerId requests (KIP-98)."""

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
    Aborts the open transactions of these ids and fences their producers.

    Returns when all markers of aborted and committed transactions are written.

    Args:
        cluster: Cluster of the transactions.
        ids: transactional.id -> client.id that brokers see.
        known_topic: A topic that exists there.
        transaction_timeout: Seconds.
        on_fenced: Called after each one, from several threads.

    Raises:
        AuthorizationError: An id may not be used.
        MirrorError: The cluster refuses the request.
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
