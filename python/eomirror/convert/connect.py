"""
Converts connectors of Kafka Connect: JSON of its REST interface, and ``.properties`` of standalone mode. Pure.

One file may hold several connectors: a list, or the answer to ``GET /connectors?expand=info``.  Several files may
belong to one flow, because each of MirrorMaker 2's three connectors has a file of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.convert.connectors import Flow, add_clusters, add_flow, role_of
from eomirror.convert.flat import FlatFile, Setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.convert.tree import Tree

__all__ = ["Connector", "connectors_of", "is_connector", "set_up_flows", "settings_of"]

_SOURCE = "source"
_TARGET = "target"  # MirrorConnectorConfig.java: target.cluster.alias


@dataclass(frozen=True, slots=True)
class Connector:
    """
    A connector as the user configures it.

    Attributes:
        key: Place in the file, for reports; empty for a file with a single connector.
        settings: Settings by their names.
        line: Line of the connector in the file.
    """

    key: str
    settings: Mapping[str, Setting]
    line: int = 0


def is_connector(tree: Tree) -> bool:
    """Returns True if a tree is the configuration of a connector, with or without its envelope."""
    return bool(tree.get("connector.class") or tree.get("config", "connector.class"))


def connectors_of(tree: Tree) -> list[Connector]:
    """Returns the connectors in a tree; none if it has another form."""
    if tree.kind == "list":
        return [each for inner in tree.items for each in connectors_of(inner)]
    if tree.get("connector.class"):
        return [Connector("", settings_of(tree, ""), tree.line)]
    if tree.get("config", "connector.class"):
        name = tree.get("name").text
        return [Connector(name, settings_of(tree.get("config"), f"{name}: " if name else ""), tree.line)]
    if tree.get("info"):
        return connectors_of(tree.get("info"))
    return [each for inner in tree.entries.values() if inner.kind == "map" for each in connectors_of(inner)]


def settings_of(tree: Tree, prefix: str) -> dict[str, Setting]:
    """Returns the settings in a mapping; a list or a mapping as a value becomes an empty text."""
    return {
        name: Setting(f"{prefix}{name}", value.text, value.line)
        for name, value in tree.entries.items()
        if value
    }


def set_up_flows(connectors: Sequence[Connector]) -> FlatFile:
    """Returns the settings of connectors, joined by flow; those that are not MirrorMaker 2's are refused."""
    flat = FlatFile()
    flows: dict[tuple[str, str], Flow] = {}
    aliases: dict[str, Setting] = {}
    for connector in connectors:
        given = connector.settings
        kind = given["connector.class"]
        role = role_of(kind.value)
        if not role:
            flat.refuse(
                kind, "it is no connector of MirrorMaker 2; remove this connector from what you import"
            )
            continue
        source = given.get("source.cluster.alias")
        if source is None:
            flat.refuse(
                Setting(_missing(connector, "source.cluster.alias"), "", connector.line),
                "it is missing: MirrorMaker 2 requires it, and it is part of the names of topics",
            )
            continue
        target = given.get("target.cluster.alias", Setting("", _TARGET))
        # an empty alias keeps names, and is no name of a cluster
        source = replace(source, value=source.value or _SOURCE)
        target = replace(target, value=target.value or _TARGET)
        flow = flows.setdefault(
            (source.value, target.value),
            Flow(source.value, target.value, f"{source.value}->{target.value}", connector.line),
        )
        if role in flow.connectors:
            flat.refuse(
                kind,
                f"there are two connectors of this class from {flow.source} to {flow.target}; import one of them",
            )
            continue
        flow.connectors[role] = dict(given)
        for each, end in ((source, "source"), (target, "target")):
            aliases.setdefault(each.value, each)
            _brokers(flat, connector, each.value, end)
    add_clusters(flat, aliases)
    for flow in flows.values():
        add_flow(flat, flow)
    return flat


def _brokers(flat: FlatFile, connector: Connector, alias: str, end: str) -> None:
    """Refuses a connector that does not say where a cluster is: its brokers are in the worker's file."""
    name = f"{end}.cluster.bootstrap.servers"
    if not connector.settings.get(name, Setting("", "")).value:
        flat.refuse(
            Setting(_missing(connector, name), "", connector.line),
            f"it is missing, so nothing says where cluster {alias} is; add it, from the file of the Connect worker",
        )


def _missing(connector: Connector, name: str) -> str:
    return f"{connector.key}: {name}" if connector.key else name
