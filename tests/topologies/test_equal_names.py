"""Equal names on several clusters: every record reaches every cluster once, and none goes round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

from eomirror import Mirror, load_config
from eomirror.demo.cluster import ClusterSpec, LocalCluster
from records import create_topic, produce, read_committed, some_records, wait_for
from rig.mirrors import running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark]

_PARTITIONS = 2
_RECORDS = 200

# on a ring of links the third cluster is two hops away; the star's leaves meet through their hub alone
_SHAPES = {
    "both ways": [("a", "b"), ("b", "a")],
    "full mesh": [("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b")],
    "hub and leaves": [("a", "b"), ("b", "a"), ("a", "c"), ("c", "a")],
    "ring": [("a", "b"), ("b", "c"), ("c", "a")],
}


@pytest.fixture(scope="module")
def clusters(east: LocalCluster, west: LocalCluster) -> Iterator[dict[str, Mapping[str, Any]]]:
    """Three clusters: the session's two, and one more."""
    with LocalCluster.start(ClusterSpec("north")) as north:
        yield {
            "a": dict(east.client_properties),
            "b": dict(west.client_properties),
            "c": dict(north.client_properties),
        }


def bare(records: Mapping[int, Sequence[Any]]) -> dict[int, list[Any]]:
    """Records as a multiset per partition: several origins interleave as they come."""
    return {number: sorted(records.get(number, ()), key=repr) for number in range(_PARTITIONS)}


@pytest.mark.parametrize("shape", sorted(_SHAPES))
def test_every_record_reaches_every_cluster_once(
    shape: str, clusters: Mapping[str, Any], topic_name: str, tmp_path: Path, spark_context: Any
) -> None:
    """EO-11 and the loop guard: the union of all origins everywhere, once, also after time to go round again."""
    links = _SHAPES[shape]
    aliases = sorted({alias for link in links for alias in link})
    path = tmp_path / "mirror.yaml"
    path.write_text(
        yaml.safe_dump(
            {
                "clusters": {alias: dict(clusters[alias]) for alias in aliases},
                "links": [
                    {
                        "name": f"{topic_name}-{source}-{target}",
                        "source": source,
                        "target": target,
                        "topics": [topic_name],
                        "naming": "identity",
                        "lanes": 1,
                    }
                    for source, target in links
                ],
            }
        )
    )
    path.chmod(0o600)
    everything: dict[int, list[Any]] = {number: [] for number in range(_PARTITIONS)}
    for seed, alias in enumerate(aliases):
        create_topic(clusters[alias], topic_name, _PARTITIONS)
        written = produce(
            clusters[alias],
            topic_name,
            _PARTITIONS,
            some_records(40 + seed, _RECORDS),
            transactional_id=f"{topic_name}-{alias}",
        )
        for number, records in written.items():
            everything[number] += records
    wanted = bare(everything)

    def arrived(alias: str) -> bool:
        found = read_committed(clusters[alias], topic_name)
        return sum(map(len, found.values())) >= sum(map(len, wanted.values()))

    with running(Mirror(load_config(path), spark=spark_context)):
        for alias in aliases:
            wait_for(lambda alias=alias: arrived(alias), 90)
        # a record that goes round comes back within a few commits; one more record per cluster makes sure that
        # the links have had a reason to move since
        for seed, alias in enumerate(aliases):
            last = produce(
                clusters[alias], topic_name, _PARTITIONS, some_records(60 + seed, 20), transactional_id=alias
            )
            for number, records in last.items():
                everything[number] += records
        wanted = bare(everything)
        for alias in aliases:
            wait_for(lambda alias=alias: arrived(alias), 60)

    assert {alias: bare(read_committed(clusters[alias], topic_name)) for alias in aliases} == dict.fromkeys(
        aliases, wanted
    )
