"""
Collects what the lanes of a link say, and tells where the link stands: pure, reports and time in, a picture out.

Lag in seconds of a running mirror is an upper bound for how long the oldest record that is not mirrored has been on
the source: the time since the partition's position was last seen at the log's end, but no more than the age of
the last mirrored record by its timestamp.  The first bound keeps an old, idle topic with one new record from
showing days; the second keeps a busy partition, which is never seen at its end, from showing the time since
the start.  The first is not known until the partition has been at its end in this run.  `eomirror.link.status`
sees no history, and looks at the oldest record itself.

A lag that may not be true any more is none: when an attempt ends early, or its lane has said nothing for
`SILENT_SECONDS`, the ends of the lane's partitions count as unknown.  A lane that has ended with its run has said where
it left off; one that has ended because its link failed is silent like any other, while other links go on.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.driver.snapshot import (
    RATE_WINDOW_SECONDS,
    Counters,
    LaneSnapshot,
    LinkSnapshot,
    PartitionSnapshot,
    TopicSnapshot,
    max_known,
    sum_known,
)
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.lane.spec import LaneProgress, LaneReport, PartitionProgress

__all__ = ["SILENT_SECONDS", "Progress"]

#: A lane says something at least every 2 s; after so many without a word its lag is not known any more.
SILENT_SECONDS = 5.0

# of how many earlier attempts of a lane something may still be heard: the one that goes on, and those that failed since
_LATELY = 8

# the driver's words for a lane without a worker because it has nothing to do: what it said last still holds
_AT_REST = frozenset({"idle", "ended"})


class Progress:
    """
    Collects what the lanes of one link say.  Not thread-safe: its owner holds a lock.

    Args:
        link: Name of the link.
    """

    def __init__(self, link: str) -> None:
        self.link = link
        self.state = "preparing"
        self.error = ""
        self.waiting = ""
        self._state_before = ""
        self.stopped_codes: dict[str, int] = {}
        self._stopped: dict[str, str] = {}
        self._lanes: dict[int, _Lane] = {}
        self._lane_of: dict[SourcePartition, int] = {}
        self._target_of: dict[str, str] = {}
        self._positions: dict[SourcePartition, _Heard] = {}
        # when a partition's position was last seen at the log's end; while it is there, `_Lane.heard` counts
        self._at_end: dict[SourcePartition, float] = {}
        self._goals: dict[SourcePartition, int] = {}
        self._history: deque[tuple[float, int, int]] = deque()

    # -- what happens ----------------------------------------------------------------------------

    def assign(self, lane: int, source: SourcePartition, target_topic: str) -> None:
        """A lane mirrors this partition."""
        self._lane(lane)
        self._lane_of[source] = lane
        self._target_of[source.topic] = target_topic

    def aim(self, goals: Mapping[SourcePartition, int]) -> None:
        """``until="caught-up"`` waits for these positions; partitions that no lane mirrors do not count."""
        self._goals = {source: goal for source, goal in goals.items() if source in self._lane_of}

    def begin(self, lane: int, *, epoch: int, attempt: int) -> None:
        """A new attempt starts; its counters begin at 0."""
        self._lane(lane).begin(epoch, attempt)

    def wait(self, reason: str) -> None:
        """
        Note that the link waits for a cluster, or goes on where it was.

        Args:
            reason: What it waits for; empty when it goes on.
        """
        if self.state != "failed":
            self._state_before = self._state_before if self.waiting else self.state
            self.state = "waiting" if reason else self._state_before
        self.waiting = reason

    def say(self, lane: int, state: str) -> None:
        """The driver knows the lane's state better than the lane, because no worker runs it."""
        self._lane(lane).state = state
        self._lane(lane).resting = state in _AT_REST

    def take(self, progress: LaneProgress, *, attempt: int, now: float) -> None:
        """
        A lane's sign of life.

        Args:
            progress: What it says.
            attempt: Attempt that says it; an older one than the present is ignored but for its positions.
            now: Monotonic seconds.
        """
        lane = self._lane(progress.lane)
        present = lane.mirrors(progress.epoch, attempt)
        for item in progress.partitions:
            source = SourcePartition(item.topic, item.partition)
            known = self._positions.get(source)
            if present or (progress.epoch, attempt) >= lane.attempt_id:
                self._note_end(source, lane)
                # whoever has failed knows its positions, but not any more where the source ends
                self._positions[source] = _Heard(item if present else _endless(item), now)
            elif known is None or item.position > known.item.position:
                # positions are committed facts and only grow, but for a source that was recreated and adopted
                self._note_end(source, lane)
                self._positions[source] = _Heard(_endless(item), now)
        if present:
            lane.heard = now
        for topic, reason in progress.stopped_topics.items():
            self._stopped.setdefault(topic, reason)
        counters = Counters(
            transactions=progress.transactions,
            records=progress.records,
            bytes=progress.bytes,
            dropped=progress.dropped,
            copied_headers=progress.copied_headers,
        )
        if (progress.epoch, attempt) != lane.attempt_id:
            lane.hear_last(progress.epoch, attempt, counters)
            return
        lane.spoken = True
        if not lane.resting:
            lane.state = progress.state
        lane.commit_ms = progress.commit_ms
        lane.plane, lane.plane_reason = progress.plane, progress.plane_reason
        lane.throttled, lane.delayed = progress.throttled, progress.delayed
        # its report may have come first
        lane.current = lane.current.at_least(counters)
        self._remember(now)

    def end(self, report: LaneReport, *, failure: str = "", now: float) -> None:
        """
        An attempt ended with a report.

        Args:
            report: The report; its totals are final.
            failure: Why it ended early; empty if it did not.
            now: Monotonic seconds.
        """
        lane = self._lane(report.lane)
        if (report.epoch, report.attempt) == lane.attempt_id:
            lane.current = Counters(
                transactions=max(report.transactions, lane.current.transactions),
                records=max(report.records, lane.current.records),
                bytes=lane.current.bytes,
                dropped=lane.current.dropped,
                copied_headers=lane.current.copied_headers,
            )
        for topic, (code, reason) in report.stopped_topics.items():
            self._stopped[topic] = reason
            self.stopped_codes[topic] = max(code, self.stopped_codes.get(topic, 0))
        if failure:
            self.fail_attempt(report.lane, failure)
        self._remember(now)

    def resume(self, topics: Collection[str]) -> None:
        """These topics, which were stopped, are mirrored again, or are about to be."""
        for topic in topics:
            self._stopped.pop(topic, None)
            self.stopped_codes.pop(topic, None)

    def fail_attempt(self, lane: int, failure: str) -> None:
        """An attempt ended early: where its sources end is not known until the next one has seen it."""
        failed = self._lane(lane)
        failed.retries += 1
        failed.last_failure = failure
        failed.failed = True
        for source, known in self._positions.items():
            if self._lane_of.get(source) == lane:
                self._note_end(source, failed)
                known.item = _endless(known.item)

    @property
    def lanes(self) -> dict[SourcePartition, int]:
        """The lane of every partition that is mirrored."""
        return dict(self._lane_of)

    @property
    def stopped(self) -> frozenset[str]:
        """Topics that are not mirrored any more."""
        return frozenset(self._stopped)

    # -- what follows from it --------------------------------------------------------------------

    @property
    def caught_up(self) -> bool:
        """Whether every goal is reached, or its topic is stopped."""
        return all(self._reached(source, goal) for source, goal in self._goals.items())

    def committed(self, lane: int) -> bool:
        """Whether the lane's present attempt has committed anything."""
        return self._lane(lane).current.transactions > 0

    @property
    def retries(self) -> int:
        """Attempts that ended early."""
        return sum(lane.retries for lane in self._lanes.values())

    def snapshot(self, now: float) -> LinkSnapshot:
        """The picture at ``now`` (monotonic seconds)."""
        self._remember(now)
        counters = Counters.sum(lane.total for lane in self._lanes.values())
        by_topic: dict[str, list[PartitionSnapshot]] = {}
        for source, lane in sorted(self._lane_of.items()):
            by_topic.setdefault(source.topic, []).append(self._partition(source, lane, now))
        topics = tuple(self._topic(topic, tuple(partitions)) for topic, partitions in by_topic.items())
        live = [topic for topic in topics if not topic.stopped]
        # a link that has not got as far as its topics is not caught up with them
        looked = bool(self._lane_of) or self.state == "running"
        then, records, size = self._history[0]
        seconds = max(now - then, 1e-3)
        measured = len(self._history) > 1
        commits = [lane.commit_ms for lane in self._lanes.values() if lane.commit_ms > 0]
        return LinkSnapshot(
            link=self.link,
            state=self.state,
            error=self.error,
            waiting=self.waiting,
            counters=counters,
            records_per_second=(counters.records - records) / seconds if measured else 0.0,
            bytes_per_second=(counters.bytes - size) / seconds if measured else 0.0,
            commit_ms=sum(commits) / len(commits) if commits else 0.0,
            lag_records=sum_known([topic.lag_records for topic in live]) if looked else None,
            lag_seconds=max_known([topic.lag_seconds for topic in live]) if looked else None,
            lanes=tuple(lane.snapshot(number) for number, lane in sorted(self._lanes.items())),
            topics=topics,
            goals=len(self._goals),
            goals_reached=sum(self._reached(source, goal) for source, goal in self._goals.items()),
        )

    # -- inside ----------------------------------------------------------------------------------

    def _lane(self, number: int) -> _Lane:
        return self._lanes.setdefault(number, _Lane())

    def _reached(self, source: SourcePartition, goal: int) -> bool:
        if source.topic in self._stopped:
            return True
        known = self._positions.get(source)
        return known is not None and known.item.position >= goal

    def _remember(self, now: float) -> None:
        counters = Counters.sum(lane.total for lane in self._lanes.values())
        self._history.append((now, counters.records, counters.bytes))
        # keep one entry at or before the window's start, so that the window is full
        while len(self._history) > 1 and self._history[1][0] <= now - RATE_WINDOW_SECONDS:
            self._history.popleft()

    def _topic(self, topic: str, partitions: tuple[PartitionSnapshot, ...]) -> TopicSnapshot:
        return TopicSnapshot(
            topic=topic,
            target_topic=self._target_of[topic],
            partitions=partitions,
            lag_records=sum_known([item.lag_records for item in partitions]),
            lag_seconds=max_known([item.lag_seconds for item in partitions]),
            stopped=self._stopped.get(topic, ""),
        )

    def _partition(self, source: SourcePartition, number: int, now: float) -> PartitionSnapshot:
        known = self._positions.get(source)
        goal = self._goals.get(source)
        if known is None:
            return PartitionSnapshot(partition=source.partition, lane=number, goal=goal)
        lane = self._lane(number)
        speaks = lane.speaks(now) or (lane.resting and self.state != "failed")
        item = known.item if speaks else _endless(known.item)
        lag = None if item.lso is None else max(0, item.lso - item.position)
        return PartitionSnapshot(
            partition=source.partition,
            lane=number,
            position=item.position,
            lso=item.lso,
            lag_records=lag,
            lag_seconds=self._behind(source, known, now) if lag else None if lag is None else 0.0,
            goal=goal,
        )

    def _behind(self, source: SourcePartition, known: _Heard, now: float) -> float | None:
        """Upper bound for how long the record behind the position has been on the source."""
        bounds = []
        if known.item.lag_seconds is not None:
            bounds.append(known.item.lag_seconds + (now - known.at))
        if source in self._at_end:
            bounds.append(now - self._at_end[source])
        return max(0.0, min(bounds)) if bounds else None

    def _note_end(self, source: SourcePartition, lane: _Lane) -> None:
        """Remember, before something newer is noted, that up to its lane's last word a position was at the end."""
        known = self._positions.get(source)
        if known is not None and known.item.lso is not None and known.item.position >= known.item.lso:
            self._at_end[source] = max(lane.heard, known.at)


class _Heard:
    """What was last said of a partition, and when (monotonic seconds)."""

    __slots__ = ("at", "item")

    def __init__(self, item: PartitionProgress, at: float) -> None:
        self.item = item
        self.at = at


def _endless(item: PartitionProgress) -> PartitionProgress:
    return replace(item, lso=None)


class _Lane:
    """A lane's work: what earlier attempts of this run left, and what the present one says."""

    __slots__ = (
        "attempt_id", "before", "commit_ms", "current", "delayed", "failed", "heard", "last_failure", "last_id",
        "lately", "plane", "plane_reason", "resting", "retries", "spoken", "state", "throttled",
    )  # fmt: skip

    def __init__(self) -> None:
        self.attempt_id = self.last_id = (0, 0)
        # long ago, the attempts that may still be heard of, oldest first, and the present one
        self.before = Counters()
        self.lately: dict[tuple[int, int], Counters] = {}
        self.current = Counters()
        self.state = "starting"
        self.commit_ms = 0.0
        self.plane = self.plane_reason = self.delayed = ""
        self.throttled: float | None = None
        self.retries = 0
        self.last_failure = ""
        # the present attempt has ended early
        self.failed = False
        # no worker runs it, and none is wanted; its machine has a state "idle" as well, which is something else
        self.resting = False
        # the present attempt has said something
        self.spoken = False
        # when the present attempt or one before it last said something
        self.heard = float("-inf")

    def begin(self, epoch: int, attempt: int) -> None:
        self.last_id = self.attempt_id
        # a query that begins anew may give an id twice
        again = self.lately.pop(self.last_id, None)
        self.lately[self.last_id] = self.current if again is None else self.current.plus(again)
        while len(self.lately) > _LATELY:
            self.before = self.before.plus(self.lately.pop(next(iter(self.lately))))
        self.attempt_id = (epoch, attempt)
        self.current = Counters()
        self.failed = self.resting = self.spoken = False
        self.state = "starting"
        self.delayed = ""

    def mirrors(self, epoch: int, attempt: int) -> bool:
        """Whether what this attempt says is true now: the present one, or one that goes on until that has spoken."""
        if (epoch, attempt) == self.attempt_id:
            return not self.failed
        # the first attempt of an epoch follows one that ended well
        follows = (epoch, attempt) == self.last_id and self.attempt_id == (epoch + 1, 1)
        return follows and not self.spoken and not self.failed

    def hear_last(self, epoch: int, attempt: int, counters: Counters) -> None:
        """An attempt before the present one went on for a while (`eomirror.spark.handover`), whatever failed since."""
        known = self.lately.get((epoch, attempt))
        if known is not None:
            self.lately[epoch, attempt] = known.at_least(counters)

    def speaks(self, now: float) -> bool:
        """Whether what it said last may still be true, although the source goes on."""
        return now - self.heard <= SILENT_SECONDS

    @property
    def total(self) -> Counters:
        return Counters.sum((self.before, *self.lately.values(), self.current))

    def snapshot(self, number: int) -> LaneSnapshot:
        return LaneSnapshot(
            lane=number,
            state=self.state,
            epoch=self.attempt_id[0],
            attempt=self.attempt_id[1],
            retries=self.retries,
            last_failure=self.last_failure,
            commit_ms=self.commit_ms,
            counters=self.total,
            plane=self.plane,
            plane_reason=self.plane_reason,
            throttled_seconds=self.throttled,
            delayed="" if self.failed or self.resting else self.delayed,
        )
