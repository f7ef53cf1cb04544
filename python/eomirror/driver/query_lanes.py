"""
The one lane of a link whose records a query writes: its attempts are Structured Streaming queries of this process.

An attempt takes the steps of a lane on a worker (`eomirror.lane.start`): it takes the lane's transactional id, reads
control and positions, compares them with both clusters, and commits its claim.  Then a query reads from the positions,
and its sink commits the new positions with the rows (`eomirror.dataframe.query`).
"""

from __future__ import annotations

import os
import re
import socket
import threading
import traceback
from concurrent.futures import CancelledError
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import structlog

from eomirror import errors
from eomirror.crash import crash_point
from eomirror.dataframe.link_sink import LinkPorts, LinkSink, Placement
from eomirror.dataframe.query import LinkStream
from eomirror.dataframe.settings import FENCED_CODES
from eomirror.driver.channel import AttemptId
from eomirror.driver.link_lanes import LinkLanes
from eomirror.errors import (
    BrokerFailedError,
    FencedError,
    LaneError,
    MirrorError,
    StoppedError,
    SupersededError,
    TransactionRefusedError,
    UnreachableError,
)
from eomirror.kafka.session import link_sessions
from eomirror.lane.errors import Outcome, judge
from eomirror.lane.machine import Command
from eomirror.lane.partitions import LanePartitions
from eomirror.lane.spec import Ending
from eomirror.lane.stats import AttemptStats
from eomirror.link.lane_state import LaneStateReader, LaneTopics
from eomirror.plane.protocol import Serving
from eomirror.records.names import LinkNames
from eomirror.spark.jobs import cause_of, ending_of_job
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from concurrent.futures import Future

    from eomirror.clock import Clock
    from eomirror.config import Link
    from eomirror.kafka.session import LinkSessions
    from eomirror.lane.spec import LaneProgress, LaneReport, LaneSpec
    from eomirror.plane.protocol import Plane

__all__ = ["QueryAttempt", "QueryLanes", "failed_here", "failed_query"]

log = structlog.get_logger(__name__)

_LOOK_SECONDS: Final = 0.5

# in a text of Spark: an error of ours, Spark's name of an error, a frame of Python, the type of an exception
_OURS = re.compile(r"^\s*eomirror\.errors\.(\w+): (.*)(?:\n  fix: (.*))?", re.MULTILINE)
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_.]+)\]")
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
_TYPE = re.compile(r"[A-Za-z_][\w.]*")


class QueryLanes(LinkLanes):
    """
    Runs the query of one link.

    Args:
        context: Completes with the Spark context.
        given: Arguments of `LinkLanes`.
    """

    def __init__(self, context: Future[Any], *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._context = context
        self._attempt: QueryAttempt | None = None

    def run_attempt(self, spec: LaneSpec) -> LaneReport:
        """Runs an attempt as a query of Spark."""
        identity = AttemptId(spec.link.name, spec.lane, spec.epoch, spec.attempt)
        attempt = QueryAttempt(
            spec, self._context, lambda progress: self.update(identity, progress), self._tools.clock
        )
        self._attempt = attempt
        attempt.tell(self.greeting(identity))
        key = (spec.lane, spec.epoch, spec.attempt)
        self.running.add(key)
        try:
            return attempt.run()
        finally:
            self.running.discard(key)
            self._attempt = None

    def send(self, lane: int, messages: Iterable[Mapping[str, Any]]) -> None:
        """Tells the running attempt; there is one lane."""
        del lane
        if (attempt := self._attempt) is not None:
            attempt.tell(messages)

    send_to_all = send

    def wait_disconnected(self, lane: int) -> None:
        """Returns at once: an attempt ends with its thread."""

    def cancel(self, lane: int) -> None:
        """Cancels the micro-batch of the running attempt."""
        del lane
        if (attempt := self._attempt) is not None:
            attempt.cancel()


class QueryAttempt:
    """
    One attempt of a link's query.

    Args:
        spec: The attempt.
        context: Completes with the Spark context.
        report: Called with its progress.
        clock: Source of time.
    """

    def __init__(
        self, spec: LaneSpec, context: Future[Any], report: Callable[[LaneProgress], None], clock: Clock
    ) -> None:
        self._spec = spec
        self._context = context
        self._report = report
        self._clock = clock
        self._ending: Ending | None = None
        self._told = threading.Event()
        self._partitions = LanePartitions(spec.partitions)
        self._stats = AttemptStats(spec, since_ms=clock.wall_ms())
        self._ends: dict[SourcePartition, int] = {}
        self._sink: LinkSink | None = None
        self._stream: LinkStream | None = None
        self._lock = threading.Lock()

    # -- from other threads -------------------------------------------------------------------------

    def tell(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Ends the attempt between two micro-batches: it is to stop, or its partitions have changed."""
        for message in messages:
            kind = message.get("type")
            if kind not in {"stop", "added"}:
                continue
            self._ending = Ending.STOPPED if kind == "stop" else self._ending or Ending.EPOCH
            if self._sink is not None:
                self._sink.closing = True
            self._told.set()

    def cancel(self) -> None:
        """Cancels the micro-batch that runs: its transaction is aborted."""
        self._told.set()
        if self._stream is not None:
            # in a thread of its own: Spark waits for the batch
            threading.Thread(target=self._stream.stop, name="query-cancel", daemon=True).start()

    # -- what `AttemptStats` asks a plane -----------------------------------------------------------

    def log_ends(self) -> Mapping[SourcePartition, int]:
        """Returns the last stable offsets of the source, as last read."""
        return self._ends

    def serving(self) -> Serving:
        """Returns what moves the bytes."""
        query = self._spec.link.query
        return Serving(
            plane="" if query is None else query.kind, reason="transform is a query", protocol="V2"
        )

    # -----------------------------------------------------------------------------------------------

    def run(self) -> LaneReport:
        """Runs until it is told to end, or fails; returns the result."""
        try:
            with ExitStack() as clients:
                outcome = self._run(clients)
        except Exception as error:  # noqa: BLE001  Spark's own, also of the JVM's end
            outcome = self._outcome(error)
        self._tell_progress("ended")
        return self._stats.report(outcome, self._partitions.stopped, overdue=False, damaged=())

    def _run(self, clients: ExitStack) -> Outcome:
        spec = self._spec
        sessions = link_sessions(spec.link, spec.source, spec.target, f"lane-{spec.lane}", clock=self._clock)
        clients.callback(sessions.close)
        state = LaneStateReader(spec, sessions.target)
        topics = LaneTopics(spec, sessions.source.admin, sessions.target.admin, self._clock)
        query = spec.link.query
        assert query is not None, "only links with a query run here"  # noqa: S101  for the type checker
        sink = LinkSink(
            spec, query, LinkPorts(state, topics, self._placed(sessions), self._committed), self._clock
        )
        sink.open()
        newest = state.read_control().generation
        if newest is None or (newest.generation, newest.run) != (spec.generation, spec.run):
            return Outcome(Ending.SUPERSEDED, "control holds another generation")
        self._take_positions(state, topics)
        if not self._partitions.positions:
            return Outcome(
                Ending.FAILED, "all topics of the link are stopped", _first_error(self._partitions)
            )
        sink.positions = dict(self._partitions.positions)
        crash_point("lane.topics_compared")
        sink.claim(host=socket.gethostname(), pid=os.getpid())
        self._sink = sink
        if self._ending is not None:
            # told before there was a sink
            sink.closing = True
        self._read_ends(sessions)
        self._tell_progress("running")
        stream = LinkStream(self._context.result(), sink, tasks=spec.link.lanes)
        clients.callback(stream.close)
        self._stream = stream
        self._follow(stream, sessions, sink)
        if self._ending is None:
            raise stream.error or MirrorError("the query ended, and Spark gives no reason")
        return Outcome(self._ending, "the driver stopped it")

    def _take_positions(self, state: LaneStateReader, topics: LaneTopics) -> None:
        spec, partitions = self._spec, self._partitions
        partitions.take(
            spec.partitions,
            state.read_positions(),
            generation=spec.generation,
            topic=LinkNames(spec.link.state_name).positions_topic,
        )
        held = list(partitions.positions.values())
        resumed = partitions.resume(
            held,
            topics.facts(held),
            accept_gaps=False,
            keyed=True,
            run=spec.run,
            wall_ms=self._clock.wall_ms(),
        )
        for topic, error in resumed.stopped:
            log.error("topic_stopped", topic=topic, reason=error.message, fix=error.fix)

    def _placed(self, sessions: LinkSessions) -> Placement:
        targets = {item.source.topic: item.target_topic for item in self._spec.partitions}
        facts = sessions.target.admin.describe_topics(sorted(set(targets.values())))
        counts = {name: 0 if found is None else found.partitions for name, found in facts.items()}
        return Placement(targets, {topic: counts[target] for topic, target in targets.items()})

    def _follow(self, stream: LinkStream, sessions: LinkSessions, sink: LinkSink) -> None:
        """Runs the query until it ends, or is told to."""
        spec = self._spec
        starts = {source: position.offset for source, position in self._partitions.positions.items()}
        stream.start(
            f"eomirror {spec.link.name} {spec.epoch}.{spec.attempt}",
            spec.source,
            starts,
            interval=spec.link.commit_interval,
        )
        while stream.active and not self._told.wait(_LOOK_SECONDS):
            self._read_ends(sessions)
            self._tell_progress("running")
        # the batch that runs is committed; the next one does not begin
        while stream.active and sink.busy:
            self._clock.sleep(0.02)

    # -- progress -----------------------------------------------------------------------------------

    def _committed(self, positions: Any, seconds: float) -> None:
        # in a thread of Spark, while another one tells the progress
        with self._lock:
            self._partitions.committed(positions)
            self._stats.add(positions, seconds=seconds, wall_ms=self._clock.wall_ms())
        self._tell_progress("running")

    def _read_ends(self, sessions: LinkSessions) -> None:
        try:
            found = sessions.source.admin.offsets(
                sorted(self._partitions.positions), at="latest", read_committed=True
            )
            self._ends = {SourcePartition(*source): offset for source, offset in found.items()}
        except MirrorError as error:
            log.debug("source_ends_not_read", link=self._spec.link.name, reason=error.message)

    def _tell_progress(self, state: str) -> None:
        with self._lock:
            self._report(
                self._stats.progress(
                    state,
                    self._partitions.positions,
                    # the two methods that it asks
                    cast("Plane", self),
                    stopped=self._partitions.stopped,
                    now=self._clock.monotonic(),
                    wall_ms=self._clock.wall_ms(),
                )
            )

    def _outcome(self, error: BaseException) -> Outcome:
        # the last: a stop before Spark was up
        if self._ending is not None or isinstance(error, StoppedError | CancelledError):
            return Outcome(self._ending or Ending.STOPPED, "stopped")
        if isinstance(error, TransactionRefusedError):
            fenced = error.code in FENCED_CODES
            return Outcome(Ending.SUPERSEDED if fenced else Ending.REBUILD, error.message)
        if isinstance(error, SupersededError | FencedError):
            return Outcome(Ending.SUPERSEDED, str(error))
        if isinstance(error, LaneError | MirrorError):
            consequence = judge(error, Command.PUMP)
            if consequence.topic and isinstance(error, MirrorError):
                self._partitions.stop(consequence.topic, error)
            return consequence.outcome
        if type(error).__module__.partition(".")[0] in {"pyspark", "py4j"}:
            return failed_query(self._spec.link, str(error))
        return failed_here(self._spec.link, error)


def failed_here(link: Link, error: BaseException) -> Outcome:
    """
    Returns the outcome of an error in this process that is neither ours nor Spark's: a bug.

    Args:
        error: Only its type and its place are told: its text may quote a record.
    """
    frames = traceback.extract_tb(error.__traceback__)
    place = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
    reason = f"{type(error).__name__}{place}"
    bug = MirrorError(f"link {link.name}: {reason}", fix="report this as a bug, with the log")
    return Outcome(Ending.TASK_RAISED, reason, bug)


def failed_query(link: Link, text: str) -> Outcome:
    """
    Returns the outcome of an error that Spark passes on as a text.

    An error of ours keeps its meaning.  Of any other one only type and place are told: its text may quote a record, and
    reasons are written to the log and to the target.

    Args:
        text: Text of the error, with tracebacks of Python.
    """
    query = link.query
    who = f"transform: {'' if query is None else query.kind}"
    if ours := _OURS.findall(text):
        name, message, fix = ours[-1]
        kind = getattr(errors, name, None)
        if isinstance(kind, type) and issubclass(kind, LaneError):
            return Outcome(Ending.REBUILD, message)
        if isinstance(kind, type) and issubclass(kind, MirrorError):
            outcome = judge(MirrorError(message, fix=fix), Command.PUMP).outcome
            passing = issubclass(kind, UnreachableError | BrokerFailedError)
            return replace(outcome, ending=Ending.REBUILD if passing else Ending.TASK_RAISED)
    ending = ending_of_job(text)
    if ending is not Ending.TASK_RAISED:
        return Outcome(ending, f"{who}: {ending}")
    place, cause = _PLACE.findall(text), cause_of(text)
    kind = _TYPE.match(cause)
    # what another exception of Python has in brackets may be part of a record
    condition = (
        None if place and not cause.startswith("pyspark.") else _CONDITION.search(cause if place else text)
    )
    reason = condition[1] if condition else kind[0] if kind else "an exception"
    if place and query is not None and query.kind == "python":
        reason += f" in {Path(place[-1][0]).name}, line {place[-1][1]}"
    error = MirrorError(
        f"link {link.name}: {who} fails: {reason}",
        fix="correct the query: each record has to pass it; try it on the topic in a Spark session of your own, which "
        "shows the message (it may quote a record, so it is not written here)",
    )
    return Outcome(ending, f"{who}: {reason}", error)


def _first_error(partitions: LanePartitions) -> MirrorError | None:
    for stop in partitions.stopped.values():
        return MirrorError(stop.reason, fix=stop.fix)
    return None
