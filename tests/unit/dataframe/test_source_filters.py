"""What filters of a query leave to read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
    StringContains,
)

from eomirror.dataframe.filters import Restriction


def pushed(*filters: Any) -> tuple[Restriction, list[Any]]:
    return Restriction().pushed(list(filters))


def test_topics_and_partitions_are_chosen() -> None:
    """Two filters of a column hold both."""
    found, left = pushed(In(("topic",), ("a", "b")), EqualTo(("topic",), "b"), EqualTo(("partition",), 3))
    assert left == []
    assert found.takes(("b", 3))
    assert not found.takes(("a", 3))
    assert not found.takes(("b", 2))


def test_offsets_are_bounded() -> None:
    """The bounds of both sides hold, and an empty range stays within the log."""
    found, left = pushed(
        GreaterThan(("offset",), 9), LessThan(("offset",), 20), LessThanOrEqual(("offset",), 17)
    )
    assert left == []
    assert found.offsets(0, 100) == (10, 18)
    assert found.offsets(50, 100) == (50, 50)


def test_a_timestamp_is_left_to_spark_as_well() -> None:
    """Records have milliseconds, filters microseconds."""
    moment = datetime(2023, 11, 14, 22, 13, 20, 500_500, tzinfo=UTC)
    filters = [GreaterThanOrEqual(("timestamp",), moment), LessThan(("timestamp",), moment)]
    found, left = pushed(*filters)
    assert left == filters
    assert found.times == (1_700_000_000_500, 1_700_000_000_500)


def test_other_filters_are_spark_s() -> None:
    """Null matches nothing; other columns and kinds are unknown here."""
    filters = [StringContains(("topic",), "a"), EqualTo(("value",), b"x"), EqualTo(("topic",), None)]
    assert pushed(*filters) == (Restriction(), filters)
