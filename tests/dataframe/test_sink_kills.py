"""The atomic sink under kills at random moments, judged by a reader that is not ours."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from confluent_kafka import Consumer
from frames import HERE, PYTHON, as_of_now, options, put_files, values, whole_batches
from standalone import SAFE, StandaloneCluster, kill_task

from support.traffic.records import create_topic, wait_for

if TYPE_CHECKING:
    import random
    from pathlib import Path

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.faults]

_ROWS = 3_000
_COLUMNS = ("source_topic", "source_partition", "source_offset")


class Program:
    """The program, and the processes below it."""

    def __init__(self, folder: Path, cluster: Any, topic: str, **spark: str) -> None:
        self.folder = folder
        self._log = folder / "program.log"
        self._given = {
            "name": topic,
            "options": options(cluster, topic, sourceColumns=",".join(_COLUMNS), attempts="5"),
            "folder": str(folder / "in"),
            "checkpoint": str(folder / "state"),
            "columns": list(_COLUMNS),
        }
        self._spark = {
            "spark.master": "local[4]",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "700m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.executorEnv.PYTHONPATH": f"{PYTHON}:{HERE}",
            **spark,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, shuffle: int) -> None:
        """Starts it, with a number of shuffle partitions."""
        given = {**self._given, "spark": {**self._spark, "spark.sql.shuffle.partitions": str(shuffle)}}
        environment = {
            **os.environ,
            "PYTHONPATH": f"{PYTHON}:{HERE}:{HERE.parent}",
            "PYSPARK_PYTHON": sys.executable,
        }
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "stream_program.py"), json.dumps(given)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        """True until it has ended."""
        return self._process is not None and self._process.poll() is None

    @property
    def failed(self) -> bool:
        """True if it ended with an error."""
        return self._process is not None and self._process.poll() not in (None, 0)

    def batches(self) -> int:
        """How often a batch began since the first start."""
        return self._log.read_bytes().count(b"\nbatch ") if self._log.exists() else 0

    def processes(self) -> list[psutil.Process]:
        """All processes below it."""
        with suppress(psutil.NoSuchProcess):
            if self._process is not None:
                return psutil.Process(self._process.pid).children(recursive=True)
        return []

    def kill(self) -> None:
        """Kills driver, JVM and workers at once."""
        if self._process is not None:
            with suppress(psutil.NoSuchProcess):
                family = psutil.Process(self._process.pid).children(recursive=True)
                with suppress(ProcessLookupError):
                    os.kill(self._process.pid, signal.SIGKILL)
                for one in family:
                    with suppress(psutil.NoSuchProcess):
                        one.kill()
            self._process.wait(30)

    def log(self) -> str:
        """The end of its log, for a failure."""
        return self._log.read_text(errors="replace")[-6_000:]


class Watcher:
    """A read_committed consumer that reads all along."""

    def __init__(self, cluster: Any, topic: str) -> None:
        self.values: list[str] = []
        self._consumer = Consumer(
            {
                **cluster.client_properties,
                "group.id": f"{topic}-watcher",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([topic])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(5_000, 0.2):
                if message.error() is None:
                    self.values.append(message.value().decode())

    def close(self) -> None:
        self._ended.set()
        self._thread.join(30)
        self._consumer.close()


def strike(kind: str, program: Program, rng: random.Random, workers: StandaloneCluster | None) -> None:
    """Kills what the kind names; the whole program if there is none of it."""
    if workers is not None and kind == "executor":
        workers.kill_executor(rng)
    elif workers is not None and kind == "worker":
        lost = workers.kill_worker(rng)
        time.sleep(rng.random() * 3)
        workers.start_worker(lost)
    elif workers is not None and kind == "task":
        workers.kill_task(rng)
    elif kind == "checkpoint":
        program.kill()
        shutil.rmtree(program.folder / "state", ignore_errors=True)
    elif kind == "driver" or not kill_task(program.processes(), rng):
        program.kill()


def run_rounds(
    program: Program,
    cluster: Any,
    topic: str,
    rng: random.Random,
    expected: list[str],
    kinds: list[str],
    workers: StandaloneCluster | None = None,
) -> None:
    """Kills one after the other while the program works, then lets it end; judges after each."""
    watcher = Watcher(cluster, topic)
    try:
        for kind in kinds:
            if not program.running:
                program.start(rng.randint(1, 9))
            before = program.batches()
            wait_for(lambda: program.batches() > before or not program.running, 120)  # noqa: B023  called at once
            time.sleep(rng.random() * 1.5)
            strike(kind, program, rng, workers)
            if not program.running:
                wait_for(lambda: not whole_batches(values(cluster, topic, as_of_now), _ROWS), 15)
        for _ in range(3):
            if not program.running:
                program.start(rng.randint(1, 9))
            wait_for(lambda: not program.running, 240)
            if not program.failed:
                break
        assert not program.failed, program.log()
        found = values(cluster, topic)
        assert found == sorted(expected), (len(found), len(set(found)), len(expected), program.log())
        wait_for(lambda: len(watcher.values) >= len(expected))
    finally:
        program.kill()
        watcher.close()
    assert sorted(watcher.values) == sorted(expected)


@pytest.mark.timeout(290)
def test_kills_of_tasks_driver_and_checkpoint(
    west: Any, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """Every row once, and at no moment a part of a batch."""
    create_topic(west.client_properties, topic_name, 4)
    expected = put_files(tmp_path / "in", range(8), _ROWS)
    kinds = ["task", "driver", "checkpoint"]
    rng.shuffle(kinds)
    run_rounds(Program(tmp_path, west, topic_name), west, topic_name, rng, expected, kinds)


@pytest.mark.slow
@pytest.mark.timeout(5_400)
def test_a_hundred_kills_on_three_workers(
    west: Any, topic_name: str, tmp_path: Path, rng: random.Random
) -> None:
    """Executors and workers too, with speculation on; the number of kills is EOMIRROR_SINK_KILLS."""
    create_topic(west.client_properties, topic_name, 6)
    kills = int(os.environ.get("EOMIRROR_SINK_KILLS", "100"))
    expected = put_files(tmp_path / "in", range(kills + 20), _ROWS)
    kinds = [
        rng.choice(["task", "executor", "executor", "worker", "driver", "checkpoint"]) for _ in range(kills)
    ]
    workers = StandaloneCluster(tmp_path, 3)
    program = Program(
        tmp_path,
        west,
        topic_name,
        **SAFE,
        **{
            "spark.master": workers.url,
            "spark.executor.memory": "500m",
            "spark.executor.cores": "1",
            "spark.speculation": "true",
            "spark.speculation.interval": "200ms",
            "spark.speculation.minTaskRuntime": "100ms",
            "spark.python.task.killTimeout": "0s",
        },
    )
    try:
        run_rounds(program, west, topic_name, rng, expected, kinds, workers)
    finally:
        program.kill()
        workers.close()


@pytest.mark.slow
@pytest.mark.timeout(5_400)
def test_a_hundred_kills(west: Any, topic_name: str, tmp_path: Path, rng: random.Random) -> None:
    """The same, a hundred times, with new input all along."""
    create_topic(west.client_properties, topic_name, 6)
    expected = put_files(tmp_path / "in", range(120), _ROWS)
    kinds = [rng.choice(["task", "task", "task", "driver", "checkpoint"]) for _ in range(100)]
    run_rounds(Program(tmp_path, west, topic_name), west, topic_name, rng, expected, kinds)
