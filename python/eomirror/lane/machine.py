"""
The lane's state machine. Pure.

Rule 1 of this file: every change of a lane's state is an entry of `TRANSITIONS`.  Rule 2: nothing here does
I/O, knows a client, or reads a clock; facts come in as events, with the time where it matters, and commands
go out.  `eomirror.lane.runner` carries them out against a plane and answers each with the next event.

The way up
----------
An attempt takes its transactional.id first (STARTING).  From that moment every older attempt of the lane is
fenced, so what is read afterwards can no longer change under us.  Only then it reads control (CONTROL) and
leaves if the generation is not its own: a zombie that fences late is a perfectly valid producer otherwise,
and would mirror partitions that now belong to another lane (EO-2)::

    old attempt                     driver                        new lane 1
    (asleep)                        publish generation 8
                                    fence ids 0..1
                                    read positions, start   ->    mirrors p from 100
    wakes, InitProducerId: valid!
    mirrors p from 100 as well      <- both commit p: duplicates

Then it reads the positions (POSITIONS), compares both sides with what they remember (COMPARING), and commits
its claim (CLAIMING): a transaction of its own before the first data.  The claim proves that commits work,
and tells an audit which producer wrote what follows.

Before control is read, and again before positions are believed of data, it looks for transactions whose end the target
left out (`eomirror.recovery.hanging`).  What it finds it ends (MENDING), which takes its own producer from it, so
it begins again.

An attempt that follows an epoch in the same process may go on with what that left, producer included
(`eomirror.spark.handover`): it begins with its claim.  Whoever took the lane in between has fenced that producer, so the
claim does not commit.  Until that attempt comes, the lane goes on as it is: it begins in IDLE.

The circle
----------
IDLE holds no transaction.  OPEN holds records that are produced but promised to nobody.  We leave OPEN for
SEALING when the cut is due, and SEALING for COMMITTING only when all of it is acknowledged, the account is
even (rule 7) and the topics are still the ones the positions speak of (rule 5): the pump then holds a
`CommitPermit`, without which it has no way to commit.

While a small transaction is on its way, more of its partitions may come: records that were sent together arrive
in two or three answers.  So SEALING may lead to OPEN again, once (`CutRule.takes_more`), and what is there is sent
and sealed as well.  Nothing is promised in between: the permit is made of what the last seal says.

A transaction is never held open for want of records: a reader of the target waits for our marker.  It is
cut early when the sources have nothing more (`commit_interval_min`), and late when they have (`commit_interval`).

The ways out
------------
* A clean commit is one EndTxn and one good answer.  Anything else may leave a copy of that EndTxn in the
  network, which would end our *next* transaction (rule 9): the producer is replaced (back to STARTING), and
  its InitProducerId makes the straggler worthless.  So it is where leaders of the target have changed: markers may
  have been left out, and the way up looks for that.
* An unknown outcome is never guessed (rule 8), an abort is never trusted to have been clean: both end in a
  rebuild, that is, a new attempt which reads what is true.
* A record that the target refuses must be found, for it fails its whole batch.  The transaction is aborted
  (DISCARDING), and the attempt begins again with a new producer, and with smaller ranges of that partition, or
  without the record, or with a raised limit: `eomirror.lane.poison_records` decides, and lets nobody go round for ever.
  Only what it cannot go on with ends the attempt, as a failure that names the topic to leave out.
* A fencing error in any state ends the attempt.  Control says whether it was our own driver.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

__all__ = [
    "TRANSITIONS",
    "WITH_TRANSACTION",
    "Command",
    "CutRule",
    "Event",
    "IllegalTransitionError",
    "LaneMachine",
    "LaneState",
    "OpenTransaction",
]


class LaneState(enum.StrEnum):
    """Where an attempt of a lane stands."""

    STARTING = "starting"
    CONTROL = "control"
    POSITIONS = "positions"
    COMPARING = "comparing"
    RESOLVING = "resolving"
    CLAIMING = "claiming"
    IDLE = "idle"
    ADOPTING = "adopting"
    OPEN = "open"
    FLUSHING = "flushing"
    COMMITTING = "committing"
    DISCARDING = "discarding"
    ABORTING = "aborting"
    CLOSED = "closed"


class Event(enum.StrEnum):
    """
    What the pump saw.

    PRODUCER_READY: InitProducerId was answered; older attempts are fenced.
    CONTROL_OURS: control was read to its end; the newest generation is this attempt's.
    CONTROL_NEWER: it is not.
    HANGING_FOUND: an earlier transaction of the lane is over, and still open in partitions of the target.
    RESOLVED: it is ended there too.
    POSITIONS_READ: every assigned partition has its position.
    TOPICS_COMPARED: both sides are what the positions remember; topics that are not have been set aside.
    NOTHING_LEFT: all topics of the lane have been set aside.
    RECORDS_READY: the source has something to mirror.
    ADVANCE_DUE: positions moved without records, and have waited long enough (rule 4).
    QUIET: neither.
    PARTITIONS_ADDED: a revision gave this lane more partitions.
    PARTITIONS_READY: they have positions and are being fetched.
    GAPS_ACCEPTED: likewise, and some of them begin behind a gap that the user accepts.
    LEAVE: the epoch is over, or the driver asked to stop.
    MORE_WANTED: the open transaction is not due.
    CUT_DUE: it is.
    MORE_CAME: all is acknowledged, and what has come meanwhile goes into the transaction as well.
    FLUSHED: all is acknowledged, the account is even, the topics are the same: the pump holds a permit.
    TOPICS_CHANGED: a topic of this transaction is not the one its position speaks of.
    COMMIT_CLEAN: one EndTxn, one good answer.
    COMMIT_SUSPECT: committed, but a copy of a request may still travel (rule 9), or markers may be missing.
    RECORD_REFUSED: the target refuses a record; it is to be sent in another way, or left out.
    PLANE_CHANGED: the plane cannot read what comes next, and the other plane takes over with the next producer.
    FAILED: something that a new attempt heals.
    FENCED: a newer producer has our transactional.id.
    REFUSED: something only a person can heal.
    ABORTED: the abort is over, however it went.
    """

    PRODUCER_READY = "producer ready"
    CONTROL_OURS = "control ours"
    CONTROL_NEWER = "control newer"
    HANGING_FOUND = "hanging found"
    RESOLVED = "resolved"
    POSITIONS_READ = "positions read"
    TOPICS_COMPARED = "topics compared"
    NOTHING_LEFT = "nothing left"
    RECORDS_READY = "records ready"
    ADVANCE_DUE = "advance due"
    QUIET = "quiet"
    PARTITIONS_ADDED = "partitions added"
    PARTITIONS_READY = "partitions ready"
    GAPS_ACCEPTED = "gaps accepted"
    LEAVE = "leave"
    MORE_WANTED = "more wanted"
    CUT_DUE = "cut due"
    MORE_CAME = "more came"
    FLUSHED = "flushed"
    TOPICS_CHANGED = "topics changed"
    COMMIT_CLEAN = "commit clean"
    COMMIT_SUSPECT = "commit suspect"
    RECORD_REFUSED = "record refused"
    PLANE_CHANGED = "plane changed"
    FAILED = "failed"
    FENCED = "fenced"
    REFUSED = "refused"
    ABORTED = "aborted"


class Command(enum.StrEnum):
    """
    What the pump does next; it answers each with one event.

    INIT_PRODUCER: build a producer and run InitProducerId.
    READ_CONTROL: see that nothing of the lane was left open in control and positions, then read control to its end
        (rule 3).
    READ_POSITIONS: read the positions topic to its end (rule 3).
    COMPARE_TOPICS: compare ids and log ends with the positions, see that nothing was left open in the copies and that
        what positions name can be read, start fetching what is sound.
    RESOLVE_HANGING: end what was left open, by another transaction of the same id.
    COMMIT_CLAIM: commit the attempt's claim in a transaction of its own.
    AWAIT_RECORDS: wait a little for records, a stop, a revision.
    ADOPT_PARTITIONS: read positions of added partitions, compare their topics and see to their copies likewise, fetch
        them too.
    BEGIN: begin a transaction and produce what is at hand.
    PUMP: fetch, decide and produce until the transaction is due.
    BEGIN_EMPTY: begin a transaction that will hold positions only.
    FLUSH: wait for every acknowledgement, balance the account, compare topic ids, grant the permit; or see that more has
        come that goes along.  Positions and offset map may be written meanwhile, as they are foreseen.
    COMMIT: write positions and offset map into the transaction, unless they came as foreseen; commit with the permit.
    ABORT: abort what is open.
    END: close everything; the reason is the event's.
    """

    INIT_PRODUCER = "init producer"
    READ_CONTROL = "read control"
    READ_POSITIONS = "read positions"
    COMPARE_TOPICS = "compare topics"
    RESOLVE_HANGING = "resolve hanging"
    COMMIT_CLAIM = "commit claim"
    AWAIT_RECORDS = "await records"
    ADOPT_PARTITIONS = "adopt partitions"
    BEGIN = "begin"
    PUMP = "pump"
    BEGIN_EMPTY = "begin empty"
    FLUSH = "flush"
    COMMIT = "commit"
    ABORT = "abort"
    END = "end"


_S, _E, _C = LaneState, Event, Command

#: (state, event) -> (next state, command).  Nothing else changes a lane's state.
TRANSITIONS: dict[tuple[LaneState, Event], tuple[LaneState, Command]] = {
    # the way up
    (_S.STARTING, _E.PRODUCER_READY): (_S.CONTROL, _C.READ_CONTROL),
    (_S.CONTROL, _E.CONTROL_OURS): (_S.POSITIONS, _C.READ_POSITIONS),
    (_S.CONTROL, _E.CONTROL_NEWER): (_S.CLOSED, _C.END),
    (_S.POSITIONS, _E.POSITIONS_READ): (_S.COMPARING, _C.COMPARE_TOPICS),
    (_S.COMPARING, _E.TOPICS_COMPARED): (_S.CLAIMING, _C.COMMIT_CLAIM),
    (_S.COMPARING, _E.NOTHING_LEFT): (_S.CLOSED, _C.END),
    (_S.CONTROL, _E.HANGING_FOUND): (_S.RESOLVING, _C.RESOLVE_HANGING),
    (_S.COMPARING, _E.HANGING_FOUND): (_S.RESOLVING, _C.RESOLVE_HANGING),
    (_S.ADOPTING, _E.HANGING_FOUND): (_S.RESOLVING, _C.RESOLVE_HANGING),
    # by another producer of the lane's id, which has fenced ours
    (_S.RESOLVING, _E.RESOLVED): (_S.STARTING, _C.INIT_PRODUCER),
    (_S.CLAIMING, _E.COMMIT_CLEAN): (_S.IDLE, _C.AWAIT_RECORDS),
    (_S.CLAIMING, _E.COMMIT_SUSPECT): (_S.STARTING, _C.INIT_PRODUCER),
    # the circle
    (_S.IDLE, _E.QUIET): (_S.IDLE, _C.AWAIT_RECORDS),
    (_S.IDLE, _E.RECORDS_READY): (_S.OPEN, _C.BEGIN),
    (_S.IDLE, _E.ADVANCE_DUE): (_S.OPEN, _C.BEGIN_EMPTY),
    (_S.IDLE, _E.PARTITIONS_ADDED): (_S.ADOPTING, _C.ADOPT_PARTITIONS),
    (_S.IDLE, _E.LEAVE): (_S.CLOSED, _C.END),
    (_S.ADOPTING, _E.PARTITIONS_READY): (_S.IDLE, _C.AWAIT_RECORDS),
    # an accepted gap is recorded in the transaction that moves the position behind it, before any data
    (_S.ADOPTING, _E.GAPS_ACCEPTED): (_S.CLAIMING, _C.COMMIT_CLAIM),
    (_S.OPEN, _E.MORE_WANTED): (_S.OPEN, _C.PUMP),
    (_S.OPEN, _E.CUT_DUE): (_S.FLUSHING, _C.FLUSH),
    (_S.FLUSHING, _E.MORE_CAME): (_S.OPEN, _C.PUMP),
    (_S.FLUSHING, _E.FLUSHED): (_S.COMMITTING, _C.COMMIT),
    (_S.COMMITTING, _E.COMMIT_CLEAN): (_S.IDLE, _C.AWAIT_RECORDS),
    # the straggling EndTxn of this commit must not end the next transaction: take a new producer epoch first
    (_S.COMMITTING, _E.COMMIT_SUSPECT): (_S.STARTING, _C.INIT_PRODUCER),
    # what else the transaction holds is sent again, so nothing of it may become visible
    (_S.OPEN, _E.RECORD_REFUSED): (_S.DISCARDING, _C.ABORT),
    (_S.FLUSHING, _E.RECORD_REFUSED): (_S.DISCARDING, _C.ABORT),
    # of a dead letter, which is written behind the seal
    (_S.COMMITTING, _E.RECORD_REFUSED): (_S.DISCARDING, _C.ABORT),
    (_S.OPEN, _E.PLANE_CHANGED): (_S.DISCARDING, _C.ABORT),
    # an abort is never trusted to have been clean
    (_S.DISCARDING, _E.ABORTED): (_S.STARTING, _C.INIT_PRODUCER),
    # the ways out: before a transaction is open there is nothing to abort
    (_S.STARTING, _E.FAILED): (_S.CLOSED, _C.END),
    (_S.CONTROL, _E.FAILED): (_S.CLOSED, _C.END),
    (_S.POSITIONS, _E.FAILED): (_S.CLOSED, _C.END),
    (_S.COMPARING, _E.FAILED): (_S.CLOSED, _C.END),
    (_S.RESOLVING, _E.FAILED): (_S.CLOSED, _C.END),
    (_S.IDLE, _E.FAILED): (_S.CLOSED, _C.END),
    (_S.ADOPTING, _E.FAILED): (_S.CLOSED, _C.END),
    (_S.STARTING, _E.REFUSED): (_S.CLOSED, _C.END),
    (_S.CONTROL, _E.REFUSED): (_S.CLOSED, _C.END),
    (_S.POSITIONS, _E.REFUSED): (_S.CLOSED, _C.END),
    (_S.COMPARING, _E.REFUSED): (_S.CLOSED, _C.END),
    (_S.RESOLVING, _E.REFUSED): (_S.CLOSED, _C.END),
    (_S.IDLE, _E.REFUSED): (_S.CLOSED, _C.END),
    (_S.ADOPTING, _E.REFUSED): (_S.CLOSED, _C.END),
    # with one open, readers of the target wait for our marker: abort before leaving
    (_S.CLAIMING, _E.FAILED): (_S.ABORTING, _C.ABORT),
    (_S.CLAIMING, _E.REFUSED): (_S.ABORTING, _C.ABORT),
    (_S.OPEN, _E.FAILED): (_S.ABORTING, _C.ABORT),
    (_S.OPEN, _E.REFUSED): (_S.ABORTING, _C.ABORT),
    (_S.FLUSHING, _E.FAILED): (_S.ABORTING, _C.ABORT),
    (_S.FLUSHING, _E.REFUSED): (_S.ABORTING, _C.ABORT),
    (_S.FLUSHING, _E.TOPICS_CHANGED): (_S.ABORTING, _C.ABORT),
    # an abort after a commit of unknown outcome is harmless: either it is over already, then the broker
    # refuses the abort, or it is not, then the next attempt's InitProducerId would abort it anyway
    (_S.COMMITTING, _E.FAILED): (_S.ABORTING, _C.ABORT),
    (_S.COMMITTING, _E.REFUSED): (_S.ABORTING, _C.ABORT),
    (_S.ABORTING, _E.ABORTED): (_S.CLOSED, _C.END),
    # a fenced producer has no transaction any more: its successor's InitProducerId aborted it
    **{
        (state, _E.FENCED): (_S.CLOSED, _C.END)
        for state in (
            _S.STARTING, _S.CONTROL, _S.POSITIONS, _S.COMPARING, _S.RESOLVING, _S.CLAIMING, _S.IDLE,
            _S.ADOPTING, _S.OPEN, _S.FLUSHING, _S.COMMITTING, _S.DISCARDING, _S.ABORTING,
        )
    },
}  # fmt: skip


#: States in which a transaction may be open on the target, and nothing is under way that ends it.
WITH_TRANSACTION = frozenset({_S.CLAIMING, _S.OPEN, _S.FLUSHING, _S.COMMITTING})

# a machine may begin in these states, with this command
_FIRST: dict[LaneState, Command] = {
    _S.STARTING: _C.INIT_PRODUCER,
    _S.CLAIMING: _C.COMMIT_CLAIM,
    _S.IDLE: _C.AWAIT_RECORDS,
}


class IllegalTransitionError(Exception):
    """The pump answered with an event that the table has no entry for: a bug, never the user's doing."""


class LaneMachine:
    """
    Follows `TRANSITIONS`; remembers the state, and every arrow it took for the tests' coverage.

    Args:
        begins: STARTING; or CLAIMING, where an attempt goes on with the producer of the epoch before
            (`eomirror.spark.handover`), whose commit is fenced if anybody else took the lane in between; or IDLE, where
            an attempt goes on behind its own epoch.
    """

    __slots__ = ("state", "taken")

    def __init__(self, begins: LaneState = LaneState.STARTING) -> None:
        self.state = begins
        self.taken: set[tuple[LaneState, Event]] = set()

    def first(self) -> Command:
        """What to do before any event."""
        return _FIRST[self.state]

    def step(self, event: Event) -> Command:
        """
        Take one arrow of the table.

        Raises:
            IllegalTransitionError: The table has no such arrow.
        """
        try:
            next_state, command = TRANSITIONS[self.state, event]
        except KeyError:
            raise IllegalTransitionError(f"no way on from {self.state} with {event}") from None
        self.taken.add((self.state, event))
        self.state = next_state
        return command


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """
    What the cut depends on.

    Attributes:
        seconds: How long the transaction has been open.
        since_last: How long ago the transaction before it was begun; infinite for the first.
        records: Records produced into it.
        bytes: Their keys, values and headers.
        drained: The last fetch left nothing behind: the sources have no more at hand.
        enough: The plane wants no more in it.
        leaving: The lane is to hand back.
        rounds: How often it took more after it was acknowledged.
        rested: For how long nothing was open before it; infinite for the first.
    """

    seconds: float
    since_last: float
    records: int
    bytes: int
    drained: bool
    leaving: bool
    enough: bool = False
    rounds: int = 0
    rested: float = float("inf")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutRule:
    """
    When a transaction is cut.

    Attributes:
        interval: Longest time a transaction of a lane that is behind stays open, seconds.
        interval_min: Shortest time from one transaction's begin to the next one's cut, for a lane that has
            caught up, seconds.
        max_records: Most records; what is produced must fit librdkafka's queue.
        max_bytes: Most bytes, so that memory is bounded and a transaction cannot outlast its timeout.
        most_rounds: How often a transaction takes more once it is acknowledged.
    """

    interval: float
    interval_min: float
    max_records: int = 200_000
    max_bytes: int = 128 * 1024 * 1024
    most_rounds: int = 1

    def due(self, transaction: OpenTransaction) -> bool:
        """
        Whether to cut now.

        Large when it must be, early when it can be: a lane that is behind fills its transaction, because each
        one costs two round trips and three state records; a lane that has caught up gives its readers what
        there is, but no more often than `interval_min`, because each transaction costs brokers a marker per
        partition.  The interval counts from the transaction before: the first record after a pause goes at once.
        A second round is one pump.
        """
        if transaction.leaving or transaction.enough or transaction.seconds >= self.interval:
            return True
        if transaction.rounds > 0:  # what is acknowledged waits for no more than was there
            return True
        if transaction.records >= self.max_records or transaction.bytes >= self.max_bytes:
            return True
        return transaction.drained and transaction.since_last >= self.interval_min

    def max_wait(self, transaction: OpenTransaction) -> float:
        """For how long to wait for more at most, seconds: until the cut is due whatever comes."""
        left = self.interval - transaction.seconds
        if transaction.drained and transaction.records > 0:
            left = min(left, self.interval_min - transaction.since_last)
        return max(0.0, left)

    def takes_more(self, transaction: OpenTransaction) -> bool:
        """
        Whether a transaction that is acknowledged takes what has come since its last record was sent.

        What comes just behind the cut would wait for the end of this transaction and for its markers, and then for a
        transaction of its own; here it waits for one Produce, and so do the records before it.  Records that were
        sent together come so, in two or three answers one behind the other, the first of them after a pause.  Where
        one transaction follows the other, more comes at any time, and each of them takes along what came during the
        last.
        """
        if transaction.leaving or transaction.enough or not transaction.drained:
            return False
        if transaction.rested < self.interval_min:
            return False
        if transaction.records >= self.max_records or transaction.bytes >= self.max_bytes:
            return False
        return transaction.rounds < self.most_rounds and transaction.seconds < self.interval / 2
