"""
The lane's state machine. Pure.

Rule 1 of this file: every change of a lane's state is an entry of `TRANSITIONS`.  Rule 2: nothing here does
I/O, knows a client, or reads a clock; facts come in as events, with the time where it matters, and commands
go out.  `eomirror.lane.runner` carries them out against a plane and answers each with the next event.

The way up
----------
An attempt takes its transactional.id first (STARTING).  From that moment every older attempt of the lane is
fenced, so later reads are stable.  Only then it reads control (CONTROL) and leaves if the generation is not its own.
Without this check a zombie that fences late is a valid producer, and mirrors partitions that belong to
another lane by then (EO-2)::

    old attempt                     driver                        new lane 1
    (asleep)                        publish generation 8
                                    fence ids 0..1
                                    read positions, start   ->    mirrors p from 100
    wakes, InitProducerId: valid!
    mirrors p from 100 as well      <- both commit p: duplicates

Then it reads the positions (POSITIONS), compares both sides with what they remember (COMPARING), and commits
its claim (CLAIMING): a transaction of its own before the first data.  The claim proves that commits work,
and tells an audit which producer wrote what follows.

Before control is read, and again before positions are trusted, it looks for hanging transactions on the
target (`eomirror.recovery.hanging`).  It ends them (RESOLVING), which fences its own producer, so it starts
over.

A lane that gives partitions to another one while it runs drops them in IDLE, and commits a claim of the generation
that moved them: the claim proves that it has kept its id until after the publication (docs/adr/0035).

An attempt that follows an epoch in the same process may reuse its state, producer included
(`eomirror.spark.handover`): it begins with its claim.  If another process took the lane meanwhile, it has
fenced that producer, so the claim does not commit.  Until that attempt comes, the lane continues in IDLE.

The circle
----------
IDLE holds no transaction.  OPEN holds records that are produced but not promised.  We leave OPEN for
FLUSHING when the cut is due, and FLUSHING for COMMITTING only when all of it is acknowledged, the account
balances (EO-7) and the topics still have the ids of the positions (EO-5): the runner then holds a
`CommitPermit`, without which it cannot commit.

While a small transaction is in flight, more records of its partitions may arrive: records that were sent
together come in two or three answers.  So FLUSHING may lead to OPEN again, once (`CommitTrigger.takes_more`), and
those records are sent and flushed too.  Nothing is promised in between: the permit covers the last flush.

A transaction is never held open to wait for records: a reader of the target waits for our marker.  It is cut
early when the sources are drained (`commit_interval_min`), and late otherwise (`commit_interval`).

The ways out
------------
* A clean commit is one EndTxn and one successful answer.  Anything else may leave a copy of that EndTxn in the
  network, which would end our *next* transaction (EO-9).  The producer is replaced (back to STARTING), and its
  InitProducerId invalidates the straggler.  The same happens when leaders of the target have changed: markers
  may be missing, and the way up looks for that.
* An unknown outcome is never guessed (EO-8), and an abort is never trusted to have been clean: both end in a
  rebuild, that is, a new attempt that reads the actual state.
* A refused record must be isolated, because it fails its whole batch.  The transaction is aborted (DISCARDING).
  The attempt starts over with a new producer: with smaller ranges of that partition, without the record, or with
  a raised limit.  `eomirror.lane.poison_records` decides, and its search always ends.  If nothing helps, the
  attempt fails with an error that names the topic to stop.
* A fencing error in any state ends the attempt.  Control tells whether our own driver fenced it.
"""

from __future__ import annotations

import enum

__all__ = [
    "TRANSITIONS",
    "WITH_TRANSACTION",
    "Command",
    "Event",
    "IllegalTransitionError",
    "LaneMachine",
    "LaneState",
]


class LaneState(enum.StrEnum):
    """State of a lane's attempt."""

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
    Result of a command.

    PRODUCER_READY: InitProducerId was answered; older attempts are fenced.
    CONTROL_OURS: control was read to its end; the newest generation is this attempt's.
    CONTROL_NEWER: a newer generation exists.
    HANGING_FOUND: the target holds hanging transactions of the lane.
    RESOLVED: they are committed or aborted there.
    POSITIONS_READ: every assigned partition has its position.
    TOPICS_COMPARED: both sides match the positions; topics that do not are stopped.
    NOTHING_LEFT: all topics of the lane are stopped.
    RECORDS_READY: the source has records to mirror.
    ADVANCE_DUE: positions moved without records, and have waited long enough (EO-4).
    QUIET: neither.
    PARTITIONS_ADDED: a revision gave this lane more partitions.
    PARTITIONS_RELEASED: a move took partitions from this lane; they are fetched no more.
    PARTITIONS_READY: they have positions and are being fetched.
    GAPS_ACCEPTED: they are being fetched, some of them after a gap that the user accepts.
    LEAVE: the epoch is over, or the driver asked the lane to stop.
    MORE_WANTED: the open transaction is not due.
    CUT_DUE: the open transaction is due.
    MORE_CAME: all is acknowledged, and new records join the transaction.
    FLUSHED: all is acknowledged, the account balances, the topics are the same: the runner holds a permit.
    TOPICS_CHANGED: a topic of this transaction no longer has the id that its position names.
    COMMIT_CLEAN: one EndTxn, one successful answer.
    COMMIT_SUSPECT: committed, but a copy of a request may still be in flight (EO-9), or markers may be missing.
    RECORD_REFUSED: the target refuses a record, which will be sent differently or skipped.
    PLANE_CHANGED: the plane cannot serve a cluster or read the next records; the other plane takes over with the next
        producer.
    FAILED: a failure that a new attempt repairs.
    FENCED: a newer producer has our transactional.id.
    REFUSED: a failure that the user must fix.
    ABORTED: the abort is over, successful or not.
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
    PARTITIONS_RELEASED = "partitions released"
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
    Next step of the runner; it answers each command with one event.

    INIT_PRODUCER: create a producer and run InitProducerId.
    READ_CONTROL: check that control and positions hold no hanging transaction of the lane, then read control to its end
        (EO-3).
    READ_POSITIONS: read the positions topic to its end (EO-3).
    COMPARE_TOPICS: compare ids and log ends with the positions, check that the copies hold no hanging transaction and
        that the records of positions are readable, then fetch sound partitions.
    RESOLVE_HANGING: end the hanging transactions with another transaction of the same id.
    COMMIT_CLAIM: commit the attempt's claim in a transaction of its own.
    AWAIT_RECORDS: wait briefly for records, a stop or a revision.
    ADOPT_PARTITIONS: read positions of added partitions, check topics and copies as above, and fetch them too.
    BEGIN: begin a transaction and produce the available records.
    PUMP: fetch, decide and produce until the transaction is due.
    BEGIN_EMPTY: begin a transaction that will hold positions only.
    FLUSH: wait for every acknowledgement, balance the account, compare topic ids, grant the permit; or find that more
        records join.  Speculative positions and offset map may be written meanwhile.
    COMMIT: write positions and offset map, unless the speculative ones are right; commit with the permit.
    ABORT: abort the open transaction.
    END: close everything; the event tells the reason.
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
    (_S.STARTING, _E.PLANE_CHANGED): (_S.STARTING, _C.INIT_PRODUCER),
    # asked to stop before it has begun a transaction: a driver that stops does not wait for the way up
    (_S.STARTING, _E.LEAVE): (_S.CLOSED, _C.END),
    (_S.CONTROL, _E.LEAVE): (_S.CLOSED, _C.END),
    (_S.POSITIONS, _E.LEAVE): (_S.CLOSED, _C.END),
    (_S.COMPARING, _E.LEAVE): (_S.CLOSED, _C.END),
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
    # the driver gives them to another lane once this claim is committed
    (_S.IDLE, _E.PARTITIONS_RELEASED): (_S.CLAIMING, _C.COMMIT_CLAIM),
    (_S.IDLE, _E.LEAVE): (_S.CLOSED, _C.END),
    # a source that is too old for the plane shows it with the first fetch
    (_S.IDLE, _E.PLANE_CHANGED): (_S.STARTING, _C.INIT_PRODUCER),
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
    # of a dead letter, which is written after the flush
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
    """The runner answered with an event that the table does not list: a bug, never the user's fault."""


class LaneMachine:
    """
    Tracks the state by `TRANSITIONS`, and records the arrows taken for the tests' coverage.

    Args:
        begins: STARTING; or CLAIMING, where an attempt resumes with the producer of the previous epoch
            (`eomirror.spark.handover`), whose commit is fenced if another process took the lane meanwhile; or IDLE,
            where an attempt continues past its own epoch.
    """

    __slots__ = ("state", "taken")

    def __init__(self, begins: LaneState = LaneState.STARTING) -> None:
        self.state = begins
        self.taken: set[tuple[LaneState, Event]] = set()

    def first(self) -> Command:
        """Returns the first command."""
        return _FIRST[self.state]

    def step(self, event: Event) -> Command:
        """
        Takes one arrow of the table, and returns the next command.

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
