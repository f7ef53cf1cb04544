"""A link back is added to a copy that is older than it: nothing goes round, and `verify` knows the older records."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror import Mirror, load_config
from eomirror.types import SourcePartition
from support.links.mirrors import running
from support.links.plane import plane_under_test
from support.traffic.records import create_topic, produce, read_committed, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(300)]

_PARTITIONS = 2
_RECORDS = 300


def configured(
    path: Path, clusters: Mapping[str, Any], topic: str, ways: list[tuple[str, str]], **settings: object
) -> Path:
    """A file of links with equal names."""
    links = [
        {
            "name": f"{topic}-{source}-{target}", "source": source, "target": target, "topics": [topic],
            "naming": "identity", "lanes": 1, "plane": plane_under_test(), **settings,
        }
        for source, target in ways
    ]  # fmt: skip
    path.write_text(yaml.safe_dump({"clusters": dict(clusters), "links": links}))
    path.chmod(0o600)
    return path


def verified(path: Path, *words: str) -> dict[str, Any]:
    """The answer of `verify` by link; all are equal."""
    done = subprocess.run(
        [sys.executable, "-m", "eomirror", "verify", str(path), "-o", "json", *words],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    links = {each["link"]: each for each in json.loads(done.stdout)["links"]}
    assert {each["verdict"] for each in links.values()} == {"equal"}
    return links


def count(properties: Mapping[str, Any], topic: str) -> int:
    return sum(map(len, read_committed(properties, topic).values()))


def test_copies_that_are_older_than_the_link_back_are_equal(
    east: LocalCluster, west: LocalCluster, topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """
    East was mirrored to west without a header; then west is mirrored back as well, from where its own records begin.

    Both links add the header from then on.  `verify` finds the older copies in the first link's offset map: they are
    that link's, and no records of west's applications.
    """
    topic = topic_name
    clusters = {"a": dict(east.client_properties), "b": dict(west.client_properties)}
    create_topic(clusters["a"], topic, _PARTITIONS)
    produce(clusters["a"], topic, _PARTITIONS, some_records(1, _RECORDS), transactional_id=f"{topic}-1")
    one_way = configured(tmp_path / "one.yaml", clusters, topic, [("a", "b")])
    Mirror(load_config(one_way), spark=spark_context).run("caught-up")
    held = {number: len(part) for number, part in read_committed(clusters["b"], topic).items()}
    assert sum(held.values()) == _RECORDS

    both = configured(tmp_path / "both.yaml", clusters, topic, [("a", "b"), ("b", "a")])
    config = load_config(both)
    back = Mirror(
        config,
        links=[f"{topic}-b-a"],
        adopt={SourcePartition(topic, number): end + 1 for number, end in held.items()},
        spark=spark_context,
    )
    produce(clusters["b"], topic, _PARTITIONS, some_records(2, 50), transactional_id=f"{topic}-2")
    back.run("caught-up")
    produce(clusters["a"], topic, _PARTITIONS, some_records(3, 50), transactional_id=f"{topic}-3")
    with running(Mirror(config, spark=spark_context)):
        wait_for(lambda: count(clusters["b"], topic) == _RECORDS + 100, 120)
    assert count(clusters["a"], topic) == _RECORDS + 100

    links = verified(both)
    matched = [sum(part["matched"] for part in links[name]["partitions"]) for name in sorted(links)]
    assert matched == [_RECORDS + 50, 50]
    verified(both, "--resume", str(tmp_path / "resume.json"))
