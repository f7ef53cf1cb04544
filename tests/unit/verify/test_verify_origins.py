"""Ids of the clusters whose records a link forwards, for a comparison that runs beside the mirror."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

from eomirror.config import Link
from eomirror.topology.flow import LoopRules
from eomirror.verify.scope import with_origins


def test_a_link_that_forwards_other_clusters_records_can_tell_them_apart() -> None:
    """Each of its origins is asked once, but for its own source, whose id the comparison asks itself."""
    clusters: Any = {"a": "cluster a", "b": "cluster b", "c": "cluster c"}
    link = replace(
        Link(name="b->c", source="b", target="c", topics=(".*",)),
        loops=LoopRules(provenance_header=True, guard=True, origins=("a", "b")),
    )
    asked: list[tuple[str, str]] = []

    def identify_cluster(cluster: object, *, client_id: str) -> str:
        asked.append((cast("str", cluster), client_id))
        return f"id of {cluster}"

    known = with_origins(link, clusters, identify_cluster)
    assert known.origin_ids("b", "id-b") == ["id of cluster a", "id-b"]
    assert [cluster for cluster, _ in asked] == ["cluster a"]
    assert "verify" in asked[0][1]
    assert with_origins(replace(link, loops=LoopRules()), clusters, identify_cluster).cluster_ids == {}
    assert len(asked) == 1
