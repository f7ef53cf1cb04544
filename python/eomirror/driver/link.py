"""
Supervises one link from the driver: takes it, runs its lanes, adds new partitions, renews the claim, releases it.

Threads beside those of the lanes: the link's own runs all steps in order, the planner discovers partitions, the keeper
renews the claim; others send heartbeats, look at control, and read the ends of the source.  Retriable errors (an
unreachable cluster; for planner and keeper also a revoked ACL) are logged and retried; any other error fails only this
link.  A run with ``until="caught-up"`` waits for an unreachable cluster, but not for ACLs, which an administrator must
grant.
"""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.clock import Deadline
from eomirror.config.changes import with_live
from eomirror.config.model import FrozenMapping
from eomirror.driver.background import Background, ClusterRetry
from eomirror.driver.claim_renewal import ClaimRenewal, LinkRecords
from eomirror.driver.group_thread import GroupThread, LeftGroupRecords
from eomirror.driver.link_lanes import LinkLanes
from eomirror.driver.link_progress import LinkProgress
from eomirror.driver.link_tools import refuse_left_out, without_lane
from eomirror.driver.outage_records import ConfigurationRecords, LaneRecords, OutageRecords, TargetRecords
from eomirror.driver.registry_thread import RegistryThread
from eomirror.driver.source_ends import EndRecords
from eomirror.driver.stopped_topics import StopRecords
from eomirror.driver.taken_link import TakenLink
from eomirror.errors import MirrorError, StoppedError, SupersededError
from eomirror.link.control_watch import CONTROL_SECONDS, ControlWatch
from eomirror.link.pause import paused_error
from eomirror.link.standby import Standby
from eomirror.spark.attempt import release_freed_memory
from eomirror.spark.frames import encode_groups

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from eomirror.config import Link
    from eomirror.driver.channel import AttemptId
    from eomirror.driver.link_tools import Copies, Engine, LinkTools
    from eomirror.groups.follower import GroupFollower
    from eomirror.kafka.session import LinkSessions
    from eomirror.lane.spec import GroupOffset, LaneSpec
    from eomirror.link.assignment import Layout
    from eomirror.link.heartbeats import Heartbeats
    from eomirror.link.owner import LinkOwner
    from eomirror.status.snapshot import LinkSnapshot
    from eomirror.topics.discovery import Discovery

__all__ = ["LinkThread"]

log = structlog.get_logger(__name__)

#: Interval of the discovery of new topics and partitions; in between the topics are listed once, which costs less.
REFRESH_SECONDS = 5.0

# of the 5 s that a stop may take: for the lanes, and then for the release of the claim
_LANES_SECONDS = 2.8
_LAST_SECONDS = 0.3

# interval at which freed memory is returned; a comparison of all settings uses much of it
_FREED_SECONDS = 60.0

# interval at which lanes without a slot, and lanes that are behind, are looked for
_SLOTS_SECONDS = 0.5

# a Spark cluster may grant executors slowly; lanes then queue for them as the warm-up does
_WARM_UP_SECONDS = 20.0


class LinkThread:
    """
    Runs one link until it is stopped or fails.

    Args:
        spec: Spec of the link's lanes; ids and generation are filled in here.
        sessions: Connections to both clusters, which all threads of the link share.
        discovery: Creates the link's discovery, by its settings.
        owner: Creates the link's owner; False: it must not take the link over again.
        heart: Creates the sender of the link's heartbeats; None if it has none.
        follower: Creates the follower of the link's groups, given a function that sends offsets to a lane; None if the
            link follows none.
        tools: Shared by all links of the run.

    Attributes:
        generation: Lane layout; None before the link is taken.
        lanes: The link's lanes.
        progress: The link's progress.
        group_thread: Follows its groups.
    """

    def __init__(
        self,
        spec: LaneSpec,
        *,
        sessions: LinkSessions,
        discovery: Callable[[Link], Discovery],
        owner: Callable[[bool], LinkOwner],
        heart: Callable[[], Heartbeats | None],
        follower: Callable[[Callable[[int, Sequence[GroupOffset]], None]], GroupFollower | None],
        tools: LinkTools,
    ) -> None:
        self.name, clock = spec.link.name, tools.clock
        self.generation: int | None = None
        self._spec = spec
        self._sessions = sessions
        self._tools = tools
        self._deadline: Deadline | None = None
        self._over = threading.Event()
        self.progress = LinkProgress(self.name, tools)
        standby = Standby(spec.link, sessions.target, run=spec.run, clock=clock) if tools.standby else None
        self._taken = TakenLink(spec, sessions, discovery, owner, tools, standby=standby)
        self._background = Background(self, self._over)
        self.group_thread = GroupThread(
            self._background,
            lambda: follower(lambda lane, offsets: self.lanes.send(lane, encode_groups(offsets))),
            self.progress.mirrored,
            over=self._over,
            clock=clock,
            waited_for=tools.wants_goals,
        )
        self._records = LinkRecords(
            StopRecords(spec, clock),
            LaneRecords(spec, clock),
            EndRecords(spec.link, clock, assigned=self.progress.assigned),
            LeftGroupRecords(spec, self.group_thread.left_alone, clock),
            OutageRecords(spec.link, failing=self._taken.failing_seconds, clock=clock),
            TargetRecords(spec.link, clock),
            ConfigurationRecords(spec, clock),
            ControlWatch(spec.link, sessions.target),
            RegistryThread(self._background, spec, over=self._over, clock=clock),
        )
        self.lanes = _lanes_of(
            spec, tools, self.progress, self._records, check_owner=self._taken.check, fail=self.fail
        )
        self._claim_renewal = ClaimRenewal(
            self._background, self._records, heart, clock, standby=tools.standby
        )
        self._thread = threading.Thread(target=self._run, name=f"link-{self.name}", daemon=True)

    def start(self) -> None:
        """Starts the link's thread."""
        self._thread.start()

    def request_stop(self, *, alone: bool = False) -> None:
        """Requests a stop of the link; returns at once.  ``alone``: the run goes on."""
        self._taken.alone = self._taken.alone or alone
        seconds = _LANES_SECONDS + self._tools.stop_seconds
        self._deadline = self._deadline or Deadline(seconds, self._tools.clock)
        self._over.set()
        self._background.wake()

    def reconfigure(self, given: Link) -> None:
        """Takes settings of `eomirror.config.changes.LIVE`, at once and without a pause of lanes; returns at once."""
        self._taken.given = given
        self._background.wake()

    def give_up(self, copies: Copies) -> None:
        """Releases all copies of the link, which is over; another link goes on with them if no lane can write them."""
        copies.release(self._spec.link, proved=self._taken.released and not self.lanes.aborted)

    @property
    def configuration(self) -> ConfigurationRecords:
        """Records of changes of the configuration."""
        return self._records.configuration

    def join(self, seconds: float) -> bool:
        """Waits for the end; returns False after ``seconds``."""
        self._thread.join(seconds)
        return not self._thread.is_alive()

    @property
    def over(self) -> bool:
        """True if the link's thread has ended."""
        return self._thread.ident is not None and not self._thread.is_alive()

    @property
    def patient(self) -> bool:
        """True if the run waits for missing ACLs."""
        return self.progress.patient

    @property
    def caught_up(self) -> bool:
        """True if all goals are reached, and the groups' offsets and the schemas are mirrored."""
        return self.progress.caught_up and self.group_thread.settled() and self._records.schemas.settled()

    def snapshot(self) -> LinkSnapshot:
        """Returns the state of the link."""
        shown = self.progress.snapshot()
        trouble = None if shown.error or shown.waiting else self._background.trouble
        return replace(
            shown,
            away="" if trouble is None else trouble.message,
            fix=shown.fix if trouble is None else trouble.fix,
            groups=self.group_thread.snapshot(),
            generation=self.generation,
            run=self._spec.run,
            source_age_seconds=self._taken.source_age(),
            source_failing_seconds=self._taken.failing_seconds(),
            claim_age_seconds=self._claim_renewal.age_seconds,
            spark_jobs=len(self.lanes.running),
            refused_configuration=self._records.configuration.refused,
            schemas=self._records.schemas.status(),
        )

    def fail(self, error: BaseException, *, everything: bool = False) -> None:
        """Fails the link, unless it is to stand by for its new owner; with ``everything``, the whole mirror."""
        if self._tools.standby and isinstance(error, SupersededError):
            self.progress.superseded = True
            self.request_stop()
            log.warning("link_superseded", link=self.name, reason=error.message)
            return
        self.progress.fail(error)
        self.request_stop()
        log.error("link_failed", link=self.name, reason=str(error))
        if everything:
            self._tools.fail_mirror(error)

    def greeting(self, attempt: AttemptId) -> list[Mapping[str, Any]]:
        """Returns the first messages for an attempt that has just connected."""
        lanes = self.progress.assigned()
        self.group_thread.lane_restarted(
            [source for source, number in lanes.items() if number == attempt.lane]
        )
        return self.lanes.greeting(attempt)

    # -- the link's own thread -------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self.progress.enter("preparing")
            retry = ClusterRetry(self.name, self._over, clock=self._tools.clock, on_wait=self.progress.wait)
            layout = retry.do(lambda: self._taken.take(self._over.is_set, self.progress.enter))
            self._mirror(layout, retry)
        except StoppedError:
            # the caller may start another run, which takes the link from this one: do nothing more here
            pass
        except Exception as error:  # noqa: BLE001  whatever it is, it ends this link and reaches the caller
            self.fail(error)
        finally:
            self._tools.copies.ended(self._spec.link)
            self._end()
            self._tools.wake()

    def _mirror(self, layout: Layout, retry: ClusterRetry) -> None:
        self.generation = layout.generation
        if self._over.is_set():
            return
        discovery, known, stops = self._taken.discovery, self._taken.known, self._records.stops
        stops.inherit(layout.stopped, known)
        stops.stopped(without_lane(known, layout.lanes, self._taken.refused), None)
        stops.left_out(discovery.left_out())
        if self._tools.wants_goals and layout.pause is not None:
            # it would never catch up
            raise paused_error(self.name, layout.pause)
        if self._taken.owner is not None:
            self._claim_renewal.begin(self._taken.owner)
        if self._tools.wants_goals:
            layout = retry.do(lambda: self._taken.completed(layout, self._records, self._over.is_set))
            refuse_left_out(self.name, self._taken.known, layout)
        for lane, items in layout.lanes.items():
            self.progress.assign(lane, items)
        if self._tools.wants_goals:
            # First the log ends: what is written between the two requests stands behind no transaction.
            ends = retry.do(lambda: discovery.goals(read_committed=False))
            self.progress.aim(retry.do(discovery.goals), ends, discovery.left_out())
        self.progress.enter("running")
        try:
            engine = self._tools.engine.result()
        except CancelledError:
            return  # stopped before Spark was up
        spec = self._lane_spec(layout, retry)
        _await_workers(engine, self._over, Deadline(_WARM_UP_SECONDS, self._tools.clock))
        self.lanes.start(spec, layout, engine)
        background = self._background
        if self._tools.wants_goals:
            # it may end before the first round
            background.guard("target_not_kept_alike", self._keep_target)
        release_freed_memory()
        background.start(self._discovery_loop, "planner")
        background.start(lambda: background.guard("groups_not_followed", self.group_thread.run), "follower")
        self._records.schemas.start()
        background.start(self._control_loop, "control")
        if engine.elastic or self._spec.link.balance == "bytes":
            look = partial(self._look_at_lanes, elastic=engine.elastic)
            background.repeat("partitions_not_moved", look, _SLOTS_SECONDS, "slots")
        source = self._sessions.source.admin
        background.repeat(
            "source_ends_not_read",
            lambda: self._records.ends.read(source, self._taken.discovery.listing),
            REFRESH_SECONDS,
            "ends",
        )
        self._tools.wake()
        self._over.wait()

    def _lane_spec(self, layout: Layout, retry: ClusterRetry) -> LaneSpec:
        """Returns the common fields of all lanes, with the ids of all clusters whose records the link may forward."""
        link = self._spec.link
        ids = {
            **link.cluster_ids,
            link.source: layout.source_cluster_id,
            link.target: layout.target_cluster_id,
        }
        # records name their origin by cluster id, and a link may forward records of clusters beside its own two
        for alias in link.origins or ():
            if alias not in ids:
                # waits for it, as its records must not be lost
                ids[alias] = retry.do(lambda alias=alias: self._tools.identify(alias))  # type: ignore[misc]
        loops = replace(link.loops, provenance_header=layout.provenance_header)
        return replace(
            self._spec,
            link=replace(link, cluster_ids=FrozenMapping(ids), loops=loops),
            generation=layout.generation,
            source_cluster_id=layout.source_cluster_id,
            target_cluster_id=layout.target_cluster_id,
        )

    def _end(self) -> None:
        self.request_stop()
        self.progress.enter("stopping")
        self.lanes.stop(self._deadline or Deadline(0, self._tools.clock))
        self._claim_renewal.end()
        self._background.join(Deadline(_LAST_SECONDS, self._tools.clock))
        if self._taken.owner is not None:
            self._records.write(self._taken.release)
        self._taken.close()
        self.progress.enter("done")

    # -- loops of its other threads --------------------------------------------------------------

    def _discovery_loop(self) -> None:
        freed = Deadline(_FREED_SECONDS, self._tools.clock)
        while self._background.rested(REFRESH_SECONDS / 2):
            self._background.guard("partitions_not_moved", self._look_at_lanes)
            if self._taken.given is not None:
                self._background.guard("configuration_not_taken", self._take_settings)
            else:
                self._look_for_topics()
            if not self._background.rested(REFRESH_SECONDS / 2):
                return
            self._background.guard("refresh_failed", self._refresh_topics)
            self._background.guard("topics_not_retaken", self.lanes.retake)
            self._background.guard("target_not_kept_alike", self._keep_target)
            if freed.passed:
                release_freed_memory()
                freed = Deadline(_FREED_SECONDS, self._tools.clock)

    def _take_settings(self) -> None:
        with self.lanes.moves.whole:
            if self.lanes.moves.pending:
                # what leaves the link must have a lane: a later round takes them
                return
            try:
                link, gone = self._taken.reconfigure()
            except MirrorError as error:
                self.configuration.refuse(f"not in force yet, tried again: {error}", retried=True)
                raise
            self.configuration.refuse("", retried=True)
            self._spec = replace(self._spec, link=with_live(self._spec.link, link))
            self.lanes.reconfigure(link)
            of_no_lane = gone - self.lanes.moves.park(gone)
            self._taken.parked(of_no_lane, proved=False)
            _left(self.lanes, self._records, self.name, of_no_lane)
        self._look_at_lanes()
        self._refresh_topics()

    def _look_for_topics(self) -> None:
        differs: list[bool] = []

        def look() -> None:
            # the refresh that follows reports an error
            with suppress(MirrorError):
                differs.append(self._taken.discovery.differs())

        self._background.guard("topics_not_listed", look)
        if any(differs) or self._taken.waiting:
            self._background.guard("refresh_failed", self._refresh_topics)

    def _refresh_topics(self) -> None:
        self.lanes.add(self._taken.extend(self._records, self._over.is_set, self.lanes.moves.needs))

    def _keep_target(self) -> None:
        changed, stands, topics = self._taken.discovery.keep()
        self._records.target.took(changed, stands)
        if not topics:
            return
        with self.lanes.moves.whole:
            if not self.lanes.moves.pending:
                self.lanes.moves.park(topics)
        self._look_at_lanes()
        if not self.lanes.moves.parked(topics):
            # a later round forgets them
            return
        sources = [source for source in self._taken.known if source.topic in topics]
        self._taken.forget(topics)
        _left(self.lanes, self._records, self.name, topics)
        self.group_thread.left(sources)

    def _look_at_lanes(self, *, elastic: bool | None = None) -> None:
        if (moved := self.lanes.moves.look(self._taken.move, elastic=elastic)) is not None:
            self.generation, lanes = moved
            parked = {source.topic for source, lane in lanes.items() if lane is None}
            if parked:
                self._taken.parked(parked)
                _left(self.lanes, self._records, self.name, parked)
            # their lanes know no offsets of groups in them
            self.group_thread.lane_restarted(lanes.keys())

    def _control_loop(self) -> None:
        while not self._over.wait(CONTROL_SECONDS):
            self._background.guard("control_not_read", self._look_at_control)

    def _look_at_control(self) -> None:
        watch = self._records.watch
        watch.look()
        self.lanes.hold(watch.pause)


def _left(lanes: LinkLanes, records: LinkRecords, link: str, topics: Collection[str]) -> None:
    """Records that a link mirrors topics no more."""
    lanes.release(topics)
    records.stops.tried_again(topics, ())
    if topics:
        log.info("topics_left_the_link", link=link, topics=sorted(topics))


def _await_workers(engine: Engine, over: threading.Event, deadline: Deadline) -> None:
    # a lane that starts earlier gets another worker, and then twice as many workers import modules concurrently
    while (
        # executors of a cluster come one after another: the first would warm up for all, and lanes wait for it
        not engine.elastic
        and engine.warm_up is not None
        and engine.warm_up.is_alive()
        and not over.is_set()
        and not deadline.passed
    ):
        engine.warm_up.join(0.05)


def _lanes_of(spec: LaneSpec, tools: LinkTools, *given: Any, **named: Any) -> LinkLanes:
    """Returns the lanes of a link, or what runs its query."""
    if spec.link.query is None:
        return LinkLanes(spec.link.name, tools, *given, **named)
    # imports what DataFrames need
    from eomirror.driver.query_lanes import QueryLanes

    return QueryLanes(tools.context, spec.link.name, tools, *given, **named)
