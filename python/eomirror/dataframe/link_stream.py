"""
The Structured Streaming query of a link: it reads the source from the positions of the link, into the link's sink.

Spark needs a checkpoint directory for it, which is temporary: no later query reads it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from typing import TYPE_CHECKING, Any, Final

import structlog

from eomirror.config.secret import Secret
from eomirror.dataframe.sink import offsets_of
from eomirror.errors import MirrorError
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Mapping

    from eomirror.config import Cluster
    from eomirror.dataframe.link_sink import LinkSink

__all__ = ["LinkStream", "source_options"]

log = structlog.get_logger(__name__)

#: Bytes of one micro-batch, as brokers store them: one takes a second or two, and a stop waits for it.
_BATCH_BYTES: Final = 32 * 1024 * 1024
#: Least interval of micro-batches in seconds: Spark takes as long to plan one.
_LEAST_INTERVAL: Final = 0.2
#: Time that Spark waits for the end of a query.
_STOP_MS: Final = 30_000


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
        self._folder = ""
        self._session = SparkSession(context).newSession()
        for name, value in {
            "spark.sql.session.timeZone": "UTC",
            # the number of records that were read is a figure of the plan, which adaptive execution replaces
            "spark.sql.adaptive.enabled": "false",
            "spark.sql.shuffle.partitions": str(tasks),
            "spark.sql.streaming.stopTimeout": str(_STOP_MS),
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
        query = records.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        found = self._session._jsparkSession.streams().get(query)  # noqa: SLF001  py4j
        logged = None if found is None else offsets_of(found.streamingQuery(), number)
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
        """Error that ended the query: that of the sink, or Spark's text of another one; None for none."""
        if self._sink.error is not None:
            return self._sink.error
        failed = None if self._query is None else self._query.exception()
        return failed if isinstance(failed, BaseException) else None

    def stop(self) -> None:
        """Ends the query, and cancels the micro-batch that runs; never raises."""
        try:
            if self._query is not None:
                self._query.stop()
        except Exception as error:  # noqa: BLE001  the JVM has ended, or the batch does not
            log.debug("query_not_stopped", reason=str(error)[:200])

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
        **{
            f"kafka.{name}": value.reveal() if isinstance(value, Secret) else str(value)
            for name, value in properties.items()
        },
        "assign": json.dumps({topic: sorted(map(int, numbers)) for topic, numbers in offsets.items()}),
        "startingOffsets": json.dumps(offsets),
        "includeHeaders": "true",
        "maxBytesPerTrigger": str(_BATCH_BYTES),
    }
