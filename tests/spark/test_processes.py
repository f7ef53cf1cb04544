"""Death and signals: the driver in a process of its own, its JVM, and the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psutil
import pytest
from engine import HERE, PYTHON, alive, measured, notes, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.timeout(240)]


class Driver:
    """A running `drive.py`."""

    def __init__(self, process: subprocess.Popen[str], folder: Path) -> None:
        self.process = process
        self.folder = folder
        began = time.monotonic()
        self.jvm = int(self.line("ready").split()[1])
        measured("driver start to both lanes running", seconds=time.monotonic() - began)

    def line(self, word: str) -> str:
        """The next line of output that begins so."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(word):
                return line
        raise AssertionError(f"the driver ended without saying {word!r}")

    @property
    def workers(self) -> list[int]:
        """Processes that run lanes."""
        return [note["pid"] for note in notes(self.folder, "begin")]

    def tree(self) -> list[int]:
        """All processes of the driver, and the JVM's."""
        return [
            self.process.pid,
            *(one.pid for one in psutil.Process(self.process.pid).children(recursive=True)),
        ]


@contextmanager
def driving(folder: Path, *command: str, kind: str = "own") -> Iterator[Driver]:
    """Start the driver, and leave nothing behind."""
    process = subprocess.Popen(
        [*command, str(HERE / "drive.py"), str(folder), "submitted" if len(command) > 1 else kind],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": f"{PYTHON}:{HERE}", "PYSPARK_PYTHON": sys.executable},
    )
    left: list[int] = []
    try:
        driver = Driver(process, folder)
        left = driver.tree()
        yield driver
    finally:
        for pid in [*left, process.pid]:
            if alive(pid):
                os.kill(pid, signal.SIGKILL)
        process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


@pytest.mark.parametrize("kind", ["own", "early"])
def test_sigterm_ends_in_order_and_leaves_no_process(folder: Path, kind: str) -> None:
    """Lanes hand back, exit 0 within 5 s, JVM and workers are gone, also while Spark starts."""
    with driving(folder, sys.executable, kind=kind) as driver:
        tree = driver.tree()
        before = time.monotonic()
        driver.process.send_signal(signal.SIGTERM)
        assert driver.line("exit").split() == ["exit", "0", "False"]
        assert driver.process.wait(20) == 0
        seconds = time.monotonic() - before
        measured("SIGTERM to exit", seconds=seconds)
        assert seconds < 5
        assert len(notes(folder, "stopped")) == 2
        wait_for(lambda: not [pid for pid in tree if alive(pid)], 20)


@pytest.mark.faults
def test_a_killed_driver_takes_its_lanes_with_it(folder: Path) -> None:
    """SIGKILL of the driver: the workers hear SIGHUP, or that the line is lost, and are gone."""
    with driving(folder, sys.executable) as driver:
        tree, workers = driver.tree(), driver.workers
        before = time.monotonic()
        driver.process.kill()
        wait_for(lambda: not [pid for pid in workers if alive(pid)], 20)
        measured("SIGKILL of the driver to the last worker's end", seconds=time.monotonic() - before)
        wait_for(lambda: not [pid for pid in tree if alive(pid)], 20)
    told = notes(folder, "signal", "stopped")
    assert sorted(note["lane"] for note in told) == [0, 1]
    assert "SIGHUP" in {note.get("signal") for note in told}


@pytest.mark.faults
def test_a_killed_driver_takes_its_early_lanes_with_it(folder: Path) -> None:
    """SIGKILL before Spark is ready: the workers lose the line, and are gone like their server."""
    with driving(folder, sys.executable, kind="early") as driver:
        tree, workers = driver.tree(), driver.workers
        assert set(workers) <= set(tree)
        driver.process.kill()
        wait_for(lambda: not [pid for pid in tree if alive(pid)], 30)
    assert sorted(note["lane"] for note in notes(folder, "stopped")) == [0, 1]


@pytest.mark.faults
def test_a_killed_jvm_ends_the_run_with_an_error(folder: Path) -> None:
    """The driver says that Spark has stopped; nothing hangs."""
    with driving(folder, sys.executable) as driver:
        workers = driver.workers
        os.kill(driver.jvm, signal.SIGKILL)
        assert driver.process.wait(30) == 1
        wait_for(lambda: not [pid for pid in workers if alive(pid)], 20)


def test_a_signal_to_the_terminals_group_does_not_reach_early_lanes(folder: Path) -> None:
    """Ctrl-C is a cooperative stop, also while Spark starts."""
    with driving(folder, sys.executable, kind="early") as driver:
        os.killpg(driver.process.pid, signal.SIGINT)
        assert driver.line("exit").split() == ["exit", "0", "False"]
        assert len(notes(folder, "stopped")) == 2
        assert notes(folder, "signal") == []


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT])
def test_a_signal_to_the_terminals_group_does_not_reach_the_jvm(folder: Path, number: signal.Signals) -> None:
    """The JVM has a session of its own: SIGHUP means reload to the driver, and Ctrl-C a cooperative stop."""
    with driving(folder, sys.executable) as driver:
        os.killpg(driver.process.pid, number)
        if number == signal.SIGHUP:
            driver.line("hup")
            time.sleep(1)
            assert alive(driver.jvm)
            assert all(alive(pid) for pid in driver.workers)
            driver.process.terminate()
        assert driver.line("exit").split() == ["exit", "0", "False"]
        assert len(notes(folder, "stopped")) == 2
        assert notes(folder, "signal") == []


def _is_program(process: psutil.Process) -> bool:
    """Whether it is the Python program that spark-submit runs; short-lived helpers come and go meanwhile."""
    try:
        return "drive.py" in " ".join(process.cmdline()) and "java" not in process.name()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def test_a_program_under_spark_submit_uses_its_context(folder: Path) -> None:
    """The real spark-submit starts JVM and driver; the stop is cooperative there too."""
    import pyspark

    submit = f"{os.path.dirname(pyspark.__file__)}/bin/spark-submit"  # noqa: PTH120  a str for the command line
    with driving(folder, submit, "--master", "local[4]", "--conf", "spark.ui.enabled=false") as driver:
        assert driver.jvm == 0
        (program,) = [
            one for one in psutil.Process(driver.process.pid).children(recursive=True) if _is_program(one)
        ]
        program.send_signal(signal.SIGTERM)
        assert driver.line("exit").split() == ["exit", "0", "False"]
        assert driver.process.wait(20) == 0
        assert len(notes(folder, "stopped")) == 2


def test_the_submit_program_is_the_run_command(tmp_path: Path) -> None:
    """A refused configuration gives exit code 78 through spark-submit, before a context is built."""
    import pyspark

    import eomirror.cli

    config = tmp_path / "mirror.yaml"
    config.write_text("clusters: {}\nlinks: []\n")
    program = os.path.join(os.path.dirname(eomirror.cli.__file__), "submit.py")  # noqa: PTH118, PTH120  as above
    done = subprocess.run(
        [f"{os.path.dirname(pyspark.__file__)}/bin/spark-submit", program, str(config)],  # noqa: PTH120  as above
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(PYTHON), "PYSPARK_PYTHON": sys.executable},
    )
    # spark-submit puts the program's stderr into its own stdout
    assert done.returncode == 78, done.stdout + done.stderr
    assert "links" in done.stdout
