"""Sinks of Spark queries as links: their progress records are positions."""

from __future__ import annotations

import json
from typing import Any

from eomirror.kafka.compacted_topic import LogRecord
from eomirror.records.sink_progress import PROGRESS_TOPIC, SinkProgress
from eomirror.status.sinks import newest_progress, sink_status
from eomirror.types import SourcePartition

NOW = 1_800_000_000_000


def record(key: str, **facts: Any) -> LogRecord:
    """A record of the progress topic."""
    given = {"query": "q", "batch": 4, "rows": 10, "bytes": 100, "digest": "0" * 16, "timestamp": NOW - 5_000}
    text = SinkProgress(**{**given, **facts}).as_text()
    return LogRecord(PROGRESS_TOPIC, 0, 0, key.encode(), text.encode())


def test_the_newest_record_of_each_sink_counts() -> None:
    states = newest_progress([record("a", batch=3), record("b", batch=1), record("a", batch=4, rows=7)])

    assert [(one.name, one.newest.batch, one.rows) for one in states] == [("a", 4, 7), ("b", 1, 10)]


def test_rows_of_the_last_batch_are_summed_over_the_partitions_of_a_sink() -> None:
    """A partition that the last batch did not write has an earlier record."""
    states = newest_progress(
        [record("a/t-0", rows=3), record("a/t-1", rows=4), record("a/t-2", batch=3, timestamp=NOW - 9_000)]
    )

    assert [(one.name, one.newest.batch, one.rows) for one in states] == [("a", 4, 7)]


def test_a_removed_sink_is_not_shown() -> None:
    assert newest_progress([record("a"), LogRecord(PROGRESS_TOPIC, 0, 1, b"a", None)]) == []


def test_source_offsets_are_positions_whose_lag_is_known_where_their_ends_are() -> None:
    (state,) = newest_progress([record("a", sources={"orders": {"0": 50, "1": 20}})])
    ends = {SourcePartition("orders", 0): 60, SourcePartition("orders", 1): 20}

    known, unknown = (sink_status(state, "west", found, NOW) for found in (ends, None))

    assert (known.link, known.state, known.lag_records) == ("sink a on west", "running", 10)
    assert [(one.partition, one.position, one.lag_records) for one in known.partitions] == [
        (0, 50, 10),
        (1, 20, 0),
    ]
    assert unknown.lag_records is None
    assert "batch 4 of query q, 10 rows, 5 s ago" in known.remark
    assert json.dumps(known.as_dict())


def test_a_sink_that_knows_no_source_offsets_has_no_lag() -> None:
    (state,) = newest_progress([record("a")])

    found = sink_status(state, "west", None, NOW)

    assert found.lag_records is None
    assert "source offsets are not known" in found.remark
