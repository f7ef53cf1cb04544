"""
The transactions of a lane, one after the other, on the plane that serves them.

State between commands: the open transaction's stamp, the state records that it holds, and the permit to commit it.
"""

from __future__ import annotations

import os
import socket
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
from eomirror.lane.machine import Event
from eomirror.lane.mm2_records import Mm2Records
from eomirror.lane.offset_map_compaction import OffsetMapCompaction
from eomirror.lane.poison_records import RejectionHandler
from eomirror.lane.topic_ids import TopicIdRequest
from eomirror.lane.transaction_timer import CommitTrigger, TransactionTimer
from eomirror.plane.protocol import CommitOutcome, MetadataRecord, ProducerIdentity
from eomirror.records.names import LinkNames

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.clock import Clock
    from eomirror.lane.epoch import LaneEpoch
    from eomirror.lane.errors import Outcome
    from eomirror.lane.mm2_records import SyncSink
    from eomirror.lane.partitions import LanePartitions
    from eomirror.lane.ports import ChunkSweep, StateReader, TopicComparer
    from eomirror.plane.select import PlaneSelector
    from eomirror.records.control import Gap

__all__ = ["SLICE_SECONDS", "LaneTransaction"]

log = structlog.get_logger(__name__)

_TopicIds = tuple["Mapping[str, str | None]", "Mapping[str, str | None]"]

#: Bounds the reaction time to a stop.
SLICE_SECONDS = 0.1


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
        stamp = self._epoch.stamp(self.identity)
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
        stamp = self._written.stamp = self._written.stamp or self._epoch.stamp(self.identity)
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
