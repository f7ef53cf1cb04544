"""
Every setting of a link, once: how it is parsed, its default, its place in the JSON Schema, its description.

`load` parses by this table, `schema` publishes it, docs/configuration.md is generated from it.
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
    One setting of a link.

    Attributes:
        name: Key in the file, and attribute of `Link`.
        parse: Turns a node into the value.
        schema: JSON Schema of the value.
        text: Description for people.
        default: Value when neither the link nor ``defaults`` has the key.
        shown: The default as a user would write it; empty when the key is required.
        shareable: Whether it may stand under ``defaults``.
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
        "Topics to leave out; wins over `topics`. Internal topics are left out anyway.",
        (),
        "[]",
    ),
    LinkKey(
        "naming",
        values.naming,
        _NAMING,
        "What a topic is called on the target: `prefix` (east.orders), `identity`, "
        '`{pattern: "{source}_{topic}"}`, `{match: "(.*)_REPLICA", to: "$1"}` or `{map: {a: b}}`. '
        "A topic that a match or a map says nothing of is an error for that topic. "
        "Links whose names would grow with each time round are refused.",
        Naming(),
        "prefix",
    ),
    LinkKey(
        "forward",
        values.forward,
        {"oneOf": [{"enum": ["auto", "local"]}, {"type": "array", "items": _WORD, "minItems": 1}]},
        "Whose records travel on when equal names live on several clusters: `auto` (one tree per origin "
        "from all links of the file), `local` (records that began on the source), or a list of aliases.",
        "auto",
        "auto",
    ),
    LinkKey(
        "groups",
        values.patterns(may_be_empty=True),
        _PATTERNS,
        "Full-match regular expressions of consumer groups of the source that are followed: where they stand is "
        "translated and written as MirrorMaker 2's checkpoints into `SOURCE.checkpoints.internal`; `[]` for none. "
        "Share groups have no offsets to follow and are left out.",
        (".*",),
        '[".*"]',
    ),
    LinkKey(
        "group_interval",
        *_duration(0.1, 3600, "1s"),
        "How often the source is asked where groups stand. With so many groups that it takes longer, it is asked as "
        "often as it answers; progress shows how old the answers are.",
        1.0,
        "1s",
    ),
    LinkKey(
        "sync_group_offsets",
        values.flag,
        {"type": "boolean"},
        "Whether translated offsets are also committed for the group of the same name on the target, so that a "
        "consumer that moves there goes on without a line of code. Only while that group has no member. As in "
        "MirrorMaker 2 it is off by default: a group of that name may be another application, and would be moved past "
        "records that it has not read.",
        default=False,
        shown="false",
    ),
    LinkKey(
        "group_rewind",
        *_choice("follow", "ignore"),
        "What becomes of the group on the target when a group goes back on the source: it goes back too, where it "
        "still stands where the link put it, or it stays.",
        "follow",
        "follow",
    ),
    LinkKey(
        "group_deletions",
        *_choice("keep", "delete"),
        "What becomes of the group on the target when a group, or all of its offsets, are gone on the source, deleted "
        "or expired: it stays, or it is deleted too. Only with `sync_group_offsets`, and only a group without members "
        "all of whose offsets are where the link put them; it needs the right to delete groups of the target.",
        "keep",
        "keep",
    ),
    LinkKey(
        "lanes", *_integer(1, 256), "Number of transactional producers that share the partitions.", 2, "2"
    ),
    LinkKey(
        "plane",
        *_choice("auto", "native", "client"),
        "What moves the bytes: `client` (librdkafka), `native` (whole batches, in Rust; the target needs "
        "transaction.version 2), or `auto`: the native one where it can serve, and the log says why it cannot.",
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
        "How long one Spark task runs a lane before it hands over; below 20s the hand-overs cost throughput.",
        300.0,
        "300s",
    ),
    LinkKey(
        "on_gap",
        *_choice("stop", "accept"),
        "What to do when the source lost records before they were mirrored: stop the topic (exit 4), or "
        "record the gap and go on.",
        "stop",
        "stop",
    ),
    LinkKey(
        "on_refused",
        *_choice("stop", "dead-letter", "raise-limit"),
        "What to do with a record that the target refuses for its size, its timestamp or its missing key: stop the "
        "topic and name the record; leave it out, with a pointer to it (and the record, if it fits) in topic "
        "`eomirror.LINK.dead-letter`; or raise the target topic's `max.message.bytes` to fit and send it again "
        "(needs AlterConfigs; stops the topic where size is not the reason).",
        "stop",
        "stop",
    ),
    LinkKey(
        "raise_limit_to",
        *_integer(1, 2_147_483_647),
        "Largest `max.message.bytes` that `on_refused: raise-limit` may set; unset: the source topic's own. A record "
        "that its producer compressed needs more than that, unless this link's producer compresses as well.",
        None,
        "unset",
    ),
    LinkKey(
        "transaction_timeout",
        *_duration(1, 3600, "15s"),
        "After this time the broker aborts an abandoned transaction; until then it hides later records. "
        "Brokers refuse more than their transaction.max.timeout.ms (15 minutes by default).",
        15.0,
        "15s",
    ),
    LinkKey(
        "start",
        values.start,
        {"oneOf": [{"type": "string"}, {"type": "integer", "minimum": 100_000_000_000}]},
        "Where the very first run begins: `earliest`, `latest`, an ISO 8601 time with its zone, or "
        "milliseconds since 1970. Later topics and partitions begin at their beginning.",
        "earliest",
        "earliest",
    ),
    LinkKey(
        "replication_factor",
        *_integer(1, 100),
        "Replicas of the topics that the mirror creates; unset: three, or as many as there are brokers.",
        None,
        "unset",
    ),
    LinkKey(
        "provenance",
        *_choice("auto", "on", "off"),
        "Whether records carry the header that says where they come from; `auto`: where the links of this "
        "file let equal names come back or arrive twice, and where the link has begun to write it.",
        "auto",
        "auto",
    ),
    LinkKey(
        "heartbeats",
        *_choice("link", "source", "off"),
        "Who writes MirrorMaker 2's heartbeats, one a second: the link itself into `SOURCE.heartbeats` on the target, "
        "the link into `heartbeats` on the source (mirrored like any record: they then show that the link carries "
        "records), or nobody.",
        "link",
        "link",
    ),
    LinkKey(
        "offset_syncs",
        *_choice("target", "source", "off"),
        "Where MirrorMaker 2's offset syncs go: `mm2-offset-syncs.SOURCE.internal` on the target, in the transaction "
        "of the records they name; `mm2-offset-syncs.TARGET.internal` on the source, after the commit; or nowhere. "
        "Our own translation does not need them.",
        "target",
        "target",
    ),
)

#: Settings of a link by name, in the order of the documentation.
LINK_KEYS: Mapping[str, LinkKey] = {key.name: key for key in _KEYS}
