"""The atomic sink on a real broker: what it writes, what it skips, and what it refuses."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from frames import options, progress, put_files, run_files, settled, values

from eomirror.errors import MirrorError, SupersededError, TopicError, UsageError
from eomirror.spark import sink, write
from support.traffic.records import create_topic

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(280)]


def test_all_columns_arrive(spark: Any, west: Any, topic_name: str) -> None:
    """Key, value, headers, topic, partition and timestamp of each row; null and empty stay apart."""
    from pyspark.sql import functions as sql

    other = f"{topic_name}-other"
    create_topic(west.client_properties, topic_name, 3)
    create_topic(west.client_properties, other, 2)
    at = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
    schema = (
        "key binary, value binary, topic string, partition int, timestamp timestamp, "
        "headers array<struct<key:string,value:binary>>"
    )
    rows = [
        (b"a", b"1", topic_name, 2, at, [("h", b"x"), ("h", None)]),
        (b"", b"", topic_name, 0, at, []),
        (None, None, other, 1, at, None),
    ]
    frame = spark.createDataFrame(rows, schema)
    given = {name: text for name, text in options(west, "").items() if name != "topic"}
    assert write(frame.select("*", sql.lit(1).alias("unused")), topic_name, given)
    millis = int(at.timestamp() * 1000)
    found = settled(west, topic_name)
    assert found == {
        0: [(b"", b"", millis, ())],
        1: [],
        2: [(b"a", b"1", millis, (("h", b"x"), ("h", None)))],
    }
    assert settled(west, other)[1] == [(None, None, millis, ())]
    assert progress(west, topic_name)["rows"] == 3


def test_rows_are_placed_as_java_places_them(spark: Any, west: Any, topic_name: str) -> None:
    """Keyed rows by murmur2; rows without a key are spread, and none is lost."""
    from eomirror._native import key_partition

    create_topic(west.client_properties, topic_name, 5)
    rows = [(f"k{number % 40}" if number % 2 else None, f"{number}") for number in range(2_000)]
    write(spark.createDataFrame(rows, "key string, value string"), topic_name, options(west, topic_name))
    found = settled(west, topic_name)
    for partition, records in found.items():
        assert {key_partition(key, 5) for key, *_ in records if key is not None} <= {partition}
    assert sorted(int(value) for records in found.values() for _, value, *_ in records) == list(range(2_000))
    # each task fills one of its partitions first
    assert sum(any(key is None for key, *_ in records) for records in found.values()) > 1


def test_a_stream_is_written_once_over_restarts(
    spark: Any, west: Any, topic_name: str, tmp_path: Path
) -> None:
    """New files in the same query; then the last batch is repeated with another number of shuffle partitions."""
    create_topic(west.client_properties, topic_name, 4)
    expected = put_files(tmp_path / "in", range(3), 500)
    ours = sink(topic_name, options(west, topic_name))
    run_files(spark, tmp_path / "in", tmp_path / "state", ours)
    assert values(west, topic_name) == expected
    # as after a crash between EndTxn and Spark's own commit: the log of commits lacks the last batch
    (tmp_path / "state" / "commits" / "2").unlink()
    (tmp_path / "state" / "commits" / ".2.crc").unlink(missing_ok=True)
    expected += put_files(tmp_path / "in", range(3, 5), 500)
    spark.conf.set("spark.sql.shuffle.partitions", "7")
    try:
        run_files(spark, tmp_path / "in", tmp_path / "state", sink(topic_name, options(west, topic_name)))
    finally:
        spark.conf.set("spark.sql.shuffle.partitions", "3")
    assert values(west, topic_name) == expected
    assert progress(west, topic_name)["batch"] == 4


def test_a_deleted_checkpoint_repeats_no_row(spark: Any, west: Any, topic_name: str, tmp_path: Path) -> None:
    """With source offsets in the rows the sink leaves out what it holds; without them it refuses to guess."""
    create_topic(west.client_properties, topic_name, 4)
    create_topic(west.client_properties, "in", 2)
    columns = ("source_topic", "source_partition", "source_offset")
    given = options(west, topic_name, sourceColumns=",".join(columns), groupId=f"{topic_name}-group")
    expected = put_files(tmp_path / "in", range(3), 300)
    run_files(spark, tmp_path / "in", tmp_path / "one", sink(topic_name, given), columns)
    assert progress(west, topic_name)["sources"] == {"in": {"0": 450, "1": 450}}
    expected += put_files(tmp_path / "in", range(3, 5), 300)
    run_files(spark, tmp_path / "in", tmp_path / "two", sink(topic_name, given), columns)
    assert values(west, topic_name) == expected
    consumer = Consumer({**west.client_properties, "group.id": f"{topic_name}-group"})
    committed = consumer.committed([TopicPartition("in", 0), TopicPartition("in", 1)], timeout=30)
    consumer.close()
    assert [one.offset for one in committed] == [750, 750]

    other = sink(f"{topic_name}-plain", options(west, f"{topic_name}-plain"))
    create_topic(west.client_properties, f"{topic_name}-plain", 1)
    run_files(spark, tmp_path / "in", tmp_path / "three", other)
    moved = spark.createDataFrame([("v", "elsewhere", 0, 1)], "value string, t string, p int, o bigint")
    given = options(west, topic_name, sourceColumns="t,p,o", groupId="g")
    with pytest.raises(UsageError, match="topic elsewhere, which the rows come from, is not on this cluster"):
        write(moved, f"{topic_name}-moved", given)
    with pytest.raises(Exception, match="cannot tell which rows it holds"):
        run_files(spark, tmp_path / "in", tmp_path / "four", other)


def test_a_failed_task_leaves_nothing_and_is_repeated(
    spark: Any, west: Any, topic_name: str, tmp_path: Path
) -> None:
    """A task that ends in mid-batch: the attempt is aborted, and the second one writes the whole batch once."""
    from pyspark.sql import functions as sql

    create_topic(west.client_properties, topic_name, 2)
    marker = tmp_path / "failed"

    def breaks(value: str) -> str:
        if value == "999" and not marker.exists():
            marker.touch()
            raise ValueError("planted")
        return value

    frame = spark.range(2_000).select(sql.col("id").cast("string").alias("value"))
    frame = frame.select(sql.udf(breaks, "string", useArrow=False)("value").alias("value"))
    assert write(frame, topic_name, options(west, topic_name))
    assert marker.exists()
    assert sorted(map(int, values(west, topic_name))) == list(range(2_000))


def test_a_run_id_is_written_once(spark: Any, west: Any, topic_name: str) -> None:
    """A batch write with a runId that the sink holds writes nothing; another one does."""
    create_topic(west.client_properties, topic_name, 2)
    frame = spark.createDataFrame([("a",), ("b",)], "value string")
    given = options(west, topic_name, runId="monday")
    assert write(frame, topic_name, given)
    assert not write(frame, topic_name, given)
    assert write(frame, topic_name, options(west, topic_name, runId="tuesday"))
    assert values(west, topic_name) == ["a", "a", "b", "b"]


def test_a_second_writer_of_the_name_fences_the_first(spark: Any, west: Any, topic_name: str) -> None:
    """The first one says so, and what it had open is not visible."""
    create_topic(west.client_properties, topic_name, 2)
    frame = spark.createDataFrame([("a",)], "value string")
    first, second = (sink(topic_name, options(west, topic_name, newQuery="append")) for _ in range(2))
    first(frame, 0)
    second(frame, 1)
    with pytest.raises(SupersededError, match="another process writes under this name"):
        first(frame, 2)
    second(frame, 3)
    assert values(west, topic_name) == ["a", "a", "a"]


def test_what_cannot_be_written_is_named(spark: Any, west: Any, topic_name: str) -> None:
    """Each refusal comes before a row is visible, with the next step."""
    create_topic(west.client_properties, topic_name, 2, **{"max.message.bytes": "2000"})
    frame = spark.createDataFrame([("k", "v", 7)], "key string, value string, partition int")
    small = frame.select("key", "value")
    given = options(west, topic_name)
    refused = [
        (small.select("key"), given, UsageError, "no column value"),
        (small, {"kafka.bootstrap.servers": given["kafka.bootstrap.servers"]}, UsageError, "names the topic"),
        (small, {"topic": "x"}, UsageError, "no cluster is named"),
        (small, {**given, "topics": "x"}, UsageError, "option topics is unknown"),
        (small.selectExpr("1 as value"), given, UsageError, r"column value is int.*cast it"),
        (frame, given, MirrorError, r"partition 7 of topic .* which has partitions 0 to 1"),
        (small, {**given, "topic": f"{topic_name}-missing"}, TopicError, "does not exist"),
        (
            small.selectExpr("repeat('x', 5000) as value"),
            given,
            MirrorError,
            r"(?s)MESSAGE_TOO_LARGE.*max.message.bytes",
        ),
    ]
    for rows, chosen, kind, words in refused:
        with pytest.raises(kind, match=rf"(?s){words}"):
            write(rows, topic_name, chosen)
    assert values(west, topic_name) == []


def test_a_batch_longer_than_the_transaction_says_so(spark: Any, west: Any, topic_name: str) -> None:
    """The coordinator aborts it; the error names both times and the option."""
    import time

    from pyspark.sql import functions as sql

    create_topic(west.client_properties, topic_name, 1)

    def slow(value: str) -> str:
        time.sleep(3)
        return value

    frame = spark.createDataFrame([("a",)], "value string").select(
        sql.udf(slow, "string", useArrow=False)("value").alias("value")
    )
    with pytest.raises(UsageError, match=r"(?s)took \d+\.\d s, .* after 2 s: .*kafka.transaction.timeout.ms"):
        write(frame, topic_name, options(west, topic_name, **{"kafka.transaction.timeout.ms": "2000"}))
    assert values(west, topic_name) == []


def test_a_cluster_without_protocol_v2_is_refused(spark: Any, kafka39: Any, topic_name: str) -> None:
    """The error names the format that is exactly once there."""
    create_topic(kafka39.client_properties, topic_name, 1)
    frame = spark.createDataFrame([("a",)], "value string")
    with pytest.raises(UsageError, match=r'(?s)transaction.version.*format\("eomirror"\)'):
        write(frame, topic_name, options(kafka39, topic_name))


def test_progress_is_plain_json(spark: Any, west: Any, topic_name: str) -> None:
    """Other programs read it: version, batch, rows, bytes and digest."""
    create_topic(west.client_properties, topic_name, 1)
    write(spark.createDataFrame([("ab",)], "value string"), topic_name, options(west, topic_name))
    found = progress(west, topic_name)
    assert (found["v"], found["batch"], found["rows"], found["bytes"]) == (1, 0, 1, 2)
    assert len(found["digest"]) == 16
    assert json.dumps(found)
