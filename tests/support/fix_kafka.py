"""
Embedded Kafka for tests: two clusters for the whole session, more on demand, and the run's seed.

Every cluster ends with the session, or with this process, however it ends.
"""

from __future__ import annotations

import importlib.metadata
import itertools
import os
import random
import re
import secrets
from typing import TYPE_CHECKING

import pytest

from eomirror.localkafka.cluster import ClusterSpec, LocalCluster
from eomirror.localkafka.jars import KAFKA_VERSIONS
from support.links.plane import kafka_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SEED = pytest.StashKey[int]()
_counter = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    """Choose the seed once, and hand it to child processes."""
    chosen = int(os.environ.setdefault("EOMIRROR_SEED", str(secrets.randbits(32))), 0)
    config.stash[_SEED] = chosen


def pytest_report_header(config: pytest.Config) -> list[str]:
    """What a failed run needs to be understood and repeated."""
    import confluent_kafka

    return [
        (
            f"kafka: {', '.join(KAFKA_VERSIONS.values())}; librdkafka: {confluent_kafka.libversion()[0]}; "
            f"spark: {importlib.metadata.version('pyspark')}"
        ),
        f"seed: {config.stash[_SEED]} (repeat with EOMIRROR_SEED={config.stash[_SEED]})",
    ]


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """The run's seed."""
    return pytestconfig.stash[_SEED]


@pytest.fixture
def rng(seed: int, request: pytest.FixtureRequest) -> random.Random:
    """A generator of this test's own: the same numbers whichever tests run before."""
    return random.Random(f"{seed}/{request.node.nodeid}")


@pytest.fixture(scope="session")
def east() -> Iterator[LocalCluster]:
    """A cluster to mirror from.  A test that stops its broker starts it again."""
    with LocalCluster.start(ClusterSpec("east", kafka_version=kafka_of("east"))) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def west() -> Iterator[LocalCluster]:
    """A cluster to mirror to.  A test that stops its broker starts it again."""
    with LocalCluster.start(ClusterSpec("west", kafka_version=kafka_of("west"))) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def kafka39() -> Iterator[LocalCluster]:
    """A cluster of the last 3.x line: transaction protocol V1, older request versions."""
    with LocalCluster.start(ClusterSpec("old", kafka_version="3.9")) as cluster:
        yield cluster


@pytest.fixture
def start_cluster() -> Iterator[Callable[[ClusterSpec], LocalCluster]]:
    """Start a cluster for one test; its end removes the brokers and temporary data."""
    started: list[LocalCluster] = []

    def start(spec: ClusterSpec) -> LocalCluster:
        started.append(LocalCluster.start(spec))
        return started[-1]

    yield start
    for cluster in started:
        cluster.destroy()


@pytest.fixture
def topic_name(request: pytest.FixtureRequest) -> str:
    """A topic name that no other test of this session has."""
    words = re.sub(r"[^a-z0-9]+", "-", request.node.name.lower()).strip("-")
    return f"{words[:60]}-{next(_counter)}"
