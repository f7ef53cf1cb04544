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
from eomirror.config.rules import ADVICE
from eomirror.config.secret import is_secret_key

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Imported", "NotHonoured", "import_mm2"]

# KIP-545 and MirrorCheckpointConfig.java; matters only if offsets are committed on the target
_GROUPS_LEFT_OUT = (
    "by default MirrorMaker 2 commits no offsets of groups console-consumer-.*, connect-.* and __.*; `groups` has no "
    "exclusions: write a narrower expression if offsets of such groups must not be committed"
)
_DEFAULT_EXCLUDE = (r"mm2.*\.internal", r".*\.replica", "__.*")
_POLICIES = {
    "org.apache.kafka.connect.mirror.DefaultReplicationPolicy": "prefix",
    "org.apache.kafka.connect.mirror.IdentityReplicationPolicy": "identity",
}
_ROLES = ("consumer", "producer", "admin")
_MOST = {"lanes": 256, "replication_factor": 100}

# properties that mean the same to both clients
_SAME = frozenset(
    {
        "batch.size",
        "bootstrap.servers",
        "client.dns.lookup",
        "client.rack",
        "compression.type",
        "connections.max.idle.ms",
        "fetch.max.bytes",
        "fetch.min.bytes",
        "linger.ms",
        "max.partition.fetch.bytes",
        "metadata.max.age.ms",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.ms",
        "sasl.kerberos.service.name",
        "sasl.mechanism",
        "security.protocol",
        "ssl.key.password",
        "ssl.keystore.password",
    }
)
_RENAMED = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "max.request.size": "message.max.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
# connection settings that MM2 also takes from the top of the file, for all clusters
_SHARED = re.compile(r"(bootstrap\.servers|security\.protocol|(ssl|sasl)\..*)")

# keys with a value that eomirror always has
_ALWAYS = {
    "dedicated.mode.enable.internal.rest": "true",
    "emit.offset-syncs.enabled": "true",
    "enable.auto.commit": "false",
    "enable.idempotence": "true",
    "exactly.once.source.support": "enabled",
    "exactly.once.support": "required",
    "isolation.level": "read_committed",
    "acks": "all",
}
_REASONS = (
    (
        r"exactly\.once\..*|isolation\.level|acks|enable\.(idempotence|auto\.commit)",
        "exactly-once is always on",
    ),
    (r"groups\.(exclude|blacklist)", "`groups` has no exclusions; write a narrower expression"),
    (
        (
            r"(offset|config|status)\.storage\..*|(key|value|header)\.converter.*|worker\..*|task\..*|plugin\.path"
            r"|listeners|rest\..*|dedicated\..*|group\.id|client\.id|name|connector\.class|offset\.flush\..*"
            r"|internal\..*|scheduled\..*|(producer|consumer)\.override\..*|transaction\.boundary.*"
        ),
        "there is no Connect worker",
    ),
    (r"refresh\..*|sync\.topic\.configs\..*", "topics and their settings are always synchronized"),
    (r"sync\.topic\.acls\..*", "ACLs are not copied"),
    (r"config\.propert.*|use\.defaults\.from", "the set of copied topic settings cannot be configured"),
    (r"offset\.lag\.max", "the offset map covers every record"),
    (
        r"(sync\.group\.offsets|emit\.checkpoints|checkpoints|offset-syncs|emit\.offset-syncs|groups?)\..*",
        "checkpoints and offset syncs are written with the records that they depend on",
    ),
    (r"(emit\.)?heartbeats\..*", "heartbeats are written once a second"),
    (r"metric.*", "eomirror's metrics have other names"),
    (r"admin\..*|.*timeout\.ms.*|.*poll\..*", "the mirror sets its own time-outs"),
)
# MM2's key, our key, and our value of each of its values; None for our default
_WORDS: tuple[tuple[str, str, Mapping[str, Any]], ...] = (
    ("emit.heartbeats.enabled", "heartbeats", {"true": None, "false": "off"}),
    ("sync.group.offsets.enabled", "sync_group_offsets", {"true": True, "false": None}),
    ("offset-syncs.topic.location", "offset_syncs", {"source": "source", "target": None}),
)
# keys that would change the mirrored records, or the connection to a cluster: never ignored silently
_REFUSED = (
    (r"transforms.*|predicates.*", "records are mirrored unchanged; there are no transformations"),
    (r"(topic|group|config\.property)\.filter\.class", "use `topics`, `exclude` and `groups` as filters"),
    (r"forwarding\.admin\.class", "the mirror creates topics itself"),
    (r"config\.providers.*", "references to them cannot be resolved; each one is reported"),
    (r"(source|target)\.cluster\..*", "all flows use the same properties of a cluster, under its alias"),
)
# KAFKA-9914 and DefaultReplicationPolicy.java: a topic that returns to a cluster whose alias is in its name is a cycle
_CYCLES = "(.*{separator})?({aliases}){separator}.*"
_QUOTED = r"(\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'|[^\s;\"']+)"
_DEFAULT_CLASSES = re.compile(
    r"org\.apache\.kafka\.(connect\.mirror\.Default(Topic|Group|ConfigProperty)Filter|clients\.admin\.ForwardingAdmin)"
)


@dataclass(frozen=True, slots=True)
class NotHonoured:
    """
    A key that is not carried over.

    Attributes:
        key: Key in the file.
        reason: Reason why not.
        line: Line in the file; 0 for a default of MM2.
        grave: True if other records would be mirrored without it, or a cluster could not be reached: the file is then
            refused in place of a configuration.
    """

    key: str
    reason: str
    line: int
    grave: bool = False


@dataclass(frozen=True, slots=True)
class Imported:
    """
    A converted property file.

    Attributes:
        settings: Our configuration as plain values.
        honoured: Path in ``settings`` of each key that is carried over.
        not_honoured: All other keys, in the order of the file.
        variables: Key whose secret each environment variable must hold; empty if secrets were kept.
    """

    settings: dict[str, Any] = field(repr=False)
    honoured: Mapping[str, str]
    not_honoured: tuple[NotHonoured, ...]
    variables: Mapping[str, str]


def import_mm2(text: str, *, keep_secrets: bool) -> Imported:
    """
    Converts MM2's property file to our configuration.

    Args:
        text: Content of the file.
        keep_secrets: Keep secrets in the settings, to use them at once; otherwise they become ``${env:NAME}``, so that
            the settings can be written and shown.
    """
    return _Import(parse_properties(text), keep_secrets=keep_secrets).run()


class _Import:
    def __init__(self, given: Mapping[str, tuple[str, int]], *, keep_secrets: bool) -> None:
        self._given = given
        self._keep_secrets = keep_secrets
        self._honoured: dict[str, str] = {}
        self._refused: dict[str, NotHonoured] = {}
        self._variables: dict[str, str] = {}
        self._aliases = _list(self._value("clusters"))

    def run(self) -> Imported:
        clusters = {alias: self._cluster(alias) for alias in self._aliases}
        self._honour("clusters", "clusters")
        links: list[dict[str, Any]] = []
        pairs = [(s, t) for s in self._aliases for t in self._aliases if s != t]
        for source, target in pairs:
            enabled = f"{source}->{target}.enabled"
            if self._value(enabled).lower() == "true":
                links.append(self._link(source, target, f"links[{len(links)}]"))
                self._honour(enabled, f"links[{len(links) - 1}]")
            else:
                self._honour(enabled, "no link")
        for key in self._given:
            if key not in self._honoured and key not in self._refused:
                self._explain(key)
        refused = [self._refused[key] for key in self._given if key in self._refused]
        if any(link.get("sync_group_offsets") for link in links) and not self._excludes_groups():
            refused.append(NotHonoured("groups.exclude", _GROUPS_LEFT_OUT, 0))
        return Imported(
            {"clusters": clusters, "links": links}, self._honoured, tuple(refused), self._variables
        )

    def _excludes_groups(self) -> bool:
        """Returns True if the file sets the excluded groups."""
        return any(re.fullmatch(r"(.*\.)?groups\.(exclude|blacklist)", key) for key in self._given)

    def _value(self, key: str) -> str:
        return self._given[key][0].strip() if key in self._given else ""

    def _honour(self, key: str, place: str) -> None:
        # a key that one flow cannot carry over is reported, even if another flow can
        if key in self._given and key not in self._refused:
            self._honoured[key] = place

    def _refuse(self, key: str, reason: str, *, grave: bool = False) -> None:
        self._honoured.pop(key, None)
        self._refused[key] = NotHonoured(key, reason, self._given[key][1], grave)

    # -- clusters --------------------------------------------------------------------------------

    def _cluster(self, alias: str) -> dict[str, Any]:
        cluster: dict[str, Any] = {}
        own = {key.removeprefix(f"{alias}."): key for key in self._given if key.startswith(f"{alias}.")}
        shared = {key: key for key in self._given if _SHARED.fullmatch(key)}
        plain = {name: key for name, key in {**shared, **own}.items() if name.split(".")[0] not in _ROLES}
        self._client(alias, f"clusters.{alias}", plain, cluster)
        for role in _ROLES[:2]:
            names = {
                name.removeprefix(f"{role}."): key for name, key in own.items() if name.startswith(f"{role}.")
            }
            section: dict[str, str] = {}
            self._client(f"{alias}_{role}", f"clusters.{alias}.{role}", names, section)
            if section:
                cluster[role] = section
        return cluster

    def _client(self, scope: str, path: str, names: Mapping[str, str], into: dict[str, Any]) -> None:
        """Converts one client's properties; ``names`` maps Java's names to keys in the file."""
        for name, key in names.items():
            if name == "sasl.jaas.config":
                self._jaas(scope, path, key, into)
            elif name.startswith("ssl.") and name.endswith("store.location"):
                self._store(path, name, names, into)
            elif name == "ssl.endpoint.identification.algorithm":
                into[name] = self._value(key).lower() or "none"
                self._honour(key, f"{path}.{name}")
            elif name in ("ssl.truststore.type", "ssl.keystore.type"):
                self._honour(key, path)
            elif name == "auto.offset.reset":
                continue  # becomes the link's `start`
            elif name in _SAME or name in _RENAMED:
                value = self._plain(key)
                if value is not None:
                    ours = _RENAMED.get(name, name)
                    into[ours] = self._hidden(scope, ours, key, value)
                    self._honour(key, f"{path}.{ours}")

    def _plain(self, key: str) -> str | None:
        """Returns a value without references; refuses one with them."""
        value = self._value(key)
        if "${" in value:
            self._refuse(key, "it refers to a config provider; set the value as ${env:NAME}", grave=True)
            return None
        return value

    def _hidden(self, scope: str, name: str, key: str, value: str) -> str:
        """Returns a value as it may be written: a secret as a reference to a variable."""
        if self._keep_secrets or not is_secret_key(name):
            return value
        variable = re.sub(r"[^A-Z0-9]", "_", f"{scope}_{name}".upper())
        self._variables[variable] = key
        return f"${{env:{variable}}}"

    def _jaas(self, scope: str, path: str, key: str, into: dict[str, Any]) -> None:
        value = self._plain(key)
        if value is None:
            return
        user = re.search(rf"\busername\s*=\s*{_QUOTED}", value)
        password = re.search(rf"\bpassword\s*=\s*{_QUOTED}", value)
        if not re.match(r"\S+\.(Plain|Scram)LoginModule\s", value) or not user or not password:
            self._refuse(key, ADVICE["sasl.jaas.config"] + ", or the properties of its mechanism", grave=True)
            return
        into["sasl.username"] = _unquoted(user[1])
        into["sasl.password"] = self._hidden(scope, "sasl.password", key, _unquoted(password[1]))
        self._honour(key, f"{path}.sasl.password")

    def _store(self, path: str, name: str, names: Mapping[str, str], into: dict[str, Any]) -> None:
        key = names[name]
        location = self._value(key)
        kind = self._value(names.get(name.replace("location", "type"), "")).upper()
        kind = kind or {"p12": "PKCS12", "pfx": "PKCS12", "pem": "PEM"}.get(
            location.rsplit(".", 1)[-1].lower(), ""
        )
        if name == "ssl.truststore.location" and kind == "PEM":
            into["ssl.ca.location"] = location
        elif name == "ssl.keystore.location" and kind == "PKCS12":
            into["ssl.keystore.location"] = location
        elif name == "ssl.keystore.location" and kind == "PEM":
            into["ssl.key.location"] = into["ssl.certificate.location"] = location
        else:
            what = "a PEM file" if name == "ssl.truststore.location" else "a PKCS#12 or PEM file"
            self._refuse(key, f"librdkafka cannot read such a store; convert it to {what}", grave=True)
            return
        self._honour(key, path)

    # -- links -----------------------------------------------------------------------------------

    def _link(self, source: str, target: str, path: str) -> dict[str, Any]:
        link: dict[str, Any] = {"source": source, "target": target}
        flow = f"{source}->{target}"

        def found(name: str) -> tuple[str, str] | None:
            for key in (f"{flow}.{name}", name):
                if key in self._given:
                    return key, self._value(key)
            return None

        for names, ours, default in (
            (("topics",), "topics", (".*",)),
            (("topics.exclude", "topics.blacklist"), "exclude", _DEFAULT_EXCLUDE),
            (("groups",), "groups", (".*",)),
        ):
            given = next((each for each in map(found, names) if each is not None), None)
            link[ours] = list(default) if given is None else _list(given[1])
            if given is not None:
                self._honour(given[0], f"{path}.{ours}")
        self._naming(link, path, found("replication.policy.class"), found("replication.policy.separator"))
        self._number(link, path, found("tasks.max"), "lanes")
        self._number(link, path, found("replication.factor"), "replication_factor")
        for name, ours, meaning in _WORDS:
            given = found(name)
            if given is not None and given[1].lower() in meaning:
                link.update(
                    {ours: meaning[given[1].lower()]} if meaning[given[1].lower()] is not None else {}
                )
                self._honour(given[0], f"{path}.{ours}")
        # MirrorConnectorConfig.sourceConsumerConfig: source.consumer.* wins over consumer.*, a flow over a cluster
        scopes = (f"{flow}.source", source, flow)
        self._start(link, path, *(f"{scope}.consumer.auto.offset.reset" for scope in scopes))
        # a key of the flow hides the one of the whole file
        for key in self._given:
            if f"{flow}.{key}" in self._honoured:
                self._honour(key, f"hidden by {flow}.{key}")
        return link

    def _start(self, link: dict[str, Any], path: str, *keys: str) -> None:
        for key in keys:
            value = self._value(key).lower()
            if value in {"earliest", "latest"}:
                link.setdefault("start", value)
                self._honour(key, f"{path}.start")
            elif value:
                self._refuse(key, "a link starts at `earliest` or `latest`", grave=True)

    def _naming(
        self,
        link: dict[str, Any],
        path: str,
        policy: tuple[str, str] | None,
        separator: tuple[str, str] | None,
    ) -> None:
        kind = "prefix"
        if policy is not None:
            if policy[1] not in _POLICIES:
                self._refuse(
                    policy[0], "write the policy as `naming`: a pattern, a match or a map", grave=True
                )
                return
            kind = _POLICIES[policy[1]]
            self._honour(policy[0], f"{path}.naming")
        text = "." if separator is None else separator[1]
        link["naming"] = kind
        if kind == "prefix" and text != ".":
            link["naming"] = {"pattern": "{source}" + text + "{topic}"}
            # the mirror detects cycles by names only with its own prefix naming
            aliases = "|".join(map(re.escape, (link["source"], link["target"])))
            link["exclude"].append(_CYCLES.format(separator=re.escape(text), aliases=aliases))
        if separator is not None and kind == "prefix" and text != ".":
            self._refuse(
                separator[0],
                "it applies to mirrored topics only: the topics of heartbeats, offset syncs and checkpoints, which "
                "MirrorMaker 2's readers look for, keep '.'",
            )
        elif separator is not None:
            self._honour(separator[0], f"{path}.naming")

    def _number(self, link: dict[str, Any], path: str, given: tuple[str, str] | None, ours: str) -> None:
        if given is None:
            return
        key, value = given
        if value.isascii() and value.isdigit() and 1 <= int(value) <= _MOST[ours]:
            link[ours] = int(value)
            self._honour(key, f"{path}.{ours}")
        else:
            self._refuse(key, f"`{ours}` is a number from 1 to {_MOST[ours]}")

    # -- the rest --------------------------------------------------------------------------------

    def _explain(self, key: str) -> None:
        """Records the reason why a key is not carried over."""
        name, value = self._bare(key), self._value(key)
        if name == "enabled" and value.lower() == "true":
            self._refuse(
                key, "it enables all flows: write SOURCE->TARGET.enabled = true for each flow", grave=True
            )
            return
        if name in _ALWAYS and value.lower() == _ALWAYS[name]:
            self._honour(key, "always")
            return
        if _DEFAULT_CLASSES.fullmatch(value):
            self._honour(key, "always")
            return
        for pattern, reason in _REFUSED:
            if re.fullmatch(pattern, name):
                self._refuse(key, reason, grave=True)
                return
        if name in ADVICE:
            # without these connection settings the cluster would not answer
            self._refuse(key, ADVICE[name], grave=name.startswith(("ssl.", "sasl.")))
            return
        for pattern, reason in _REASONS:
            if re.fullmatch(pattern, name):
                self._refuse(key, reason)
                return
        self._refuse(key, "unknown key", grave=name.startswith(("ssl.", "sasl.", "security.")))

    def _bare(self, key: str) -> str:
        """Returns the key without flow, cluster and role of the client."""
        pairs = [f"{s}->{t}." for s in self._aliases for t in self._aliases]
        for prefix in [*pairs, *(f"{alias}." for alias in self._aliases)]:
            if key.startswith(prefix):
                key = key.removeprefix(prefix)
                break
        return re.sub(r"^((source|target)\.)?(consumer|producer|admin)\.(?!override)", "", key)


def _list(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text[1:-1]) if text.startswith(('"', "'")) else text
