"""
Checks all clusters of a command in parallel, so that unreachable ones cost one deadline together.

A command that contacts one cluster after the other, for one link after the other, takes the deadline of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.errors import MirrorError
from eomirror.kafka.admin import identify
from eomirror.kafka.parallel import run_all

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.config import Cluster, Config, Link

__all__ = ["clusters_of", "require_reachable", "unreachable_clusters"]

_MOST_AT_ONCE = 32


def unreachable_clusters(clusters: Iterable[Cluster]) -> Mapping[str, MirrorError]:
    """
    Returns the errors of unreachable clusters, by alias.

    Args:
        clusters: The clusters; each alias is asked once.
    """
    asked = {cluster.alias: cluster for cluster in clusters}
    found: dict[str, MirrorError] = {}

    def ask(cluster: Cluster) -> None:
        try:
            identify(cluster, client_id="eomirror.reach")
        except MirrorError as error:
            found[cluster.alias] = error

    run_all(ask, asked.values(), threads=_MOST_AT_ONCE, name="reach")
    return {alias: found[alias] for alias in asked if alias in found}


def clusters_of(config: Config, links: Iterable[Link]) -> list[Cluster]:
    """Returns the sources and targets of links, each once."""
    aliases = {alias: None for link in links for alias in (link.source, link.target)}
    return [config.clusters[alias] for alias in aliases]


def require_reachable(clusters: Iterable[Cluster]) -> None:
    """
    Checks that every cluster answers.

    Raises:
        MirrorError: One does not; the message names it and its bootstrap servers.
    """
    for error in unreachable_clusters(clusters).values():
        raise error
