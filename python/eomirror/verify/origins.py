"""Finds a link's origins: clusters that it does not connect, but whose records it forwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from eomirror.config.model import FrozenMapping
from eomirror.kafka.admin import identify
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Cluster, Link

__all__ = ["with_origins"]


class Identify(Protocol):
    """Returns the id of a cluster: `eomirror.kafka.admin.identify`."""

    def __call__(self, cluster: Cluster, *, client_id: str) -> str:
        """Returns the id, requested under a client id."""


def with_origins(link: Link, clusters: Mapping[str, Cluster], identify_cluster: Identify = identify) -> Link:
    """
    Returns the link with the ids of its origins, by which its loop guard distinguishes records.

    Args:
        link: The configured link.
        clusters: All clusters of the configuration, by alias.
        identify_cluster: Returns the id of a cluster, requested under a client id.

    Raises:
        ClusterError: One of these clusters cannot be reached or refuses the request.
    """
    ids = dict(link.cluster_ids)
    for alias in link.origins or ():
        if alias not in (*ids, link.source):
            client_id = LinkNames(link.state_name).client_id("verify")
            ids[alias] = identify_cluster(clusters[alias], client_id=client_id)
    return replace(link, cluster_ids=FrozenMapping(ids))
