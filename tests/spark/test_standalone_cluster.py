"""A real standalone cluster: a master and two workers from the PySpark package, on the loopback interface."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import fake_lanes
import psutil
import pyspark
import pytest
from engine import FakeLink, Run, alive, link, notes, settings, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

HOME = os.path.dirname(pyspark.__file__)  # noqa: PTH120  a str for the environment


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


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
    }
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
    here = ("--host", "127.0.0.1", "--webui-port", "0")
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
    own = settings(
        folder,
        spark__master=cluster,
        spark__executor__memory="512m",
        spark__executor__cores="1",
        spark__driver__memory="512m",
        spark__driver__host="127.0.0.1",
        spark__driver__bindAddress="127.0.0.1",
    )
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
