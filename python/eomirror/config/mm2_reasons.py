"""
Decides about keys of MirrorMaker 2 that are not carried over: they hold here anyway, or have a reason why not. Pure.

A reason has a weight: ``refused`` if other records would be mirrored without the key, or a cluster could not be
reached; ``lost`` if the mirror does less than MM2 did; ``look`` if a person should look at it; ``harmless`` otherwise.
"""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING

from eomirror.config.nodes import quoted
from eomirror.config.rules import ADVICE

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["boolean_fault", "flow_slip", "holds_always", "reason"]

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
    (r"tasks\.max", "it is a number of Connect's threads; a link has `lanes`, 2 unless you set it"),
    (
        r".*topic\.replication\.factor",
        "topics of the mirror itself have three replicas, or as many as there are brokers",
    ),
    (
        r"(emit\.checkpoints|sync\.group\.offsets)\.interval\.seconds",
        "`group_interval` is the time between two looks at the offsets of groups, 1s unless you set it",
    ),
    (
        r"exactly\.once\..*|isolation\.level|acks|enable\.(idempotence|auto\.commit)",
        "exactly-once is always on",
    ),
    (
        (
            r"(offset|config|status)\.storage\..*|(key|value|header)\.converter.*|worker\..*|task\..*|plugin\.path"
            r"|listeners|rest\..*|dedicated\..*|group\.id|client\.id|name|connector\.class|offset\.flush\..*"
            r"|internal\..*|scheduled\..*|consumer\.override\..*|transaction\.boundary.*|topic\.creation\..*"
            r"|errors\..*|offsets\.storage\.topic|config\.action\.reload"
        ),
        "there is no Connect worker",
    ),
    (
        r"refresh\.(topics|groups)\.interval\.seconds|sync\.topic\.configs\.interval\.seconds",
        "the mirror looks every few seconds",
    ),
    (r"sync\.topic\.acls\..*", "ACL entries are compared every few seconds"),
    (r"offset\.lag\.max", "the offset map covers every record"),
    (
        r"(sync\.group\.offsets|emit\.checkpoints|checkpoints|offset-syncs|emit\.offset-syncs)\..*",
        "checkpoints and offset syncs are written with the records that they depend on",
    ),
    (r"(emit\.)?heartbeats\..*", "heartbeats are written once a second"),
    (
        r"producer\.override\..*",
        "MirrorMaker 2 reads it on a flow only: SOURCE->TARGET.producer.override.NAME",
    ),
    (
        r"sasl\.login\.(refresh|connect|read|retry)\..*|sasl\.oauthbearer\.(clock|jwks|expected|header|sub)\..*",
        "the client of the mirror requests and renews tokens",
    ),
    (r"config\.providers.*", "keys that refer to a provider without a counterpart are refused themselves"),
    (r"metric.*", "eomirror's metrics have other names"),
    (r"admin\..*|.*timeout\.ms.*|.*poll\..*", "the mirror sets its own time-outs"),
)
# switches of MM2 whose other value has no counterpart, and the fix
_SWITCHES: Mapping[str, tuple[str, str]] = {
    "refresh.topics.enabled": (
        "true",
        "new topics and partitions are always mirrored; name the topics in `topics`",
    ),
    "refresh.groups.enabled": ("true", "new groups are always followed; name the groups in `groups`"),
    "use.defaults.from": (
        "source",
        "retention, cleanup policy and size limits of a copy are always the source's effective values",
    ),
}
# a negative interval switches a task of MM2 off (Scheduler.java)
_INTERVALS = re.compile(
    r"(refresh\.(topics|groups)|sync\.(topic\.configs|group\.offsets)|emit\.(checkpoints|heartbeats))\.interval\.seconds"
)
_CONVERTERS = re.compile(r"(key|value|header)\.converter")
_BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
# keys that would change the mirrored records, or the connection to a cluster: never ignored silently
_REFUSED = (
    (r"enabled", "it enables all flows: write SOURCE->TARGET.enabled = true for each flow"),
    (r"(key|value|header)\.converter", "records are copied byte by byte; remove it if that is what you want"),
    (
        r"transforms.*|predicates.*",
        "no key `transforms` of a flow names it, or it belongs to one that cannot be carried over",
    ),
    (r"(topic|group|config\.property)\.filter\.class", "use `topics`, `exclude` and `groups` as filters"),
    (r"forwarding\.admin\.class", "the mirror creates topics itself"),
)
# what is behind these is missed
_LOST = r"metric\.reporters"
_LISTS = re.compile(
    r"(?:(topic|group)s?|(?=white|black|include|exclude))(?:[._-]?(?:include|filter|white|list|regex|pattern|name)s?)*"
    r"([._-]?(?:exclude|black|ignore|skip)[a-z]*(?:[._-]?(?:list|regex|pattern|s|d))*)?"
)
_BOOLEANS = re.compile(
    r"enabled|(sync\.(group\.offsets|topic\.(configs|acls))|emit\.(heartbeats|checkpoints|offset-syncs)"
    r"|refresh\.(topics|groups)|heartbeats\.replication|replication\.policy\.internal\.topic\.separator)\.enabled"
    r"|dedicated\.mode\.enable\.internal\.rest|enable\.(idempotence|auto\.commit)"
)
# a flow with blanks, of which the first ends the key for java.util.Properties, or with another arrow
_SLIP = re.compile(
    r"(\w(?:[\w-]*\w)?)\s*(?:= )?\s*(?:[-=~]*>+|\u2192|\u21d2)\s*(?:= )?\s*(\w(?:[\w-]*\w)?)[.\s=]+([a-z][\w.-]*?)"
    r"\s*(?:[=:\s].*)?",
    re.DOTALL,
)
# names that are mistyped most, and that a mirror without them would ignore
_NAMES = (
    "topics",
    "topics.exclude",
    "groups",
    "groups.exclude",
    "replication.policy.class",
    "replication.policy.separator",
    "sync.group.offsets.enabled",
    "sync.topic.configs.enabled",
    "emit.checkpoints.enabled",
    "emit.heartbeats.enabled",
    "config.properties.exclude",
    "bootstrap.servers",
)
# classes that change nothing
_DEFAULT_CLASSES = re.compile(
    r"org\.apache\.kafka\.(connect\.mirror\.Default(Topic|Group|ConfigProperty)Filter|clients\.admin\.ForwardingAdmin)"
)


def holds_always(name: str, value: str) -> bool:
    """Returns True if a key says what the mirror does anyway."""
    lower = value.lower()
    return (
        (name in _ALWAYS and lower == _ALWAYS[name])
        or (name in _SWITCHES and lower == _SWITCHES[name][0])
        or (_CONVERTERS.fullmatch(name) is not None and value == _BYTES)
        or _DEFAULT_CLASSES.fullmatch(value) is not None
    )


def reason(name: str, value: str) -> tuple[str, str]:
    """Returns why a key is not carried over, and the weight of that."""
    if name in _SWITCHES:
        return _SWITCHES[name][1], "refused"
    if _INTERVALS.fullmatch(name) and value.startswith("-"):
        return "a negative interval switches it off, and the mirror always does it", "refused"
    if refused := _first(_REFUSED, name):
        return refused, "refused"
    if name in ADVICE:
        # without these connection settings the cluster would not answer
        return ADVICE[name], "refused" if name.startswith(("ssl.", "sasl.")) else "harmless"
    if known := _first(_REASONS, name):
        return known, "lost" if re.fullmatch(_LOST, name) else "harmless"
    near = difflib.get_close_matches(name, _NAMES, n=1, cutoff=0.8)
    if listed := _LISTS.fullmatch(name):
        near = [f"{listed[1] or 'topic'}s{'.exclude' if listed[2] else ''}"]
    hint = f"MirrorMaker 2 does not know it either; did you mean {near[0]}?" if near else "unknown key"
    return hint, "refused" if name.startswith(("ssl.", "sasl.", "security.")) else "look"


def boolean_fault(name: str, value: str) -> str:
    """
    Returns why the value of a boolean key is refused; empty if it is accepted, or the key is none.

    ConfigDef.java takes true and false in any case; MM2 does not start with another text, or leaves the flow off.
    """
    if not _BOOLEANS.fullmatch(name) or value.lower() in ("true", "false"):
        return ""
    meant = "false" if re.match(r"(no|off|f|0|disabled?)\b", value.lower()) else "true"
    remark = ", with the remark on a line of its own" if re.search(r"\s[#!]|//", value) else ""
    return f"its value {quoted(value)} is neither true nor false; write {meant}{remark}"


def flow_slip(key: str, value: str) -> str:
    """Returns the flow's key that a line was meant to have, such as `A->B.enabled`; empty if it looks like no flow."""
    found = _SLIP.fullmatch(f"{key} = {value}")
    return "" if found is None else f"{found[1]}->{found[2]}.{found[3]}"


def _first(table: tuple[tuple[str, str], ...], name: str) -> str:
    return next((text for pattern, text in table if re.fullmatch(pattern, name)), "")
