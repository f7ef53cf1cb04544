"""A standalone Spark cluster of several workers, from the PySpark package; workers can be killed and started again."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pyspark

from support.traffic.records import wait_for

if TYPE_CHECKING:
    import random

_HOME = str(Path(pyspark.__file__).parent)
_HERE = ("--host", "127.0.0.1", "--webui-port", "0")
#: Settings of master, workers and driver.
SAFE = {
    "spark.authenticate": "true",
    "spark.authenticate.secret": "of-the-tests-cluster",
    "spark.network.crypto.enabled": "true",
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
    """A master and its workers, of one core each."""

    def __init__(self, folder: Path, workers: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        self._folder = folder
        self.url = f"spark://127.0.0.1:{port}"
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._started = 0
        properties = folder / "spark.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in SAFE.items()))
        self._properties = ("--properties-file", str(properties))
        self._master = self._start("master", "master.Master", "--port", str(port))
        try:
            wait_for(lambda: "I have been elected leader" in self._log("master"), 240)
            for number in range(workers):
                self.start_worker(number)
            wait_for(lambda: self._log("master").count("Registering worker") >= workers, 240)
        except BaseException:
            self.close()
            raise

    def start_worker(self, number: int) -> None:
        """Starts a worker."""
        self._started += 1
        name = f"worker-{number}-{self._started}"
        size = ("-c", "1", "-m", "900m", "-d", str(self._folder / name))
        self._workers[number] = self._start(name, "worker.Worker", *size, self.url)

    def kill_worker(self, rng: random.Random) -> int:
        """Kills a worker with its executors and their tasks; returns its number."""
        number = rng.choice(sorted(self._workers))
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
        family: list[Any] = []
        with suppress(psutil.NoSuchProcess):
            family = psutil.Process(process.pid).children(recursive=True) if whole else []
        process.kill()
        process.wait(20)
        for one in family:
            with suppress(psutil.NoSuchProcess):
                one.kill()

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text(errors="replace")

    def _start(self, name: str, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "SPARK_HOME": _HOME,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "200m",
            "PYSPARK_PYTHON": sys.executable,
        }
        with (self._folder / f"{name}.log").open("wb") as output:
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
                cwd=self._folder,
                start_new_session=True,
            )
