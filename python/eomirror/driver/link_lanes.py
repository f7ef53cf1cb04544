"""The lanes of one link: their threads, their attempts on Spark, and what their reports mean for each other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.clock import Deadline
from eomirror.driver.lane import LaneThread, holds_nothing
from eomirror.driver.moves import PartitionMoves

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.driver.channel import AttemptId
    from eomirror.driver.claim_renewal import LinkRecords
    from eomirror.driver.link_progress import LinkProgress
    from eomirror.driver.link_tools import Engine, LinkTools
    from eomirror.lane.spec import AssignedPartition, LaneProgress, LaneReport, LaneSpec
    from eomirror.link.assignment import Layout
    from eomirror.records.control import Pause

__all__ = ["LinkLanes"]

log = structlog.get_logger(__name__)

# a lane that ends late has this much time to finish after its job was cancelled
_LAST_SECONDS = 0.3
# of the time that a stop may take, for a lane that mirrors on after its epoch
_SILENCE_SECONDS = 1.5


class LinkLanes:
    """
    Runs the lanes of one link, which send and record by it.

    Args:
        link: Name of the link.
        tools: Shared by all links of the run.
        progress: Records what the lanes report.
        records: Writes it to control.
        check_owner: Raises SupersededError if another mirror owns the link.
        fail: Fails the link.

    Attributes:
        check_owner: As given.
        fail: As given.
        patient: True if the run waits for missing ACLs.
        aborted: True if a lane may have left an open transaction.
        running: Lane, epoch and attempt of each Spark job that runs.
        moves: Moves partitions between the lanes.
    """

    def __init__(
        self,
        link: str,
        tools: LinkTools,
        progress: LinkProgress,
        records: LinkRecords,
        *,
        check_owner: Callable[[], None],
        fail: Callable[..., None],
    ) -> None:
        self.check_owner, self.fail = check_owner, fail
        self.patient = progress.patient
        self.aborted = False
        self.running: set[tuple[int, int, int]] = set()
        # of them, those that have connected and not taken their leave: another one has no transaction
        self._connected: set[tuple[int, int, int]] = set()
        self._link = link
        self._tools = tools
        self._progress = progress
        self._records = records
        self._engine: Engine | None = None
        self._lanes: dict[int, LaneThread] = {}
        self.moves = PartitionMoves(link, self._lanes, progress=progress, records=records, clock=tools.clock)

    def __bool__(self) -> bool:
        return bool(self._lanes)

    def start(self, spec: LaneSpec, layout: Layout, engine: Engine) -> None:
        """Starts all lanes of a layout."""
        self._engine = engine
        link = spec.link
        self.moves.start(engine.jobs, balance=link.balance == "bytes", claiming=link.query is None)
        for lane in range(spec.link.producers):
            template = replace(spec, lane=lane, partitions=layout.lanes.get(lane, ()))
            self._lanes[lane] = LaneThread(template, host=self, clock=self._tools.clock)
        self.hold(layout.pause)
        for thread in self._lanes.values():
            thread.start(engine.jobs.thread)

    def stop(self, deadline: Deadline) -> None:
        """Stops all lanes; cancels those that do not end before the deadline."""
        self.moves.stop()
        for lane in self._lanes.values():
            lane.stop()
        late = [lane for lane in self._lanes.values() if not lane.join(deadline.remaining())]
        for lane in late:
            # its transaction stays open until the next owner of its transactional.id aborts it; it is never visible
            log.warning("lane_cut_off", link=self._link, lane=lane.lane)
            self.aborted = self.aborted or any(number == lane.lane for number, _, _ in list(self._connected))
            self.cancel(lane.lane)
        last = Deadline(_LAST_SECONDS, self._tools.clock)
        for lane in late:
            lane.join(last.remaining())

    def cancel(self, lane: int) -> None:
        """Cancels the running attempt of a lane, as the last resort."""
        if self._engine is not None:
            self._engine.jobs.cancel(self._link, lane)

    def add(self, added: Mapping[int, Sequence[AssignedPartition]]) -> None:
        """Adds partitions that the owner has published to their lanes."""
        for lane, items in added.items():
            names = [str(item.source) for item in items]
            log.info("partitions_added", link=self._link, lane=lane, partitions=names)
            self._progress.assign(lane, items)
            self._lanes[lane].add(items)

    def reconfigure(self, link: Link) -> None:
        """Takes changed settings that no lane reads."""
        for thread in list(self._lanes.values()):
            thread.reconfigure(link)

    def release(self, topics: Collection[str]) -> None:
        """Mirrors topics no more, which are parked."""
        for thread in list(self._lanes.values()):
            thread.release(topics)
        self._progress.release(topics)
        self._tools.wake()

    def hold(self, pause: Pause | None) -> None:
        """Holds the topics of a pause, in all lanes; None resumes."""
        if self._progress.pause(pause):
            for thread in list(self._lanes.values()):
                thread.hold(holds_nothing if pause is None else pause.holds)
            self._tools.wake()

    def retake(self) -> None:
        """Retries topics that lacked an ACL or a leader."""
        if topics := self._progress.due_topics():
            self._records.stops.tried_again(topics, self._progress.assigned())
            log.info("topics_tried_again", link=self._link, topics=topics)
            for thread in list(self._lanes.values()):
                thread.retake(topics)

    def greeting(self, attempt: AttemptId) -> list[Mapping[str, Any]]:
        """Returns the first messages for an attempt that has just connected."""
        lane = self._lanes.get(attempt.lane)
        if attempt[1:] in self.running:
            # not an earlier one, which Spark began again although its job was cancelled
            self._connected.add(attempt[1:])
            self.moves.slots.connected(attempt.lane, self._tools.clock.monotonic())
        return [] if lane is None else lane.greeting(attempt)

    def disconnected(self, attempt: AttemptId, *, parted: bool) -> None:
        """Records that the newest attempt of a lane is not connected any more; ``parted``: it took its leave."""
        if parted:
            # with all its clients closed; Spark may bring its report later than a stop waits
            self._connected.discard(attempt[1:])
        self.moves.slots.disconnected(attempt.lane, self._tools.clock.monotonic(), parted=parted)

    def update(self, attempt: AttemptId, progress: LaneProgress) -> None:
        """Records the progress of an attempt."""
        lane = self._lanes.get(attempt.lane)
        stopped = set() if lane is None else lane.has_stopped(attempt, progress.stopped_topics)
        self._records.stops.update(progress, stopped)
        self._records.ends.update(progress)
        self._records.lanes.uses(attempt, progress.serving.protocol)
        self.moves.claimed(attempt.lane, progress.released)
        stops = {topic: progress.stopped_topics[topic] for topic in stopped}
        reached = self._progress.update(attempt, replace(progress, stopped_topics=stops))
        self._drop(stops, but=attempt.lane)
        if reached:
            self._tools.wake()

    def _drop(self, topics: Collection[str], *, but: int) -> None:
        """Stops topics in all lanes but the one that stopped them first."""
        if topics:
            for lane, thread in list(self._lanes.items()):
                if lane != but:
                    thread.drop(topics)

    # -- called by lanes -------------------------------------------------------------------------

    def run_attempt(self, spec: LaneSpec) -> LaneReport:
        """Runs an attempt on Spark."""
        jobs = self._tools.engine.result().jobs
        key = (spec.lane, spec.epoch, spec.attempt)
        self.running.add(key)
        self.moves.slots.begun(spec.lane, self._tools.clock.monotonic())
        crashed = True
        try:
            report = jobs.run(spec)
            crashed = report.ending.crashed
        finally:
            self.running.discard(key)
            self._connected.discard(key)
            self.moves.slots.ended(spec.lane, crashed=crashed, now=self._tools.clock.monotonic())
        return report

    def send(self, lane: int, messages: Iterable[Mapping[str, Any]]) -> None:
        """Sends messages to the lane's running attempt, if it is connected."""
        if self._engine is not None:
            self._engine.channel.send(self._link, lane, messages)

    def send_to_all(self, lane: int, messages: Iterable[Mapping[str, Any]]) -> None:
        """Sends messages to every connected attempt of the lane: one may mirror on after its epoch."""
        if self._engine is not None:
            self._engine.channel.send(self._link, lane, messages, all_attempts=True)

    def wait_disconnected(self, lane: int) -> None:
        """Waits a while until no attempt of the lane is connected: until then, one may mirror."""
        channel = None if self._engine is None else self._engine.channel
        if channel is not None and not channel.wait_disconnected(self._link, lane, _SILENCE_SECONDS):
            self.aborted = True
            log.warning("lane_still_connected", link=self._link, lane=lane)
            # the link may begin again in this process
            channel.forget(self._link, lane)

    def attempt_begun(self, spec: LaneSpec) -> None:
        """Records the start of an attempt."""
        log.info(
            "lane_starts",
            link=self._link,
            lane=spec.lane,
            epoch=spec.epoch,
            attempt=spec.attempt,
            partitions=len(spec.partitions),
            seconds=round(spec.seconds, 1),
        )
        self._progress.begin(spec.lane, epoch=spec.epoch, attempt=spec.attempt)

    def attempt_ended(self, spec: LaneSpec, report: LaneReport, failure: str) -> None:
        """Records the end of an attempt; ``failure`` is the reason of an early end."""
        stopped = report.stopped_topics
        self._progress.end(report, failure)
        if failure:
            self._records.lanes.ended(spec.lane, str(report.ending), report.reason)
        for topic, stop in stopped.items():
            where = {"link": self._link, "lane": spec.lane, "topic": topic}
            log.error("topic_stopped", **where, exit_code=stop.exit_code, reason=str(stop))
        self._records.stops.stopped(stopped, spec.lane)
        self._drop(stopped, but=spec.lane)
        self._tools.on_report(spec, report)
        self._tools.wake()

    def rests(self, lane: int, state: str) -> None:
        """Records that no worker runs the lane; ``state`` is the reason."""
        self._progress.set_lane_state(lane, state)
        if state in {"idle", "paused"}:
            self.moves.slots.rests(lane)

    def committed(self, lane: int) -> bool:
        """Returns True if the lane's current attempt has committed a transaction."""
        return self._progress.committed(lane)
