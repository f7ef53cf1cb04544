"""Reads the link's state topics, and the topics of both clusters, for a lane runner."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import AuthorizationError, MirrorError, UnreachableError
from eomirror.kafka.cluster_metadata import current_topic_id, leaderless_error
from eomirror.kafka.compacted_topic import CompactedTopicReader, control_view
from eomirror.lane.poison_records import Limits
from eomirror.link.valid_positions import valid_positions
from eomirror.records.names import LinkNames, StateTopics
from eomirror.recovery.resume import SourceFacts, TargetFacts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from eomirror.kafka.admin import ClusterAdmin, PendingTopics
    from eomirror.kafka.cluster_metadata import TopicFacts
    from eomirror.kafka.session import ClusterSession
    from eomirror.lane.spec import LaneSpec
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = ["LaneStateReader", "LaneTopics"]

log = structlog.get_logger(__name__)

_ASK_SECONDS = 10.0
# The admin client's own timeout, and a little more.
_DESCRIBE_SECONDS = 31.0
# An election takes less than this if any replica is eligible.
_ELECTION_SECONDS = 5.0
_PAUSE_SECONDS = 0.2
# what a plane needs of a target topic, and a lane of a source topic
_LIMITS, _POLICY = ("max.message.bytes",), ("cleanup.policy",)

_Visible = tuple[dict[str, "TopicFacts | None"], dict[str, AuthorizationError]]


class LaneStateReader:
    """
    Reads control and positions of a link.

    Args:
        target: Connections to the target.
    """

    def __init__(self, spec: LaneSpec, target: ClusterSession) -> None:
        self._names = LinkNames(spec.link.state_name)
        self._admin = target.admin
        self._positions_partitions = 0
        self._offset_map_partitions = 0
        # Another producer's open transaction may delay the read for as long as its timeout.
        self._patience = 2 * spec.link.transaction_timeout + 10
        self._reader = CompactedTopicReader(target)

    def read_control(self) -> ControlView:
        """Returns the content of control."""
        _, records = self._reader.read(self._names.control_topic, seconds=self._patience)
        return control_view(records)

    def read_positions(self) -> Mapping[SourcePartition, Position]:
        """Returns the valid position of every source partition."""
        self._positions_partitions, records = self._reader.read(
            self._names.positions_topic, seconds=self._patience
        )
        return valid_positions(records)

    def state_topics(self) -> StateTopics:
        """
        Returns names and partition counts of the topics that a lane writes.

        Raises:
            UnreachableError: The target does not know the offset map at this time.
        """
        if not (self._offset_map_partitions and self._positions_partitions):
            names = (self._names.offset_map_topic, self._names.positions_topic)
            found = self._admin.describe_topics(names)
            counts = [0 if facts is None else facts.partitions for facts in map(found.get, names)]
            if not all(counts):
                # A guess would put chunks where readers do not look for them, and offset translation would skip
                # records.
                raise UnreachableError(
                    f"topic {names[counts.index(0)]} does not exist",
                    fix="restore the eomirror.* topics of the link together; see `eomirror plan CONFIG`",
                )
            self._offset_map_partitions, self._positions_partitions = counts
        return StateTopics(
            self._names.positions_topic,
            self._positions_partitions,
            self._names.offset_map_topic,
            self._offset_map_partitions,
            self._names.dead_letter_topic,
        )


class LaneTopics:
    """Describes the topics of both clusters for one lane."""

    def __init__(
        self, spec: LaneSpec, source: ClusterAdmin, target: ClusterAdmin, clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._source, self._target = source, target
        self._clock = clock
        # Target partitions that had no leader at the last look.
        self._leaderless: set[tuple[str, int]] = set()
        # Target topic -> source topic; any one of several that share a target.
        self._source_of = {item.target_topic: item.source.topic for item in spec.partitions}

    def facts(
        self, positions: Sequence[Position]
    ) -> Mapping[SourcePartition, tuple[SourceFacts, TargetFacts]]:
        """Returns the facts of both sides of each partition; refused are unauthorized topics and leaderless copies."""
        self._source_of.update({item.target_topic: item.topic for item in positions})
        (source_topics, source_refused), (target_topics, target_refused) = self._described(positions)
        on_source = [
            item.source for item in positions if _answers(source_topics.get(item.topic), item.partition)
        ]
        on_target = sorted(
            {
                copy
                for item in positions
                for copy in ((item.target_topic, item.target_partition), *item.copies)
                if _answers(target_topics.get(item.target_topic), copy[1])
            }
        )
        starts = self._source.offsets(on_source, at="earliest", read_committed=False)
        ends = self._source.offsets(on_source, at="latest", read_committed=False)
        target_ends = self._target.offsets(on_target, at="latest", read_committed=False)
        policies = self.source_policies([name for name, topic in source_topics.items() if topic is not None])
        found = {}
        for item in positions:
            source, target = source_topics.get(item.topic), target_topics.get(item.target_topic)
            copy = (item.target_topic, item.target_partition)
            copies = item.copies
            silent = source is not None and item.partition in source.leaderless
            # The log may begin behind the compared offset, and the answer would then fit another log as well.
            compared_earlier = item.epoch_offset is not None
            found[item.source] = (
                SourceFacts(
                    current_topic_id(source, item.topic_id, there=item.source in ends or silent),
                    starts.get(item.source, 0),
                    ends.get(item.source, 0),
                    source_refused.get(item.topic)
                    or (
                        _silent(source, item.source, self._source.name, item.topic)
                        if compared_earlier
                        else None
                    ),
                    silent=silent,
                    policy=policies.get(item.topic),
                    partitions=0 if source is None else source.partitions,
                ),
                TargetFacts(
                    target.topic_id if target is not None else None,
                    target_ends.get(copy, 0),
                    target_refused.get(item.target_topic)
                    or next(
                        filter(None, (_silent(target, one, self._target.name, item.topic) for one in copies)),
                        None,
                    ),
                    0 if target is None else target.partitions,
                    {one[1]: target_ends[one] for one in copies if one in target_ends} if item.keyed else {},
                ),
            )
        return found

    def _described(self, positions: Sequence[Position]) -> tuple[_Visible, _Visible]:
        """Describes the topics of both sides; waits a while for a copy that has just lost its leader."""
        deadline = Deadline(_ELECTION_SECONDS, self._clock)
        while True:
            on_both = (
                self._source.begin_describe(sorted({item.topic for item in positions})),
                self._target.begin_describe(sorted({item.target_topic for item in positions})),
            )
            source, target = (pending.visible(_DESCRIBE_SECONDS) for pending in on_both)
            leaderless = {
                (name, number)
                for name, facts in target[0].items()
                if facts is not None
                for number in facts.leaderless
            }
            if leaderless <= self._leaderless or deadline.passed:
                self._leaderless = {one for one in self._leaderless if one[0] not in target[0]} | leaderless
                return source, target
            self._clock.sleep(_PAUSE_SECONDS)

    def request_ids(self, source_topics: Sequence[str], target_topics: Sequence[str]) -> PendingPair:
        """Requests the ids of exactly these topics, with one request per side, and does not wait."""
        return PendingPair(
            self._source.begin_describe(list(source_topics)),
            self._target.begin_describe(list(target_topics)),
            self._source_of,
        )

    def limits(self, source_topic: str, target_topic: str) -> Limits:
        """
        Returns effective settings of both topics; empty for a side where they may not be read.

        Raises:
            UnreachableError: A cluster does not answer.
        """
        return Limits(_settings(self._source, source_topic), _settings(self._target, target_topic))

    def target_settings(self, topics: Sequence[str]) -> Mapping[str, Mapping[str, str | None]]:
        """
        Returns effective settings of target topics, in one request; empty where they may not be read.

        Raises:
            UnreachableError: The target does not answer.
        """
        try:
            found = self._target.topic_configs(topics, only=_LIMITS)
        except UnreachableError:
            raise
        except MirrorError as error:
            log.info("settings_unknown", topics=len(topics), reason=error.message)
            return {}
        return {
            topic: {name: entry.value for name, entry in entries.items()} for topic, entries in found.items()
        }

    def source_policies(self, topics: Sequence[str]) -> Mapping[str, str | None]:
        """
        Returns ``cleanup.policy`` of source topics, in one request; None where it may not be read.

        Raises:
            UnreachableError: The source does not answer.
        """
        if not topics:
            return {}
        try:
            found = self._source.topic_configs(sorted(topics), only=_POLICY)
        except UnreachableError:
            raise
        except MirrorError as error:
            # Without the policy, batches and holes of a log prove nothing.
            log.info("policies_unknown", topics=len(topics), reason=error.message)
            return {}
        return {topic: entries["cleanup.policy"].value for topic, entries in found.items()}

    def raise_limit(self, target_topic: str, size: int) -> None:
        """
        Sets max.message.bytes of a target topic.

        Raises:
            MirrorError: The right is missing, or the cluster refuses or does not answer.
        """
        self._target.alter_configs(target_topic, {"max.message.bytes": str(size)})


@dataclass(frozen=True, slots=True)
class PendingPair:
    """Two describe requests in flight; ``source_of`` maps a target topic to its source topic."""

    source: PendingTopics
    target: PendingTopics
    source_of: Mapping[str, str]

    def result(self) -> tuple[Mapping[str, str | None], Mapping[str, str | None]]:
        """
        Returns topic ids on the source and on the target; None for a topic that does not exist.

        Raises:
            AuthorizationError: A topic is not visible to the principal; names the source topic, which the lane stops.
            ClusterError: A cluster cannot be reached.
        """
        return _ids(self.source, {}), _ids(self.target, self.source_of)


def _answers(topic: TopicFacts | None, number: int) -> bool:
    """Returns True if the partition has a leader that can report its offsets."""
    return topic is not None and number < topic.partitions and number not in topic.leaderless


def _silent(
    facts: TopicFacts | None, partition: tuple[str, int], cluster: str, topic: str
) -> UnreachableError | None:
    """Returns the error of an existing partition that has no leader; None otherwise."""
    if facts is None or partition[1] not in facts.leaderless:
        return None
    return leaderless_error(partition, cluster, topic=topic)


def _settings(admin: ClusterAdmin, topic: str) -> Mapping[str, str | None]:
    try:
        found = admin.topic_configs([topic])[topic]
    except UnreachableError:
        raise
    except MirrorError as error:
        # Settings only make the error more precise; no decision needs them.
        log.info("settings_unknown", topic=topic, reason=error.message)
        return {}
    return {name: entry.value for name, entry in found.items()}


def _ids(pending: PendingTopics, source_of: Mapping[str, str]) -> dict[str, str | None]:
    found, refused = pending.visible(_ASK_SECONDS)
    for name, error in refused.items():
        error.topic = source_of.get(name, name)
        raise error
    return {name: None if facts is None else facts.topic_id for name, facts in found.items()}
