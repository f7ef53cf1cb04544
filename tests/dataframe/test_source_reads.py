"""What the source reads: committed records only, in every shape, and no other offsets than it was asked for."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.errors import PySparkException
from source_rig import FAILS_AS_WANTED, FIRST_TIME, Query, as_record, read

from support.links.link import alter_topic
from support.traffic.records import create_topic, delete_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark]


def fill(
    properties: Mapping[str, Any], topic: str, count: int, *, partitions: int = 1, first: int = 0
) -> None:
    """Write numbered values, one after the other over the partitions."""
    producer = Producer({**properties, "linger.ms": 5})
    for number in range(first, first + count):
        producer.produce(topic, b"%d" % number, partition=number % partitions, timestamp=FIRST_TIME + number)
    assert producer.flush(30) == 0


def numbers(rows: list[Any]) -> list[int]:
    return sorted(int(bytes(row["value"])) for row in rows)


@pytest.fixture
def query(spark_session: Any, east: LocalCluster, topic_name: str, tmp_path: Path) -> Query:
    """A query that has not run, from the beginning of a topic with one partition and the values 0 to 9."""
    create_topic(east.client_properties, topic_name)
    fill(east.client_properties, topic_name, 10)
    return Query(
        spark_session, tmp_path / "c", east.client_properties,
        subscribe=topic_name, startingOffsets="earliest",
    )  # fmt: skip


def test_every_shape_of_committed_records(
    spark_session: Any, east: LocalCluster, topic_name: str, seed: int
) -> None:
    """Aborted records are left out, those of an open transaction too; the rest comes as it was written."""
    properties = east.client_properties
    create_topic(properties, topic_name, 2)
    committed = produce(
        properties, topic_name, 2, some_records(seed, 900), transactional_id=topic_name, abort_every=3
    )
    still_open = Producer({**properties, "transactional.id": f"{topic_name}.open"})
    still_open.init_transactions(30)
    still_open.begin_transaction()
    still_open.produce(topic_name, b"open", partition=0)
    still_open.flush(30)
    try:
        rows = read(spark_session, properties, subscribe=topic_name, includeHeaders="true").collect()
    finally:
        still_open.abort_transaction(30)
    for number in range(2):
        mine = sorted((row for row in rows if row["partition"] == number), key=lambda row: row["offset"])
        assert [as_record(row) for row in mine] == committed[number]
        assert len({row["offset"] for row in mine}) == len(mine)
    assert {row["topic"] for row in rows} == {topic_name}
    assert {row["timestampType"] for row in rows} == {0}


def test_compressed_batches_and_compacted_gaps(
    spark_session: Any, east: LocalCluster, topic_name: str
) -> None:
    """A compacted log has holes, which are no loss."""
    properties = east.client_properties
    create_topic(
        properties, topic_name, 1,
        **{"cleanup.policy": "compact", "segment.ms": "300", "min.cleanable.dirty.ratio": "0.01"},
    )  # fmt: skip
    for codec in ("zstd", "lz4", "snappy", "gzip", "none"):
        producer = Producer({**properties, "compression.type": codec, "linger.ms": 20})
        for number in range(400):
            producer.produce(topic_name, b"%s%d" % (codec.encode(), number), b"k%d" % (number % 50))
        assert producer.flush(30) == 0
        # the next records begin a new segment: the newest one is never compacted
        time.sleep(0.5)

    def cleaned() -> bool:
        return len(read(spark_session, properties, subscribe=topic_name).collect()) < 1700

    wait_for(cleaned, 90)
    rows = read(spark_session, properties, subscribe=topic_name).collect()
    newest = {bytes(row["key"]): bytes(row["value"]) for row in sorted(rows, key=lambda row: row["offset"])}
    assert newest == {b"k%d" % (number % 50): b"none%d" % number for number in range(350, 400)}


def test_offsets_times_and_parts(spark_session: Any, east: LocalCluster, topic_name: str) -> None:
    """A range by offset and one by time are exact; more tasks read the same rows."""
    properties = east.client_properties
    create_topic(properties, topic_name, 2)
    fill(properties, topic_name, 100, partitions=2)
    by_offset = read(
        spark_session, properties, subscribe=topic_name, minPartitions=7,
        startingOffsets=f'{{"{topic_name}": {{"0": 10, "1": -2}}}}',
        endingOffsets=f'{{"{topic_name}": {{"0": 12, "1": 3}}}}',
    )  # fmt: skip
    assert numbers(by_offset.collect()) == [1, 3, 5, 20, 22]
    by_time = read(
        spark_session, properties, assign=f'{{"{topic_name}": [0, 1]}}',
        startingTimestamp=FIRST_TIME + 40, endingTimestamp=FIRST_TIME + 50,
    )  # fmt: skip
    assert numbers(by_time.collect()) == list(range(40, 50))
    assert by_time.count() == 10
    with pytest.raises(PySparkException, match="no record of"):
        read(spark_session, properties, subscribe=topic_name, startingTimestamp=FIRST_TIME + 10_000).collect()


def test_filters_choose_what_is_read(spark_session: Any, east: LocalCluster, topic_name: str) -> None:
    """Filters that are pushed down leave the same rows as those that Spark applies."""
    properties = east.client_properties
    create_topic(properties, topic_name, 3)
    fill(properties, topic_name, 90, partitions=3)
    where = (
        "partition IN (0, 2) AND offset >= 3 AND offset < 20 "
        "AND timestamp >= timestamp_millis(1600000000030) AND timestamp < timestamp_millis(1600000000045)"
    )
    spark_session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = read(spark_session, properties, subscribe=topic_name).where(where)
        pushed, plan = numbers(frame.collect()), frame._jdf.queryExecution().executedPlan().toString()
    finally:
        spark_session.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    plain = numbers(read(spark_session, properties, subscribe=topic_name).where(where).collect())
    assert pushed == plain == [n for n in range(30, 45) if n % 3 != 1]
    assert "Filter" in plan, "Spark applies the filter on the timestamp as well"
    assert "IN (0,2)" not in plan[plan.index("Filter") :].split("\n")[0], "and not the one on partitions"


def test_a_stream_continues_where_it_stopped(query: Query, east: LocalCluster, topic_name: str) -> None:
    """Each row comes once over restarts and a failed batch, also of partitions that were added."""
    query.run()
    assert numbers(query.rows) == list(range(10))
    admin = AdminClient(east.client_properties)
    admin.create_partitions([NewPartitions(topic_name, 3)])[topic_name].result(30)
    fill(east.client_properties, topic_name, 60, partitions=3, first=10)
    query.fails_at = 1
    with pytest.raises(PySparkException, match=FAILS_AS_WANTED):
        query.run()
    query.run()
    assert numbers(query.rows) == list(range(70))


def test_a_stream_that_begins_at_the_end_skips_nothing_after_it(
    spark_session: Any, east: LocalCluster, topic_name: str, tmp_path: Path
) -> None:
    """Spark keeps no first offset: a first batch that fails must not move the beginning."""
    properties = east.client_properties
    create_topic(properties, topic_name, 1)
    fill(properties, topic_name, 10)
    query = Query(spark_session, tmp_path / "c", properties, subscribe=topic_name)
    query.fails_at = 0
    with pytest.raises(PySparkException, match=FAILS_AS_WANTED):
        query.run()
    fill(properties, topic_name, 10, first=10)
    query.run()
    assert numbers(query.rows) == list(range(10, 20))


def test_limits_in_rows_and_in_bytes(
    spark_session: Any, east: LocalCluster, topic_name: str, tmp_path: Path
) -> None:
    """No batch is larger than its limit; the one in bytes counts what brokers store."""
    properties = east.client_properties
    create_topic(properties, topic_name, 2)
    rng = random.Random(1)
    producer = Producer({**properties, "linger.ms": 1, "batch.num.messages": 10})
    for number in range(400):
        producer.produce(topic_name, rng.randbytes(1000), partition=number % 2)
    assert producer.flush(30) == 0
    start = {"subscribe": topic_name, "startingOffsets": "earliest"}
    rows = Query(spark_session, tmp_path / "r", properties, **start, maxOffsetsPerTrigger=150).run()
    assert [len(batch) for batch in rows.batches] == [150, 150, 100]
    size = Query(spark_session, tmp_path / "b", properties, **start, maxBytesPerTrigger=100_000).run()
    assert sum(map(len, size.batches)) == 400
    assert 4 <= len(size.batches) <= 6
    assert all(len(batch) <= 105 for batch in size.batches)


def test_a_pattern_finds_topics_that_come_later(
    spark_session: Any, east: LocalCluster, topic_name: str, tmp_path: Path
) -> None:
    """A new topic is read from its beginning."""
    properties = east.client_properties
    create_topic(properties, f"{topic_name}.a")
    fill(properties, f"{topic_name}.a", 5)
    query = Query(
        spark_session, tmp_path / "c", properties,
        subscribePattern=f"{topic_name}\\.[ab]", startingOffsets="earliest",
    ).run()  # fmt: skip
    create_topic(properties, f"{topic_name}.b")
    create_topic(properties, f"{topic_name}.c")
    fill(properties, f"{topic_name}.b", 5, first=5)
    fill(properties, f"{topic_name}.c", 5, first=10)
    query.run()
    assert numbers(query.rows) == list(range(10))


def test_a_recreated_topic_fails_by_name(query: Query, east: LocalCluster, topic_name: str) -> None:
    """Its offsets are those of another topic; without failOnDataLoss it is read from its beginning."""
    query.run()
    delete_topic(east.client_properties, topic_name)
    create_topic(east.client_properties, topic_name)
    fill(east.client_properties, topic_name, 20, first=100)
    with pytest.raises(PySparkException, match=f"topic {topic_name} is not the one") as caught:
        query.run()
    assert "eomirror checkpoint translate" in str(caught.value)
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert numbers(query.rows) == [*range(10), *range(100, 120)]


def test_deleted_records_fail_by_name(query: Query, east: LocalCluster, topic_name: str) -> None:
    """Retention that overtakes a query is no silent gap."""
    query.run()
    fill(east.client_properties, topic_name, 20, first=10)
    admin = AdminClient(east.client_properties)
    gone = admin.delete_records([TopicPartition(topic_name, 0, 15)])
    for future in gone.values():
        future.result(30)
    with pytest.raises(PySparkException, match=rf"{topic_name}-0: offsets \[10, 15\) were deleted"):
        query.run()
    query.options["failOnDataLoss"] = "false"
    query.run()
    assert numbers(query.rows) == [*range(10), *range(15, 30)]


def test_lag_tools_see_the_query_as_a_group(query: Query, east: LocalCluster, topic_name: str) -> None:
    """The offsets of completed batches are committed to the group, the last one as well."""
    query.options |= {"groupId": topic_name, "maxOffsetsPerTrigger": "7"}
    query.run()
    admin = AdminClient(east.client_properties)
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(topic_name)])
    found = asked[topic_name].result(30).topic_partitions
    assert [(one.topic, one.partition, one.offset) for one in found] == [(topic_name, 0, 10)]


def test_an_unknown_option_is_refused(spark_session: Any, east: LocalCluster) -> None:
    """It would have no effect."""
    with pytest.raises(PySparkException, match="did you mean maxBytesPerTrigger"):
        read(spark_session, east.client_properties, subscribe="t", maxBytesPerTriger=5).collect()


def test_append_times_are_shown(spark_session: Any, east: LocalCluster, topic_name: str) -> None:
    """The column says whose time it is."""
    properties = east.client_properties
    create_topic(properties, topic_name)
    alter_topic(properties, topic_name, message_timestamp_type="LogAppendTime")
    fill(properties, topic_name, 3)
    rows = read(spark_session, properties, subscribe=topic_name).collect()
    assert {row["timestampType"] for row in rows} == {1}
    assert all(row["timestamp"].timestamp() * 1000 > FIRST_TIME + 1000 for row in rows)
