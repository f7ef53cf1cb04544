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

from eomirror.clock import Clock, Deadline
from eomirror.kafka.partition_reader import PartitionReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from eomirror.config import Cluster
    from eomirror.records.promotion import Promotion
    from eomirror.types import SourcePartition

__all__ = ["OrphanRange", "count_orphans", "orphan_ranges", "write_orphans"]

_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRange:
    """
    Source offsets of one partition that never reached its copy.

    Attributes:
        source: Source partition.
        start: First offset: the position at the cut.
        end: Offset behind the last; markers and aborted records count.
    """

    source: SourcePartition
    start: int
    end: int


def orphan_ranges(promotion: Promotion, ends: Mapping[SourcePartition, int]) -> list[OrphanRange]:
    """
    Returns the ranges that may hold orphans, sorted; empty ones are left out.

    Args:
        promotion: The promotion.
        ends: End of each source partition.
    """
    return [
        OrphanRange(source=cut.source, start=cut.position, end=ends[cut.source])
        for cut in promotion.cuts
        if ends.get(cut.source, 0) > cut.position
    ]


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

            def taken(_: object, message: Any, source: SourcePartition = source) -> None:
                take(source, message)

            reader.read({source: (each.start, each.end)}, taken, deadline=Deadline(_SECONDS, clock))


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
