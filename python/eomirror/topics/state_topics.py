"""
State topics of a link on the target: desired settings, and the actions if they differ.

They are always created explicitly: an auto-created topic would have the broker's retention, which deletes
positions.  An existing one is never altered, because its settings may be intended; it is logged if it
drifted, and refused if its settings would lose the mirror's state.

Positions and control are the mirror's state.  A tool that deletes and recreates them under a running mirror removes
the positions of every idle partition, and often leaves a policy that deletes the others in time.  So the id
of each topic is compared with the one at the start, and its ``cleanup.policy`` with the last one seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from eomirror.config.rights import Right
from eomirror.errors import StateError
from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.records.dead_letter import LARGEST_MESSAGE
from eomirror.records.names import LinkNames
from eomirror.topics.acls import need
from eomirror.topics.diff import TIMESTAMPS, AddPartitions, default_replication_factor

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.cluster_metadata import ConfigValue, TopicFacts

__all__ = [
    "CHECK_SECONDS",
    "Drift",
    "StateTopicsCheck",
    "policy_fix",
    "state_changes",
    "state_drift",
    "state_topics",
]

log = structlog.get_logger(__name__)

#: Seconds between two checks of ids and policies.
CHECK_SECONDS = 60.0

_POLICY = "compact"


class StateTopicsCheck:
    """
    Checks the state topics of one link.

    Args:
        target: Admin client of the target.
        learn: Receives the settings of each existing topic.
    """

    def __init__(
        self,
        link: Link,
        target: ClusterAdmin,
        *,
        learn: Callable[[Mapping[str, ConfigValue]], None],
        clock: Clock,
    ) -> None:
        self._link = link
        self._target = target
        self._learn = learn
        self._clock = clock
        names = LinkNames(link.state_name)
        # Without these the mirror does not know its positions; the others serve readers.
        self._memory = (names.control_topic, names.positions_topic)
        self._control = names.control_topic
        self._known: dict[str, TopicFacts] = {}
        self._policies: dict[str, str | None] = {}
        self._suspected: dict[str, str] = {}
        self._checked = clock.monotonic()

    def compare(
        self, *, brokers: int
    ) -> tuple[tuple[CreateTopic | AddPartitions, ...], tuple[Drift, ...], bool]:
        """
        Returns pending changes of the state topics, their drift, and True if this is a first run.

        Args:
            brokers: Broker count of the target.

        Raises:
            StateError: A topic is damaged.
            AuthorizationError: A right is missing.
            ClusterError: The target does not answer.
        """
        wanted = state_topics(
            LinkNames(self._link.state_name),
            lanes=self._link.producers,
            brokers=brokers,
            replication_factor=self._link.replication_factor,
            dead_letters=self._link.on_refused == "dead-letter",
        )
        found = self._target.describe_topics([topic.name for topic in wanted])
        existing = [topic for topic in wanted if found[topic.name] is not None]
        configs = self._target.topic_configs([topic.name for topic in existing])
        drifts: list[Drift] = []
        for topic in existing:
            self._learn(configs[topic.name])
            values = {key: entry.value for key, entry in configs[topic.name].items()}
            drifts += state_drift(topic, values)
        for name, rights in self._target.topic_rights([topic.name for topic in existing]).items():
            for operation in ("Read", "Write"):
                need(
                    self._link, self._target, rights, Right(operation, "topic", name), "keep its state there"
                )
        self._known = {name: facts for name, facts in found.items() if facts is not None}
        self._policies = dict.fromkeys((topic.name for topic in wanted), _POLICY)
        return state_changes(wanted, found), tuple(drifts), found[self._control] is None

    def created(self, topics: Mapping[str, TopicFacts]) -> None:
        """Records the topics that were created or grown since the look."""
        self._known.update({name: facts for name, facts in topics.items() if name in self._policies})

    def check(self) -> None:
        """
        Compares ids and policies with the recorded ones, at most once in `CHECK_SECONDS`.

        A deviating id counts only after a second look: a broker that has just come back may describe an old state of
        the cluster.

        Raises:
            StateError: Control or positions were deleted or recreated.
            ClusterError: The target does not answer.
        """
        now = self._clock.monotonic()
        if not self._known or (now - self._checked < CHECK_SECONDS and not self._suspected):
            return
        self._checked = now
        found, refused = self._target.visible_topics(sorted(self._known))
        deviating = {
            name: "" if facts is None else facts.topic_id
            for name, facts in found.items()
            if name not in refused and (facts is None or facts.topic_id != self._known[name].topic_id)
        }
        certain = {
            name: topic_id for name, topic_id in deviating.items() if self._suspected.get(name) == topic_id
        }
        self._suspected = {name: topic_id for name, topic_id in deviating.items() if name not in certain}
        for name, topic_id in sorted(certain.items()):
            error = self._replaced(name, topic_id)
            if name in self._memory:
                raise error
            log.error(
                "state_topic_replaced", link=self._link.name, topic=name, reason=error.message, fix=error.fix
            )
            # Logged once for each topic of this name.
            facts = found[name]
            if facts is None:
                del self._known[name]
            else:
                self._known[name] = facts
        self._check_policies([name for name, facts in found.items() if facts is not None])

    def _check_policies(self, names: list[str]) -> None:
        for name, configs in self._target.topic_configs(names).items():
            entry = configs.get("cleanup.policy")
            policy = None if entry is None else entry.value
            before, self._policies[name] = self._policies.get(name, _POLICY), policy
            if policy == before:
                continue
            if policy == _POLICY:
                log.info("state_topic_in_order", link=self._link.name, topic=name, setting="cleanup.policy")
                continue
            log.error(
                "state_topic_drifted",
                link=self._link.name,
                topic=name,
                setting="cleanup.policy",
                wanted=_POLICY,
                found=policy,
                reason="retention deletes the mirror's state",
                fix=policy_fix(name),
            )

    def _replaced(self, name: str, topic_id: str) -> StateError:
        was = self._known[name].topic_id
        what = f"recreated (id {topic_id}, it was {was})" if topic_id else f"deleted (its id was {was})"
        if name in self._memory:
            return StateError(
                f"link {self._link.name}: topic {name} was {what} under the running mirror: what it held is lost",
                fix="find out which tool did it; restore the eomirror.* topics of the link together, or delete all of "
                "them and choose each partition's resume offset: `eomirror run CONFIG "
                "--resume-at TOPIC-PARTITION=OFFSET`; `eomirror verify CONFIG` shows how far the copies are",
            )
        return StateError(
            f"topic {name} was {what} under the running mirror",
            fix="its records about mirrored data are lost; it covers only records that follow",
        )


# Brokers refuse records from more than an hour ahead by default, so a wrong clock would end the mirror (F34).
_COMPACT = {"cleanup.policy": "compact", **TIMESTAMPS}
# Small segments and an eager cleaner: reading control and positions after a million commits takes seconds, and merged
# chunks of the offset map are removed soon.
_SMALL = {
    "segment.bytes": str(16 * 1024 * 1024),
    "segment.ms": "600000",
    "min.cleanable.dirty.ratio": "0.1",
}
# A generation names every partition of every lane in one record.
_LARGE_RECORDS = {"max.message.bytes": str(8 * 1024 * 1024)}
_POSITIONS_PARTITIONS = 8
_OFFSET_MAP_PARTITIONS = 8
_REPLICAS = 3


@dataclass(frozen=True, slots=True)
class Drift:
    """A setting of a state topic that differs from its value at creation, and is harmless."""

    topic: str
    setting: str
    wanted: str
    found: str | None


def state_topics(
    names: LinkNames,
    *,
    lanes: int,
    brokers: int,
    replication_factor: int | None = None,
    dead_letters: bool = False,
) -> tuple[CreateTopic, ...]:
    """
    Returns the link's state topics: control, positions, offset map, dead letters (contract.md, "Topics on the target").

    Args:
        names: Names of the link.
        lanes: Lane count; each lane writes its positions to a partition of its own.
        brokers: Broker count of the target.
        replication_factor: As configured; None for three, or the number of brokers if that is smaller.
        dead_letters: True if the link writes dead letters.
    """
    factor = default_replication_factor(brokers, replication_factor)
    configs = dict(_COMPACT)
    # With two replicas, a minimum of two in sync would stop the mirror whenever a broker restarts.
    configs["min.insync.replicas"] = "2" if factor >= _REPLICAS else "1"
    small = {**configs, **_SMALL}
    topics = (
        CreateTopic(names.control_topic, 1, factor, {**small, **_LARGE_RECORDS}),
        CreateTopic(names.positions_topic, max(_POSITIONS_PARTITIONS, lanes), factor, small),
        CreateTopic(names.offset_map_topic, _OFFSET_MAP_PARTITIONS, factor, small),
    )
    if not dead_letters:
        return topics
    # Each key is written once, so compaction keeps every dead letter for as long as the topic lives.
    large = {**configs, "max.message.bytes": str(LARGEST_MESSAGE)}
    return (*topics, CreateTopic(names.dead_letter_topic, 1, factor, large))


def state_changes(
    wanted: tuple[CreateTopic, ...], found: Mapping[str, TopicFacts | None]
) -> tuple[CreateTopic | AddPartitions, ...]:
    """
    Returns the changes that must precede the mirror's first write to its state topics, in order.

    The offset map is never grown: a source partition's chunks are found by a hash over the partition count.

    Args:
        wanted: Result of `state_topics`.
        found: Topics of the target, by name.

    Raises:
        StateError: The control topic has more than one partition: it has no order, and no last record.
    """
    changes: list[CreateTopic | AddPartitions] = []
    for topic in wanted:
        facts = found[topic.name]
        if facts is None:
            changes.append(topic)
        elif topic.name.endswith(".control") and facts.partitions > 1:
            raise StateError(
                f"topic {topic.name} has {facts.partitions} partitions, but must have exactly one",
                fix="find out which tool grew or created it; with the mirror stopped, recreate it with one partition "
                "and start with a new link name, or adopt the positions",
            )
        elif topic.name.endswith(".positions") and facts.partitions < topic.partitions:
            changes.append(AddPartitions(topic.name, topic.partitions, facts.partitions))
    return tuple(changes)


def policy_fix(topic: str) -> str:
    """Returns the command that restores the cleanup policy of a state topic."""
    return (
        "set it back: kafka-configs.sh --bootstrap-server HOST:PORT --alter --entity-type topics "
        f"--entity-name {topic} --add-config cleanup.policy=compact"
    )


def state_drift(topic: CreateTopic, found: Mapping[str, str | None]) -> tuple[Drift, ...]:
    """
    Returns settings of an existing topic that differ from their values at creation.

    Args:
        topic: The desired topic.
        found: Its effective settings.

    Raises:
        StateError: The topic would delete the mirror's state.
    """
    policy = found.get("cleanup.policy")
    if policy != "compact":
        raise StateError(
            f"topic {topic.name} has cleanup.policy={policy}: retention would delete the mirror's state",
            fix=policy_fix(topic.name),
        )
    return tuple(
        Drift(topic.name, setting, value, found.get(setting))
        for setting, value in topic.configs.items()
        # older brokers lack some
        if setting in found and found[setting] != value
    )
