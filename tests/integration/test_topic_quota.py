"""A link under a quota on topic changes (`controller_mutation_rate`) on its target, run by the command (O6)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from eomirror.localkafka.cluster import ClusterSpec
from support.clusters.quotas import limit_topic_changes
from support.judges.java_judge import JavaJudge
from support.links.moving.java import java_gateway
from support.traffic.records import create_topic, produce, some_records, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.timeout(400)]

HELD = re.compile(
    r"the quota on topic changes of cluster west .*holds us back: (\d+) of (\d+) topics created"
)
# state topics, which are validated on a first run, and what a validation of copies may spend
STATE, VALIDATED = 2 * 17, 20
# Spark, the mirror's own start, and two looks at the topics
START_SECONDS = 40.0


class Site(NamedTuple):
    """A target whose user `mirror` has a quota, and the judge's way around it."""

    west: Any
    gateway: Any
    config: str
    names: list[str]
    committed: dict[str, Any]
    rate: float


@pytest.fixture
def site(
    east: Any,
    topic_name: str,
    tmp_path: Path,
    start_cluster: Callable[[ClusterSpec], Any],
    request: pytest.FixtureRequest,
) -> Iterator[Site]:
    """As many topics of three partitions as asked for, and the rate that the target allows."""
    count, rate, link = request.param
    west = start_cluster(ClusterSpec("west", security="sasl_plaintext", users={"mirror": "secret-of-mirror"}))
    names = [f"{topic_name}-{number:02}" for number in range(count)]
    committed = {}
    for name in names:
        create_topic(east.client_properties, name, 3)
        committed[name] = produce(
            east.client_properties, name, 3, some_records(7, 20), transactional_id=topic_name
        )
    path = tmp_path / "mirror.yaml"
    clusters = {"east": dict(east.client_properties), "west": dict(west.client_properties_of("mirror"))}
    document = {
        "clusters": clusters,
        "links": [
            {"source": "east", "target": "west", "name": topic_name, "topics": [f"{topic_name}-.*"], **link}
        ],
    }
    path.write_text(yaml.safe_dump(document))
    path.chmod(0o600)
    if link.get("start") == "latest":
        # none of them is copied
        committed = {name: dict.fromkeys(range(3), ()) for name in names}
    with java_gateway() as gateway:
        limit_topic_changes(gateway, west.internal_servers, "mirror", rate)
        yield Site(west, gateway, str(path), names, committed, rate)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "eomirror", *arguments]


def status(site: Site) -> dict[str, Any]:
    done = subprocess.run(
        command("status", site.config, "-o", "json"), capture_output=True, text=True, timeout=60, check=False
    )
    return dict(json.loads(done.stdout)["links"][0]) if done.returncode == 0 else {}


def check_copies(site: Site) -> None:
    """Java's consumer finds each record once."""
    judge, there = JavaJudge(site.gateway), {"bootstrap.servers": site.west.internal_servers}
    for name in site.names:
        found = judge.read(there, f"east.{name}")
        assert {number: len(records) for number, records in found.items()} == {
            number: len(records) for number, records in site.committed[name].items()
        }


def seconds_of(count: int, rate: float) -> float:
    """What the quota makes of so many topics."""
    return (STATE + VALIDATED + 3 * count - 11 * rate) / rate


@pytest.mark.parametrize(
    "site",
    [(12, 1.0, {}), pytest.param((30, 2.0, {}), marks=pytest.mark.slow)],
    indirect=True,
)  # fmt: skip
def test_topics_flow_while_a_quota_holds_the_others_back(site: Site, tmp_path: Path) -> None:
    """The first copies are written before the last exist; status names the quota with numbers; one run suffices."""
    began = time.monotonic()
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command("run", site.config), stderr=log, start_new_session=True)
    try:
        held = wait_for(lambda: [stop["reason"] for stop in status(site).get("stopped", ())], 90)
        counted = HELD.search(held[0])
        assert counted is not None, held
        assert 0 < int(counted[1]) < int(counted[2]) == len(site.names)

        limit = START_SECONDS + seconds_of(len(site.names), site.rate) - (time.monotonic() - began)
        wait_for(lambda: (found := status(site)).get("lag_records") == 0 and not found["stopped"], limit)
        assert process.poll() is None
    finally:
        process.terminate()
        assert process.wait(30) == 0

    check_copies(site)
    said = (tmp_path / "log").read_text()
    events = [json.loads(line) for line in said.splitlines()]
    assert any(HELD.search(str(event.get("reason"))) for event in events), said
    assert "imed out" not in said
    assert not [event for event in events if event["level"] == "error"], said
    assert not [event for event in events if event["event"] == "topic_left_out"], said


@pytest.mark.parametrize(
    "site",
    [
        pytest.param((12, 2.0, {}), marks=pytest.mark.slow),
        pytest.param((12, 1.0, {"start": "latest"}), marks=pytest.mark.slow),
        pytest.param((30, 2.0, {}), marks=pytest.mark.slow),
    ],
    indirect=True,
)  # fmt: skip
def test_a_run_until_caught_up_waits_for_the_quota(site: Site) -> None:
    """It begins when all copies exist, in the time that the quota allows, and says what it waits for."""
    began = time.monotonic()
    done = subprocess.run(
        command("run", site.config, "--until", "caught-up"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stderr.splitlines()]
    waits = [HELD.search(event["reason"]) for event in events if event["event"] == "link_waits"]
    assert all(waits), done.stderr
    numbers = [int(each[1]) for each in waits if each]
    assert numbers == sorted(numbers)
    assert numbers[-1] > 0
    assert "imed out" not in done.stderr
    assert time.monotonic() - began < START_SECONDS + seconds_of(len(site.names), site.rate)
    check_copies(site)
