"""
Compares the desired topics of the target with its actual ones. Pure.

A copy that the target deletes or refuses is a loss.  So every setting of the source that decides how long a
record lives, how large it may be and how its timestamp is kept is carried over by its *effective* value,
and set on the topic itself: brokers of two clusters have different defaults, and a topic without a setting of
its own takes its broker's, with every later change of it.

Timestamps are the one place where the copy differs from the source on purpose.  The target takes every
timestamp (`message.timestamp.before.max.ms` and `after` at their maximum), because an old record of the source is out
of any window.  And it is always CreateTime: for a source with LogAppendTime the mirror writes the time at which the
source's broker appended the record as the record's own, where a target with LogAppendTime would replace it by the
time of the copy.

All other settings belong to the target: minimum in-sync replicas, throttles, unclean elections, tiering.  The list
begins with that of MirrorMaker 2 (config.properties.exclude, KIP-1074).

A link may leave more to the target: `exclude_configs` names settings that it neither sets on a new copy nor changes,
and with `sync_topic_configs: false` it changes no setting of an existing copy.  What the target has in their place is
reported if it shortens what a copy holds or alters its timestamps (`Differs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.topology.filters import internal_reason

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.kafka.cluster_metadata import ConfigValue, TopicFacts

__all__ = [
    "KEPT_IN_STEP",
    "TIMESTAMPS",
    "AddPartitions",
    "AlterConfig",
    "Change",
    "Differs",
    "Refuse",
    "Surplus",
    "TopicPair",
    "before_kafka_3_6",
    "default_replication_factor",
    "desired_configs",
    "topic_changes",
]

# A record that lives or fits on the source must live and fit on the target: always set on the copy itself, by effective
# value, and kept in sync.
_LOSS_RELEVANT = (
    "cleanup.policy",
    "retention.ms",
    "retention.bytes",
    "max.message.bytes",
    "delete.retention.ms",
    "min.compaction.lag.ms",
    "max.compaction.lag.ms",
)

# Storage of the copy: by effective value if the target's default differs, once, at creation.
_STORAGE = (
    "compression.type",
    "min.cleanable.dirty.ratio",
    "segment.bytes",
    "segment.ms",
    "segment.jitter.ms",
    "segment.index.bytes",
)

# Brokers of Kafka 4 refuse smaller segments (KIP-1030), which older ones took; larger ones only keep records longer.
_LEAST_SEGMENT = 1024 * 1024

# Settings that brokers know (Kafka 3.9, TopicConfig.java), beside the above: a target without any topic does not report
# its settings, and refuses a topic with a vendor's setting, such as confluent.tier.enable.  Older brokers refuse the
# levels of compression by name; the copy is then created without them.
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
#: Every timestamp is accepted and kept.
TIMESTAMPS = {
    "message.timestamp.type": "CreateTime",
    "message.timestamp.before.max.ms": _FOR_EVER,
    "message.timestamp.after.max.ms": _FOR_EVER,
}
_DIFFERENCE = "message.timestamp.difference.max.ms"
# Brokers before Kafka 3.6 have one limit in place of the two (KIP-937).
_WINDOW = TIMESTAMPS.keys() - {"message.timestamp.type"}

_NOT_COPIED = frozenset(
    {
        "follower.replication.throttled.replicas",
        "leader.replication.throttled.replicas",
        "log.message.timestamp.after.max.ms",
        "log.message.timestamp.before.max.ms",
        _DIFFERENCE,
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

#: Settings of an existing copy that follow the source.
KEPT_IN_STEP = frozenset({*_LOSS_RELEVANT, *TIMESTAMPS, _DIFFERENCE})

# Size that the provenance header adds to a record of the source's maximum size.
_HEADER_ROOM = 4096
# Brokers hold max.message.bytes in 32 bits.
_LARGEST = 2**31 - 1
# Clusters in a ring of links, one of which would otherwise raise its limit because of its own raise.
_RING = 16

_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class AddPartitions:
    """A topic to grow from ``before`` to ``total`` partitions."""

    name: str
    total: int
    before: int


@dataclass(frozen=True, slots=True)
class AlterConfig:
    """Settings to set on a topic; ``before`` holds their present values."""

    name: str
    values: Mapping[str, str]
    before: Mapping[str, str | None]


@dataclass(frozen=True, slots=True)
class Surplus:
    """
    A copy with more partitions than its source: reported, not changed.

    Records keep their partition number, so the surplus partitions stay empty; a producer that writes to both
    topics by key would place keys differently.
    """

    name: str
    partitions: int
    source_partitions: int


@dataclass(frozen=True, slots=True)
class Differs:
    """
    Settings of a copy that differ from the desired ones and that the link leaves to the target: not changed.

    Attributes:
        name: The copy.
        wanted: Values that the link would set.
        found: Values of the copy.
    """

    name: str
    wanted: Mapping[str, str]
    found: Mapping[str, str | None]

    def __hash__(self) -> int:
        return hash((self.name, *sorted(self.wanted.items())))


@dataclass(frozen=True, slots=True)
class Refuse:
    """A source topic that cannot be mirrored, with the recommended action."""

    topic: str
    reason: str
    fix: str


Change = CreateTopic | AddPartitions | AlterConfig | Surplus | Differs | Refuse


@dataclass(frozen=True, slots=True)
class TopicPair:
    """
    A source topic and its copy, as their clusters describe them.

    Attributes:
        source_configs: Its effective settings.
        name: Name of the copy.
        target: The copy; None if it does not exist.
        target_configs: Its effective settings; empty if it does not exist.
    """

    source: TopicFacts
    source_configs: Mapping[str, ConfigValue]
    name: str
    target: TopicFacts | None = None
    target_configs: Mapping[str, ConfigValue] | None = None


def default_replication_factor(brokers: int, configured: int | None = None) -> int:
    """Returns the configured factor; else three, or the number of brokers if that is smaller."""
    return configured or min(_REPLICAS, max(1, brokers))


def desired_configs(
    source: Mapping[str, ConfigValue],
    target_defaults: Mapping[str, str | None] | None = None,
    *,
    added_header: bool = False,
) -> dict[str, str]:
    """
    Returns the settings of a new copy.

    Args:
        source: The source topic's effective settings.
        target_defaults: Defaults of topics on the target; None if unknown, as is a setting whose value is None.
            A setting that is missing here is unknown to the target's brokers; without any defaults, a setting counts as
            unknown if not all brokers know it.
        added_header: True if a header of the mirror makes records larger.
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
    if added_header and "max.message.bytes" in wanted:
        wanted["max.message.bytes"] = str(min(int(wanted["max.message.bytes"]) + _HEADER_ROOM, _LARGEST))
    if "segment.bytes" in wanted:
        wanted["segment.bytes"] = str(max(int(wanted["segment.bytes"]), _LEAST_SEGMENT))
    wanted.update(TIMESTAMPS)
    if target_defaults is None:
        return wanted
    if not _WINDOW & target_defaults.keys():
        wanted = before_kafka_3_6(wanted)
    return {name: value for name, value in wanted.items() if name in target_defaults}


def before_kafka_3_6(configs: Mapping[str, str]) -> dict[str, str]:
    """Returns a topic's settings for brokers that have one limit for timestamps in place of two."""
    kept = {name: value for name, value in configs.items() if name not in _WINDOW}
    return {**kept, _DIFFERENCE: _FOR_EVER} if len(kept) < len(configs) else kept


def _stored_differently(
    name: str, entry: ConfigValue, target_defaults: Mapping[str, str | None] | None
) -> bool:
    if name not in _STORAGE:
        return False
    known = (target_defaults or {}).get(name)
    if known is None:
        # Kafka's own default is likely the target's too; a default of the source's brokers was chosen on purpose.
        return entry.source != "default"
    return known != entry.value


def _nothing(_: str) -> bool:
    return False


def topic_changes(
    pair: TopicPair,
    *,
    brokers: int,
    replication_factor: int | None = None,
    target_defaults: Mapping[str, str | None] | None = None,
    added_header: bool = False,
    guard: bool = False,
    aggregate: bool = False,
    keyed: bool = False,
    target_partitions: int | None = None,
    sync: bool = True,
    excluded: Callable[[str], bool] = _nothing,
) -> tuple[Change, ...]:
    """
    Returns the changes on the target that must precede mirroring of the topic, in order.

    Args:
        pair: The topic and its copy.
        brokers: Broker count of the target.
        replication_factor: As configured; None for three, or the number of brokers if that is smaller.
        target_defaults: Defaults of topics on the target; None if unknown.
        added_header: True if a header of the mirror makes records larger.
        guard: True if other links may bring back the link's records.
        aggregate: True if other links write into the copy, whose settings are then only extended.
        keyed: True if records are placed by key: a copy need not have the partitions of its source.
        target_partitions: Partition count of a copy that is created, if ``keyed``; None for that of the source.
        sync: False if settings of an existing copy are not changed.
        excluded: Returns True for settings that belong to the target: not set on a new copy either.
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
        wanted = desired_configs(pair.source_configs, target_defaults, added_header=added_header)
        wanted = {name: value for name, value in wanted.items() if not excluded(name)}
        factor = default_replication_factor(brokers, replication_factor)
        count = (target_partitions if keyed else None) or pair.source.partitions
        return (CreateTopic(pair.name, count, factor, wanted),)
    changes: list[Change] = []
    if keyed:
        pass
    elif pair.target.partitions < pair.source.partitions:
        changes.append(AddPartitions(pair.name, pair.source.partitions, pair.target.partitions))
    elif pair.target.partitions > pair.source.partitions:
        changes.append(Surplus(pair.name, pair.target.partitions, pair.source.partitions))
    found = {name: entry.value for name, entry in (pair.target_configs or {}).items()}
    wanted = desired_configs(pair.source_configs, found, added_header=added_header)
    alter = {
        name: value
        for name, value in wanted.items()
        if name in KEPT_IN_STEP
        and not _serves(name, found[name], value, guard=guard)
        and not (aggregate and _extends(name, found[name], value))
    }
    left = {name: value for name, value in alter.items() if not sync or excluded(name)}
    alter = {name: value for name, value in alter.items() if name not in left}
    if alter:
        changes.append(AlterConfig(pair.name, alter, {name: found[name] for name in alter}))
    if left:
        changes.append(Differs(pair.name, left, {name: found[name] for name in left}))
    return tuple(changes)


def _raised_by_us(lacking: int) -> bool:
    """
    Returns True if the source's limit has room for our header because a reverse link raised it.

    Such a link has set the source's limit to this copy's and the room.  Raising this one in turn would cycle for
    ever, and is not needed: records that the header made larger came from here, and do not come back (loop guard).
    """
    rounds, odd = divmod(lacking, _HEADER_ROOM)
    # One of them is the room that the wanted limit adds to the source's.
    return not odd and 1 <= rounds - 1 <= _RING


def _serves(name: str, found: str | None, wanted: str, *, guard: bool) -> bool:
    """Returns True if a setting of an existing copy needs no change."""
    if found is None:
        return False
    if name == "max.message.bytes":
        # A higher limit refuses nothing; lowering it with the source's would refuse older records that are still in
        # flight.
        lacking = int(wanted) - int(found)
        return lacking <= 0 or (guard and _raised_by_us(lacking))
    if name == "cleanup.policy":
        return set(found.replace(" ", "").split(",")) == set(wanted.replace(" ", "").split(","))
    return found == wanted


def _extends(name: str, found: str | None, wanted: str) -> bool:
    """Returns True if a copy that several links write already serves more than one of them wants."""
    if name in TIMESTAMPS or name == _DIFFERENCE or found is None:
        return False
    if name == "cleanup.policy":
        # The first link has decided; two links with different policies would undo each other's for ever.
        return True
    longest = float("inf")
    has, needs = (longest if int(value) < 0 else int(value) for value in (found, wanted))
    return has >= needs
