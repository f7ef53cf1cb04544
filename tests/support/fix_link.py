"""Fixtures of one link that runs in the test's process: `link`, and `make_link` for several or for other clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster
    from support.judges.ledger import Entry
    from support.links.link import TestLink


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker that gives settings to a test's link."""
    config.addinivalue_line(
        "markers", "link(**settings): settings of the test's link; injected=True if its fault needs no step"
    )


@pytest.fixture
def link_source(east: LocalCluster) -> LocalCluster:
    """The source of links; a module with a cluster of its own replaces it."""
    return east


@pytest.fixture
def link_target(west: LocalCluster) -> LocalCluster:
    """The target of links; a module with a cluster of its own replaces it."""
    return west


@pytest.fixture
def make_link(
    request: pytest.FixtureRequest, topic_name: str, tmp_path: Path, spark_context: Any, entry: Entry
) -> Callable[..., TestLink]:
    """Makes a link of the test's own: `reads` and `writes` are client properties in place of the two clusters'."""
    from support.links.link import TestLink

    marker = request.node.get_closest_marker("link")
    marked: dict[str, Any] = dict(marker.kwargs) if marker is not None else {}
    if marked.pop("injected", False):
        entry.injected()

    def make(*, reads: Any = None, writes: Any = None, called: str = topic_name, **settings: Any) -> TestLink:
        source = reads or request.getfixturevalue("link_source").client_properties
        target = writes or request.getfixturevalue("link_target").client_properties
        return TestLink(source, target, called, tmp_path, spark_context, entry, **{**marked, **settings})

    return make


@pytest.fixture
def link(make_link: Callable[..., TestLink]) -> TestLink:
    """A link named after the test's unique topic name."""
    return make_link()
