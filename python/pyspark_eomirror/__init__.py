"""
The data source ``eomirror`` of Spark, which Spark finds by the name of this package.

Spark imports every package ``pyspark_*`` when a session first looks for any Python data source.  So this module imports
nothing of eomirror: readers and writers are imported when they are made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Kafka topics as rows: committed records, with the options and the schema of Spark's Kafka connector."""

    @classmethod
    def name(cls) -> str:
        """Returns the name for ``format(...)``."""
        return "eomirror"

    def schema(self) -> str:
        """Returns the columns of a source."""
        from eomirror.dataframe.options import source_schema

        return source_schema(self.options)

    def reader(self, schema: StructType) -> Any:
        """Returns the reader of a batch query."""
        from eomirror.dataframe.source import batch_reader

        return batch_reader(self.options, schema)

    def streamReader(self, schema: StructType) -> Any:
        """Returns the reader of a streaming query."""
        from eomirror.dataframe.source import StreamReader

        return StreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001  Spark's signature
        """Returns the writer of a batch query."""
        from eomirror.dataframe.partition_sink import BatchPartitionWriter

        return BatchPartitionWriter(self.options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:  # noqa: FBT001  Spark's signature
        """Returns the writer of a streaming query."""
        from eomirror.dataframe.partition_sink import StreamPartitionWriter

        return StreamPartitionWriter(self.options, schema, overwrite)
