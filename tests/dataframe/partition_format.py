"""A format of the writers for each target partition, as `pyspark_eomirror` has it, without its source."""

from __future__ import annotations

from typing import Any

from pyspark.sql.datasource import DataSource

from eomirror.dataframe.partition_sink import BatchPartitionWriter, StreamPartitionWriter


class PartitionFormat(DataSource):
    """Writers only."""

    @classmethod
    def name(cls) -> str:
        return "eomirror-partitions"

    def writer(self, schema: Any, overwrite: bool) -> BatchPartitionWriter:
        return BatchPartitionWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: Any, overwrite: bool) -> StreamPartitionWriter:  # noqa: N802  Spark's name
        return StreamPartitionWriter(self.options, schema, overwrite)
