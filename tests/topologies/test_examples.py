"""Each example in docs/examples runs on real clusters: every record once where its page says, in its source's order."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from confluent_kafka.admin import AdminClient

from eomirror import Mirror, load_config
from support.links.example_scenarios import SCENARIOS
from support.links.example_site import ExampleSite, emptied, three_clusters
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_KILLS = 2
# between two kills, in offsets of positions topics: claims of all lanes take less
_COMMITS = 60
# two starts of Spark and three clusters on a busy machine
_COPY_SECONDS = 180.0


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
    [pytest.param(name, marks=() if each.quick else pytest.mark.slow) for name, each in SCENARIOS.items()],
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
    site.assert_equal()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", SCENARIOS)
def test_an_example_keeps_what_its_page_says_though_its_mirror_is_killed(
    name: str, clusters: list[dict[str, Any]], tmp_path: Path
) -> None:
    """
    All processes of the mirror get kill -9 twice while applications write.

    Every record is on every cluster that should have it, once, in the order of its source partition.
    """
    site = ExampleSite(name, clusters, tmp_path, plane=plane_under_test())
    mirror = site.mirror(tmp_path / "mirror")
    site.write(1)
    try:
        with site.writing():
            for _ in range(_KILLS):
                enough = site.commits() + _COMMITS
                mirror.start()
                wait_for(lambda enough=enough: mirror.check() or site.commits() > enough, _COPY_SECONDS)
                mirror.kill()
        mirror.start()
        wait_for(lambda: mirror.check() or site.whole(), _COPY_SECONDS)
        site.assert_copies()
        # a record that goes round would come back with one of these
        site.write(2)
        wait_for(lambda: mirror.check() or site.whole(), _COPY_SECONDS)
        mirror.stop(aborted=True)
    finally:
        mirror.close()
    site.assert_copies()
    site.assert_reads()
    site.assert_equal()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ["active-active", "active-active-three", "hub-and-spoke"])
def test_a_topic_of_one_cluster_is_brought_to_the_others(
    name: str, clusters: list[dict[str, Any]], tmp_path: Path
) -> None:
    """The links whose sources lack the topic wait until another link has created it there; none fails."""
    site = ExampleSite(name, clusters, tmp_path, plane=plane_under_test())
    where, partitions = list(site.scenario.writes.items())[-1]
    site.scenario = dataclasses.replace(
        site.scenario, writes={where: partitions}, holds={copy: [where] for copy in site.scenario.holds}
    )
    site.write(1)
    with contextlib.closing(site.mirror(tmp_path / "mirror")) as mirror:
        mirror.start()
        wait_for(lambda: mirror.check() or site.whole(), _COPY_SECONDS)
        site.write(2)
        wait_for(lambda: mirror.check() or site.whole(), _COPY_SECONDS)
        mirror.stop(aborted=True)
    site.assert_copies()
    site.assert_equal()


def names(properties: dict[str, Any]) -> set[str]:
    """Topics of a cluster that applications read."""
    found = AdminClient(properties).list_topics(timeout=15).topics
    return {name for name in found if name.endswith("orders")}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_prefix_mesh_of_all_topics_has_copies_of_copies_until_the_exclude_of_check_is_taken(
    clusters: list[dict[str, Any]], tmp_path: Path, spark_context: Any
) -> None:
    """
    Three clusters, six links, `.*`: with the `exclude` of each warning every cluster has one copy of each topic.

    Without it, copies are mirrored onward, as the warning says.
    """
    properties = dict(zip("abc", clusters, strict=True))
    path = tmp_path / "mesh.yaml"
    links: list[dict[str, Any]] = [
        {"source": source, "target": target, "topics": [".*"], "lanes": 1, "plane": plane_under_test(),
         "heartbeats": "off", "groups": []}
        for source, target in itertools.permutations("abc", 2)
    ]  # fmt: skip

    def checked() -> list[dict[str, Any]]:
        path.write_text(yaml.safe_dump({"clusters": properties, "links": links}))
        path.chmod(0o600)
        done = subprocess.run(
            [sys.executable, "-m", "eomirror", "check", str(path), "-o", "json"],
            capture_output=True, text=True, timeout=60, check=True,
        )  # fmt: skip
        warnings: list[dict[str, Any]] = json.loads(done.stdout)["warnings"]
        return warnings

    def caught_up() -> None:
        # a copy that this run creates is a source topic of the next one
        for _ in range(3):
            with Mirror(load_config(path), spark=spark_context) as mirror:
                assert mirror.run(until="caught-up").exit_code == 0

    written = {}
    for seed, (alias, cluster) in enumerate(properties.items()):
        create_topic(cluster, "orders", 2)
        records = some_records(seed, 200)
        written[alias] = produce(cluster, "orders", 2, records, transactional_id=f"writer-{alias}")
    warnings = checked()
    assert len(warnings) == len(links)
    for link, warning in zip(links, warnings, strict=True):
        assert "has the same records as" in warning["message"]
        offered = re.search(r"exclude: \['(.*)'\]", warning["fix"])
        assert offered is not None
        link["exclude"] = [offered[1]]

    assert checked() == []
    caught_up()

    for alias, cluster in properties.items():
        others = sorted(set(properties) - {alias})
        assert names(cluster) == {"orders", *(f"{other}.orders" for other in others)}
        for other in others:
            assert read_committed(cluster, f"{other}.orders") == written[other]

    for link in links:
        del link["exclude"]
    assert len(checked()) == len(links)
    caught_up()

    # as the warning says: on c, b.a.orders has the same records as a.orders
    for one, other, third in itertools.permutations("abc", 3):
        copy = f"{other}.{one}.orders"
        assert copy in names(properties[third])
        assert read_committed(properties[third], copy) == written[one]
