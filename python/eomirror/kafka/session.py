"""
Holds the connections of one process to one cluster, so that its parts share them.

Clients that stay outside: producers, whose transactional.id or topic is their own; the consumers of lanes; and clients
of group coordinators, which live in a process that may die (`eomirror.kafka.consumer_groups_proxy`).

A session belongs to its process: librdkafka's threads do not survive a fork, so workers get the cluster and open their
own.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, NamedTuple

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.kafka.admin import ClusterAdmin
from eomirror.kafka.admin_client import OPERATION_SECONDS
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from eomirror.config import Cluster, Link

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
        clock: Source of time.
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

    def close(self) -> None:
        """Closes the connections; a later use makes new ones, with the credentials of that moment."""
        with self._lock:
            admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()


class LinkSessions(NamedTuple):
    """Connections to the two clusters of a link."""

    source: ClusterSession
    target: ClusterSession

    def close(self) -> None:
        """Closes the connections to both."""
        self.source.close()
        self.target.close()


def link_sessions(
    link: Link, source: Cluster, target: Cluster, role: str, *, clock: Clock = SYSTEM_CLOCK
) -> LinkSessions:
    """
    Returns connections to the two clusters of a link; nothing is sent yet.

    Args:
        role: Last part of the client id.
    """
    client_id = LinkNames(link.state_name).client_id(role)
    return LinkSessions(
        ClusterSession(source, client_id=client_id, clock=clock),
        ClusterSession(target, client_id=client_id, clock=clock),
    )
