"""
Table of the settings of a link: parser, default, JSON Schema and description of each.

`load` parses by this table, `schema` publishes it, and docs/configuration.md is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eomirror.config import values
from eomirror.topology.naming import Naming

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LINK_KEYS", "LinkKey"]

_DURATION = {"type": "string", "pattern": r"^[0-9]+(\.[0-9]+)?\s*(ms|s|m|h)$"}
_PATTERNS = {
    "oneOf": [
        {"type": "array", "items": {"type": "string", "minLength": 1}},
        {"type": "string", "minLength": 1},
    ]
}
_WORD = {"type": "string", "pattern": "^[A-Za-z0-9_-]+$"}
_NAMING = {
    "oneOf": [
        {"enum": ["prefix", "identity"]},
        {
            "type": "object",
            "properties": {"pattern": {"type": "string", "pattern": r"\{topic\}"}},
            "required": ["pattern"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"match": {"type": "string"}, "to": {"type": "string"}},
            "required": ["match", "to"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {
                "map": {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}}
            },
            "required": ["map"],
            "additionalProperties": False,
        },
    ]
}


@dataclass(frozen=True, slots=True)
class LinkKey:
    """
    A setting of a link.

    Attributes:
        name: Key in the file, and attribute of `Link`.
        parse: Parses a node into the value.
        schema: JSON Schema of the value.
        text: Description for users.
        default: Value if neither the link nor ``defaults`` has the key.
        shown: The default as a user would write it; empty if the key is required.
        shareable: True if the key is allowed under ``defaults``.
    """

    name: str
    parse: values.Parser
    schema: Mapping[str, Any]
    text: str
    default: Any = None
    shown: str = ""
    shareable: bool = True


def _choice(*words: str) -> tuple[values.Parser, Mapping[str, Any]]:
    return values.choice(*words), {"enum": list(words)}


def _integer(least: int, most: int) -> tuple[values.Parser, Mapping[str, Any]]:
    return values.integer(least=least, most=most), {"type": "integer", "minimum": least, "maximum": most}


def _duration(least: float, most: float, example: str) -> tuple[values.Parser, Mapping[str, Any]]:
    return values.duration(least=least, most=most, example=example), _DURATION


_KEYS = (
    LinkKey("source", values.word, _WORD, "Alias of the cluster to read.", shareable=False),
    LinkKey("target", values.word, _WORD, "Alias of the cluster to write.", shareable=False),
    LinkKey(
        "name",
        values.word,
        {"type": "string", "pattern": "^([A-Za-z0-9_-]+|[A-Za-z0-9_-]+->[A-Za-z0-9_-]+)$"},
        "Name of the link, part of its state topics' names. Changing it starts a new link without positions.",
        "",
        "source->target",
        shareable=False,
    ),
    LinkKey(
        "topics",
        values.patterns(may_be_empty=False),
        _PATTERNS,
        "Full-match regular expressions of source topics (syntax of the Rust regex crate, no look-around).",
        (),
    ),
    LinkKey(
        "exclude",
        values.patterns(may_be_empty=True),
        _PATTERNS,
        "Topics that are not mirrored, even if `topics` matches them. Internal topics are never mirrored.",
        (),
        "[]",
    ),
    LinkKey(
        "naming",
        values.naming,
        _NAMING,
        "Name of a topic on the target: `prefix` (east.orders), `identity`, "
        '`{pattern: "{source}_{topic}"}`, `{match: "(.*)_REPLICA", to: "$1"}` or `{map: {a: b}}`. '
        "A topic that `match` or `map` does not cover is an error of that topic. "
        "Links whose target names would grow without end are refused.",
        Naming(),
        "prefix",
    ),
    LinkKey(
        "forward",
        values.forward,
        {"oneOf": [{"enum": ["auto", "local"]}, {"type": "array", "items": _WORD, "minItems": 1}]},
        "Origin clusters whose records the link forwards if several clusters use equal names: `auto` (one tree per "
        "origin, built from all links of the file), `local` (records written on the source), or a list of aliases.",
        "auto",
        "auto",
    ),
    LinkKey(
        "groups",
        values.patterns(may_be_empty=True),
        _PATTERNS,
        "Full-match regular expressions of consumer groups of the source to follow: their offsets are translated and "
        "written as MirrorMaker 2 checkpoints to `SOURCE.checkpoints.internal`; `[]` for none. Share groups have no "
        "offsets and are not followed.",
        (".*",),
        '[".*"]',
    ),
    LinkKey(
        "group_interval",
        *_duration(0.1, 3600, "1s"),
        "Interval at which group offsets are read from the source. With so many groups that a read takes longer, the "
        "next one follows at once; the progress shows the age of the offsets.",
        1.0,
        "1s",
    ),
    LinkKey(
        "sync_group_offsets",
        values.flag,
        {"type": "boolean"},
        "Commits translated offsets for the group of the same name on the target, so that a consumer that moves there "
        "resumes without a code change. Only while that group has no member. Off by default, as in MirrorMaker 2: a "
        "group of that name may be another application, which would then skip records.",
        default=False,
        shown="false",
    ),
    LinkKey(
        "group_rewind",
        *_choice("follow", "ignore"),
        "Effect on the target group when a group is reset to earlier offsets on the source: `follow` resets it too, if "
        "its offsets are still those that the link committed; `ignore` keeps them.",
        "follow",
        "follow",
    ),
    LinkKey(
        "group_deletions",
        *_choice("keep", "delete"),
        "Effect on the target group when a group, or all of its offsets, were deleted or have expired on the source: "
        "`keep`, or `delete` it too. `delete` requires `sync_group_offsets` and the ACL to delete groups on the "
        "target. It deletes only groups without members whose offsets are all those that the link committed.",
        "keep",
        "keep",
    ),
    LinkKey(
        "lanes", *_integer(1, 256), "Number of transactional producers that share the partitions.", 2, "2"
    ),
    LinkKey(
        "plane",
        *_choice("auto", "native", "client"),
        "Data plane: `client` (librdkafka), `native` (copies whole batches, in Rust; the target needs "
        "transaction.version 2), or `auto`: native if possible, else client, with the reason in the log.",
        "auto",
        "auto",
    ),
    LinkKey(
        "commit_interval",
        *_duration(0.001, 900, "100ms"),
        "Time between commits of a lane that is behind; at most a quarter of `transaction_timeout`.",
        0.1,
        "100ms",
    ),
    LinkKey(
        "commit_interval_min",
        *_duration(0.001, 900, "3ms"),
        "Time between commits of a lane that has caught up; at most `commit_interval`.",
        0.003,
        "3ms",
    ),
    LinkKey(
        "epoch",
        *_duration(5, 86_400, "300s"),
        "Time that one Spark task runs a lane before the next task continues it; below 20s throughput suffers.",
        300.0,
        "300s",
    ),
    LinkKey(
        "on_gap",
        *_choice("stop", "accept"),
        "Reaction if the source lost records before they were mirrored: `stop` the topic (exit 4), or `accept`: record "
        "the gap and continue after it.",
        "stop",
        "stop",
    ),
    LinkKey(
        "on_refused",
        *_choice("stop", "dead-letter", "raise-limit"),
        "Reaction to a record that the target refuses for its size, its timestamp or its missing key: `stop` the topic "
        "and report the record; `dead-letter`: skip it, with a reference to it (and the record, if it fits) in topic "
        "`eomirror.LINK.dead-letter`; or `raise-limit`: raise the target topic's `max.message.bytes` and send it again "
        "(needs AlterConfigs; stops the topic if size is not the reason).",
        "stop",
        "stop",
    ),
    LinkKey(
        "raise_limit_to",
        *_integer(1, 2_147_483_647),
        "Largest `max.message.bytes` that `on_refused: raise-limit` may set; unset: the limit of the source topic. A "
        "record that was compressed on the source needs more, unless this link's producer compresses too.",
        None,
        "unset",
    ),
    LinkKey(
        "transaction_timeout",
        *_duration(1, 3600, "15s"),
        "Time after which the broker aborts an abandoned transaction; until then read_committed consumers do not get "
        "later records. Brokers refuse more than their transaction.max.timeout.ms (15 minutes by default).",
        15.0,
        "15s",
    ),
    LinkKey(
        "start",
        values.start,
        {"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 100_000_000_000}]},
        "Start offset of the first run of the link: `earliest`, `latest`, an ISO 8601 time with its zone, or "
        "milliseconds since 1970. Topics and partitions that appear later are mirrored from their beginning.",
        "earliest",
        "earliest",
    ),
    LinkKey(
        "replication_factor",
        *_integer(1, 100),
        "Replication factor of topics that the mirror creates; unset: three, or the number of brokers if smaller.",
        None,
        "unset",
    ),
    LinkKey(
        "provenance",
        *_choice("auto", "on", "off"),
        "Adds a header with their origin to mirrored records; `auto`: only if the links of this file let a record "
        "return or arrive twice under an equal name, or if the link has added it before.",
        "auto",
        "auto",
    ),
    LinkKey(
        "heartbeats",
        *_choice("link", "source", "off"),
        "Topic of MirrorMaker 2's heartbeats, one a second: `link`: `SOURCE.heartbeats` on the target; `source`: "
        "`heartbeats` on the source, mirrored like any record, so that they prove the whole path; `off`: none.",
        "link",
        "link",
    ),
    LinkKey(
        "offset_syncs",
        *_choice("target", "source", "off"),
        "Topic of MirrorMaker 2's offset syncs: `target`: `mm2-offset-syncs.SOURCE.internal` on the target, in the "
        "transaction of the records they name; `source`: `mm2-offset-syncs.TARGET.internal` on the source, after the "
        "commit; `off`: none. eomirror's own offset translation does not need them.",
        "target",
        "target",
    ),
)

#: Settings of a link by name, in the order of the documentation.
LINK_KEYS: Mapping[str, LinkKey] = {key.name: key for key in _KEYS}
