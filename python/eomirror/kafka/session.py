"""
Holds the connections of one process to one cluster, so that its parts share them.

Clients that stay outside: producers, whose transactional.id or topic is their own; the consumers of lanes; and clients
of group coordinators, which live in a process that may die (`eomirror.kafka.consumer_groups_proxy`).

A session belongs to its process: librdkafka's threads do not survive a fork, so workers get the cluster and open their
own.
"""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.admin_client import OPERATION_SECONDS
from eomirror.kafka.partition_reader import PartitionReader
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eomirror.config import Cluster, Link
    from eomirror.config.clients import Value

__all__ = ["ClusterSession", "LinkSessions", "link_sessions"]


class ClusterSession:
    """
    Connections to one cluster, each made on first use.  Thread-safe.

    Args:
        cluster: The cluster.
        client_id: Client id that brokers see.
        timeout: Seconds that one operation of the admin client may take, retries included.

    Attributes:
        client_id: Client id that brokers see.
    """

    def __init__(
        self,
        cluster: Cluster,
        *,
        client_id: str,
        timeout: float = OPERATION_SECONDS,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.cluster = cluster
        self.client_id = client_id
        self.clock = clock
        self._timeout = timeout
        self._lock = threading.Lock()
        self._admin: ClusterAdmin | None = None
        self._idle: dict[tuple[bool, frozenset[tuple[str, Value]]], list[PartitionReader]] = {}

    @property
    def admin(self) -> ClusterAdmin:
        """
        The admin client.

        Raises:
            UnreachableError: A certificate or key cannot be read now; the next use tries again.
            ClusterError: librdkafka does not take the cluster's properties.
        """
        with self._lock:
            if self._admin is None:
                self._admin = ClusterAdmin(
                    self.cluster, client_id=self.client_id, timeout=self._timeout, clock=self.clock
                )
            return self._admin

    @contextmanager
    def reader(
        self, *, uncommitted: bool = False, tuning: Mapping[str, Value] | None = None
    ) -> Iterator[PartitionReader]:
        """
        Lends a reader of partitions to one thread; a reader that raises nothing is lent again.

        Args:
            uncommitted: As of `PartitionReader`.
            tuning: As of `PartitionReader`.

        Raises:
            UnreachableError: A certificate or key cannot be read now.
            ClusterError: librdkafka does not take the cluster's properties.
        """
        kind = uncommitted, frozenset((tuning or {}).items())
        with self._lock:
            idle = self._idle.setdefault(kind, [])
            reader = idle.pop() if idle else None
        if reader is None:
            reader = PartitionReader(
                self.cluster,
                client_id=self.client_id,
                uncommitted=uncommitted,
                clock=self.clock,
                tuning=tuning,
            )
        try:
            yield reader
        except BaseException:
            reader.close()
            raise
        with self._lock:
            self._idle.setdefault(kind, []).append(reader)

    def rest(self) -> None:
        """
        Closes the connections until their next use, which makes new ones; no operation may be under way.

        Each idle client wakes its three threads about once a second, which costs as much as an idle lane itself.
        """
        self._close_idle()
        with self._lock:
            if self._admin is not None:
                self._admin.rest()

    def close(self) -> None:
        """Closes the connections; a later use makes new ones, with the credentials of that moment."""
        self._close_idle()
        with self._lock:
            admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _close_idle(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, {}
        for reader in (one for readers in idle.values() for one in readers):
            reader.close()


class LinkSessions(NamedTuple):
    """Connections to the two clusters of a link."""

    source: ClusterSession
    target: ClusterSession

    def rest(self) -> None:
        """Closes the connections to both until their next use."""
        self.source.rest()
        self.target.rest()

    def close(self) -> None:
        """Closes the connections to both."""
        self.source.close()
        self.target.close()


def link_sessions(
    link: Link,
    source: Cluster,
    target: Cluster,
    role: str,
    *,
    timeout: float = OPERATION_SECONDS,
    clock: Clock = SYSTEM_CLOCK,
) -> LinkSessions:
    """
    Returns connections to the two clusters of a link; nothing is sent yet.

    Args:
        role: Last part of the client id.
        timeout: As of `ClusterSession`.
    """
    client_id = LinkNames(link.state_name).client_id(role)
    return LinkSessions(
        ClusterSession(source, client_id=client_id, timeout=timeout, clock=clock),
        ClusterSession(target, client_id=client_id, timeout=timeout, clock=clock),
    )
