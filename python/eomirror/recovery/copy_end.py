"""
Decides how far a copy holds what the position of its source partition says (EO-5). Pure.

A promotion lets applications write behind the copy, so its cut must name the last record that is really there::

    position P, last record L            the copy as it is found

    source  0 ........ S ...... P        [0, E] of the link | nothing, or records of others
    copy    0 ........ E ...... L        whole: E = L.  A target that lost its tail: E < L

Where the last record is not there (the log is shorter, or another producer's record has its offset), the link's records
end at E: the last committed record below L whose batch a lane of the link wrote.  The offset map names its source
offset, and the cut is behind that.  Producer ids of lanes are those of position records, lane claims and coordinators.

* Truncation removes the end of a log and nothing else, so what is before E stands where the map says.
* A batch of a transactional producer that is not known, between E and the log's end, proves nothing: its id may be one
  that a lane had before, of which no record is left.  The cut is then unknown: the source is compared when it is back.
* Positions may be older than the copy, if both lost their tails.  Then E is behind L, and the cut moves forward.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from eomirror.records.position import Position

__all__ = [
    "CommittedBatch",
    "CopyEnd",
    "LastRecord",
    "last_of_lanes",
    "moved",
    "source_behind",
    "unknown_end",
    "whole",
]


class CommittedBatch(NamedTuple):
    """
    A batch with committed records.

    Attributes:
        base_offset: Offset of its first record.
        last_offset: Offset of its last record.
        producer_id: Id of its producer; -1 outside of a transaction: lanes write none such.
        epoch: Epoch of that producer.
    """

    base_offset: int
    last_offset: int
    producer_id: int
    epoch: int


class LastRecord(NamedTuple):
    """
    Last record of a link in a part of a copy.

    Attributes:
        batch: Batch that ends with it; None if no lane wrote one there.
        doubtful: Offset of a batch behind it whose producer is not known; None for none.
    """

    batch: CommittedBatch | None
    doubtful: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyEnd:
    """
    End of the link's records in the copy of one source partition.

    Attributes:
        offset: Source offset behind the last of them: the position's, if the copy is whole.
        target_offset: Offset of that record in the copy; None for none.
        writer: Producer id and epoch that wrote it; None if unknown.
        target_topic_id: Id of the copy.
        target_end: Offset behind which the copy holds nothing of the link: that of the first committed record of others
            there, or the log end.
        problem: What is missing in the copy; empty if it is whole.
        proven: False if ``offset`` is that of the position, although the copy is not whole.
    """

    offset: int
    target_offset: int | None
    writer: tuple[int, int] | None
    target_topic_id: str
    target_end: int
    problem: str = ""
    proven: bool = True


def last_of_lanes(
    batches: Sequence[CommittedBatch], lanes: Collection[int] | None, others: Collection[int] = ()
) -> LastRecord:
    """
    Returns the last record of a link in a part of its copy.

    Args:
        batches: Batches with committed records, in log order.
        lanes: Producer ids of its lanes; None if producers cannot be asked, which makes all records its own.
        others: Producer ids of other transactional ids.
    """
    doubtful: int | None = None
    for batch in reversed(batches):
        if lanes is None or batch.producer_id in lanes:
            return LastRecord(batch, doubtful)
        if batch.producer_id >= 0 and batch.producer_id not in others:
            doubtful = batch.base_offset
    return LastRecord(None, doubtful)


def source_behind(
    ranges: Iterable[tuple[int, int, int]], target_offset: int | None, log_start: int
) -> int | None:
    """
    Returns the source offset behind a record of the copy; None if the offset map does not name it.

    Args:
        ranges: Source offset, target offset and number of records of each range of the map, ascending.
        target_offset: Offset of the record in the copy; None if the copy holds none of the link.
        log_start: Log start of the copy.
    """
    for source, target, count in ranges:
        if target_offset is None and target + count > log_start:
            # Everything before the log start was there once, and retention has deleted it.
            return source + max(0, log_start - target)
        if target_offset is not None and target <= target_offset < target + count:
            return source + target_offset - target + 1
    return None


def whole(position: Position, target_topic_id: str, target_end: int) -> CopyEnd:
    """Returns the end of a copy that holds what its position says."""
    return CopyEnd(
        offset=position.offset,
        target_offset=position.target_offset,
        writer=position.target_writer,
        target_topic_id=target_topic_id,
        target_end=target_end,
    )


def unknown_end(position: Position, target_topic_id: str, target_end: int, problem: str) -> CopyEnd:
    """Returns the end of a copy that is not whole, of which nothing proves how far it goes."""
    return replace(whole(position, target_topic_id, target_end), problem=problem, proven=False)


def moved(position: Position, end: CopyEnd, *, generation: int, run: str, now_ms: int) -> Position:
    """Returns the position at the proven end of its copy, as an owner sets it; nothing is known of the source there."""
    producer_id, epoch = end.writer or (None, None)
    return position.moved_to(
        end.offset,
        prev=None,
        target_topic_id=end.target_topic_id,
        target_offset=end.target_offset,
        target_producer_id=producer_id,
        target_producer_epoch=epoch,
        generation=generation,
        run=run,
        epoch=0,
        attempt=0,
        timestamp=now_ms,
    )
