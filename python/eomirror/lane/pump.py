"""
Carries out a lane's commands against a plane and the link's state topics: the only loop that does I/O.

Each command is one method, and each method answers with one event.  What a method needs to remember between
commands stands in the pump's fields; what may follow what is decided in `eomirror.lane.machine`.
"""

from __future__ import annotations

import os
import socket
from dataclasses import replace
from typing import TYPE_CHECKING

import structlog

from eomirror.clock import Clock, Deadline
from eomirror.crash import crash_point
from eomirror.errors import (
    AuthorizationError,
    FencedError,
    LaneError,
    MirrorError,
    OutcomeUnknownError,
    TransactionFailedError,
    UnreachableError,
)
from eomirror.formats.control import Gap
from eomirror.formats.names import LinkNames
from eomirror.lane.commit import (
    CommitPermit,
    TopicsChangedError,
    TransactionStamp,
    behind_gap,
    claim_of,
    foresee,
    grant,
    state_records,
)
from eomirror.lane.companions import Companions
from eomirror.lane.identity import AskedTopics
from eomirror.lane.machine import Command, CutRule, Event, LaneMachine, LaneState, OpenTransaction
from eomirror.lane.plane import CommitOutcome, MetadataRecord, Plane, ProducerIdentity, Sealed, Start
from eomirror.lane.recover import Resume, Stop, decide_resume
from eomirror.lane.refusal import RangeRefusedError
from eomirror.lane.refusal_steps import RefusalSteps
from eomirror.lane.spec import AssignedPartition, Ending, LaneMailbox, LaneReport, LaneSpec
from eomirror.lane.tally import AttemptTally
from eomirror.lane.tidying import MapTidying

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from eomirror.formats.position import Position
    from eomirror.lane.companions import SyncSink
    from eomirror.lane.surroundings import ChunkSweep, StateReader, TopicComparer
    from eomirror.types import SourcePartition

__all__ = ["LanePump"]

log = structlog.get_logger(__name__)

# an advance without records is committed within a second (rule 4)
_ADVANCE_SECONDS = 0.8
_AWAIT_SLICE_SECONDS = 0.1
# so long ago the target was there when it answered
_ANSWERED_SECONDS = 5.0
# of the transaction timeout
_OVERDUE = 0.9


class LanePump:
    """
    One attempt of a lane.

    Args:
        spec: What to mirror.
        plane: Moves the bytes.
        state: Reads the link's state topics.
        topics: Looks at both clusters' topics.
        mailbox: The line to the driver.
        clock: Where time comes from.
        syncs: Where offset syncs go that are not for the target.
        sweep: Finds what can be dropped from the offset map; None: nothing is.
    """

    def __init__(
        self,
        spec: LaneSpec,
        *,
        plane: Plane,
        state: StateReader,
        topics: TopicComparer,
        mailbox: LaneMailbox,
        clock: Clock,
        syncs: SyncSink | None = None,
        sweep: ChunkSweep | None = None,
    ) -> None:
        self.machine = LaneMachine()
        self._spec = spec
        self._plane = plane
        self._state = state
        self._topics = topics
        self._mailbox = mailbox
        self._clock = clock
        self._names = LinkNames(spec.link.state_name)
        self._cut = CutRule(interval=spec.link.commit_interval, interval_min=spec.link.commit_interval_min)
        self._epoch_end = Deadline(spec.seconds, clock)
        self._assigned = {item.source: item for item in spec.partitions}
        self._targets = {item.source.topic: item.target_topic for item in spec.partitions}
        self._adopting: tuple[AssignedPartition, ...] = ()
        # partitions that were added between two epochs
        self._late: tuple[AssignedPartition, ...] = ()
        self._positions: dict[SourcePartition, Position] = {}
        self._gaps: list[Gap] = []
        self._identity = ProducerIdentity(-1, -1)
        self._permit: CommitPermit | None = None
        self._foreseen: Sequence[MetadataRecord] = []
        self._companions = Companions(spec.link, syncs, partitions=len(spec.partitions))
        self._tidying = MapTidying(len(spec.partitions))
        self._sweep = sweep
        self._ids: tuple[Mapping[str, str | None], Mapping[str, str | None]] = ({}, {})
        # the open transaction
        self._opened = float("-inf")
        self._opened_before = float("-inf")
        self._txn_records = 0
        self._txn_bytes = 0
        self._advance_since: float | None = None
        self._tally = AttemptTally(spec)
        self._stopped: dict[str, tuple[int, str]] = {}
        # those of them that only lack a right
        self._unauthorized: set[str] = set()
        self._refusals = RefusalSteps(spec.link, plane, topics)
        self._overdue = False
        self._ending = Ending.REBUILD
        self._reason = ""
        self._error: MirrorError | None = None
        self._methods: dict[Command, Callable[[], Event]] = {
            Command.INIT_PRODUCER: self._init_producer,
            Command.READ_CONTROL: self._read_control,
            Command.READ_POSITIONS: self._read_positions,
            Command.COMPARE_TOPICS: self._compare_topics,
            Command.COMMIT_CLAIM: self._commit_claim,
            Command.AWAIT_RECORDS: self._await_records,
            Command.ADOPT_PARTITIONS: self._adopt_partitions,
            Command.BEGIN: self._begin,
            Command.PUMP: self._pump,
            Command.BEGIN_EMPTY: self._begin_empty,
            Command.SEAL: self._seal,
            Command.COMMIT: self._commit,
            Command.ABORT: self._abort,
        }

    def run(self) -> LaneReport:
        """Run until the machine closes; never raises a LaneError or a MirrorError."""
        command = self.machine.first()
        while command is not Command.END:
            event = self._carry_out(command)
            if event in {Event.FAILED, Event.FENCED}:
                self._overdue = self._is_overdue()
            command = self.machine.step(event)
        self._report(force=True)
        report = self._tally.report(
            self._ending, self._reason, self._error, self._stopped, self._unauthorized
        )
        return replace(report, overdue=self._overdue)

    @property
    def mirrored(self) -> tuple[AssignedPartition, ...]:
        """Everything that the lane was given, revisions included."""
        return tuple(self._assigned.values())

    def resume(self, spec: LaneSpec, mailbox: LaneMailbox) -> None:
        """
        Go on in the next epoch, with the same producer; `run` follows.

        Args:
            spec: A successor of this lane's, as `eomirror.lane.parking.is_successor` says.
            mailbox: Its line to the driver.
        """
        self.machine = LaneMachine(resumed=True)
        self._spec = spec
        self._mailbox = mailbox
        self._epoch_end = Deadline(spec.seconds, self._clock)
        self._late = tuple(item for item in spec.partitions if item.source not in self._assigned)
        self._gaps.clear()
        self._permit = None
        self._advance_since = None
        self._tally = AttemptTally(spec)
        self._overdue = False
        self._ending, self._reason, self._error = Ending.REBUILD, "", None

    def interrupt(self) -> None:
        """Abort what is open and leave, after a signal: the driver is gone or wants us gone at once."""
        if self.machine.state in {
            LaneState.CLAIMING, LaneState.OPEN, LaneState.SEALING, LaneState.COMMITTING,
        }:  # fmt: skip
            self._plane.abort()

    # -- one command, one event ------------------------------------------------------------------

    def _carry_out(self, command: Command) -> Event:
        try:
            return self._methods[command]()
        except FencedError as error:
            self._end(Ending.SUPERSEDED, f"fenced: {error}")
            return Event.FENCED
        except TopicsChangedError as error:
            self._end(Ending.REBUILD, str(error))
            return Event.TOPICS_CHANGED if command is Command.SEAL else Event.FAILED
        except RangeRefusedError as error:
            stopping = self._refusals.handle(error.refusal, self._positions)
            return Event.RECORD_REFUSED if stopping is None else self._failed(stopping)
        except OutcomeUnknownError as error:
            self._end(Ending.REBUILD, f"outcome of a commit unknown: {error}")
            return Event.FAILED
        except (LaneError, MirrorError) as error:
            return self._failed(error)

    def _failed(self, error: LaneError | MirrorError) -> Event:
        if isinstance(error, LaneError | UnreachableError):
            self._end(Ending.REBUILD, str(error))
            return Event.FAILED
        if error.topic:
            # only this topic is broken: the next attempt goes on without it
            self._stop_topic(error.topic, error)
            self._end(Ending.REBUILD, f"topic {error.topic} is stopped: {error.message}")
            return Event.FAILED
        ending = Ending.UNAUTHORIZED if isinstance(error, AuthorizationError) else Ending.FAILED
        self._end(ending, error.message, error)
        return Event.REFUSED

    def _init_producer(self) -> Event:
        self._plane.restart()
        self._positions.clear()
        self._gaps.clear()
        self._permit = None
        self._companions.forget()
        self._tidying.forget()
        self._identity = self._plane.open()
        crash_point("lane.initialized")
        return Event.PRODUCER_READY

    def _read_control(self) -> Event:
        newest = self._state.read_control().generation
        crash_point("lane.control_read")
        if newest is None or (newest.generation, newest.run) != (self._spec.generation, self._spec.run):
            seen = "none" if newest is None else f"{newest.generation} of run {newest.run}"
            self._end(Ending.SUPERSEDED, f"control holds generation {seen}, not {self._spec.generation}")
            return Event.CONTROL_NEWER
        return Event.CONTROL_OURS

    def _read_positions(self) -> Event:
        self._take_positions(tuple(self._assigned.values()))
        crash_point("lane.positions_read")
        return Event.POSITIONS_READ

    def _compare_topics(self) -> Event:
        self._start_sound(tuple(self._positions.values()))
        crash_point("lane.topics_compared")
        if not self._positions:
            self._end(Ending.FAILED, "all topics of the lane are stopped")
            return Event.NOTHING_LEFT
        return Event.TOPICS_COMPARED

    def _commit_claim(self) -> Event:
        self._identity = self._plane.begin()
        stamp = self._stamp()
        claim = claim_of(stamp, self._plane.serving(), host=socket.gethostname(), pid=os.getpid())
        topics = self._state.state_topics()
        lane_partition = stamp.lane % topics.positions_partitions
        records = [MetadataRecord(topics.positions, lane_partition, claim.key(), claim.value())]
        for gap in self._gaps:
            # the record of the gap and the position behind it become true together (rule 6)
            moved = behind_gap(self._positions[gap.source], gap, stamp)
            records.append(MetadataRecord(self._names.control_topic, 0, gap.key(), gap.value()))
            records.append(MetadataRecord(topics.positions, lane_partition, moved.key(), moved.value()))
        self._plane.write(records)
        crash_point("lane.claim_written")
        outcome = self._plane.commit()
        crash_point("lane.claimed")
        for gap in self._gaps:
            self._positions[gap.source] = behind_gap(self._positions[gap.source], gap, stamp)
            log.warning("gap_accepted", source=str(gap.source), start=gap.start, end=gap.end)
        if outcome is CommitOutcome.CLEAN:
            self._gaps.clear()
        self._report(force=True)
        return Event.COMMIT_CLEAN if outcome is CommitOutcome.CLEAN else Event.COMMIT_SUSPECT

    def _await_records(self) -> Event:
        self._report()
        leaving = self._leaving()
        if leaving is not None:
            # nobody who asks for an end shall wait for a target that may be down: it has answered lately, or is left
            answered = self._clock.monotonic() - self._opened < _ANSWERED_SECONDS
            if leaving[0] is Ending.STOPPED and answered and self._tidying.leave():
                return Event.ADVANCE_DUE
            self._end(*leaving)
            return Event.LEAVE
        late, self._late = self._late, ()
        told = {item.source: item for item in (*late, *self._mailbox.added())}
        added = tuple(item for source, item in told.items() if source not in self._assigned)
        if added:
            self._adopting = added
            return Event.PARTITIONS_ADDED
        if self._plane.await_records(_AWAIT_SLICE_SECONDS):
            return Event.RECORDS_READY
        self._follow()
        now = self._clock.monotonic()
        if self._companions.due(now) or self._tidying.due(now):
            return Event.ADVANCE_DUE
        if not self._plane.advances():
            self._advance_since = None
            return Event.QUIET
        if self._advance_since is None:
            self._advance_since = now
        return Event.ADVANCE_DUE if now - self._advance_since >= _ADVANCE_SECONDS else Event.QUIET

    def _adopt_partitions(self) -> Event:
        added, self._adopting = self._adopting, ()
        self._assigned.update({item.source: item for item in added})
        self._targets.update({item.source.topic: item.target_topic for item in added})
        self._take_positions(added)
        self._start_sound([self._positions[item.source] for item in added])
        return Event.GAPS_ACCEPTED if self._gaps else Event.PARTITIONS_READY

    def _begin(self) -> Event:
        self._open()
        return self._pump()

    def _begin_empty(self) -> Event:
        self._open()
        return Event.CUT_DUE

    def _pump(self) -> Event:
        left = self._cut.interval - (self._clock.monotonic() - self._opened)
        pumped = self._plane.pump(max(0.0, left))
        self._txn_records += pumped.records
        self._txn_bytes += pumped.bytes
        self._report()
        crash_point("lane.produced")
        open_transaction = OpenTransaction(
            seconds=self._clock.monotonic() - self._opened,
            since_last=self._clock.monotonic() - self._opened_before,
            records=self._txn_records,
            bytes=self._txn_bytes,
            drained=pumped.drained,
            enough=pumped.enough,
            leaving=self._leaving() is not None,
        )
        return Event.CUT_DUE if self._cut.due(open_transaction) else Event.MORE_WANTED

    def _seal(self) -> Event:
        topics = {source.topic for source in self._plane.advances()} | self._companions.topics
        topics = (topics & self._targets.keys()) or {source.topic for source in self._positions}
        asked = AskedTopics(topics, targets=self._targets, plane=self._plane, topics=self._topics)
        stamp = self._stamp()
        self._write_foreseen(stamp)
        sealed = self._plane.seal(self._spec.link.transaction_timeout)
        crash_point("lane.sealed")
        if missing := {source.topic for source in sealed.advances} - topics:
            raise TransactionFailedError(f"records of {sorted(missing)} whose topic was not asked for")
        self._ids = source_ids, target_ids = asked.result(self._positions)
        self._permit = grant(
            self._of_ours(sealed),
            self._positions,
            source_ids=source_ids,
            target_ids=target_ids,
            stamp=stamp,
        )
        return Event.SEALED

    def _commit(self) -> Event:
        permit, self._permit = self._permit, None
        assert permit is not None, "the machine seals before it commits"  # noqa: S101  for the type checker
        records = state_records(permit, self._state.state_topics())
        if records != self._foreseen:
            self._plane.write(records)
        # never foreseen: MM2's reader keeps every sync it sees, also one that a later one of the key corrects
        now = self._clock.monotonic()
        accompanying = self._companions.plan(permit, self._positions, self._ids, now)
        tidying = self._tidying.plan(self._state.state_topics(), now)
        if accompanying.records or tidying.records:
            self._plane.write([*accompanying.records, *tidying.records])
        if tidying.records:
            crash_point("lane.tidied")
        crash_point("lane.state_written")
        outcome = self._plane.commit()
        crash_point("lane.committed")
        self._positions.update({position.source: position for position in permit.positions})
        self._companions.committed(accompanying)
        self._tidying.committed(tidying, permit.positions, permit.chunks)
        self._tally.add(permit.positions, seconds=self._clock.monotonic() - self._opened)
        self._refusals.committed(self._positions)
        self._advance_since = None
        self._report()
        self._follow()
        return Event.COMMIT_CLEAN if outcome is CommitOutcome.CLEAN else Event.COMMIT_SUSPECT

    def _abort(self) -> Event:
        self._companions.aborted()
        self._plane.abort()
        return Event.ABORTED

    # -- pieces ----------------------------------------------------------------------------------

    def _open(self) -> None:
        self._opened_before, self._opened = self._opened, self._clock.monotonic()
        self._txn_records = self._txn_bytes = 0
        self._identity = self._plane.begin()
        crash_point("lane.begun")

    def _take_positions(self, wanted: Sequence[AssignedPartition]) -> None:
        known = self._state.read_positions()
        newest = max((position.generation for position in known.values()), default=0)
        if newest > self._spec.generation:
            raise FencedError(f"a position of generation {newest} exists")
        for item in wanted:
            position = known.get(item.source)
            if position is None:
                raise MirrorError(
                    f"{item.source}: control knows this partition, but it has no position in "
                    f"{self._names.positions_topic}",
                    fix=f"say where to go on: --adopt {item.source}=OFFSET",
                )
            self._positions[item.source] = position

    def _start_sound(self, positions: Sequence[Position]) -> None:
        """Compare topics with positions; fetch what is sound, stop whole topics that are not (rules 5 and 6)."""
        facts = self._topics.facts(positions)
        starts: list[Start] = []
        for position in positions:
            decision = decide_resume(
                position, *facts[position.source], accept_gaps=self._spec.link.on_gap == "accept"
            )
            if isinstance(decision, Stop):
                self._stop_topic(position.topic, decision.error)
                continue
            starts.append(
                Start(
                    position.source,
                    decision.offset,
                    decision.leader_epoch,
                    position.target_topic,
                    decision.epoch_offset,
                    position.topic_id,
                    position.target_topic_id,
                )
            )
            if position.topic not in self._stopped:
                self._note_gap(position, decision)
        self._plane.start([start for start in starts if start.source.topic not in self._stopped])

    def _stop_topic(self, topic: str, error: MirrorError) -> None:
        # one broken partition stops its topic: what the others of it say can no longer be believed
        if topic not in self._stopped:
            log.error("topic_stopped", topic=topic, reason=error.message, fix=error.fix)
            if isinstance(error, AuthorizationError):
                self._unauthorized.add(topic)
        self._stopped.setdefault(topic, (error.exit_code, str(error)))
        for source in [source for source in self._positions if source.topic == topic]:
            del self._positions[source]
        self._gaps = [gap for gap in self._gaps if gap.topic != topic]

    def _note_gap(self, position: Position, decision: Resume) -> None:
        if decision.accepted_gap is None:
            return
        start, end = decision.accepted_gap
        self._gaps.append(
            Gap(
                topic=position.topic,
                partition=position.partition,
                start=start,
                end=end,
                reason="log start beyond the position",
                run=self._spec.run,
                timestamp=self._clock.wall_ms(),
            )
        )

    def _stamp(self) -> TransactionStamp:
        spec = self._spec
        return TransactionStamp(
            generation=spec.generation,
            lane=spec.lane,
            run=spec.run,
            epoch=spec.epoch,
            attempt=spec.attempt,
            identity=self._identity,
            txn=self._tally.transactions + 1,
            timestamp=self._clock.wall_ms(),
        )

    def _write_foreseen(self, stamp: TransactionStamp) -> None:
        """Send what the commit will most likely record along with the data, instead of after it."""
        self._foreseen = []
        forecast = self._plane.forecast()
        if forecast is not None:
            topics = self._state.state_topics()
            self._foreseen = foresee(self._of_ours(forecast), self._positions, stamp, topics)
            self._plane.write(self._foreseen)

    def _of_ours(self, sealed: Sealed) -> Sealed:
        """Leave out advances of topics that were stopped while their last fetches were on the way."""
        advances = {
            source: advance for source, advance in sealed.advances.items() if source in self._positions
        }
        return Sealed(sealed.accounts, advances)

    def _follow(self) -> None:
        if self._sweep is not None:
            self._sweep.begin(self._positions)
            self._tidying.drop(self._sweep.take())
        if self._companions.follows:
            answers = self._companions.told(self._mailbox.followed(), self._positions)
            if answers:
                self._mailbox.answer(answers)

    def _is_overdue(self) -> bool:
        """Whether what was sent lay open for so long that it was too much: fenced or unanswered, it is the same."""
        sent = self.machine.state in {LaneState.SEALING, LaneState.COMMITTING}
        spent = self._clock.monotonic() - self._opened
        return sent and spent >= _OVERDUE * self._spec.link.transaction_timeout

    def _leaving(self) -> tuple[Ending, str] | None:
        reason = self._mailbox.stop()
        if reason is not None:
            return Ending.STOPPED, reason.value
        # the next epoch may run elsewhere, and would begin the search for a refused record anew
        if self._epoch_end.passed and not self._refusals.searching:
            return Ending.EPOCH, "epoch over"
        return None

    def _end(self, ending: Ending, reason: str, error: MirrorError | None = None) -> None:
        self._ending, self._reason, self._error = ending, reason, error

    def _report(self, *, force: bool = False) -> None:
        now = self._clock.monotonic()
        if not (force or self._tally.due(now)):
            return
        self._mailbox.report(
            self._tally.progress(
                self.machine.state.value,
                self._positions,
                self._plane,
                stopped={topic: text for topic, (_, text) in self._stopped.items()},
                unauthorized=self._unauthorized,
                now=now,
                wall_ms=self._clock.wall_ms(),
            )
        )
        self._tally.took(self._clock.monotonic() - now)
