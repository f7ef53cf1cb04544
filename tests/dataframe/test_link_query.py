"""The query of a link on rows of a local session: what it may look at, and what its rows carry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from eomirror.config.transform import Rule
from eomirror.dataframe.query import HIDDEN, link_rows, queried
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.spark]

_SCHEMA = (
    "key BINARY, value BINARY, topic STRING, partition INT, offset BIGINT, timestamp TIMESTAMP, timestampType INT, "
    "headers ARRAY<STRUCT<key: STRING, value: BINARY>>"
)


@pytest.fixture
def records(spark_session: Any) -> Any:
    """Six records of two topics with two partitions."""
    rows = [
        (b"k%d" % n, b'{"n": %d}' % n, "orders" if n % 2 else "payments", n % 3, n, None, 0, [("h", b"x")])
        for n in range(6)
    ]
    return spark_session.createDataFrame(rows, _SCHEMA)


def sql(text: str) -> Rule:
    """A statement as a link has it."""
    return Rule(kind="sql", query=text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("SELECT key, value, headers, timestamp FROM records WHERE offset >= 4", [4, 5]),
        ("SELECT * FROM records WHERE topic = 'orders'", [1, 3, 5]),
        ("SELECT value FROM (SELECT value, offset AS at FROM records) WHERE at < 2", [0, 1]),
        ("SELECT r.value FROM records r WHERE get_json_object(string(r.value), '$.n') = '3'", [3]),
        ("SELECT value FROM (SELECT * FROM records) AS part WHERE partition = 2", [2, 5]),
        (
            "SELECT value FROM records LATERAL VIEW explode(array(1, 2)) each AS twice WHERE offset = 1",
            [1, 1],
        ),
    ],
)
def test_rows_of_a_statement_keep_topic_and_partition_of_their_records(
    records: Any, text: str, kept: list[int]
) -> None:
    found = queried(sql(text), records).collect()

    told = sorted((bytes(row["value"]), row[HIDDEN[0]], row[HIDDEN[1]]) for row in found)
    assert told == sorted((b'{"n": %d}' % n, "orders" if n % 2 else "payments", n % 3) for n in kept)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT DISTINCT value FROM records", "Distinct"),
        ("SELECT value FROM records ORDER BY offset", "Sort"),
        ("SELECT value FROM records LIMIT 1", "Limit"),
        ("SELECT key, max(value) AS value FROM records GROUP BY key", "Aggregate"),
        ("SELECT max(value) AS value FROM records", "."),
        ("SELECT value, row_number() OVER (ORDER BY offset) AS key FROM records", "Window"),
        ("SELECT a.value FROM records a JOIN records b ON a.key = b.key", "Join"),
        ("SELECT value FROM records WHERE key IN (SELECT key FROM records)", "subquery"),
        ("SELECT value FROM orders", "no table orders"),
        ("SELECT key FROM records", "no column value"),
        ("SELECT value, offset AS at FROM records", "column at has no meaning"),
        ("SELECT wrong FROM records", "wrong"),
        ("SELECT value FROM records WHERE (", "."),
    ],
)
def test_a_statement_that_looks_at_several_records_or_gives_no_record_is_refused(
    records: Any, text: str, reason: str
) -> None:
    with pytest.raises(UsageError, match=reason) as refused:
        queried(sql(text), records).collect()
    assert refused.value.fix


def test_a_row_goes_to_the_partition_of_its_record_where_the_target_has_it(records: Any) -> None:
    rows = queried(sql("SELECT value FROM records"), records)
    found = link_rows(
        rows, {"orders": "east.orders", "payments": "east.payments"}, {"orders": 3, "payments": 2}
    ).collect()

    placed = {bytes(row["value"]): (row["topic"], row["partition"]) for row in found}
    assert placed == {
        b'{"n": %d}' % n: (
            ("east.orders", n % 3) if n % 2 else ("east.payments", n % 3 if n % 3 < 2 else None)
        )
        for n in range(6)
    }


def keep_odd(batches: Iterator[Any]) -> Iterator[Any]:
    """Records with an odd offset, their values in upper case."""
    import pyarrow.compute as pc

    for batch in batches:
        odd = batch.filter(pc.equal(pc.bit_wise_and(batch["offset"], 1), 1))
        values = pc.utf8_upper(odd["value"].cast("string"))
        yield odd.set_column(odd.schema.get_field_index("value"), "value", values)


def without_topic(batches: Iterator[Any]) -> Iterator[Any]:
    """Rows that do not tell where they come from."""
    for batch in batches:
        yield batch.select(["key", "value"])


def test_a_function_gets_and_gives_arrow_batches(records: Any) -> None:
    found = queried(Rule(kind="python", query="test_link_query:keep_odd"), records).collect()

    assert sorted(bytes(row["value"]) for row in found) == [b'{"N": 1}', b'{"N": 3}', b'{"N": 5}']
    assert {row[HIDDEN[0]] for row in found} == {"orders"}
    assert all(row["headers"][0]["key"] == "h" for row in found)


def test_a_function_that_drops_the_topic_is_named(records: Any) -> None:
    rows = queried(Rule(kind="python", query="test_link_query:without_topic"), records)
    with pytest.raises(Exception, match="returns no column topic"):
        rows.collect()
