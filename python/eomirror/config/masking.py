"""Renders a configuration for display: defaults filled in, secrets masked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror.config.model import LINK_SETTINGS
from eomirror.config.secret import MASK, Secret
from eomirror.config.values import written

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config.model import Cluster, Config, Link

__all__ = ["masked"]


def masked(config: Config) -> dict[str, Any]:
    """Returns ``config`` as plain values for JSON or YAML, in the notation of the file, without secrets."""
    return {
        "clusters": {alias: _cluster(cluster) for alias, cluster in config.clusters.items()},
        "links": [_link(link) for link in config.links],
        "spark": {key: MASK if key in config.spark_secrets else value for key, value in config.spark.items()},
    }


def _properties(properties: Mapping[str, str | Secret]) -> dict[str, str]:
    return {key: str(value) for key, value in properties.items()}


def _cluster(cluster: Cluster) -> dict[str, Any]:
    shown: dict[str, Any] = _properties(cluster.properties)
    for role, properties in (("consumer", cluster.consumer), ("producer", cluster.producer)):
        if properties:
            shown[role] = _properties(properties)
    return shown


def _link(link: Link) -> dict[str, Any]:
    shown = {name: written(getattr(link, name)) for name in ("name", *LINK_SETTINGS)}
    for name in ("raise_limit_to", "target_partitions"):
        if getattr(link, name) is None:
            del shown[name]
    return shown
