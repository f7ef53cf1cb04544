"""Sinks of Spark queries as links: their progress records are positions."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from eomirror.errors import UnreachableError
from eomirror.kafka.compacted_topic import LogRecord
from eomirror.records.sink_progress import PROGRESS_TOPIC, SinkProgress
from eomirror.status.sinks import OneSink, SinkReader, ends_of, newest_progress, sink_link, sink_status
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


def cluster(**ends: int) -> Any:
    """The session of a cluster that has topics with one partition, and these ends."""
    return SimpleNamespace(
        admin=SimpleNamespace(
            describe_topics=lambda topics: {
                topic: SimpleNamespace(partitions=1) if topic in ends else None for topic in topics
            },
            offsets=lambda wanted, **_: {one: ends[one.topic] for one in wanted},
        )
    )


@pytest.mark.parametrize(
    ("clusters", "end"),
    [
        ([cluster(orders=60), cluster(users=90)], 60),
        # it has fewer records than the query has read
        ([cluster(orders=60), cluster(orders=40)], 60),
        ([cluster(orders=60), cluster(orders=70)], None),
        ([cluster(users=90)], None),
        ([], None),
    ],
)
def test_offsets_belong_to_the_one_cluster_that_has_their_partitions(
    clusters: list[Any], end: int | None
) -> None:
    found = ends_of(clusters, {"orders": {"0": 50}})

    assert found == (None if end is None else {SourcePartition("orders", 0): end})


def test_sinks_of_one_reader_read_the_clusters_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The page asks for each sink; the topic of their progress is long."""
    states = newest_progress([record("a"), record("b")])
    reads: list[int] = []

    def read() -> list[Any]:
        reads.append(1)
        return [sink_status(state, "west", None, NOW) for state in states]

    reader = SinkReader({})
    monkeypatch.setattr(reader, "read", read)

    shown = [OneSink(reader, sink_link(name, "west")).read().link for name in ("a", "b")]
    with pytest.raises(UnreachableError, match="no progress of it"):
        OneSink(reader, sink_link("c", "west")).read()

    assert shown == ["sink a on west", "sink b on west"]
    assert reads == [1]
