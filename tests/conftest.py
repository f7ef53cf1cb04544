"""Fixtures for all tests.  They live in ``fix_*.py`` files, one for each thing that a test may need."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.links.plane import PLANES, SOURCE_VARIABLE, TARGET_VARIABLE, VARIABLE, kafka_of, plane_under_test

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

# exit code of a session in which a judge found wrong data: CI repeats no test then (scripts/ci.py)
_JUDGED = 9
_WRONG_DATA = pytest.StashKey[bool]()
_JUDGES = frozenset({"judge", "check_generations"})
_MODULES_OF_JUDGES = frozenset({"audited", "java_judge", "translated"})

pytest_plugins = ["support.fix_kafka", "support.fix_link", "support.fix_rig", "support.fix_spark"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """One suite, two planes."""
    parser.addoption(
        "--plane", choices=PLANES, help=f"what moves the bytes of mirrors (default: ${VARIABLE}, or client)"
    )
    parser.addoption(
        "--source-kafka", help=f"Kafka of the clusters that links read from (${SOURCE_VARIABLE})"
    )
    parser.addoption("--target-kafka", help=f"Kafka of the clusters that links write to (${TARGET_VARIABLE})")


def pytest_configure(config: pytest.Config) -> None:
    """Programs that tests start are to use the same plane, and brokers that spend less on their start."""
    # a broker of a test lives for seconds: what the second compiler does takes more than it gives back
    os.environ.setdefault("KAFKA_JVM_PERFORMANCE_OPTS", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    if chosen := config.getoption("--plane"):
        os.environ[VARIABLE] = chosen
    if kafka := config.getoption("--target-kafka"):
        os.environ[TARGET_VARIABLE] = kafka
    if kafka := config.getoption("--source-kafka"):
        os.environ[SOURCE_VARIABLE] = kafka


def pytest_report_header() -> str:
    """Say which plane is tested, between which brokers."""
    return f"plane: {plane_under_test()}, source: Kafka {kafka_of('east')}, target: Kafka {kafka_of('west')}"


def pytest_collection_modifyitems(items: Iterable[pytest.Item]) -> None:
    """What only the client plane has is not asked of the other one."""
    if plane_under_test() == "client":
        return
    for item in items:
        if mark := item.get_closest_marker("client_plane"):
            item.add_marker(pytest.mark.skip(reason=f"client plane only: {mark.args[0]}"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note a failure that comes from a judge of data."""
    report = yield
    if report.failed and call.excinfo is not None:
        # a judge may wait as well, which raises in what it calls
        last = call.excinfo.traceback[-1]
        if last.name in _JUDGES or Path(last.path).stem in _MODULES_OF_JUDGES:
            item.config.stash[_WRONG_DATA] = True
    return report


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Say by the exit code whether failed tests may be repeated."""
    if session.config.stash.get(_WRONG_DATA, False):
        session.exitstatus = _JUDGED
