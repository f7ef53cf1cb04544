"""
Carries out a lane's commands against a plane and the link's state topics: the only loop that does I/O.

Each command is one method, and each method returns one event.  State between commands is kept in the runner's fields;
`eomirror.lane.machine` decides the next command.
"""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import Clock, Deadline, Term
from eomirror.crash import crash_point
from eomirror.errors import (
    LaneError,
    MirrorError,
    PlaneChangedError,
    SourceDamagedError,
    TransactionFailedError,
)
from eomirror.lane.commit import (
    CommitPermit,
    CopiesCutError,
    SpeculativeState,
    TransactionStamp,
    claim_of,
    grant,
    speculative_records,
    state_records,
)
from eomirror.lane.errors import Outcome, judge
from eomirror.lane.machine import WITH_TRANSACTION, Command, Event, LaneMachine, LaneState
from eomirror.lane.mm2_records import Mm2Records
from eomirror.lane.offset_map_compaction import OffsetMapCompaction
from eomirror.lane.partitions import LanePartitions
from eomirror.lane.poison_records import RejectionHandler
from eomirror.lane.spec import AssignedPartition, Ending, LaneMailbox, LaneReport, LaneSpec
from eomirror.lane.stats import AttemptStats
from eomirror.lane.topic_ids import TopicIdRequest
from eomirror.lane.transaction_timer import CommitTrigger, TransactionTimer
from eomirror.plane.protocol import CommitOutcome, MetadataRecord, ProducerIdentity, RangeRefusedError
from eomirror.records.names import LinkNames
from eomirror.recovery.corrupt_batches import after_damage, damage_error
from eomirror.recovery.resolve_hanging import HangingResolver

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.lane.mm2_records import SyncSink
    from eomirror.lane.ports import ChunkSweep, CopyWatch, StateReader, TopicComparer
    from eomirror.lane.spec import StoppedTopic
    from eomirror.plane.select import PlaneSelector
    from eomirror.records.position import Position
    from eomirror.recovery.hanging import HangingClient
    from eomirror.types import SourcePartition

__all__ = ["LaneRunner"]

log = structlog.get_logger(__name__)

_SLICE_SECONDS = 0.1  # bounds the reaction time to a stop


class LaneRunner:
    """
    Runs one attempt of a lane.

    Args:
        spec: What to mirror.
        planes: Selects the plane that moves the bytes, for each producer.
        state: Reads the link's state topics.
        topics: Reads both clusters' topics.
        mailbox: Channel to the driver.
        syncs: Receives offset syncs for the source.
        sweep: Finds droppable chunks of the offset map; None to drop none.
        hanging_client: Finds and ends hanging transactions on the target; None for no search.
        copies: Checks once a minute that copies hold all acknowledged records; None to check in transactions only.

    Attributes:
        machine: State of the attempt.
        outcome: Result of the attempt, if it ended now.
    """

    def __init__(
        self,
        spec: LaneSpec,
        *,
        planes: PlaneSelector,
        state: StateReader,
        topics: TopicComparer,
        mailbox: LaneMailbox,
        clock: Clock,
        syncs: SyncSink | None = None,
        sweep: ChunkSweep | None = None,
        hanging_client: HangingClient | None = None,
        copies: CopyWatch | None = None,
    ) -> None:
        self.machine = LaneMachine()
        self.outcome = Outcome()
        self._spec = spec
        self._planes = planes
        self._state = state
        self._topics = topics
        self._mailbox = mailbox
        self._clock = clock
        self._names = LinkNames(spec.link.state_name)
        self._epoch_end: Term = Deadline(spec.seconds, clock)
        self._extended = False  # past the epoch's end
        self._partitions = LanePartitions(spec.partitions)
        self._adopting: tuple[AssignedPartition, ...] = ()
        # partitions that were added between two epochs
        self._late: tuple[AssignedPartition, ...] = ()
        self._identity = ProducerIdentity(-1, -1)
        self._permit: CommitPermit | None = None
        self._speculative_state = SpeculativeState()
        self._stamp: TransactionStamp | None = None
        self._mm2_records = Mm2Records(spec.link, syncs, partitions=len(spec.partitions))
        self._compaction = OffsetMapCompaction(len(spec.partitions))
        self._sweep = sweep
        self._ids: tuple[Mapping[str, str | None], Mapping[str, str | None]] = ({}, {})
        self._timer = TransactionTimer(
            CommitTrigger(interval=spec.link.commit_interval, interval_min=spec.link.commit_interval_min)
        )
        self._stats = AttemptStats(spec, since_ms=clock.wall_ms())
        self._rejections = RejectionHandler(spec.link, topics)
        self._plane = planes.select(self._rejections.policy.send_plan)
        self._hanging_client = hanging_client
        self._copies = copies
        self._resolver = (
            HangingResolver(self._names, hanging_client, self._mm2_records.readers)
            if hanging_client
            else None
        )
        # of any layout of the link
        self._highest_lane = spec.lane
        self._overdue, self._damaged = False, spec.damaged
        self._methods: dict[Command, Callable[[], Event]] = {
            Command.INIT_PRODUCER: self._init_producer,
            Command.READ_CONTROL: self._read_control,
            Command.READ_POSITIONS: self._read_positions,
            Command.COMPARE_TOPICS: self._compare_topics,
            Command.RESOLVE_HANGING: self._resolve_hanging,
            Command.COMMIT_CLAIM: self._commit_claim,
            Command.AWAIT_RECORDS: self._await_records,
            Command.ADOPT_PARTITIONS: self._adopt_partitions,
            Command.BEGIN: self._begin,
            Command.PUMP: self._pump,
            Command.BEGIN_EMPTY: self._begin_empty,
            Command.FLUSH: self._flush,
            Command.COMMIT: self._commit,
            Command.ABORT: self._abort,
        }

    def run(self) -> LaneReport:
        """Runs until the machine closes; never raises a LaneError or a MirrorError."""
        command = self.machine.first()
        while command is not Command.END:
            event = self._carry_out(command)
            if event in {Event.FAILED, Event.FENCED}:
                timeout = self._spec.link.transaction_timeout
                self._overdue = self._timer.overdue(self._clock.monotonic(), self.machine.state, timeout)
            if event is Event.FENCED and self.machine.state in WITH_TRANSACTION:
                self._stats.fence()
            command = self.machine.step(event)
        self._report(force=True)
        return self._stats.report(self.outcome, self.stopped, overdue=self._overdue, damaged=self._damaged)

    @property
    def mirrored(self) -> tuple[AssignedPartition, ...]:
        """All partitions of the lane, revisions included."""
        return self._partitions.assigned

    @property
    def stopped(self) -> Mapping[str, StoppedTopic]:
        """Stopped topics."""
        return self._partitions.stopped

    def resume(self, spec: LaneSpec, mailbox: LaneMailbox) -> None:
        """
        Resumes in the next epoch with the same producer; `run` follows.

        Args:
            spec: A successor by `eomirror.spark.handover.is_successor`.
            mailbox: Its channel to the driver.
        """
        self.machine = LaneMachine(LaneState.CLAIMING)
        self._spec = spec
        self._mailbox = mailbox
        self._epoch_end, self._extended = Deadline(spec.seconds, self._clock), False
        self._late = self._partitions.new_among(spec.partitions)
        self._partitions.gaps.clear()
        self._permit = None
        self._timer.committed(self._clock.monotonic())
        self._stats = AttemptStats(spec, since_ms=self._stats.since_ms)
        self._overdue, self._damaged = False, spec.damaged
        self.outcome = Outcome()

    def extend(self, end: Term) -> None:
        """Extends the attempt past the epoch's end until ``end``; `run` follows."""
        self.machine = LaneMachine(LaneState.IDLE)
        self._epoch_end, self._extended = end, True
        self.outcome = Outcome()

    def interrupt(self) -> None:
        """Aborts the open transaction after a signal: the driver is gone or stops the lane at once."""
        if self.machine.state in WITH_TRANSACTION:
            self._plane.abort()

    # -- one command, one event ------------------------------------------------------------------

    def _carry_out(self, command: Command) -> Event:
        try:
            return self._methods[command]()
        except RangeRefusedError as error:
            stopping = self._rejections.handle(error.rejection, self._partitions.positions)
            return Event.RECORD_REFUSED if stopping is None else self._failed(stopping, command)
        except (LaneError, MirrorError) as error:
            return self._failed(error, command)

    def _failed(self, error: LaneError | MirrorError, command: Command) -> Event:
        # without a position its topic was stopped while its last fetches were on the way
        if isinstance(error, SourceDamagedError) and (
            position := self._partitions.positions.get(error.source)
        ):
            self._damaged = after_damage(self._damaged, error, position.offset)
            error = damage_error(error, self._damaged[-1]) or error
        if isinstance(error, CopiesCutError):
            for lost in error.errors:
                if self._partitions.stop(lost.topic, lost):
                    self._log_stopped(lost.topic, lost)
        if isinstance(error, PlaneChangedError):
            self._planes.fall_back(str(error))
        verdict = judge(error, command)
        if verdict.topic and isinstance(error, MirrorError) and self._partitions.stop(verdict.topic, error):
            self._log_stopped(verdict.topic, error)
        self.outcome = verdict.outcome
        return verdict.event

    def _init_producer(self) -> Event:
        self._leave_id()
        self._plane.restart()
        self._plane = self._planes.select(self._rejections.policy.send_plan)
        self._partitions.forget()
        self._permit = None
        self._mm2_records.forget()
        self._compaction.forget()
        self._identity = self._plane.open()
        crash_point("lane.initialized")
        return Event.PRODUCER_READY

    def _read_control(self) -> Event:
        if self._resolver is not None:
            spec, mine = self._spec, self._identity.producer_id
            number = spec.lane % self._state.state_topics().positions_partitions
            if self._resolver.find_hanging_state(
                {number}, lambda: {mine: spec.lane}, self._state.read_positions
            ):
                return Event.HANGING_FOUND
        newest = self._state.read_control().generation
        crash_point("lane.control_read")
        if newest is None or (newest.generation, newest.run) != (self._spec.generation, self._spec.run):
            seen = "none" if newest is None else f"{newest.generation} of run {newest.run}"
            self.outcome = Outcome(
                Ending.SUPERSEDED, f"control holds generation {seen}, not {self._spec.generation}"
            )
            return Event.CONTROL_NEWER
        self._highest_lane = newest.highest_lane
        return Event.CONTROL_OURS

    def _read_positions(self) -> Event:
        self._take_positions(self._partitions.assigned)
        crash_point("lane.positions_read")
        return Event.POSITIONS_READ

    def _compare_topics(self) -> Event:
        if not self._started(tuple(self._partitions.positions)):
            return Event.HANGING_FOUND
        crash_point("lane.topics_compared")
        if not self._partitions.positions:
            self.outcome = Outcome(Ending.FAILED, "all topics of the lane are stopped")
            return Event.NOTHING_LEFT
        return Event.TOPICS_COMPARED

    def _resolve_hanging(self) -> Event:
        assert self._resolver is not None, "only a search leads here"  # noqa: S101  for the type checker
        self._leave_id()
        ended = self._resolver.end({self._spec.lane: self._identity})
        log.warning("left_open_ended", lane=self._spec.lane, committed=ended)
        crash_point("lane.hanging_resolved")
        return Event.RESOLVED

    def _commit_claim(self) -> Event:
        self._identity = self._plane.begin()
        stamp = self._new_stamp()
        claim = claim_of(stamp, self._plane.serving(), host=socket.gethostname(), pid=os.getpid())
        topics = self._state.state_topics()
        lane_partition = stamp.lane % topics.positions_partitions
        records = [MetadataRecord(topics.positions, lane_partition, claim.key(), claim.value())]
        behind_gaps = self._partitions.moved_behind_gaps(stamp)
        for gap, moved in behind_gaps:
            records.append(MetadataRecord(self._names.control_topic, 0, gap.key(), gap.value()))
            records.append(MetadataRecord(topics.positions, lane_partition, moved.key(), moved.value()))
        self._plane.write(records)
        crash_point("lane.claim_written")
        outcome = self._plane.commit()
        crash_point("lane.claimed")
        self._partitions.committed(moved for _, moved in behind_gaps)
        for gap, _ in behind_gaps:
            log.warning("gap_accepted", source=str(gap.source), start=gap.start, end=gap.end)
        if outcome is CommitOutcome.CLEAN:
            self._partitions.gaps.clear()
        self._report(force=True)
        return Event.COMMIT_CLEAN if outcome is CommitOutcome.CLEAN else Event.COMMIT_SUSPECT

    def _await_records(self) -> Event:
        self._report()
        self._watch_copies()
        leaving = self._leaving()
        if leaving is not None:
            # a stop must not wait for a target that is down: only after a recent answer a last transaction is begun
            answered = self._timer.answered_lately(self._clock.monotonic())
            if leaving.ending is Ending.STOPPED and answered and self._compaction.leave():
                return Event.ADVANCE_DUE
            self.outcome = leaving
            return Event.LEAVE
        late, self._late = self._late, ()
        added = self._partitions.new_among((*late, *self._mailbox.added()))
        if added:
            self._adopting = added
            return Event.PARTITIONS_ADDED
        if self._plane.await_records(_SLICE_SECONDS):
            return Event.RECORDS_READY
        self._follow()
        now = self._clock.monotonic()
        if self._mm2_records.due(now) or self._compaction.due(now):
            return Event.ADVANCE_DUE
        due = self._timer.advance_due(now, moved=bool(self._plane.advances()))
        return Event.ADVANCE_DUE if due else Event.QUIET

    def _adopt_partitions(self) -> Event:
        added, self._adopting = self._adopting, ()
        self._partitions.assign(added)
        self._take_positions(added)
        if not self._started([item.source for item in added]):
            return Event.HANGING_FOUND
        return Event.GAPS_ACCEPTED if self._partitions.gaps else Event.PARTITIONS_READY

    def _begin(self) -> Event:
        self._open()
        return self._pump()

    def _begin_empty(self) -> Event:
        self._open()
        return Event.CUT_DUE

    def _pump(self) -> Event:
        max_wait = self._timer.max_wait(self._clock.monotonic())
        self._timer.add(self._plane.pump(min(max_wait, _SLICE_SECONDS)))
        self._report()
        crash_point("lane.produced")
        due = self._timer.commit_due(self._clock.monotonic(), leaving=self._leaving() is not None)
        return Event.CUT_DUE if due else Event.MORE_WANTED

    def _flush(self) -> Event:
        topics = {source.topic for source in self._plane.advances()} | self._mm2_records.topics
        positions, targets = self._partitions.positions, self._partitions.targets
        topics = (topics & targets.keys()) or {source.topic for source in positions}
        asked = TopicIdRequest(topics, targets=targets, plane=self._plane, topics=self._topics)
        # one stamp for all rounds, so that unchanged state records are not sent again
        self._stamp = stamp = self._stamp or self._new_stamp()
        speculated = self._plane.speculate()
        if speculated is not None:
            # likely state records travel with the data instead of after it
            speculative = speculative_records(
                self._partitions.without_stopped(speculated), positions, stamp, self._state.state_topics()
            )
            self._plane.write(self._speculative_state.changed(speculative))
        flushed = self._plane.flush(self._spec.link.transaction_timeout)
        crash_point("lane.flushed")
        if self._timer.takes_more(self._clock.monotonic()) and self._plane.has_more() and not self._leaving():
            self._timer.add_round()
            return Event.MORE_CAME
        if missing := {source.topic for source in flushed.advances} - topics:
            raise TransactionFailedError(f"records of {sorted(missing)} whose topic id was not requested")
        self._ids = source_ids, target_ids = asked.result(positions)
        self._permit = grant(
            self._partitions.without_stopped(flushed),
            positions,
            source_ids=source_ids,
            target_ids=target_ids,
            stamp=stamp,
        )
        return Event.FLUSHED

    def _commit(self) -> Event:
        permit, self._permit = self._permit, None
        assert permit is not None, "the machine flushes before it commits"  # noqa: S101  for the type checker
        now = self._clock.monotonic()
        # never speculative: MM2's reader keeps every sync it sees, even when a later one of the key corrects it
        accompanying = self._mm2_records.plan(permit, self._partitions.positions, self._ids, now)
        tidying = self._compaction.plan(self._state.state_topics(), now)
        changed = self._speculative_state.changed(state_records(permit, self._state.state_topics()))
        gaps = [MetadataRecord(self._names.control_topic, 0, gap.key(), gap.value()) for gap in permit.gaps]
        if records := [*changed, *gaps, *accompanying.records, *tidying.records]:
            self._plane.write(records)
        if tidying.records:
            crash_point("lane.map_compacted")
        crash_point("lane.state_written")
        outcome = self._plane.commit()
        crash_point("lane.committed")
        self._partitions.committed(permit.positions)
        for gap in permit.gaps:
            log.warning("gap_accepted", source=str(gap.source), start=gap.start, end=gap.end)
        self._mm2_records.committed(accompanying)
        self._compaction.committed(tidying, permit.positions, permit.chunks)
        took = self._timer.seconds(self._clock.monotonic())
        self._stats.add(permit.positions, seconds=took, wall_ms=self._clock.wall_ms())
        clean = self._pass_rejections() and outcome is CommitOutcome.CLEAN
        self._timer.committed(self._clock.monotonic())
        self._report()
        self._follow()
        return Event.COMMIT_CLEAN if clean else Event.COMMIT_SUSPECT

    def _abort(self) -> Event:
        self._mm2_records.aborted()
        self._plane.abort()
        self._stats.abort()
        return Event.ABORTED

    # -- pieces ----------------------------------------------------------------------------------

    def _pass_rejections(self) -> bool:
        """Records the positions of a commit; returns False if another plane, and so a new producer, takes over."""
        if not self._rejections.policy.passed(self._partitions.positions):
            return True
        before, self._plane = self._plane, self._planes.select(self._rejections.policy.send_plan)
        return self._plane is before

    def _watch_copies(self) -> None:
        """Handles findings about copies that no transaction writes to, and starts the next check if due (EO-5)."""
        if self._copies is None:
            return
        if found := self._copies.take():
            mirrored = {source.topic for source in self._partitions.positions}
            if lost := [error for error in found if error.topic in mirrored]:
                raise CopiesCutError(lost)
        self._copies.begin(self._partitions.positions)

    def _leave_id(self) -> None:
        if self._extended:  # a successor may own the id
            raise LaneError("the epoch is over: only the next one may take the id")

    def _open(self) -> None:
        self._timer.open(self._clock.monotonic())
        self._speculative_state.forget()
        self._stamp = None
        self._identity = self._plane.begin()
        crash_point("lane.begun")

    def _take_positions(self, wanted: Sequence[AssignedPartition]) -> None:
        self._partitions.take(
            wanted,
            self._state.read_positions(),
            generation=self._spec.generation,
            topic=self._names.positions_topic,
        )

    def _started(self, sources: Sequence[SourcePartition]) -> bool:
        """Fetches sound partitions and stops unsound topics; False if hanging transactions must be resolved first."""
        positions = self._partitions.positions
        resumed = self._partitions.resume(
            wanted := [positions[one] for one in sources],
            self._topics.facts(wanted),
            accept_gaps=self._spec.link.on_gap == "accept",
            keyed=self._spec.link.keyed,
            run=self._spec.run,
            wall_ms=self._clock.wall_ms(),
        )
        for topic, error in resumed.stopped:
            self._log_stopped(topic, error)
        looked = {one: positions[one] for one in sources if one in positions}
        if self._resolver is not None and self._find_hanging_copies(self._resolver, looked):
            return False
        self._plane.start([one for one in resumed.starts if one.source in positions])
        return True

    def _find_hanging_copies(
        self, resolver: HangingResolver, looked: Mapping[SourcePartition, Position]
    ) -> bool:
        """Returns whether hanging transactions must be resolved; else stops topics whose positions are wrong."""

        def stop(position: Position, error: MirrorError) -> None:
            if self._partitions.stop(position.topic, error):
                self._log_stopped(position.topic, error)

        topics, dead_letters = self._state.state_topics(), self._spec.link.on_refused == "dead-letter"
        mine = {self._identity.producer_id: self._spec.lane}
        found = resolver.find_hanging_copies(
            looked, topics=topics, dead_letters=dead_letters, mine=mine, lanes=self._lanes, stop=stop
        )
        if not found:
            left = [one for source, one in looked.items() if source in self._partitions.positions]
            resolver.stop_torn_topics(left, lanes=self._lanes, again=self._state.read_positions, stop=stop)
            resolver.release()
        return found

    def _lanes(self) -> Mapping[int, int]:
        """Returns producer id -> lane, for this lane and those that may have had its partitions before."""
        assert self._hanging_client is not None, "only a search leads here"  # noqa: S101  for the type checker
        return {**self._hanging_client.lanes(self._highest_lane), self._identity.producer_id: self._spec.lane}

    def _log_stopped(self, topic: str, error: MirrorError) -> None:
        log.error("topic_stopped", topic=topic, reason=error.message, fix=error.fix)

    def _new_stamp(self) -> TransactionStamp:
        txn, timestamp = self._stats.transactions + 1, self._clock.wall_ms()
        return TransactionStamp.of(self._spec, self._identity, txn=txn, timestamp=timestamp)

    def _follow(self) -> None:
        if self._sweep is not None:
            self._sweep.begin(self._partitions.positions)
            self._compaction.drop(self._sweep.take())
        if self._mm2_records.follows:
            answers = self._mm2_records.update(self._mailbox.followed(), self._partitions.positions)
            if answers:
                self._mailbox.answer(answers)

    def _leaving(self) -> Outcome | None:
        reason = self._mailbox.stop()
        if reason is not None:
            return Outcome(Ending.STOPPED, reason.value)
        # the next epoch may run elsewhere, and would restart the search for a refused record
        if self._epoch_end.passed and not self._rejections.policy.searching:
            return Outcome(Ending.EPOCH, "epoch over")
        return None

    def _report(self, *, force: bool = False) -> None:
        now = self._clock.monotonic()
        if not (force or self._stats.due(now)):
            return
        self._mailbox.report(
            self._stats.progress(
                self.machine.state.value,
                self._partitions.positions,
                self._plane,
                stopped=self.stopped,
                now=now,
                wall_ms=self._clock.wall_ms(),
            )
        )
        self._stats.took(self._clock.monotonic() - now)
