"""DataFrames and streams of the tests, and how their copies are read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from support.traffic.records import read_committed, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HERE = Path(__file__).resolve().parent
PYTHON = HERE.parents[1] / "python"

SCHEMA = "key string, value string, source_topic string, source_partition int, source_offset bigint"


def options(cluster: Any, topic: str, **more: str) -> dict[str, str]:
    """Options of a sink that writes one topic."""
    servers = cluster.client_properties["bootstrap.servers"]
    # a busy machine takes longer than the default for a first batch
    return {
        "kafka.bootstrap.servers": servers,
        "topic": topic,
        "kafka.transaction.timeout.ms": "300000",
        **more,
    }


def settled(cluster: Any, topic: str) -> dict[int, list[Any]]:
    """The committed records, once no transaction is open: markers follow a commit, one partition after the other."""
    admin = AdminClient(dict(cluster.client_properties))
    count = len(admin.list_topics(topic, timeout=15).topics[topic].partitions)

    def ends(isolation: IsolationLevel) -> list[int]:
        asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(count)}
        found = admin.list_offsets(asked, isolation_level=isolation, request_timeout=15)
        return [future.result().offset for future in found.values()]

    wait_for(lambda: ends(IsolationLevel.READ_COMMITTED) == ends(IsolationLevel.READ_UNCOMMITTED), 30)
    return read_committed(cluster.client_properties, topic)


def values(cluster: Any, topic: str) -> list[str]:
    """The values of all committed records, sorted."""
    found = settled(cluster, topic)
    return sorted((value or b"").decode() for records in found.values() for _, value, *_ in records)


def progress(cluster: Any, name: str) -> dict[str, Any]:
    """The progress record of a sink, as it is committed."""
    found = read_committed(cluster.client_properties, "eomirror.sink.progress")
    (*_, last) = [
        value for records in found.values() for key, value, *_ in records if key == name.encode() and value
    ]
    return dict(json.loads(last))


def rows_of(batch: int, count: int) -> list[dict[str, Any]]:
    """Rows of one input file: values name the batch, source offsets follow each other over the files."""
    return [
        {
            "key": f"k{number % 17}" if number % 3 else None,
            "value": f"{batch:04d}-{number:05d}",
            "source_topic": "in",
            "source_partition": number % 2,
            "source_offset": batch * count // 2 + number // 2,
        }
        for number in range(count)
    ]


def put_files(folder: Path, batches: Sequence[int], count: int) -> list[str]:
    """Writes input files, oldest first; returns the values of their rows."""
    folder.mkdir(exist_ok=True)
    put = []
    for batch in batches:
        rows = rows_of(batch, count)
        hidden = folder / f".{batch:04d}"
        hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
        # the source takes files by their time
        os.utime(hidden, (1_700_000_000 + batch, 1_700_000_000 + batch))
        hidden.rename(folder / f"{batch:04d}.json")
        put += [row["value"] for row in rows]
    return put


def run_files(
    session: Any,
    folder: Path,
    checkpoint: Path,
    write: Callable[[Any, int], None],
    columns: Sequence[str] = (),
) -> Any:
    """Runs a query over all input files, one file in a micro-batch, to its end."""
    frame = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(str(folder))
    query = (
        frame.select("key", "value", *columns)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query
