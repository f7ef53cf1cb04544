"""
The transactions of a lane, one after the other, on the plane that serves them.

State between commands: the open transaction's stamp, the state records that it holds, and the permit to commit it.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING

import structlog

from eomirror.crash import crash_point
from eomirror.errors import TransactionFailedError
from eomirror.lane.commit import (
    CommitPermit,
    SpeculativeState,
    claim_of,
    grant,
    speculative_records,
    state_records,
)
from eomirror.lane.machine import Event, LaneState
from eomirror.lane.mm2_records import Mm2Records
from eomirror.lane.offset_map_compaction import OffsetMapCompaction
from eomirror.lane.poison_records import RejectionHandler
from eomirror.plane.protocol import (
    SLICE_SECONDS,
    CommitOutcome,
    MetadataRecord,
    ProducerIdentity,
    Pumped,
)
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from eomirror.clock import Clock
    from eomirror.lane.epoch import LaneEpoch
    from eomirror.lane.errors import Outcome
    from eomirror.lane.mm2_records import SyncSink
    from eomirror.lane.partitions import LanePartitions
    from eomirror.lane.ports import ChunkSweep, PendingIds, StateReader, TopicComparer
    from eomirror.lane.spec import Released
    from eomirror.plane.protocol import Plane
    from eomirror.plane.select import PlaneSelector
    from eomirror.records.control import Gap
    from eomirror.records.position import Position
    from eomirror.types import SourcePartition

__all__ = [
    "CommitFacts",
    "CommitTrigger",
    "LaneTransaction",
    "TopicIdRequest",
    "TransactionTimer",
]

log = structlog.get_logger(__name__)

_TopicIds = tuple["Mapping[str, str | None]", "Mapping[str, str | None]"]


class LaneTransaction:
    """
    Carries out the commands of a lane that need its producer.

    Args:
        epoch: Epoch of the lane.
        partitions: Partitions of the lane.
        planes: Selects the plane that moves the bytes, for each producer.
        state: Reads the link's state topics.
        topics: Reads both clusters' topics.
        syncs: Receives offset syncs for the source.
        sweep: Finds droppable chunks of the offset map; None to drop none.

    Attributes:
        plane: Plane that moves the bytes.
        identity: Producer of the last transaction.
        timer: Decides when transactions end.
        rejections: Handles refused records.
        mm2_records: Pending records for MM2's readers.
        compaction: Pending compaction of the offset map.
    """

    def __init__(
        self,
        epoch: LaneEpoch,
        partitions: LanePartitions,
        clock: Clock,
        *,
        planes: PlaneSelector,
        state: StateReader,
        topics: TopicComparer,
        syncs: SyncSink | None,
        sweep: ChunkSweep | None,
    ) -> None:
        spec = epoch.spec
        self.identity = ProducerIdentity(-1, -1)
        self.mm2_records = Mm2Records(spec.link, syncs, partitions=len(spec.partitions))
        self.compaction = OffsetMapCompaction(len(spec.partitions))
        self.timer = TransactionTimer(
            CommitTrigger(interval=spec.link.commit_interval, interval_min=spec.link.commit_interval_min)
        )
        self.rejections = RejectionHandler(spec.link, topics)
        self.plane = planes.select(self.rejections.policy.send_plan)
        self._epoch, self._partitions, self._clock = epoch, partitions, clock
        self._planes, self._state, self._topics, self._sweep = planes, state, topics, sweep
        self._written = SpeculativeState()
        # with the ids of source and target topics
        self._permit: tuple[CommitPermit, _TopicIds] | None = None

    # -- one command, one event ------------------------------------------------------------------

    def init_producer(self) -> Event:
        """Opens a new producer, which fences older attempts."""
        self._epoch.keep_id()
        self.plane.restart()
        self.plane = self._planes.select(self.rejections.policy.send_plan)
        self._partitions.forget()
        self._permit = None
        self.mm2_records.forget()
        self.compaction.forget()
        self.identity = self.plane.open()
        crash_point("lane.initialized")
        return Event.PRODUCER_READY

    def commit_claim(self) -> Event:
        """Commits the claim of the attempt, and the gaps that it accepts (EO-6)."""
        self.identity = self.plane.begin()
        stamp = self._epoch.stamp(self.identity, self._partitions.generation)
        claim = claim_of(stamp, self.plane.serving(), host=socket.gethostname(), pid=os.getpid())
        topics = self._state.state_topics()
        lane_partition = stamp.lane % topics.positions_partitions
        records = [MetadataRecord(topics.positions, lane_partition, claim.key(), claim.value())]
        behind_gaps = self._partitions.moved_behind_gaps(stamp)
        for gap, moved in behind_gaps:
            records.append(self._gap_record(gap))
            records.append(MetadataRecord(topics.positions, lane_partition, moved.key(), moved.value()))
        self.plane.write(records)
        crash_point("lane.claim_written")
        outcome = self.plane.commit()
        crash_point("lane.claimed")
        # the id was still this lane's behind the publication of that generation (docs/adr/0035)
        self._epoch.stats.released = max(self._epoch.spec.generation, self._partitions.released)
        self._partitions.committed(moved for _, moved in behind_gaps)
        for gap, _ in behind_gaps:
            log.warning("gap_accepted", source=str(gap.source), start=gap.start, end=gap.end)
        if outcome is CommitOutcome.CLEAN:
            self._partitions.gaps.clear()
        self.report(force=True)
        return Event.COMMIT_CLEAN if outcome is CommitOutcome.CLEAN else Event.COMMIT_SUSPECT

    def begin(self) -> Event:
        """Begins a transaction with records."""
        self._open()
        return self.pump()

    def begin_empty(self) -> Event:
        """Begins a transaction without records."""
        self._open()
        return Event.CUT_DUE

    def pump(self) -> Event:
        """Mirrors available records."""
        max_wait = self.timer.max_wait(self._clock.monotonic())
        self.timer.add(self.plane.pump(min(max_wait, SLICE_SECONDS)))
        self.report()
        crash_point("lane.produced")
        due = self.timer.commit_due(self._clock.monotonic(), leaving=self.leaving() is not None)
        return Event.CUT_DUE if due else Event.MORE_WANTED

    def flush(self) -> Event:
        """Waits for every acknowledgement, and obtains the permit to commit."""
        topics = {source.topic for source in self.plane.advances()} | self.mm2_records.topics
        positions, targets = self._partitions.positions, self._partitions.targets
        topics = (topics & targets.keys()) or {source.topic for source in positions}
        request = TopicIdRequest(topics, targets=targets, plane=self.plane, topics=self._topics)
        # one stamp for all rounds, so that unchanged state records are not sent again
        stamp = self._written.stamp = self._written.stamp or self._epoch.stamp(
            self.identity, self._partitions.generation
        )
        speculated = self.plane.speculate()
        if speculated is not None:
            # likely state records travel with the data instead of after it
            speculative = speculative_records(
                self._partitions.without_stopped(speculated), positions, stamp, self._state.state_topics()
            )
            self.plane.write(self._written.changed(speculative))
        flushed = self.plane.flush(self._epoch.spec.link.transaction_timeout)
        crash_point("lane.flushed")
        if self.timer.takes_more(self._clock.monotonic()) and self.plane.has_more() and not self.leaving():
            self.timer.add_round()
            return Event.MORE_CAME
        if missing := {source.topic for source in flushed.advances} - topics:
            raise TransactionFailedError(f"records of {sorted(missing)} whose topic id was not requested")
        ids = source_ids, target_ids = request.result(positions)
        permit = grant(
            self._partitions.without_stopped(flushed),
            positions,
            source_ids=source_ids,
            target_ids=target_ids,
            stamp=stamp,
        )
        self._permit = permit, ids
        return Event.FLUSHED

    def commit(self) -> Event:
        """Writes the state records and commits."""
        assert self._permit is not None, "the machine flushes before it commits"  # noqa: S101  for the type checker
        (permit, ids), self._permit = self._permit, None
        now = self._clock.monotonic()
        # never speculative: MM2's reader keeps every sync it sees, even when a later one of the key corrects it
        accompanying = self.mm2_records.plan(permit, self._partitions.positions, ids, now)
        tidying = self.compaction.plan(self._state.state_topics(), now)
        changed = self._written.changed(state_records(permit, self._state.state_topics()))
        gaps = [self._gap_record(gap) for gap in permit.gaps]
        if records := [*changed, *gaps, *accompanying.records, *tidying.records]:
            self.plane.write(records)
        if tidying.records:
            crash_point("lane.map_compacted")
        crash_point("lane.state_written")
        outcome = self.plane.commit()
        crash_point("lane.committed")
        # a lane at rest keeps no records of thousands of positions; orjson's take 4 kB and more each
        self._written.forget()
        self._partitions.committed(permit.positions)
        for gap in permit.gaps:
            log.warning("gap_accepted", source=str(gap.source), start=gap.start, end=gap.end)
        self.mm2_records.committed(accompanying)
        self.compaction.committed(tidying, permit.positions, permit.chunks)
        took = self.timer.seconds(self._clock.monotonic())
        self._epoch.stats.add(permit.positions, seconds=took, wall_ms=self._clock.wall_ms())
        clean = self._pass_rejections() and outcome is CommitOutcome.CLEAN
        self.timer.committed(self._clock.monotonic())
        self.report()
        self.follow()
        return Event.COMMIT_CLEAN if clean else Event.COMMIT_SUSPECT

    def abort(self) -> Event:
        """Aborts the transaction."""
        self.mm2_records.aborted()
        self.plane.abort()
        self._epoch.stats.measures.aborted += 1
        return Event.ABORTED

    def _gap_record(self, gap: Gap) -> MetadataRecord:
        return MetadataRecord(
            LinkNames(self._epoch.spec.link.state_name).control_topic, 0, gap.key(), gap.value()
        )

    def _pass_rejections(self) -> bool:
        """Records the positions of a commit; returns False if another plane, and so a new producer, takes over."""
        if not self.rejections.policy.passed(self._partitions.positions):
            return True
        before, self.plane = self.plane, self._planes.select(self.rejections.policy.send_plan)
        return self.plane is before

    def _open(self) -> None:
        self.timer.open(self._clock.monotonic())
        self._written.forget()
        self.identity = self.plane.begin()
        crash_point("lane.begun")

    # -- between commands ------------------------------------------------------------------------

    def leaving(self) -> Outcome | None:
        """Returns the outcome of a lane that is to leave between two transactions; None to continue."""
        return self._epoch.leaving(self.rejections.policy)

    def report(self, *, force: bool = False) -> None:
        """Reports progress to the driver if that is due."""
        self._epoch.report(self._partitions, self.plane, force=force)

    def resume(self) -> None:
        """Drops the permit at the begin of an epoch, whose first command is a claim."""
        self._permit = None
        self.timer.committed(self._clock.monotonic())

    def release(self, released: Released) -> None:
        """Drops partitions that another lane gets, with all that was to be written for them; between transactions."""
        # also what is fetched of a topic that was stopped
        self.plane.stop(released.sources)
        self._partitions.release(released.sources, released.generation)
        self.mm2_records.release(released.sources)
        self.compaction.release(released.sources)

    def advance_due(self) -> bool:
        """Returns True if a transaction without records is due, for pending state records or moved positions."""
        now = self._clock.monotonic()
        if self.mm2_records.due(now) or self.compaction.due(now):
            return True
        return self.timer.advance_due(now, moved=bool(self.plane.advances()))

    def follow(self) -> None:
        """Passes on what readers of the state need between transactions: group offsets and droppable chunks."""
        if self._sweep is not None:
            self._sweep.begin(self._partitions.positions)
            self.compaction.drop(self._sweep.take())
        if self.mm2_records.follows:
            answers = self.mm2_records.update(self._epoch.mailbox.followed(), self._partitions.positions)
            if answers:
                self._epoch.mailbox.answer(answers)


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts:
    """
    Facts that decide when a transaction is cut.

    Attributes:
        seconds: Age of the transaction.
        since_last: Seconds since the previous transaction began; infinite for the first.
        records: Records produced into it.
        bytes: Their keys, values and headers.
        drained: The last fetch emptied the sources.
        leaving: The lane is to stop.
        enough: The plane has reached its size limit.
        rounds: Number of rounds that added records after an acknowledgement.
        rested: Seconds without an open transaction before it; infinite for the first.
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
class CommitTrigger:
    """
    Decides when a transaction is cut.

    Attributes:
        interval: Maximum age of a transaction while the lane lags, seconds.
        interval_min: Minimum time from one transaction's begin to the next one's cut once the lane has caught up,
            seconds.
        max_records: Maximum records; produced records must fit into librdkafka's queue.
        max_bytes: Maximum bytes, so that memory is bounded and a transaction cannot outlast its timeout.
        most_rounds: Maximum number of rounds that add records after an acknowledgement.
    """

    interval: float
    interval_min: float
    max_records: int = 200_000
    max_bytes: int = 128 * 1024 * 1024
    most_rounds: int = 1

    def due(self, transaction: CommitFacts) -> bool:
        """
        Returns whether to cut now.

        A lane that lags fills its transaction, because each transaction costs two round trips and three state records.
        A lane that has caught up commits at once for its readers, but no more often than `interval_min`, because each
        transaction costs the brokers a marker per partition.  The interval counts from the previous transaction: the
        first record after a pause is sent immediately.  A second round is one pump.
        """
        if transaction.leaving or transaction.enough or transaction.seconds >= self.interval:
            return True
        if transaction.rounds > 0:  # what is acknowledged waits for no more than was there
            return True
        if transaction.records >= self.max_records or transaction.bytes >= self.max_bytes:
            return True
        return transaction.drained and transaction.since_last >= self.interval_min

    def max_wait(self, transaction: CommitFacts) -> float:
        """Returns the maximum wait for more records, seconds: until the cut is due in any case."""
        left = self.interval - transaction.seconds
        if transaction.drained and transaction.records > 0:
            left = min(left, self.interval_min - transaction.since_last)
        return max(0.0, left)

    def takes_more(self, transaction: CommitFacts) -> bool:
        """
        Returns whether an acknowledged transaction accepts records that have come since its last record was sent.

        Records right after the cut would wait for the end of this transaction and its markers, and then for a
        transaction of their own.  Here they wait for one Produce, and so do the records before them.  Records that were
        sent together arrive like this, in two or three answers, the first of them after a pause.  When transactions
        follow each other without a pause, each one takes the records that arrived during the previous one.
        """
        if transaction.leaving or transaction.enough or not transaction.drained:
            return False
        if transaction.rested < self.interval_min:
            return False
        if transaction.records >= self.max_records or transaction.bytes >= self.max_bytes:
            return False
        return transaction.rounds < self.most_rounds and transaction.seconds < self.interval / 2


# an advance without records is committed within a second (EO-4)
_ADVANCE_SECONDS = 0.8
# an answer this recent means that the target is up, and one within this time that a stop can wait for one more
_ANSWERED_SECONDS = 5.0
_QUICK_SECONDS = 1.0
# of the transaction timeout
_OVERDUE = 0.9
# of a transaction that is begun and not pumped into
_NOTHING = Pumped(0, 0, drained=True)


class TransactionTimer:
    """
    Tracks a lane's transactions, one after the other; every ``now`` is in monotonic seconds.

    Args:
        trigger: Decides when they end.
    """

    __slots__ = (
        "_advance_since",
        "_bytes",
        "_committed",
        "_opened",
        "_opened_before",
        "_pumped",
        "_records",
        "_rounds",
        "_trigger",
    )  # fmt: skip

    def __init__(self, trigger: CommitTrigger) -> None:
        self._trigger = trigger
        self._opened = self._opened_before = self._committed = float("-inf")
        self._records = self._bytes = self._rounds = 0
        self._pumped = _NOTHING
        self._advance_since: float | None = None

    def open(self, now: float) -> None:
        """Starts a transaction."""
        self._opened_before, self._opened = self._opened, now
        self._records = self._bytes = self._rounds = 0
        self._pumped = _NOTHING

    def add(self, pumped: Pumped) -> None:
        """Adds pumped records to the transaction."""
        self._pumped = pumped
        self._records += pumped.records
        self._bytes += pumped.bytes

    def committed(self, now: float) -> None:
        """Records the commit, which includes pending advances."""
        self._advance_since = None
        self._committed = now

    def seconds(self, now: float) -> float:
        """Returns the seconds since the last transaction began; infinite before the first."""
        return now - self._opened

    def facts(self, now: float, *, leaving: bool) -> CommitFacts:
        """
        Returns the facts that the commit depends on.

        Args:
            leaving: The lane is to stop.
        """
        return CommitFacts(
            seconds=now - self._opened,
            since_last=now - self._opened_before,
            records=self._records,
            bytes=self._bytes,
            rounds=self._rounds,
            rested=self._opened - self._committed,
            drained=self._pumped.drained,
            enough=self._pumped.enough,
            leaving=leaving,
        )

    def max_wait(self, now: float) -> float:
        """Returns the maximum wait for more records, seconds; see `CommitTrigger.max_wait`."""
        return self._trigger.max_wait(self.facts(now, leaving=False))

    def commit_due(self, now: float, *, leaving: bool) -> bool:
        """Returns whether to end the transaction; see `CommitTrigger.due`."""
        return self._trigger.due(self.facts(now, leaving=leaving))

    def takes_more(self, now: float) -> bool:
        """Returns whether an acknowledged transaction accepts more records; see `CommitTrigger.takes_more`."""
        return self._trigger.takes_more(self.facts(now, leaving=False))

    def add_round(self) -> None:
        """Counts a round that adds records to an acknowledged transaction."""
        self._rounds += 1

    def answers_quickly(self, now: float) -> bool:
        """Returns whether the target took the last transaction so recently and so fast that it will take one more."""
        recent = now - self._opened < _ANSWERED_SECONDS
        return recent and 0 <= self._committed - self._opened < _QUICK_SECONDS

    def advance_due(self, now: float, *, moved: bool) -> bool:
        """
        Returns whether positions that moved without records have waited long enough (EO-4).

        Args:
            moved: Whether such positions exist.
        """
        if not moved:
            self._advance_since = None
            return False
        if self._advance_since is None:
            self._advance_since = now
        return now - self._advance_since >= _ADVANCE_SECONDS

    def overdue(self, now: float, state: LaneState, timeout: float) -> bool:
        """
        Returns whether a sent transaction was open for too long: a fenced and an unanswered one count alike.

        Args:
            state: State of the lane when it gave up.
            timeout: Transaction timeout of the target, seconds.
        """
        sent = state in {LaneState.FLUSHING, LaneState.COMMITTING}
        return sent and now - self._opened >= _OVERDUE * timeout


class TopicIdRequest:
    """
    Ids of the topics of one transaction; made after its last fetch.

    Args:
        wanted: Source topics whose ids the commit compares.
        targets: Target topics by source topic.
        plane: The plane that moved the records.
        topics: Reads ids on both clusters.
    """

    def __init__(
        self, wanted: AbstractSet[str], *, targets: Mapping[str, str], plane: Plane, topics: TopicComparer
    ) -> None:
        self.wanted = wanted
        self._targets = targets
        self._plane = plane
        self._topics = topics
        self._pinned = wanted & plane.pinned()
        self._pending = self._request(wanted - self._pinned)

    def result(
        self, positions: Mapping[SourcePartition, Position]
    ) -> tuple[Mapping[str, str | None], Mapping[str, str | None]]:
        """
        Returns the ids on the source and on the target; None for a topic that does not exist.

        Args:
            positions: As committed before; pinned topics have the ids that they name.

        Raises:
            UnreachableError: A cluster does not answer.
        """
        source_ids: dict[str, str | None] = {}
        target_ids: dict[str, str | None] = {}
        pinned = self._pinned & self._plane.pinned()
        for position in positions.values():
            if position.topic in pinned:
                source_ids[position.topic] = position.topic_id
                target_ids[position.target_topic] = position.target_topic_id
        for pending in (self._pending, self._request(self._pinned - pinned)):
            if pending is not None:
                on_source, on_target = pending.result()
                source_ids.update(on_source)
                target_ids.update(on_target)
        return source_ids, target_ids

    def _request(self, topics: AbstractSet[str]) -> PendingIds | None:
        if not topics:
            return None
        return self._topics.request_ids(sorted(topics), sorted({self._targets[topic] for topic in topics}))
