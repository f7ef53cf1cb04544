"""The epoch that a lane is in: its spec, its connection to the driver, its end, and what it reports."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from eomirror.clock import Clock, Deadline, Term
from eomirror.errors import LaneError
from eomirror.lane.commit import TransactionStamp
from eomirror.lane.errors import Outcome
from eomirror.lane.machine import LaneMachine, LaneState
from eomirror.lane.spec import Ending, LaneMailbox, LaneReport, LaneSpec, StopReason
from eomirror.lane.stats import AttemptStats

if TYPE_CHECKING:
    from eomirror.lane.partitions import LanePartitions
    from eomirror.lane.poison_records import RejectionPolicy
    from eomirror.plane.protocol import Plane, ProducerIdentity

__all__ = ["LaneEpoch"]


class LaneEpoch:
    """
    An epoch of a lane.

    Args:
        spec: What to mirror.
        mailbox: Channel to the driver.
        clock: Measures the epoch.

    Attributes:
        machine: State of the attempt.
        outcome: Result of the attempt, if it ended now.
        stats: Work of the attempt.
        overdue: True if a transaction was open for too long.
        damaged: Batches that could not be read.
    """

    def __init__(self, spec: LaneSpec, mailbox: LaneMailbox, clock: Clock) -> None:
        self.spec = spec
        self.mailbox = mailbox
        self.machine = LaneMachine()
        self.outcome = Outcome()
        self.stats = AttemptStats(spec, since_ms=clock.wall_ms())
        self.overdue, self.damaged = False, spec.damaged
        self.clock = clock
        self._end: Term
        self._end = self._planned_end = Deadline(spec.seconds, clock)
        self._extended = False

    def resume(self, spec: LaneSpec, mailbox: LaneMailbox) -> None:
        """Begins the next epoch, which the same producer serves."""
        self.spec, self.mailbox = spec, mailbox
        self.machine = LaneMachine(LaneState.CLAIMING)
        self.outcome = Outcome()
        self.stats = AttemptStats(spec, since_ms=self.stats.since_ms)
        self.overdue, self.damaged = False, spec.damaged
        self._end = self._planned_end = Deadline(spec.seconds, self.clock)
        self._extended = False

    def extend(self, end: Term) -> None:
        """Extends the epoch until ``end``."""
        self.machine = LaneMachine(LaneState.IDLE)
        self.outcome = Outcome()
        self._end, self._extended = end, True

    def keep_id(self) -> None:
        """Raises LaneError past the epoch's end: a successor may own the transactional id."""
        if self._extended:
            raise LaneError("the epoch is over: only the next one may take the id")

    def leaving(self, policy: RejectionPolicy) -> Outcome | None:
        """Returns the outcome of a lane that is to leave between two transactions; None to continue."""
        reason = self.mailbox.stop()
        moves = reason is StopReason.MOVE
        if reason is not None and not moves:
            return Outcome(Ending.STOPPED, reason.value)
        # a lane that mirrors on after its epoch has followed that order already
        over = self._end.passed or (moves and not self._extended)
        # the next epoch may run elsewhere, and would restart the search for a refused record
        if over and not policy.searching:
            return Outcome(Ending.EPOCH, "epoch over")
        return None

    def seconds_left(self) -> float:
        """Returns the seconds until the end of the epoch."""
        return self._planned_end.remaining()

    def letters(self) -> int | None:
        """Returns the descriptor that the driver's messages arrive at; None if it is not enough to wait for it."""
        # a lane that mirrors on after its epoch is stopped by its successor, in this process
        return None if self._extended else self.mailbox.descriptor()

    def stamp(self, identity: ProducerIdentity, moved: int = 0) -> TransactionStamp:
        """
        Returns the stamp of the next transaction.

        Args:
            identity: Its producer.
            moved: Newest generation that moved a partition to the lane: its positions must be the newest ones.
        """
        txn, timestamp = self.stats.transactions + 1, self.clock.wall_ms()
        spec = replace(self.spec, generation=max(self.spec.generation, moved))
        return TransactionStamp.of(spec, identity, txn=txn, timestamp=timestamp)

    def report(self, partitions: LanePartitions, plane: Plane, *, force: bool = False) -> None:
        """Reports progress to the driver if that is due."""
        now = self.clock.monotonic()
        if not (force or self.stats.due(now)):
            return
        self.mailbox.report(
            self.stats.progress(
                self.machine.state.value,
                partitions.positions,
                plane,
                stopped=partitions.stopped,
                now=now,
                wall_ms=self.clock.wall_ms(),
            )
        )
        self.stats.took(self.clock.monotonic() - now)

    def result(self, partitions: LanePartitions) -> LaneReport:
        """Returns the result of the attempt."""
        return self.stats.report(self.outcome, partitions.stopped, overdue=self.overdue, damaged=self.damaged)
