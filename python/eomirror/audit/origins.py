"""Who a link's origins are: clusters that it does not connect, and whose records it forwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.config.frozen import FrozenMapping
from eomirror.formats.names import LinkNames
from eomirror.kafka.admin import ClusterAdmin

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.config import Cluster, Link

__all__ = ["with_origins"]


def _identified(cluster: Cluster, client_id: str) -> str:
    admin = ClusterAdmin(cluster, client_id=client_id)
    try:
        return admin.describe_cluster().cluster_id
    finally:
        admin.close()


def with_origins(
    link: Link, clusters: Mapping[str, Cluster], identified: Callable[[Cluster, str], str] = _identified
) -> Link:
    """
    The link, with the ids of the clusters whose records it forwards: by them its loop guard tells records apart.

    Args:
        link: As configured.
        clusters: All clusters of the configuration, by alias.
        identified: Gives the id of a cluster, asked under a client id.

    Raises:
        ClusterError: One of these clusters cannot be reached or refuses us.
    """
    ids = dict(link.cluster_ids)
    for alias in link.origins or ():
        if alias not in (*ids, link.source):
            ids[alias] = identified(clusters[alias], LinkNames(link.state_name).client_id("verify"))
    return replace(link, cluster_ids=FrozenMapping(ids))
