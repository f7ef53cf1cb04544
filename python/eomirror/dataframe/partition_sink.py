"""
Writers of ``format("eomirror")``: one transaction for each target partition, with a progress record in it.

Exactly once for each partition, and not atomic over partitions: Spark gives such a writer no say in how rows come to
its tasks, and its driver-side objects do not outlive a call.  Each task takes the transactional id of every partition
that it has rows for, which fences an earlier attempt, and then reads what that partition holds::

    progress of the partition          the task
      none, or an earlier batch          writes its rows and the progress, commits
      this batch, other rows             fails: the rows of a partition came in two tasks, or differ in a repetition
      this batch, the same rows          writes nothing

Rows are compared by number and by the sum of their digests.  Two tasks with rows for one partition are refused, in the
second task or by `commit`.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from eomirror.clock import SYSTEM_CLOCK, new_run_id
from eomirror.dataframe.partition_writer import column_specs, topic_counts
from eomirror.dataframe.schema import check_schema
from eomirror.dataframe.settings import FENCED_CODES, WAIT_SECONDS, SinkSettings
from eomirror.dataframe.sink_topics import create_topics, progress_partition
from eomirror.errors import DifferenceError, RowError, TransactionRefusedError, UsageError, some
from eomirror.records.sink_progress import PROGRESS_TOPIC, SinkProgress, decode_progress

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from eomirror._native import SinkProducer

__all__ = ["BatchPartitionWriter", "StreamPartitionWriter"]

_FIX = "repartition by target partition before the write, or use eomirror.spark.sink, which does"


# pyspark has no types that mypy reads, so its classes are Any
@dataclass
class PartitionsWritten(WriterCommitMessage):  # type: ignore[misc]
    """
    Report of one task.

    Attributes:
        partitions: Topic, partition and rows.
    """

    partitions: list[tuple[str, int, int]]


@dataclass(frozen=True, slots=True)
class _TaskBatch:
    """The batch of a task, and the task."""

    query: str
    number: int
    run: str
    task: int
    streaming: bool


class _TargetPartition:
    """Rows of one target partition in one task."""

    def __init__(self, settings: SinkSettings, batch: _TaskBatch, topic: str, partition: int) -> None:
        self._batch = batch
        self._where = f"{topic}-{partition}"
        self._key = f"{settings.name}/{self._where}".encode()
        self._seconds = settings.timeout_ms / 1000
        self.producer: SinkProducer = settings.open(f"{settings.transactional_id}.{self._where}")
        found = self.producer.partitions(PROGRESS_TOPIC, WAIT_SECONDS)
        count = found or create_topics(settings)
        self._progress_partition = progress_partition(settings.name, count)
        value = self.producer.latest(
            PROGRESS_TOPIC, self._progress_partition, self._key, WAIT_SECONDS + self._seconds
        )
        self._last = decode_progress(value, f"{PROGRESS_TOPIC}, key {self._key.decode()}") if value else None
        self.held = self._is_held(settings)
        self.producer.begin(WAIT_SECONDS)
        self.producer.limit(topic)
        if self.held:
            self.producer.count_only()

    def write(self, rows: Any) -> None:
        """Adds rows of an Arrow batch."""
        self.producer.write(rows.num_rows, column_specs(rows), self._seconds)

    def end(self) -> int:
        """
        Commits, or compares with what the partition holds.

        Returns:
            The number of rows.

        Raises:
            DifferenceError: The partition holds other rows of this batch.
        """
        written = self.producer.settle(self._seconds)
        rows, digest = sum(one[2] for one in written), written[0][4] if written else "0" * 16
        last = self._last
        if self.held:
            if (
                last is not None
                and last.batch == self._batch.number
                and (last.rows, last.digest) != (rows, digest)
            ):
                raise DifferenceError(
                    f"{self._where} holds {last.rows} rows of batch {last.batch} (digest {last.digest}), and this task "
                    f"has {rows} other rows of it ({digest})",
                    fix=f"the query gives different rows when it is repeated, or several tasks have rows of the "
                    f"partition: {_FIX}",
                )
            self.producer.abort(WAIT_SECONDS)
            return rows
        progress = SinkProgress(
            query=self._batch.query,
            batch=self._batch.number,
            rows=rows,
            bytes=sum(one[3] for one in written),
            digest=digest,
            run=self._batch.run,
            timestamp=SYSTEM_CLOCK.wall_ms(),
            task=self._batch.task,
        )
        self.producer.send(PROGRESS_TOPIC, self._progress_partition, self._key, progress.as_text().encode())
        self.producer.settle(WAIT_SECONDS)
        self.producer.commit(WAIT_SECONDS)
        return rows

    def _is_held(self, settings: SinkSettings) -> bool:
        """Returns true if the partition holds this batch; refuses rows of a second task."""
        last, batch = self._last, self._batch
        if last is None:
            return False
        if not batch.query:
            # a write without a runId is held only by a repetition of its own tasks
            held = last.run == batch.run
        elif last.query != batch.query:
            if batch.streaming and settings.new_query != "append":
                raise UsageError(
                    f"sink {settings.name}: {self._where} was written by query {last.query} up to batch {last.batch}; "
                    f"this is query {batch.query}, and its batch ids count anew",
                    fix="restore the checkpoint directory; or set another name; or set newQuery to append",
                )
            held = False
        else:
            held = batch.number <= last.batch
        if held and (last.batch, last.run) == (batch.number, batch.run) and last.task != batch.task:
            raise DifferenceError(
                f"tasks {last.task} and {batch.task} both have rows for {self._where}; those of task {last.task} are "
                "committed",
                fix=_FIX,
            )
        return held


@contextmanager
def _explained(where: tuple[str, int]) -> Iterator[None]:
    """Says what it means that a producer is fenced."""
    try:
        yield
    except TransactionRefusedError as error:
        if error.code not in FENCED_CODES:
            raise
        raise DifferenceError(
            f"another task, or a second attempt of this one, took the transaction of {where[0]}-{where[1]}",
            fix=_FIX,
        ) from error


def _ended(where: tuple[str, int], partition: _TargetPartition) -> int:
    with _explained(where):
        return partition.end()


class _PartitionsWriter:
    """Base of both writers; pickled into tasks."""

    def __init__(self, options: Mapping[str, str], schema: Any, overwrite: bool) -> None:  # noqa: FBT001  Spark's
        if overwrite:
            raise UsageError('mode("overwrite") has no meaning for a topic', fix='write with mode("append")')
        self._options = dict(options)
        self._run = new_run_id()
        self._schema = schema
        settings = self._settings("check")
        check_schema(schema, settings)

    def _settings(self, query: str) -> SinkSettings:
        given = {name.lower(): value for name, value in self._options.items()}
        return SinkSettings.parse(given.get("name") or f"query-{query}", self._options)

    def _write(self, batches: Iterator[Any], query: str, number: int) -> PartitionsWritten:
        import pyarrow as pa
        import pyarrow.compute as pc
        from pyspark import TaskContext

        from eomirror._native import RowPlacer

        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        settings = self._settings(query or "batch")
        batch = _TaskBatch(
            query=f"run:{settings.run_id}" if settings.run_id and not query else query,
            number=number,
            run=self._run,
            task=task,
            streaming=bool(query),
        )
        placer = RowPlacer(1, topic=settings.topic, by_value=True)
        found: dict[tuple[str, int], _TargetPartition] = {}
        lookups: list[SinkProducer] = []

        def count(topic: str) -> int:
            if not lookups:
                # writes nothing: an identity that no broker knows
                lookups.append(settings.open(identity=(0, 0)))
            return topic_counts(lookups[0])(topic)

        for batch_rows in batches:
            if not batch_rows.num_rows:
                continue
            rows = batch_rows
            if settings.topic is not None:
                # the option wins over the column, as in Spark's connector
                rows = rows.select([name for name in rows.schema.names if name != "topic"])
            chosen, _ = placer.place(rows.num_rows, column_specs(rows), count)
            numbers = pa.Array.from_buffers(pa.int32(), rows.num_rows, [None, pa.py_buffer(chosen)])
            at = rows.schema.get_field_index("partition")
            placed = (
                rows.append_column("partition", numbers)
                if at < 0
                else rows.set_column(at, "partition", numbers)
            )
            named = settings.topic is None
            topics: list[Any] = pc.unique(rows.column("topic")).to_pylist() if named else [settings.topic]
            for topic in topics:
                of_topic = placed.filter(pc.equal(placed.column("topic"), topic)) if named else placed
                for number_ in pc.unique(of_topic.column("partition")).to_pylist():
                    mine = of_topic.filter(pc.equal(of_topic.column("partition"), number_))
                    where = topic, number_
                    with _explained(where):
                        if where not in found:
                            found[where] = _TargetPartition(settings, batch, topic, number_)
                        found[where].write(mine)
        return PartitionsWritten([(*where, _ended(where, one)) for where, one in sorted(found.items())])

    @staticmethod
    def _check(messages: list[Any]) -> None:
        """Refuses two tasks with rows for one partition."""
        tasks = Counter(
            (topic, partition)
            for message in messages
            if message is not None
            for topic, partition, _ in message.partitions
        )
        if shared := [f"{topic}-{partition}" for (topic, partition), number in tasks.items() if number > 1]:
            raise RowError(f"several tasks have rows for {some(sorted(shared))}", fix=_FIX)


class BatchPartitionWriter(_PartitionsWriter, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a DataFrame, one transaction for each target partition."""

    def write(self, iterator: Iterator[Any]) -> PartitionsWritten:
        """Writes the rows of one task."""
        return self._write(iterator, "", 0)

    def commit(self, messages: list[Any]) -> None:
        """Checks that each partition had one task."""
        self._check(messages)

    def abort(self, messages: list[Any]) -> None:
        """Does nothing: what tasks committed stays, and a repetition with the same runId skips it."""


class StreamPartitionWriter(_PartitionsWriter, DataSourceStreamArrowWriter):  # type: ignore[misc]
    """Writes micro-batches, one transaction for each target partition."""

    def write(self, iterator: Iterator[Any]) -> PartitionsWritten:
        """Writes the rows of one task of a micro-batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        number = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        if not query or number is None:
            raise UsageError("Spark did not tell the task its query and batch", fix="use eomirror.spark.sink")
        return self._write(iterator, query, int(number))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803, ARG002  Spark's name
        """Checks that each partition had one task."""
        self._check(messages)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  Spark's name
        """Does nothing: Spark repeats the batch, and partitions that hold it are skipped."""
