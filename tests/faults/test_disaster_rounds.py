"""
Seeded rounds of disaster: logs of both sides lose their ends, applications write on, and the link returns.

Java's own consumer judges.  CI runs one batch of fixed seed, the slow run 200 rounds in batches of six
(``EOMIRROR_ROUNDS``).  ``EOMIRROR_SEED`` repeats them, and each round is printed.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from support.judges.java_judge import JavaJudge, java_judge
from support.links.disaster_rounds import Rounds, drawn_round
from support.links.plane import kafka_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.faults, pytest.mark.fault("F20"), pytest.mark.integration, pytest.mark.spark,
    pytest.mark.timeout(1200),
]  # fmt: skip

_CI_SEED, _CI, _SIX = 35, 2, 6
_ROUNDS = int(os.environ.get("EOMIRROR_ROUNDS", "200"))


@pytest.fixture(scope="module")
def clusters() -> Iterator[tuple[LocalCluster, LocalCluster]]:
    """Source and target, whose logs lose their ends."""
    with (
        LocalCluster.start(ClusterSpec("rounds-east", kafka_version=kafka_of("east"))) as east,
        LocalCluster.start(ClusterSpec("rounds-west", kafka_version=kafka_of("west"))) as west,
    ):
        yield east, west


@pytest.fixture(scope="module")
def judge() -> Iterator[JavaJudge]:
    """Java's consumer, in one JVM for all rounds."""
    with java_judge() as made:
        yield made


def play(
    clusters: tuple[LocalCluster, LocalCluster], name: str, folder: Path, spark: Any, judge: JavaJudge,
    seed: int, numbers: range,
) -> None:  # fmt: skip
    """Play the rounds of a seed."""
    rounds = [drawn_round(seed, number) for number in numbers]
    for each in rounds:
        print(f"seed {seed}: {each}")  # noqa: T201  shown with a failure: what happened
    Rounds(*clusters, f"r-{name.rpartition('-')[2]}", folder, spark, rounds, judge).run()


def test_fixed_rounds_lose_nothing_that_was_not_counted(
    clusters: tuple[LocalCluster, LocalCluster], topic_name: str, tmp_path: Path, spark_context: Any,
    judge: JavaJudge,
) -> None:  # fmt: skip
    """The same rounds in every run."""
    play(clusters, topic_name, tmp_path, spark_context, judge, _CI_SEED, range(_CI))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, _ROUNDS, _SIX))
def test_nothing_is_lost_that_was_not_counted_and_nothing_comes_twice(
    clusters: tuple[LocalCluster, LocalCluster], topic_name: str, tmp_path: Path, spark_context: Any,
    judge: JavaJudge, seed: int, first: int,
) -> None:  # fmt: skip
    """Every acknowledged record ends on both sides once, or was counted as lost, exported or kept."""
    numbers = range(first, min(first + _SIX, _ROUNDS))
    play(clusters, topic_name, tmp_path, spark_context, judge, seed, numbers)
