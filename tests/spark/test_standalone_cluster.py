"""A real standalone cluster: a master and two workers from the PySpark package, on the loopback interface."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import zlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import fake_lanes
import psutil
import pytest
from bench.peers.standalone import SAFE, StandaloneCluster, driver_settings
from engine import FakeLink, Run, link, measured, notes, settings, wait_for

from eomirror.config import load_config
from eomirror.errors import ConfigError
from eomirror.lane.spec import Ending
from eomirror.spark.task import pack_spec
from support.links.mirrors import CommandMirror
from support.traffic.records import create_topic

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path

    from eomirror.lane.spec import LaneSpec

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


_VARIABLE = "EOMIRROR_TEST_PASSWORD"


def own_settings(folder: Path, master: str) -> dict[str, str]:
    """Settings of an own context on this master."""
    given = driver_settings(master)
    return settings(folder, **{name.replace(".", "__"): value for name, value in given.items()})


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master with two workers of two cores each."""
    made = StandaloneCluster(
        tmp_path_factory.mktemp("standalone"), 2, cores=2, variables={_VARIABLE: "of the worker"}
    )
    yield made
    made.close()


@pytest.fixture
def cluster(workers: StandaloneCluster) -> str:
    """URL of the master; workers that a test has killed are back."""
    for number in {0, 1} - workers.workers.keys():
        workers.start_worker(number)
    return workers.url


def test_lanes_run_on_the_executors_of_a_cluster(cluster: str, folder: Path) -> None:
    """Two lanes on executors, over two epochs, caught up over the channel, stopped cooperatively; then a kill."""
    own = own_settings(folder, cluster)
    fake = FakeLink(goal=10**9)
    with Run(
        fake_lanes.steady, {"east->west": fake}, links=[link(epoch=20)], until="caught-up", spark_settings=own
    ) as run:
        # lane 0 is in its second epoch, and stays there for long enough to be killed
        (victim,) = run.wait_for(
            lambda: [note for note in notes(folder, "begin") if (note["lane"], note["epoch"]) == (0, 2)], 180
        )
        executor = psutil.Process(victim["pid"]).parent().parent()
        assert "CoarseGrainedExecutorBackend" in " ".join(executor.cmdline())
        executor.kill()
        run.wait_for(
            lambda: [
                note
                for note in notes(folder, "begin")
                if (note["lane"], note["epoch"], note["attempt"]) == (0, 2, 2)
            ],
            90,
        )
    assert run.error is None
    assert run.result.links[0].retries >= 1
    assert notes(folder, "stopped")
    assert "release" in fake.calls


@pytest.mark.timeout(500)
def test_workers_use_their_own_secrets(cluster: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver's value under a reference stays with the driver: no closure holds it, and the worker has its own."""
    monkeypatch.setenv(_VARIABLE, "of the driver")
    packed: list[bytes] = []

    def noted(spec: LaneSpec, **options: bool) -> bytes:
        packed.append(pack_spec(spec, **options))
        return packed[-1]

    monkeypatch.setattr("eomirror.spark.task.pack_spec", noted)
    links = [{"source": "east", "target": "west", "topics": [".*"]}]
    east = {"bootstrap.servers": "127.0.0.1:1", "sasl.password": f"${{env:{_VARIABLE}}}"}
    west = {"bootstrap.servers": "127.0.0.1:2", "sasl.password": "${env:EOMIRROR_TEST_ONLY_THE_DRIVER}"}
    monkeypatch.setenv("EOMIRROR_TEST_ONLY_THE_DRIVER", "of the driver, too")
    config = load_config({"clusters": {"east": east, "west": {**east, **west}}, "links": links})
    here = {"east": config.clusters["east"], "west": config.clusters["east"]}
    with Run(
        fake_lanes.knows_its_secret,
        links=[link(lanes=1)],
        spark_settings=own_settings(folder, cluster),
        clusters=here,
    ) as run:
        (seen, *_) = run.wait_for(lambda: notes(folder, "secret"), 200)
    assert run.error is None
    assert seen["text"] == "of the worker"
    assert packed
    assert not [one for one in packed if b"of the driver" in zlib.decompress(one)]

    # a worker that lacks one: named, tried again, and not the end of the mirror
    with Run(
        fake_lanes.steady,
        links=[link(lanes=1)],
        spark_settings=own_settings(folder, cluster),
        clusters=dict(config.clusters),
    ) as run:
        ended = run.wait_for(lambda: [report for _, report in run.reports if not report.ending.crashed], 200)
        run.wait_for(lambda: len(run.reports) > 1)
    assert run.error is None
    assert ended[0].ending is Ending.UNAUTHORIZED
    assert "EOMIRROR_TEST_ONLY_THE_DRIVER is not set" in str(ended[0].error)


def test_a_cluster_with_open_connections_is_refused(folder: Path) -> None:
    """Before a connection is opened and before a task is sent, with both settings to make."""
    given = own_settings(folder, "spark://127.0.0.1:1")
    open_settings = {name: value for name, value in given.items() if name not in SAFE}
    with Run(fake_lanes.steady, spark_settings=open_settings) as run:
        run.wait(60)
    assert isinstance(run.error, ConfigError)
    assert [fault.path for fault in run.error.faults] == [
        "spark.authenticate",
        "spark.network.crypto.enabled",
    ]
    assert not notes(folder, "begin")


def worker_of(workers: StandaloneCluster, pid: int) -> int:
    """Number of the worker of a process."""
    above = {one.pid for one in psutil.Process(pid).parents()}
    return next(number for number, worker in workers.workers.items() if worker in above)


def test_lanes_without_a_slot_give_their_partitions_away(
    cluster: str, workers: StandaloneCluster, folder: Path, rng: random.Random
) -> None:
    """A worker is lost, and no other core is free: the lanes that run get what it had, and give it back later."""
    own = own_settings(folder, cluster)
    fake = FakeLink()
    with Run(
        fake_lanes.steady, {"east->west": fake}, links=[link(lanes=4, epoch=600)], spark_settings=own
    ) as run:
        run.wait_for(lambda: len({note["lane"] for note in notes(folder, "begin")}) == 4, 180)
        begun = {note["lane"]: worker_of(workers, note["pid"]) for note in notes(folder, "begin")}
        victim = begun[0]
        lost = [lane for lane, number in begun.items() if number == victim]
        killed = time.monotonic()
        workers.kill_worker(rng, victim)
        run.wait_for(lambda: len([call for call in fake.calls if call.startswith("move")]) == len(lost), 120)
        run.wait_for(lambda: len(notes(folder, "added")) >= len(lost), 60)
        measured("partitions with other lanes after the loss", seconds=time.monotonic() - killed)
        lent = {one for note in notes(folder, "added") for one in note["partitions"]}
        assert lent == {f"orders-{lane}" for lane in lost}
        run.wait_for(
            lambda: {lane.state for lane in run.snapshots[-1].links[0].lanes if lane.lent} == {"lent"}
        )

        workers.start_worker(victim)
        run.wait_for(lambda: not [lane for lane in run.snapshots[-1].links[0].lanes if lane.lent], 120)
        run.wait_for(
            lambda: (
                {
                    note["lane"]
                    for note in notes(folder, "begin")
                    if note["at"] > notes(folder, "added")[-1]["at"]
                }
                >= set(lost)
            ),
            60,
        )
    assert run.error is None


@pytest.mark.integration
@pytest.mark.slow
def test_a_lane_that_lost_its_slot_is_told(
    cluster: str,
    workers: StandaloneCluster,
    east: Any,
    west: Any,
    topic_name: str,
    folder: Path,
    rng: random.Random,
) -> None:
    """A worker of the cluster is lost for good, and Spark tells the driver nothing: all that shows lanes names it."""
    create_topic(east.client_properties, topic_name, 3)
    listen = f"127.0.0.1:{free_port()}"
    mirror = CommandMirror(
        {
            "clusters": {"east": dict(east.client_properties), "west": dict(west.client_properties)},
            "links": [{"name": topic_name, "source": "east", "target": "west", "topics": [topic_name]}],
            "defaults": {"lanes": 3},
            "spark": own_settings(folder, cluster),
        },
        folder / "mirror",
        "--listen",
        listen,
    )
    waits = "waits for a slot: Spark gives 2 of 3"

    def link_data() -> dict[str, Any]:
        with suppress(OSError), urlopen(f"http://{listen}/api/v1/links/{topic_name}", timeout=20) as answer:
            return dict(json.loads(answer.read()))
        return {}

    def told(command: str) -> str:
        asked = [sys.executable, "-m", "eomirror", command, str(mirror.folder / "mirror.yaml")]
        return subprocess.run(
            asked, capture_output=True, text=True, check=False, env={**os.environ, "COLUMNS": "400"}
        ).stdout

    mirror.start()
    try:
        wait_for(lambda: link_data().get("verdict") == "ok", 180)
        workers.kill_worker(rng)
        found = wait_for(lambda: waits in (data := link_data()).get("reason", "") and data, 120)
        assert "add workers or cores" in found["fix"]
        wait_for(lambda: "its partitions are lent to the lanes that run" in link_data()["reason"], 60)
        assert link_data()["verdict"] == "ok"
        with urlopen(f"http://{listen}/", timeout=20) as answer:
            assert waits in answer.read().decode()
        for command in ("status", "readiness"):
            assert f"{waits}; its partitions are lent to the lanes that run" in told(command)
        wait_for(lambda: f"{waits}; its partitions are lent to" in told("events"), 30)
    finally:
        mirror.close()
