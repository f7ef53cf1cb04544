"""
One lane, seen from the driver: a thread that runs attempt after attempt and does what the table says in between.

The thread blocks in Spark while an attempt runs.  Everybody else (planner, channel, stop) changes the lane's fields
under its lock and then speaks to the running attempt, if there is one; what an attempt was not told in time, it is
told when it connects (`greeting`) or the next one finds in its spec.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from eomirror.clock import Clock, jitter
from eomirror.driver.retry import Action, Backoff, epoch_seconds, next_action
from eomirror.errors import (
    AuthorizationError,
    DataLossError,
    LaneError,
    MirrorError,
    SupersededError,
)
from eomirror.lane.spec import AssignedPartition, Ending, LaneReport, LaneSpec, StopReason
from eomirror.spark.frames import encode_added
from eomirror.spark.job_errors import Crash
from eomirror.spark.jobs import LaneCrashedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.driver.channel import AttemptId
    from eomirror.recovery.corrupt_batches import Damage

__all__ = ["LaneHost", "LaneThread", "error_of"]

log = structlog.get_logger(__name__)

_STOP = {"type": "stop", "reason": StopReason.SHUTDOWN}
_RECONFIGURE = {"type": "stop", "reason": StopReason.RECONFIGURE}
_EPOCH_JITTER = 0.05


class LaneHost(Protocol):
    """What a lane needs of its link."""

    def run_attempt(self, spec: LaneSpec) -> LaneReport:
        """Run it on Spark; raises LaneCrashedError."""

    def tell(self, lane: int, messages: Iterable[Mapping[str, Any]]) -> None:
        """Send messages to the lane's running attempt, if it is connected."""

    def tell_all(self, lane: int, messages: Iterable[Mapping[str, Any]]) -> None:
        """Send messages to every attempt of the lane that is connected: one may go on behind its epoch."""

    def await_silence(self, lane: int) -> None:
        """Wait a while until no attempt of the lane is connected: until then, one may mirror."""

    def check_owner(self) -> None:
        """Find out who fenced a lane; raises SupersededError."""

    def attempt_begun(self, spec: LaneSpec) -> None:
        """An attempt starts."""

    def attempt_ended(self, spec: LaneSpec, report: LaneReport | None, failure: str) -> None:
        """An attempt ended; ``failure`` says why, if it ended early."""

    def rests(self, lane: int, state: str) -> None:
        """No worker runs the lane now; ``state`` says why."""

    def committed(self, lane: int) -> bool:
        """Whether the lane's present attempt has committed anything."""

    @property
    def patient(self) -> bool:
        """Whether the run waits for rights that are missing."""

    def fail(self, error: BaseException, *, everything: bool = False) -> None:
        """The link cannot go on; or nothing can."""


@dataclass(frozen=True, slots=True)
class _Ended:
    """How an attempt ended."""

    how: Ending | Crash
    text: str
    report: LaneReport | None = None

    def without(self, retaken: Collection[str]) -> _Ended:
        """The same, but for topics that are to be mirrored again."""
        if self.report is None or not retaken:
            return self
        stopped = {topic: why for topic, why in self.report.stopped_topics.items() if topic not in retaken}
        unauthorized = self.report.unauthorized_topics - set(retaken)
        return replace(
            self, report=replace(self.report, stopped_topics=stopped, unauthorized_topics=unauthorized)
        )


class LaneThread:
    """
    Runs one lane until it is stopped or its link fails.

    Args:
        template: Spec with all that is common to the lane's attempts.
        lanes: How many lanes the link has.
        host: The link.
        clock: Where time comes from.
    """

    def __init__(self, template: LaneSpec, *, lanes: int, host: LaneHost, clock: Clock) -> None:
        self.lane = template.lane
        self._template = template
        self._lanes = lanes
        self._host = host
        self._clock = clock
        self._changed = threading.Condition()
        self._partitions = list(template.partitions)
        self._stopped_topics: set[str] = set()
        # whether the running attempt was given topics that are stopped by now, or lacks some that are not any more
        self._outdated = False
        # what is to be tried again: the running attempt's word that it is stopped is old
        self._retaken: set[str] = set()
        self._heard: tuple[int, ...] = ()
        self._running: LaneSpec | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self, thread: Callable[[Callable[[], None], str], threading.Thread]) -> None:
        """Start, in a thread that ``thread`` makes."""
        self._thread = thread(self._run, f"lane-{self._template.link.name}-{self.lane}")
        self._thread.start()

    def add(self, partitions: Sequence[AssignedPartition]) -> None:
        """Mirror these as well, from now on; already published in control (rule 2)."""
        with self._changed:
            self._partitions.extend(partitions)
            wanted = [item for item in partitions if item.source.topic not in self._stopped_topics]
            running = self._running is not None
            self._changed.notify_all()
        if running:
            self._host.tell(self.lane, encode_added(wanted))

    def drop(self, topics: Collection[str]) -> None:
        """
        Mirror these topics no longer: another lane of the link stopped them.

        A topic is stopped for what it is (a record that the target refuses, a recreated source), so half of its
        partitions must not go on.  The running attempt hands back between two transactions; the next does without.
        """
        with self._changed:
            fresh = set(topics) - self._stopped_topics
            self._stopped_topics |= fresh
            running = self._running
            affected = running is not None and any(item.source.topic in fresh for item in self._partitions)
            self._outdated = self._outdated or affected
            self._changed.notify_all()
        if affected:
            self._host.tell(self.lane, [_RECONFIGURE])

    def retake(self, topics: Collection[str]) -> None:
        """Mirror these topics again, which were stopped: the running attempt hands back, the next one has them."""
        with self._changed:
            ours = {item.source.topic for item in self._partitions} & set(topics)
            self._stopped_topics -= ours
            self._retaken |= ours
            affected = bool(ours) and self._running is not None
            self._outdated = self._outdated or affected
            self._changed.notify_all()
        if affected:
            self._host.tell(self.lane, [_RECONFIGURE])

    def has_stopped(self, attempt: AttemptId, topics: Collection[str]) -> set[str]:
        """Those of the topics that an attempt says it has stopped, and of which that is not an old word."""
        with self._changed:
            spec = self._running
            if spec is None or (spec.epoch, spec.attempt) != attempt[2:]:
                # what an attempt had stopped when it ended, its report says
                return set()
            return set(topics) - self._retaken

    def stop(self) -> None:
        """Ask the lane to finish its transaction and end; returns at once."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._host.tell_all(self.lane, [_STOP])

    def join(self, seconds: float) -> bool:
        """Wait for the end for at most so many seconds; whether it came."""
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def connected(self) -> bool:
        """Whether the running attempt has said hello: before, it cannot have a transaction."""
        with self._changed:
            return self._running is not None and self._heard == (self._running.epoch, self._running.attempt)

    def greeting(self, attempt: AttemptId) -> list[Mapping[str, Any]]:
        """What an attempt that has just connected must know."""
        with self._changed:
            spec = self._running
            self._heard = attempt[2:]
            if self._stopping or spec is None or (spec.epoch, spec.attempt) != attempt[2:]:
                # an attempt that we gave up, such as a cancelled one that Spark started all the same
                return [_STOP]
            given = set(spec.partitions)
            if any(item.source.topic in self._stopped_topics for item in given):
                # dropped between the making of the spec and the attempt's first word
                return [_RECONFIGURE]
            return list(encode_added([item for item in self._mirrored() if item not in given]))

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._chain()
        except Exception as error:
            self._host.fail(error)
            log.exception("lane_thread_failed", link=self._template.link.name, lane=self.lane)
        finally:
            self._host.tell_all(self.lane, [_STOP])
            self._host.await_silence(self.lane)
            self._host.rests(self.lane, "ended")

    def _chain(self) -> None:
        epoch, attempt, raises, overdue = 1, 1, 0, 0
        damaged: tuple[Damage, ...] = ()
        backoff = Backoff()
        while (spec := self._next(epoch, attempt, overdue, damaged)) is not None:
            ended = self._attempt(spec)
            progressed = ended.report.progressed if ended.report else self._host.committed(self.lane)
            raises = raises + 1 if ended.how is Crash.TASK_RAISED and not progressed else 0
            overdue = (0 if progressed else overdue) + int(ended.report is not None and ended.report.overdue)
            damaged = ended.report.damaged if ended.report else damaged
            with self._changed:
                self._running = None
                ended = ended.without(self._retaken)
                stopped = set(ended.report.stopped_topics if ended.report else ()) - self._stopped_topics
                self._stopped_topics |= stopped
                changed = bool(stopped) or self._outdated
                stopping = self._stopping
            action = next_action(
                ended.how,
                stopping=stopping,
                raises=raises,
                topics_changed=changed,
                patient=self._host.patient,
            )
            planned = action in {Action.NEXT_EPOCH, Action.END}
            self._host.attempt_ended(spec, ended.report, "" if planned else f"{ended.how}: {ended.text}")
            if action is Action.CHECK_OWNER:
                action = self._check_owner()
            if action in {Action.FAIL_LINK, Action.FAIL_MIRROR}:
                self._host.fail(_error_of(spec, ended), everything=action is Action.FAIL_MIRROR)
                return
            if action is Action.END:
                return
            if action is Action.NEXT_EPOCH:
                epoch, attempt, backoff, damaged = epoch + 1, 1, Backoff(), ()
            else:
                attempt, backoff = attempt + 1, backoff.failed(progressed=progressed)
                seconds = jitter(backoff.seconds)
                log.warning(
                    "lane_retries",
                    link=spec.link.name,
                    lane=self.lane,
                    ended=str(ended.how),
                    reason=ended.text,
                    attempt=attempt,
                    seconds=round(seconds, 2),
                )
                self._pause(seconds)

    def _attempt(self, spec: LaneSpec) -> _Ended:
        self._host.attempt_begun(spec)
        try:
            report = self._host.run_attempt(spec)
        except LaneCrashedError as error:
            return _Ended(error.crash, str(error))
        if report.ending is Ending.UNAUTHORIZED:
            # only a person can help, so it is said in full: what to grant, and to whom
            log.error(
                "lane_unauthorized", link=spec.link.name, lane=spec.lane, reason=report.error or report.reason
            )
        return _Ended(report.ending, report.reason, report)

    def _next(self, epoch: int, attempt: int, overdue: int, damaged: tuple[Damage, ...]) -> LaneSpec | None:
        """The spec of the next attempt, once there is something to mirror; None when the lane is to end."""
        with self._changed:
            while not self._stopping and not self._mirrored():
                self._host.rests(self.lane, "idle")
                self._changed.wait()
            if self._stopping:
                return None
            self._outdated = False
            self._retaken.clear()
            seconds = epoch_seconds(
                self._template.link.epoch, lane=self.lane, lanes=self._lanes, number=epoch
            )
            self._running = replace(
                self._template,
                epoch=epoch,
                attempt=attempt,
                seconds=jitter(seconds, _EPOCH_JITTER),
                partitions=tuple(self._mirrored()),
                overdue=overdue,
                damaged=damaged,
            )
            return self._running

    def _mirrored(self) -> list[AssignedPartition]:
        return [item for item in self._partitions if item.source.topic not in self._stopped_topics]

    def _check_owner(self) -> Action:
        try:
            self._host.check_owner()
        except SupersededError as error:
            self._host.fail(error)
            return Action.END
        except (LaneError, MirrorError) as error:
            # the next attempt reads control before anything else, so trying is safe (rule 2)
            log.warning("owner_unknown", link=self._template.link.name, lane=self.lane, reason=str(error))
        return Action.RETRY

    def _pause(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        self._host.rests(self.lane, "waiting")
        with self._changed:
            while not self._stopping and (left := end - self._clock.monotonic()) > 0:
                self._changed.wait(left)


def error_of(report: LaneReport) -> MirrorError:
    """The error that a report speaks of, as one that callers can catch by type."""
    message, _, fix = (report.error or report.reason).partition("\n  fix: ")
    if report.ending is Ending.UNAUTHORIZED:
        return AuthorizationError(message, fix=fix)
    kinds: dict[int, type[MirrorError]] = {
        DataLossError.exit_code: DataLossError,
        SupersededError.exit_code: SupersededError,
    }
    return kinds.get(report.exit_code, MirrorError)(message, fix=fix)


def _error_of(spec: LaneSpec, ended: _Ended) -> MirrorError:
    if ended.report is not None:
        return error_of(ended.report)
    if ended.how is Crash.ENGINE_GONE:
        return MirrorError(
            "the spark context has stopped, and all lanes with it",
            fix="look for the reason in the log above; then start the mirror again, nothing is lost",
        )
    return MirrorError(
        f"link {spec.link.name}: lane {spec.lane} fails again and again: {ended.text}",
        fix="report it as a bug, with the log; `--log-level debug` shows more",
    )
