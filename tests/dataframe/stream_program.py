"""
A query over files into the atomic sink, as a program that a test kills: `python stream_program.py JSON`.

It runs until the file `end` stands beside its input.  The driver's producer says each step and pauses there, so that a
kill can hit any of them.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from frames import SCHEMA


def tell(step: str) -> None:
    """Writes a line that the test waits for."""
    sys.stdout.write(f"{step}\n")
    sys.stdout.flush()


class PausingProducer:
    """The producer of the driver, with pauses where all tasks have reported, and behind the commit."""

    def __init__(self, inner: Any, pause: float) -> None:
        self._inner, self._pause = inner, pause

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def begin(self, seconds: float) -> Any:
        """Begins, and says so."""
        begun = self._inner.begin(seconds)
        tell("step begun")
        return begun

    def send(self, *record: Any) -> None:
        """Pauses before the progress record."""
        tell("step reported")
        time.sleep(self._pause)
        self._inner.send(*record)

    def commit(self, seconds: float) -> None:
        """Pauses behind the commit."""
        tell("step committing")
        self._inner.commit(seconds)
        tell("step committed")
        time.sleep(self._pause)


def main(given: dict[str, Any]) -> None:
    """Runs until the files are read."""
    from pyspark.sql import SparkSession

    from eomirror.dataframe import settings
    from eomirror.spark import sink

    made = settings.SinkProducer
    # tasks import the module anew
    settings.SinkProducer = lambda *options, **named: PausingProducer(made(*options, **named), given["pause"])
    session = SparkSession.builder.appName("killed").config(map=given["spark"]).getOrCreate()
    frame = (
        session.readStream.schema(SCHEMA)
        .option("maxFilesPerTrigger", str(given["files"]))
        .json(given["folder"])
    )
    write = sink(given["name"], given["options"])

    def told(rows: Any, batch: int) -> None:
        tell(f"batch {batch}")
        # rows reach the sink in another distribution after each start
        write(rows.repartition(given["shuffle"], "value"), batch)

    query = (
        frame.select("key", "value", *given["columns"])
        .writeStream.foreachBatch(told)
        .option("checkpointLocation", given["checkpoint"])
        .start()
    )
    while not Path(given["folder"], "end").exists():
        query.awaitTermination(0.5)
    query.processAllAvailable()
    query.stop()
    session.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
