"""
Tasks of a sink: they place rows in target partitions, and write them into the driver's transaction.

Both are functions over Arrow batches, which Spark runs in its Python workers.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eomirror.clock import SYSTEM_CLOCK, Deadline, new_run_id
from eomirror.dataframe.settings import WAIT_SECONDS
from eomirror.errors import MirrorError, RowError, TopicError
from eomirror.records.sink_progress import CLAIMS_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from eomirror._native import SinkProducer
    from eomirror.dataframe.settings import SinkSettings

__all__ = [
    "PARTITION",
    "SOURCE_COLUMNS",
    "TASK",
    "WriteWork",
    "column_specs",
    "place_rows",
    "topic_counts",
    "write_rows",
]

#: Columns that `place_rows` adds.
PARTITION = "_eomirror_partition"
TASK = "_eomirror_task"

#: Columns of the source's topic, partition and offset, under the names that they have in tasks.
SOURCE_COLUMNS = ("_eomirror_source_topic", "_eomirror_source_partition", "_eomirror_source_offset")

_KINDS = {
    "null": "null",
    "int32": "int32",
    "int64": "int64",
    "binary": "bytes",
    "string": "bytes",
    "large_binary": "large_bytes",
    "large_string": "large_bytes",
}


@dataclass(frozen=True, slots=True)
class WriteWork:
    """
    Data that all tasks of one attempt of a batch share.

    Attributes:
        settings: The sink.
        tasks: Number of writing tasks.
        identity: Producer id and epoch of the driver's transaction.
        token: Names the attempt in claims.
        since: End of the claims when the attempt began.
        patient: Speculation is on: a second attempt of a task waits until Spark ends it.
    """

    settings: SinkSettings
    tasks: int
    identity: tuple[int, int]
    token: str
    since: int
    patient: bool


def column_specs(batch: Any) -> dict[str, Any]:
    """Returns the columns of an Arrow batch as the extension takes them."""
    names = {"key", "value", "headers", "topic", "partition", "timestamp", PARTITION}
    found = {}
    for name, array in zip(batch.schema.names, batch.columns, strict=True):
        if name in names:
            found["partition" if name == PARTITION else name] = _spec(array)
    return found


def _spec(array: Any) -> tuple[str, int, int, list[Any], list[Any]]:
    """Returns type, offset, length, buffers and children of an array."""
    kind = str(array.type)
    buffers = [None if one is None else memoryview(one).cast("B") for one in array.buffers()]
    if kind.startswith("list<"):
        elements = array.values
        children = [_spec(elements.field(at)) for at in range(elements.type.num_fields)]
        return "list", array.offset, len(array), buffers[:2], children
    known = "int64" if kind.startswith("timestamp") else _KINDS.get(kind, kind)
    return known, array.offset, len(array), buffers, []


def topic_counts(producer: SinkProducer) -> Callable[[str], int]:
    """Returns a function that looks up how many partitions a topic has."""

    def count(topic: str) -> int:
        found = producer.partitions(topic, WAIT_SECONDS)
        if not found:
            raise TopicError(
                f"topic {topic} does not exist",
                fix="create it with the partitions that it should have",
                topic=topic,
            )
        return found

    return count


def place_rows(
    settings: SinkSettings, tasks: int, identity: tuple[int, int], count: int
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """
    Returns the function that adds target partition and task to rows.

    Args:
        settings: The sink.
        tasks: Number of writing tasks.
        identity: Of the transaction; nothing is written with it.
        count: Partitions of the sink's topic; 0 if a column names the topics.
    """

    def place(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from eomirror._native import RowPlacer

        placer = RowPlacer(tasks, topic=settings.topic)
        producers: list[SinkProducer] = []

        def partitions(topic: str) -> int:
            if topic == settings.topic:
                return count
            if not producers:
                producers.append(settings.open(identity=identity))
            return topic_counts(producers[0])(topic)

        for batch in batches:
            rows = batch.num_rows
            chosen, owners = placer.place(rows, column_specs(batch), partitions)
            added = [
                pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(one)]) for one in (chosen, owners)
            ]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *added], names=[*batch.schema.names, PARTITION, TASK]
            )

    return place


def write_rows(work: WriteWork) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """
    Returns the function that writes the rows of one task, and yields its report as one row.

    An expected failure is a report as well: an exception would make Spark repeat the task, and the transaction cannot
    take it twice.
    """

    def write(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        try:
            report = _written(work, task, batches)
        except RowError as error:
            report = {"problem": error.message, "fix": error.fix, "final": True}
        except MirrorError as error:
            code = getattr(error, "code", "")
            report = {
                "problem": error.message,
                "fix": error.fix,
                "code": code,
                "final": isinstance(error, TopicError),
            }
        # the worker is not used again unless its input was read to its end
        for _ in batches:
            pass
        yield pa.RecordBatch.from_pydict({"report": [json.dumps({"task": task, **report})]})

    return write


def _written(work: WriteWork, task: int, batches: Iterator[Any]) -> dict[str, Any]:
    producer = work.settings.open(identity=work.identity)
    # before the first row is read: rows that Spark computes anew may be distributed in another way
    if not _is_first(work, task, producer):
        return _repeated(work, task)
    producer.limit(work.settings.topic, task, work.tasks)
    seconds = work.settings.timeout_ms / 1000
    ranges: dict[str, dict[str, list[int]]] = {}
    sources: dict[tuple[str, int], list[int]] = {}
    for batch in batches:
        producer.write(batch.num_rows, column_specs(batch), seconds)
        if work.settings.source_columns:
            _extend(ranges, batch)
        elif work.settings.link_id:
            _count(sources, batch)
    told = [[*source, *found] for source, found in sorted(sources.items())]
    return {"written": producer.settle(seconds), "ranges": ranges, "sources": told}


def _count(sources: dict[tuple[str, int], list[int]], batch: Any) -> None:
    """Adds the rows of a batch to those of each source partition: number, and largest timestamp in ms or -1."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = list(SOURCE_COLUMNS[:2])
    columns = {name: batch.column(name) for name in names}
    wanted: list[tuple[Any, str]] = [([], "count_all")]
    if "timestamp" in batch.schema.names:
        # as numbers: records may have times that Python's type does not have
        times = batch.column("timestamp").cast(pa.timestamp("us", tz="UTC")).cast(pa.int64())
        columns["ms"] = pc.divide(times, 1000)
        wanted.append(("ms", "max"))
    for row in pa.table(columns).group_by(names).aggregate(wanted).to_pylist():
        newest = row.get("ms_max")
        known = sources.setdefault((row[names[0]], row[names[1]]), [0, -1])
        known[0] += row["count_all"]
        known[1] = max(known[1], -1 if newest is None else newest)


def _extend(ranges: dict[str, dict[str, list[int]]], batch: Any) -> None:
    """Extends the ranges of source offsets, first and next, by those of a batch."""
    import pyarrow as pa

    found = (
        pa.Table.from_batches([batch.select(list(SOURCE_COLUMNS))])
        .group_by(list(SOURCE_COLUMNS[:2]))
        .aggregate([(SOURCE_COLUMNS[2], "min"), (SOURCE_COLUMNS[2], "max")])
    )
    for row in found.to_pylist():
        topic, partition = row[SOURCE_COLUMNS[0]], row[SOURCE_COLUMNS[1]]
        first, last = row[f"{SOURCE_COLUMNS[2]}_min"], row[f"{SOURCE_COLUMNS[2]}_max"]
        if topic is None or partition is None or first is None:
            raise RowError(
                "a row has no source topic, partition or offset", fix="fill the columns of sourceColumns"
            )
        known = ranges.setdefault(topic, {}).setdefault(str(partition), [first, last + 1])
        known[:] = [min(known[0], first), max(known[1], last + 1)]


def _is_first(work: WriteWork, task: int, producer: SinkProducer) -> bool:
    """
    Returns true if this is the attempt of the task that may write.

    A broker takes the first batches of a second attempt for duplicates of the first one's, and reports them as written.
    Spark starts attempts again after a lost executor, a failed fetch (with attempt numbers from 0), or for speculation,
    and the first one may still run.  So each claims the task in a log, whose order decides.
    """
    key = f"{work.token}/{task}".encode()
    return producer.claim(CLAIMS_TOPIC, 0, work.since, key, new_run_id().encode(), WAIT_SECONDS)


def _repeated(work: WriteWork, task: int) -> dict[str, Any]:
    if work.patient:
        # the first attempt may be well: Spark ends this one when that one has reported
        deadline = Deadline(work.settings.timeout_ms / 1000)
        while not deadline.passed:
            SYSTEM_CLOCK.sleep(0.5)
    return {"problem": f"task {task} was started a second time", "fix": "", "repeated": True}
