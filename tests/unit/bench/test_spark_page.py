"""The oracle and the page of the Spark jobs."""

from __future__ import annotations

from array import array
from dataclasses import replace

import pytest
from bench.spark import VARIANTS, Job, Run, check_output, spark_markdown
from bench.verify import WrongCopyError

WANTED = array("Q", [3, 1, 2**64 - 1])


def test_duplicates_are_counted_or_a_fault() -> None:
    """Spark's sink may write a row twice; ours may not."""
    found = [array("Q", [1, 3]), array("Q", [2**64 - 1, 1])]
    assert check_output(WANTED, [WANTED], once=True) == 0
    assert check_output(WANTED, found, once=False) == 1
    with pytest.raises(WrongCopyError, match="1 are there twice"):
        check_output(WANTED, found, once=True)


@pytest.mark.parametrize("found", [[1, 3], [], [1, 3, 7], [1, 3, 2**64 - 1, 7]])
def test_a_missing_or_foreign_row_is_a_fault(found: list[int]) -> None:
    """For each sink."""
    with pytest.raises(WrongCopyError, match="missing"):
        check_output(WANTED, [array("Q", found)], once=False)


def test_each_variant_stands_beside_sparks() -> None:
    """Rates, CPU, and the ratios of medians."""
    one = Run(
        variant="spark", rows=1_000_000, seconds=10.0, cpu_us=10.0, cpu_us_by_kind={"jvm": 9.5, "driver": 0.5},
        batches=9, whole_seconds=20.0, whole_cpu_us=14.0, memory={"total": 900}, duplicates=0, others_cores=0.1,
    )  # fmt: skip
    page = spark_markdown(Job(1000, 1_000_000), [one, replace(one, variant="both", seconds=5.0, cpu_us=8.0)])
    assert "1,000,000 rows of 1 kB, in batches of 100,000" in page
    assert "| Spark's source and sink | 100,000 | 10.00 | jvm 9.50, driver 0.50 |" in page
    assert "our source and sink: 2.00 times the rows/s of Spark's, 0.80 times the CPU" in page
    assert set(VARIANTS) == {"spark", "source", "sink", "both", "spark-default"}
