"""
Aggregates the progress of a link's lanes into snapshots. Pure.

Lag in seconds of a running mirror is an upper bound for the time that the oldest unmirrored record has been on the
source.  It is the smaller of two bounds: the time since the partition's position was last seen at the log's end, and
the age of the last mirrored record by its timestamp.  The first bound keeps an old, idle topic with one new record from
showing days.  The second keeps a busy partition, which is never seen at its end, from showing the time since the start.
The first is unknown until the partition has been at its end in this run.  `eomirror.status.derive` has no history and
reads the oldest record itself.

An outdated lag is shown as unknown: if an attempt ends early, or its lane has reported nothing for `SILENT_SECONDS`,
the end offsets of the lane's partitions become unknown.  A lane that ended with its run keeps its last lag; a lane of a
failed link does not, while other links run.  A run that ends because all goals are reached keeps the lag that ended it:
an end that is unknown then is the goal.  A lag that is unknown has a reason.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.errors import MirrorError, SupersededError
from eomirror.plane.protocol import Serving
from eomirror.status.goals import Goals
from eomirror.status.model import LaneStatus, PartitionStatus
from eomirror.status.snapshot import (
    RATE_WINDOW_SECONDS,
    LinkSnapshot,
    TopicSnapshot,
    max_known,
    sum_known,
)
from eomirror.status.work import Counters, LaneWork, PartitionLoad, TopicWork, WorkLedger
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from eomirror.lane.spec import LaneProgress, LaneReport, PartitionProgress, StoppedTopic
    from eomirror.records.control import Pause

__all__ = ["SILENT_SECONDS", "LinkPhase", "Progress"]

#: A lane reports at least every 2 s; after this many seconds without a report its lag is unknown.
SILENT_SECONDS = 5.0

# earlier attempts of a lane that may still report: the one that mirrors on, and those that have failed since
_RECENT = 8

# reasons of an unknown lag, and partitions of each, that one line names
_MOST_REASONS = 3
_MOST_PARTITIONS = 3

_NO_WORK = TopicWork()

# states of a lane that needs no worker because it has no work: its last report stays true
_AT_REST = frozenset({"idle", "ended", "lent"})


class LinkPhase:
    """
    State of a link and its reason.

    Attributes:
        state: One of ``standby``, ``preparing``, ``acquiring``, ``running``, ``paused``, ``waiting``, ``stopping``,
            ``done`` and ``failed``, which is final.
        error: Error that failed the link; empty if none did.
        waiting: Error that the link waits for; empty if it does not wait.
        fix: Recommended action.
        superseded: True if another mirror owns the link.
    """

    __slots__ = ("_before", "error", "fix", "state", "superseded", "waiting")

    def __init__(self) -> None:
        self.state = "preparing"
        self.error = self.waiting = self.fix = self._before = ""
        self.superseded = False

    def enter(self, state: str) -> None:
        """Sets the state of a link that has not failed."""
        if self.state != "failed":
            self.state = state

    def wait(self, reason: str, fix: str = "") -> None:
        """
        Records that the link waits for a cluster, or has resumed.

        Args:
            reason: Error that the link waits for; empty when it resumes.
            fix: Recommended action.
        """
        if self.state != "failed":
            self._before = self._before if self.waiting else self.state
            self.state = "waiting" if reason else self._before
            self.fix = fix
        self.waiting = reason

    def fail(self, error: BaseException) -> None:
        """Records the error that fails the link."""
        self.error = error.message if isinstance(error, MirrorError) else str(error)
        self.fix = error.fix if isinstance(error, MirrorError) else ""
        self.superseded = isinstance(error, SupersededError)
        self.state = "failed"


class Progress:
    """
    Aggregates the progress of one link's lanes.  Not thread-safe: the caller holds a lock.

    Reason for its size: every figure comes from the same reports.
    """

    def __init__(self, link: str) -> None:
        self.link = link
        self.phase = LinkPhase()
        self.stopped: dict[str, StoppedTopic] = {}
        self.pause: Pause | None = None
        self._lanes: defaultdict[int, _Lane] = defaultdict(_Lane)
        self._work = WorkLedger()
        self._lane_of: dict[SourcePartition, int] = {}
        self._topics: dict[str, _Topic] = {}
        # what the snapshots of topics depend on besides their partitions
        self._drawn_for: object = None
        self._positions: dict[SourcePartition, _LastProgress] = {}
        # when a partition's position was last seen at the log's end; while it is there, `_Lane.heard` is that time
        self._at_end: dict[SourcePartition, float] = {}
        self._goals = Goals()
        self._concluded = False
        self._history: deque[tuple[float, int, int]] = deque()

    # -- events ----------------------------------------------------------------------------------

    def assign(self, lane: int, source: SourcePartition, target_topic: str) -> None:
        """Records that a lane mirrors this partition."""
        self._lanes.setdefault(lane, _Lane())
        self._lane_of[source] = lane
        topic = self._topics.setdefault(source.topic, _Topic())
        topic.target, topic.drawn = target_topic, None
        topic.sources.add(source)

    def release(self, topics: Collection[str]) -> None:
        """Forgets topics that the link mirrors no more."""
        self._goals.release(topics)
        for topic in topics:
            self.stopped.pop(topic, None)
            for source in self._topics.pop(topic, _Topic()).sources:
                for known in (self._lane_of, self._positions, self._at_end):
                    known.pop(source, None)

    def set_goals(
        self, goals: Mapping[SourcePartition, int], ends: Mapping[SourcePartition, int] | None = None
    ) -> None:
        """
        Sets the positions that ``until="caught-up"`` waits for, without partitions that no lane mirrors.

        Args:
            goals: Last stable offsets.
            ends: Ends of the logs, read before them: an end that is larger stands behind an open transaction.
        """
        self._goals.set(
            {source: goal for source, goal in goals.items() if source in self._lane_of}, ends or {}
        )

    def conclude(self) -> None:
        """Records that the run ends because all goals are reached: its lag stays known while the lanes end."""
        self._concluded = True

    def begin(self, lane: int, *, epoch: int, attempt: int) -> None:
        """Records the start of an attempt; its counters begin at 0."""
        self._lanes[lane].begin(epoch, attempt)

    def set_lane_state(self, lane: int, state: str) -> None:
        """Sets the state of a lane that no worker runs."""
        self._lanes[lane].state = state
        self._lanes[lane].resting = state in _AT_REST

    def update(self, progress: LaneProgress, *, attempt: int, now: float) -> None:
        """
        Records a lane's progress.

        Args:
            progress: Report of the lane.
            attempt: Attempt that reports; of an earlier attempt than the current one, only positions and counters are
                used.
            now: Monotonic seconds.
        """
        lane = self._lanes[progress.lane]
        self._work.update(progress, attempt=attempt)
        present = lane.mirrors(progress.epoch, attempt)
        for item in progress.partitions:
            source = SourcePartition(item.topic, item.partition)
            if self._lane_of.get(source, progress.lane) != progress.lane:
                # it has moved to another lane, which knows better
                continue
            _forget_drawn(self._topics.get(item.topic))
            known = self._positions.get(source)
            if present or (progress.epoch, attempt) >= lane.attempt_id:
                self._note_end(source, lane)
                # the positions of a failed attempt are true, but its end offsets are outdated
                self._positions[source] = _LastProgress(item if present else _without_end(item), now)
            elif known is None or item.position > known.item.position:
                # committed positions only grow, except for a recreated source that was adopted
                self._note_end(source, lane)
                self._positions[source] = _LastProgress(_without_end(item), now)
        if present:
            lane.heard = now
        for topic, stop in progress.stopped_topics.items():
            self.stopped.setdefault(topic, stop)
        counters = Counters(
            transactions=progress.transactions,
            records=progress.records,
            bytes=progress.bytes,
            dropped=progress.dropped,
            copied_headers=progress.copied_headers,
        )
        if (progress.epoch, attempt) != lane.attempt_id:
            lane.update_earlier(progress.epoch, attempt, counters)
            return
        lane.reported = True
        if not lane.resting:
            lane.state = progress.state
        lane.report, lane.serving = replace(progress, partitions=()), progress.serving
        # its report may have come first
        lane.current = lane.current.at_least(counters)
        self._remember(now)

    def end(self, report: LaneReport, *, failure: str = "", now: float) -> None:
        """
        Records the report of an ended attempt.

        Args:
            report: Report of the attempt; its totals are final.
            failure: Reason of an early end; else empty.
            now: Monotonic seconds.
        """
        lane = self._lanes[report.lane]
        if (report.epoch, report.attempt) == lane.attempt_id:
            lane.current = Counters(
                transactions=max(report.transactions, lane.current.transactions),
                records=max(report.records, lane.current.records),
                bytes=lane.current.bytes,
                dropped=lane.current.dropped,
                copied_headers=lane.current.copied_headers,
            )
        for topic, stop in report.stopped_topics.items():
            known = self.stopped.get(topic, stop)
            self.stopped[topic] = replace(stop, exit_code=max(stop.exit_code, known.exit_code))
        if failure:
            self.fail_attempt(report.lane, failure)
            lane.endings[str(report.ending)] += 1
        self._remember(now)

    def resume(self, topics: Collection[str]) -> None:
        """Removes the stops of topics that are to be retried."""
        for topic in topics:
            self.stopped.pop(topic, None)

    def fail_attempt(self, lane: int, failure: str) -> None:
        """Records an early end of an attempt; end offsets are unknown until the next attempt reports."""
        failed = self._lanes[lane]
        failed.retries += 1
        failed.last_failure = failure
        failed.failed = True
        for source, known in self._positions.items():
            if self._lane_of.get(source) == lane:
                _forget_drawn(self._topics.get(source.topic))
                self._note_end(source, failed)
                known.item = _without_end(known.item)

    @property
    def lanes(self) -> dict[SourcePartition, int]:
        """Lane of every mirrored partition."""
        return dict(self._lane_of)

    # -- state -----------------------------------------------------------------------------------

    @property
    def all_stopped(self) -> bool:
        """True if the link has topics, and each of them is stopped."""
        return bool(self._topics) and all(topic in self.stopped for topic in self._topics)

    @property
    def caught_up(self) -> bool:
        """True if every goal is reached or its topic is stopped."""
        return all(self._reached(source, goal) for source, goal in self._goals.offsets.items())

    def committed(self, lane: int) -> bool:
        """Returns True if the lane's current attempt has committed a transaction."""
        return self._lanes[lane].current.transactions > 0

    def loads(self, now: float) -> dict[SourcePartition, PartitionLoad]:
        """Returns the work on each partition that is mirrored and was reported, at ``now`` (monotonic seconds)."""
        found = {}
        for source, known in self._positions.items():
            held = self.pause is not None and self.pause.holds(source.topic)
            if held or source.topic in self.stopped or source not in self._lane_of:
                continue
            lso, position = known.item.lso, known.item.position
            lag = None if lso is None else max(0, lso - position)
            behind = self._behind(source, known, now) if lag else None
            work = self._work.partitions.get(source, (0, 0))
            found[source] = PartitionLoad(self._lane_of[source], *work, lag, behind or 0.0)
        return found

    def snapshot(self, now: float) -> LinkSnapshot:
        """Returns the state of the link at ``now`` (monotonic seconds)."""
        self._remember(now)
        counters = Counters.sum(lane.total for lane in self._lanes.values())
        topics = self._draw_topics(now)
        live = [topic for topic in topics if not topic.stopped and not topic.paused]
        held = not live and any(topic.paused for topic in topics)
        # without topics the lag is 0, which is true only once the link runs
        discovered = bool(self._lane_of) or self.phase.state in {"running", "paused"}
        # nothing tells how far a link is behind whose lanes hold everything
        discovered = discovered and not held
        unknown = (
            _unknown_lags(live)
            if discovered
            else "all topics are paused"
            if held
            else f"the link is {self.phase.state}"
        )
        then, records, size = self._history[0]
        seconds = max(now - then, 1e-3)
        measured = len(self._history) > 1
        reports = [lane.report for lane in self._lanes.values() if lane.report is not None]
        commits = [report.commit_ms for report in reports if report.commit_ms > 0]
        goals = self._goals.offsets
        way = self._goals.look(
            now,
            {source: known.item.position for source, known in self._positions.items()} if goals else {},
            self._lane_of,
            self.stopped,
        )
        return LinkSnapshot(
            link=self.link,
            state=self.phase.state,
            error=self.phase.error,
            waiting=self.phase.waiting,
            fix=self.phase.fix,
            superseded=self.phase.superseded,
            counters=counters,
            records_per_second=(counters.records - records) / seconds if measured else 0.0,
            bytes_per_second=(counters.bytes - size) / seconds if measured else 0.0,
            commit_ms=sum(commits) / len(commits) if commits else 0.0,
            lag_records=sum_known([topic.lag_records for topic in live]) if discovered else None,
            lag_seconds=max_known([topic.lag_seconds for topic in live]) if discovered else None,
            lanes=tuple(
                lane.snapshot(number, self._work.lanes.get(number, LaneWork()), now)
                for number, lane in sorted(self._lanes.items())
            ),
            topics=topics,
            paused="" if self.pause is None else (self.pause.topics or ".*"),
            goals=len(goals),
            goals_reached=sum(self._reached(source, goal) for source, goal in goals.items()),
            goal_progress=way,
            caught_up=self._concluded,
            lag_unknown=unknown,
            behind_open=self._behind_open(),
        )

    # -- inside ----------------------------------------------------------------------------------

    def _reached(self, source: SourcePartition, goal: int) -> bool:
        if source.topic in self.stopped:
            return True
        known = self._positions.get(source)
        return known is not None and known.item.position >= goal

    def _behind_open(self) -> dict[str, int]:
        found = {}
        for source, end in sorted(self._goals.ends.items()):
            known = self._positions.get(source)
            position = max(self._goals.offsets[source], 0 if known is None else known.item.position)
            if end > position:
                found[str(source)] = end - position
        return found

    def _draw_topics(self, now: float) -> tuple[TopicSnapshot, ...]:
        """Returns the snapshots of all topics; one without lag, which time does not change, is drawn once."""
        reports = [lane.resting or lane.reports(now) for lane in self._lanes.values()]
        drawn_for = (self.phase.state, self.pause, self._concluded, reports)
        if drawn_for != self._drawn_for:
            self._drawn_for = drawn_for
            for topic in self._topics.values():
                topic.drawn = None
        topics = []
        for name, topic in sorted(self._topics.items()):
            stop, work = self.stopped.get(name), self._work.topics.get(name, _NO_WORK)
            drawn = topic.drawn
            if drawn is None or drawn.stopped is not stop or drawn.work is not work:
                partitions = [
                    self._partition(source, self._lane_of[source], now) for source in sorted(topic.sources)
                ]
                drawn = self._topic(name, tuple(partitions))
                topic.drawn = drawn if drawn.lag_records == 0 else None
            topics.append(drawn)
        return tuple(topics)

    def _remember(self, now: float) -> None:
        counters = Counters.sum(lane.total for lane in self._lanes.values())
        self._history.append((now, counters.records, counters.bytes))
        # keep one entry at or before the window's start, so that the window is full
        while len(self._history) > 1 and self._history[1][0] <= now - RATE_WINDOW_SECONDS:
            self._history.popleft()

    def _topic(self, topic: str, partitions: tuple[PartitionStatus, ...]) -> TopicSnapshot:
        return TopicSnapshot(
            topic=topic,
            target_topic=self._topics[topic].target,
            partitions=partitions,
            lag_records=sum_known([item.lag_records for item in partitions]),
            lag_seconds=max_known([item.lag_seconds for item in partitions]),
            stopped=self.stopped.get(topic),
            work=self._work.topics.get(topic, _NO_WORK),
            paused=self.pause is not None and self.pause.holds(topic),
        )

    def _partition(self, source: SourcePartition, number: int, now: float) -> PartitionStatus:
        known = self._positions.get(source)
        lane, stop = self._lanes[number], self.stopped.get(source.topic)
        shown = PartitionStatus(
            topic=source.topic,
            partition=source.partition,
            target_topic=self._topics[source.topic].target,
            lane=number,
            position=0,
            stopped=stop is not None,
            paused=self.pause is not None and self.pause.holds(source.topic),
            problem="" if stop is None else stop.reason,
            fix="" if stop is None else stop.fix,
        )
        if known is None:
            return replace(shown, lag_unknown=self._reason(number, now))
        lasting = (lane.resting or self._concluded) and self.phase.state != "failed"
        # its lane goes on with other topics, and reads no end of this one
        held = self.pause is not None and self.pause.holds(source.topic)
        item = _without_end(known.item) if held or not (lasting or lane.reports(now)) else known.item
        goal = self._goals.offsets.get(source)
        if item.lso is None and goal is not None and self._concluded and self.phase.state != "failed":
            item = replace(item, lso=max(goal, item.position))
        lag = None if item.lso is None else max(0, item.lso - item.position)
        return replace(
            shown,
            position=item.position,
            source_lso=item.lso,
            lag_records=lag,
            lag_seconds=self._behind(source, known, now) if lag else None if lag is None else 0.0,
            lag_unknown=""
            if lag is not None
            else "its topic is paused"
            if held
            else self._reason(number, now),
        )

    def _reason(self, number: int, now: float) -> str:
        """Returns the reason why the lag of a partition of this lane is unknown."""
        lane = self._lanes[number]
        if self.phase.state == "failed":
            return "the link has failed"
        if lane.failed:
            return f"lane {number} restarts after a failure: {lane.last_failure}"
        if lane.serving.delayed and not lane.resting:
            return f"lane {number} is delayed: {lane.serving.delayed}"
        if not lane.reported and not lane.resting:
            return f"lane {number} is starting: its worker has not reported yet"
        if silent := lane.silent(now):
            return f"lane {number} has not reported for {silent:.0f} s"
        return f"lane {number} has not read the end on the source yet"

    def _behind(self, source: SourcePartition, known: _LastProgress, now: float) -> float | None:
        """Returns an upper bound of the time that the record at the position has been on the source."""
        bounds = []
        if known.item.lag_seconds is not None:
            bounds.append(known.item.lag_seconds + (now - known.at))
        if source in self._at_end:
            bounds.append(now - self._at_end[source])
        return max(0.0, min(bounds)) if bounds else None

    def _note_end(self, source: SourcePartition, lane: _Lane) -> None:
        """Saves, before a newer report, that the position was at the end until the lane's last report."""
        known = self._positions.get(source)
        if known is not None and known.item.lso is not None and known.item.position >= known.item.lso:
            self._at_end[source] = max(lane.heard, known.at)


class _Topic:
    """A source topic: its copy, its partitions, and its last snapshot if it had no lag."""

    __slots__ = ("drawn", "sources", "target")

    def __init__(self) -> None:
        self.target = ""
        self.sources: set[SourcePartition] = set()
        self.drawn: TopicSnapshot | None = None


def _forget_drawn(topic: _Topic | None) -> None:
    if topic is not None:
        topic.drawn = None


def _unknown_lags(topics: Collection[TopicSnapshot]) -> str:
    """Returns partitions whose lag is unknown, by reason, in one line; empty if all are known."""
    by_reason: dict[str, list[str]] = {}
    for topic in topics:
        for item in topic.partitions if topic.lag_records is None else ():
            if item.lag_unknown:
                by_reason.setdefault(item.lag_unknown, []).append(f"{topic.topic}-{item.partition}")
    parts = []
    for reason, names in list(by_reason.items())[:_MOST_REASONS]:
        more = f" and {len(names) - _MOST_PARTITIONS} more" if len(names) > _MOST_PARTITIONS else ""
        parts.append(f"{', '.join(names[:_MOST_PARTITIONS])}{more}: {reason}")
    if len(by_reason) > _MOST_REASONS:
        parts.append(f"and {len(by_reason) - _MOST_REASONS} more reasons")
    return "; ".join(parts)


class _LastProgress:
    """Last reported progress of a partition, and its time (monotonic seconds)."""

    __slots__ = ("at", "item")

    def __init__(self, item: PartitionProgress, at: float) -> None:
        self.item = item
        self.at = at


def _without_end(item: PartitionProgress) -> PartitionProgress:
    return replace(item, lso=None)


class _Lane:
    """Tracks a lane: the work of earlier attempts of this run, and the state of the current one."""

    __slots__ = (
        "attempt_id", "before", "current", "endings", "failed", "heard", "last_failure", "last_id", "recent", "report",
        "reported", "resting", "retries", "serving", "state",
    )  # fmt: skip

    def __init__(self) -> None:
        self.attempt_id = self.last_id = (0, 0)
        # finished attempts, attempts that may still report (oldest first), and the current one
        self.before = Counters()
        self.recent: dict[tuple[int, int], Counters] = {}
        self.current = Counters()
        self.state = "starting"
        # last report of an attempt, and its plane as far as it is still true
        self.report: LaneProgress | None = None
        self.serving = Serving()
        self.retries = 0
        self.last_failure = ""
        self.endings: Counter[str] = Counter()
        # the current attempt has ended early
        self.failed = False
        # the lane needs no worker; not the same as the state "idle" of its machine
        self.resting = False
        # the current attempt has reported
        self.reported = False
        # time of the last report of the current attempt or an earlier one
        self.heard = float("-inf")

    def begin(self, epoch: int, attempt: int) -> None:
        self.last_id = self.attempt_id
        # an id may occur twice
        again = self.recent.pop(self.last_id, None)
        self.recent[self.last_id] = self.current if again is None else self.current.plus(again)
        while len(self.recent) > _RECENT:
            self.before = self.before.plus(self.recent.pop(next(iter(self.recent))))
        self.attempt_id = (epoch, attempt)
        self.current = Counters()
        self.failed = self.resting = self.reported = False
        self.state = "starting"
        self.serving = replace(self.serving, delayed="")

    def mirrors(self, epoch: int, attempt: int) -> bool:
        """Returns True if this attempt mirrors: it is the current one, or the one before until that has reported."""
        if (epoch, attempt) == self.attempt_id:
            return not self.failed
        # the first attempt of an epoch follows one that ended well
        follows = (epoch, attempt) == self.last_id and self.attempt_id == (epoch + 1, 1)
        return follows and not self.reported and not self.failed

    def update_earlier(self, epoch: int, attempt: int, counters: Counters) -> None:
        """Updates the work of an earlier attempt that mirrored on after its epoch (`eomirror.spark.handover`)."""
        known = self.recent.get((epoch, attempt))
        if known is not None:
            self.recent[epoch, attempt] = known.at_least(counters)

    def reports(self, now: float) -> bool:
        """Returns True if the last report is recent enough to be true."""
        return now - self.heard <= SILENT_SECONDS

    @property
    def total(self) -> Counters:
        return Counters.sum((self.before, *self.recent.values(), self.current))

    def silent(self, now: float) -> float:
        """Returns the seconds since the last report of an attempt that should report; 0 while it does."""
        expected = self.reported and not self.failed and not self.resting
        return now - self.heard if expected and not self.reports(now) else 0.0

    def snapshot(self, number: int, work: LaneWork, now: float) -> LaneStatus:
        without = self.failed or self.resting
        return LaneStatus(
            lane=number,
            state=self.state,
            silent_seconds=self.silent(now),
            epoch=self.attempt_id[0],
            attempt=self.attempt_id[1],
            retries=self.retries,
            last_failure=self.last_failure,
            counters=self.total,
            serving=replace(self.serving, delayed="") if without else self.serving,
            report=None if without else self.report,
            endings=dict(self.endings),
            work=work,
            lent=self.state == "lent",
        )
