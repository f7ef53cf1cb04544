"""
Runs a mirror: starts Spark, the channel and one `LinkThread` per link, and watches them from the caller's thread.

Each link fails alone and the others continue.  The failure is logged at once, shown in every snapshot, and raised by
`run` when all links have ended.  A run with ``until`` does not wait for a failed link.

An unreachable cluster fails no link, neither at the start nor later: the link retries until the cluster answers.  A run
with ``until="caught-up"`` waits for that.  A run whose time passes before a link has started exits 1.

A stop takes at most 5 s; more than 16 lanes, which all end at once, get up to 3.4 s more.  Lanes get 2.8 s of it to
finish their transactions (100 ms is usual), then their jobs are cancelled and the claims are released.  Threads that
still wait for an unreachable cluster are left behind.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline, new_run_id, new_token
from eomirror.driver.channel import AttemptId, LaneChannel
from eomirror.driver.link import LinkThread
from eomirror.driver.link_set import LinkSet
from eomirror.driver.link_tools import Copies, Engine, LinkTools, same_error
from eomirror.errors import DataLossError, MirrorError, UsageError
from eomirror.kafka.session import link_sessions
from eomirror.lane.spec import GroupOffset, LaneProgress, LaneReport, LaneSpec
from eomirror.spark.attempt import run_lane
from eomirror.spark.context import SparkEngine, channel_addresses, has_context, open_engine
from eomirror.spark.jobs import LaneJobs
from eomirror.spark.launch import relay_lines
from eomirror.spark.local_lanes import LocalWorkers, MovingJobs
from eomirror.spark.task import LaneTasks
from eomirror.spark.transport import check_slots, is_local
from eomirror.status.snapshot import LinkReport, LinkSnapshot, RunReport, Snapshot
from eomirror.types import RunOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from eomirror.config import Cluster, Link
    from eomirror.config.changes import ConfigChanges
    from eomirror.driver.link_tools import AllMissing
    from eomirror.groups.follower import GroupFollower
    from eomirror.kafka.session import ClusterSession
    from eomirror.link.heartbeats import Heartbeats
    from eomirror.link.owner import LinkOwner
    from eomirror.spark.task import LaneFunction
    from eomirror.topics.discovery import Discovery

__all__ = ["CAUGHT_UP", "DriverOptions", "MirrorDriver", "more_stop_seconds"]

log = structlog.get_logger(__name__)

CAUGHT_UP = "caught-up"

_PROGRESS_SECONDS = 0.5
# of a run that waits for nothing; what ends one is also put into the inbox
_LOOK_SECONDS = 1.0
# of lanes before the JVM starts beside them
_HEAD_START_SECONDS = 3.0
# until Spark is up beside lanes that have begun; a busy machine needs half a minute
_SPARK_SECONDS = 300.0
# of Spark in this process, one at a time: a run that was stopped may still open, and then close, a context
_STARTS = threading.Lock()
_WARM_UP_SECONDS = 20.0
_STOP_SECONDS = 3.6
# the end of a lane costs its worker, the driver and the brokers CPU time: beyond so many lanes each adds its share
_FEW_LANES = 16
_STOP_SECONDS_PER_LANE = 0.1
_MOST_STOP_SECONDS = 3.4


def _discovery(
    link: Link,
    source: ClusterSession,
    target: ClusterSession,
    clock: Clock,
    options: DriverOptions,
) -> Discovery:
    from eomirror.link.state import link_discovery, refuse_ended

    if not options.ordered.although_promoted:
        refuse_ended(link, target)
    return link_discovery(
        link, source, target, clock=clock, clusters=options.clusters, overruled=options.ordered.adopt.keys()
    )


def _owner(link: Link, source: ClusterSession, target: ClusterSession, **options: Any) -> LinkOwner:
    from eomirror.link.hanging import target_hanging_client
    from eomirror.link.owner import LinkOwner

    return LinkOwner(link, source, target, hanging_client=target_hanging_client, **options)


def _heart(link: Link, source: Cluster, target: Cluster, clock: Clock) -> Heartbeats | None:
    from eomirror.link.heartbeats import Heartbeats

    if link.heartbeats == "source" or link.beats_on_target:
        return Heartbeats(link, source, target, clock)
    return None


def _follower(
    link: Link,
    source: ClusterSession,
    target: ClusterSession,
    clock: Clock,
    tell: Callable[[int, Sequence[GroupOffset]], None],
) -> GroupFollower | None:
    from eomirror.groups.follower import GroupFollower

    return GroupFollower(link, source.cluster, target, send=tell, clock=clock) if link.groups else None


def _identify(cluster: Cluster) -> str:
    from eomirror.kafka.admin import identify

    return identify(cluster, client_id="eomirror.identify")


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverOptions:
    """
    Options of a run; tests replace the factories.

    Reason for its size: one field for each independent option, which only the driver reads.

    Attributes:
        version: Release of eomirror.
        settings: Settings of an own Spark context, from `eomirror.spark.context.engine_settings`.
        spark: The user's SparkContext or SparkSession; None to create a context.
        ordered: Orders of the user for the links.
        on_event: Called with a short text for each step; from several threads.
        on_report: Called with each attempt's spec and report; from the lanes' threads.
        clusters: All clusters of the configuration by alias: a link may forward records of any of them.
        local_lanes: Under a local master, let lanes begin before Spark is ready (`eomirror.spark.local_lanes`).
        lane: Runs a lane on a worker.
        discovery: Creates a link's discovery.
        owner: Creates a link's owner.
        heart: Creates the sender of a link's heartbeats; None if it has none.
        follower: Creates the follower of a link's groups; None if it follows none.
        all_missing: As of `LinkTools`.
    """

    version: str
    settings: Mapping[str, str] = field(default_factory=dict, repr=False)
    spark: Any = None
    ordered: RunOptions = field(default_factory=RunOptions)
    on_event: Callable[[str], None] | None = None
    on_report: Callable[[LaneSpec, LaneReport], None] | None = None
    clusters: Mapping[str, Cluster] = field(default_factory=dict)
    local_lanes: bool = True
    lane: LaneFunction = run_lane
    discovery: Callable[..., Discovery] = _discovery
    owner: Callable[..., LinkOwner] = _owner
    heart: Callable[[Link, Cluster, Cluster, Clock], Heartbeats | None] = _heart
    follower: Callable[..., GroupFollower | None] = _follower
    identify: Callable[[Cluster], str] = _identify
    all_missing: AllMissing = same_error
    clock: Clock = SYSTEM_CLOCK


def _orders(ordered: RunOptions, *, take_over: bool) -> dict[str, Any]:
    """Returns the orders for the owner of a link."""
    orders = {**vars(ordered), "take_over": take_over and ordered.take_over}
    # the link stands by before it has an owner
    del orders["standby"]
    return orders


def more_stop_seconds(lanes: int) -> float:
    """Returns the time that a stop of so many lanes may take beyond that of a few."""
    return min(_MOST_STOP_SECONDS, max(0, lanes - _FEW_LANES) * _STOP_SECONDS_PER_LANE)


@dataclass(slots=True)
class _Opened:
    """
    Holds what a run has opened to run lanes, and closes at its end; None for what it has not.

    Attributes:
        moving: Runs attempts before Spark is up, and moves them there.
        progressed: Set by the first progress of a lane, and at the end of the run.
        spark_deadline: End of the time in which Spark must be up, if lanes have begun without it.
        context: Completes with the Spark context, for queries.
    """

    spark: SparkEngine | None = None
    moving: MovingJobs | None = None
    channel: Any = None
    tasks: LaneTasks | None = None
    progressed: threading.Event = field(default_factory=threading.Event)
    spark_deadline: Deadline | None = None
    context: Future[Any] = field(default_factory=Future)

    def close(self) -> None:
        """Closes the channel first: lanes that still run stop then."""
        if self.channel is not None:
            self.channel.close()
        if self.moving is not None:
            self.moving.close()
        if self.spark is not None:
            self.spark.close()


class MirrorDriver:
    """
    Runs links once.

    Args:
        links: Each link with its source and target cluster.
        options: Options of the run.
    """

    def __init__(self, links: Sequence[tuple[Link, Cluster, Cluster]], options: DriverOptions) -> None:
        self._options = options
        self._clock = options.clock
        self._run_id = new_run_id()
        # SimpleQueue.put is reentrant, so a signal handler may call it at any moment; Event.set is not
        self._inbox: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._stop_asked = False
        self._engine: Future[Engine] = Future()
        self._opened = _Opened()
        self._lock = threading.Lock()
        self._abandoned = False
        self._fatal: BaseException | None = None
        self._until: str | float | None = None
        self._copies = Copies()
        self._links = LinkSet(links, self._link_thread, self._copies)

    def request_stop(self) -> None:
        """Requests a stop; returns at once, and may be called from a signal handler."""
        self._stop_asked = True
        self._inbox.put("stop")

    def reconfigure(
        self,
        links: Sequence[tuple[Link, Cluster, Cluster]],
        changes: ConfigChanges,
        *,
        clusters: Mapping[str, Cluster],
        all_missing: AllMissing,
    ) -> None:
        """
        Takes a changed configuration; returns at once, and may be called from any thread.

        Args:
            links: As of the constructor.
            changes: What differs.
            clusters: As of `DriverOptions`.
            all_missing: As of `LinkTools`.

        Raises:
            UsageError: The local master has too few slots for the lanes, or the run ends when it has caught up; the
                configuration of before stays in force.
        """
        if self._until == CAUGHT_UP:
            raise UsageError(
                "a run that ends when it has caught up takes no changed configuration",
                fix="start another run with the changed file",
            )
        check_slots(self._options.settings.get("spark.master", ""), sum(link.lanes for link, _, _ in links))
        options = replace(self._options, clusters=clusters, all_missing=all_missing)

        def take() -> None:
            self._options = options
            self._links.take(links, changes)
            for text in changes.texts:
                self._tell(text)

        self._links.later(take)
        self._inbox.put("look")

    def refuse_configuration(self, reason: str) -> None:
        """Shows the reason for which a changed configuration is refused; an empty one once one is taken."""
        self._links.later(lambda: self._links.show_refusal(reason))
        self._inbox.put("look")

    def run(
        self, until: str | float | None = None, on_progress: Callable[[Snapshot], None] | None = None
    ) -> RunReport:
        """
        Runs until stopped, until ``until``, or until every link has failed.

        Args:
            until: ``caught-up``, a number of seconds, or None for no end.
            on_progress: Called in this thread, about twice a second.

        Raises:
            MirrorError: The first link's failure, or Spark's.
        """
        self._until = until
        began = self._clock.monotonic()
        self._links.make(self._run_id)
        if self._stop_asked:
            # stopped before the start: neither Spark nor a cluster is contacted
            return self._report("stopped", 0.0)
        threading.Thread(target=self._start_engine, name="spark-start", daemon=True).start()
        for link in self._links.given:
            if link.remark:
                log.info("link_restricted", link=link.name, reason=link.remark)
        self._links.start()
        why = "failed"
        try:
            why = self._watch(began, on_progress)
            if why == "caught up":
                for thread in self._links:
                    thread.progress.conclude()
        finally:
            try:
                self._stop_links(began, on_progress)
            finally:
                self._opened.close()
        self._raise_first_error()
        return self._report(why, self._clock.monotonic() - began)

    # -- watching --------------------------------------------------------------------------------

    def _watch(self, began: float, on_progress: Callable[[Snapshot], None] | None) -> str:
        """Waits for the end of the run; returns its reason."""
        until = self._until
        while True:
            tick = _PROGRESS_SECONDS if until == CAUGHT_UP else _LOOK_SECONDS
            if isinstance(until, int | float):
                left = began + until - self._clock.monotonic()
                if left <= 0:
                    return "time over"
                tick = min(tick, left)
            try:
                word = self._inbox.get(timeout=tick)
            except queue.Empty:
                word = "tick"
            if word == "stop":
                return "stopped"
            self._links.look()
            if on_progress is not None:
                on_progress(self._snapshot(began))
            if self._failed():
                return "failed"
            if self._links.idle_for_good:
                return "every topic is stopped"
            going = [link for link in self._links if link.progress.error is None]
            if until == CAUGHT_UP and going and all(link.caught_up for link in going):
                return "caught up"

    def _failed(self) -> bool:
        """Returns True if no link runs or can start any more, or lanes have waited for Spark for too long."""
        opened = self._opened
        if opened.spark is None and opened.spark_deadline is not None and opened.spark_deadline.passed:
            self._fatal = self._fatal or MirrorError(
                f"spark has not started within {_SPARK_SECONDS:.0f} s",
                fix="look for its reason in the log above; `--master` and the section `spark` of the configuration",
            )
        if self._fatal is not None or self._links.over:
            return True
        return self._engine.done() and self._engine.exception() is not None

    def _snapshot(self, began: float) -> Snapshot:
        links: tuple[LinkSnapshot, ...] = tuple(link.snapshot() for link in self._links)
        return Snapshot(seconds=self._clock.monotonic() - began, links=links)

    # -- starting and stopping -------------------------------------------------------------------

    def _link_thread(
        self, link: Link, source: Cluster, target: Cluster, run: str, *, first: bool
    ) -> LinkThread:
        options = self._options
        if not first:
            # orders of the user are for the start
            ordered = replace(options.ordered, take_over=False, adopt={}, into_filled=False)
            options = replace(options, ordered=ordered)
        spec = LaneSpec(
            link=link,
            source=source,
            target=target,
            source_cluster_id="",
            target_cluster_id="",
            run=run,
            generation=0,
            lane=0,
            epoch=0,
            attempt=0,
            seconds=link.epoch,
            partitions=(),
        )
        tell = options.on_event or (lambda _: None)
        tools = LinkTools(
            clock=self._clock,
            engine=self._engine,
            context=self._opened.context,
            on_event=tell,
            wake=lambda: self._inbox.put("look"),
            fail_mirror=self._fail,
            on_report=options.on_report or (lambda _, __: None),
            wants_goals=self._until == CAUGHT_UP,
            standby=options.ordered.standby,
            identify=lambda alias: options.identify(options.clusters[alias]),
            copies=self._copies,
            stop_seconds=more_stop_seconds(self._links.lanes),
            all_missing=options.all_missing,
        )
        sessions = link_sessions(link, source, target, "driver", clock=self._clock)
        return LinkThread(
            spec,
            sessions=sessions,
            discovery=lambda given: options.discovery(given, *sessions, self._clock, options),
            owner=lambda take_over: options.owner(
                link,
                *sessions,
                run=run,
                clock=self._clock,
                on_event=lambda text: tell(f"{link.name}: {text}"),
                **_orders(options.ordered, take_over=take_over),
            ),
            heart=lambda: options.heart(link, source, target, self._clock),
            follower=lambda reach: options.follower(link, *sessions, self._clock, reach),
            tools=tools,
        )

    def _start_engine(self) -> None:
        # not in the caller's thread: there SparkContext installs a SIGINT handler, and a stop must stay possible
        try:
            with _STARTS:
                moving = self._start_local_lanes()
                if not self._abandoned:
                    self._open_engine(moving)
        except BaseException as error:  # noqa: BLE001  threads that wait for the engine get the error
            with self._lock:
                if not self._abandoned and not self._engine.done():
                    self._engine.set_exception(error)
                elif not self._abandoned:
                    # lanes run, but a mirror without Spark is not what was asked for
                    self._fatal = self._fatal or error
            self._inbox.put("look")

    def _open_engine(self, moving: MovingJobs | None) -> None:
        """Starts Spark, and runs the lanes there; those that have begun move there."""
        self._tell("starting spark")
        spark = open_engine(self._options.spark, self._options.settings, lanes=self._links.lanes)
        self._tell("spark is up")
        try:
            tasks = self._opened.tasks or self._open_channel(spark.settings, spark.context.master)
            jobs = LaneJobs(spark.context, tasks)
            warm_up = jobs.warm_up(self._links.lanes)
        except BaseException:
            spark.close()
            raise
        with self._lock:
            late = self._abandoned
            if not late:
                self._opened.spark = spark
                self._opened.context.set_result(spark.context)
            if not late and moving is None:
                spark.use()
                elastic = not is_local(spark.context.master)
                self._engine.set_result(Engine(jobs, self._opened.channel, warm_up, elastic))
        if late:
            spark.close()
            if moving is None:
                # the run may have closed what it had opened before this channel
                self._opened.close()
            # else lanes that began without Spark may be in their last transaction: the run closes what they need
        elif moving is not None:
            warm_up.join(_WARM_UP_SECONDS)
            spark.use()
            moving.move(jobs)
            self._tell("lanes move to spark")

    def _start_local_lanes(self) -> MovingJobs | None:
        """
        Lets lanes begin in processes of this machine, and returns their jobs; None if they have to wait for Spark.

        Returns after their first progress, or `_HEAD_START_SECONDS`: the start of a JVM takes the CPU that they need.
        """
        options, settings = self._options, self._options.settings
        master = settings.get("spark.master", "")
        if not options.local_lanes or options.spark is not None or not is_local(master) or has_context():
            return None
        if all(link.query is not None for link in self._links.given):
            # a query needs Spark itself
            return None
        check_slots(master, self._links.lanes)
        tasks = self._open_channel(settings, master)
        workers = LocalWorkers(tasks, settings, lambda stream: relay_lines(stream, []))
        moving = MovingJobs(workers, self._opened.channel.send)
        with self._lock:
            self._opened.moving = moving
            if self._abandoned:
                self._opened.close()
                return None
            self._opened.spark_deadline = Deadline(_SPARK_SECONDS, self._clock)
            self._engine.set_result(Engine(moving, self._opened.channel))
        self._opened.progressed.wait(_HEAD_START_SECONDS)
        return moving

    def _open_channel(self, settings: Mapping[str, str], master: str) -> LaneTasks:
        """Opens the channel of the lanes; returns the tasks that connect to it."""
        token = new_token()
        try:
            bind, host, port = channel_addresses(settings, master)
            channel = LaneChannel(
                bind,
                port,
                token=token,
                on_hello=self._greet,
                on_progress=self._update_progress,
                on_goodbye=self._part,
                on_groups=self._record_groups,
                clock=self._clock,
            )
        except (OSError, ValueError) as error:
            raise MirrorError(
                f"the driver cannot listen for connections of its lanes: {error}",
                fix="set spark.eomirror.channel.port to a free port, and spark.driver.host to an address that "
                "workers can reach",
            ) from error
        self._opened.channel = channel
        self._opened.tasks = LaneTasks(
            host=host,
            port=channel.port,
            token=token,
            version=self._options.version,
            log_level=_log_level(),
            lane=self._options.lane,
        )
        return self._opened.tasks

    def _stop_links(self, began: float, on_progress: Callable[[Snapshot], None] | None) -> None:
        # a link that waits for a cluster has nothing to finish, and must not delay the stop of many lanes further
        deadline = Deadline(_STOP_SECONDS, self._clock)
        with_lanes = Deadline(_STOP_SECONDS + more_stop_seconds(self._links.lanes), self._clock)
        self._tell("finishing open transactions")
        with self._lock:
            self._abandoned = True
            self._opened.progressed.set()
            # wakes links that wait for Spark; the starting thread closes a context that it still opens
            self._engine.cancel()
            self._opened.context.cancel()
        for link in self._links:
            link.request_stop()
        for link in self._links:
            if not link.join((with_lanes if link.lanes else deadline).remaining()):
                log.warning("link_left_behind", link=link.name)
        if on_progress is not None:
            on_progress(self._snapshot(began))

    def _tell(self, text: str) -> None:
        if self._options.on_event is not None:
            self._options.on_event(text)

    def _fail(self, error: BaseException) -> None:
        self._fatal = self._fatal or error
        self._inbox.put("look")

    # -- the channel's callbacks -----------------------------------------------------------------

    def _greet(self, attempt: AttemptId) -> Iterable[Mapping[str, Any]]:
        link, moving = self._links.get(attempt.link), self._opened.moving
        if link is None:
            return ()
        return [*link.greeting(attempt), *(() if moving is None else moving.greeting(attempt))]

    def _part(self, attempt: AttemptId, parted: bool) -> None:  # noqa: FBT001  the channel's callback
        link = self._links.get(attempt.link)
        if link is not None:
            link.lanes.disconnected(attempt, parted=parted)

    def _update_progress(self, attempt: AttemptId, progress: LaneProgress) -> None:
        self._opened.progressed.set()
        link = self._links.get(attempt.link)
        if link is not None:
            link.lanes.update(attempt, progress)

    def _record_groups(self, attempt: AttemptId, offsets: tuple[GroupOffset, ...]) -> None:
        link = self._links.get(attempt.link)
        if link is not None:
            link.group_thread.record_answers(offsets)

    # -- the end ---------------------------------------------------------------------------------

    def _raise_first_error(self) -> None:
        engine_error = (
            self._engine.exception() if self._engine.done() and not self._engine.cancelled() else None
        )
        links = [link for link in self._links if link.progress.error is not None]
        errors = [
            error for error in (engine_error, self._fatal, *(link.progress.error for link in links)) if error
        ]
        if not errors:
            return
        first = errors[0]
        others = {id(error): error for error in errors[1:] if error is not first and str(error) != str(first)}
        for error in others.values():
            first.add_note(f"also: {error}")
        raise first

    def _report(self, why: str, seconds: float) -> RunReport:
        links = tuple(self._link_report(link, why) for link in self._links)
        codes = [stop.exit_code for link in self._links for stop in link.progress.stopped_topics.values()]
        if why == "stopped":
            # Ended as asked; but a supervisor must not take a mirror that left a loss behind for a healthy one.
            exit_code = max((code for code in codes if code == DataLossError.exit_code), default=0)
        else:
            # A run that ends on its own fails if topics were stopped, or a link never started.
            stopped = any(link.stopped_topics or link.error for link in links)
            exit_code = max(codes, default=1) if stopped else 0
        return RunReport(
            run=self._run_id,
            seconds=seconds,
            exit_code=exit_code,
            aborted=any(link.lanes.aborted for link in self._links),
            links=links,
        )

    @staticmethod
    def _link_report(link: LinkThread, why: str) -> LinkReport:
        snapshot = link.snapshot()
        return LinkReport(
            link=link.name,
            outcome=why,
            generation=link.generation,
            counters=snapshot.counters,
            lag_records=snapshot.lag_records,
            lag_unknown=snapshot.lag_unknown,
            offsets_left=None if snapshot.goal_progress is None else snapshot.goal_progress.left,
            retries=sum(lane.retries for lane in snapshot.lanes),
            stopped_topics={topic: str(stop) for topic, stop in link.progress.stopped_topics.items()},
            error=str(link.progress.error or snapshot.waiting),
            behind_open=snapshot.behind_open,
        )


def _log_level() -> str:
    """Returns the log level of this process, for the workers, whose events this process logs."""
    if not structlog.is_configured():
        return "info"
    logger: Any = structlog.get_logger()
    level = getattr(logger.bind(), "get_effective_level", lambda: 20)()
    return {10: "debug", 20: "info", 30: "warning", 40: "error"}.get(int(level), "info")
