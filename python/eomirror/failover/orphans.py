"""
Reads the orphans of a promotion, and writes them to a file: source records beyond the cut, which have no copy.

The file holds one JSON document a line.  Bytes are base64, because they may be anything; null stays null::

    {"topic":"orders","partition":0,"offset":71,"timestamp":1700000000000,"key":"azE=","value":"dg==",
     "headers":[["h","MQ=="]]}
"""

from __future__ import annotations

import base64
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from eomirror._native import last_hop
from eomirror.clock import Clock, Deadline
from eomirror.errors import NotReadyError
from eomirror.kafka.partition_reader import PartitionReader
from eomirror.records.names import HOPS_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from eomirror.config import Cluster, Link
    from eomirror.records.promotion import Promotion, PromotionHistory
    from eomirror.types import SourcePartition

__all__ = ["OrphanRange", "count_orphans", "orphan_ranges", "refuse_forgotten", "write_orphans"]

_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRange:
    """
    Source offsets of one partition that never reached its copy.

    Attributes:
        source: Source partition.
        start: First offset: the position at the cut.
        end: Offset behind the last; markers and aborted records count.
        target: Id of the target cluster: records that a link back has brought from there are no orphans.
    """

    source: SourcePartition
    start: int
    end: int
    target: str = ""


def orphan_ranges(
    promotion: Promotion,
    ends: Mapping[SourcePartition, int],
    starts: Mapping[SourcePartition, int] | None = None,
) -> list[OrphanRange]:
    """
    Returns the ranges that may hold orphans, sorted; empty ones are left out.

    Args:
        promotion: The promotion.
        ends: End of each source partition; one without a cut was never mirrored, and is an orphan as a whole.
        starts: Log start of partitions without a cut; 0 by default.
    """
    cuts = {cut.source: cut.position for cut in promotion.cuts}
    begin = {source: cuts.get(source, (starts or {}).get(source, 0)) for source in ends}
    return [
        OrphanRange(source=source, start=begin[source], end=end, target=promotion.target_cluster_id)
        for source, end in sorted(ends.items())
        if end > begin[source]
    ]


def refuse_forgotten(
    link: Link, cluster: Cluster, history: PromotionHistory, *, client_id: str, clock: Clock
) -> None:
    """
    Refuses to let a promoted link mirror again while nothing was decided about its orphans.

    From then on the link begins behind them: they would stay on the old source alone, and no command would find them.

    Args:
        link: The promoted link.
        cluster: Its source.
        history: Its promotions.

    Raises:
        NotReadyError: There are orphans, and no `eomirror restore`.
        ClusterError: The source cannot be read.
    """
    promotion = history.current
    if promotion is None or promotion.number in history.restorations:
        return
    reversal = history.reversals.get(promotion.number)
    ranges = [] if reversal is None else orphan_ranges(promotion, reversal.ends)
    if not ranges:
        return
    if count := sum(count_orphans(cluster, ranges, client_id=client_id, clock=clock).values()):
        raise NotReadyError(
            f"link {link.name}: {count} records of {link.source} never reached the copies, and would be left behind",
            fix=f"decide about them first: `eomirror restore CONFIG --link {link.name} --orphans merge|export|keep`",
        )


def count_orphans(
    cluster: Cluster, ranges: Sequence[OrphanRange], *, client_id: str, clock: Clock
) -> dict[SourcePartition, int]:
    """
    Returns the number of committed records in each range.

    Raises:
        ClusterError: The cluster cannot be read.
    """
    found = {each.source: 0 for each in ranges}

    def take(where: SourcePartition, _: Any) -> None:
        found[where] += 1

    _read(cluster, ranges, take, client_id=client_id, clock=clock)
    return found


def write_orphans(
    cluster: Cluster, ranges: Sequence[OrphanRange], path: Path, *, client_id: str, clock: Clock
) -> int:
    """
    Writes the committed records of the ranges to a file, which is replaced only when it is complete.

    Returns:
        Number of records.

    Raises:
        ClusterError: The cluster cannot be read.
        OSError: The file cannot be written.
    """
    part = path.with_name(f"{path.name}.part")
    count = 0
    with part.open("wb") as file:

        def take(where: SourcePartition, message: Any) -> None:
            nonlocal count
            count += 1
            file.write(orjson.dumps(_document(where, message)) + b"\n")

        _read(cluster, ranges, take, client_id=client_id, clock=clock)
    part.replace(path)
    return count


def _read(
    cluster: Cluster,
    ranges: Sequence[OrphanRange],
    take: Callable[[SourcePartition, Any], None],
    *,
    client_id: str,
    clock: Clock,
) -> None:
    """Reads one partition after the other: the end of a range may be a marker, which no client shows."""
    with closing(PartitionReader(cluster, client_id=client_id, clock=clock)) as reader:
        reader.connect(sorted({each.source.topic for each in ranges}))
        for each in ranges:
            source = each.source

            def taken(
                _: object, message: Any, source: SourcePartition = source, target: str = each.target
            ) -> None:
                if not target or _copied_from(message) != target:
                    take(source, message)

            reader.read({source: (each.start, each.end)}, taken, deadline=Deadline(_SECONDS, clock))


def _copied_from(message: Any) -> str | None:
    """Returns the id of the cluster that a link has copied a record from; None if no link has."""
    found = next((value for name, value in reversed(message.headers() or []) if name == HOPS_HEADER), None)
    return None if found is None else last_hop(found, message.topic(), message.key(), message.value())


def _document(where: SourcePartition, message: Any) -> dict[str, Any]:
    return {
        "topic": where.topic,
        "partition": where.partition,
        "offset": message.offset(),
        "timestamp": message.timestamp()[1],
        "key": _text(message.key()),
        "value": _text(message.value()),
        "headers": [[name, _text(value)] for name, value in message.headers() or ()],
    }


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")
