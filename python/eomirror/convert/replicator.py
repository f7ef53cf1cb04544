"""
Says what the settings of a Confluent Replicator connector become, and how a link begins behind its copies. Pure.

The connector is refused rather than converted: what it has copied may lack records or hold some twice, and only a
person can decide where the link begins.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from eomirror.config.mm2_properties import import_entries

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.convert.flat import FlatFile, Setting

__all__ = ["REPLICATORS", "refuse_replicator"]

#: Simple names of its classes.
REPLICATORS = ("ReplicatorSourceConnector", "ReplicatorConnector", "ReplicatorSource")

_ENDS = {"src.kafka.": "src", "dest.kafka.": "dest"}
_LISTS = {"topic.whitelist": "topics", "topic.regex": "topics", "topic.blacklist": "exclude"}
_BEGIN = (
    "to begin behind what it has copied, stop it; read the next offsets of its group on the source, "
    "`kafka-consumer-groups.sh --bootstrap-server {brokers} --describe --group {group}`, column CURRENT-OFFSET; for "
    "each partition compare the ends of source and copy; then run `eomirror run mirror.yaml --adopt "
    "TOPIC-PARTITION=OFFSET` once, with an --adopt for each"
)
_ALWAYS = re.compile(
    r"(src\.|dest\.)?(key|value|header)\.converter.*|topic\.(auto\.create|preserve\.partitions|config\.sync)"
    r"|dest\.topic\.replication\.factor|offset\.translator.*|offset\.topic\.commit|tasks\.max|name|confluent\..*"
    r"|connector\.class|src\.consumer\.group\.id|topic\.poll.*|topic\.(timestamp\.type|create\..*)"
)


def refuse_replicator(flat: FlatFile, kind: Setting, given: Mapping[str, Setting]) -> None:
    """Refuses a connector, with the configuration to write in its place."""
    link: dict[str, object] = {"source": "src", "target": "dest", "topics": [], "naming": "identity"}
    clients: dict[str, tuple[str, int]] = {"clusters": ("src, dest", 0)}
    written: dict[str, Setting] = {}
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
