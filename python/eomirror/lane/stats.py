"""Counts the work of one attempt of a lane for its reports. Pure: positions in, reports out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.lane.measures import AttemptMeasures
from eomirror.lane.spec import LaneProgress, PartitionProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.lane.errors import Outcome
    from eomirror.lane.spec import LaneReport, LaneSpec, StoppedTopic
    from eomirror.plane.protocol import Plane
    from eomirror.records.position import Position
    from eomirror.recovery.corrupt_batches import Damage
    from eomirror.types import SourcePartition

__all__ = ["AttemptStats"]

_PAUSE_SECONDS = 0.25
_LONGEST_PAUSE_SECONDS = 2.0
# after so many reports without news a lane counts as quiet
_QUIET_REPORTS = 4
# each report examines every partition: at most this share of a core, until pauses get too long
_SHARE = 0.005


class AttemptStats:
    """
    Counts what an attempt committed.

    Args:
        spec: The attempt.
        since_ms: Wall clock when the lane began, in this attempt or in one before it that it continues.

    Attributes:
        transactions: Committed transactions with data or advances.
        since_ms: As given.
        measures: Histograms, and failed transactions.
        released: As of `LaneProgress`.
    """

    def __init__(self, spec: LaneSpec, *, since_ms: int) -> None:
        self.transactions = self.released = 0
        self.since_ms = since_ms
        self._spec = spec
        self._last = _LastReport()
        self._pause = _PAUSE_SECONDS
        self._records = 0
        self._bytes = 0
        self._dropped = 0
        self._copied_headers = 0
        self._commit_ms = 0.0
        self._work: dict[SourcePartition, _PartitionWork] = {}
        self.measures = AttemptMeasures(since_ms)

    def add(self, positions: Iterable[Position], *, seconds: float, wall_ms: int) -> None:
        """
        Records a committed transaction.

        Args:
            positions: Positions that it committed.
            seconds: Time since its begin.
            wall_ms: Wall clock at its commit.
        """
        self.transactions += 1
        self._commit_ms = seconds * 1000
        records = 0
        for position in positions:
            records += position.records
            self._bytes += position.bytes
            self._dropped += sum(position.dropped.values())
            self._copied_headers += position.copied_headers
            if not position.records and not position.dropped:
                continue
            work = self._work.get(position.source)
            if work is None:
                work = self._work[position.source] = _PartitionWork()
            work.add(position)
            if position.records and position.source_timestamp is not None:
                self.measures.latency(position.source_timestamp, wall_ms)
        self._records += records
        self.measures.durations.observe(seconds)
        self.measures.sizes.observe(records)

    def due(self, now: float) -> bool:
        """
        Returns whether a progress report is due; ``now`` in monotonic seconds.

        Reports of a lane in which nothing happens are rare.  An end that grows is soon followed by a transaction.
        """
        last = self._last
        quiet = last.empty_reports >= _QUIET_REPORTS and self.transactions == last.transactions
        return now - last.at >= (_LONGEST_PAUSE_SECONDS if quiet else self._pause)

    def took(self, seconds: float) -> None:
        """Records the duration of the last report: with very many partitions reports become rarer."""
        self._pause = min(max(_PAUSE_SECONDS, seconds / _SHARE), _LONGEST_PAUSE_SECONDS)

    def progress(
        self,
        state: str,
        positions: Mapping[SourcePartition, Position],
        plane: Plane,
        *,
        stopped: Mapping[str, StoppedTopic],
        now: float,
        wall_ms: int,
    ) -> LaneProgress:
        """
        Returns a progress report with the partitions whose position or end has changed.

        An end may become known long after the position, and grows without it, so every partition is examined.

        Args:
            state: Of the lane's machine.
            positions: Committed positions.
            stopped: Stopped topics.
            now: Monotonic seconds.
            wall_ms: Wall clock.
        """
        ends = plane.log_ends()
        changed = self._last.update(now, positions, ends, transactions=self.transactions)
        return LaneProgress(
            lane=self._spec.lane,
            epoch=self._spec.epoch,
            state=state,
            transactions=self.transactions,
            records=self._records,
            bytes=self._bytes,
            dropped=self._dropped,
            copied_headers=self._copied_headers,
            commit_ms=self._commit_ms,
            partitions=tuple(
                _partition_progress(positions[source], ends.get(source), wall_ms, self._work.get(source))
                for source in sorted(changed)
            ),
            stopped_topics=dict(stopped),
            serving=plane.serving(),
            measures=self.measures.reported(),
            released=self.released,
        )

    def report(
        self,
        outcome: Outcome,
        stopped: Mapping[str, StoppedTopic],
        *,
        overdue: bool,
        damaged: tuple[Damage, ...],
    ) -> LaneReport:
        """Returns the result of the attempt."""
        return self._spec.report(
            outcome.ending,
            outcome.reason,
            outcome.error,
            transactions=self.transactions,
            records=self._records,
            stopped_topics=dict(stopped),
            progressed=self.transactions > 0,
            overdue=overdue,
            damaged=damaged,
        )


class _LastReport:
    """The last report: its time, what it told of each partition, and how many in a row told of none."""

    __slots__ = ("at", "empty_reports", "ends", "facts", "positions", "transactions")

    def __init__(self) -> None:
        self.at = float("-inf")
        self.transactions = self.empty_reports = 0
        self.ends: Mapping[SourcePartition, int] | None = None
        self.positions: Mapping[SourcePartition, Position] = {}
        self.facts: Mapping[SourcePartition, tuple[int, int | None]] = {}

    def update(
        self,
        now: float,
        positions: Mapping[SourcePartition, Position],
        ends: Mapping[SourcePartition, int],
        *,
        transactions: int,
    ) -> list[SourcePartition]:
        """Records a report; returns the partitions whose position or end has changed since the one before."""
        changed: list[SourcePartition] = []
        if ends is not self.ends or positions != self.positions:
            facts = {source: (position.offset, ends.get(source)) for source, position in positions.items()}
            changed = [source for source, fact in facts.items() if self.facts.get(source) != fact]
            self.ends, self.positions, self.facts = ends, dict(positions), facts
        self.at, self.transactions = now, transactions
        self.empty_reports = 0 if changed else self.empty_reports + 1
        return changed


class _PartitionWork:
    """Work of one partition in this attempt."""

    __slots__ = ("bytes", "dropped", "records")

    def __init__(self) -> None:
        self.records = self.bytes = 0
        self.dropped: dict[str, int] = {}

    def add(self, position: Position) -> None:
        self.records += position.records
        self.bytes += position.bytes
        for reason, count in position.dropped.items():
            self.dropped[reason] = self.dropped.get(reason, 0) + count


def _partition_progress(
    position: Position, end: int | None, wall_ms: int, work: _PartitionWork | None
) -> PartitionProgress:
    """Estimates the lag in seconds from the last mirrored record: the next one is hardly older (see `Progress`)."""
    age: float | None = None
    if end is not None and end <= position.offset:
        age = 0.0
    elif position.source_timestamp is not None:
        age = max(0.0, (wall_ms - position.source_timestamp) / 1000)
    return PartitionProgress(
        topic=position.topic,
        partition=position.partition,
        position=position.offset,
        lso=end,
        lag_seconds=age,
        records=0 if work is None else work.records,
        bytes=0 if work is None else work.bytes,
        dropped={} if work is None else dict(work.dropped),
    )
