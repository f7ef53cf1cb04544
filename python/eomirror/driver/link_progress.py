"""Progress of one link as its threads record it: `eomirror.status.progress` behind a lock, and what follows from it."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import structlog

from eomirror.driver.stopped_topics import UnauthorizedTopics
from eomirror.groups.followed_groups import MirroredPartitions
from eomirror.lane.spec import StoppedTopic
from eomirror.status.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from eomirror.driver.channel import AttemptId
    from eomirror.driver.link_tools import LinkTools
    from eomirror.errors import MirrorError
    from eomirror.lane.spec import AssignedPartition, LaneProgress, LaneReport
    from eomirror.records.control import Pause
    from eomirror.status.snapshot import LinkSnapshot
    from eomirror.status.work import PartitionLoad
    from eomirror.types import SourcePartition

__all__ = ["LinkProgress"]

log = structlog.get_logger(__name__)


class LinkProgress:
    """
    Records the progress of one link.  Thread-safe.

    Attributes:
        error: Error that failed the link; None if none did.
        superseded: True if another mirror has taken the link, and the run is to stand by for it again.
        patient: True if the run waits for missing ACLs; a run with ``until="caught-up"`` does not, as it might never
            end.
    """

    def __init__(self, link: str, tools: LinkTools) -> None:
        self.error: BaseException | None = None
        self.superseded = False
        self.patient = not tools.wants_goals
        self._link = link
        self._tools = tools
        self._lock = threading.RLock()
        self._progress = Progress(link)
        self._aimed = False
        self._unauthorized = UnauthorizedTopics()

    # -- state -----------------------------------------------------------------------------------

    def enter(self, state: str) -> None:
        """Sets the state of the link; one that has failed stays so, and was logged with its reason."""
        with self._lock:
            phase = self._progress.phase
            if phase.state == "failed":
                return
            phase.enter(state)
            never = state == "done" and phase.waiting
        self._tools.on_event(f"{self._link}: {'not started' if never else state}")

    def wait(self, reason: str, fix: str) -> None:
        """Records the error that the link waits for, and the recommended action; empty once it has passed."""
        with self._lock:
            self._progress.phase.wait(reason, fix)
            state = self._progress.phase.state
        self._tools.on_event(f"{self._link}: {state}" + (f": {reason}" if reason else ""))

    def fail(self, error: BaseException) -> None:
        """Records the first error that fails the link."""
        with self._lock:
            if self.error is None:
                self.error = error
                self._progress.phase.fail(error)

    def pause(self, pause: Pause | None) -> bool:
        """Records a pause of topics; None resumes.  Returns False if nothing changed."""
        with self._lock:
            if pause == self._progress.pause:
                return False
            self._progress.pause = pause
            if self._progress.phase.state in {"running", "paused"}:
                self._progress.phase.enter("paused" if pause is not None and not pause.topics else "running")
        if pause is None:
            log.info("link_resumes", link=self._link)
        else:
            log.info("link_paused", link=self._link, topics=pause.topics or "all", host=pause.host)
        return True

    def snapshot(self) -> LinkSnapshot:
        """Returns the state of the link."""
        with self._lock:
            return self._progress.snapshot(self._tools.clock.monotonic())

    # -- lanes -----------------------------------------------------------------------------------

    def assign(self, lane: int, items: Sequence[AssignedPartition]) -> None:
        """Records that a lane mirrors these partitions."""
        with self._lock:
            for item in items:
                self._progress.assign(lane, item.source, item.target_topic)

    def release(self, topics: Collection[str]) -> None:
        """Forgets topics that the link mirrors no more."""
        with self._lock:
            self._progress.release(topics)

    def assigned(self) -> dict[SourcePartition, int]:
        """Returns the lane of every mirrored partition."""
        with self._lock:
            return self._progress.lanes

    def mirrored(self) -> MirroredPartitions:
        """Returns the mirrored partitions with the stopped topics."""
        with self._lock:
            return MirroredPartitions(self._progress.lanes, frozenset(self._progress.stopped))

    def loads(self) -> dict[SourcePartition, PartitionLoad]:
        """Returns the work on each mirrored partition."""
        with self._lock:
            return self._progress.loads(self._tools.clock.monotonic())

    def begin(self, lane: int, *, epoch: int, attempt: int) -> None:
        """Records the start of an attempt."""
        with self._lock:
            self._progress.begin(lane, epoch=epoch, attempt=attempt)

    def update(self, attempt: AttemptId, progress: LaneProgress) -> bool:
        """Records the progress of an attempt; returns True if it reached the last goal."""
        self._await_rights(progress.stopped_topics)
        with self._lock:
            before = self._progress.caught_up
            self._progress.update(progress, attempt=attempt.attempt, now=self._tools.clock.monotonic())
            return self._aimed and not before and self._progress.caught_up

    def end(self, report: LaneReport, failure: str) -> None:
        """Records the end of an attempt; ``failure`` is the reason of an early end."""
        self._await_rights(report.stopped_topics)
        with self._lock:
            self._progress.end(report, failure=failure, now=self._tools.clock.monotonic())

    def set_lane_state(self, lane: int, state: str) -> None:
        """Sets the state of a lane that no worker runs."""
        with self._lock:
            self._progress.set_lane_state(lane, state)

    def committed(self, lane: int) -> bool:
        """Returns True if the lane's current attempt has committed a transaction."""
        with self._lock:
            return self._progress.committed(lane)

    # -- goals and stopped topics ----------------------------------------------------------------

    def aim(
        self,
        goals: Mapping[SourcePartition, int],
        ends: Mapping[SourcePartition, int],
        lost: Mapping[str, MirrorError],
    ) -> None:
        """Sets the goals, the ends of the logs, and the topics without a copy, which end as if a lane stopped them."""
        with self._lock:
            self._progress.stopped.update({topic: StoppedTopic.of(error) for topic, error in lost.items()})
            self._progress.set_goals(goals, ends)
            self._aimed = True

    @property
    def caught_up(self) -> bool:
        """True if all goals are reached."""
        with self._lock:
            return self._aimed and self._progress.caught_up

    def conclude(self) -> None:
        """Records that the run ends because its links have caught up; the snapshot keeps the lag that ended it."""
        with self._lock:
            self._progress.conclude()

    @property
    def stopped_topics(self) -> dict[str, StoppedTopic]:
        """Stopped topics."""
        with self._lock:
            return dict(self._progress.stopped)

    @property
    def idle_for_good(self) -> bool:
        """True if every topic of the link is stopped and none of them is retried."""
        with self._lock:
            return not self._unauthorized and self._progress.all_stopped

    def due_topics(self) -> list[str]:
        """Returns the stopped topics whose ACL or leader was missing and that are due for a retry; resumes them."""
        with self._lock:
            topics = self._unauthorized.due(self._tools.clock.monotonic())
            self._progress.resume(topics)
        return topics

    def _await_rights(self, stopped: Mapping[str, StoppedTopic]) -> None:
        topics = [topic for topic, stop in stopped.items() if stop.retried]
        if topics and self.patient:
            with self._lock:
                self._unauthorized.stopped(topics, self._tools.clock.monotonic())
