"""
Reports which cluster an operation waits for, if that takes longer than a second.

A user who starts a command while a cluster is unreachable would otherwise see nothing until the operation ends.  Every
operation of an AdminClient is watched (`eomirror.kafka.admin_client`), and each command begins with one.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from eomirror.config import Cluster

__all__ = ["NOTICE_SECONDS", "waiting_for"]

log = structlog.get_logger(__name__)

#: An operation that takes longer is announced; a command has two seconds for that, its own start included.
NOTICE_SECONDS = 1.0

# several links ask the same cluster at the same time, and a mirror asks for as long as it is away
_QUIET_SECONDS = 30.0

_lock = threading.Lock()
_announced: dict[tuple[str, str], float] = {}


@contextmanager
def waiting_for(cluster: Cluster, *, clock: Clock = SYSTEM_CLOCK) -> Iterator[None]:
    """
    Logs ``waiting_for_cluster`` when the block takes longer than `NOTICE_SECONDS`.

    The event names the cluster's alias, its bootstrap servers, and the seconds waited.  It is logged once in half a
    minute per cluster of a process, from a thread of its own.  It is no warning: a healthy cluster may take a second,
    and the caller reports an unreachable one.

    Args:
        cluster: The cluster that is asked.
    """
    began = clock.monotonic()

    def announce() -> None:
        now = clock.monotonic()
        key = (cluster.alias, cluster.bootstrap_servers)
        with _lock:
            if now - _announced.get(key, float("-inf")) < _QUIET_SECONDS:
                return
            _announced[key] = now
        log.info(
            "waiting_for_cluster",
            cluster=cluster.alias,
            servers=cluster.bootstrap_servers,
            seconds=round(now - began, 1),
        )

    timer = threading.Timer(NOTICE_SECONDS, announce)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
