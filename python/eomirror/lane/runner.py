"""
Carries out a lane's commands against a plane and the link's state topics: the only loop that does I/O.

Each command is one method of one part, and each method returns one event.  State between commands is kept by the parts:
the epoch (`eomirror.lane.epoch`), the start of partitions (`eomirror.lane.start`) and the open transaction
(`eomirror.lane.transaction`).  `eomirror.lane.machine` decides the next command.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from eomirror.errors import LaneError, MirrorError, PlaneChangedError, SourceDamagedError
from eomirror.kafka.parallel import in_thread
from eomirror.lane.commit import CopiesCutError
from eomirror.lane.epoch import LaneEpoch
from eomirror.lane.errors import judge
from eomirror.lane.machine import WITH_TRANSACTION, Command, Event, LaneMachine
from eomirror.lane.partitions import LanePartitions
from eomirror.lane.spec import AssignedPartition, Ending, LaneMailbox, LaneReport, LaneSpec
from eomirror.lane.start import AddedRead, LaneStart
from eomirror.lane.transaction import LaneTransaction
from eomirror.plane.protocol import SLICE_SECONDS, RangeRefusedError
from eomirror.recovery.corrupt_batches import after_damage, damage_error

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from eomirror.clock import Clock, Term
    from eomirror.lane.errors import Outcome
    from eomirror.lane.mm2_records import SyncSink
    from eomirror.lane.ports import ChunkSweep, CopyWatch, StateReader, TopicComparer
    from eomirror.lane.spec import StoppedTopic
    from eomirror.plane.select import PlaneSelector
    from eomirror.recovery.hanging import HangingClient

__all__ = ["LaneRunner"]

# commands before the first transaction of an attempt, which a stop need not wait for
_WAY_UP = frozenset(
    {Command.INIT_PRODUCER, Command.READ_CONTROL, Command.READ_POSITIONS, Command.COMPARE_TOPICS}
)
# longest wait that records, messages of the driver and the end of the epoch end: what is left is due now and then
_QUIET_SECONDS = 1.0
_REST_SECONDS = 60.0
# without records: behind the start of a lane, and so behind the looks of the background, which begin with it
_CALM_SECONDS = 10.0

_later = partial(in_thread, name="added-partitions")


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
        at_rest: Called when the lane has caught up, and once a minute while it is at rest.
        later: Reads for added partitions while the lane goes on.
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
        at_rest: Callable[[], None] = lambda: None,
        later: Callable[[Callable[[], AddedRead]], Future[AddedRead]] = _later,
    ) -> None:
        self._clock = clock
        self._epoch = epoch = LaneEpoch(spec, mailbox, clock)
        self._partitions = partitions = LanePartitions(spec.partitions)
        self._transaction = transaction = LaneTransaction(
            epoch, partitions, clock, planes=planes, state=state, topics=topics, syncs=syncs, sweep=sweep
        )
        self._start = start = LaneStart(
            epoch,
            partitions,
            transaction,
            state=state,
            topics=topics,
            hanging_client=hanging_client,
            later=later,
        )
        self._planes = planes
        self._copies = copies
        self._at_rest = at_rest
        self._rest_at = clock.monotonic() + _CALM_SECONDS
        self._methods: dict[Command, Callable[[], Event]] = {
            Command.INIT_PRODUCER: transaction.init_producer,
            Command.READ_CONTROL: start.read_control,
            Command.READ_POSITIONS: start.read_positions,
            Command.COMPARE_TOPICS: start.compare_topics,
            Command.RESOLVE_HANGING: start.resolve_hanging,
            Command.COMMIT_CLAIM: transaction.commit_claim,
            Command.AWAIT_RECORDS: self._await_records,
            Command.ADOPT_PARTITIONS: start.adopt_partitions,
            Command.BEGIN: transaction.begin,
            Command.PUMP: transaction.pump,
            Command.BEGIN_EMPTY: transaction.begin_empty,
            Command.FLUSH: transaction.flush,
            Command.COMMIT: transaction.commit,
            Command.ABORT: transaction.abort,
        }

    def run(self) -> LaneReport:
        """Runs until the machine closes; never raises a LaneError or a MirrorError."""
        epoch = self._epoch
        command = epoch.machine.first()
        while command is not Command.END:
            event = self._carry_out(command)
            state = epoch.machine.state
            if event in {Event.FAILED, Event.FENCED}:
                timeout = epoch.spec.link.transaction_timeout
                epoch.overdue = self._transaction.timer.overdue(self._clock.monotonic(), state, timeout)
            if event is Event.FENCED and state in WITH_TRANSACTION:
                epoch.stats.measures.fenced += 1
            command = epoch.machine.step(event)
        self._transaction.report(force=True)
        return epoch.result(self._partitions)

    @property
    def machine(self) -> LaneMachine:
        """State of the attempt."""
        return self._epoch.machine

    @property
    def outcome(self) -> Outcome:
        """Result of the attempt, if it ended now."""
        return self._epoch.outcome

    @property
    def generation(self) -> int:
        """Generation of the lane, moves of partitions included."""
        return max(self._epoch.spec.generation, self._partitions.generation)

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
        self._epoch.resume(spec, mailbox)
        self._start.add(spec.partitions)
        self._partitions.gaps.clear()
        self._transaction.resume()

    def extend(self, end: Term) -> None:
        """Extends the attempt past the epoch's end until ``end``; `run` follows."""
        self._epoch.extend(end)

    def interrupt(self) -> None:
        """Aborts the open transaction after a signal: the driver is gone or stops the lane at once."""
        if self._epoch.machine.state in WITH_TRANSACTION:
            self._transaction.plane.abort()

    # -- one command, one event ------------------------------------------------------------------

    def _carry_out(self, command: Command) -> Event:
        try:
            if command in _WAY_UP and self._leaves_early():
                return Event.LEAVE
            return self._methods[command]()
        except RangeRefusedError as error:
            stopping = self._transaction.rejections.handle(error.rejection, self._partitions.positions)
            return Event.RECORD_REFUSED if stopping is None else self._failed(stopping, command)
        except (LaneError, MirrorError) as error:
            return self._failed(error, command)

    def _failed(self, error: LaneError | MirrorError, command: Command) -> Event:
        epoch = self._epoch
        # without a position its topic was stopped while its last fetches were on the way
        if isinstance(error, SourceDamagedError) and (
            position := self._partitions.positions.get(error.source)
        ):
            epoch.damaged = after_damage(epoch.damaged, error, position.offset)
            error = damage_error(error, epoch.damaged[-1]) or error
        if isinstance(error, CopiesCutError):
            for lost in error.errors:
                self._start.stop_topic(lost.topic, lost)
        if isinstance(error, PlaneChangedError):
            self._planes.fall_back(str(error))
        consequence = judge(error, command)
        if consequence.topic and isinstance(error, MirrorError):
            self._start.stop_topic(consequence.topic, error)
        epoch.outcome = consequence.outcome
        return consequence.event

    def _leaves_early(self) -> bool:
        """Returns True if the lane is to stop and has begun no transaction; otherwise the way up resolves it."""
        leaving = self._transaction.leaving()
        begun = any(state in WITH_TRANSACTION for state, _ in self._epoch.machine.taken)
        if leaving is None or leaving.ending is not Ending.STOPPED or begun:
            return False
        self._epoch.outcome = leaving
        return True

    def _await_records(self) -> Event:
        transaction = self._transaction
        transaction.report()
        self._watch_copies()
        leaving = transaction.leaving()
        if leaving is not None:
            # a stop must not wait for a target that is down or slow: only behind a fast transaction a last one is begun
            answered = transaction.timer.answers_quickly(self._clock.monotonic())
            if leaving.ending is Ending.STOPPED and answered and transaction.compaction.leave():
                return Event.ADVANCE_DUE
            self._epoch.outcome = leaving
            return Event.LEAVE
        # a search for a refused record holds records of its partition back
        searching = transaction.rejections.policy.searching
        if not searching and self._start.find_released(self._epoch.mailbox.released()):
            return Event.PARTITIONS_RELEASED
        self._start.add(self._epoch.mailbox.added())
        if self._start.find_added():
            return Event.PARTITIONS_ADDED
        letters = None if self._start.reading else self._epoch.letters()
        quiet = 0.0 if letters is None else min(_QUIET_SECONDS, self._epoch.seconds_left())
        seconds = max(SLICE_SECONDS, quiet)
        if transaction.plane.await_records(seconds, letters):
            self._rest_at = max(self._rest_at, self._clock.monotonic() + _CALM_SECONDS)
            return Event.RECORDS_READY
        transaction.follow()
        if transaction.advance_due():
            return Event.ADVANCE_DUE
        self._rest()
        return Event.QUIET

    def _rest(self) -> None:
        """
        Calls `at_rest` once a minute: what looks at all partitions that often has opened connections and freed memory.

        Never while records come: the next transaction would open the connections again.
        """
        now = self._clock.monotonic()
        if now >= self._rest_at and not self._start.reading:
            self._at_rest()
            self._rest_at = now + _REST_SECONDS

    def _watch_copies(self) -> None:
        """Handles findings about copies that no transaction writes to, and starts the next check if due (EO-5)."""
        if self._copies is None:
            return
        if found := self._copies.take():
            mirrored = {source.topic for source in self._partitions.positions}
            if lost := [error for error in found if error.topic in mirrored]:
                raise CopiesCutError(lost)
        self._copies.begin(self._partitions.positions)
