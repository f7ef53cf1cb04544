"""Reads through ``format("eomirror")``, and remembers the rows of micro-batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from support.traffic.records import Record

__all__ = ["FAILS_AS_WANTED", "Query", "as_record", "options_of", "read"]

FIRST_TIME = 1_600_000_000_000
FAILS_AS_WANTED = "the batch fails, as the test wants"
# Spark gives a Python worker 10 s to start and to connect, which no setting changes; a busy machine takes longer
_LATE_WORKER = "Python worker failed to connect back"
_STARTS = 3


def options_of(properties: Mapping[str, Any], **options: Any) -> dict[str, str]:
    """Options of a cluster; ``_`` stands for a dot."""
    named = {key.replace("_", "."): str(value) for key, value in options.items()}
    return {"kafka.bootstrap.servers": str(properties["bootstrap.servers"]), **named}


def read(session: Any, properties: Mapping[str, Any], **options: Any) -> Any:
    """A batch query."""
    return session.read.format("eomirror").options(**options_of(properties, **options)).load()


def as_record(row: Any) -> Record:
    """A row with headers, as `support.traffic.records` writes it."""
    headers = tuple((one["key"], _bytes(one["value"])) for one in row["headers"] or ())
    return _bytes(row["key"]), _bytes(row["value"]), _milliseconds(row["timestamp"]), headers


def _milliseconds(moment: Any) -> int:
    return round(moment.timestamp() * 1000)


def _bytes(value: Any) -> bytes | None:
    return None if value is None else bytes(value)


class Query:
    """A streaming query with a checkpoint; each `run` is a start of it that reads what there is."""

    def __init__(self, session: Any, folder: Path, properties: Mapping[str, Any], **options: Any) -> None:
        self._session, self.folder = session, folder
        self.options = options_of(properties, **options)
        self.batches: list[list[Any]] = []
        self.fails_at: int | None = None

    @property
    def rows(self) -> list[Any]:
        return [row for batch in self.batches for row in batch]

    @property
    def values(self) -> list[bytes | None]:
        return [_bytes(row["value"]) for row in self.rows]

    def run(self) -> Query:
        """Start the query with `Trigger.AvailableNow`, again if a Python worker was late, and wait for its end."""
        for left in reversed(range(_STARTS)):
            try:
                self._run()
                break
            except PySparkException as error:
                if not left or _LATE_WORKER not in str(error):
                    raise
        return self

    def _run(self) -> None:
        frame = self._session.readStream.format("eomirror").options(**self.options).load()
        writer = frame.writeStream.foreachBatch(self._take).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self.folder)).start()
        try:
            assert query.awaitTermination(120), "the query does not end"
        finally:
            query.stop()

    def _take(self, frame: Any, number: int) -> None:
        rows = frame.collect()
        if number == self.fails_at:
            self.fails_at = None
            raise RuntimeError(FAILS_AS_WANTED)
        self.batches.append(rows)
