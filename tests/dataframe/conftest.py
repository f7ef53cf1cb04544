"""A Spark session for DataFrames that read or write Kafka."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def spark_session(spark_context: Any) -> Iterator[Any]:
    """A session on the context of all tests, with few shuffle partitions."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark_context)
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session
