"""What one attempt of a lane has done so far, and how it is told: pure, positions in and reports out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eomirror.lane.spec import Ending, LaneProgress, LaneReport, LaneSpec, PartitionProgress

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from eomirror.errors import MirrorError
    from eomirror.formats.position import Position
    from eomirror.types import SourcePartition

__all__ = ["AttemptTally"]


class AttemptTally:
    """
    Counts what an attempt committed.

    Args:
        spec: The attempt.

    Attributes:
        transactions: Committed transactions with data or advances.
        changed: Partitions whose position moved since the last progress.
    """

    def __init__(self, spec: LaneSpec) -> None:
        self.transactions = 0
        self.changed: set[SourcePartition] = set()
        self._spec = spec
        self._records = 0
        self._bytes = 0
        self._dropped = 0
        self._commit_ms = 0.0

    def add(self, positions: Iterable[Position], *, seconds: float) -> None:
        """A transaction was committed with these positions, ``seconds`` after it was begun."""
        self.transactions += 1
        self._commit_ms = seconds * 1000
        for position in positions:
            self.changed.add(position.source)
            self._records += position.records
            self._bytes += position.bytes
            self._dropped += sum(position.dropped.values())

    def progress(
        self,
        state: str,
        positions: Mapping[SourcePartition, Position],
        *,
        ends: Mapping[SourcePartition, int],
        stopped: dict[str, str],
        wall_ms: int,
    ) -> LaneProgress:
        """
        A sign of life.

        Args:
            state: Of the lane's machine.
            positions: As committed.
            ends: Last stable offsets of the source, as far as known.
            stopped: Topics that the lane stopped, and why.
            wall_ms: Wall clock.
        """
        changed, self.changed = self.changed, set()
        return LaneProgress(
            lane=self._spec.lane,
            epoch=self._spec.epoch,
            state=state,
            transactions=self.transactions,
            records=self._records,
            bytes=self._bytes,
            dropped=self._dropped,
            commit_ms=self._commit_ms,
            partitions=tuple(
                _partition_progress(positions[source], ends.get(source), wall_ms)
                for source in sorted(changed)
                if source in positions
            ),
            stopped_topics=stopped,
        )

    def report(
        self, ending: Ending, reason: str, error: MirrorError | None, stopped: dict[str, tuple[int, str]]
    ) -> LaneReport:
        """The attempt's result; ``stopped`` holds exit code and text of each stopped topic."""
        code = max((code for code, _ in stopped.values()), default=0)
        return LaneReport(
            lane=self._spec.lane,
            epoch=self._spec.epoch,
            attempt=self._spec.attempt,
            ending=ending,
            reason=reason,
            error="" if error is None else str(error),
            exit_code=code if error is None else error.exit_code,
            transactions=self.transactions,
            records=self._records,
            stopped_topics=dict(stopped),
            progressed=self.transactions > 0,
        )


def _partition_progress(position: Position, end: int | None, wall_ms: int) -> PartitionProgress:
    """Lag in seconds is told from the last mirrored record: the next one is not much younger."""
    age: float | None = None
    if end is not None and end <= position.offset:
        age = 0.0
    elif position.source_timestamp is not None:
        age = max(0.0, (wall_ms - position.source_timestamp) / 1000)
    return PartitionProgress(
        topic=position.topic, partition=position.partition, position=position.offset, lso=end, lag_seconds=age
    )
