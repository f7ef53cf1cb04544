"""Compares the topics of a link with their copies, and creates and changes copies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror.errors import ConfigError, Fault, MirrorError, QuotaError, TopicError
from eomirror.kafka.cluster_metadata import CreateTopic
from eomirror.lane.spec import AssignedPartition
from eomirror.topics.apply import TargetTopics
from eomirror.topics.diff import (
    KEPT_IN_STEP,
    TIMESTAMPS,
    AlterConfig,
    Refuse,
    TopicPair,
    before_kafka_3_6,
    topic_changes,
)
from eomirror.topology.naming import collisions
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.cluster_metadata import ConfigValue, TopicFacts
    from eomirror.records.position import Position
    from eomirror.topics.diff import Change
    from eomirror.topology.filters import TopicFilter

__all__ = [
    "BidirectionalConfigs",
    "TopicCopies",
    "copy_names",
    "goes_round",
    "mirrored_again",
    "refuse_same_cluster",
]

log = structlog.get_logger(__name__)

# Options to adopt that an error lists: they fill three lines of a terminal.
_MOST_OPTIONS = 12


class TopicCopies:
    """
    Prepares the copies of one link.

    Args:
        positions: Reads the link's positions, without those that the user overrules: a missing copy that has one was
            deleted.  None if a missing copy is to be created in any case.

    Attributes:
        topics: Creates and changes topics on the target.
        ready: Source topics whose copy can be written, with both sides.
        lost: Source topics whose copy was deleted after it was mirrored, with their id: it is not created again, empty.
        brokers: Number of brokers of the target.
    """

    def __init__(
        self,
        link: Link,
        source: ClusterAdmin,
        target: ClusterAdmin,
        clock: Clock,
        positions: Callable[[], Mapping[SourcePartition, Position]] | None,
    ) -> None:
        self.topics = TargetTopics(target, link=link.name, keyed=link.keyed, clock=clock)
        self.ready: dict[str, tuple[TopicFacts, TopicFacts]] = {}
        self.lost: dict[str, str] = {}
        self.brokers = 1
        self._link = link
        self._source, self._target = source, target
        self._target_defaults: dict[str, str | None] | None = None
        self._read_positions = positions
        # Id of each source topic and the name of its copy, of every position; read when the first copy is missing.
        self._written: frozenset[tuple[str, str, str]] | None = None
        # Copies that exist and topics in all, as the last error of a quota states them.
        self._counted = (0, 0)
        # Settings of each source topic whose copy exists, as they were read last.
        self._settings: dict[str, dict[str, ConfigValue]] = {}
        self._both_ways = BidirectionalConfigs(link.loops.onward, goes_first=link.source < link.target)

    def first_run(self) -> None:
        """Records that the link has no positions."""
        self._written = frozenset()

    def forget(self, topics: Collection[str]) -> None:
        """Forgets topics that have left the link: one of that name gets a copy."""
        self._written = None
        for topic in topics:
            self.lost.pop(topic, None)

    def pairs(self, sources: Mapping[str, TopicFacts], targets: Mapping[str, str]) -> dict[str, TopicPair]:
        """Reads both sides of source topics."""
        names = {topic: targets[topic] for topic in sources}
        copies = self._target.describe_topics(sorted(set(names.values())))
        # of a copy that exists no other setting is compared
        made = [topic for topic, name in names.items() if copies[name] is None]
        source_configs = self._source.topic_configs(made) if made else {}
        for topic, configs in source_configs.items():
            self._settings[topic] = {name: configs[name] for name in KEPT_IN_STEP & configs.keys()}
        source_configs |= self._source_settings(topic for topic in names if topic not in source_configs)
        target_configs = self._target.topic_configs(
            (name for name, facts in copies.items() if facts is not None), only=KEPT_IN_STEP
        )
        for configs in target_configs.values():
            self.learn_defaults(configs)
        if self._target_defaults is None and sources:
            self._learn_from_another_topic()
        return {
            topic: TopicPair(
                sources[topic], source_configs[topic], name, copies[name], target_configs.get(name)
            )
            for topic, name in names.items()
        }

    def changed_settings(self, topics: Iterable[str]) -> set[str]:
        """Returns source topics whose settings have changed since they were read last; none if that is unknown."""
        before = {topic: self._settings[topic] for topic in topics if topic in self._settings}
        try:
            found = self._source_settings(before)
        except MirrorError as error:
            # the comparison of all settings reports it
            log.debug("settings_not_looked_at", link=self._link.name, reason=error.message)
            return set()
        return {topic for topic, settings in found.items() if settings != before[topic]}

    def _source_settings(self, topics: Iterable[str]) -> dict[str, dict[str, ConfigValue]]:
        """Reads and keeps the settings of source topics that their copies follow."""
        found = self._source.topic_configs(topics, only=KEPT_IN_STEP)
        self._settings.update(found)
        return found

    def learn_defaults(self, configs: Mapping[str, ConfigValue]) -> None:
        """Learns the target's topic defaults from any existing topic."""
        known = self._target_defaults or {}
        found = {key: entry.value if entry.is_default else known.get(key) for key, entry in configs.items()}
        self._target_defaults = {**known, **found}

    def _learn_from_another_topic(self) -> None:
        # Kafka's internal topics come last: they have many settings of their own, which do not show defaults.
        for name in sorted(self._target.topic_names(), key=lambda name: name.startswith("_"))[:1]:
            try:
                self.learn_defaults(self._target.topic_configs([name])[name])
            except MirrorError as error:
                # Optional: without defaults, more settings than necessary are set on copies.
                log.debug("target_defaults_unknown", link=self._link.name, reason=error.message)

    def changes(self, pair: TopicPair) -> tuple[Change, ...]:
        """Returns the changes that a copy needs; a refusal if it was deleted after it was mirrored."""
        topic, topic_id = pair.source.name, pair.source.topic_id
        if pair.target is not None:
            self.lost.pop(topic, None)
        elif self.lost.get(topic) == topic_id:
            return (_copy_deleted(pair),)
        elif (ready := self.ready.get(topic)) is not None and ready[0].topic_id == topic_id:
            # Refused by the next refresh: a broker that has just come back may describe an old state of the cluster.
            self.lost[topic] = topic_id
            del self.ready[topic]
            return ()
        elif self._was_written(pair):
            self.lost[topic] = topic_id
            return (_copy_deleted(pair),)
        changes = topic_changes(
            pair,
            brokers=self.brokers,
            replication_factor=self._link.replication_factor,
            target_defaults=self._target_defaults,
            added_header=self._link.provenance_header or self._link.origin_header,
            guard=self._link.guard,
            aggregate=self._link.aggregate,
            keyed=self._link.keyed,
            target_partitions=self._link.target_partitions,
            sync=self._link.sync_topic_configs,
            excluded=self._link.leaves_config,
        )
        return self._both_ways.carried(pair, changes)

    def _was_written(self, pair: TopicPair) -> bool:
        """Returns True if the link has a position for a copy that is missing."""
        if self._read_positions is None:
            return False
        if self._written is None:
            self._written = frozenset(
                (one.topic, one.topic_id, one.target_topic) for one in self._read_positions().values()
            )
        return (pair.source.name, pair.source.topic_id, pair.name) in self._written

    def apply(
        self, pairs: Mapping[str, TopicPair], changes: Mapping[str, Sequence[Change]]
    ) -> dict[str, MirrorError]:
        """Creates and changes copies; returns the error of each source topic whose copy is refused or has to wait."""
        errors: list[MirrorError] = []
        fresh = self.topics.apply([change for each in changes.values() for change in each], refused=errors)
        by_name = {error.topic: error for error in errors}
        # A copy that another process created since the last request has settled as well.
        missing = {
            pair.name: 1 if self._link.keyed else pair.source.partitions
            for pair in pairs.values()
            if pair.target is None
            and pair.name not in fresh
            and pair.name not in by_name
            and changes[pair.source.name]
        }
        fresh.update(self.topics.settle(missing))
        for topic, pair in pairs.items():
            copy = fresh.get(pair.name, pair.target)
            if copy is not None:
                self.ready[topic] = (pair.source, copy)
            if not any(isinstance(change, AlterConfig) for change in changes[topic]):
                self.topics.lacking.pop(pair.name, None)
            if pair.name not in by_name:
                self._both_ways.record(pair, changes[topic])
        refused = {topic: by_name[pair.name] for topic, pair in pairs.items() if pair.name in by_name}
        quotas = [error for error in refused.values() if isinstance(error, QuotaError)]
        held = self.with_count(quotas[0], pairs) if quotas else None
        return {
            topic: held
            if held is not None and isinstance(error, QuotaError)
            else TopicError(error.message, fix=error.fix, topic=topic)
            for topic, error in refused.items()
        }

    def with_count(self, error: QuotaError, pairs: Mapping[str, TopicPair]) -> QuotaError:
        """Returns the error with the number of copies that exist; of many it changes with each tenth part only."""
        waiting = {topic for topic, pair in pairs.items() if pair.target is None and topic not in self.ready}
        existing = {topic for topic, pair in pairs.items() if pair.target is not None} | self.ready.keys()
        count, total = len(existing), len(existing | waiting)
        if total != self._counted[1] or not 0 <= count - self._counted[0] < max(1, total // 10):
            self._counted = count, total
        count, total = self._counted
        return QuotaError(
            f"{error.message}: {count} of {total} topics created",
            seconds=error.seconds,
            fix=error.fix,
        )

    def assigned(self, targets: Mapping[str, str]) -> tuple[AssignedPartition, ...]:
        """Returns the partitions of all topics whose copy is ready."""
        return tuple(
            AssignedPartition(SourcePartition(topic, number), source.topic_id, name, copy.topic_id)
            for topic, name in sorted(targets.items())
            if topic in self.ready
            for source, copy in [self.ready[topic]]
            for number in range(
                source.partitions if self._link.keyed else min(source.partitions, copy.partitions)
            )
        )

    def led(
        self, targets: Mapping[str, str], sources: Mapping[str, TopicFacts]
    ) -> tuple[AssignedPartition, ...]:
        """Returns the partitions that have a leader; the start of the others is unknown until they have one."""
        return tuple(
            item
            for item in self.assigned(targets)
            if item.source.partition not in sources[item.source.topic].leaderless
        )


def _copy_deleted(pair: TopicPair) -> Refuse:
    """Returns the refusal of a topic whose copy was deleted after the link mirrored it (EO-5)."""
    topic = pair.source.name
    options = " ".join(
        f"--resume-at {topic}-{number}=0" for number in range(min(pair.source.partitions, _MOST_OPTIONS))
    )
    more = (
        f" and so on up to {topic}-{pair.source.partitions - 1}"
        if pair.source.partitions > _MOST_OPTIONS
        else ""
    )
    return Refuse(
        topic,
        f"topic {topic}: the target topic {pair.name} was deleted; it is not created again, because an empty copy "
        "would lack the records that were mirrored before",
        f"to fill a new copy from the source's beginning, stop the mirror and start it once with "
        f"`eomirror run CONFIG {options}{more}`; or put the topic under the link's `exclude`",
    )


def copy_names(
    link: Link, target: ClusterAdmin, matched: Sequence[str], mirrored: Collection[str]
) -> tuple[dict[str, str], dict[str, MirrorError]]:
    """
    Returns the names of copies, and the error of each topic that cannot have one.

    Args:
        target: Admin client of the target.
        matched: Source topics.
        mirrored: Source topics that have a copy.
    """
    targets: dict[str, str] = {}
    refused: dict[str, MirrorError] = {}
    for topic in matched:
        try:
            targets[topic] = link.target_topic(topic)
        except TopicError as error:
            refused[topic] = error
    for collision in collisions(matched, link.target_naming):
        # The topic that was mirrored first stays; the new one waits for a person.
        staying = _staying(collision.sources, targets, target, mirrored)
        for topic in collision.sources:
            if topic not in staying and targets.pop(topic, None) is not None:
                refused[topic] = collision.error(f"link {link.name}", link.target)
    return targets, refused


def refuse_same_cluster(
    link: Link, source: ClusterAdmin, target: ClusterAdmin, cluster_id: str, targets: Mapping[str, str]
) -> None:
    """
    Refuses a link within one cluster that would mirror its own copies.

    Raises:
        ConfigError: No topic is renamed; or two aliases are the same cluster.
        TopicError: A copy is a source topic of the link as well.
    """
    culprit = next((topic for topic, name in targets.items() if goes_round(link, topic, name)), None)
    if culprit is None and link.naming.kind != "identity":
        return
    if culprit is not None and link.source == link.target:
        raise mirrored_again(f"link {link.name}: topic {culprit}", targets[culprit], culprit)
    what = f"topic {culprit} would be written to {targets[culprit]}" if culprit else "no topic is renamed"
    raise ConfigError(
        [
            Fault(
                f"links.{link.name}",
                f"source {source.name} and target {target.name} are the same cluster "
                f"(id {cluster_id}), and {what}, which the link would mirror again",
                "correct bootstrap.servers of one cluster; or, to copy topics within a cluster, rename every "
                "topic to a name that the link's `topics` do not match",
            )
        ]
    )


def goes_round(link: Link, topic: str, name: str) -> bool:
    """Returns True if a copy on the same cluster is a source topic of the link as well."""
    return topic == name or link.filter.accepts(name)


def mirrored_again(what: str, name: str, topic: str) -> TopicError:
    """Returns the error of a topic whose copy on the same cluster is a source topic of the link as well."""
    return TopicError(
        f"{what} would be written to {name}, and mirrored again and again: source and target are the same cluster",
        fix="put it under the link's `exclude`",
        topic=topic,
    )


def _staying(
    sources: Sequence[str], targets: Mapping[str, str], target: ClusterAdmin, mirrored: Collection[str]
) -> set[str]:
    """Returns the colliding topics that are mirrored already: by this link, or because their copy exists."""
    if staying := {topic for topic in sources if topic in mirrored}:
        return staying
    names = {topic: targets[topic] for topic in sources if topic in targets}
    found, _ = target.visible_topics(sorted(set(names.values())))
    existing = {topic for topic, name in names.items() if found.get(name) is not None}
    # If several would share a copy, its owner is unknown.
    return existing if len(existing) == 1 else set()


_ALWAYS = frozenset({*before_kafka_3_6(TIMESTAMPS), *TIMESTAMPS, "max.message.bytes"})


class BidirectionalConfigs:
    """
    One link's knowledge of the settings on both sides at its last look.

    Args:
        onward: Topics of the reverse links, which bring the settings of copies back; changes of other topics all pass.
        goes_first: True if this link's source wins where the later change is unknown.
    """

    def __init__(self, onward: Sequence[TopicFilter], *, goes_first: bool) -> None:
        self._onward = onward
        self._goes_first = goes_first
        self._seen: dict[tuple[str, str], tuple[str | None, str | None]] = {}

    def carried(self, pair: TopicPair, changes: Iterable[Change]) -> tuple[Change, ...]:
        """
        Returns the changes without those that belong to the reverse link.

        Args:
            pair: The topic and its copy.
            changes: Result of `topic_changes`.
        """
        if not any(each.matches(pair.name) for each in self._onward):
            return tuple(changes)
        kept: list[Change] = []
        for change in changes:
            if not isinstance(change, AlterConfig):
                kept.append(change)
                continue
            values = {
                name: value
                for name, value in change.values.items()
                if name in _ALWAYS or self._is_ours(pair, name, change.before[name])
            }
            if values:
                before = {name: change.before[name] for name in values}
                kept.append(replace(change, values=values, before=before))
        return tuple(kept)

    def record(self, pair: TopicPair, applied: Iterable[Change]) -> None:
        """
        Records the settings of both sides.

        Args:
            pair: The topic and its copy, as they were found.
            applied: Changes that were applied since.
        """
        if not self._onward:
            return
        found = {name: entry.value for name, entry in (pair.target_configs or {}).items()}
        for change in applied:
            if isinstance(change, AlterConfig):
                found.update(change.values)
            elif isinstance(change, CreateTopic):
                found.update(change.configs)
        for name, entry in pair.source_configs.items():
            if name in found:
                self._seen[pair.source.name, name] = entry.value, found[name]

    def _is_ours(self, pair: TopicPair, name: str, on_copy: str | None) -> bool:
        seen = self._seen.get((pair.source.name, name))
        if seen is None:
            return self._goes_first
        source_moved = pair.source_configs[name].value != seen[0]
        return source_moved and (self._goes_first or on_copy == seen[1])
