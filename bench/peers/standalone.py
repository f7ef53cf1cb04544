"""
A standalone Spark cluster on this machine, from the PySpark package; workers can be killed and started again.

As a program: ``standalone.py WORKERS COMMAND...`` starts a cluster below the current folder, runs the command with
`SAFE` and the master's address as ``--spark-conf``, passes SIGTERM on, and ends with all that it started.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

__all__ = ["SAFE", "StandaloneCluster", "driver_settings", "kill_task"]

_HOME = str(Path(pyspark.__file__).parent)
_HERE = ("--host", "127.0.0.1", "--webui-port", "0")
# of a Java process on a busy machine
_START_SECONDS = 240.0
_END_SECONDS = 30.0

#: Settings of master, workers and driver.
SAFE = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "of-a-cluster-on-this-machine",
    "spark.network.crypto.enabled": "true",
}


def driver_settings(master: str) -> dict[str, str]:
    """Settings of a driver whose executors have one core each, as the workers."""
    return {
        **SAFE,
        "spark.master": master,
        "spark.executor.memory": "512m",
        "spark.executor.cores": "1",
        "spark.driver.memory": "512m",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


def kill_task(processes: list[psutil.Process], rng: random.Random) -> bool:
    """Kills one Python worker of a task among the processes: a child of a daemon of PySpark."""

    def is_daemon(one: psutil.Process | None) -> bool:
        with suppress(psutil.NoSuchProcess):
            return (
                one is not None
                and "daemon" in " ".join(one.cmdline())
                and "pyspark" in " ".join(one.cmdline())
            )
        return False

    workers = []
    for one in processes:
        with suppress(psutil.NoSuchProcess):
            if is_daemon(one.parent()):
                workers.append(one)
    if workers:
        with suppress(psutil.NoSuchProcess):
            rng.choice(workers).kill()
    return bool(workers)


class StandaloneCluster:
    """
    A master and its workers.

    Args:
        folder: For logs and files; exists.
        workers: Number of workers.
        cores: Cores of each.
        variables: Of the environment of master and workers.

    Attributes:
        url: Address of the master.
        folder: As given.
    """

    def __init__(
        self, folder: Path, workers: int, *, cores: int = 1, variables: dict[str, str] | None = None
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self.url = f"spark://127.0.0.1:{port}"
        self.folder = folder
        self._cores = cores
        self._variables = dict(variables or {})
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._started = 0
        properties = folder / "spark.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in SAFE.items()))
        self._properties = ("--properties-file", str(properties))
        self._master = self._start("master", "master.Master", "--port", str(port))
        try:
            _await(lambda: "I have been elected leader" in self._log("master"))
            for number in range(workers):
                self.start_worker(number)
            _await(lambda: self._log("master").count("Registering worker") >= workers)
        except BaseException:
            self.close()
            raise

    @property
    def workers(self) -> dict[int, int]:
        """Process id of each worker that runs."""
        return {number: process.pid for number, process in self._workers.items()}

    def start_worker(self, number: int) -> None:
        """Starts a worker."""
        self._started += 1
        name = f"worker-{number}-{self._started}"
        size = ("-c", str(self._cores), "-m", f"{900 * self._cores}m", "-d", str(self.folder / name))
        self._workers[number] = self._start(name, "worker.Worker", *size, self.url)

    def kill_worker(self, rng: random.Random, number: int | None = None) -> int:
        """Kills a worker with its executors and their tasks; returns its number."""
        number = rng.choice(sorted(self._workers)) if number is None else number
        self._kill(self._workers.pop(number), whole=True)
        return number

    def kill_task(self, rng: random.Random) -> bool:
        """Kills one Python worker of an executor."""
        return kill_task(self._below(), rng)

    def kill_executor(self, rng: random.Random) -> bool:
        """Kills one executor; its worker starts another."""
        found = []
        for one in self._below():
            with suppress(psutil.NoSuchProcess):
                if "CoarseGrainedExecutorBackend" in " ".join(one.cmdline()):
                    found.append(one)
        if found:
            with suppress(psutil.NoSuchProcess):
                rng.choice(found).kill()
        return bool(found)

    def lanes_of(self, number: int, port: int) -> list[int]:
        """Returns the processes below a worker that have a connection to a port of the driver: those of lanes."""
        found = []
        with suppress(psutil.NoSuchProcess):
            for one in psutil.Process(self._workers[number].pid).children(recursive=True):
                with suppress(psutil.NoSuchProcess):
                    if any(getattr(each.raddr, "port", 0) == port for each in one.net_connections("tcp")):
                        found.append(one.pid)
        return found

    def _below(self) -> list[psutil.Process]:
        found: list[psutil.Process] = []
        for process in self._workers.values():
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(process.pid).children(recursive=True)
        return found

    def close(self) -> None:
        """Ends everything."""
        for process in (*self._workers.values(), self._master):
            self._kill(process, whole=True)

    @staticmethod
    def _kill(process: subprocess.Popen[bytes], *, whole: bool) -> None:
        family: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True) if whole else []
        process.kill()
        process.wait(20)
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()
        psutil.wait_procs(family, _END_SECONDS)

    def _log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "SPARK_HOME": _HOME,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "200m",
            "PYSPARK_PYTHON": sys.executable,
            **self._variables,
        }
        with (self.folder / f"{name}.log").open("wb") as output:
            return subprocess.Popen(
                [
                    f"{_HOME}/bin/spark-class",
                    f"org.apache.spark.deploy.{program}",
                    *_HERE,
                    *self._properties,
                    *arguments,
                ],
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.folder,
                start_new_session=True,
            )


def _await(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + _START_SECONDS
    while not condition():
        if time.monotonic() > until:
            raise TimeoutError("the cluster does not start: see its logs")
        time.sleep(0.1)


def _main(workers: int, command: list[str]) -> int:
    cluster = StandaloneCluster(Path(tempfile.mkdtemp(dir=Path.cwd())), workers)
    try:
        settings = driver_settings(cluster.url)
        confs = [word for name, value in settings.items() for word in ("--spark-conf", f"{name}={value}")]
        with subprocess.Popen([*command, *confs]) as process:
            signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
            return process.wait()
    finally:
        cluster.close()


if __name__ == "__main__":
    sys.exit(_main(int(sys.argv[1]), sys.argv[2:]))
