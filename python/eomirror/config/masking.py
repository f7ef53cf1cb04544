"""
Renders a configuration for display: defaults filled in, secrets masked.

References are no literals: ``${env:NAME}`` shows nothing, and `eomirror.config.references` checks the file of
``${file:/path}``.
"""

from __future__ import annotations

import re
import stat
from typing import TYPE_CHECKING, Any

from eomirror.config.model import LINK_SETTINGS
from eomirror.config.nodes import Map, Node, Scalar, Sequence, key_name
from eomirror.config.schemas import written_schemas
from eomirror.config.secret import MASK, Secret, has_reference, is_secret_key, shows_secret
from eomirror.config.values import written

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from eomirror.config.model import Cluster, Config, Link
    from eomirror.config.nodes import Faults

__all__ = ["masked", "warn_of_exposed_secrets"]

_READABLE_BY_OTHERS = stat.S_IRGRP | stat.S_IROTH
# such properties are masked to be safe, but their values are paths, class names or public
_PUBLIC_KEY = re.compile(
    r"(\.url|\.location|\.?file|\.path|keytab|(^|\.)ca\.pem|certificate\.pem|provider|enabled|length)$",
    re.IGNORECASE,
)


def warn_of_exposed_secrets(root: Map, path: Path, faults: Faults) -> None:
    """
    Warns of each literal secret in the file, if other users can read it.

    Args:
        root: Content of the file, before overrides.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
    except OSError:
        return  # the file was deleted after it had been read
    if not mode & _READABLE_BY_OTHERS:
        return
    for where, line in literal_secrets(root):
        faults.warn(
            where,
            f"this file contains a secret, and other users can read it (mode {mode:04o})",
            f"chmod 600 {path.name}, or replace the secret by ${{env:NAME}} or ${{file:/path}}",
            line,
        )


def literal_secrets(root: Map) -> Iterator[tuple[str, int]]:
    """Yields path and line of each value of clusters, Spark and masks that is a literal secret."""
    for alias, cluster in _below(root, "clusters"):
        for key, value in cluster.entries.items() if isinstance(cluster, Map) else ():
            if isinstance(value, Map):
                yield from _secrets(value, f"clusters.{key_name(alias)}.{key_name(key)}")
        if isinstance(cluster, Map):
            yield from _secrets(cluster, f"clusters.{key_name(alias)}")
    yield from _secrets(Map(dict(_below(root, "spark"))), "spark")
    yield from _secrets_of_links(root)


def _secrets_of_links(root: Map) -> Iterator[tuple[str, int]]:
    """Yields path and line of each literal secret of a mask or a registry, under ``links`` and ``defaults``."""
    links = root.entries.get("links")
    places = [
        (f"links[{n}]", node) for n, node in enumerate(links.items if isinstance(links, Sequence) else ())
    ]
    for path, node in (*places, ("defaults", root.entries.get("defaults"))):
        schemas = node.entries.get("schemas") if isinstance(node, Map) else None
        registries = schemas.entries if isinstance(schemas, Map) else {}
        for end in ("source", "target"):
            registry = registries.get(end)
            if isinstance(registry, Map):
                yield from _secrets(registry, f"{path}.schemas.{end}")
        rules = node.entries.get("transform") if isinstance(node, Map) else None
        for number, rule in enumerate(rules.items if isinstance(rules, Sequence) else ()):
            mask = rule.entries.get("mask") if isinstance(rule, Map) else None
            if isinstance(mask, Map):
                yield from _secrets(
                    Map({key: node for key, node in mask.entries.items() if key == "secret"}),
                    f"{path}.transform[{number}].mask",
                )


def _below(root: Map, section: str) -> list[tuple[str, Node]]:
    node = root.entries.get(section)
    return list(node.entries.items()) if isinstance(node, Map) else []


def _secrets(node: Map, path: str) -> Iterator[tuple[str, int]]:
    for key, value in node.entries.items():
        if not isinstance(value, Scalar) or value.is_null or not value.text or has_reference(value.text):
            continue
        if (is_secret_key(key) and not _PUBLIC_KEY.search(key)) or shows_secret(value.text):
            yield f"{path}.{key_name(key)}", value.line


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
    shown["schemas"] = written_schemas(link.schemas)
    for name in ("raise_limit_to", "target_partitions"):
        if getattr(link, name) is None:
            del shown[name]
    return shown
