"""A query over files into the atomic sink, as a program that a test kills: `python stream_program.py JSON`."""

from __future__ import annotations

import json
import sys
from typing import Any

from frames import SCHEMA


def main(given: dict[str, Any]) -> None:
    """Runs until the files are read."""
    from pyspark.sql import SparkSession

    from eomirror.spark import sink

    builder = SparkSession.builder.appName("killed").config(map=given["spark"])
    session = builder.getOrCreate()
    frame = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", "1").json(given["folder"])
    columns = ["key", "value", *given["columns"]]
    write = sink(given["name"], given["options"])

    def told(rows: Any, batch: int) -> None:
        sys.stdout.write(f"batch {batch}\n")
        sys.stdout.flush()
        write(rows, batch)

    query = (
        frame.select(*columns)
        .writeStream.foreachBatch(told)
        .option("checkpointLocation", given["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    session.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
