"""
The atomic sink: one transaction for all rows of a micro-batch, with its progress record in it.

::

    driver                                   tasks (Spark's Python workers)      target
      InitProducerId, once ---------------------------------------------------> an open transaction aborts
      read the progress: is the batch there?  <----------------------------------
      begin: producer id and epoch ----------> claim the task ------------------> claims (no transaction)
                                               produce under that id and epoch --> records, not visible
                                    reports <- what was acknowledged
      progress record, source offsets of a group ------------------------------> same transaction
      EndTxn, once ------------------------------------------------------------> all visible at once

A task that fails, or that Spark starts twice, fails the attempt: the driver aborts, which gives the producer a new
epoch, and repeats the batch.  Late requests of the old attempt carry the old epoch, so every broker refuses them.
docs/adr/0027 has the reasons.
"""

from __future__ import annotations

import json
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import structlog

from eomirror.clock import SYSTEM_CLOCK, Clock, new_run_id
from eomirror.dataframe.partition_writer import (
    PARTITION,
    SOURCE_COLUMNS,
    TASK,
    WriteWork,
    place_rows,
    topic_counts,
    write_rows,
)
from eomirror.dataframe.progress import must_write, source_offsets
from eomirror.dataframe.schema import checked_rows
from eomirror.dataframe.settings import FENCED_CODES, WAIT_SECONDS, SinkSettings
from eomirror.dataframe.sink_topics import create_topics, progress_partition
from eomirror.dataframe.task_failures import FailureWatch
from eomirror.errors import (
    FencedError,
    MirrorError,
    RowError,
    SupersededError,
    TransactionFailedError,
    TransactionRefusedError,
    UnreachableError,
    UsageError,
)
from eomirror.log import quiet_unless_configured
from eomirror.records.sink_progress import (
    CLAIMS_TOPIC,
    PROGRESS_TOPIC,
    SinkProgress,
    Sources,
    decode_progress,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from eomirror._native import SinkProducer

__all__ = ["AtomicSink", "Batch", "execution_of", "map_in_arrow", "offsets_of", "sink", "write"]

log = structlog.get_logger(__name__)

_CONTENT = {
    "MESSAGE_TOO_LARGE": "raise max.message.bytes of the topic, or make the rows smaller",
    "RECORD_LIST_TOO_LARGE": "raise segment.bytes of the topic, or lower kafka.batch.size",
    "INVALID_TIMESTAMP": "raise message.timestamp.after.max.ms and message.timestamp.before.max.ms of the topic, or "
    "leave the column timestamp out",
    "INVALID_RECORD": "a compacted topic needs a key in every row",
    "TOPIC_AUTHORIZATION_FAILED": "grant Write on the topic to this user",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": "grant Write on the transactional id of the sink to this user",
}


class Batch(NamedTuple):
    """One micro-batch, or one batch write."""

    query: str
    number: int
    begin: Sources | None
    end: Sources | None
    run: str = ""

    def __str__(self) -> str:
        return f"batch {self.number} of query {self.query}" if self.query else "the batch write"


class AtomicSink:
    """
    Writes micro-batches; the function for `DataStreamWriter.foreachBatch`.

    It keeps one producer from batch to batch.  A copy in another process begins without one.
    """

    #: What serves on clusters without protocol V2.
    _instead = 'use df.writeStream.format("eomirror"), which is exactly once for each target partition'

    def __init__(self, settings: SinkSettings, clock: Clock = SYSTEM_CLOCK) -> None:
        quiet_unless_configured()
        self._settings = settings
        self._clock = clock
        self._producer: SinkProducer | None = None
        self._last: SinkProgress | None = None
        self._pending: SinkProgress | None = None
        self._partition = 0
        self._identity = (-1, -1)

    def __reduce__(self) -> tuple[object, ...]:
        return (AtomicSink, (self._settings,))

    def __call__(self, df: Any, batch_id: int) -> None:
        """
        Writes one micro-batch, or skips one that the sink holds.

        Raises:
            MirrorError: The batch is not written; nothing of it is visible.
        """
        query = df.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        begin, end = _logged_offsets(df.sparkSession, query, batch_id)
        self.write(df, Batch(query, batch_id, begin, end))

    def write(self, df: Any, batch: Batch) -> bool:
        """
        Writes one batch; repeats an attempt that failed.

        Returns:
            False if the sink holds the batch.

        Raises:
            MirrorError: The batch is not written; nothing of it is visible.
        """
        rows = self._rows(df)
        for attempt in range(1, self._settings.attempts + 1):
            producer = self._ready()
            if not self._is_due(batch):
                log.info("batch_skipped", sink=self._settings.name, batch=batch.number, query=batch.query)
                return False
            started = self._clock.monotonic()
            try:
                self._attempt(producer, rows, batch)
            except Exception as error:  # noqa: BLE001  Spark's own: a task that failed, or the user's code in it
                self._after(error, producer, batch, attempt, self._clock.monotonic() - started)
            except BaseException:
                # an interrupt: the next InitProducerId aborts
                self.close()
                raise
            else:
                return True
        raise AssertionError  # pragma: no cover  the last attempt returns or raises

    def close(self) -> None:
        """Forgets the producer; the next batch opens one."""
        self._producer = None

    # -- what a sink of a link does otherwise (`eomirror.dataframe.link_sink`) ----------------------

    @property
    def _who(self) -> str:
        """Name of the sink in messages."""
        return f"sink {self._settings.name}"

    def _rows(self, df: Any) -> Any:
        """Returns the columns of a DataFrame that tasks need."""
        return checked_rows(df, self._settings)

    def _look(self, producer: SinkProducer) -> None:
        """Reads what is committed; the producer has aborted what an earlier process left open."""
        settings = self._settings
        found = producer.latest(
            PROGRESS_TOPIC,
            self._partition,
            settings.name.encode(),
            WAIT_SECONDS + settings.timeout_ms / 1000,
        )
        self._last = decode_progress(found, f"{PROGRESS_TOPIC}, key {settings.name}") if found else None

    def _record(
        self, producer: SinkProducer, reports: list[dict[str, Any]], written: Any, batch: Batch
    ) -> None:
        """Writes the progress of a batch into its transaction; all of its rows are acknowledged."""
        del written
        progress = self._progress(reports, batch)
        self._pending = progress
        producer.send(
            PROGRESS_TOPIC, self._partition, self._settings.name.encode(), progress.as_text().encode()
        )
        producer.settle(WAIT_SECONDS)
        if self._settings.group and progress.sources:
            self._commit_group(producer, progress.sources)

    def _committed(self) -> None:
        """Takes over what the committed transaction recorded."""
        self._last = self._pending

    # -- steps -------------------------------------------------------------------------------------

    def _ready(self) -> SinkProducer:
        """Returns the producer; a new one aborts what an earlier process left open, then reads the progress."""
        if self._producer is None:
            settings = self._settings
            if partitions := create_topics(settings):
                self._partition = progress_partition(settings.name, partitions)
            producer = settings.open()
            if producer.transaction_version < 2:  # noqa: PLR2004  KIP-890
                raise UsageError(
                    f"{self._who}: the cluster has transaction.version {producer.transaction_version}: "
                    "without protocol V2 (Kafka 4.0) several tasks cannot share a transaction",
                    fix=f"{self._instead}; or "
                    "upgrade: kafka-features.sh --bootstrap-server HOST:PORT upgrade --feature transaction.version=2",
                )
            self._look(producer)
            self._producer = producer
        return self._producer

    def _is_due(self, batch: Batch) -> bool:
        last = self._last
        if not batch.query:
            return not batch.run or last is None or last.run != batch.run
        if self._settings.source_columns and last is not None and batch.query != last.query:
            # rows that the sink holds are left out one by one
            return True
        append = self._settings.new_query == "append"
        return must_write(
            last, self._settings.name, batch.query, batch.number, (batch.begin, batch.end), append=append
        )

    def _attempt(self, producer: SinkProducer, rows: Any, batch: Batch) -> None:
        settings = self._settings
        context = rows.sparkSession.sparkContext
        count = topic_counts(producer)(settings.topic) if settings.topic is not None else 0
        tasks = settings.tasks or context.defaultParallelism
        tasks = min(tasks, count) if count else tasks
        identity = self._identity = producer.begin(WAIT_SECONDS)
        work = WriteWork(
            settings=settings,
            tasks=tasks,
            identity=identity,
            token=f"{settings.name}/{new_run_id()}",
            since=producer.end_offset(CLAIMS_TOPIC, 0, WAIT_SECONDS),
            patient=context.getConf().get("spark.speculation", "false") == "true",
        )
        started = self._clock.monotonic()
        placed = map_in_arrow(
            self._without_held(rows),
            place_rows(settings, tasks, identity, count),
            _with_places(rows.schema),
        )
        written = map_in_arrow(placed.repartitionById(tasks, TASK), write_rows(work), _report_schema())
        with FailureWatch(context, work.token, tasks) if work.patient else nullcontext():
            reports = [json.loads(row.report) for row in written.collect()]
        self._judge(reports, tasks, batch)
        self._too_long(batch, self._clock.monotonic() - started)
        self._record(producer, reports, written, batch)
        self._commit(producer, batch)
        self._committed()
        log.debug(
            "batch_written",
            sink=settings.name,
            batch=batch.number,
            rows=sum(one[2] for report in reports for one in report["written"]),
            tasks=tasks,
            seconds=round(self._clock.monotonic() - started, 3),
        )

    def _commit_group(self, producer: SinkProducer, sources: Sources) -> None:
        settings = self._settings
        for topic in sources:
            if not producer.partitions(topic, WAIT_SECONDS):
                raise UsageError(
                    f"sink {settings.name}: groupId {settings.group}: topic {topic}, which the rows come from, is "
                    "not on this cluster, and a transaction cannot commit offsets on another one",
                    fix="leave groupId out; it serves queries that read and write one cluster",
                )
        offsets = [
            (topic, int(partition), offset)
            for topic, partitions in sources.items()
            for partition, offset in partitions.items()
        ]
        producer.commit_offsets(settings.group, offsets, WAIT_SECONDS)

    def _judge(self, reports: list[dict[str, Any]], tasks: int, batch: Batch) -> None:
        """Raises the error of a report; every task must have reported once."""
        for report in reports:
            if report.get("repeated"):
                raise TransactionFailedError(report["problem"])
            if "problem" in report:
                fix = _CONTENT.get(report.get("code", ""))
                if report.get("final") or fix:
                    raise RowError(f"{self._who}: {batch}: {report['problem']}", fix=fix or report["fix"])
                raise TransactionFailedError(report["problem"])
        # Spark runs no task for a plan that it knows to be empty
        if reports and sorted(report["task"] for report in reports) != list(range(tasks)):
            raise TransactionFailedError(f"{len(reports)} of {tasks} tasks reported")

    def _progress(self, reports: list[dict[str, Any]], batch: Batch) -> SinkProgress:
        written = [one for report in reports for one in report["written"]]
        digest = sum(int(one[4], 16) for one in written) % 2**64
        last = self._last
        begin, end = batch.begin, batch.end
        if last is not None and last.begin is not None:
            begin = last.begin
        if self._settings.source_columns:
            begin, end = self._ranges(reports)
        elif end is None and last is not None and last.query == batch.query:
            end = last.sources
        return SinkProgress(
            query=batch.query,
            batch=batch.number,
            rows=sum(one[2] for one in written),
            bytes=sum(one[3] for one in written),
            digest=f"{digest:016x}",
            begin=begin,
            sources=end,
            run=batch.run,
            timestamp=self._clock.wall_ms(),
        )

    def _ranges(self, reports: list[dict[str, Any]]) -> tuple[Sources, Sources]:
        """Returns first and next source offsets of all rows that the sink holds with this batch."""
        last = self._last
        begin = {topic: dict(found) for topic, found in ((last and last.begin) or {}).items()}
        end = {topic: dict(found) for topic, found in ((last and last.sources) or {}).items()}
        for report in reports:
            for topic, partitions in report.get("ranges", {}).items():
                for partition, (first, behind) in partitions.items():
                    held = begin.setdefault(topic, {}).setdefault(partition, first)
                    if last is not None and first < held and partition in (last.begin or {}).get(topic, {}):
                        raise RowError(
                            f"sink {self._settings.name}: a row of {topic}-{partition} has source offset {first}, and "
                            f"the sink holds rows from offset {held} on: which of the others were written is not known",
                            fix=f"start the query at offset {held} or later, or use another name of the sink",
                        )
                    begin[topic][partition] = min(held, first)
                    at = end.setdefault(topic, {})
                    at[partition] = max(at.get(partition, 0), behind)
        return begin, end

    def _without_held(self, rows: Any) -> Any:
        """Leaves out rows whose source offsets the sink holds already."""
        last = self._last
        if not self._settings.source_columns or last is None or not last.sources:
            return rows
        from pyspark.sql import functions as sql

        held = [
            item
            for topic, partitions in last.sources.items()
            for partition, offset in partitions.items()
            for item in (sql.lit(f"{topic}-{partition}"), sql.lit(offset))
        ]
        first = [
            item
            for topic, partitions in (last.begin or {}).items()
            for partition, offset in partitions.items()
            for item in (sql.lit(f"{topic}-{partition}"), sql.lit(offset))
        ]
        topic, partition, offset = (sql.col(name) for name in SOURCE_COLUMNS)
        place = sql.concat(topic, sql.lit("-"), partition.cast("string"))
        beyond = offset >= sql.coalesce(sql.element_at(sql.create_map(*held), place), sql.lit(0))
        before = offset < sql.coalesce(sql.element_at(sql.create_map(*first), place), sql.lit(0))
        return rows.where(beyond | before)

    def _commit(self, producer: SinkProducer, batch: Batch) -> None:
        try:
            producer.commit(WAIT_SECONDS)
        except TransactionRefusedError as error:
            if error.code in FENCED_CODES:
                raise FencedError(error.message) from error
            raise TransactionFailedError(error.message) from error
        except UnreachableError as error:
            # the next attempt takes the transactional id again and reads the progress: it was committed, or not
            self._producer = None
            raise TransactionFailedError(f"the outcome of {batch} is not known: {error.message}") from error

    def _after(
        self, error: Exception, producer: SinkProducer, batch: Batch, attempt: int, seconds: float
    ) -> None:
        """Aborts after a failed attempt; raises the error unless the batch is repeated."""
        if isinstance(error, FencedError):
            self.close()
            raise _superseded(self._settings.name) from error
        self._give_up(producer, batch, seconds)
        self._too_long(batch, seconds)
        if isinstance(error, MirrorError) and not isinstance(
            error, UnreachableError | TransactionRefusedError
        ):
            raise error
        if attempt == self._settings.attempts:
            raise _failed(self._settings, batch, str(error)) from error
        reason = str(error).partition("\n")[0]
        self._repeats(batch, attempt, f"{type(error).__name__}: {reason[:300]}")

    def _give_up(self, producer: SinkProducer, batch: Batch, seconds: float) -> None:
        """Aborts; a producer that cannot is replaced, and its successor's InitProducerId aborts."""
        if self._producer is None:
            return
        try:
            producer.abort(WAIT_SECONDS)
        except TransactionRefusedError as error:
            self._producer = None
            if error.code in FENCED_CODES:
                # the coordinator raises the epoch, too, when it aborts after the timeout
                self._too_long(batch, seconds)
                raise _superseded(self._settings.name) from error
        except (MirrorError, FencedError) as error:
            log.warning("abort_failed", sink=self._settings.name, reason=str(error))
            self._producer = None

    def _too_long(self, batch: Batch, seconds: float) -> None:
        limit = self._settings.timeout_ms / 1000
        if seconds >= limit:
            raise UsageError(
                f"sink {self._settings.name}: {batch} took {seconds:.1f} s, and the coordinator aborts a transaction "
                f"after {limit:g} s: nothing of it is visible",
                fix=f"raise kafka.transaction.timeout.ms above {int(seconds * 2000)} (brokers allow up to "
                "transaction.max.timeout.ms, 15 min by default), or make batches smaller (maxOffsetsPerTrigger)",
            )

    def _repeats(self, batch: Batch, attempt: int, reason: str) -> None:
        log.warning(
            "batch_repeated",
            sink=self._settings.name,
            batch=batch.number,
            attempt=attempt,
            attempts=self._settings.attempts,
            reason=reason,
        )
        self._clock.sleep(min(0.2 * 2**attempt, 5.0))


def sink(name: str, options: Mapping[str, str]) -> AtomicSink:
    """
    Returns the function for `DataStreamWriter.foreachBatch`: each micro-batch becomes visible at once, or not at all.

    Args:
        name: Name of the sink, which it keeps over restarts; two queries cannot share one.
        options: Those of Spark's Kafka connector, and ours (docs/spark-sink.md).

    Raises:
        UsageError: The name or an option cannot be used.
    """
    return AtomicSink(SinkSettings.parse(name, options))


def write(df: Any, name: str, options: Mapping[str, str]) -> bool:
    """
    Writes a DataFrame in one transaction.

    Args:
        df: Columns as for Spark's Kafka connector, and ``timestamp``.
        name: Name of the sink.
        options: Those of `sink`; with ``runId`` a second call with the same id writes nothing.

    Returns:
        False if the sink holds this ``runId``.

    Raises:
        MirrorError: Nothing is written.
    """
    settings = SinkSettings.parse(name, options)
    return AtomicSink(settings).write(df, Batch("", 0, None, None, settings.run_id))


def _with_places(schema: Any) -> Any:
    from pyspark.sql.types import IntegerType, StructField, StructType

    added = [StructField(name, IntegerType(), nullable=False) for name in (PARTITION, TASK)]
    return StructType([*schema.fields, *added])


def _report_schema() -> Any:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField("report", StringType(), nullable=False)])


def map_in_arrow(df: Any, function: Callable[..., Any], schema: Any) -> Any:
    """`DataFrame.mapInArrow`, which asks for pandas although neither side uses it."""
    from pyspark.sql import DataFrame
    from pyspark.sql.udf import _create_udf
    from pyspark.util import PythonEvalType

    wrapped = _create_udf(function, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    columns = wrapped(*[df[name] for name in df.columns])
    return DataFrame(df._jdf.mapInArrow(columns._jc, False, None), df.sparkSession)  # noqa: SLF001, FBT003  py4j


def _logged_offsets(session: Any, query: str, batch: int) -> tuple[Sources | None, Sources | None]:
    """Returns the source offsets before and after a batch, as the query's checkpoint has them; None if not known."""
    if not query:
        return None, None
    try:
        execution = execution_of(session, query)
        if execution is None:
            return None, None
        end = offsets_of(execution, batch)
        begin = offsets_of(execution, batch - 1) if batch > 0 else None
    except Exception as error:  # noqa: BLE001  Spark's internals, which another release may lack
        log.info("source_offsets_unknown", query=query, batch=batch, reason=str(error)[:200])
        return None, None
    return begin, end


def execution_of(session: Any, query: str) -> Any:
    """Returns the query's execution, of any session of this Spark; None if gone."""
    java = session._jsparkSession  # noqa: SLF001  py4j
    return java.sharedState().activeStreamingQueries().get(session._jvm.java.util.UUID.fromString(query))  # noqa: SLF001


def offsets_of(execution: Any, batch: int) -> Sources | None:
    """Returns the source offsets behind a batch, as the query's checkpoint has them; None if not known."""
    logged = execution.offsetLog().get(batch)
    if not logged.isDefined():
        return None
    found: Sources = {}
    sequence = logged.get().offsets()
    for at in range(sequence.size()):
        one = sequence.apply(at)
        if not one.isDefined():
            continue
        offsets = source_offsets(json.loads(one.get().json()))
        if offsets is None:
            return None
        for topic, partitions in offsets.items():
            found.setdefault(topic, {}).update(partitions)
    return found or None


def _superseded(name: str) -> SupersededError:
    return SupersededError(
        f"sink {name}: another process writes under this name: its producer fenced this one",
        fix="stop one of them, or give each sink a name of its own; nothing of this batch is visible",
    )


def _failed(settings: SinkSettings, batch: Batch, reason: str) -> MirrorError:
    return MirrorError(
        f"sink {settings.name}: {batch} failed {settings.attempts} times, last: {reason}; nothing of it is visible",
        fix="look at the failed tasks in Spark's log; the option attempts sets how often a batch is tried",
    )
