"""Fixtures of DataFrame tests: one Spark session for all, and what a read_committed reader sees."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

import pytest
from frames import HERE, PYTHON

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local session of six slots: two of them are for the lanes of mirrors."""
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    session = (
        SparkSession.builder.master("local[6]")
        .appName("dataframes")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "1g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "3")
        .config("spark.executorEnv.PYTHONPATH", f"{PYTHON}:{HERE}")
        .getOrCreate()
    )
    yield session
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    session.stop()
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(10)
    SparkContext._gateway = SparkContext._jvm = None


@pytest.fixture(scope="session")
def spark_context(spark: Any) -> Any:
    """
    The context of that session, for the mirrors of these tests.

    Their usual one has 256 slots, a session that begins behind it has it too, and a DataFrame then 256 partitions.
    """
    return spark.sparkContext


@pytest.fixture(scope="session")
def spark_session(spark: Any) -> Any:
    """The session, with times in UTC."""
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark
