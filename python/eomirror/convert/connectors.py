"""
Converts MirrorMaker 2's connectors, as Kafka Connect and Strimzi configure them, to keys of its property file. Pure.

Source: Apache Kafka 4.3, connect/mirror: MirrorConnectorConfig.java (prefixes of client properties),
MirrorSourceConfig.java, MirrorCheckpointConfig.java and MirrorHeartbeatConfig.java (keys of each connector).

A flow has a source connector, and possibly a checkpoint and a heartbeat connector.  Each of them reads its own keys
only: without a checkpoint connector MirrorMaker 2 writes no checkpoints and commits no group offsets, and without a
heartbeat connector no heartbeats.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eomirror.convert.flat import FlatFile, GivenSetting, meaning

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["ROLES", "ConnectorFlow", "add_clusters", "add_flow", "add_flows", "role_of"]

_PACKAGE = "org.apache.kafka.connect.mirror."
#: Simple class names of the connectors, by their role in a flow.
ROLES = {
    "source": "MirrorSourceConnector",
    "checkpoint": "MirrorCheckpointConnector",
    "heartbeat": "MirrorHeartbeatConnector",
}

# keys that one connector reads and the others ignore
_OWN = {
    "source": re.compile(
        r"config\.propert.*|use\.defaults\.from|refresh\.topics\..*|sync\.topic\..*|replication\.factor"
        r"|offset\.lag\.max|heartbeats\.replication\.enabled|topics(\..*)?|transforms.*|predicates.*"
        r"|offset-syncs\.topic\.replication\.factor|producer\.override\..*|consumer\.override\..*"
    ),
    "checkpoint": re.compile(
        r"groups(\..*)?|group\.filter\.class|refresh\.groups\..*|emit\.checkpoints\..*|sync\.group\.offsets\..*"
        r"|checkpoints\..*"
    ),
    "heartbeat": re.compile(r"(emit\.)?heartbeats\.(interval|enabled|topic).*"),
}
# keys that all connectors of a flow must agree on
_COMMON = re.compile(r"replication\.policy\..*|offset-syncs\.topic\.location|emit\.offset-syncs\.enabled")
_CONNECT = re.compile(r"name|connector\.class|(source|target)\.cluster\.alias|clusters")
_TRANSFORMS = re.compile(r"transforms.*|predicates.*")
# a class of Strimzi's own, before Kafka 3.0 had one
_OLD_POLICIES = {
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": _PACKAGE + "IdentityReplicationPolicy"
}
_NO_EFFECT = "it belongs to the {other} connector: MirrorMaker 2 ignores it here, and so does the mirror"
_POLICY = "replication.policy.class"
_DEFAULT_POLICY = _PACKAGE + "DefaultReplicationPolicy"


@dataclass(slots=True)
class ConnectorFlow:
    """
    One direction of mirroring, as up to three connectors configure it.

    Attributes:
        source: Alias of the source.
        target: Alias of the target.
        key: Place of the flow in the file.
        line: Line of that place.
        connectors: Settings by MirrorMaker 2's name, by the role of the connector.
        stopped: Settings that say that a connector does not run, by its role.
    """

    source: str
    target: str
    key: str
    line: int = 0
    connectors: dict[str, dict[str, GivenSetting]] = field(default_factory=dict)
    stopped: dict[str, GivenSetting] = field(default_factory=dict)


def role_of(name: str) -> str:
    """Returns the role of a connector class: ``source``, ``checkpoint``, ``heartbeat``, or empty for any other."""
    for role, simple in ROLES.items():
        if name in (simple, _PACKAGE + simple, simple.removesuffix("Connector")):
            return role
    return ""


def add_clusters(flat: FlatFile, aliases: Mapping[str, GivenSetting]) -> None:
    """Adds the list of clusters."""
    flat.extend("clusters", aliases)
    for alias, setting in aliases.items():
        flat.take(setting, f"clusters.{alias}")


def add_flows(flat: FlatFile, flows: Sequence[ConnectorFlow]) -> None:
    """Adds the flows whose source connector runs and names the others; refuses flows of which none runs."""
    running = [flow for flow in flows if "source" not in flow.stopped]
    for flow in flows:
        if flow in running:
            add_flow(flat, flow)
            continue
        why = f"the connector does not run, so there is no link from {flow.source} to {flow.target}"
        if running:
            flat.note(
                flow.stopped["source"], f"{why}; to mirror it, resume the connector and import again", "lost"
            )
        else:
            flat.refuse(flow.stopped["source"], f"{why}; remove this setting to mirror it here")


def add_flow(flat: FlatFile, flow: ConnectorFlow) -> None:
    """Adds the settings of a flow, or refuses it."""
    for role, setting in flow.stopped.items():
        del flow.connectors[role]
        what = "no groups are followed" if role == "checkpoint" else "there are no heartbeats"
        flat.note(setting, f"the connector does not run, so {what}", "lost")
    if "source" not in flow.connectors:
        known = ", ".join(ROLES[role] for role in flow.connectors) or "none"
        flat.refuse(
            GivenSetting(flow.key, "", flow.line),
            f"no MirrorSourceConnector from {flow.source} to {flow.target}, so nothing is mirrored (found: {known}); "
            "add it",
        )
        return
    prefix = f"{flow.source}->{flow.target}"
    flat.put(f"{prefix}.enabled", GivenSetting("", "true"))
    _one_policy(flat, flow)
    for role, settings in flow.connectors.items():
        for name, setting in settings.items():
            _add(flat, flow, role, name, setting)
    if "checkpoint" not in flow.connectors:
        flat.put(f"{prefix}.emit.checkpoints.enabled", GivenSetting("", "false"))
    if "heartbeat" not in flow.connectors:
        flat.put(f"{prefix}.emit.heartbeats.enabled", GivenSetting("", "false"))


def _one_policy(flat: FlatFile, flow: ConnectorFlow) -> None:
    """Refuses connectors of one flow that name topics differently: offsets would be translated for other topics."""
    named = {
        role: settings.get(_POLICY, GivenSetting("", _DEFAULT_POLICY))
        for role, settings in flow.connectors.items()
        if role != "heartbeat"
    }
    policies = {_OLD_POLICIES.get(each.value, each.value) for each in named.values()}
    if len(policies) > 1:
        setting = next(each for each in named.values() if each.key)
        others = " and ".join(ROLES[role] for role, each in named.items() if each is not setting)
        flat.refuse(
            setting,
            f"{others} has another {_POLICY}, so it would look for topics of other names; set the same in both",
        )


def _add(flat: FlatFile, flow: ConnectorFlow, role: str, name: str, setting: GivenSetting) -> None:
    prefix = f"{flow.source}->{flow.target}"
    if _CONNECT.fullmatch(name):
        if name.endswith("alias") and not setting.value:
            # the way to keep names before there was a policy
            flat.put(f"{prefix}.{name}", setting)
        else:
            flat.take(setting, prefix)
        return
    if name == "tasks.max" and role != "source":
        flat.note(setting, "there is no Connect worker")
        return
    if name.startswith("topics") and role == "checkpoint":
        # MirrorCheckpointConnector translates offsets of these topics only; a link translates those it mirrors
        _same_topics(flat, flow, name, setting)
        return
    other = next((each for each, own in _OWN.items() if own.fullmatch(name)), "")
    client = _client(flow, name, role)
    if other and other != role and not _TRANSFORMS.fullmatch(name):
        flat.note(setting, _NO_EFFECT.format(other=other))
    elif role != "source" and not (other or client or _COMMON.fullmatch(name)):
        flat.note(setting, "there is no Connect worker")
    elif name == _POLICY:
        policy = _OLD_POLICIES.get(setting.value, setting.value)
        flat.put(f"{prefix}.{name}", GivenSetting(setting.key, policy, setting.line))
    else:
        flat.put(client or f"{prefix}.{name}", setting)


def _same_topics(flat: FlatFile, flow: ConnectorFlow, name: str, setting: GivenSetting) -> None:
    mirrored = flow.connectors["source"].get(name)
    if mirrored is not None and meaning(name, mirrored.value) == meaning(name, setting.value):
        flat.take(setting, f"{flow.source}->{flow.target}.{name}")
    else:
        flat.note(setting, "offsets are translated for all mirrored topics of the link")


def _client(flow: ConnectorFlow, name: str, role: str) -> str | None:
    """Returns the key in the property file of a client's property; None for any other."""
    for prefix, alias in (("source.cluster.", flow.source), ("target.cluster.", flow.target)):
        if name.startswith(prefix):
            return f"{alias}.{name.removeprefix(prefix)}"
    if role != "source":
        return None
    reset = re.fullmatch(r"(source\.)?consumer\.auto\.offset\.reset", name)
    if reset:
        return None
    for prefix, client in (("source.consumer.", "consumer."), ("consumer.", "consumer.")):
        if name.startswith(prefix) and not name.startswith("consumer.override."):
            return f"{flow.source}.{client}{name.removeprefix(prefix)}"
    if name.startswith("producer.override."):
        return f"{flow.target}.producer.{name.removeprefix('producer.override.')}"
    return None
