"""
The job that `bench.spark` measures, as a user writes it: Kafka to Kafka with a filter, until everything is read.

``python -P bench/spark_job.py JSON``; the last line of its output begins with ``found`` and tells the micro-batches.
"""

from __future__ import annotations

import json
import sys
import time
from datetime import datetime
from typing import Any

from pyspark.sql import SparkSession

from eomirror.spark import sink


def main(given: dict[str, Any]) -> None:
    """Runs the query to its end."""
    session = SparkSession.builder.appName("bench").config(map=given["spark"]).getOrCreate()
    frame = session.readStream.format(given["source"]).options(**given["read"]).load()
    rows = frame.where(given["where"]).select("key", "value")
    if given["sink"] == "eomirror":
        writer = rows.writeStream.foreachBatch(sink(given["name"], given["write"]))
    else:
        writer = rows.writeStream.format(given["sink"]).options(**given["write"])
    query = (
        writer.option("checkpointLocation", given["checkpoint"])
        .queryName(given["name"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    # monotonic time is the same in all processes of a machine
    shift = time.monotonic() - time.time()
    found = []
    for told in query.recentProgress:
        progress = json.loads(told.json)
        begun = datetime.fromisoformat(progress["timestamp"]).timestamp() + shift
        found.append(
            {
                "begin": begun,
                "end": begun + progress["durationMs"]["triggerExecution"] / 1000,
                "offset": _offset(progress["sources"][0]["endOffset"]),
            }
        )
    session.stop()
    print("found", json.dumps(found))


def _offset(told: Any) -> int:
    """Returns the sum of the offsets of all partitions; a topic's id is no offset."""
    offsets = json.loads(told) if isinstance(told, str) else told
    return sum(at for inner in offsets.values() for at in inner.values() if type(at) is int)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
