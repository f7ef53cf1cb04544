"""A mesh with prefixed names that mirrors copies is told, with the `exclude` that ends it."""

from __future__ import annotations

import itertools
import re
import time
from typing import TYPE_CHECKING, Any

import pytest

from eomirror import load_config

if TYPE_CHECKING:
    from eomirror import Config


def config(ways: list[str], excludes: dict[int, list[str]] | None = None, **defaults: Any) -> Config:
    """Prefix links such as ``a>b``, of all topics unless said otherwise."""
    ends = [way.split(">") for way in ways]
    aliases = sorted({alias for pair in ends for alias in pair})
    return load_config(
        {
            "clusters": {alias: {"bootstrap.servers": f"{alias}:1"} for alias in aliases},
            "links": [
                {"source": source, "target": target, "exclude": (excludes or {}).get(number, [])}
                for number, (source, target) in enumerate(ends)
            ],
            "defaults": {"topics": [".*"], **defaults},
        }
    )


def mesh(*aliases: str) -> list[str]:
    return [f"{one}>{other}" for one, other in itertools.permutations(aliases, 2)]


@pytest.mark.parametrize("aliases", ["abc", "abcd"])
def test_each_link_of_a_mesh_is_warned_of_and_the_offered_exclude_ends_it(aliases: str) -> None:
    """Followed literally, the fix leaves each cluster with one copy of each topic, and no further warning."""
    ways = mesh(*aliases)
    warnings = config(ways).warnings
    assert [warning.path for warning in warnings] == [
        f"links[{number}].topics" for number in range(len(ways))
    ]
    offered = {}
    for number, warning in enumerate(warnings):
        found = re.search(r"exclude: \['(.*)'\]", warning.fix)
        assert found is not None
        offered[number] = [found[1]]

    fixed = config(ways, offered)

    assert fixed.warnings == ()
    assert all(link.mirrors("orders") for link in fixed.links)
    others = ((link, alias) for link in fixed.links for alias in aliases if alias != link.source)
    assert not any(link.mirrors(f"{alias}.orders") for link, alias in others)


@pytest.mark.parametrize(
    "ways",
    [["a>b", "b>a"], ["a>b", "b>c", "c>a"], ["a>hub", "b>hub", "hub>a", "hub>b"]],
    ids=["pair", "ring", "hub"],
)
def test_copies_that_arrive_on_one_path_only_are_meant(ways: list[str]) -> None:
    """Records of a reach c through b only, so that b's copies are mirrored is right."""
    assert config(ways).warnings == ()


def test_one_shortcut_in_a_chain_is_enough() -> None:
    """The link that brings the longer copy is named, not the shortcut."""
    (warning,) = config(["a>b", "b>c", "a>c"]).warnings
    assert warning.path == "links[1].topics"
    assert r"exclude: ['a\..*']" in warning.fix


def test_literal_topics_are_no_copies() -> None:
    """Only what the patterns match is mirrored onward."""
    assert config(mesh("a", "b", "c"), topics=["orders"]).warnings == ()


def test_forwarding_of_local_records_only_needs_no_exclude() -> None:
    """The records of copies are dropped by their origin."""
    found = config(mesh("a", "b", "c"), forward="local")
    assert found.warnings == ()
    assert [link.origins for link in found.links] == [(link.source,) for link in found.links]


def test_a_mesh_of_ten_clusters_is_checked_in_a_moment() -> None:
    """The number of paths grows with each cluster; not all of them are followed."""
    start = time.monotonic()
    assert len(config(mesh(*(f"dc{number}" for number in range(10)))).warnings) == 90
    assert time.monotonic() - start < 20
