"""
Supervises one link from the driver: takes it, runs its lanes, adds new partitions, renews the claim, releases it.

Threads beside those of the lanes: the link's own runs all steps in order, the planner discovers partitions, the keeper
renews the claim; others send heartbeats, look for a pause, and ask for the ends of the source.  Retriable errors (an
unreachable cluster; for planner and keeper also a revoked ACL) are logged and retried; any other error fails only this
link.  A run with ``until="caught-up"`` waits for an unreachable cluster, but not for ACLs, which an administrator must
grant.
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.clock import Deadline
from eomirror.config.frozen import FrozenMapping
from eomirror.driver.background import Background
from eomirror.driver.claim_renewal import ClaimRenewal
from eomirror.driver.cluster_retry import ClusterRetry
from eomirror.driver.group_thread import GroupThread
from eomirror.driver.lane import LaneThread, holds_nothing
from eomirror.driver.left_groups import LeftGroupRecords
from eomirror.driver.link_tools import refuse_left_out, without_lane
from eomirror.driver.outage_records import OutageRecords
from eomirror.driver.restart_records import RestartRecords
from eomirror.driver.source_ends import EndRecords
from eomirror.driver.stopped_topics import StopRecords, UnauthorizedTopics
from eomirror.errors import AuthorizationError, MirrorError, StoppedError, SupersededError, TopicError
from eomirror.groups.followed_groups import Mirrored
from eomirror.lane.spec import StoppedTopic
from eomirror.link.pause import PAUSE_SECONDS, PauseWatch, paused_error
from eomirror.spark.frames import encode_groups
from eomirror.status.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from eomirror.driver.channel import AttemptId
    from eomirror.driver.link_tools import Engine, LinkTools
    from eomirror.groups.follower import GroupFollower
    from eomirror.kafka.session import LinkSessions
    from eomirror.lane.spec import AssignedPartition, GroupOffset, LaneProgress, LaneReport, LaneSpec
    from eomirror.link.assignment import Layout
    from eomirror.link.heartbeats import Heartbeats
    from eomirror.link.owner import LinkOwner
    from eomirror.records.control import Pause
    from eomirror.status.snapshot import LinkSnapshot
    from eomirror.topics.discovery import Discovery
    from eomirror.topics.source_contact import SourceContact
    from eomirror.types import SourcePartition

__all__ = ["LinkThread"]

log = structlog.get_logger(__name__)

#: Interval of the discovery of new topics and partitions.
REFRESH_SECONDS = 5.0

# of the 5 s that a stop may take: for the lanes, then for cancelled jobs and again for the release of the claim
_LANES_SECONDS = 2.8
_LAST_SECONDS = 0.3
# of the former, for a lane that mirrors on after its epoch
_SILENCE_SECONDS = 1.5

# a Spark cluster may grant executors slowly; lanes then queue for them as the warm-up does
_WARM_UP_SECONDS = 20.0


class LinkThread:
    """
    Runs one link until it is stopped or fails.  It is the `LaneHost` of its lanes.

    Args:
        spec: Spec of the link's lanes; ids and generation are filled in here.
        sessions: Connections to both clusters, which all threads of the link share.
        discovery: Creates the link's discovery.
        owner: Creates the link's owner; False: it must not take the link over again.
        heart: Creates the sender of the link's heartbeats; None if it has none.
        follower: Creates the follower of the link's groups, given a function that sends offsets to a lane; None if the
            link follows none.
        tools: Shared by all links of the run.
    """

    def __init__(
        self,
        spec: LaneSpec,
        *,
        sessions: LinkSessions,
        discovery: Callable[[], Discovery],
        owner: Callable[[bool], LinkOwner],
        heart: Callable[[], Heartbeats | None],
        follower: Callable[[Callable[[int, Sequence[GroupOffset]], None]], GroupFollower | None],
        tools: LinkTools,
    ) -> None:
        self.name = spec.link.name
        self.error: BaseException | None = None
        self.aborted = False
        self.generation: int | None = None
        self.aimed = False
        self._jobs = 0
        self._spec = spec
        self._sessions = sessions
        self._make_discovery = discovery
        self._make_owner = owner
        self._published = False
        self._pause: Pause | None = None
        self._tools = tools
        self._lock = threading.RLock()
        self._progress = Progress(self.name)
        self._unauthorized = UnauthorizedTopics()
        self._over = threading.Event()
        self._quit = threading.Event()
        self._deadline: Deadline | None = None
        self._owner: LinkOwner | None = None
        self._engine: Engine | None = None
        self._contact: SourceContact | None = None
        self._lanes: dict[int, LaneThread] = {}
        self._known: set[SourcePartition] = set()
        self._background = Background(self, self._over)
        self._cluster_retry = ClusterRetry(self.name, self._over, clock=tools.clock, on_wait=self._wait_for)
        self._stops = StopRecords(spec, tools.clock)
        self._restarts = RestartRecords(spec, tools.clock)
        self._ends = EndRecords(spec.link, tools.clock, assigned=self._assigned)
        self._group_thread = GroupThread(
            self._background,
            lambda: follower(lambda lane, offsets: self.tell(lane, encode_groups(offsets))),
            self._mirrored,
            over=self._over,
            clock=tools.clock,
        )
        self._claim_renewal = ClaimRenewal(
            self._background,
            self._stops,
            self._restarts,
            self._ends,
            heart,
            left=LeftGroupRecords(spec, self._group_thread.left_alone, tools.clock),
            outages=OutageRecords(spec.link, failing=self._failing_seconds, clock=tools.clock),
            quit_=self._quit,
            clock=tools.clock,
        )
        self._thread = threading.Thread(target=self._run, name=f"link-{self.name}", daemon=True)

    def start(self) -> None:
        """Starts the link's thread."""
        self._thread.start()

    def request_stop(self) -> None:
        """Requests a stop of the link; returns at once."""
        with self._lock:
            seconds = _LANES_SECONDS + self._tools.stop_seconds
            self._deadline = self._deadline or Deadline(seconds, self._tools.clock)
        self._over.set()

    def join(self, seconds: float) -> bool:
        """Waits for the end; returns False after ``seconds``."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def has_lanes(self) -> bool:
        """True if lanes were started; without them there is no transaction to finish."""
        return bool(self._lanes)

    @property
    def over(self) -> bool:
        """True if the link's thread has ended."""
        return self._thread.ident is not None and not self._thread.is_alive()

    @property
    def caught_up(self) -> bool:
        """True if all goals are reached and the groups' offsets are translated."""
        with self._lock:
            reached = self.aimed and self._progress.caught_up
        return reached and self._group_thread.settled()

    def conclude(self) -> None:
        """Records that the run ends because its links have caught up; the snapshot keeps the lag that ended it."""
        with self._lock:
            self._progress.conclude()

    @property
    def idle_for_good(self) -> bool:
        """True if every topic of the link is stopped and none of them is retried."""
        with self._lock:
            if self._unauthorized:
                return False
        topics = self.snapshot().topics
        return bool(topics) and all(topic.stopped for topic in topics)

    @property
    def stopped_topics(self) -> Mapping[str, StoppedTopic]:
        """Stopped topics."""
        with self._lock:
            return dict(self._progress.stopped)

    def snapshot(self) -> LinkSnapshot:
        """Returns the state of the link."""
        now = self._tools.clock.monotonic()
        with self._lock:
            shown = self._progress.snapshot(now)
        renewed = self._claim_renewal.renewed
        trouble = None if shown.error or shown.waiting else self._background.trouble
        return replace(
            shown,
            away="" if trouble is None else trouble.message,
            fix=shown.fix if trouble is None else trouble.fix,
            groups=self._group_thread.snapshot(),
            generation=self.generation,
            run=self._spec.run,
            source_age_seconds=self._source_age(),
            source_failing_seconds=self._failing_seconds(),
            claim_age_seconds=None if renewed is None else max(0.0, now - renewed),
            spark_jobs=self._jobs,
        )

    # -- the channel's callbacks -----------------------------------------------------------------

    def greeting(self, attempt: AttemptId) -> list[Mapping[str, Any]]:
        """Returns the first messages for an attempt that has just connected."""
        lane = self._lanes.get(attempt.lane)
        with self._lock:
            lanes = self._progress.lanes
        self._group_thread.begun_anew([source for source, number in lanes.items() if number == attempt.lane])
        return [] if lane is None else lane.greeting(attempt)

    def heard(self, attempt: AttemptId, progress: LaneProgress) -> None:
        """Records the progress of an attempt."""
        lane = self._lanes.get(attempt.lane)
        stopped = set() if lane is None else lane.has_stopped(attempt, progress.stopped_topics)
        self._stops.update(progress, stopped)
        self._ends.update(progress)
        progress = replace(
            progress, stopped_topics={topic: progress.stopped_topics[topic] for topic in stopped}
        )
        self._await_rights(progress.stopped_topics)
        with self._lock:
            before = self._progress.caught_up
            self._progress.update(progress, attempt=attempt.attempt, now=self._tools.clock.monotonic())
            reached = self.aimed and not before and self._progress.caught_up
        self._drop(progress.stopped_topics, but=attempt.lane)
        if reached:
            self._tools.wake()

    def heard_groups(self, offsets: tuple[GroupOffset, ...]) -> None:
        """Passes a lane's answer about group offsets to the group thread."""
        self._group_thread.heard(offsets)

    # -- LaneHost --------------------------------------------------------------------------------

    def run_attempt(self, spec: LaneSpec) -> LaneReport:
        """Runs an attempt on Spark."""
        jobs = self._tools.engine.result().jobs
        with self._lock:
            self._jobs += 1
        try:
            return jobs.run(spec)
        finally:
            with self._lock:
                self._jobs -= 1

    def tell(self, lane: int, messages: Iterable[Mapping[str, Any]]) -> None:
        """Sends messages to the lane's running attempt, if it is connected."""
        if self._engine is not None:
            self._engine.channel.send(self.name, lane, messages)

    def tell_all(self, lane: int, messages: Iterable[Mapping[str, Any]]) -> None:
        """Sends messages to every connected attempt of the lane."""
        if self._engine is not None:
            self._engine.channel.send(self.name, lane, messages, all_attempts=True)

    def wait_disconnected(self, lane: int) -> None:
        """Waits a while until no attempt of the lane is connected."""
        channel = None if self._engine is None else self._engine.channel
        if channel is not None and not channel.wait_disconnected(self.name, lane, _SILENCE_SECONDS):
            self.aborted = True
            log.warning("lane_still_connected", link=self.name, lane=lane)

    def check_owner(self) -> None:
        """Raises SupersededError if another mirror has fenced the lane."""
        if self._owner is not None:
            self._owner.check()

    def attempt_begun(self, spec: LaneSpec) -> None:
        """Records the start of an attempt."""
        log.info(
            "lane_starts",
            link=self.name,
            lane=spec.lane,
            epoch=spec.epoch,
            attempt=spec.attempt,
            partitions=len(spec.partitions),
            seconds=round(spec.seconds, 1),
        )
        with self._lock:
            self._progress.begin(spec.lane, epoch=spec.epoch, attempt=spec.attempt)

    def attempt_ended(self, spec: LaneSpec, report: LaneReport, failure: str) -> None:
        """Records the end of an attempt; ``failure`` is the reason of an early end."""
        now = self._tools.clock.monotonic()
        stopped = report.stopped_topics
        self._await_rights(stopped)
        with self._lock:
            self._progress.end(report, failure=failure, now=now)
        if failure:
            self._restarts.ended(spec.lane, str(report.ending), report.reason)
        for topic, stop in stopped.items():
            where = {"link": self.name, "lane": spec.lane, "topic": topic}
            log.error("topic_stopped", **where, exit_code=stop.exit_code, reason=str(stop))
        self._stops.stopped(stopped, spec.lane)
        self._drop(stopped, but=spec.lane)
        self._tools.on_report(spec, report)
        self._tools.wake()

    def rests(self, lane: int, state: str) -> None:
        """Records that no worker runs the lane; ``state`` is the reason."""
        with self._lock:
            self._progress.set_lane_state(lane, state)

    @property
    def patient(self) -> bool:
        """True if the run waits for missing ACLs; a run with ``until="caught-up"`` does not, as it might never end."""
        return not self._tools.wants_goals

    def committed(self, lane: int) -> bool:
        """Returns True if the lane's current attempt has committed a transaction."""
        with self._lock:
            return self._progress.committed(lane)

    def fail(self, error: BaseException, *, everything: bool = False) -> None:
        """Fails the link; with ``everything``, the whole mirror."""
        with self._lock:
            if self.error is None:
                self.error = error
                self._progress.error = error.message if isinstance(error, MirrorError) else str(error)
                self._progress.fix = error.fix if isinstance(error, MirrorError) else ""
                self._progress.superseded = isinstance(error, SupersededError)
                self._progress.state = "failed"
        self.request_stop()
        log.error("link_failed", link=self.name, reason=str(error))
        if everything:
            self._tools.fail_mirror(error)

    # -- the link's own thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._set_state("preparing")
            discovery, layout = self._cluster_retry.do(self._take)
            self._mirror(discovery, layout)
        except StoppedError:
            # the caller may start another run, which takes the link from this one: do nothing more here
            pass
        except Exception as error:  # noqa: BLE001  whatever it is, it ends this link and reaches the caller
            self.fail(error)
        finally:
            self._end()
            self._tools.wake()

    def _refuse_duplicates(self, partitions: Sequence[AssignedPartition]) -> None:
        for topic, other in self._tools.copies.take(self.name, partitions).items():
            raise TopicError(
                f"link {self.name}: link {other} already mirrors topic {topic} to the same target topic; "
                "every record would be written twice",
                fix="exclude the topic from one of the two links",
            )

    def _take(self) -> tuple[Discovery, Layout]:
        """
        Prepares the topics and takes the link; each retry starts from the beginning, like a restarted mirror.

        Raises:
            AuthorizationError: Names all rights that are missing, so that one round of grants suffices.
        """
        try:
            return self._prepare()
        except AuthorizationError as error:
            raise self._tools.all_missing(error, self._spec.link, self._sessions) from error

    def _prepare(self) -> tuple[Discovery, Layout]:
        # a claim of an earlier try belongs to this run, so it needs no release
        self._close()
        discovery = self._make_discovery()
        self._contact = discovery.contact
        # a run with until="caught-up" must not end successfully without some of the topics
        partitions = discovery.prepare(strict=self._tools.wants_goals, patient=False)
        self._refuse_duplicates(partitions)
        if self._over.is_set():
            raise StoppedError(f"link {self.name}: stopped before it was taken")
        self._set_state("acquiring")
        # a try that published has taken the link over; a mirror that owns it since then did so later (EO-10)
        self._owner = owner = self._make_owner(not self._published)
        layout = owner.acquire(self._spec.link.lanes, partitions, stopped=self._over.is_set)
        self._known = {item.source for item in partitions}
        return discovery, layout

    def _close(self) -> None:
        if self._owner is not None:
            self._published = self._published or self._owner.published
            self._owner.close()
            self._owner = None
        self._sessions.close()

    def _mirror(self, discovery: Discovery, layout: Layout) -> None:
        link = self._spec.link
        self.generation = layout.generation
        if self._over.is_set():
            return
        self._stops.inherit(layout.stopped, self._known)
        self._stops.stopped(without_lane(self._known, layout.lanes), None)
        self._stops.left_out(discovery.left_out())
        self._refuse_paused(layout.pause)
        if self._owner is not None:
            self._claim_renewal.begin(self._owner)
        with self._lock:
            for lane, items in layout.lanes.items():
                self._assign(lane, items)
        if self._tools.wants_goals:
            refuse_left_out(self.name, self._known, layout)
            # First the log ends: what is written between the two requests stands behind no transaction.
            ends = self._cluster_retry.do(lambda: discovery.goals(read_committed=False))
            goals = self._cluster_retry.do(discovery.goals)
            # Deleted copies; the run ends as if a lane had stopped them.
            lost = {topic: StoppedTopic.of(error) for topic, error in discovery.left_out().items()}
            with self._lock:
                self._progress.stopped.update(lost)
                self._progress.set_goals(goals, ends)
                self.aimed = True
        self._set_state("running")
        try:
            self._engine = engine = self._tools.engine.result()
        except CancelledError:
            return  # stopped before Spark was up
        ids = {
            **link.cluster_ids,
            link.source: layout.source_cluster_id,
            link.target: layout.target_cluster_id,
        }
        # records name their origin by cluster id, and a link may forward records of clusters beside its own two
        for alias in link.origins or ():
            if alias not in ids:
                ids[alias] = self._identified(alias)
        loops = replace(link.loops, provenance_header=layout.provenance_header)
        spec = replace(
            self._spec,
            link=replace(link, cluster_ids=FrozenMapping(ids), loops=loops),
            generation=layout.generation,
            source_cluster_id=layout.source_cluster_id,
            target_cluster_id=layout.target_cluster_id,
        )
        for lane in range(link.lanes):
            template = replace(spec, lane=lane, partitions=layout.lanes.get(lane, ()))
            self._lanes[lane] = LaneThread(template, lanes=link.lanes, host=self, clock=self._tools.clock)
        self._await_workers(engine)
        self._hold(layout.pause)
        for thread in self._lanes.values():
            thread.start(engine.jobs.thread)
        self._background.start(lambda: self._discovery_loop(discovery), "planner")
        self._background.start(
            lambda: self._background.guard("groups_not_followed", self._group_thread.run), "follower"
        )
        self._background.start(self._pause_loop, "pause")
        self._background.start(lambda: self._ends_loop(discovery), "ends")
        self._tools.wake()
        self._over.wait()

    def _identified(self, alias: str) -> str:
        """Returns the id of a cluster whose records are forwarded; waits for it, as its records must not be lost."""
        return self._cluster_retry.do(lambda: self._tools.identify(alias))

    def _await_workers(self, engine: Engine) -> None:
        # a lane that starts earlier gets another worker, and then twice as many workers import modules concurrently
        deadline = Deadline(_WARM_UP_SECONDS, self._tools.clock)
        while engine.warm_up.is_alive() and not self._over.is_set() and not deadline.passed:
            engine.warm_up.join(0.05)

    def _end(self) -> None:
        self.request_stop()
        deadline = self._deadline or Deadline(0, self._tools.clock)
        self._set_state("stopping")
        for lane in self._lanes.values():
            lane.stop()
        late = [lane for lane in self._lanes.values() if not lane.join(deadline.remaining())]
        for lane in late:
            # its transaction stays open until the next owner of its transactional.id aborts it; it is never visible
            log.warning("lane_cut_off", link=self.name, lane=lane.lane)
            self.aborted = self.aborted or lane.connected
            if self._engine is not None:
                self._engine.jobs.cancel(self.name, lane.lane)
        last = Deadline(_LAST_SECONDS, self._tools.clock)
        for lane in late:
            lane.join(last.remaining())
        self._quit.set()
        self._background.join(Deadline(_LAST_SECONDS, self._tools.clock))
        if self._owner is not None:
            self._claim_renewal.write(self._owner.release)
        self._close()
        self._set_state("done")

    def _source_age(self) -> float | None:
        contact = self._contact
        return None if contact is None else contact.age(self._tools.clock.monotonic())

    def _failing_seconds(self) -> float:
        contact = self._contact
        return 0.0 if contact is None else contact.failing(self._tools.clock.monotonic())

    def _assigned(self) -> Collection[SourcePartition]:
        with self._lock:
            return self._progress.lanes

    # -- its helpers -----------------------------------------------------------------------------

    def _mirrored(self) -> Mirrored:
        with self._lock:
            return Mirrored(self._progress.lanes, frozenset(self._progress.stopped))

    def _discovery_loop(self, discovery: Discovery) -> None:
        while not self._over.wait(REFRESH_SECONDS):
            self._background.guard("refresh_failed", lambda: self._refresh_topics(discovery))
            self._background.guard("topics_not_retaken", self._retake)

    def _refresh_topics(self, discovery: Discovery) -> None:
        found = discovery.refresh()
        self._stops.left_out(discovery.left_out())
        new = [item for item in found if item.source not in self._known]
        for topic, other in self._tools.copies.take(self.name, new).items():
            reason = f"link {other} already mirrors to the same target topic"
            log.error("topic_left_out", link=self.name, topic=topic, reason=reason)
            self._stops.stopped({topic: StoppedTopic(f"topic {topic} is left out: {reason}")}, None)
            self._known.update(item.source for item in new if item.source.topic == topic)
            new = [item for item in new if item.source.topic != topic]
        if not new or self._over.is_set() or self._owner is None:
            return
        by_lane = self._owner.extend(new)
        self._stops.stopped(without_lane((item.source for item in new), by_lane), None)
        self._known.update(item.source for item in new)
        for lane, items in by_lane.items():
            log.info(
                "partitions_added", link=self.name, lane=lane, partitions=[str(item.source) for item in items]
            )
            with self._lock:
                self._assign(lane, items)
            self._lanes[lane].add(items)

    def _refuse_paused(self, pause: Pause | None) -> None:
        """
        Refuses a run that is to end when it has caught up: it never would.

        Raises:
            NotReadyError: Topics of the link are held.
        """
        if self._tools.wants_goals and pause is not None:
            raise paused_error(self.name, pause)

    def _ends_loop(self, discovery: Discovery) -> None:
        source = self._sessions.source.admin
        while True:
            self._background.guard("source_ends_not_read", lambda: self._ends.ask(source, discovery.listing))
            if self._over.wait(REFRESH_SECONDS):
                return

    def _pause_loop(self) -> None:
        watch = PauseWatch(self._spec.link, self._sessions.target)
        while not self._over.wait(PAUSE_SECONDS):
            self._background.guard("pause_not_read", lambda: self._obey(watch))

    def _obey(self, watch: PauseWatch) -> None:
        self._hold(watch.look())

    def _hold(self, pause: Pause | None) -> None:
        """Holds the topics of a pause, in all lanes; None resumes."""
        if pause == self._pause:
            return
        self._pause = pause
        if pause is None:
            log.info("link_resumes", link=self.name)
        else:
            log.info("link_paused", link=self.name, topics=pause.topics or "all", host=pause.host)
        with self._lock:
            self._progress.pause = pause
            if self._progress.state in {"running", "paused"}:
                self._progress.state = "paused" if pause is not None and not pause.topics else "running"
        for thread in list(self._lanes.values()):
            thread.hold(holds_nothing if pause is None else pause.holds)
        self._tools.wake()

    def _await_rights(self, stopped: Mapping[str, StoppedTopic]) -> None:
        topics = [topic for topic, stop in stopped.items() if stop.retried]
        if not topics or not self.patient:
            return
        with self._lock:
            self._unauthorized.stopped(topics, self._tools.clock.monotonic())

    def _retake(self) -> None:
        """Retries topics that lacked an ACL or a leader."""
        with self._lock:
            topics = self._unauthorized.due(self._tools.clock.monotonic())
            self._progress.resume(topics)
            self._stops.tried_again(topics, self._progress.lanes)
        if topics:
            log.info("topics_tried_again", link=self.name, topics=topics)
            for thread in list(self._lanes.values()):
                thread.retake(topics)

    def _drop(self, topics: Collection[str], *, but: int) -> None:
        """Stops topics in all lanes but the one that stopped them first."""
        if topics:
            for lane, thread in list(self._lanes.items()):
                if lane != but:
                    thread.drop(topics)

    def _assign(self, lane: int, items: Sequence[AssignedPartition]) -> None:
        for item in items:
            self._progress.assign(lane, item.source, item.target_topic)

    def _wait_for(self, reason: str, fix: str) -> None:
        """Records the error that the link waits for, and the recommended action; empty once it has passed."""
        with self._lock:
            self._progress.wait(reason, fix)
            state = self._progress.state
        self._tools.on_event(f"{self.name}: {state}" + (f": {reason}" if reason else ""))

    def _set_state(self, state: str) -> None:
        with self._lock:
            if self._progress.state == "failed":
                return  # logged with its reason
            self._progress.state = state
            never = state == "done" and self._progress.waiting
        self._tools.on_event(f"{self.name}: {'not started' if never else state}")
