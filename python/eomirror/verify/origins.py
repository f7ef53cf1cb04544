"""Who a link's origins are: clusters that it does not connect, and whose records it forwards."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from eomirror.config.frozen import FrozenMapping
from eomirror.kafka.admin import identify
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Cluster, Link

__all__ = ["with_origins"]


class Identified(Protocol):
    """Gives the id of a cluster: `eomirror.kafka.admin.identify`."""

    def __call__(self, cluster: Cluster, *, client_id: str) -> str:
        """The id, asked under a client id."""


def with_origins(link: Link, clusters: Mapping[str, Cluster], identified: Identified = identify) -> Link:
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
            client_id = LinkNames(link.state_name).client_id("verify")
            ids[alias] = identified(clusters[alias], client_id=client_id)
    return replace(link, cluster_ids=FrozenMapping(ids))
