"""
Decides about a batch by the progress of its sink (`eomirror.records.sink_progress`). Pure.

Batch ids count for one query: a
query without its checkpoint directory begins at 0 under a new id.  Then only source offsets tell what was written.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from eomirror.dataframe.offsets import IDS
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.records.sink_progress import SinkProgress, Sources

__all__ = ["covered", "must_write", "source_offsets"]


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
