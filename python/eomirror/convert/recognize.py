"""
Recognises whose configuration a file is, by its content, and converts it. Pure.

A file that is none of them is refused by name: a configuration without clusters and links would only look converted.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eomirror.config.java_properties import decode_properties, parse_properties
from eomirror.config.mm2_properties import import_entries
from eomirror.config.mm2_reasons import flow_slip
from eomirror.convert.connect import Connector, connectors_of, set_up_flows, settings_of
from eomirror.convert.flat import GivenSetting
from eomirror.convert.strimzi import API_VERSIONS, convert_strimzi
from eomirror.convert.tree import parse_documents
from eomirror.errors import ConfigError, Fault, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.config.mm2_properties import Imported
    from eomirror.convert.tree import Tree

__all__ = ["ForeignFile", "convert_files"]

_KNOWN = (
    "eomirror converts mm2.properties, connectors of MirrorMaker 2 (JSON or .properties), Strimzi's KafkaMirrorMaker2, "
    "and with --consumer.config and --producer.config the files of MirrorMaker 1 and Go MirrorMaker"
)
# kinds of Strimzi and Kubernetes that users keep beside the mirror's
_KINDS = {
    "KafkaMirrorMaker": "it is MirrorMaker 1 under Strimzi: write its consumer and producer as property files, and use "
    "--consumer.config, --producer.config and --include",
    "ConfigMap": "import the file that is in it: kubectl get configmap NAME -o jsonpath='{.data.mm2\\.properties}'",
    "KafkaConnect": "it is a Connect cluster without connectors: import its KafkaConnector resources",
}
# keys that only files of other programs have
_STRANGERS = (
    (
        r"process\.roles|broker\.id|log\.dirs|node\.id|listeners\..*",
        "it is the configuration of a broker",
        "name the mirror's file",
    ),
    (
        r"(offset|config|status)\.storage\.topic|offset\.storage\.file\.filename",
        "it is the configuration of a Connect worker, which has no connectors in it",
        "import the connectors: curl http://WORKER:8083/connectors?expand=info",
    ),
    (
        r"zookeeper\.connect|metadata\.broker\.list|group\.id|bootstrap\.servers|acks",
        "it is the configuration of one Kafka client",
        "name it with --consumer.config or --producer.config, and add --whitelist",
    ),
)
_FLOW = re.compile(r"\S+->\S+\..+")


@dataclass(frozen=True, slots=True)
class ForeignFile:
    """A file that another program reads. Its content is hidden from repr: it may hold secrets."""

    name: str
    data: bytes = field(repr=False)


def convert_files(files: Sequence[ForeignFile], *, keep_secrets: bool = False) -> Imported:
    """
    Converts files of MirrorMaker 2, of Kafka Connect, or of Strimzi.

    Args:
        files: One file, or several with the connectors of MirrorMaker 2.
        keep_secrets: As for `eomirror.config.mm2_properties.import_mm2`.

    Raises:
        ConfigError: A file is none of them.
        UsageError: Several files are given that are not connectors.
    """
    found = [_recognised(each) for each in files]
    if all(one.connectors for one in found):
        connectors = [each for one in found for each in one.connectors]
        return set_up_flows(connectors).convert(keep_secrets=keep_secrets)
    if all(one.resources for one in found):
        return convert_strimzi([each for one in found for each in one.resources], keep_secrets=keep_secrets)
    if len(found) > 1:
        other = next(one for one in found if not one.connectors)
        raise UsageError(
            f"{other.name} cannot be combined with the other files",
            fix="import it alone; only connectors, or resources of Strimzi, come in several files",
        )
    return import_entries(found[0].properties, keep_secrets=keep_secrets)


@dataclass(frozen=True, slots=True)
class _Recognised:
    """A file whose form is known: connectors, resources of Strimzi, or MirrorMaker 2's properties."""

    name: str
    connectors: tuple[Connector, ...] = ()
    resources: tuple[Tree, ...] = ()
    properties: Mapping[str, tuple[str, int]] = field(default_factory=dict, repr=False)


def _refused(name: str, message: str, fix: str, line: int = 0) -> ConfigError:
    return ConfigError([Fault("file", message, fix, line)], source=name)


def _recognised(file: ForeignFile) -> _Recognised:
    text = decode_properties(file.data)
    if not text.strip():
        raise _refused(file.name, "it is empty", _KNOWN)
    if "\0" in text:
        raise _refused(file.name, "it is no text file", _KNOWN)
    if _looks_structured(text):
        return _structured(file)
    return _of_properties(file.name, parse_properties(text), text)


def _looks_structured(text: str) -> bool:
    """Returns True for YAML and JSON; property files have neither brackets at the start nor indented keys."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith(("#", "!"))]
    if not lines or lines[0].lstrip()[0] in "{[" or lines[0].strip() == "---":
        return True
    return any(
        re.match(r"(apiVersion|kind|metadata|spec|links|clusters|mirrors|items):\s*(\S+)?\s*$", line)
        for line in lines
    ) and (not any(re.match(r"clusters\s*[=:]\s*\S+", line) for line in lines))


def _structured(file: ForeignFile) -> _Recognised:
    name = file.name
    documents = [each for each in parse_documents(file.data, name) if each]
    # kubectl get -o yaml writes a list of resources
    resources = [
        inner
        for each in documents
        for inner in (each.get("items").items if each.get("kind").text.endswith("List") else (each,))
    ]
    mirrors = [each for each in resources if each.get("kind").text == "KafkaMirrorMaker2"]
    for each in mirrors:
        version = each.get("apiVersion")
        if version.text not in API_VERSIONS:
            raise _refused(
                name, f"its apiVersion is none of {', '.join(API_VERSIONS)}", "correct it", version.line
            )
    if mirrors:
        return _Recognised(name, resources=tuple(mirrors))
    connectors = [each for resource in resources for each in _connectors(resource)]
    if connectors:
        return _Recognised(name, connectors=tuple(connectors))
    raise _unknown(name, resources)


def _connectors(resource: Tree) -> list[Connector]:
    """Returns the connectors in a document: Connect's own form, or Strimzi's resource KafkaConnector."""
    if resource.get("kind").text != "KafkaConnector":
        return connectors_of(resource)
    spec, where = resource.get("spec"), resource.get("metadata", "name").text
    settings = settings_of(spec.get("config"), f"{where}: spec.config.")
    settings["connector.class"] = GivenSetting(f"{where}: spec.class", spec.get("class").text, spec.line)
    if spec.get("tasksMax"):
        settings["tasks.max"] = GivenSetting(f"{where}: spec.tasksMax", spec.get("tasksMax").text, spec.line)
    pause, state = spec.get("pause"), spec.get("state")
    stopped = None
    for name, value in (("pause", pause), ("state", state)):
        if value and value.text not in ("false", "running"):
            stopped = GivenSetting(f"{where}: spec.{name}", value.text, value.line)
    return [Connector(where, settings, resource.line, stopped)]


def _unknown(name: str, resources: Sequence[Tree]) -> ConfigError:
    first = resources[0] if resources else None
    kind = first.get("kind").text if first else ""
    if kind:
        shown = kind if re.fullmatch(r"[A-Za-z0-9]{1,40}", kind) else "this kind"
        return _refused(
            name,
            f"a resource of kind {shown} is no mirror",
            _KINDS.get(kind, _KNOWN),
            first.line if first else 0,
        )
    if first and first.get("clusters").kind == "map" and first.get("links"):
        return _refused(
            name, "it is a configuration of eomirror already", "use it as it is: eomirror check FILE"
        )
    if first and (first.get("mirrors") or first.get("spec", "mirrors")):
        return _refused(
            name,
            "it has no `kind: KafkaMirrorMaker2`",
            "import the whole resource: kubectl get kafkamirrormaker2 NAME -o yaml",
        )
    if first and (first.get("source.cluster.alias") or first.get("config", "source.cluster.alias")):
        return _refused(name, "connector.class is missing", "write the class of the connector")
    return _refused(name, "it is no configuration of a mirror that is known", _KNOWN)


def _of_properties(name: str, properties: Mapping[str, tuple[str, int]], text: str) -> _Recognised:
    if "connector.class" in properties:
        settings = {key: GivenSetting(key, value, line) for key, (value, line) in properties.items()}
        return _Recognised(name, connectors=(Connector("", settings),))
    if "clusters" in properties:
        _check_flows(name, properties)
        return _Recognised(name, properties=properties)
    if any(map(_FLOW.fullmatch, properties)):
        raise _refused(
            name, "clusters is missing", "write clusters = A, B with the aliases that the flows use"
        )
    for pattern, message, fix in _STRANGERS:
        if any(re.fullmatch(pattern, key) for key in properties):
            raise _refused(name, message, fix)
    if re.search(r"connect-mirror-maker|kafka-mirror-maker|\bcurl\b", text):
        raise _refused(
            name, "it is a script", "import the file, or give the options, that it hands to the program"
        )
    raise _refused(name, "it is no configuration of a mirror that is known", _KNOWN)


def _check_flows(name: str, properties: Mapping[str, tuple[str, int]]) -> None:
    """Refuses a file in which MirrorMaker 2 would mirror nothing; a flow with a slip is refused by its name later."""
    begun = any(
        flow_slip(key, value) not in ("", key)
        or (
            ("->" in key or key == "enabled") and key.endswith("enabled") and value.strip().lower() != "false"
        )
        for key, (value, _) in properties.items()
    )
    if not begun:
        fix = "write A->B.enabled = true"
        fault = Fault(
            "clusters", "no flow is enabled, so nothing is mirrored", fix, properties["clusters"][1]
        )
        raise ConfigError([fault], source=name)
