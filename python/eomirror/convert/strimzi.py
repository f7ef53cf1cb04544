"""
Converts Strimzi's resource ``KafkaMirrorMaker2`` (v1beta2 and v1). Pure.

Source: strimzi/strimzi-kafka-operator, KafkaMirrorMaker2Connectors.java (properties that the operator sets) and the
types below io.strimzi.api.kafka.model.

A secret of Kubernetes becomes a variable: its name follows from the alias, and a comment names the secret and its key.
Settings of pods have no counterpart and are listed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eomirror.config.jaas import unescaped
from eomirror.config.mm2_properties import Imported
from eomirror.config.nodes import quoted
from eomirror.config.secret import unfilled
from eomirror.convert.connect import settings_of
from eomirror.convert.connectors import ConnectorFlow, add_clusters, add_flows
from eomirror.convert.flat import FlatFile, GivenSetting

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from eomirror.convert.tree import Tree

__all__ = ["API_VERSIONS", "convert_strimzi"]

#: Versions of the resource that are understood.
API_VERSIONS = ("kafka.strimzi.io/v1beta2", "kafka.strimzi.io/v1", "kafka.strimzi.io/v1alpha1")
_CONNECTORS = {
    "sourceConnector": "source",
    "checkpointConnector": "checkpoint",
    "heartbeatConnector": "heartbeat",
}
_PATTERNS = {
    "topicsPattern": ("topics", ("source", "checkpoint")),
    "topicsExcludePattern": ("topics.exclude", ("source", "checkpoint")),
    "topicsBlacklistPattern": ("topics.exclude", ("source", "checkpoint")),
    "groupsPattern": ("groups", ("checkpoint",)),
    "groupsExcludePattern": ("groups.exclude", ("checkpoint",)),
    "groupsBlacklistPattern": ("groups.exclude", ("checkpoint",)),
}
_MECHANISMS = {"scram-sha-512": "SCRAM-SHA-512", "scram-sha-256": "SCRAM-SHA-256", "plain": "PLAIN"}
_OAUTH = {
    "clientId": "sasl.oauthbearer.client.id",
    "tokenEndpointUri": "sasl.oauthbearer.token.endpoint.url",
    "scope": "sasl.oauthbearer.scope",
}
_OAUTH_TUNING = re.compile(
    r"(connectTimeout|readTimeout|httpRetr).*|enableMetrics|includeAcceptHeader|maxTokenExpirySeconds"
    r"|accessTokenIsJwt|type"
)
_PODS = "it configures Strimzi's pods, and the mirror runs without them"


def convert_strimzi(resources: Sequence[Tree], *, keep_secrets: bool = False) -> Imported:
    """Converts resources of kind KafkaMirrorMaker2 to one configuration."""
    flat, secrets = FlatFile(), _Secrets()
    for resource in resources:
        name = resource.get("metadata", "name").text
        _Resource(resource, f"{name}: " if len(resources) > 1 else "", flat, secrets).read()
    found = flat.convert(keep_secrets=keep_secrets)
    for alias, properties in secrets.properties.items():
        if alias in found.settings["clusters"]:
            found.settings["clusters"][alias].update(properties)
    return Imported(
        found.settings,
        found.honoured,
        found.not_honoured,
        {**found.variables, **secrets.variables},
        found.places,
        found.lines,
    )


@dataclass(slots=True)
class _Secrets:
    """
    Properties that refer to variables; MirrorMaker 2's file has no form for them.

    Attributes:
        properties: Properties by alias.
        variables: What each variable must hold.
    """

    properties: dict[str, dict[str, str]] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)


class _Resource:
    def __init__(self, resource: Tree, prefix: str, flat: FlatFile, secrets: _Secrets) -> None:
        self._spec = resource.get("spec")
        self._path = f"{prefix}spec"
        self._flat = flat
        self._properties: dict[str, dict[str, str]] = {}
        self._secrets = secrets

    def read(self) -> None:
        """Adds the clusters and flows of the resource."""
        clusters = {alias: (tree, path) for alias, tree, path in self._clusters()}
        for alias, (tree, path) in clusters.items():
            self._cluster(alias, tree, path)
            before = self._secrets.properties.setdefault(alias, self._properties[alias])
            if before != self._properties[alias]:
                self._refuse(
                    f"{path}.alias", tree, f"another resource has cluster {alias} with another login"
                )
        named = {alias: _text(tree.get("alias"), f"{path}.alias") for alias, (tree, path) in clusters.items()}
        add_clusters(self._flat, named)
        target = self._spec.get("target", "alias").text
        found = [
            self._mirror(mirror, f"{self._path}.mirrors[{number}]", target, clusters)
            for number, mirror in enumerate(self._spec.get("mirrors").items)
        ]
        add_flows(self._flat, [flow for flow in found if flow is not None])
        if not self._spec.get("mirrors").items:
            self._refuse(f"{self._path}.mirrors", self._spec, "it is missing, so nothing is mirrored")
        self._rest()

    def _refuse(self, key: str, tree: Tree, reason: str) -> None:
        self._flat.refuse(GivenSetting(key, "", tree.line), reason)

    def _note(self, key: str, tree: Tree, reason: str) -> None:
        self._flat.note(GivenSetting(key, "", tree.line), reason)

    def _take(self, key: str, place: str) -> None:
        self._flat.take(GivenSetting(key, ""), place)

    # -- clusters --------------------------------------------------------------------------------

    def _clusters(self) -> Iterator[tuple[str, Tree, str]]:
        """Yields alias, tree and place of every cluster: v1 has one target, and a source in each mirror."""
        listed = [
            (tree, f"{self._path}.clusters[{n}]") for n, tree in enumerate(self._spec.get("clusters").items)
        ]
        if self._spec.get("target"):
            listed.append((self._spec.get("target"), f"{self._path}.target"))
        for number, mirror in enumerate(self._spec.get("mirrors").items):
            if mirror.get("source"):
                listed.append((mirror.get("source"), f"{self._path}.mirrors[{number}].source"))
        seen: set[str] = set()
        for tree, path in listed:
            alias = tree.get("alias").text
            if not alias:
                self._refuse(f"{path}.alias", tree, "it is missing: it is part of the names of topics")
            elif alias in seen:
                self._refuse(f"{path}.alias", tree, f"there are two clusters with alias {alias}")
            else:
                seen.add(alias)
                yield alias, tree, path

    def _cluster(self, alias: str, tree: Tree, path: str) -> None:
        self._properties[alias] = {}
        for name, value in tree.entries.items():
            key = f"{path}.{name}"
            if name == "bootstrapServers":
                self._flat.put(f"{alias}.bootstrap.servers", _text(value, key))
            elif name == "config":
                for inner, setting in settings_of(value, f"{key}.").items():
                    self._flat.put(f"{alias}.{inner}", setting)
            elif name in ("groupId", "configStorageTopic", "offsetStorageTopic", "statusStorageTopic"):
                self._note(key, value, "there is no Connect worker")
            elif name not in ("alias", "tls", "authentication"):
                self._refuse(key, value, "it is no known setting of a cluster")
        if not tree.get("bootstrapServers"):
            self._refuse(f"{path}.bootstrapServers", tree, f"it is missing, so nothing says where {alias} is")
        tls = "tls" in tree.entries
        if tls:
            self._tls(alias, tree.get("tls"), f"{path}.tls")
        sasl = self._authentication(alias, tree.get("authentication"), f"{path}.authentication", tls=tls)
        protocol = f"{'SASL_' if sasl else ''}{'SSL' if tls else 'PLAINTEXT'}"
        if protocol != "PLAINTEXT":
            self._properties[alias]["security.protocol"] = protocol

    def _variable(self, alias: str, name: str, text: str) -> str:
        """Returns a reference to a new variable; ``text`` tells the user what it must hold."""
        variable = re.sub(r"[^A-Z0-9]", "_", f"{alias}_{name}".upper())
        while self._secrets.variables.get(variable, text) != text:
            variable += "_"
        self._secrets.variables[variable] = text
        return f"${{env:{variable}}}"

    def _secret(self, alias: str, name: str, tree: Tree, key: str, what: str) -> str | None:
        """Returns a reference to the variable for a key of a secret; None and a refusal if it is not named."""
        secret, entry = tree.get("secretName").text, tree.get(what).text
        if not secret or not entry:
            self._refuse(key, tree, f"write secretName, and {what} with the key in that secret")
            return None
        self._take(key, f"clusters.{alias}.{name}")
        return self._variable(alias, name, f"key {entry} of secret {secret}")

    def _tls(self, alias: str, tree: Tree, key: str) -> None:
        self._take(key, f"clusters.{alias}.security.protocol")
        for name, value in tree.entries.items():
            if name != "trustedCertificates":
                self._refuse(f"{key}.{name}", value, "it is no known setting of tls")
        pem = self._certificates(
            alias, "ssl.ca.pem", tree.get("trustedCertificates"), f"{key}.trustedCertificates"
        )
        if pem:
            self._properties[alias]["ssl.ca.pem"] = pem

    def _certificates(self, alias: str, name: str, listed: Tree, key: str) -> str:
        """Returns references to the certificates in a list; empty for the certificates of the system."""
        found = []
        for number, tree in enumerate(listed.items):
            place = f"{key}[{number}]"
            what = "pattern" if tree.get("pattern") else "certificate"
            suffix = "" if len(listed.items) == 1 else f".{number + 1}"
            reference = self._secret(alias, f"{name}{suffix}", tree, place, what)
            if reference is not None:
                found.append(reference)
        return "\n".join(found)

    def _authentication(self, alias: str, tree: Tree, key: str, *, tls: bool) -> bool:
        """Converts the authentication of a cluster; returns True if it is SASL."""
        kind = tree.get("type").text
        if not tree:
            return False
        if kind == "oauth":
            self._oauth(alias, tree, key)
            return True
        known: tuple[str, ...] = ("type", "sasl", "config")
        if kind == "tls":
            known = ("type", "certificateAndKey")
            if not tls:
                self._refuse(
                    key, tree, "a client certificate needs `tls` on the same cluster, which is missing"
                )
            self._own_certificate(alias, tree.get("certificateAndKey"), f"{key}.certificateAndKey")
        elif kind in _MECHANISMS:
            known = ("type", "username", "passwordSecret")
            self._password(alias, tree, key)
        elif kind == "custom":
            for name, setting in settings_of(tree.get("config"), f"{key}.config.").items():
                self._flat.put(f"{alias}.{name}", setting)
        else:
            self._refuse(
                f"{key}.type", tree, f"it is none of tls, {', '.join(_MECHANISMS)}, oauth and custom"
            )
            return False
        self._take(f"{key}.type", f"clusters.{alias}")
        for name in sorted(tree.entries.keys() - known):
            self._refuse(f"{key}.{name}", tree.get(name), f"it is no setting of authentication {kind}")
        return kind in _MECHANISMS or tree.get("sasl").text == "true"

    def _password(self, alias: str, tree: Tree, key: str) -> None:
        """Converts a login with user and password."""
        into = self._properties[alias]
        into["sasl.mechanism"] = _MECHANISMS[tree.get("type").text]
        # the operator writes it in quotation marks of JAAS, where \\$ is $
        into["sasl.username"] = unescaped(tree.get("username").text)
        self._filled(tree.get("username"), f"{key}.username")
        if not into["sasl.username"]:
            self._refuse(f"{key}.username", tree, "it is missing")
        source = tree.get("passwordSecret")
        password = self._secret(alias, "sasl.password", source, f"{key}.passwordSecret", "password")
        if password is not None:
            into["sasl.password"] = password

    def _filled(self, tree: Tree, key: str) -> None:
        """Refuses a value with a template that was not filled in."""
        if left := unfilled(tree.text):
            self._refuse(key, tree, f"{quoted(left[0])} refers to nothing here; {left[1]}")

    def _own_certificate(self, alias: str, tree: Tree, key: str) -> None:
        for name, what in (("ssl.certificate.pem", "certificate"), ("ssl.key.pem", "key")):
            reference = self._secret(alias, name, tree, key, what)
            if reference is not None:
                self._properties[alias][name] = reference

    def _oauth(self, alias: str, tree: Tree, key: str) -> None:
        into = self._properties[alias]
        into.update({"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc"})
        for name, value in tree.entries.items():
            place = f"{key}.{name}"
            if name in _OAUTH:
                into[_OAUTH[name]] = value.text
                self._filled(value, place)
                self._take(place, f"clusters.{alias}.{_OAUTH[name]}")
            elif name == "clientSecret":
                reference = self._secret(alias, "sasl.oauthbearer.client.secret", value, place, "key")
                if reference is not None:
                    into["sasl.oauthbearer.client.secret"] = reference
            elif name == "tlsTrustedCertificates":
                pem = self._certificates(alias, "https.ca.pem", value, place)
                if pem:
                    into["https.ca.pem"] = pem
            elif _OAUTH_TUNING.fullmatch(name):
                self._take(place, f"clusters.{alias}")
            else:
                self._refuse(
                    place,
                    value,
                    "librdkafka's OIDC has no such setting: use client id, client secret, token endpoint and scope, or "
                    "`oauth_cb` with a token function of yours",
                )
        for name in ("clientId", "clientSecret", "tokenEndpointUri"):
            if name not in tree.entries:
                self._refuse(
                    f"{key}.{name}", tree, "it is missing: tokens are requested with client credentials"
                )

    # -- mirrors ---------------------------------------------------------------------------------

    def _mirror(
        self, tree: Tree, path: str, target: str, clusters: dict[str, tuple[Tree, str]]
    ) -> ConnectorFlow | None:
        """Returns the flow of a mirror; None if it is refused."""
        source = tree.get("sourceCluster").text or tree.get("source", "alias").text
        target = tree.get("targetCluster").text or target
        for alias, name in ((source, "sourceCluster"), (target, "targetCluster")):
            if alias not in clusters:
                what = f"there is no cluster {alias} under spec.clusters" if alias else "it is missing"
                self._refuse(f"{path}.{name}", tree.get(name), what)
                return None
        flow = ConnectorFlow(source, target, path, tree.line)
        for name, value in tree.entries.items():
            place = f"{path}.{name}"
            if name in _CONNECTORS:
                self._connector(flow, _CONNECTORS[name], value, place)
            elif name in ("sourceCluster", "targetCluster", "source"):
                self._take(place, f"{source}->{target}")
            elif name not in _PATTERNS:
                self._refuse(place, value, "it is no known setting of a mirror")
        self._patterns(flow, tree, path)
        connect = self._spec.get("connectCluster")
        if connect and connect.text != target:
            self._refuse(
                f"{path}.targetCluster",
                tree.get("targetCluster"),
                f"Strimzi requires connectCluster, {connect.text}",
            )
        return flow

    def _patterns(self, flow: ConnectorFlow, tree: Tree, path: str) -> None:
        """Sets topics and groups on the connectors, over their own configuration, as the operator does."""
        for name, (ours, roles) in _PATTERNS.items():
            value = tree.get(name)
            for role in roles:
                if value and role in flow.connectors:
                    flow.connectors[role][ours] = _text(value, f"{path}.{name}")
            if value and not any(role in flow.connectors for role in roles):
                self._note(f"{path}.{name}", value, f"there is no {roles[0]} connector, which reads it")

    def _connector(self, flow: ConnectorFlow, role: str, tree: Tree, path: str) -> None:
        flow.connectors[role] = settings_of(tree.get("config"), f"{path}.config.")
        for name, value in tree.entries.items():
            place = f"{path}.{name}"
            if name == "tasksMax":
                if role == "source":
                    flow.connectors[role].setdefault("tasks.max", _text(value, place))
                else:
                    self._note(place, value, "there is no Connect worker")
            elif name in ("pause", "state"):
                if value.text in ("false", "running"):
                    self._take(place, f"{flow.source}->{flow.target}")
                else:
                    flow.stopped[role] = _text(value, place)
            elif name in ("autoRestart", "version", "listOffsets"):
                self._note(place, value, "there is no Connect worker; lanes restart by themselves")
            elif name == "alterOffsets":
                self._refuse(
                    place, value, "the mirror resumes from its own positions; use `eomirror run --resume-at`"
                )
            elif name != "config":
                self._refuse(place, value, "it is no known setting of a connector")

    def _rest(self) -> None:
        for name, value in self._spec.entries.items():
            if name == "connectCluster":
                self._take(f"{self._path}.connectCluster", "the target of every mirror")
            elif name not in ("clusters", "mirrors", "target"):
                self._note(f"{self._path}.{name}", value, _PODS)


def _text(tree: Tree, key: str) -> GivenSetting:
    return GivenSetting(key, tree.text, tree.line)
