"""
Progress of a sink: its record, and what a batch has to do after it. Pure.

The record is written in the transaction of its batch, so it tells what is committed.  Batch ids count for one query: a
query without its checkpoint directory begins at 0 under a new id.  Then only source offsets tell what was written.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from eomirror.dataframe.offsets import IDS
from eomirror.errors import StateError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["SinkProgress", "Sources", "covered", "decode_progress", "must_write", "source_offsets"]

_VERSION = 1

#: Topic -> partition -> offset; None where they are not known.
Sources = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """
    The last committed batch of a sink.

    Attributes:
        query: Id of the query; empty for a batch write.
        batch: Id of the batch.
        rows: Rows in it.
        bytes: Bytes of their keys, values and headers.
        digest: Sum of the digests of its rows.
        begin: Source offsets at which the first batch began; None if not known.
        sources: Source offsets after the batch; None if not known.
        run: Id of a batch write.
        timestamp: Time of the commit in ms.
        task: Task that wrote it, of a sink that commits for each partition; -1 for the others.
    """

    query: str
    batch: int
    rows: int
    bytes: int
    digest: str
    begin: Sources | None = None
    sources: Sources | None = None
    run: str = ""
    timestamp: int = 0
    task: int = -1

    def as_text(self) -> str:
        """Returns the value of the record."""
        return json.dumps({"v": _VERSION, **asdict(self)}, separators=(",", ":"))


def decode_progress(value: bytes, where: str) -> SinkProgress:
    """
    Returns the progress in a record.

    Raises:
        StateError: The record is damaged, or of a later version.
    """
    try:
        plain = json.loads(value)
        version = plain.pop("v")
        known = {field.name for field in fields(SinkProgress)}
        progress = SinkProgress(**{name: one for name, one in plain.items() if name in known})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(
            f"{where}: the progress record is unreadable",
            fix="find out what wrote it; use another name of the sink",
        ) from error
    if version != _VERSION:
        raise StateError(f"{where}: the progress record has version {version}", fix="use a newer eomirror")
    return progress


def must_write(
    last: SinkProgress | None,
    name: str,
    query: str,
    batch: int,
    span: tuple[Sources | None, Sources | None],
    *,
    append: bool,
) -> bool:
    """
    Returns true if a batch must be written, false if the sink holds it.

    Args:
        last: Progress of the sink; None before its first batch.
        name: Name of the sink.
        query: Id of the query.
        batch: Id of the batch.
        span: Source offsets before and after the batch; None if not known.
        append: Write the batches of another query, whatever they hold.

    Raises:
        UsageError: The batch is another query's, and what of it was written is not known.
    """
    if last is None:
        return True
    if query == last.query:
        return batch > last.batch
    if append:
        return True
    begin, end = span
    before = (
        f"sink {name} was written by query {last.query} up to batch {last.batch}; "
        f"this is query {query}, batch {batch}"
    )
    if last.sources is None or end is None:
        raise UsageError(
            f"{before}. Its batch ids count anew, and without source offsets the sink cannot tell which rows it holds",
            fix="restore the checkpoint directory; or use another name of the sink; or set newQuery to append, which "
            "writes all rows of the new query",
        )
    held, first = last.sources, last.begin or {}
    if begin is not None and covered(held, begin) and covered(begin, held):
        return True
    if covered(end, held) and (begin is None or covered(first, begin)):
        # all of it lies before the offsets that are committed
        return False
    raise UsageError(
        f"{before}. It reads {json.dumps(begin)} to {json.dumps(end)}, and the sink holds rows up to "
        f"{json.dumps(held)}",
        fix="start the new query exactly there: startingOffsets="
        f"{json.dumps(held)}; or use another name of the sink; or set newQuery to append",
    )


def covered(inner: Sources, outer: Sources) -> bool:
    """Returns true if each offset of ``inner`` is at most the one of ``outer``."""
    return all(
        offset <= outer.get(topic, {}).get(partition, 0)
        for topic, partitions in inner.items()
        for partition, offset in partitions.items()
    )


def source_offsets(logged: Mapping[str, Any]) -> Sources | None:
    """Returns the offsets of a source in the form of Spark's Kafka connector, or of ours; None for another form."""
    found: Sources = {}
    for topic, partitions in logged.items():
        if topic == IDS:
            continue
        if not isinstance(partitions, dict):
            return None
        for partition, offset in partitions.items():
            if not str(partition).isdigit() or type(offset) is not int:
                return None
            found.setdefault(topic, {})[str(partition)] = offset
    return found
