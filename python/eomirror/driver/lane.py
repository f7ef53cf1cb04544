"""
Supervises one lane from the driver: a thread that runs attempt after attempt, as the table in `retry` says.

The thread blocks in Spark while an attempt runs.  The other threads (planner, channel, stop) change the lane's fields
under its lock and then send a message to the running attempt, if there is one.  An attempt that was not connected gets
the change when it connects (`greeting`), or the next attempt finds it in its spec.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.clock import Clock, jitter
from eomirror.config.changes import with_live
from eomirror.driver.retry import Backoff, NextAction, epoch_seconds, next_action
from eomirror.errors import LaneError, MirrorError, SupersededError
from eomirror.lane.spec import AssignedPartition, Ending, LaneReport, LaneSpec, Released, StopReason
from eomirror.spark.frames import encode_added, encode_released

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.driver.channel import AttemptId
    from eomirror.driver.link_lanes import LinkLanes
    from eomirror.recovery.corrupt_batches import Damage
    from eomirror.types import SourcePartition

__all__ = ["LaneThread", "holds_nothing"]

log = structlog.get_logger(__name__)

_STOP = {"type": "stop", "reason": StopReason.SHUTDOWN}
_RECONFIGURE = {"type": "stop", "reason": StopReason.RECONFIGURE}
_EPOCH_JITTER = 0.05


class LaneThread:
    """
    Runs one lane until it is stopped or its link fails.

    Args:
        template: Spec with the common fields of the lane's attempts.
        host: Lanes of the link.
        clock: Measures backoffs.
    """

    def __init__(self, template: LaneSpec, *, host: LinkLanes, clock: Clock) -> None:
        self.lane = template.lane
        self._template = template
        self._host = host
        self._clock = clock
        self._changed = threading.Condition()
        self._partitions = list(template.partitions)
        self._stopped_topics: set[str] = set()
        # whether the running attempt's topics differ from those to mirror: some were stopped or are to be retried
        self._outdated = False
        # topics to retry: a stop that the running attempt reports for them is outdated
        self._retaken: set[str] = set()
        self._running: LaneSpec | None = None
        self._stopping = False
        # why no attempt begins: "giving" between `take` and `moved`, "lent" while others have its partitions
        self._away = ""
        self._held: Callable[[str], bool] = holds_nothing
        self._thread: threading.Thread | None = None

    def start(self, thread: Callable[[Callable[[], None], str], threading.Thread]) -> None:
        """Starts the lane in a thread that ``thread`` creates."""
        self._thread = thread(self._run, f"lane-{self._template.link.name}-{self.lane}")
        self._thread.start()

    def add(self, partitions: Sequence[AssignedPartition]) -> None:
        """Adds partitions; the owner has published them in control (EO-2)."""
        with self._changed:
            self._partitions.extend(partitions)
            # the owner has published a generation of the lane for those that had left the link
            newest = max((item.generation for item in partitions), default=0)
            self._template = replace(self._template, generation=max(self._template.generation, newest))
            wanted = [item for item in partitions if not self._left_out(item)]
            # an attempt that is to end may still have them; the next one has them in its spec
            running = self._running is not None and not self._outdated
            self._changed.notify_all()
        if running:
            self._host.send(self.lane, encode_added(wanted))

    def release(self, topics: Collection[str]) -> None:
        """Forgets stops of topics whose partitions were taken because they leave the link."""
        with self._changed:
            # also without a partition of them: one may be added, or moved, here
            self._stopped_topics -= set(topics)

    def reconfigure(self, given: Link) -> None:
        """Gives settings that no lane reads to the specs of later attempts."""
        with self._changed:
            self._template = replace(self._template, link=with_live(self._template.link, given))

    def take(self, sources: Collection[SourcePartition], *, moved_by: int = 0) -> list[AssignedPartition]:
        """
        Takes partitions away: the running attempt ends between two transactions, and none begins before `moved`.

        Args:
            sources: The partitions.
            moved_by: Published generation that moves them.  The lane then goes on without them, and says when it does
                (docs/adr/0035).  0 for none yet.

        Returns:
            Those that the lane had.
        """
        with self._changed:
            taken = [item for item in self._partitions if item.source in sources]
            self._partitions = [item for item in self._partitions if item.source not in sources]
            if moved_by:
                # before the lane is told: an attempt that begins from here on has no order to release
                self._template = replace(self._template, generation=moved_by)
                order: Mapping[str, Any] = encode_released(Released(frozenset(sources), moved_by))
            else:
                self._away, order = "giving", _RECONFIGURE
                self._outdated = self._outdated or self._running is not None
            self._changed.notify_all()
        self._host.send_to_all(self.lane, [order])
        return taken

    def wait_at_rest(self, seconds: float) -> bool:
        """Waits until no attempt runs; returns False after ``seconds``."""
        with self._changed:
            return self._changed.wait_for(lambda: self._running is None, seconds)

    def moved(self, generation: int | None, got: Sequence[AssignedPartition], *, lent: bool = False) -> None:
        """
        Goes on in a generation, which the owner has published and fenced (docs/adr/0030).

        Args:
            generation: That of the lane; None if nothing was moved.
            got: Partitions that other lanes had.
            lent: True if others have its partitions, because it has no slot.
        """
        with self._changed:
            if generation is not None:
                # one that came back meanwhile may have brought a newer one
                newest = max(self._template.generation, generation)
                self._template = replace(self._template, generation=newest)
            self._away = "lent" if lent else ""
            self._changed.notify_all()
        if got:
            self.add(got)

    @property
    def partitions(self) -> list[SourcePartition]:
        """Partitions of the lane, with those that are stopped or held."""
        with self._changed:
            return [item.source for item in self._partitions]

    def drop(self, topics: Collection[str]) -> None:
        """
        Stops mirroring topics that another lane of the link stopped.

        The reason concerns the whole topic (a record that the target refuses, a recreated source), so all of its
        partitions stop.  The running attempt ends between two transactions; the next one runs without the topics.
        """
        with self._changed:
            fresh = set(topics) - self._stopped_topics
            self._stopped_topics |= fresh
            running = self._running
            affected = running is not None and any(item.source.topic in fresh for item in self._partitions)
            self._outdated = self._outdated or affected
            self._changed.notify_all()
        if affected:
            self._host.send(self.lane, [_RECONFIGURE])

    def retake(self, topics: Collection[str]) -> None:
        """Retries stopped topics: the running attempt ends between two transactions, the next one has them."""
        with self._changed:
            ours = {item.source.topic for item in self._partitions} & set(topics)
            # also without a partition of them: one may be moved here
            self._stopped_topics -= set(topics)
            self._retaken |= ours
            affected = bool(ours) and self._running is not None
            self._outdated = self._outdated or affected
            self._changed.notify_all()
        if affected:
            self._host.send(self.lane, [_RECONFIGURE])

    def hold(self, holds: Callable[[str], bool]) -> None:
        """
        Holds the topics for which ``holds`` returns True, and mirrors the others.

        An attempt whose topics change ends between two transactions, also one that mirrors on after its epoch.
        """
        with self._changed:
            before = self._held
            self._held = holds
            running = self._running
            affected = running is not None and any(
                before(item.source.topic) != holds(item.source.topic) for item in self._partitions
            )
            self._outdated = self._outdated or affected
            self._changed.notify_all()
        # Also without a running attempt: an earlier one may mirror on.
        self._host.send_to_all(self.lane, [_RECONFIGURE] if affected or running is None else [])

    def has_stopped(self, attempt: AttemptId, topics: Collection[str]) -> set[str]:
        """Returns the topics that an attempt reports as stopped, except those that are to be retried."""
        with self._changed:
            spec = self._running
            if spec is None or (spec.epoch, spec.attempt) != attempt[2:]:
                # the attempt has ended: its report names the topics that it stopped
                return set()
            return self._not_outdated(topics)

    def stop(self) -> None:
        """Requests that the lane finishes its transaction and ends; returns at once."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._host.send_to_all(self.lane, [_STOP])

    def join(self, seconds: float) -> bool:
        """Waits for the end; returns False after ``seconds``."""
        if self._thread is None:
            return True
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def greeting(self, attempt: AttemptId) -> list[Mapping[str, Any]]:
        """Returns the first messages for an attempt that has just connected."""
        with self._changed:
            spec = self._running
            if self._stopping or spec is None or (spec.epoch, spec.attempt) != attempt[2:]:
                # an abandoned attempt, such as a cancelled one that Spark started nevertheless
                return [_STOP]
            given, wanted = set(spec.partitions), self._mirrored()
            if self._away or not given.issubset(wanted):
                # a topic was dropped, is held, or left the link, or partitions were taken, after the spec was made
                return [_RECONFIGURE]
            return list(encode_added([item for item in wanted if item not in given]))

    # -- the thread ------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._chain()
        except Exception as error:
            self._host.fail(error)
            log.exception("lane_thread_failed", link=self._template.link.name, lane=self.lane)
        finally:
            self._host.send_to_all(self.lane, [_STOP])
            self._host.wait_disconnected(self.lane)
            self._host.rests(self.lane, "ended")

    def _chain(self) -> None:
        epoch, attempt, raises, overdue = 1, 1, 0, 0
        damaged: tuple[Damage, ...] = ()
        backoff = Backoff()
        while (spec := self._next(epoch, attempt, overdue, damaged)) is not None:
            report = self._attempt(spec)
            progressed = self._host.committed(self.lane) if report.ending.crashed else report.progressed
            raises = raises + 1 if report.ending is Ending.TASK_RAISED and not progressed else 0
            overdue = (0 if progressed else overdue) + int(report.overdue)
            damaged = report.damaged
            with self._changed:
                self._running = None
                self._changed.notify_all()
                stops = report.stopped_topics
                stopped_topics = {topic: stops[topic] for topic in self._not_outdated(stops)}
                report = replace(report, stopped_topics=stopped_topics)
                stopped = stopped_topics.keys() - self._stopped_topics
                self._stopped_topics |= stopped
                changed = bool(stopped) or self._outdated
                stopping = self._stopping
            action = next_action(
                report.ending,
                stopping=stopping,
                raises=raises,
                topics_changed=changed,
                patient=self._host.patient,
            )
            planned = action in {NextAction.NEXT_EPOCH, NextAction.END}
            failure = "" if planned else f"{report.ending}: {report.reason}"
            self._host.attempt_ended(spec, report, failure)
            if action is NextAction.CHECK_OWNER:
                action = self._check_owner()
            if action in {NextAction.FAIL_LINK, NextAction.FAIL_MIRROR}:
                self._host.fail(_error_of(spec, report), everything=action is NextAction.FAIL_MIRROR)
                return
            if action is NextAction.END:
                return
            if action is NextAction.NEXT_EPOCH:
                epoch, attempt, backoff, damaged = epoch + 1, 1, Backoff(), ()
            else:
                attempt, backoff = attempt + 1, backoff.failed(progressed=progressed)
                seconds = jitter(backoff.seconds)
                log.warning(
                    "lane_retries",
                    link=spec.link.name,
                    lane=self.lane,
                    ended=str(report.ending),
                    reason=report.reason,
                    attempt=attempt,
                    seconds=round(seconds, 2),
                )
                self._pause(seconds)

    def _attempt(self, spec: LaneSpec) -> LaneReport:
        self._host.attempt_begun(spec)
        report = self._host.run_attempt(spec)
        if report.ending is Ending.UNAUTHORIZED:
            # an administrator must act: log in full what to grant to which principal
            log.error("lane_unauthorized", link=spec.link.name, lane=spec.lane, reason=str(report.error))
        return report

    def _next(self, epoch: int, attempt: int, overdue: int, damaged: tuple[Damage, ...]) -> LaneSpec | None:
        """Waits until the lane has partitions; returns the spec of its next attempt, or None to end the lane."""
        with self._changed:
            while not self._stopping and (self._away or not self._mirrored()):
                held = any(self._held(item.source.topic) for item in self._partitions)
                self._host.rests(self.lane, self._away or ("paused" if held else "idle"))
                self._changed.wait()
            if self._stopping:
                return None
            self._outdated = False
            self._retaken.clear()
            link = self._template.link
            seconds = epoch_seconds(link.epoch, lane=self.lane, lanes=link.producers, number=epoch)
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
        return [item for item in self._partitions if not self._left_out(item)]

    def _left_out(self, item: AssignedPartition) -> bool:
        return item.source.topic in self._stopped_topics or self._held(item.source.topic)

    def _not_outdated(self, topics: Iterable[str]) -> set[str]:
        """Returns the topics without those that are to be retried, or have left the lane."""
        return {item.source.topic for item in self._partitions}.intersection(topics) - self._retaken

    def _check_owner(self) -> NextAction:
        try:
            self._host.check_owner()
        except SupersededError as error:
            self._host.fail(error)
            return NextAction.END
        except (LaneError, MirrorError) as error:
            # the next attempt reads control before anything else, so a retry is safe (EO-2)
            log.warning("owner_unknown", link=self._template.link.name, lane=self.lane, reason=str(error))
        return NextAction.RETRY

    def _pause(self, seconds: float) -> None:
        end = self._clock.monotonic() + seconds
        self._host.rests(self.lane, "waiting")
        with self._changed:
            while not self._stopping and (left := end - self._clock.monotonic()) > 0:
                self._changed.wait(left)


def holds_nothing(_: str) -> bool:
    """Holds no topic."""
    return False


def _error_of(spec: LaneSpec, report: LaneReport) -> MirrorError:
    if report.ending is Ending.TASK_RAISED and report.error is None:
        return MirrorError(
            f"link {spec.link.name}: lane {spec.lane} fails repeatedly: {report.reason}",
            fix="report this as a bug, with the log of a run with `--log-level debug`",
        )
    return report.error or MirrorError(report.reason)
