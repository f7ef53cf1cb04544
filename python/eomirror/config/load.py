"""
Loads a file or plain values as a `Config`, or reports all faults at once.

The order is fixed: text to tree (document), overrides, clusters, links, checks across settings, and the topology.  A
refused setting keeps its default in the following checks, so that one mistake is reported once.
"""

from __future__ import annotations

import dataclasses
import difflib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eomirror.config.carried import with_secrets
from eomirror.config.document import parse_python, parse_yaml
from eomirror.config.java_properties import decode_properties, parse_properties
from eomirror.config.links import check_links
from eomirror.config.masking import warn_of_exposed_secrets
from eomirror.config.mm2_properties import import_mm2
from eomirror.config.model import LINK_SETTINGS, Cluster, Config, FrozenMapping, Link
from eomirror.config.nodes import (
    Faults,
    Map,
    Node,
    Place,
    Scalar,
    key_name,
    kind_of,
    quoted,
    texts_of,
)
from eomirror.config.nodes import Sequence as ListNode
from eomirror.config.references import resolve
from eomirror.config.rules import CODECS, cluster_advice, cluster_conflict, login_advice, property_fault
from eomirror.config.schemas import parse_schemas
from eomirror.config.secret import Secret, has_reference, is_secret_key, shows_secret
from eomirror.config.token_function import OAUTH_CB
from eomirror.config.values import ALIAS
from eomirror.errors import ConfigError, Fault, UsageError

__all__ = ["Inspection", "apply_override", "inspect_config", "load_config"]

_CONVERT = "convert it, and give the result to this command: eomirror import FILE > mirror.yaml"
_MIRRORS = ("KafkaMirrorMaker2", "KafkaConnector", "KafkaMirrorMaker")


def foreign_form(root: Node) -> tuple[str, str] | None:
    """Returns message and fix if a YAML or JSON document belongs to another program; None if it may be ours."""
    if isinstance(root, ListNode):
        return foreign_form(root.items[0]) if root.items else None
    if not isinstance(root, Map) or "links" in root.entries:
        return None
    kind = root.entries.get("kind")
    if "apiVersion" in root.entries and isinstance(kind, Scalar):
        items = root.entries.get("items")
        if kind.text.endswith("List") and isinstance(items, ListNode):
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


_SECTIONS = ("clusters", "links", "defaults", "spark")
_ROLES = ("consumer", "producer")
_REQUIRED = {
    "source": "name a cluster by its alias",
    "target": "name a cluster by its alias",
    "topics": 'write a list of regular expressions; [".*"] for all topics',
}
# settings of a link whose values may refer to the environment or to a file
_WITH_SECRETS = frozenset({"schemas", "transform"})
_SHAREABLE = [name for name, each in LINK_SETTINGS.items() if each.shareable]
_LAST_PORT = 65535
# a name, or an address of IPv4 or IPv6
_HOST = re.compile(r"(?!__)[\w.-]+(?<!__)|[0-9A-Fa-f:.]+(%[\w.-]+)?", re.ASCII)
# shown in messages even if they come from the environment
_NEVER_SECRET = frozenset(
    {
        "bootstrap.servers",
        "security.protocol",
        "sasl.mechanism",
        "sasl.mechanisms",
        "client.rack",
        "client.dns.lookup",
        OAUTH_CB,
    }
)


@dataclass(frozen=True, slots=True)
class Inspection:
    """
    Result of `inspect_config`.

    Attributes:
        config: The configuration; None if it has faults.
        clusters: Clusters as far as they could be read, for checks of their properties.
        faults: Faults in the order of the file.
        lines: Line of every client property, by its path.
        origin: File that the configuration came from; empty for plain values.
    """

    config: Config | None
    clusters: tuple[Cluster, ...]
    faults: tuple[Fault, ...]
    lines: Mapping[str, int]
    origin: str


def load_config(
    source: str | Path | Mapping[str, object],
    *,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Config:
    """
    Reads, resolves and checks a configuration.

    Args:
        source: Path of a YAML file or of MirrorMaker 2's `.properties` file, or plain values.
        overrides: ``path=value`` texts such as ``links[0].lanes=4``, applied in order.
        environ: Variables for ``${env:NAME}``; the process environment by default.

    Raises:
        ConfigError: The configuration has faults; holds all of them.
        UsageError: An override cannot be parsed.
    """
    found = inspect_config(source, overrides=overrides, environ=environ)
    if found.config is None:
        raise ConfigError(list(found.faults), source=found.origin)
    return found.config


def inspect_config(
    source: str | Path | Mapping[str, object],
    *,
    overrides: Sequence[str] = (),
    environ: Mapping[str, str] | None = None,
) -> Inspection:
    """
    Like `load_config`, but returns faults as a result, so that a caller can add others.

    Raises:
        UsageError: An override cannot be parsed.
    """
    faults = Faults()
    root, origin = _tree(source, faults)
    foreign = foreign_form(root)
    if foreign is not None or not isinstance(root, Map):
        if foreign is not None:
            faults.add("file", *foreign, root.line)
        elif not faults.faults:
            fix = "write `clusters:` and `links:`; see docs/configuration.md"
            if isinstance(root, Scalar) and "=" in root.text:
                fix = (
                    "name a property file of MirrorMaker 2 *.properties, or convert it: eomirror import FILE"
                )
            faults.add("file", f"this is {kind_of(root)}", fix, root.line)
        return Inspection(None, (), tuple(faults.faults), {}, origin)
    if not isinstance(source, Mapping):
        warn_of_exposed_secrets(root, Path(source), faults)
    for override in overrides:
        apply_override(root, override)
    reader = _SectionReader(faults, os.environ if environ is None else environ)
    reader.unknown(root, "", _SECTIONS, top=True)
    clusters = reader.clusters(root)
    spark, hidden = reader.spark(root)
    links, places = reader.links(root)
    links = check_links(links, places, clusters, faults)
    config = None
    if not faults.faults:
        links = [_slow(link, clusters, reader.lines, faults) for link in links]
        config = Config(
            FrozenMapping(clusters),
            tuple(links),
            FrozenMapping(spark),
            hidden,
            tuple(faults.warnings),
            origin,
        )
    return Inspection(config, tuple(clusters.values()), tuple(_in_order(faults.faults)), reader.lines, origin)


def _tree(source: str | Path | Mapping[str, object], faults: Faults) -> tuple[Node, str]:
    """Returns the tree and its origin; a null scalar if the file could not be read."""
    nothing = Scalar("", plain=True)
    if isinstance(source, Mapping):
        return parse_python(source, faults), ""
    path = Path(source)
    origin = ascii(str(path))[1:-1]
    try:
        data = path.read_bytes()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        faults.add("file", f"cannot be read: {reason}", "name an existing YAML file")
        return nothing, origin
    if path.suffix == ".properties":
        return _of_mm2(data, faults), origin
    return parse_yaml(data, faults), origin


def _of_mm2(data: bytes, faults: Faults) -> Node:
    """Returns the tree of a MirrorMaker 2 property file; a key without a counterpart adds a warning or a fault."""
    text = decode_properties(data)
    given = parse_properties(text)
    if foreign := foreign_properties(given):
        faults.add("file", *foreign)
        return Scalar("", plain=True)
    imported = import_mm2(text, keep_secrets=True)
    for item in imported.not_honoured:
        add = faults.add if item.grave else faults.warn
        add(
            key_name(item.key),
            f"not supported: {item.reason}",
            "remove it, or convert the file to YAML: `eomirror import FILE`",
            item.line,
        )
    lines = {place: imported.lines[key] for place, key in imported.places.items()}
    return parse_python(imported.settings, faults, lines=lines)


def _in_order(faults: list[Fault]) -> list[Fault]:
    """Returns the faults sorted by line, without duplicates."""
    return sorted(dict.fromkeys(faults), key=lambda fault: fault.line)


def _slow(link: Link, clusters: Mapping[str, Cluster], lines: Mapping[str, int], faults: Faults) -> Link:
    """Returns a link with the reason why it takes the slow plane, of which its target's codec is a silent one."""
    target = clusters[link.target]
    section, name = next(
        (
            (section, name)
            for section, given in (("producer.", target.producer), ("", target.properties))
            for name in CODECS
            if name in given
        ),
        ("", ""),
    )
    if not name or link.plane != "auto":
        return link
    path = f"clusters.{link.target}.{section}{name}"
    why = (
        f"{name} makes {link.name} take the client plane, which compresses each record anew: about seven times the CPU "
        "for a record, and a third of the throughput"
    )
    fix = "remove it: batches then keep the compression of their producers; or set `plane: client` if that is meant"
    faults.warn(path, why, fix, lines.get(path, 0))
    return dataclasses.replace(link, slow=f"{path}: {why}; {fix}")


class _SectionReader:
    """Reads sections of the tree and adds faults to ``faults``."""

    def __init__(self, faults: Faults, environ: Mapping[str, str]) -> None:
        self._faults = faults
        self._environ = environ
        self.lines: dict[str, int] = {}

    def unknown(self, node: Map, path: str, known: Collection[str], *, top: bool = False) -> None:
        """Refuses unknown keys and suggests the nearest known one."""
        for key, value in node.entries.items():
            if key in known:
                continue
            if top and key in LINK_SETTINGS:
                self._faults.add(
                    key, "not a top-level key", "move it to a link, or under `defaults`", value.line
                )
                continue
            near = difflib.get_close_matches(key, known, n=3, cutoff=0.6)
            if near:
                # people rarely mistype the first letter: `lane` means lanes, not plane
                fix = f"did you mean {next((name for name in near if name[0] == key[0]), near[0])}?"
            else:
                fix = f"known keys: {', '.join(known)}"
            self._faults.add(f"{path}{key_name(key)}", "unknown key", fix, value.line)

    def clusters(self, root: Map) -> dict[str, Cluster]:
        """Reads the section ``clusters``."""
        node = root.entries.get("clusters")
        if not isinstance(node, Map) or not node.entries:
            what = "is missing" if node is None else f"is {kind_of(node)}"
            example = 'clusters: {east: {bootstrap.servers: "HOST:PORT"}, west: {...}}'
            self._faults.add("clusters", f"the section {what}", f"write {example}", node.line if node else 0)
            return {}
        return {alias: self._cluster(alias, inner) for alias, inner in node.entries.items()}

    def _cluster(self, alias: str, node: Node) -> Cluster:
        place = Place(node, f"clusters.{key_name(alias)}", self._faults)
        ALIAS.parse(place.below(Scalar(alias, line=node.line), ""))
        if alias in ("eomirror", "mm2") or alias.startswith("__"):
            place.refuse(
                "this alias is reserved: topics that start with it are internal", "choose another alias"
            )
        if not isinstance(node, Map):
            place.entries('write {bootstrap.servers: "HOST:PORT"}')
            return Cluster(alias, FrozenMapping())
        sections = {}
        for role in _ROLES:
            inner = place.below(node.entries.get(role, Map()), f".{role}")
            inner.entries(f"write properties of {role}s")
            sections[role] = FrozenMapping(self._properties(inner))
        properties = self._properties(place, without=_ROLES)
        self._bootstrap(place, node, properties)
        if conflict := cluster_conflict(properties):
            key, message, fix = conflict
            self._faults.add(f"{place.path}.{key}", message, fix, node.line_of(key))
        for key, message, fix in cluster_advice(properties):
            self._faults.warn(f"{place.path}.{key}", message, fix, node.line_of(key))
        for role, found in sections.items():
            for key, message, fix in login_advice(found):
                where = f"{place.path}.{role}.{key}"
                self._faults.warn(where, message, fix, self.lines.get(where, 0))
        return Cluster(alias, FrozenMapping(properties), **sections)

    def _properties(self, section: Place, without: Collection[str] = ()) -> dict[str, str | Secret]:
        found: dict[str, str | Secret] = {}
        for key, value in section.node.entries.items() if isinstance(section.node, Map) else ():
            if key in without:
                continue
            place = section.below(value, f".{key_name(key)}")
            self.lines[place.path] = value.line
            resolved = self._property(place, key)
            if resolved is None:
                continue
            message, fix = property_fault(key, resolved)
            if message:
                place.refuse(message, fix)
                continue
            found[key] = resolved
        return found

    def _property(self, place: Place, key: str) -> str | Secret | None:
        text = self._list_of_brokers(place) if key == "bootstrap.servers" else None
        if text is None:
            text = place.text("write a single value")
        if text is None:
            return None
        referred = has_reference(text)
        resolved = resolve(place, text, self._environ)
        if resolved is None:
            return None
        if "\0" in resolved:
            place.refuse("the value contains a NUL character", "remove it")
            return None
        hidden = is_secret_key(key) or ((referred or shows_secret(resolved)) and key not in _NEVER_SECRET)
        return Secret(resolved, text if referred else "") if hidden else resolved

    def _list_of_brokers(self, place: Place) -> str | None:
        if not isinstance(place.node, ListNode):
            return None
        items = [item.text for item in place.node.items if isinstance(item, Scalar)]
        return ",".join(items) if len(items) == len(place.node.items) and items else None

    def _bootstrap(self, cluster: Place, node: Map, properties: Mapping[str, str | Secret]) -> None:
        fix = 'write bootstrap.servers: "HOST:PORT,HOST:PORT"'
        where, line = f"{cluster.path}.bootstrap.servers", node.line_of("bootstrap.servers")
        given = properties.get("bootstrap.servers")
        if given is None:
            misspelled = difflib.get_close_matches("bootstrap.servers", node.entries, n=1, cutoff=0.8)
            if misspelled and misspelled != ["bootstrap.servers"]:
                key = misspelled[0]
                place = f"{cluster.path}.{key_name(key)}"
                self._faults.add(place, "unknown key", "did you mean bootstrap.servers?", node.line_of(key))
            elif "bootstrap.servers" not in node.entries:
                self._faults.add(where, "is missing", fix, line)
            return
        for broker in str(given).split(","):
            host, _, port = broker.strip().removeprefix("[").rpartition(":")
            legal = port.isascii() and port.isdigit() and 0 < int(port[:6]) <= _LAST_PORT
            if not host.strip("]") or not legal:
                shown = quoted(broker.strip()) if "@" not in broker else "one of them"
                self._faults.add(where, f"{shown} is not a valid HOST:PORT", fix, line)
            elif not _HOST.fullmatch(host.strip("[] ")):
                shown = quoted(host) if host.count("@") != 1 else "one of them"
                self._faults.warn(
                    where,
                    f"{shown} is no name of a host: a template that was not filled in?",
                    "write the host, or ${env:NAME} and set that variable",
                    line,
                )

    def _section(self, root: Map, name: str, fix: str) -> Map:
        """Returns a section that may be missing or empty; an empty mapping if it is something else."""
        node = root.entries.get(name, Map())
        if isinstance(node, Scalar) and node.is_null:
            node = Map(line=node.line)
        return Place(node, name, self._faults).entries(fix)

    def spark(self, root: Map) -> tuple[dict[str, str], frozenset[str]]:
        """Reads the section ``spark``; returns properties, and the keys of those that must not be shown."""
        found = {}
        hidden = set()
        section = self._section(root, "spark", "write properties, such as spark.master: local[8]")
        for key, value in section.entries.items():
            place = Place(value, f"spark.{key_name(key)}", self._faults)
            if not key.startswith("spark."):
                place.refuse("names of Spark properties start with spark.", f"did you mean spark.{key}?")
                continue
            text = place.text("write a single value")
            resolved = resolve(place, text, self._environ, foreign=True) if text is not None else None
            if text is not None and resolved is not None:
                found[key] = resolved
                if has_reference(text) or is_secret_key(key) or shows_secret(resolved):
                    hidden.add(key)
        return found, frozenset(hidden)

    def links(self, root: Map) -> tuple[list[Link], list[Map]]:
        """Reads the sections ``defaults`` and ``links``; returns links and their nodes, for `check_links`."""
        defaults = self._section(root, "defaults", "write settings, such as lanes: 2")
        self.unknown(defaults, "defaults.", _SHAREABLE)
        shared = self._settings(defaults, "defaults", _SHAREABLE)
        node = root.entries.get("links")
        if not isinstance(node, ListNode) or not node.items:
            what = (
                "is missing"
                if node is None
                else "is empty"
                if isinstance(node, ListNode)
                else f"is {kind_of(node)}"
            )
            fix = "write links: [{source: east, target: west, topics: [...]}]"
            self._faults.add("links", f"the section {what}", fix, node.line if node else 0)
            return [], []
        links: list[Link] = []
        places: list[Map] = []
        for number, inner in enumerate(node.items):
            place = Place(inner, f"links[{number}]", self._faults)
            if isinstance(inner, Map):
                self.unknown(inner, f"{place.path}.", LINK_SETTINGS)
                links.append(self._link(inner, place.path, shared))
                places.append(inner)
            else:
                place.entries("write {source: ..., target: ..., topics: ...}")
        # indexes in paths must be those of the file, so the links of a broken list are not checked further
        return (links, places) if len(links) == len(node.items) else ([], [])

    def _link(self, node: Map, path: str, shared: Mapping[str, Any]) -> Link:
        given = {
            "source": "",
            "target": "",
            "topics": (),
            **shared,
            **self._settings(node, path, LINK_SETTINGS),
        }
        for key, fix in _REQUIRED.items():
            # a misspelled key is one fault, and `unknown` names it
            misspelled = difflib.get_close_matches(
                key, node.entries.keys() - LINK_SETTINGS.keys(), n=1, cutoff=0.6
            )
            if key not in node.entries and key not in shared and not misspelled:
                self._faults.add(f"{path}.{key}", "is missing", fix, node.line)
        return Link(**{"name": f"{given['source']}->{given['target']}", **given})

    def _settings(self, node: Map, path: str, names: Collection[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name in names:
            value = node.entries.get(name)
            if value is None:
                continue
            place = Place(value, f"{path}.{name}", self._faults)
            if name == "name" and isinstance(value, Scalar) and value.text == _default_name(node):
                continue
            if name not in _WITH_SECRETS and any(map(has_reference, texts_of(value))):
                place.refuse(
                    "references are allowed only under `clusters` and `spark`, where values are kept secret",
                    f"write the value here, or set it with -s {place.path}=VALUE",
                )
                continue
            parsed: Any
            if name == "schemas":
                parsed = parse_schemas(place, lambda place, text: resolve(place, text, self._environ))
            else:
                parsed = LINK_SETTINGS[name].parse(place)
            if name == "transform" and parsed is not None:
                parsed = with_secrets(parsed, place, self._environ)
            if parsed is not None:
                found[name] = parsed
        return found


def _default_name(link: Map) -> str:
    ends = (link.entries.get(end) for end in ("source", "target"))
    return "->".join(end.text if isinstance(end, Scalar) else "" for end in ends)


_STEP = re.compile(r"([^.\[\]]+)((?:\[[0-9]+\])*)")
_NO_PATH = re.compile(r"[^A-Za-z0-9_.\[\]]")
_FIX = "write -s links[0].lanes=4, -s defaults.commit_interval=50ms or -s clusters.east.bootstrap.servers=HOST:PORT"


def apply_override(root: Map, text: str) -> None:
    """
    Sets one value in the tree.

    Values under ``clusters`` and ``spark`` are plain texts; others are parsed as YAML, so that they can be lists.

    Raises:
        UsageError: The text is not an assignment, or a list has no such element.
    """
    path, separator, value = text.partition("=")
    path = path.strip()
    if not separator or not path:
        # a password may follow the path, after a colon or a blank: do not show it
        named = _NO_PATH.split(path)[0]
        raise UsageError(f"override {named[:60]!a} is not an assignment", fix=_FIX)
    steps = _steps(path)
    node: Node = root
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        fresh: Node = ListNode() if isinstance(following, int) else Map()
        if following is None:
            fresh = _value(path, steps, value)
        node = _enter(node, step, fresh, path, last=following is None)


def _steps(path: str) -> list[str | int]:
    section, _, rest = path.partition(".")
    if section == "spark" and rest:
        return ["spark", rest if rest.startswith("spark.") else f"spark.{rest}"]
    if section == "clusters" and rest.count("."):
        alias, _, key = rest.partition(".")
        role, _, inner = key.partition(".")
        return (
            ["clusters", alias, role, inner]
            if role in ("consumer", "producer") and inner
            else ["clusters", alias, key]
        )
    steps: list[str | int] = []
    for part in path.split("."):
        found = _STEP.fullmatch(part)
        if not found:
            raise UsageError(f"override path {path[:60]!a} is not valid", fix=_FIX)
        steps.append(found[1])
        steps.extend(int(number) for number in re.findall(r"[0-9]+", found[2]))
    return steps


def _value(path: str, steps: list[str | int], value: str) -> Node:
    if steps[0] in ("clusters", "spark"):
        return Scalar(value)
    faults = Faults()
    node = parse_yaml(value.encode(), faults)
    if faults.faults:
        raise UsageError(f"the value of override {path} is not valid YAML", fix="quote it as in YAML")
    return _without_lines(node) if value.strip() else Scalar("", plain=True)


def _without_lines(node: Node) -> Node:
    """Clears the line numbers: an override is on no line of the file."""
    node.line = 0
    for inner in (
        node.items if isinstance(node, ListNode) else (node.entries.values() if isinstance(node, Map) else ())
    ):
        _without_lines(inner)
    return node


def _enter(node: Node, step: str | int, fresh: Node, path: str, *, last: bool) -> Node:
    if isinstance(step, int):
        if not isinstance(node, ListNode) or step > len(node.items) - (0 if last else 1):
            raise UsageError(f"override {path}: there is no element {step}", fix="count from 0")
        if last and step < len(node.items):
            node.items[step] = fresh
        elif last:
            node.items.append(fresh)
        return node.items[step]
    if not isinstance(node, Map):
        raise UsageError(f"override {path}: {step} cannot be set there", fix=_FIX)
    if last or step not in node.entries or _is_null(node.entries[step]):
        node.entries[step] = fresh
    return node.entries[step]


def _is_null(node: Node) -> bool:
    return isinstance(node, Scalar) and node.is_null
