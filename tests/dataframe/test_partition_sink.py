"""The writers of the format: exactly once for each target partition, also on brokers without protocol V2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from frames import SCHEMA, options, put_files, settled, values
from pyspark.sql import functions as sql

from support.traffic.records import create_topic

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(280)]


def by_partition(rows: Any, partitions: int) -> Any:
    """Rows with an explicit partition, each in one task."""
    placed = rows.withColumn("partition", sql.pmod(sql.hash("value"), sql.lit(partitions)))
    return placed.repartition(partitions, "partition")


@pytest.mark.parametrize("cluster", ["west", "kafka39"])
def test_rows_arrive_once_over_a_repetition(
    spark: Any, cluster: str, topic_name: str, request: pytest.FixtureRequest
) -> None:
    """The same runId again writes nothing, another one does."""
    target = request.getfixturevalue(cluster)
    create_topic(target.client_properties, topic_name, 3)
    frame = by_partition(spark.range(300).select(sql.col("id").cast("string").alias("value")), 3)
    given = options(target, topic_name, name=topic_name, runId="one")
    for _ in range(2):
        frame.write.format("eomirror").options(**given).mode("append").save()
    assert sorted(map(int, values(target, topic_name))) == list(range(300))
    frame.write.format("eomirror").options(**{**given, "runId": "two"}).mode("append").save()
    assert len(values(target, topic_name)) == 600


def test_two_tasks_on_one_partition_are_refused(spark: Any, west: Any, topic_name: str) -> None:
    """Keyed rows that were not repartitioned: the write fails and says what to do."""
    create_topic(west.client_properties, topic_name, 1)
    frame = spark.range(100, numPartitions=2).select(sql.col("id").cast("string").alias("value"))
    with pytest.raises(Exception, match="repartition by target partition before the write"):
        frame.write.format("eomirror").options(**options(west, topic_name)).mode("append").save()
    assert len(values(west, topic_name)) <= 50


def test_a_repeated_batch_is_skipped_by_each_partition(
    spark: Any, west: Any, topic_name: str, tmp_path: Path
) -> None:
    """A stream whose last batch Spark repeats: partitions that hold it write nothing."""
    create_topic(west.client_properties, topic_name, 3)

    def run() -> None:
        frame = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(tmp_path / "in"))
        query = (
            by_partition(frame.select("value"), 3)
            .writeStream.format("eomirror")
            .options(**options(west, topic_name))
            .option("checkpointLocation", str(tmp_path / "state"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    expected = put_files(tmp_path / "in", range(2), 200)
    run()
    (tmp_path / "state" / "commits" / "1").unlink()
    (tmp_path / "state" / "commits" / ".1.crc").unlink(missing_ok=True)
    expected += put_files(tmp_path / "in", [2], 200)
    run()
    assert values(west, topic_name) == expected
    assert all(settled(west, topic_name).values())
