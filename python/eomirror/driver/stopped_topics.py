"""
Tracks the stopped topics of one link, and the records that show them in control.

Lanes report a stopped topic and its reason to the driver only.  The owner writes it to control with the next renewal of
its claim, so that `eomirror status` shows it, also after the run.  Fencing protects these records like the claim: a
driver that has lost the link cannot write them (EO-10).

A record is deleted when the topic resumes.  A lane that has just started may find the same refused record again with
its first fetch.  So a topic counts as resumed when each of its partitions has advanced in this run or is at its end, or
when its lanes have had all of them for `SETTLED_SECONDS` without stopping the topic again.

A revoked ACL may be granted again, and brokers that hold all replicas of a partition may come back.  The mirror must
then resume the topic without a restart (fault F30).  A retry costs the topic's lanes a short stop between two
transactions, so the delay doubles with each retry.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from eomirror.kafka.client_factory import holds_secret
from eomirror.lane.machine import LaneState
from eomirror.lane.spec import StoppedTopic
from eomirror.plane.protocol import MetadataRecord
from eomirror.records.control import Stopped
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.clock import Clock
    from eomirror.errors import MirrorError
    from eomirror.lane.spec import LaneProgress, LaneSpec
    from eomirror.types import SourcePartition

__all__ = ["SETTLED_SECONDS", "StopRecords", "UnauthorizedTopics"]

_FIRST_SECONDS = 5.0
_LONGEST_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class _Wait:
    """Delay of one topic; ``until`` is the time of the next retry, None while the topic is mirrored on trial."""

    seconds: float
    until: float | None
    tried_at: float


class UnauthorizedTopics:
    """Tracks the topics of one link that lack an ACL or a leader.  Not thread-safe: the caller holds a lock."""

    def __init__(self) -> None:
        self._waits: dict[str, _Wait] = {}

    def stopped(self, topics: Iterable[str], now: float) -> list[str]:
        """
        Records topics that were stopped because of a missing ACL or leader.

        Args:
            topics: Stopped topics; those that already wait keep their delay.
            now: Monotonic seconds.

        Returns:
            The topics that did not wait before.
        """
        fresh = [topic for topic in topics if not self.waits(topic)]
        for topic in fresh:
            last = self._waits.get(topic)
            # a topic that was mirrored for longer than its delay had recovered: its delay starts again at the minimum
            again = last is not None and now - last.tried_at <= max(last.seconds, _LONGEST_SECONDS)
            seconds = min(_LONGEST_SECONDS, 2 * last.seconds) if again and last else _FIRST_SECONDS
            self._waits[topic] = _Wait(seconds, now + seconds, now)
        return fresh

    def due(self, now: float) -> list[str]:
        """Returns the topics to retry now, and ends their wait."""
        due = [topic for topic, wait in self._waits.items() if wait.until is not None and wait.until <= now]
        for topic in due:
            self._waits[topic] = replace(self._waits[topic], until=None, tried_at=now)
        return due

    def waits(self, topic: str) -> bool:
        """Returns True if the topic is stopped because of a missing ACL or leader."""
        wait = self._waits.get(topic)
        return wait is not None and wait.until is not None

    def __bool__(self) -> bool:
        return any(wait.until is not None for wait in self._waits.values())


#: A topic counts as resumed when its lanes have fetched it for this long without stopping it.
SETTLED_SECONDS = 5.0

# every starting lane reads control, so the text of a reason is limited
_MOST_CHARACTERS = 4_000

_HIDDEN = StoppedTopic(
    "the reason is hidden because it contains a secret", "remove the secret from the name that contains it"
)

# states of a starting lane: it has read its positions and not yet compared them with the topics
_ON_THE_WAY_UP = frozenset(
    {LaneState.STARTING, LaneState.CONTROL, LaneState.POSITIONS, LaneState.COMPARING, LaneState.RESOLVING}
) | {LaneState.CLOSED}


class StopRecords:
    """
    Keeps the stopped topics in control up to date with the lanes' reports.  Thread-safe.

    Args:
        spec: Spec of the link's lanes; names the link, its clusters and the run.
        clock: Source of timestamps and of `SETTLED_SECONDS`.
    """

    def __init__(self, spec: LaneSpec, clock: Clock) -> None:
        self._topic = LinkNames(spec.link.state_name).control_topic
        self._run = spec.run
        self._clusters = (spec.source, spec.target)
        self._clock = clock
        self._lock = threading.Lock()
        # stopped by this run
        self._stopped: dict[str, Stopped] = {}
        # of these, the topics given to `left_out`
        self._left_out: set[str] = set()
        # the record of each topic in control, as far as this run knows
        self._written: dict[str, Stopped] = {}
        # topics that control shows as stopped and that may resume: per partition the position at which a lane started
        # it, None before; partitions that have resumed are removed
        self._waiting: dict[str, dict[int, int | None]] = {}
        # time at which lanes had started all of these partitions
        self._begun: dict[str, float] = {}

    def inherit(self, stopped: Iterable[Stopped], mirrored: Collection[SourcePartition]) -> None:
        """
        Records the stopped topics in control when the link is taken.

        Args:
            stopped: Records of earlier runs.
            mirrored: All partitions that this run mirrors; a topic without any is not stopped any more.
        """
        with self._lock:
            for record in stopped:
                self._written[record.topic] = record
                if record.topic not in self._stopped:
                    self._await(record.topic, mirrored)

    def stopped(self, topics: Mapping[str, StoppedTopic], lane: int | None) -> None:
        """
        Records stopped topics.

        Args:
            topics: Reason of each topic.
            lane: Lane that stopped them; None for the owner.
        """
        with self._lock:
            for topic, given in topics.items():
                self._waiting.pop(topic, None)
                self._begun.pop(topic, None)
                if topic in self._stopped:
                    continue
                hidden = any(holds_secret(cluster, str(given)) for cluster in self._clusters)
                shown = _HIDDEN if hidden else given
                stop = Stopped(
                    topic=topic,
                    reason=shown.reason[:_MOST_CHARACTERS],
                    fix=shown.fix[:_MOST_CHARACTERS],
                    exit_code=given.exit_code,
                    lane=lane,
                    run=self._run,
                    timestamp=self._clock.wall_ms(),
                )
                known = self._written.get(topic)
                # retried and stopped again for the same reason: keep the record of the first time
                self._stopped[topic] = known if known is not None and known.same_reason(stop) else stop

    def left_out(self, topics: Mapping[str, MirrorError]) -> None:
        """
        Records the topics that discovery skips before a lane has them.

        Args:
            topics: All skipped topics with the reason; an earlier one that is missing here is about to be mirrored.
        """
        given = {topic: StoppedTopic.of(error) for topic, error in topics.items()}
        with self._lock:
            for topic in self._left_out - topics.keys():
                self._stopped.pop(topic, None)
                self._waiting[topic] = {}
            for topic in self._left_out & topics.keys():
                stop = self._stopped.get(topic)
                if (
                    stop is not None
                    and stop.lane is None
                    and stop.reason != given[topic].reason[:_MOST_CHARACTERS]
                ):
                    # such as the number of topics that a quota has let through
                    del self._stopped[topic]
            self._left_out = set(topics)
        self.stopped(given, None)

    def tried_again(self, topics: Iterable[str], mirrored: Collection[SourcePartition]) -> None:
        """Records that stopped topics are retried."""
        with self._lock:
            for topic in topics:
                if self._stopped.pop(topic, None) is not None and topic in self._written:
                    self._await(topic, mirrored)

    def update(self, progress: LaneProgress, stopped: Collection[str]) -> None:
        """
        Records the partitions that a lane has started, and the topics that it has stopped.

        Args:
            progress: Report of the lane.
            stopped: Its stopped topics, without those that are to be retried.
        """
        self.stopped({topic: progress.stopped_topics[topic] for topic in stopped}, progress.lane)
        with self._lock:
            if not self._waiting or progress.state in _ON_THE_WAY_UP:
                return
            for item in progress.partitions:
                waiting = self._waiting.get(item.topic, {})
                if item.partition not in waiting:
                    continue
                stood = waiting[item.partition]
                if stood is None:
                    waiting[item.partition] = stood = item.position
                if item.position > stood or (item.lso is not None and item.position >= item.lso):
                    del waiting[item.partition]
                if None not in waiting.values():
                    self._begun.setdefault(item.topic, self._clock.monotonic())

    def write(self, commit: Callable[[Sequence[MetadataRecord]], None]) -> None:
        """
        Passes the records that control lacks to ``commit``, possibly none.

        If ``commit`` raises, the error is raised and the same records are due again.
        """
        with self._lock:
            due = self._due()
        commit(
            [
                MetadataRecord(self._topic, 0, Stopped.key_of(topic), None if stop is None else stop.value())
                for topic, stop in sorted(due.items())
            ]
        )
        with self._lock:
            for topic, stop in due.items():
                if stop is None:
                    self._written.pop(topic, None)
                    self._waiting.pop(topic, None)
                    self._begun.pop(topic, None)
                else:
                    self._written[topic] = stop
                    if topic not in self._stopped:
                        # retried during the write: the next write deletes the record
                        self._waiting.setdefault(topic, {})

    # -- inside ----------------------------------------------------------------------------------

    def _await(self, topic: str, mirrored: Collection[SourcePartition]) -> None:
        self._waiting[topic] = {source.partition: None for source in mirrored if source.topic == topic}
        self._begun.pop(topic, None)

    def _due(self) -> dict[str, Stopped | None]:
        due: dict[str, Stopped | None] = {
            topic: stop for topic, stop in self._stopped.items() if stop != self._written.get(topic)
        }
        now = self._clock.monotonic()
        for topic, waiting in self._waiting.items():
            # empty if the link does not mirror the topic any more
            settled = now - self._begun.get(topic, now) >= SETTLED_SECONDS
            if topic in self._written and (not waiting or settled):
                due[topic] = None
        return due
