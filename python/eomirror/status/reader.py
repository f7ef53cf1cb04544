"""Reads the input of `eomirror.status.derive`: the link's topics on the target, and the topics of both sides."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.errors import (
    AuthorizationError,
    ClusterError,
    MirrorError,
    TopicError,
)
from eomirror.kafka.cluster_metadata import current_topic_id, leaderless_error
from eomirror.kafka.log_ends import skip_missing
from eomirror.kafka.parallel import in_thread
from eomirror.kafka.record_reader import TimestampReader
from eomirror.kafka.session import link_sessions
from eomirror.link.claim import is_dead
from eomirror.link.copy_ends import ForeignTails
from eomirror.records.events import link_events
from eomirror.records.names import LinkNames
from eomirror.records.reports import decode_reports
from eomirror.recovery.resume import SourceFacts, TargetFacts, gone_sources
from eomirror.status.derive import Observed, groups_status, is_away, link_status, with_reports
from eomirror.status.hanging import with_hanging
from eomirror.status.liveness import Liveness, judge_liveness
from eomirror.status.model import GroupsStatus, LinkStatus
from eomirror.status.retention import RetentionLimits, retention_rows, waiting_topics
from eomirror.status.topics import StatusTopics
from eomirror.topics.state_topics import policy_fix
from eomirror.topology.filters import missing_names
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from eomirror.config import Cluster, Link
    from eomirror.kafka.admin import ClusterAdmin
    from eomirror.kafka.cluster_metadata import TopicFacts
    from eomirror.kafka.compacted_topic import LogRecord
    from eomirror.records.control import ControlView
    from eomirror.records.position import Position
    from eomirror.status.hanging import HangingTransactions

    _Sides = tuple[
        dict[SourcePartition, Observed],
        dict[SourcePartition, MirrorError | None],
        set[SourcePartition],
        dict[SourcePartition, int],
        dict[SourcePartition, int],
        "_SourceError | None",
    ]

__all__ = ["AWAY_SECONDS", "STALL_SECONDS", "RetentionSettings", "StatusReader"]


_KEPT_SECONDS = 60.0
# topics that refuse; of more, the others are unknown for a minute
_MOST_REFUSED = 10


class RetentionSettings:
    """Retention of the topics of one cluster, as it was asked for last."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # with the time at which each was asked; None if it was refused
        self._known: dict[str, tuple[float, RetentionLimits | None]] = {}

    def of(self, admin: ClusterAdmin, topics: Collection[str]) -> Mapping[str, RetentionLimits]:
        """
        Returns the limits of topics, of those that are known.

        A cluster that refuses is not asked again for a minute, and its refusal is no reason to fail: the rest of a
        status holds without it.
        """
        now = self._clock.monotonic()
        old = {topic for topic, (at, _) in self._known.items() if now - at >= _KEPT_SECONDS}
        self._known = {topic: each for topic, each in self._known.items() if topic not in old}
        missing = sorted(set(topics) - self._known.keys())
        found = _limits(admin, missing) if missing else {}
        self._known |= {topic: (now, found.get(topic)) for topic in missing}
        known = {topic: self._known[topic][1] for topic in topics}
        return {topic: limits for topic, limits in known.items() if limits is not None}


def _limits(admin: ClusterAdmin, topics: Collection[str]) -> dict[str, RetentionLimits]:
    """Returns the limits of topics; one that refuses is left out, and the others are asked again."""
    asked = list(topics)
    for _ in range(_MOST_REFUSED):
        try:
            configs = admin.topic_configs(asked)
        except MirrorError as error:
            log.debug("retention_unknown", cluster=admin.name, reason=error.message)
            if getattr(error, "topic", None) not in asked:
                return {}
            asked = [topic for topic in asked if topic != error.topic]
            continue
        return {
            topic: limits
            for topic, entries in configs.items()
            if (limits := _limit({name: entry.value for name, entry in entries.items()})) is not None
        }
    return {}


def _limit(values: Mapping[str, str | None]) -> RetentionLimits | None:
    """Returns the limits of one topic; None if a setting is no number."""
    try:
        return RetentionLimits.of(values)
    except ValueError:
        return None


log = structlog.get_logger(__name__)


_PEEK_SECONDS = 2.0
#: Time that a cluster has to answer.  Status is used when one is down: it then ends within 5 s, its own start included.
#: So a read waits for a cluster once: both are asked at the same time, and the first request without an answer in time
#: is the last.
AWAY_SECONDS = 2.5
#: Without a record for this long, a read of a topic has failed: its broker is slow, or gone since it was described.
STALL_SECONDS = 3.0
# Partitions whose oldest open transaction is looked at; of more, the others have no age.
_MOST_OPEN = 200
# Between two looks at a claim that is watched.
_LOOK_SECONDS = 0.5


class StatusReader:
    """
    Reads the status of one link; keeps its connections, and what it has read of topics, for repeated reads.

    Args:
        hanging: Makes the scanner for hanging transactions on the target; None to skip the scan.
        ask_source: False to leave lags unknown, without the seconds that a source takes that does not answer.
        more_seconds: Added to the time in which a cluster has to answer, where many links are read at once.
    """

    def __init__(
        self,
        link: Link,
        source: Cluster,
        target: Cluster,
        *,
        hanging: Callable[[Link, Cluster, ClusterAdmin], HangingTransactions] | None = None,
        ask_source: bool = True,
        more_seconds: float = 0.0,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._link = link
        self._ask_source = ask_source
        self._clock = clock
        # How far the owner's clock is ahead of ours, as far as known.
        self._offset_ms = 0
        self._control_records: list[LogRecord] = []
        # Topics that `topics` gives by name and that the source lacked at the last look.
        self._awaited: tuple[str, ...] = ()
        # Time in which the source last answered.
        self._source_seconds: float | None = None
        self._names = LinkNames(link.state_name)
        patience = AWAY_SECONDS + more_seconds
        self._sessions = link_sessions(link, source, target, "status", timeout=patience, clock=clock)
        self._source, self._target = (session.admin for session in self._sessions)
        self._hanging = None if hanging is None else hanging(link, target, self._target)
        self._topics = StatusTopics(self._sessions.target, seconds=STALL_SECONDS + more_seconds, clock=clock)
        self._peek = TimestampReader(self._sessions.source, seconds=_PEEK_SECONDS)
        self._retention = RetentionSettings(clock)
        self._foreign = ForeignTails(link, self._sessions)

    def read(self) -> LinkStatus:
        """
        Returns the status of the link; takes some seconds more if the owner's claim has to be watched.

        Raises:
            ClusterError: The target cannot be reached.  If the source is down, or a topic is deleted, lags are unknown.
        """
        # An unreachable source takes seconds, and so do an unreachable target and a long positions topic.
        away = in_thread(self._source_error, name="status-sides")
        topics = [self._names.control_topic, self._names.positions_topic]
        asked = self._clock.monotonic()
        own = self._target.describe_topics(topics)
        target_seconds = self._clock.monotonic() - asked
        if any(facts is None for facts in own.values()):
            return self._never_ran(away.result())
        # Lags and ages refer to this moment: the following reads take seconds.
        now_ms = self._clock.wall_ms()
        first = self._control()
        log_of_positions = self._topics.positions(self._names.positions_topic)
        positions, history = log_of_positions.valid(), log_of_positions.history()
        generation = first.generation
        assigned = generation.assignment.partitions if generation is not None else {}
        # A parked partition may be deleted on either side; that is not a problem.
        mirrored = [position for source, position in positions.items() if source in assigned]
        # Concurrently: an unreachable source and a silent owner take seconds each.
        stopped = {stop.topic for stop in first.stopped}
        parked = positions.keys() - assigned.keys()
        sides = in_thread(
            lambda: self._both_sides(away.result(), positions, mirrored, parked, stopped), name="status-sides"
        )
        control, liveness = self._look(first)
        observed, left_out, gone, oldest, opened, problem = sides.result()
        # The ends are older than these positions: what arrived during the read is no lag, however long the read took.
        later = {
            source: each.offset
            for source, each in self._topics.positions(self._names.positions_topic).valid().items()
            if source in positions and each.topic_id == positions[source].topic_id
        }
        found = link_status(
            self._link.name,
            control,
            positions,
            history=history,
            attempts=log_of_positions.attempts.values(),
            observed=observed,
            oldest=oldest,
            now_ms=now_ms,
            liveness=liveness,
            opened=opened,
            accept_gaps=self._link.on_gap == "accept",
            left_out=left_out,
            gone=gone,
            later=later,
            away=problem is not None and problem.away,
            problem="" if problem is None else problem.message,
            fix="" if problem is None else problem.fix,
        )
        logged = ((record.key, record.value, record.timestamp) for record in self._control_records)
        found = replace(found, drifted=self._drifted(), events=link_events(logged, log_of_positions.starts))
        reports = decode_reports((record.key, record.value) for record in self._control_records)
        found = with_reports(found, reports, now_ms=now_ms)
        found = replace(
            found,
            source_seconds=self._source_seconds,
            target_seconds=target_seconds,
            remark=self._link.remark,
            # a link that no longer mirrors does not lose these records
            retention=()
            if found.ended
            else retention_rows(
                found.partitions,
                {source: seen.source.log_start for source, seen in observed.items()},
                self._retention.of(self._source, waiting_topics(found.partitions)),
            ),
        )
        if not found.ended:
            found = replace(found, awaited=self._awaited)
            ends = {
                (one.target_topic, one.target_partition): seen.target.high_watermark
                for one in mirrored
                if (seen := observed.get(one.source)) is not None and seen.target.refused is None
            }
            found = replace(found, foreign=self._foreign.look(mirrored, ends, self._producers))
        if self._hanging is not None and control.generation is not None:
            # With an unreachable source nothing is observed; the scan of its copies is needed most then.
            copies = [SourcePartition(*copy) for item in mirrored for copy in item.copies]
            there = _copies(mirrored, observed) if observed else _existing(self._target, copies)[1]
            hung = self._hanging.look(
                sorted(_whole(own).union(there)),
                positions=mirrored,
                history=history,
                highest_lane=control.generation.highest_lane,
                now_ms=self._clock.wall_ms() + liveness.offset_ms,
            )
            found = with_hanging(found, hung)
        if not self._link.groups:
            return found
        ends = {
            (position.target_topic, position.target_partition): seen.lso
            for position in mirrored
            if (seen := observed.get(position.source)) is not None and seen.lso is not None
        }
        return replace(found, groups=self._groups({item.target_topic for item in mirrored}, ends))

    def _producers(self) -> set[int]:
        """Returns the ids of producers of the link's lanes, as far as claims and positions name them now."""
        log_of_positions = self._topics.positions(self._names.positions_topic)
        positions, attempts = log_of_positions.valid(), log_of_positions.attempts
        return {one.producer_id for one in positions.values()} | {
            one.producer_id for one in attempts.values()
        }

    def _drifted(self) -> tuple[str, ...]:
        """Returns the state topics that lose records to retention; empty if their settings may not be read."""
        names = self._names
        topics = [names.control_topic, names.positions_topic, names.offset_map_topic]
        there, _ = self._target.visible_topics(topics)
        try:
            found = self._target.topic_configs([topic for topic, facts in there.items() if facts is not None])
        except AuthorizationError as error:
            log.debug("own_topics_unknown", link=self._link.name, reason=error.message)
            return ()
        policies = {
            topic: configs["cleanup.policy"].value
            for topic, configs in sorted(found.items())
            if "cleanup.policy" in configs
        }
        return tuple(
            f"topic {topic} has cleanup.policy={policy}: retention deletes the mirror's state; {policy_fix(topic)}"
            for topic, policy in policies.items()
            if policy != "compact"
        )

    def _never_ran(self, away: _SourceError | None) -> LinkStatus:
        """Returns the status of a link without state topics: a running mirror may wait for its source."""
        if away is None or not self._ask_source:
            return LinkStatus(link=self._link.name, state="never ran", awaited=self._awaited)
        return LinkStatus(
            link=self._link.name,
            state="never ran",
            away=("source",) if away.away else (),
            problem=away.message,
            fix=away.fix,
        )

    def _source_error(self) -> _SourceError | None:
        """Returns the reason for which the source must not or cannot be asked; None if it answers."""
        if not self._ask_source:
            return _SourceError(f"cluster {self._source.name}: was not asked")
        asked, self._source_seconds, self._awaited = self._clock.monotonic(), None, ()
        try:
            missing = missing_names(self._link.topics, self._source.topic_names())
            wanted = [topic for topic in missing if self._link.mirrors(topic)]
            # A topic that an ACL hides may exist.
            seen = self._source.visible_topics(wanted)[0] if wanted else {}
            self._awaited = tuple(topic for topic in wanted if topic in seen and seen[topic] is None)
        except ClusterError as error:
            return _SourceError.of(error)
        self._source_seconds = self._clock.monotonic() - asked
        return None

    def _both_sides(
        self,
        away: _SourceError | None,
        positions: Mapping[SourcePartition, Position],
        mirrored: list[Position],
        parked: Collection[SourcePartition],
        stopped: Collection[str],
    ) -> _Sides:
        """
        Observes mirrored partitions, parked ones that should be mirrored or that the source has no more, and ages.

        Returns the source's error, which is ``away`` if it is known already.
        """
        if away is not None:
            # What the owner has left out is not mirrored either; nothing tells if it could be.
            return (
                {},
                {one: None for one in parked if self._link.mirrors(one.topic) and one.topic in stopped},
                set(),
                {},
                {},
                away,
            )
        try:
            observed = self._observe(mirrored)
            left_out, gone = self._left_out(parked, positions)
        except _SourceError as error:
            return {}, {}, set(), {}, {}, error
        behind = {
            position.source: position.offset
            for position in mirrored
            if _can_go_on(position, observed.get(position.source))
        }
        gone |= {source for source, seen in observed.items() if seen.gone}
        return observed, left_out, gone, self._oldest(behind), self._opened(observed), None

    def _look(self, first: ControlView) -> tuple[ControlView, Liveness]:
        """Returns the control topic and the liveness of the owner."""
        began = self._clock.monotonic()
        control = first
        while True:
            claim = control.claim
            liveness = judge_liveness(
                first.claim,
                claim,
                watched=self._clock.monotonic() - began,
                now_ms=self._clock.wall_ms(),
                offset_ms=self._offset_ms,
                dead=claim is not None and is_dead(claim),
            )
            if liveness.state:
                self._offset_ms = liveness.offset_ms
                return control, liveness
            self._clock.sleep(_LOOK_SECONDS)
            control = self._control()

    def _control(self) -> ControlView:
        view, self._control_records = self._topics.control(self._names.control_topic)
        if (generation := view.generation) is None:
            return view
        # a topic that left the link under a running mirror keeps its lane in the layout (docs/adr/0034)
        layout = generation.assignment
        kept = {
            source: lane
            for source, lane in layout.partitions.items()
            if self._link.filter.matches(source.topic) or self._link.mirrors(source.topic)
        }
        if len(kept) == len(layout.partitions):
            return view
        parked = replace(layout, partitions=kept, parked=layout.known - kept.keys())
        return replace(view, generation=replace(generation, assignment=parked))

    def _groups(self, targets: Collection[str], ends: Mapping[tuple[str, int], int]) -> GroupsStatus | None:
        """Returns the status of groups from checkpoints; None if the topic does not exist (yet)."""
        topic = self._link.mm2_names.checkpoints(self._link.source)
        if self._target.describe_topics([topic])[topic] is None:
            return None
        return groups_status(self._topics.checkpoints(topic), targets, ends)

    def close(self) -> None:
        """Closes all clients."""
        self._sessions.close()

    def _observe(self, positions: list[Position]) -> dict[SourcePartition, Observed]:
        """Returns both sides of each partition; a topic that does not exist (any more) counts as missing."""
        try:
            source_topics, on_source, silent = _existing(self._source, [item.source for item in positions])
            starts = _offsets(self._source, on_source, at="earliest", read_committed=False)
            # before the last stable offsets: records that arrive in between are behind no open transaction
            ends = _offsets(self._source, on_source, at="latest", read_committed=False)
            stable = _offsets(self._source, on_source, at="latest", read_committed=True)
        except ClusterError as error:
            raise _SourceError.of(error) from error
        target_topics, on_target, silent_there = _existing(
            self._target, [SourcePartition(item.target_topic, item.target_partition) for item in positions]
        )
        target_ends = _offsets(self._target, on_target, at="latest", read_committed=False)
        observed = {}
        gone = gone_sources({item.source: item for item in positions}, source_topics)
        for item in positions:
            source, target = item.source, (item.target_topic, item.target_partition)
            # A topic that is deleted between two requests counts as missing.
            there = source in starts and source in stable and source in ends
            observed[source] = Observed(
                SourceFacts(
                    current_topic_id(source_topics[item.topic], item.topic_id, there=there),
                    starts.get(source, 0),
                    ends.get(source, 0),
                    leaderless_error(source, self._source.name) if source in silent else None,
                    partitions=0 if (facts := source_topics[item.topic]) is None else facts.partitions,
                ),
                stable.get(source) if there else None,
                TargetFacts(
                    current_topic_id(
                        target_topics[item.target_topic], item.target_topic_id, there=target in target_ends
                    ),
                    target_ends.get(target, 0),
                    leaderless_error(target, self._target.name) if target in silent_there else None,
                ),
                gone=source in gone,
            )
        return observed

    def _left_out(
        self, parked: Collection[SourcePartition], positions: Mapping[SourcePartition, Position]
    ) -> tuple[dict[SourcePartition, MirrorError | None], set[SourcePartition]]:
        """Returns existing parked partitions that the link should mirror, with a visible reason; and those gone."""
        wanted = [item for item in parked if self._link.mirrors(item.topic)]
        try:
            found, refused = self._source.visible_topics(sorted({item.topic for item in wanted}))
        except ClusterError as error:
            raise _SourceError.of(error) from error
        left_out: dict[SourcePartition, MirrorError | None] = {}
        for item in wanted:
            facts = found.get(item.topic)
            if item.topic in refused:
                left_out[item] = refused[item.topic]
            elif facts is not None and item.partition < facts.partitions:
                silent = item.partition in facts.leaderless
                left_out[item] = leaderless_error(item, self._source.name) if silent else None
        return left_out, gone_sources(positions, found) & set(wanted)

    def _oldest(self, behind: dict[SourcePartition, int]) -> dict[SourcePartition, int]:
        """Returns the timestamp of the first record behind each position; a tail of markers has none."""
        stamps = self._peek.read((*source, offset) for source, offset in behind.items())
        return {SourcePartition(topic, number): stamp for (topic, number, _), stamp in stamps.items()}

    def _opened(self, observed: Mapping[SourcePartition, Observed]) -> dict[SourcePartition, int]:
        """Returns the timestamp of the first record of the oldest open transaction of each partition that has one."""
        # the last stable offset is where that transaction begins
        begins = {
            source: seen.lso
            for source, seen in observed.items()
            if seen.lso is not None and seen.lso < seen.source.high_watermark
        }
        if not begins:
            return {}
        wanted = [(*source, offset) for source, offset in sorted(begins.items())[:_MOST_OPEN]]
        stamps = self._peek.read(wanted, uncommitted=True)
        return {SourcePartition(topic, number): stamp for (topic, number, _), stamp in stamps.items()}


class _SourceError(MirrorError):
    """
    The source as a whole could not be read.

    Attributes:
        away: True if it does not answer.
    """

    away = False

    @classmethod
    def of(cls, error: ClusterError) -> _SourceError:
        """Returns the error with its reason."""
        made = cls(error.message, fix=error.fix)
        made.away = is_away(error)
        return made


def _whole(topics: Mapping[str, TopicFacts | None]) -> set[SourcePartition]:
    """Returns the partitions of topics that have a leader."""
    return {
        SourcePartition(name, number)
        for name, facts in topics.items()
        if facts is not None
        for number in set(range(facts.partitions)) - facts.leaderless
    }


def _copies(
    positions: Iterable[Position], observed: Mapping[SourcePartition, Observed]
) -> list[SourcePartition]:
    """Returns the target partitions of these positions that exist and have a leader."""
    return [
        SourcePartition(*copy)
        for position in positions
        if (seen := observed.get(position.source)) is not None
        and seen.target.topic_id is not None
        and seen.target.refused is None
        for copy in position.copies
    ]


def _can_go_on(position: Position, seen: Observed | None) -> bool:
    """Returns True if the record behind the position can be read: the source is the same, and has one."""
    return (
        seen is not None
        and seen.source.topic_id == position.topic_id
        and seen.lso is not None
        and seen.source.log_start <= position.offset < seen.lso
    )


def _existing(
    admin: ClusterAdmin, wanted: Iterable[SourcePartition]
) -> tuple[dict[str, TopicFacts | None], list[SourcePartition], set[SourcePartition]]:
    """Describes topics in one request: the topics (None: missing), partitions with a leader, and those without one."""
    wanted = list(wanted)
    facts = admin.describe_topics(sorted({item.topic for item in wanted}))
    existing = [
        (item, topic)
        for item in wanted
        if (topic := facts[item.topic]) is not None and item.partition < topic.partitions
    ]
    silent = {item for item, topic in existing if item.partition in topic.leaderless}
    return facts, [item for item, _ in existing if item not in silent], silent


def _offsets(
    admin: ClusterAdmin, wanted: list[SourcePartition], *, at: str, read_committed: bool
) -> Mapping[tuple[str, int], int]:
    """Returns offsets; a topic that was deleted since it was described is left out, and the others are asked again."""
    return skip_missing(
        lambda asked: admin.offsets(asked, at=at, read_committed=read_committed),
        wanted,
        passing=(TopicError,),
    )
