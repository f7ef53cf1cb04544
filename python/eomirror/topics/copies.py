"""Compares the topics of a link with their copies, and creates and changes copies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from eomirror.errors import MirrorError, QuotaError, TopicError
from eomirror.lane.spec import AssignedPartition
from eomirror.topics.apply import TargetTopics
from eomirror.topics.bidirectional_configs import BidirectionalConfigs
from eomirror.topics.diff import Refuse, TopicPair, topic_changes
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.cluster_metadata import ConfigValue, TopicFacts
    from eomirror.records.position import Position
    from eomirror.topics.diff import Change

__all__ = ["TopicCopies"]

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
        self._both_ways = BidirectionalConfigs(link.loops.onward, goes_first=link.source < link.target)

    def first_run(self) -> None:
        """Records that the link has no positions."""
        self._written = frozenset()

    def pairs(self, sources: Mapping[str, TopicFacts], targets: Mapping[str, str]) -> dict[str, TopicPair]:
        """Reads both sides of source topics."""
        names = {topic: targets[topic] for topic in sources}
        copies = self._target.describe_topics(sorted(set(names.values())))
        source_configs = self._source.topic_configs(names)
        target_configs = self._target.topic_configs(
            name for name, facts in copies.items() if facts is not None
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
