"""
Converts MirrorMaker 2's property file: every key is carried over, or reported with the reason why not.

Source: Apache Kafka 4.3, connect/mirror: MirrorMakerConfig.java (layers of keys in dedicated mode),
MirrorConnectorConfig.java, MirrorSourceConfig.java and MirrorCheckpointConfig.java (keys and defaults).

Layers, as in MM2: ``S->T.KEY`` wins over ``KEY`` for a flow, ``ALIAS.KEY`` over ``KEY`` for a cluster.  A flow exists
if ``S->T.enabled`` is true.  If MM2's default for a key that selects records differs from ours, it is written out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from eomirror.config.java_properties import parse_properties
from eomirror.config.mm2_clients import ClientProperties, NotHonoured, PropertyKeys
from eomirror.config.mm2_reasons import boolean_fault, flow_slip, holds_always, reason
from eomirror.config.mm2_transforms import convert_transforms
from eomirror.config.nodes import quoted
from eomirror.config.secret import is_secret_key, shows_secret
from eomirror.config.values import without_look_around

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["Imported", "NotHonoured", "import_entries", "import_mm2"]

# MirrorCheckpointConfig.java
_DEFAULT_GROUPS_EXCLUDE = ("console-consumer-.*", "connect-.*", "__.*")
# MirrorSourceConfig.java
_DEFAULT_EXCLUDE = (r"mm2.*\.internal", r".*\.replica", "__.*")
_POLICIES = {
    "org.apache.kafka.connect.mirror.DefaultReplicationPolicy": "prefix",
    "org.apache.kafka.connect.mirror.IdentityReplicationPolicy": "identity",
}
# keys of the flows' connectors, not of a cluster that has the name `source` or `target`
_END = re.compile(r"(\S+->\S+\.)?(source|target)\.cluster\.(.+)")
_ROLES = ("consumer", "producer", "admin")
_MOST_REPLICAS = 100
_SMTS = re.compile(r"(transforms|predicates)(\..*)?")
_LOOK_AROUND = re.compile(r"\(\?<?[=!]")

# connection settings that MM2 also takes from the top of the file, for all clusters
_SHARED = re.compile(r"(bootstrap\.servers|security\.protocol|(ssl|sasl)\..*)")

# MM2's key, our key, and our value of each of its values; None for our default
_WORDS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("emit.heartbeats.enabled", "heartbeats", {"true": None, "false": "off"}),
    ("sync.group.offsets.enabled", "sync_group_offsets", {"true": True, "false": None}),
    ("sync.topic.configs.enabled", "sync_topic_configs", {"true": None, "false": False}),
    ("sync.topic.acls.enabled", "acls", {"true": True, "false": False}),
    ("offset-syncs.topic.location", "offset_syncs", {"source": "source", "target": None}),
    ("emit.offset-syncs.enabled", "offset_syncs", {"false": "off"}),
)


@dataclass(frozen=True, slots=True)
class Imported:
    """
    A converted property file.

    Attributes:
        settings: Our configuration as plain values.
        honoured: Path in ``settings`` of each key that is carried over.
        not_honoured: All other keys, in the order of the file.
        variables: Key whose secret each environment variable must hold; empty if secrets were kept.
        places: Key of each path in ``settings``, also of one that several paths share.
        lines: Line of each key.
    """

    settings: dict[str, Any] = field(repr=False)
    honoured: Mapping[str, str]
    not_honoured: tuple[NotHonoured, ...]
    variables: Mapping[str, str]
    places: Mapping[str, str] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)

    def where(self, path: str) -> tuple[str, int]:
        """Returns key and line of a path in ``settings``; the path itself and 0 if it comes from no key."""
        place = path
        while place and place not in self.places:
            place = place.rpartition("[" if place.endswith("]") else ".")[0]
        key = self.places.get(place, "")
        return (key, self.lines.get(key, 0)) if key else (path, 0)


def import_mm2(text: str, *, keep_secrets: bool) -> Imported:
    """
    Converts MM2's property file to our configuration.

    Args:
        text: Content of the file.
        keep_secrets: Keep secrets in the settings, to use them at once; otherwise they become ``${env:NAME}``, so that
            the settings can be written and shown.
    """
    return import_entries(parse_properties(text), keep_secrets=keep_secrets)


def import_entries(given: Mapping[str, tuple[str, int]], *, keep_secrets: bool) -> Imported:
    """
    Converts keys of MM2's property file to our configuration.

    Args:
        given: Value and line of each key.
        keep_secrets: As for `import_mm2`.
    """
    return _PropertiesImport(given, keep_secrets=keep_secrets).run()


class _PropertiesImport:
    def __init__(self, given: Mapping[str, tuple[str, int]], *, keep_secrets: bool) -> None:
        self._keys = PropertyKeys(given)
        self._clients = ClientProperties(self._keys, keep_secrets)
        self._aliases = _list(self._keys.value("clusters"))
        self._pairs = [f"{s}->{t}" for s in self._aliases for t in self._aliases if s != t]
        self._flows = [each for each in self._pairs if self._keys.value(f"{each}.enabled").lower() == "true"]

    def run(self) -> Imported:
        clusters = {alias: self._cluster(alias) for alias in self._aliases}
        self._keys.honour("clusters", "clusters")
        links: list[dict[str, Any]] = []
        pairs = [(s, t) for s in self._aliases for t in self._aliases if s != t]
        for source, target in pairs:
            enabled = f"{source}->{target}.enabled"
            if self._keys.value(enabled).lower() == "true":
                links.append(self._link(source, target, f"links[{len(links)}]"))
                self._keys.honour(enabled, f"links[{len(links) - 1}]")
        for key in self._keys.given:
            if key not in self._keys.honoured and key not in self._keys.refused:
                self._explain(key)
        refused = [self._keys.refused[key] for key in self._keys.given if key in self._keys.refused]
        return Imported(
            {"clusters": clusters, "links": links},
            self._keys.honoured,
            tuple(refused),
            self._clients.variables,
            self._keys.places,
            {key: line for key, (_, line) in self._keys.given.items()},
        )

    # -- clusters --------------------------------------------------------------------------------

    def _cluster(self, alias: str) -> dict[str, Any]:
        cluster: dict[str, Any] = {}
        own = {
            key.removeprefix(f"{alias}."): key
            for key in self._keys.given
            if key.startswith(f"{alias}.") and not _END.fullmatch(key)
        }
        shared = {key: key for key in self._keys.given if _SHARED.fullmatch(key)}
        plain = {name: key for name, key in {**shared, **own}.items() if name.split(".")[0] not in _ROLES}
        self._clients.convert(alias, f"clusters.{alias}", plain, cluster)
        for role in _ROLES[:2]:
            names = {
                name.removeprefix(f"{role}."): key for name, key in own.items() if name.startswith(f"{role}.")
            }
            if role == "producer":
                names |= self._overrides(alias)
            section: dict[str, str] = {}
            self._clients.convert(f"{alias}_{role}", f"clusters.{alias}.{role}", names, section)
            if section:
                cluster[role] = section
        return cluster

    def _overrides(self, target: str) -> dict[str, str]:
        """Returns the properties of Connect's producer that flows to a target override: it writes the records."""
        found: dict[str, str] = {}
        for source in self._aliases:
            prefix = f"{source}->{target}.producer.override."
            if f"{source}->{target}" not in self._flows:
                continue
            for key in self._keys.given:
                name = key.removeprefix(prefix) if key.startswith(prefix) else ""
                if name and self._keys.value(found.setdefault(name, key)) != self._keys.value(key):
                    self._keys.refuse(
                        key, "all flows to a cluster share its producer's properties", grave=True
                    )
        return found

    # -- links -----------------------------------------------------------------------------------

    def _link(self, source: str, target: str, path: str) -> dict[str, Any]:
        link: dict[str, Any] = {"source": source, "target": target}
        flow = f"{source}->{target}"

        def found(name: str) -> tuple[str, str] | None:
            for key in (f"{flow}.{name}", name):
                if key in self._keys.given:
                    return key, self._keys.value(key)
            return None

        for names, ours, default in (
            (("topics",), "topics", (".*",)),
            (("topics.exclude", "topics.blacklist"), "exclude", _DEFAULT_EXCLUDE),
            (("groups",), "groups", (".*",)),
            (("groups.exclude", "groups.blacklist"), "exclude_groups", _DEFAULT_GROUPS_EXCLUDE),
        ):
            given = next((each for each in map(found, names) if each is not None), None)
            link[ours] = list(default) if given is None else _list(given[1])
            if given is not None:
                self._keys.honour(given[0], f"{path}.{ours}")
        self._look_around(link, "topics", "exclude", found("topics"))
        self._look_around(link, "groups", "exclude_groups", found("groups"))
        self._left_settings(
            link, path, found("config.properties.exclude") or found("config.properties.blacklist")
        )
        self._naming(link, path, found)
        self._replicas(link, path, found("replication.factor"))
        for name, ours, meaning in _WORDS:
            given = found(name)
            if given is not None and given[1].lower() in meaning:
                link.update(
                    {ours: meaning[given[1].lower()]} if meaning[given[1].lower()] is not None else {}
                )
                self._keys.honour(given[0], f"{path}.{ours}")
        self._interval(link, path, found("sync.topic.configs.interval.seconds"), "sync_topic_configs")
        self._interval(link, path, found("sync.topic.acls.interval.seconds"), "acls")
        # MirrorSourceConnector copies them unless it is told not to; they are off here by default
        link |= {"acls": True} if link.pop("acls", True) else {}
        self._transforms(link, path, flow)
        self._checkpoints(link, path, found("emit.checkpoints.enabled"))
        # MirrorConnectorConfig.sourceConsumerConfig: source.consumer.* wins over consumer.*, a flow over a cluster
        scopes = (f"{flow}.source", source, flow)
        self._start(link, path, *(f"{scope}.consumer.auto.offset.reset" for scope in scopes))
        # a key of the flow hides the one of the whole file
        for key in self._keys.given:
            if f"{flow}.{key}" in self._keys.honoured:
                self._keys.honour(key, f"hidden by {flow}.{key}")
        return link

    def _look_around(
        self, link: dict[str, Any], ours: str, excluded: str, given: tuple[str, str] | None
    ) -> None:
        """Divides an expression with look-around into two; refuses it with the lines to write if a list has several."""
        patterns: list[str] = link[ours]
        if given is None or not any(map(_LOOK_AROUND.search, patterns)):
            return
        parts = [without_look_around(each) if _LOOK_AROUND.search(each) else (each, []) for each in patterns]
        divided = [each for each in parts if each is not None]
        news = [text for _, texts in divided for text in texts]
        if len(divided) == len(parts) == 1:
            link[ours] = [divided[0][0]]
            link[excluded] = [*link[excluded], *news]
            return
        if len(divided) < len(parts):
            how = f"name the {ours} without it, and leave out others by {ours}.exclude"
        else:
            # [.] needs no second backslash in a property file
            left = ", ".join([*link[excluded], *news]).replace("\\.", "[.]")
            how = f"write {ours} = {', '.join(text for text, _ in divided)} and {ours}.exclude = {left}"
        self._keys.refuse(given[0], f"matching takes linear time, without look-around; {how}", grave=True)

    def _left_settings(self, link: dict[str, Any], path: str, given: tuple[str, str] | None) -> None:
        if given is not None:
            link["exclude_configs"] = _list(given[1])
            self._keys.honour(given[0], f"{path}.exclude_configs")

    def _interval(self, link: dict[str, Any], path: str, given: tuple[str, str] | None, ours: str) -> None:
        # Scheduler.java: a negative interval switches the task off
        if given is not None and given[1].startswith("-"):
            link[ours] = False
            self._keys.honour(given[0], f"{path}.{ours}")

    def _transforms(self, link: dict[str, Any], path: str, flow: str) -> None:
        """Converts transformations of the flow, or of the whole file where the flow has no such key."""
        keys = {
            key.removeprefix(f"{flow}."): key
            for layer in (_SMTS, re.compile(rf"{re.escape(flow)}\.{_SMTS.pattern}"))
            for key in self._keys.given
            if layer.fullmatch(key)
        }
        if "transforms" not in keys:
            return
        naming = link.get("naming", "prefix")
        separator = naming.get("separator", "") if isinstance(naming, dict) else "."
        beginning = "" if naming == "identity" else f"{link['source']}{separator}"
        found = convert_transforms({name: self._keys.value(key) for name, key in keys.items()}, beginning)
        for name, why in found.refused.items():
            self._keys.refuse(keys[name], why, grave=True)
        if found.refused:
            if "transforms" not in found.refused:
                self._keys.refuse(keys["transforms"], "not all of them can be carried over", grave=True)
            return
        if found.rules:
            link["transform"] = found.rules
        link["exclude"] = [*link["exclude"], *found.exclude]
        place = f"{path}.transform" if found.rules else f"{path}.exclude"
        for name in ("transforms", "predicates", *found.honoured):
            if name in keys:
                self._keys.honour(keys[name], place)

    def _start(self, link: dict[str, Any], path: str, *keys: str) -> None:
        for key in keys:
            value = self._keys.value(key).lower()
            if value in {"earliest", "latest"}:
                link.setdefault("start", value)
                self._keys.honour(key, f"{path}.start")
            elif value:
                self._keys.refuse(key, "a link starts at `earliest` or `latest`", grave=True)

    def _naming(
        self,
        link: dict[str, Any],
        path: str,
        found: Callable[[str], tuple[str, str] | None],
    ) -> None:
        policy, separator = found("replication.policy.class"), found("replication.policy.separator")
        kind = "prefix"
        if policy is not None:
            if policy[1] not in _POLICIES:
                self._keys.refuse(
                    policy[0], "write the policy as `naming`: a pattern, a match or a map", grave=True
                )
                return
            kind = _POLICIES[policy[1]]
            self._keys.honour(policy[0], f"{path}.naming")
        text = "." if separator is None else separator[1]
        link["naming"] = kind
        if self._keeps_names(link, path, kind, separator):
            return
        internal = found("replication.policy.internal.topic.separator.enabled")
        if text != ".":
            link["naming"] = ({} if kind == "prefix" else {"policy": kind}) | {"separator": text}
            if internal is not None and internal[1].lower() == "false":
                link["naming"]["separator_for_internal"] = False
        for given in (separator, internal):
            if given is not None:
                self._keys.honour(given[0], f"{path}.naming")

    def _keeps_names(
        self, link: dict[str, Any], path: str, kind: str, separator: tuple[str, str] | None
    ) -> bool:
        """Returns True if alias or separator is empty, which was the way to keep names before there was a policy."""
        flow = f"{link['source']}->{link['target']}"
        aliases = {
            end: next(
                (
                    key
                    for key in (f"{flow}.{end}.cluster.alias", f"{end}.cluster.alias")
                    if key in self._keys.given
                ),
                "",
            )
            for end in ("source", "target")
        }
        empty = [key for key in aliases.values() if key and not self._keys.value(key)]
        nameless = aliases["source"] in empty
        for key in empty:
            self._keys.honour(key, f"{path}.naming")
        if kind == "identity" or (separator is not None and not separator[1] and nameless):
            if separator is not None and not separator[1]:
                link["naming"] = "identity"
                self._keys.honour(separator[0], f"{path}.naming")
                return True
            return False
        same = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
        if nameless:
            self._keys.refuse(
                aliases["source"],
                "names of copies would begin with the separator; if topics keep their names, write in place of it "
                f"{same}",
                grave=True,
            )
            return True
        if separator is not None and not separator[1]:
            link["naming"] = {"pattern": "{source}{topic}"}
            self._keys.refuse(
                separator[0],
                f"a copy of orders is named {link['source']}orders, as MirrorMaker 2 names it; if topics keep their "
                f"names, write in place of it {same}",
                weight="look",
            )
            return True
        return False

    def _replicas(self, link: dict[str, Any], path: str, given: tuple[str, str] | None) -> None:
        if given is None:
            return
        key, value = given
        if value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST_REPLICAS:
            link["replication_factor"] = int(value)
            self._keys.honour(key, f"{path}.replication_factor")
        else:
            self._keys.refuse(
                key,
                f"`replication_factor` is a number from 1 to {_MOST_REPLICAS}; unset it means three, or the number of "
                "brokers if that is smaller",
            )

    def _checkpoints(self, link: dict[str, Any], path: str, given: tuple[str, str] | None) -> None:
        """Follows no group if MM2 writes no checkpoints, because it commits no offsets then."""
        if given is not None and given[1].lower() == "false":
            link["groups"] = []
            link.pop("exclude_groups", None)
            link.pop("sync_group_offsets", None)
            self._keys.honour(given[0], f"{path}.groups")
        elif given is not None and given[1].lower() == "true":
            self._keys.honour(given[0], f"{path}.groups")

    # -- the rest --------------------------------------------------------------------------------

    def _explain(self, key: str) -> None:
        """Records the reason why a key is not carried over."""
        name, value = self._bare(key), self._keys.value(key)
        if name.startswith("producer.override.") and "->" in key:
            name = name.removeprefix("producer.override.")
        if fault := self._misread(key, name, value):
            self._keys.refuse(key, fault, grave=True)
        elif self._has_no_effect(key) or (name == "enabled" and value.lower() == "false"):
            self._keys.honour(key, "no link")
        elif holds_always(name, value) or self._is_known_provider(name, value):
            self._keys.honour(key, "always")
        else:
            text, weight = reason(name, value)
            self._keys.refuse(key, text, grave=weight == "refused", weight=weight)

    def _misread(self, key: str, name: str, value: str) -> str:
        """Returns why a key cannot mean what was written: a slip in a flow, a boolean, or a layer; empty if it can."""
        if end := _END.fullmatch(key):
            return self._end_of_all(end[1] or "", end[2], end[3], value)
        if not any(key.startswith(f"{each}.") for each in self._pairs) and (meant := flow_slip(key, value)):
            unknown = next(
                (each for each in meant.split(".")[0].split("->") if each not in self._aliases), ""
            )
            if meant == key:
                if not meant.endswith(".enabled") or value.lower() == "false":
                    return ""
                return f"{unknown or key} is not in `clusters`, or is both ends; correct one of the two"
            shown = key if is_secret_key(meant) or shows_secret(value) else f"{key} {value}"
            return (
                f"the line {quoted(shown)} is no flow; write it as {meant} = VALUE, with no blank in the key"
            )
        if name == "enabled" or not self._has_no_effect(key):
            if name == "offset-syncs.topic.location" and value not in ("source", "target"):
                return f"its value {quoted(value)} is neither source nor target; write one of them"
            return boolean_fault(name, value)
        return ""

    def _end_of_all(self, flow: str, end: str, name: str, value: str) -> str:
        """Returns why a property of every flow's source or target is refused, and the lines to write."""
        aliases = dict.fromkeys(
            each.split("->")[0 if end == "source" else 1]
            for each in self._flows
            if f"{each}." == flow or not flow
        )
        if name == "alias":
            if not value or set(aliases) == {value}:
                return ""
            others = ", ".join(value if each in aliases else each for each in self._aliases)
            old = next(iter(aliases), end)
            return (
                f"MirrorMaker 2 takes {quoted(value)} as the alias of the {end} of every such flow, so it is part of "
                f"the names of topics; write clusters = {others}, and {value} in place of {old} at the beginning of "
                "keys and in flows"
            )
        renamed = self._keys.value(f"{flow}{end}.cluster.alias") or self._keys.value(f"{end}.cluster.alias")
        if renamed and name != "alias":
            aliases = {renamed: None}
        shown = "VALUE" if is_secret_key(name) or shows_secret(value) else value
        lines = ", and ".join(f"{each}.{name} = {shown}" for each in aliases) or f"ALIAS.{name} = {shown}"
        return f"MirrorMaker 2 takes it for the {end} of every such flow; write {lines}"

    def _has_no_effect(self, key: str) -> bool:
        """Returns True for a key of a flow that is not enabled, and for one that each enabled flow overrides."""
        flow = next((each for each in self._pairs if key.startswith(f"{each}.")), None)
        if flow is not None:
            return flow not in self._flows
        overridden = bool(self._flows) and all(f"{each}.{key}" in self._keys.given for each in self._flows)
        return overridden and key != "enabled"

    def _is_known_provider(self, name: str, value: str) -> bool:
        if name == "config.providers":
            return all(map(self._clients.knows_provider, _list(value)))
        found = re.fullmatch(r"config\.providers\.([^.]+)\..*", name)
        return found is not None and self._clients.knows_provider(found[1])

    def _bare(self, key: str) -> str:
        """Returns the key without flow, cluster and role of the client."""
        for prefix in [f"{each}." for each in (*self._pairs, *self._aliases)]:
            if key.startswith(prefix):
                key = key.removeprefix(prefix)
                break
        return re.sub(r"^((source|target)\.)?(consumer|producer|admin)\.(?!override)", "", key)


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
