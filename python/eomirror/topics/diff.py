"""
Mirrored topics: what the target should have against what it has (pure).

A copy that the target deletes or refuses is a loss.  So every setting of the source that decides how long a
record lives, how large it may be and what becomes of its timestamp is carried over by its *effective* value,
and set on the topic itself: brokers of two clusters have different defaults, and a topic without a setting of
its own takes its broker's, today's as well as next year's.

Timestamps are the one place where the copy differs from the source on purpose.  The target takes every
timestamp (`message.timestamp.before.max.ms` and `after` at their maximum), because a record that the source
took years ago is out of any window by now.  And it is always CreateTime: for a source with LogAppendTime the
mirror writes the time at which the source's broker appended the record as the record's own, where a target
with LogAppendTime would replace it by the time of the copy.

What is not carried over is the target's own affair: how many replicas must be in sync, throttles, unclean
elections, tiering.  The list begins with that of MirrorMaker 2 (config.properties.exclude, KIP-1074).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.topology.filters import internal_reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.kafka.cluster_metadata import ConfigValue, TopicFacts

__all__ = [
    "TIMESTAMPS",
    "AddPartitions",
    "AlterConfig",
    "Change",
    "Refuse",
    "Surplus",
    "TopicPair",
    "default_replication_factor",
    "desired_configs",
    "topic_changes",
]

# a record that lives or fits on the source must live and fit on the target: always set on the copy itself, by
# effective value, and kept in step afterwards
_LOSS_RELEVANT = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
)

# how the copy is stored: by effective value where the target's default is another, once, at creation
_STORAGE = (
    "compression.type",
    "min.cleanable.dirty.ratio",
    "segment.bytes",
    "segment.ms",
    "segment.jitter.ms",
    "segment.index.bytes",
)

# brokers of Kafka 4 refuse smaller segments (KIP-1030), which older ones took; larger ones only keep records longer
_LEAST_SEGMENT = 1024 * 1024

# what every broker that is served knows (Kafka 3.9, TopicConfig.java), beside the above: a target without any topic
# does not tell, and refuses a topic with a setting of another make, such as confluent.tier.enable
_COMMON = frozenset(
    {
        *_LOSS_RELEVANT,
        *_STORAGE,
        "compression.gzip.level",
        "compression.lz4.level",
        "compression.zstd.level",
        "file.delete.delay.ms",
        "flush.messages",
        "flush.ms",
        "index.interval.bytes",
        "preallocate",
    }
)

_FOR_EVER = "9223372036854775807"
#: Whatever time a record says that it is from, it is taken, and kept.
TIMESTAMPS = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _FOR_EVER,
    "message.timestamp.after.max.ms": _FOR_EVER,
}

_NOT_COPIED = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        "message.timestamp.difference.max.ms",
        "message.format.version",
        "message.downconversion.enable",
        "min.insync.replicas",
        "unclean.leader.election.enable",
        "local.retention.bytes",
        "local.retention.ms",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
        *TIMESTAMPS,
    }
)

_KEPT_IN_STEP = frozenset({*_LOSS_RELEVANT, *TIMESTAMPS})

# what the provenance header adds to a record that is as large as the source allows
_HEADER_ROOM = 4096
# brokers hold max.message.bytes in 32 bits
_LARGEST = 2**31 - 1
# clusters in a ring of links, one of which would otherwise raise its limit because of its own raise
_RING = 16

_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """A topic to grow: from ``before`` to ``total`` partitions."""

    name: str
    total: int
    before: int


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """Settings to set on a topic; ``before`` holds what they are now."""

    name: str
    values: Mapping[str, str]
    before: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Surplus:
    """
    The copy has more partitions than its source: nothing to do, but worth saying.

    Records keep their partition number, so the partitions beyond stay empty; a producer that writes to both
    topics by key would place keys differently.
    """

    name: str
    partitions: int
    source_partitions: int


@dataclass(frozen=True, slots=True)
class Refuse:
    """A source topic that cannot be mirrored, and what to do about it."""

    topic: str
    reason: str
    fix: str


Change = CreateTopic | AddPartitions | AlterConfig | Surplus | Refuse


@dataclass(frozen=True, slots=True)
class TopicPair:
    """
    A source topic and its copy, as their clusters describe them.

    Attributes:
        source: The source topic.
        source_configs: Its effective settings.
        name: What the copy is called.
        target: The copy; None when it does not exist.
        target_configs: Its effective settings; empty when it does not exist.
    """

    source: TopicFacts
    source_configs: Mapping[str, ConfigValue]
    name: str
    target: TopicFacts | None = None
    target_configs: Mapping[str, ConfigValue] | None = None


def default_replication_factor(brokers: int, configured: int | None = None) -> int:
    """As configured; else three, or as many as there are brokers."""
    return configured or min(_REPLICAS, max(1, brokers))


def desired_configs(
    source: Mapping[str, ConfigValue],
    target_defaults: Mapping[str, str | None] | None = None,
    *,
    provenance_header: bool = False,
) -> dict[str, str]:
    """
    Settings that a new copy gets.

    Args:
        source: The source topic's effective settings.
        target_defaults: What a topic on the target has without settings of its own; None when not known, and
            a None in it likewise.  A setting that is not in it is one that the target's brokers do not know; where
            nothing is known, it is one that not all brokers know.
        provenance_header: Whether the mirror makes records larger by its header.
    """
    wanted: dict[str, str] = {}
    for name, entry in source.items():
        if entry.value is None or entry.sensitive or name in _NOT_COPIED:
            continue
        if name not in (_COMMON if target_defaults is None else target_defaults):
            continue
        if (
            name in _LOSS_RELEVANT
            or not entry.is_default
            or _stored_differently(name, entry, target_defaults)
        ):
            wanted[name] = entry.value
    if provenance_header and "max.message.bytes" in wanted:
        wanted["max.message.bytes"] = str(min(int(wanted["max.message.bytes"]) + _HEADER_ROOM, _LARGEST))
    if "segment.bytes" in wanted:
        wanted["segment.bytes"] = str(max(int(wanted["segment.bytes"]), _LEAST_SEGMENT))
    known = TIMESTAMPS if target_defaults is None else TIMESTAMPS.keys() & target_defaults.keys()
    wanted.update({name: TIMESTAMPS[name] for name in sorted(known)})
    return wanted


def _stored_differently(
    name: str, entry: ConfigValue, target_defaults: Mapping[str, str | None] | None
) -> bool:
    if name not in _STORAGE:
        return False
    known = (target_defaults or {}).get(name)
    if known is None:
        # Kafka's own default is likely the target's too; a default of the source's brokers is somebody's wish
        return entry.source != "default"
    return known != entry.value


def topic_changes(
    pair: TopicPair,
    *,
    brokers: int,
    replication_factor: int | None = None,
    target_defaults: Mapping[str, str | None] | None = None,
    provenance_header: bool = False,
    guard: bool = False,
) -> tuple[Change, ...]:
    """
    What must happen on the target before the topic can be mirrored, in order.

    Args:
        pair: The topic and its copy.
        brokers: How many the target cluster has.
        replication_factor: As configured; None for three, or as many as there are brokers.
        target_defaults: What a topic on the target has without settings of its own; None when not known.
        provenance_header: Whether the mirror makes records larger by its header.
        guard: Whether other links may bring back what the link writes.
    """
    if reason := internal_reason(pair.name):
        return (
            Refuse(
                pair.source.name,
                f"topic {pair.source.name} would be written to {pair.name}: {reason}",
                "choose another `naming` for the link, or put the topic under its `exclude`",
            ),
        )
    if pair.target is None:
        wanted = desired_configs(pair.source_configs, target_defaults, provenance_header=provenance_header)
        factor = default_replication_factor(brokers, replication_factor)
        return (CreateTopic(pair.name, pair.source.partitions, factor, wanted),)
    changes: list[Change] = []
    if pair.target.partitions < pair.source.partitions:
        changes.append(AddPartitions(pair.name, pair.source.partitions, pair.target.partitions))
    elif pair.target.partitions > pair.source.partitions:
        changes.append(Surplus(pair.name, pair.target.partitions, pair.source.partitions))
    found = {name: entry.value for name, entry in (pair.target_configs or {}).items()}
    wanted = desired_configs(pair.source_configs, found, provenance_header=provenance_header)
    alter = {
        name: value
        for name, value in wanted.items()
        if name in _KEPT_IN_STEP and not _serves(name, found[name], value, guard=guard)
    }
    if alter:
        changes.append(AlterConfig(pair.name, alter, {name: found[name] for name in alter}))
    return tuple(changes)


def _raised_by_us(lacking: int) -> bool:
    """
    Whether the source has room for our header because a link leads there from here.

    Such a link has set the source's limit to this copy's and the room.  Raising this one in turn would go round for
    ever, and need not be: what the header makes larger came from here, and does not come back (loop guard).
    """
    rounds, odd = divmod(lacking, _HEADER_ROOM)
    # one of them is what the wanted limit adds to the source's
    return not odd and 1 <= rounds - 1 <= _RING


def _serves(name: str, found: str | None, wanted: str, *, guard: bool) -> bool:
    """Whether a setting of an existing copy is right as it is."""
    if found is None:
        return False
    if name == "max.message.bytes":
        # a higher limit refuses nothing; and lowering it with the source's would refuse what the source took
        # before and what is still on its way
        lacking = int(wanted) - int(found)
        return lacking <= 0 or (guard and _raised_by_us(lacking))
    if name == "cleanup.policy":
        return set(found.replace(" ", "").split(",")) == set(wanted.replace(" ", "").split(","))
    return found == wanted
