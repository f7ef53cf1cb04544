"""
Progress records of sinks: the last committed batch of a Spark query that writes through `eomirror.spark.sink`. Pure.

The record is written in the transaction of its batch, so it tells what is committed: it is the query's position.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from eomirror.errors import StateError

__all__ = ["CLAIMS_TOPIC", "PROGRESS_TOPIC", "SinkProgress", "Sources", "decode_progress"]

#: Topic of the sinks' progress records, compacted; key: the sink's name.
PROGRESS_TOPIC = "eomirror.sink.progress"
#: Topic of the claims of tasks, which matter for as long as a batch.
CLAIMS_TOPIC = "eomirror.sink.claims"

_VERSION = 1

#: Topic -> partition -> offset; None where they are not known.
Sources = dict[str, dict[str, int]]


@dataclass(frozen=True, slots=True)
class SinkProgress:
    """
    The last committed batch of a sink.

    Attributes:
        query: Id of the query; empty for a batch write.
        batch: Id of the batch.
        rows: Rows in it.
        bytes: Bytes of their keys, values and headers.
        digest: Sum of the digests of its rows.
        begin: Source offsets at which the first batch began; None if not known.
        sources: Source offsets after the batch; None if not known.
        run: Id of a batch write.
        timestamp: Time of the commit in ms.
        task: Task that wrote it, of a sink that commits for each partition; -1 for the others.
    """

    query: str
    batch: int
    rows: int
    bytes: int
    digest: str
    begin: Sources | None = None
    sources: Sources | None = None
    run: str = ""
    timestamp: int = 0
    task: int = -1

    def as_text(self) -> str:
        """Returns the value of the record."""
        return json.dumps({"v": _VERSION, **asdict(self)}, separators=(",", ":"))


def decode_progress(value: bytes, where: str) -> SinkProgress:
    """
    Returns the progress in a record.

    Raises:
        StateError: The record is damaged, or of a later version.
    """
    try:
        plain = json.loads(value)
        version = plain.pop("v")
        known = {field.name for field in fields(SinkProgress)}
        progress = SinkProgress(**{name: one for name, one in plain.items() if name in known})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StateError(
            f"{where}: the progress record is unreadable",
            fix="find out what wrote it; use another name of the sink",
        ) from error
    if version != _VERSION:
        raise StateError(f"{where}: the progress record has version {version}", fix="use a newer eomirror")
    return progress
