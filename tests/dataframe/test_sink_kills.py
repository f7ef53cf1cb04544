"""
The atomic sink under kills, judged by a reader that is not ours and by the log files of the broker.

A campaign draws one fault after the other.  Each follows from the seed and its number, and is printed with the
variables that repeat it alone: ``EOMIRROR_SINK_FIRST`` is the first number, ``EOMIRROR_SINK_KILLS`` how many.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from bench.peers.standalone import SAFE, StandaloneCluster, kill_task
from confluent_kafka import Consumer
from frames import HERE, PYTHON, options, put_files, values
from transactions import transactions_of

from support.traffic.records import create_topic, wait_for

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.faults]

_ROWS = 3_000
_PARTITIONS = 6
_COLUMNS = ("source_topic", "source_partition", "source_offset")
#: Files that wait for the query while it is killed.
_AHEAD = 8
#: Seconds in which a broker writes the markers of a decided transaction, on a busy machine.
_MARKERS = 30.0
#: Seconds in which a worker of a task, or an executor, is there to be killed.
_FOUND = 10.0
#: Steps at which a program is killed; tasks write behind the first one.
_STEPS = ("begun", "begun", "begun", "reported", "committing", "committed")


@dataclass(frozen=True, slots=True)
class Fault:
    """
    One kill.

    Attributes:
        number: Its number in the campaign.
        kind: ``task``, ``executor``, ``worker``, ``driver``, or ``checkpoint``: driver killed, its checkpoint deleted.
        step: It comes behind this step of the driver.
        delay: Seconds behind the step.
        files: Files of a micro-batch of a program that starts behind it.
        shuffle: Partitions of the rows of such a program.
    """

    number: int
    kind: str
    step: str
    delay: float
    files: int
    shuffle: int

    @classmethod
    def draw(cls, seed: int, number: int, kinds: Sequence[str]) -> Fault:
        """The fault of a number."""
        rng = random.Random(f"{seed}/{number}")
        kind, step = rng.choice(kinds), rng.choice(_STEPS)
        # tasks run between the first two steps
        if kind in {"task", "executor", "worker"} and rng.random() < 0.8:
            step = "begun"
        delay = rng.random() * (1.5 if step == "begun" else 0.3)
        # a query without a checkpoint reads all files again
        return cls(
            number, kind, step, delay, 200 if kind == "checkpoint" else rng.randint(1, 3), rng.randint(1, 9)
        )


class Program:
    """The program, and the processes below it."""

    def __init__(self, folder: Path, cluster: Any, topic: str, **spark: str) -> None:
        self.folder = folder
        self._log = folder / "program.log"
        self._given = {
            "name": topic,
            # each task sends many requests, so that a kill finds some of them done
            "options": options(
                cluster, topic, sourceColumns=",".join(_COLUMNS), attempts="5", **{"kafka.batch.size": "300"}
            ),
            "folder": str(folder / "in"),
            "checkpoint": str(folder / "state"),
            "columns": list(_COLUMNS),
            "pause": 0.3,
        }
        self._spark = {
            "spark.master": "local[4]",
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.memory": "700m",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.executorEnv.PYTHONPATH": f"{PYTHON}:{HERE}",
            # small batches from Spark, too: the others of a task come after its first ones are acknowledged
            "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
            "spark.sql.shuffle.partitions": "3",
            **spark,
        }
        self._process: subprocess.Popen[bytes] | None = None

    def start(self, shuffle: int, files: int) -> None:
        """Starts it, with a number of partitions of its rows, and of files in a micro-batch."""
        given = {**self._given, "spark": self._spark, "shuffle": shuffle, "files": files}
        environment = {
            **os.environ,
            "PYTHONPATH": f"{PYTHON}:{HERE}:{HERE.parent}",
            "PYSPARK_PYTHON": sys.executable,
        }
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, str(HERE / "stream_program.py"), json.dumps(given)],
                stdout=output,
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

    def passed(self, step: str) -> int:
        """How often it came to a step since the first start."""
        return self._log.read_bytes().count(f"\nstep {step}\n".encode()) if self._log.exists() else 0

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
    """
    A read_committed consumer that reads all along.

    Attributes:
        values: Values in the order in which it saw them.
        whole: Number of files of which it has seen all rows.
        longest: Longest time in seconds for which it had seen a part of a file's rows; each file is in one micro-batch.
        overdue: Files of which a part was all it saw for longer than markers take.
    """

    def __init__(self, cluster: Any, topic: str) -> None:
        self.values: list[str] = []
        self.longest = 0.0
        self.overdue: set[str] = set()
        self._parts: dict[str, tuple[int, float]] = {}
        self.whole = 0
        self._consumer = Consumer(
            {
                **cluster.client_properties,
                "group.id": f"{topic}-watcher",
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 50,
            }
        )
        self._consumer.subscribe([topic])
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    @property
    def parts(self) -> dict[str, int]:
        """Rows of files of which it has seen some, and not all."""
        return {name: count for name, (count, _) in list(self._parts.items())}

    def _run(self) -> None:
        while not self._ended.is_set():
            for message in self._consumer.consume(5_000, 0.1):
                if message.error() is None:
                    self._take(message.value().decode())
            now = time.monotonic()
            for name, (_, since) in self._parts.items():
                if now - since > _MARKERS:
                    self.overdue.add(name)

    def _take(self, value: str) -> None:
        self.values.append(value)
        name, now = value.partition("-")[0], time.monotonic()
        count, since = self._parts.get(name, (0, now))
        self._parts[name] = (count + 1, since)
        if count + 1 == _ROWS:
            del self._parts[name]
            self.longest = max(self.longest, now - since)
            self.whole += 1

    def close(self) -> None:
        self._ended.set()
        self._thread.join(30)
        self._consumer.close()


class Campaign:
    """One query that is killed over and over, with new input all along."""

    def __init__(
        self, program: Program, cluster: Any, topic: str, workers: StandaloneCluster | None = None
    ) -> None:
        self._program, self._cluster, self._topic, self._workers = program, cluster, topic, workers
        self._watcher = Watcher(cluster, topic)
        self._expected: list[str] = []
        self._files = 0
        self._struck: Counter[str] = Counter()

    def run(self, seed: int, faults: Sequence[Fault]) -> None:
        """Injects the faults, lets the query end, and judges."""
        began = time.monotonic()
        try:
            for done, fault in enumerate(faults, 1):
                log.info(
                    "%s; alone: EOMIRROR_SEED=%d EOMIRROR_SINK_FIRST=%d EOMIRROR_SINK_KILLS=1",
                    fault, seed, fault.number,
                )  # fmt: skip
                self._inject(fault)
                assert not self._watcher.overdue, f"{fault}: {self._watcher.overdue} were seen in part"
                log.info(
                    "%d of %d faults after %.0f s: %d whole files, longest part %.2f s",
                    done, len(faults), time.monotonic() - began, self._watcher.whole, self._watcher.longest,
                )  # fmt: skip
            self._end()
            self._judge()
        finally:
            self._program.kill()
            self._watcher.close()
        assert Counter(self._watcher.values) == Counter(self._expected)

    def _inject(self, fault: Fault) -> None:
        ahead = self._watcher.whole + _AHEAD - self._files
        self._put(ahead)
        program = self._program
        if not program.running:
            program.start(fault.shuffle, fault.files)
        before = program.passed(fault.step)
        wait_for(lambda: program.passed(fault.step) > before or not program.running, 240)
        time.sleep(fault.delay)
        self._strike(fault)
        if not program.running:
            # without the program no row can follow: what was seen in part was decided as a whole
            wait_for(lambda: not self._watcher.parts, _MARKERS)

    def _put(self, count: int) -> None:
        if count > 0:
            folder = self._program.folder / "in"
            self._expected += put_files(folder, range(self._files, self._files + count), _ROWS)
            self._files += count

    def _strike(self, fault: Fault) -> None:
        """Kills what the kind names as soon as there is one; the whole program if there is none in time."""
        program, rng = self._program, random.Random(fault.number)
        deadline = time.monotonic() + _FOUND
        while program.running and fault.kind not in {"driver", "checkpoint"}:
            if self._kills_part(fault.kind, rng):
                self._struck[fault.kind] += 1
                return
            if time.monotonic() > deadline:
                break
            time.sleep(0.02)
        program.kill()
        if fault.kind == "checkpoint":
            shutil.rmtree(program.folder / "state", ignore_errors=True)
        self._struck["checkpoint" if fault.kind == "checkpoint" else "driver"] += 1

    def _kills_part(self, kind: str, rng: random.Random) -> bool:
        workers = self._workers
        if workers is None:
            return kill_task(self._program.processes(), rng)
        if kind == "worker":
            lost = workers.kill_worker(rng)
            time.sleep(rng.random() * 3)
            workers.start_worker(lost)
            return True
        return workers.kill_executor(rng) if kind == "executor" else workers.kill_task(rng)

    def _end(self) -> None:
        """Lets the query read what is left."""
        program = self._program
        (program.folder / "in" / "end").touch()
        for _ in range(3):
            if not program.running:
                program.start(3, 50)
            wait_for(lambda: not program.running, 1_200)
            if not program.failed:
                break
        assert not program.failed, program.log()

    def _judge(self) -> None:
        found = values(self._cluster, self._topic)
        assert found == sorted(self._expected), (
            len(found), len(set(found)), len(self._expected), self._program.log()
        )  # fmt: skip
        wait_for(lambda: len(self._watcher.values) >= len(self._expected))
        transactions = transactions_of(self._cluster, self._topic, _PARTITIONS)
        torn = {
            name: one.outcomes for name, one in transactions.items() if len(set(one.outcomes.values())) != 1
        }
        assert not torn, "one outcome in all partitions"
        written: dict[bytes, set[tuple[int, int]]] = {}
        for name, one in transactions.items():
            if "committed" in one.outcomes.values():
                for value in one.values:
                    written.setdefault(value.partition(b"-")[0], set()).add(name)
        assert all(len(names) == 1 for names in written.values()), "each file in one committed transaction"
        outcomes = Counter(next(iter(one.outcomes.values())) for one in transactions.values())
        log.info(
            "killed: %s; transactions with rows: %s; longest part %.2f s",
            dict(self._struck), dict(outcomes), self._watcher.longest,
        )  # fmt: skip


@pytest.mark.timeout(290)
def test_kills_of_tasks_driver_and_checkpoint(west: Any, topic_name: str, tmp_path: Path, seed: int) -> None:
    """Every row once, and at no moment a part of a batch."""
    create_topic(west.client_properties, topic_name, _PARTITIONS)
    faults = [
        Fault.draw(seed, number, [kind]) for number, kind in enumerate(("task", "driver", "checkpoint"))
    ]
    random.Random(seed).shuffle(faults)
    Campaign(Program(tmp_path, west, topic_name), west, topic_name).run(seed, faults)


@pytest.mark.slow
@pytest.mark.timeout(10_800)
def test_kills_on_three_workers(west: Any, topic_name: str, tmp_path: Path, seed: int) -> None:
    """A hundred faults, of executors and workers too, with speculation on."""
    create_topic(west.client_properties, topic_name, _PARTITIONS)
    first = int(os.environ.get("EOMIRROR_SINK_FIRST", "0"))
    count = int(os.environ.get("EOMIRROR_SINK_KILLS", "100"))
    kinds = ("task", "executor", "executor", "worker", "driver", "checkpoint")
    faults = [Fault.draw(seed, number, kinds) for number in range(first, first + count)]
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
        Campaign(program, west, topic_name, workers).run(seed, faults)
    finally:
        program.kill()
        workers.close()
