"""Fixtures of the fault rig: clusters behind proxies, how much and how often, and what came of it."""

from __future__ import annotations

import os
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from support.clusters.rig import Bare, Pair, Rig
from support.judges.ledger import Entry, append_entry

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Generator, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from eomirror.localkafka.cluster import LocalCluster
    from support.links.scene import Scene

    SceneInto = Callable[[Bare], AbstractContextManager[Scene]]

REPEATS = int(os.environ.get("EOMIRROR_REPEATS", "2"))
"""How often a test repeats a seeded fault; ``EOMIRROR_REPEATS=200`` for a long run."""

RECORDS = int(os.environ.get("EOMIRROR_FAULT_RECORDS", "4000"))
"""How many records a fault test writes at least; up to a million in a long run."""

RATE = float(os.environ.get("EOMIRROR_FAULT_RATE", "500"))
"""Records per second of a scene that asks for no rate of its own."""

_MOST_OF_A_SCENE = 20_000
_OUTCOME = pytest.StashKey[str]()

# compaction is waited for in tests; by default the cleaner looks every 15 s
_BROKER = {"log.cleaner.backoff.ms": "500"}


def pytest_configure(config: pytest.Config) -> None:
    """Declare the marker that ties a test to the faults it injects."""
    config.addinivalue_line("markers", "fault(*ids): injects these faults of docs/faults.md")
    config.addinivalue_line("markers", "scene(**options): arguments of the rig's Scene for this test")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """``EOMIRROR_FAULT_ONLY=F3,F5`` leaves only tests of these faults."""
    wanted = set(filter(None, os.environ.get("EOMIRROR_FAULT_ONLY", "").split(",")))
    if not wanted:
        return
    kept = [item for item in items if wanted & set(_faults(item))]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(kept)])
    items[:] = kept


def _faults(item: pytest.Item) -> tuple[str, ...]:
    marker = item.get_closest_marker("fault")
    return marker.args if marker is not None else ()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Remember how a test ended, and say how a failed one is repeated."""
    report = yield
    if call.when == "call" or report.skipped:
        item.stash[_OUTCOME] = "xfailed" if hasattr(report, "wasxfail") and report.skipped else report.outcome
    if report.failed and _faults(item):
        seed = os.environ.get("EOMIRROR_SEED", "")
        report.sections.append(("replay", f"EOMIRROR_SEED={seed} just faults-replay '{item.nodeid}'"))
    return report


@pytest.fixture
def entry(request: pytest.FixtureRequest, seed: int) -> Iterator[Entry]:
    """The line of the ledger that this test fills."""
    made = Entry(faults=_faults(request.node), test=request.node.nodeid, seed=seed)
    began = time.monotonic()
    yield made
    made.seconds = round(time.monotonic() - began, 1)
    made.outcome = request.node.stash.get(_OUTCOME, made.outcome)
    if made.faults:
        append_entry(made)


@pytest.fixture(autouse=True)
def _entered(request: pytest.FixtureRequest) -> None:
    """Every test of a fault has its line, also if it counts nothing itself."""
    if _faults(request.node):
        request.getfixturevalue("entry")


@pytest.fixture(scope="session")
def session_rig() -> Iterator[Rig]:
    """The session's rig; a side that no test asks for never starts."""
    rig = Rig(properties=_BROKER)
    yield rig
    rig.close()


@pytest.fixture
def rig(session_rig: Rig, seed: int, request: pytest.FixtureRequest) -> Iterator[Rig]:
    """The rig, whole again for each test: no rules, no connections, randomness of this test's own."""
    session_rig.reset(f"{seed}/{request.node.nodeid}")
    yield session_rig
    trouble = session_rig.trouble()
    session_rig.reset("")
    assert not trouble, trouble


def _made(request: pytest.FixtureRequest, spark: Any) -> Scene:
    from support.links.scene import Scene

    value = request.getfixturevalue
    marker = request.node.get_closest_marker("scene")
    options = {"rate": RATE, **(marker.kwargs if marker is not None else {})}
    # a scene of its own rate is about something else than numbers, and a million takes a test of its own
    options.setdefault("records", min(RECORDS, _MOST_OF_A_SCENE) if options["rate"] >= RATE else 0)
    return Scene(
        value("rig"),
        value("topic_name"),
        seed=value("rng").getrandbits(32),
        entry=value("entry"),
        folder=value("tmp_path"),
        spark=spark,
        **options,
    )


@pytest.fixture
def scene(request: pytest.FixtureRequest, spark_context: Any) -> Iterator[Scene]:
    """A link of this test's own; mirrors in this process run on the session's Spark context."""
    made = _made(request, spark_context)
    yield made
    made.close()


@pytest.fixture
def scene_into(
    east: LocalCluster, tmp_path: Path, topic_name: str, rng: random.Random, entry: Entry
) -> SceneInto:
    """Makes a link into a cluster of the test's own, without proxies; its mirrors are the real command."""
    from support.links.scene import Scene

    @contextmanager
    def into(target: Bare) -> Iterator[Scene]:
        pair, seed = Pair(Bare(east), target), rng.getrandbits(32)
        made = Scene(pair, topic_name, seed=seed, entry=entry, folder=tmp_path)
        try:
            yield made
        finally:
            made.close()

    return into


@pytest.fixture
def command_scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A link of this test's own; its mirrors are the real command, in processes of their own."""
    made = _made(request, None)
    yield made
    made.close()
