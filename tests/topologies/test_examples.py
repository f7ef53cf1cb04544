"""Each example in docs/examples runs on real clusters: every record once where its page says, in its source's order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.example_scenarios import SCENARIOS
from support.example_site import ExampleSite, emptied, three_clusters
from support.plane import plane_under_test

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]


@pytest.fixture(scope="module")
def started() -> Iterator[list[dict[str, Any]]]:
    """Client properties of three clusters that all examples share."""
    with three_clusters() as clusters:
        yield clusters


@pytest.fixture
def clusters(started: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The clusters, without what an earlier example left."""
    for properties in started:
        emptied(properties)
    return started


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if scenario.quick else [pytest.mark.slow])
        for name, scenario in SCENARIOS.items()
    ],
)
def test_an_example_does_what_its_page_says(
    name: str, clusters: list[dict[str, Any]], tmp_path: Path, spark_context: Any
) -> None:
    """
    Records that were there before, and records that come between two runs, arrive exactly once on each cluster.

    `verify` finds each link equal; consumers read what the page promises.
    """
    site = ExampleSite(name, clusters, tmp_path, plane=plane_under_test())
    site.write(1)
    site.read_half()
    site.run(spark_context)
    site.assert_copies()
    site.assert_group()

    site.write(2)
    site.run(spark_context)
    site.assert_copies()
    site.assert_reads()
    verdicts = [link["verdict"] for link in site.command("verify")["links"]]
    assert set(verdicts) == {"equal"}
