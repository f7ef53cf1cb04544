"""Renders a configuration for display: defaults filled in, secrets masked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from eomirror.config.secret import MASK, Secret
from eomirror.config.values import duration_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config.model import Cluster, Config, Link
    from eomirror.topology.naming import Naming

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
    return {
        "name": link.name,
        "source": link.source,
        "target": link.target,
        "topics": list(link.topics),
        "exclude": list(link.exclude),
        "naming": _naming(link.naming),
        "forward": list(link.forward) if isinstance(link.forward, tuple) else link.forward,
        "groups": list(link.groups),
        "group_interval": duration_text(link.group_interval),
        "sync_group_offsets": link.sync_group_offsets,
        "group_rewind": link.group_rewind,
        "group_deletions": link.group_deletions,
        "lanes": link.lanes,
        "plane": link.plane,
        "commit_interval": duration_text(link.commit_interval),
        "commit_interval_min": duration_text(link.commit_interval_min),
        "epoch": duration_text(link.epoch),
        "on_gap": link.on_gap,
        "on_refused": link.on_refused,
        **({} if link.raise_limit_to is None else {"raise_limit_to": link.raise_limit_to}),
        "transaction_timeout": duration_text(link.transaction_timeout),
        "start": link.start,
        "replication_factor": link.replication_factor,
        "provenance": link.provenance,
        "heartbeats": link.heartbeats,
        "offset_syncs": link.offset_syncs,
    }


def _naming(naming: Naming) -> Any:
    if naming.kind == "pattern":
        return {"pattern": naming.pattern}
    if naming.kind == "match":
        return {"match": naming.match, "to": naming.to}
    if naming.kind == "map":
        return {"map": dict(naming.names)}
    return naming.kind
