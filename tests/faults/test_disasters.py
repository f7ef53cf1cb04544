"""
Seeded disasters: the source is lost under transactional load; mirror, command and brokers are killed at random.

Java's own consumer judges.  CI runs three disasters in one batch, the slow run a hundred in batches of ten
(``EOMIRROR_DISASTERS``).  ``EOMIRROR_SEED`` repeats them, and each prints its fate.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from support.judges.java_judge import JavaJudge, java_judge
from support.links.disasters import Batch, drawn

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.faults, pytest.mark.integration, pytest.mark.spark]

_CI, _TEN = 3, 10
_BATCHES = int(os.environ.get("EOMIRROR_DISASTERS", "100")) // _TEN


@pytest.fixture(scope="module")
def judge() -> Iterator[JavaJudge]:
    """Java's consumer, in one JVM for all disasters."""
    with java_judge() as made:
        yield made


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("first", "count"),
    [
        pytest.param(0, _CI, id="ci"),
        *(
            pytest.param(n * _TEN, _TEN, id=f"from-{n * _TEN}", marks=pytest.mark.slow)
            for n in range(_BATCHES)
        ),
    ],
)
def test_nothing_is_lost_beyond_the_cut_and_nothing_comes_twice(
    east: Any,
    west: Any,
    topic_name: str,
    tmp_path: Path,
    spark_context: Any,
    judge: JavaJudge,
    seed: int,
    first: int,
    count: int,
) -> None:
    """Copies are a prefix of the source; every orphan is found and merged once; groups resume at their record."""
    fates = [drawn(seed, number) for number in range(first, first + count)]
    for fate in fates:
        print(f"seed {seed}: {fate}")  # noqa: T201  shown with a failure: what happened
    Batch(
        east, west, f"disasters-{topic_name.rpartition('-')[2]}", tmp_path, spark_context, fates, judge
    ).run()
