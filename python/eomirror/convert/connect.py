"""
Converts connectors of Kafka Connect: JSON of its REST interface, and ``.properties`` of standalone mode. Pure.

One file may hold several connectors: a list, or the answer to ``GET /connectors?expand=info``.  Several files may
belong to one flow, because each of MirrorMaker 2's three connectors has a file of its own.

The connector is refused rather than converted: what it has copied may lack records or hold some twice, and only a
person can decide where the link begins.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.config.mm2_properties import import_entries
from eomirror.convert.connectors import ConnectorFlow, add_clusters, add_flows, role_of
from eomirror.convert.flat import FlatFile, GivenSetting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.convert.tree import Tree

__all__ = ["Connector", "connectors_of", "is_connector", "set_up_flows", "settings_of"]

#: Simple names of its classes.
REPLICATORS = ("ReplicatorSourceConnector", "ReplicatorConnector", "ReplicatorSource")

_ENDS = {"src.kafka.": "src", "dest.kafka.": "dest"}
_LISTS = {"topic.whitelist": "topics", "topic.regex": "topics", "topic.blacklist": "exclude"}
_BEGIN = (
    "to begin behind what it has copied, stop it; read the next offsets of its group on the source, "
    "`kafka-consumer-groups.sh --bootstrap-server {brokers} --describe --group {group}`, column CURRENT-OFFSET; for "
    "each partition compare the ends of source and copy; then run `eomirror run mirror.yaml --resume-at "
    "TOPIC-PARTITION=OFFSET` once, with a --resume-at for each"
)
_ALWAYS = re.compile(
    r"(src\.|dest\.)?(key|value|header)\.converter.*|topic\.(auto\.create|preserve\.partitions|config\.sync)"
    r"|dest\.topic\.replication\.factor|offset\.translator.*|offset\.topic\.commit|tasks\.max|name|confluent\..*"
    r"|connector\.class|src\.consumer\.group\.id|topic\.poll.*|topic\.(timestamp\.type|create\..*)"
)


def refuse_replicator(flat: FlatFile, kind: GivenSetting, given: Mapping[str, GivenSetting]) -> None:
    """Refuses a connector, with the configuration to write in its place."""
    link: dict[str, object] = {"source": "src", "target": "dest", "topics": [], "naming": "identity"}
    clients: dict[str, tuple[str, int]] = {"clusters": ("src, dest", 0)}
    written: dict[str, GivenSetting] = {}
    for name, setting in given.items():
        end = next((prefix for prefix in _ENDS if name.startswith(prefix)), "")
        if end:
            key = f"{_ENDS[end]}.{name.removeprefix(end)}"
            clients[key], written[key] = (setting.value, setting.line), setting
        elif name in _LISTS:
            link[_LISTS[name]] = [*_texts(link.get(_LISTS[name])), *_patterns(name, setting.value)]
        elif name == "topic.rename.format":
            naming = setting.value.replace("${topic}", "{topic}")
            link["naming"] = "identity" if naming == "{topic}" else {"pattern": naming}
        elif name == "provenance.header.enable":
            link["provenance"] = "on" if setting.value.lower() == "true" else "auto"
        elif not _ALWAYS.fullmatch(name):
            flat.note(setting, "Replicator's setting has no counterpart", "look")
    found = import_entries(clients, keep_secrets=False)
    for item in found.not_honoured:
        report = flat.refuse if item.grave else flat.note
        report(written[item.key], item.reason)
    group = given["src.consumer.group.id"].value if "src.consumer.group.id" in given else ""
    group = group or (given["name"].value if "name" in given else "NAME")
    brokers = found.settings["clusters"]["src"].get("bootstrap.servers", "HOST:PORT")
    config = json.dumps({"clusters": found.settings["clusters"], "links": [link]})
    flat.refuse(
        kind,
        f"it is Confluent Replicator, whose settings become this file, mirror.yaml: {config} -- "
        f"{_BEGIN.format(brokers=brokers, group=group)}",
    )


def _texts(value: object) -> list[str]:
    return list(value) if isinstance(value, list) else []


def _patterns(name: str, value: str) -> list[str]:
    if name == "topic.regex":
        return [value.strip()]
    return [re.escape(each.strip()).replace(r"\-", "-") for each in value.split(",") if each.strip()]


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
        stopped: Setting or state that says that it does not run; None if it runs.
    """

    key: str
    settings: Mapping[str, GivenSetting]
    line: int = 0
    stopped: GivenSetting | None = None


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
        found = Connector(name, settings_of(tree.get("config"), f"{name}: " if name else ""), tree.line)
        return [_in_state(found, tree.get("initial_state"))]
    if tree.get("info"):
        state = tree.get("status", "connector", "state")
        return [_in_state(each, state) for each in connectors_of(tree.get("info"))]
    return [each for inner in tree.entries.values() if inner.kind == "map" for each in connectors_of(inner)]


def _in_state(connector: Connector, state: Tree) -> Connector:
    """Returns a connector that is marked if its state says that it does not run."""
    if state.text.upper() not in ("PAUSED", "STOPPED"):
        return connector
    key = f"{connector.key}: state" if connector.key else "state"
    return replace(connector, stopped=GivenSetting(key, state.text, state.line))


def settings_of(tree: Tree, prefix: str) -> dict[str, GivenSetting]:
    """Returns the settings in a mapping; a list or a mapping as a value becomes an empty text."""
    return {
        name: GivenSetting(f"{prefix}{name}", value.text, value.line)
        for name, value in tree.entries.items()
        if value
    }


def set_up_flows(connectors: Sequence[Connector]) -> FlatFile:
    """Returns the settings of connectors, joined by flow; those that are not MirrorMaker 2's are refused."""
    flat = FlatFile()
    flows: dict[tuple[str, str], ConnectorFlow] = {}
    aliases: dict[str, GivenSetting] = {}
    ends: list[tuple[Connector, ConnectorFlow, GivenSetting, GivenSetting]] = []
    for connector in connectors:
        given = connector.settings
        kind = given["connector.class"]
        role = role_of(kind.value)
        if not role:
            if kind.value.rpartition(".")[2] in REPLICATORS:
                refuse_replicator(flat, kind, given)
            else:
                flat.refuse(
                    kind, "it is no connector of MirrorMaker 2; remove this connector from what you import"
                )
            continue
        source = given.get("source.cluster.alias")
        if source is None:
            flat.refuse(
                GivenSetting(_missing(connector, "source.cluster.alias"), "", connector.line),
                "it is missing: MirrorMaker 2 requires it, and it is part of the names of topics",
            )
            continue
        target = given.get("target.cluster.alias", GivenSetting("", _TARGET))
        # an empty alias keeps names, and is no name of a cluster
        source = replace(source, value=source.value or _SOURCE)
        target = replace(target, value=target.value or _TARGET)
        flow = flows.setdefault(
            (source.value, target.value),
            ConnectorFlow(source.value, target.value, f"{source.value}->{target.value}", connector.line),
        )
        if role in flow.connectors:
            flat.refuse(
                kind,
                f"there are two connectors of this class from {flow.source} to {flow.target}; import one of them",
            )
            continue
        flow.connectors[role] = dict(given)
        if connector.stopped is not None:
            flow.stopped[role] = connector.stopped
        ends.append((connector, flow, source, target))
    for connector, flow, source, target in ends:
        # a cluster of which only a flow that does not run speaks is left out with it
        for each, end in ((source, "source"), (target, "target")) if "source" not in flow.stopped else ():
            aliases.setdefault(each.value, each)
            _brokers(flat, connector, each.value, end)
    add_clusters(flat, aliases)
    add_flows(flat, list(flows.values()))
    return flat


def _brokers(flat: FlatFile, connector: Connector, alias: str, end: str) -> None:
    """Refuses a connector that does not say where a cluster is: its brokers are in the worker's file."""
    name = f"{end}.cluster.bootstrap.servers"
    if not connector.settings.get(name, GivenSetting("", "")).value:
        flat.refuse(
            GivenSetting(_missing(connector, name), "", connector.line),
            f"it is missing, so nothing says where cluster {alias} is; add it, from the file of the Connect worker",
        )


def _missing(connector: Connector, name: str) -> str:
    return f"{connector.key}: {name}" if connector.key else name
