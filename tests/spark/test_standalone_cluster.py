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
import pyspark
import pytest
from engine import FakeLink, Run, alive, link, measured, notes, settings, wait_for

from eomirror.config import load_config
from eomirror.errors import ConfigError
from eomirror.lane.spec import Ending
from eomirror.spark.task import pack_spec
from support.links.mirrors import CommandMirror
from support.traffic.records import create_topic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from eomirror.lane.spec import LaneSpec

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

HOME = os.path.dirname(pyspark.__file__)  # noqa: PTH120  a str for the environment


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


#: What master, workers and driver share, and what no connection is opened without.
_SAFE = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "of-the-tests-cluster",
    "spark.network.crypto.enabled": "true",
}
_VARIABLE = "EOMIRROR_TEST_PASSWORD"


def own_settings(folder: Path, master: str) -> dict[str, str]:
    """Settings of an own context on this master."""
    return {
        **settings(
            folder,
            spark__master=master,
            spark__executor__memory="512m",
            spark__executor__cores="1",
            spark__driver__memory="512m",
            spark__driver__host="127.0.0.1",
            spark__driver__bindAddress="127.0.0.1",
        ),
        **_SAFE,
    }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a master with two workers of two cores each."""
    home = tmp_path_factory.mktemp("standalone")
    port = free_port()
    environment = {
        **os.environ,
        "SPARK_HOME": HOME,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
        _VARIABLE: "of the worker",
    }
    shared = home / "spark.properties"
    shared.write_text("".join(f"{name}={value}\n" for name, value in _SAFE.items()))
    started: list[subprocess.Popen[bytes]] = []

    def start(name: str, *arguments: str) -> None:
        with (home / f"{name}.log").open("wb") as output:
            started.append(
                subprocess.Popen(
                    [f"{HOME}/bin/spark-class", *arguments],
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    env=environment,
                    cwd=home,
                    start_new_session=True,
                )
            )

    def log(name: str) -> str:
        return (home / f"{name}.log").read_text(errors="replace")

    deploy = "org.apache.spark.deploy"
    here = ("--host", "127.0.0.1", "--webui-port", "0", "--properties-file", str(shared))
    start("master", f"{deploy}.master.Master", "--port", str(port), *here)
    url = f"spark://127.0.0.1:{port}"
    try:
        wait_for(lambda: "I have been elected leader" in log("master"), 60)
        for worker in ("one", "two"):
            work = str(home / worker)
            start(worker, f"{deploy}.worker.Worker", "-c", "2", "-m", "1g", "-d", work, *here, url)
        wait_for(lambda: log("master").count("Registering worker") == 2, 60)
        yield url
    finally:
        everything = [one for process in started for one in tree(process.pid)]
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(20)
        wait_for(lambda: not [pid for pid in everything if alive(pid)], 30)


def tree(pid: int) -> list[int]:
    """A process and all below it."""
    try:
        return [pid, *(one.pid for one in psutil.Process(pid).children(recursive=True))]
    except psutil.NoSuchProcess:
        return []


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
    open_settings = {name: value for name, value in given.items() if name not in _SAFE}
    with Run(fake_lanes.steady, spark_settings=open_settings) as run:
        run.wait(60)
    assert isinstance(run.error, ConfigError)
    assert [fault.path for fault in run.error.faults] == [
        "spark.authenticate",
        "spark.network.crypto.enabled",
    ]
    assert not notes(folder, "begin")


def test_lanes_without_a_slot_give_their_partitions_away(cluster: str, folder: Path) -> None:
    """An executor is lost while others of its size wait for its cores: the lanes that run get what it had."""
    own = own_settings(folder, cluster)
    fake = FakeLink()
    with Run(
        fake_lanes.steady, {"east->west": fake}, links=[link(lanes=4, epoch=600)], spark_settings=own
    ) as run:
        run.wait_for(lambda: len({note["lane"] for note in notes(folder, "begin")}) == 4, 180)
        worker = psutil.Process(notes(folder, "begin")[0]["pid"]).parent().parent().parent()
        lost = [
            note["lane"]
            for note in notes(folder, "begin")
            if worker.pid in {one.pid for one in psutil.Process(note["pid"]).parents()}
        ]
        for process in (worker, *worker.children(recursive=True)):
            process.kill()
        began = time.monotonic()
        run.wait_for(lambda: len([call for call in fake.calls if call.startswith("move")]) == len(lost), 120)
        run.wait_for(lambda: notes(folder, "added"), 60)
        measured("partitions with other lanes after the loss", seconds=time.monotonic() - began)
    assert run.error is None
    assert {one for note in notes(folder, "added") for one in note["partitions"]} == {
        f"orders-{lane}" for lane in lost
    }


@pytest.mark.integration
@pytest.mark.slow
def test_a_lane_that_lost_its_slot_is_told(
    cluster: str, east: Any, west: Any, topic_name: str, folder: Path
) -> None:
    """A worker of the cluster is lost for good, and Spark tells the driver nothing: page, data and metrics name it."""
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

    def link_data() -> dict[str, Any]:
        with suppress(OSError), urlopen(f"http://{listen}/api/v1/links/{topic_name}", timeout=20) as answer:
            return dict(json.loads(answer.read()))
        return {}

    mirror.start()
    try:
        wait_for(lambda: link_data().get("verdict") == "ok", 180)
        is_worker = {cluster, "org.apache.spark.deploy.worker.Worker"}
        (worker, _) = [
            process
            for process in psutil.process_iter(["cmdline"])
            if is_worker <= set(process.info["cmdline"] or ())
        ]
        for process in (worker, *worker.children(recursive=True)):
            process.kill()
        wait_for(lambda: "2 of 3 lanes run" in link_data().get("reason", ""), 120)
        found = link_data()
        assert found["verdict"] == "stalled"
        assert "has not reported for" in found["reason"]
        assert "waits for a slot" in found["fix"]
        with urlopen(f"http://{listen}/", timeout=20) as answer:
            assert "2 of 3 lanes run" in answer.read().decode()
        with urlopen(f"http://{listen}/metrics", timeout=20) as answer:
            rows = answer.read().decode().splitlines()
        (verdict,) = [row for row in rows if row.startswith("eomirror_link_verdict{") and row.endswith(" 1")]
        assert 'verdict="stalled"' in verdict
    finally:
        mirror.close()
