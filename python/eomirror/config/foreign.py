"""Recognises configurations of other programs that are given in place of ours. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from eomirror.config.nodes import Map, Scalar, Sequence

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config.nodes import Node

__all__ = ["foreign_form", "foreign_properties"]

_CONVERT = "convert it, and give the result to this command: eomirror import FILE > mirror.yaml"
_MIRRORS = ("KafkaMirrorMaker2", "KafkaConnector", "KafkaMirrorMaker")


def foreign_form(root: Node) -> tuple[str, str] | None:
    """Returns message and fix if a YAML or JSON document belongs to another program; None if it may be ours."""
    if isinstance(root, Sequence):
        return foreign_form(root.items[0]) if root.items else None
    if not isinstance(root, Map) or "links" in root.entries:
        return None
    kind = root.entries.get("kind")
    if "apiVersion" in root.entries and isinstance(kind, Scalar):
        items = root.entries.get("items")
        if kind.text.endswith("List") and isinstance(items, Sequence):
            return foreign_form(items)
        shown = kind.text if re.fullmatch(r"[A-Za-z0-9]{1,40}", kind.text) else "of another program"
        known = kind.text in _MIRRORS
        return (
            f"this is a Kubernetes resource, {shown}, not a configuration of eomirror",
            _CONVERT if known else "name a YAML file with `clusters:` and `links:`",
        )
    inner = root.entries.get("config", root)
    if isinstance(inner, Map) and ("connector.class" in inner.entries or "connector.class" in root.entries):
        return "this is a connector of Kafka Connect, not a configuration of eomirror", _CONVERT
    return None


def foreign_properties(given: Mapping[str, object]) -> tuple[str, str] | None:
    """Returns message and fix if a property file is not MirrorMaker 2's ``mm2.properties``."""
    if "clusters" in given:
        return None
    if "connector.class" in given:
        return "this is a connector of Kafka Connect, not MirrorMaker 2's mm2.properties", _CONVERT
    return (
        "`clusters` is missing, so this is not MirrorMaker 2's mm2.properties",
        "write clusters = A, B with the aliases of the flows; other files of mirrors are read by `eomirror import`",
    )
