"""
The query of a link: ``transform: {sql: ...}`` or ``{python: ...}``; what it makes of records, and how it runs.

Each row keeps the topic and the partition of the record that it comes from, because target topic, partition and counts
follow from them.  A statement names neither: they are added to each of its SELECTs, under the names `HIDDEN`.  So it
may only filter and change records one by one; what looks at several is refused, also because the bounds of a
micro-batch mean nothing.

It runs as a Structured Streaming query that reads the source from the positions of the link, into the link's sink.
Spark needs a checkpoint directory for it, which is temporary: no later query reads it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Final

import structlog

from eomirror.config.secret import Secret
from eomirror.dataframe.options import CONFIGURED
from eomirror.dataframe.partition_writer import SOURCE_COLUMNS
from eomirror.dataframe.sink import execution_of, map_in_arrow, offsets_of
from eomirror.errors import MirrorError, RowError, UsageError
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from eomirror.config import Cluster
    from eomirror.config.transform import Rule
    from eomirror.dataframe.link_sink import LinkSink

__all__ = ["HIDDEN", "LinkStream", "link_rows", "queried", "source_options"]

log = structlog.get_logger(__name__)

# name of the records in a statement
_VIEW = "records"

#: Columns with topic and partition of the source.
HIDDEN = SOURCE_COLUMNS[:2]

#: Columns of a row that become its record.
_WRITTEN = ("key", "value", "headers", "timestamp")
#: Columns of the source that a query may keep; they decide nothing.
_IGNORED = ("topic", "partition", "offset", "timestamptype")

_ROW_BY_ROW = frozenset({"Project", "Filter", "SubqueryAlias", "Generate", "UnresolvedRelation"})
#: Nodes that only the analysis makes: of an aggregate without GROUP BY, and of a window function.
_OF_SEVERAL = frozenset({"Aggregate", "Window"})
_FIX = (
    "the query may filter and change records one by one: SELECT ... FROM records [LATERAL VIEW ...] WHERE ..."
)

# bytes of one micro-batch, as brokers store them: one takes a second or two, and a stop waits for it.
_BATCH_BYTES: Final = 32 * 1024 * 1024
# least interval of micro-batches in seconds: Spark takes as long to plan one.
_LEAST_INTERVAL: Final = 0.2
# time that Spark waits for the end of a query.
_STOP_MS: Final = 30_000


def queried(query: Rule, records: Any) -> Any:
    """
    Returns the rows that a query makes of records: columns of a record, and `HIDDEN`.

    Args:
        query: The query of the link.
        records: Records as ``format("eomirror")`` has them.

    Raises:
        UsageError: The query cannot be used.
    """
    from pyspark.errors import PySparkException

    try:
        rows = _selected(query.query, records) if query.kind == "sql" else _mapped(query.query, records)
        return rows.select(*_columns(rows))
    except PySparkException as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"transform: {query.kind}: {reason[:500]}", fix=_FIX) from error


def link_rows(rows: Any, targets: Mapping[str, str], partitions: Mapping[str, int]) -> Any:
    """
    Returns rows with their target topic and partition.

    The partition is that of the source where the target has it; elsewhere the key decides.

    Args:
        rows: From `queried`.
        targets: Target topic of each source topic.
        partitions: Number of partitions of each source topic's target.
    """
    from pyspark.sql import functions as sql

    def of_topic(values: Mapping[str, Any]) -> Any:
        pairs = [sql.lit(each) for pair in sorted(values.items()) for each in pair]
        return sql.element_at(sql.create_map(*pairs), sql.col(HIDDEN[0]))

    number = sql.col(HIDDEN[1])
    return rows.withColumn("topic", of_topic(targets)).withColumn(
        "partition", sql.when(number < of_topic(partitions), number)
    )


def _columns(rows: Any) -> list[Any]:
    from pyspark.sql import functions as sql

    names = [name.lower() for name in rows.columns]
    unknown = [name for name in names if name not in (*_WRITTEN, *_IGNORED, *HIDDEN)]
    if unknown:
        raise UsageError(
            f"transform: column {unknown[0]} has no meaning in a record",
            fix=f"name it as one of: {', '.join(_WRITTEN)}",
        )
    if "value" not in names:
        raise UsageError("transform: the query gives no column value", fix="select a column named value")
    return [sql.col(f"`{name}`") for name in (*_WRITTEN, *HIDDEN) if name in names]


# -- sql -----------------------------------------------------------------------------------------


def _selected(statement: str, records: Any) -> Any:
    from pyspark.sql import DataFrame
    from pyspark.sql import functions as sql

    hidden = [sql.col(name).alias(ours) for name, ours in zip(("topic", "partition"), HIDDEN, strict=True)]
    records.select("*", *hidden).createOrReplaceTempView(_VIEW)
    session = records.sparkSession
    java = records._jdf.sparkSession()  # noqa: SLF001  py4j: PySpark has no access to plans
    jvm = session._jvm  # noqa: SLF001  as above
    plan = java.sessionState().sqlParser().parsePlan(statement)
    rows = jvm.org.apache.spark.sql.classic.Dataset.ofRows(java, _with_hidden(plan, jvm))
    _refuse_several(rows.queryExecution().analyzed())
    return DataFrame(rows, session)


def _with_hidden(plan: Any, jvm: Any) -> Any:
    """Returns a plan whose every SELECT has the hidden columns as well."""
    kind = plan.nodeName()
    if kind not in _ROW_BY_ROW:
        raise UsageError(f"transform: sql: {kind} looks at more than one record", fix=_FIX)
    if not plan.subqueriesAll().isEmpty():
        raise UsageError("transform: sql: a subquery looks at more than one record", fix=_FIX)
    if kind == "UnresolvedRelation":
        name = plan.name()
        if name.lower() != _VIEW:
            raise UsageError(f"transform: sql: there is no table {name}", fix=f"read FROM {_VIEW}")
        return plan
    children = plan.children()
    if children.size() != 1:
        raise UsageError("transform: sql: the statement reads no records", fix=f"read FROM {_VIEW}")
    below = _with_hidden(children.apply(0), jvm)
    if kind != "Project":
        return plan.withNewChildren(jvm.PythonUtils.toSeq([below]))
    given = plan.projectList()
    listed = [given.apply(number) for number in range(given.size())]
    if not any("UnresolvedStar" in each.getClass().getSimpleName() for each in listed):
        attribute = jvm.org.apache.spark.sql.catalyst.analysis.UnresolvedAttribute
        listed += [attribute.quoted(name) for name in HIDDEN]
    return jvm.org.apache.spark.sql.catalyst.plans.logical.Project(jvm.PythonUtils.toSeq(listed), below)


def _refuse_several(plan: Any) -> None:
    if plan.nodeName() in _OF_SEVERAL:
        raise UsageError(f"transform: sql: {plan.nodeName()} looks at more than one record", fix=_FIX)
    children = plan.children()
    for number in range(children.size()):
        _refuse_several(children.apply(number))


# -- python --------------------------------------------------------------------------------------


def _mapped(function: str, records: Any) -> Any:
    from pyspark.sql.types import BinaryType, IntegerType, StringType, StructField, StructType, TimestampType

    schema = StructType(
        [
            StructField("key", BinaryType()),
            StructField("value", BinaryType()),
            StructField("headers", records.schema["headers"].dataType),
            StructField("timestamp", TimestampType()),
            StructField(HIDDEN[0], StringType()),
            StructField(HIDDEN[1], IntegerType()),
        ]
    )
    return map_in_arrow(records, arrow_function(function), schema)


def arrow_function(name: str) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """
    Returns the function for `mapInArrow`, which calls the user's function in the worker.

    Args:
        name: ``MODULE:FUNCTION``.
    """

    def mapped(batches: Iterator[Any]) -> Iterator[Any]:
        import importlib

        module, _, function = name.partition(":")
        try:
            called = getattr(importlib.import_module(module), function)
        except (ImportError, AttributeError) as error:
            raise MirrorError(
                f"transform: python: {name} cannot be imported: {error}",
                fix="install the module on driver and workers, or name its folder in PYTHONPATH",
            ) from error
        for batch in called(batches):
            yield conformed(batch, name)

    return mapped


def conformed(batch: Any, name: str) -> Any:
    """
    Returns an Arrow batch of a user's function with the columns of `queried`.

    Raises:
        RowError: A column is missing, or has another type.
    """
    import pyarrow as pa

    pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
    wanted = {
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.field("element", pair)),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "topic": pa.string(),
        "partition": pa.int32(),
    }
    columns = {}
    for column, kind in wanted.items():
        found = batch.schema.get_field_index(column)
        if found < 0 and column in ("value", "topic", "partition"):
            raise RowError(
                f"transform: python: {name} returns no column {column}",
                fix="keep the columns topic and partition of the batch that it gets, and give a value",
            )
        try:
            columns[column] = pa.nulls(batch.num_rows, kind) if found < 0 else batch.column(found).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise RowError(
                f"transform: python: {name} returns {column} as {batch.schema.field(found).type}",
                fix=f"cast it to {kind}",
            ) from error
    for column, hidden in zip(("topic", "partition"), HIDDEN, strict=True):
        columns[hidden] = columns.pop(column)
    return pa.RecordBatch.from_pydict(columns)


# -- the stream ------------------------------------------------------------------------------------


class LinkStream:
    """
    Runs the query of one attempt.

    Args:
        context: Spark context.
        sink: Sink of the attempt.
        tasks: Tasks of a shuffle.
    """

    def __init__(self, context: Any, sink: LinkSink, *, tasks: int) -> None:
        from pyspark.sql import SparkSession

        self._sink = sink
        self._query: Any = None
        self._error: BaseException | None = None
        self._folder = ""
        self._session = SparkSession(context).newSession()
        for name, value in {
            "spark.sql.session.timeZone": "UTC",
            # the number of records that were read is a figure of the plan, which adaptive execution replaces
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": str(tasks),
            "spark.sql.streaming.stopTimeout": str(_STOP_MS),
            # the page of Spark and its event log show plans, and a plan the options of the source
            "spark.sql.redaction.options.regex": "(?i)^kafka[.]",
        }.items():
            self._session.conf.set(name, value)

    def start(
        self, name: str, source: Cluster, starts: Mapping[SourcePartition, int], *, interval: float
    ) -> None:
        """
        Starts the query.

        Args:
            name: Its name in Spark.
            source: Cluster to read.
            starts: Offset at which each partition begins.
            interval: Seconds between two micro-batches.
        """
        self._folder = tempfile.mkdtemp(prefix="eomirror-query-")
        records = self._session.readStream.format("eomirror").options(**source_options(source, starts)).load()
        self._query = (
            records.writeStream.foreachBatch(self._take)
            .option("checkpointLocation", f"file://{self._folder}/checkpoint")
            .queryName(name)
            .trigger(processingTime=f"{int(max(interval, _LEAST_INTERVAL) * 1000)} milliseconds")
            .start()
        )

    def _take(self, records: Any, number: int) -> None:
        try:
            self._write(records, number)
        except Exception as error:  # noqa: BLE001  each ends the query
            self._error = error
            # py4j logs the error that it gets, and Spark keeps its text, which may quote a record
            raise MirrorError(f"batch {number} is not written") from None

    def _write(self, records: Any, number: int) -> None:
        query = records.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        execution = execution_of(records.sparkSession, query) if query else None
        logged = None if execution is None else offsets_of(execution, number)
        if logged is None:
            raise MirrorError(
                f"the offsets of batch {number} are not known",
                fix="use the release of Spark that eomirror was built for",
            )
        end = {
            SourcePartition(topic, int(partition)): offset
            for topic, partitions in logged.items()
            for partition, offset in partitions.items()
        }
        self._sink.take(records, number, query, end)

    @property
    def active(self) -> bool:
        """True while the query runs."""
        return self._query is not None and bool(self._query.isActive)

    @property
    def error(self) -> BaseException | None:
        """Error that ended the query: that of a batch, or Spark's text of another one; None for none."""
        if self._error is not None:
            return self._error
        failed = None if self._query is None else self._query.exception()
        return failed if isinstance(failed, BaseException) else None

    def stop(self) -> None:
        """Ends the query, and cancels the micro-batch that runs; never raises."""
        try:
            if self._query is not None:
                self._query.stop()
        except Exception as error:  # noqa: BLE001  the JVM has ended, or the batch does not
            log.debug("query_not_stopped", reason=type(error).__name__)

    def close(self) -> None:
        """Ends the query, and removes its checkpoint."""
        self.stop()
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def source_options(cluster: Cluster, starts: Mapping[SourcePartition, int]) -> dict[str, str]:
    """Returns the options of ``format("eomirror")`` that read a cluster from offsets on."""
    offsets: dict[str, dict[str, int]] = {}
    for source, offset in sorted(starts.items()):
        offsets.setdefault(source.topic, {})[str(source.partition)] = offset
    properties = {**cluster.properties, **cluster.consumer}
    return {
        CONFIGURED: json.dumps(
            {
                name: value.reveal() if isinstance(value, Secret) else str(value)
                for name, value in properties.items()
            }
        ),
        "assign": json.dumps({topic: sorted(map(int, numbers)) for topic, numbers in offsets.items()}),
        "startingOffsets": json.dumps(offsets),
        "includeHeaders": "true",
        "maxBytesPerTrigger": str(_BATCH_BYTES),
    }
