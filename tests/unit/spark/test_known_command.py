"""The command of the driver's JVM, read from a process that runs and run again; a Python plays the JVM."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from eomirror.spark.known_command import KnownCommand, is_usual_start

if TYPE_CHECKING:
    from collections.abc import Iterator

_JVM = """
import os, struct, sys
place = os.environ["_PYSPARK_DRIVER_CONN_INFO_PATH"]
said = "|".join(sys.argv[1:] + [os.environ["SPARK_HOME"]]).encode()
with open(place + ".new", "wb") as file:
    file.write(struct.pack(">ii", 4711, len(said)) + said)
os.rename(place + ".new", place)
sys.stdin.read()
"""
_LAUNCH = {"spark.driver.memory": "512m"}


@contextmanager
def jvm(folder: Path, memory: str = "512m", **variables: str) -> Iterator[int]:
    """A process with the arguments and variables of a JVM that ``spark-submit`` has started; its pid."""
    command = [sys.executable, "-c", _JVM, f"-Xmx{memory}", f"@{folder}/java-options"]
    environment = {
        **os.environ, "SPARK_HOME": "/a b/spark", "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / "first"), **variables
    }  # fmt: skip
    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        while not (folder / "first").is_file():
            assert process.poll() is None
        try:
            yield process.pid
        finally:
            process.communicate()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Of the first start, with a blank in its name."""
    found = tmp_path / "first start"
    found.mkdir()
    return found


def test_a_command_that_ran_is_run_again_with_the_values_of_this_start(folder: Path, tmp_path: Path) -> None:
    """Folder and memory are this start's; the variables of the scripts are set, and the gateway's address is read."""
    path = tmp_path / "cache" / "spark-1.json"
    known = KnownCommand(path, _LAUNCH, folder)
    assert known.start({}) is None
    with jvm(folder) as pid:
        known.keep(pid)
    assert str(folder) not in path.read_text("utf-8")

    started = KnownCommand(path, {"spark.driver.memory": "1g"}, Path("/other place")).start({})

    assert started is not None
    started.process.communicate()
    assert started.variables == {
        "PYSPARK_GATEWAY_PORT": "4711",
        "PYSPARK_GATEWAY_SECRET": "-Xmx1g|@/other place/java-options|/a b/spark",
    }


def test_a_command_that_does_not_start_is_forgotten(folder: Path, tmp_path: Path) -> None:
    """``spark-submit`` then makes the command, and tells what is wrong."""
    path = tmp_path / "spark-1.json"
    for command in ([sys.executable, "-c", "raise SystemExit(1)"], ["/nowhere/java"]):
        path.write_text(json.dumps({"command": command, "variables": {}}))
        assert KnownCommand(path, _LAUNCH, folder).start({"stderr": subprocess.DEVNULL}) is None
        assert not path.exists()


@pytest.mark.parametrize(
    "variables", [{"AWS_SECRET": "from-spark-env.sh"}, {"SPARK_DIST_CLASSPATH": "/more"}]
)
def test_a_process_with_an_unknown_variable_is_not_kept(
    folder: Path, tmp_path: Path, variables: dict[str, str]
) -> None:
    """A script has set it, and would set it again; it may also be a secret."""
    path = tmp_path / "spark-1.json"
    with jvm(folder, **variables) as pid:
        KnownCommand(path, _LAUNCH, folder).keep(pid)
    assert not path.exists()


@pytest.mark.parametrize(
    "launch", [{}, {**_LAUNCH, "spark.jars.packages": "a:b:1"}, {"spark.driver.memory": "2g"}]
)
def test_arguments_that_cannot_be_told_apart_are_not_kept(
    folder: Path, tmp_path: Path, launch: dict[str, str]
) -> None:
    """A memory that is not among the arguments, and settings that become arguments."""
    path = tmp_path / "spark-1.json"
    with jvm(folder) as pid:
        KnownCommand(path, launch, folder).keep(pid)
    assert not path.exists()


def test_a_file_that_others_can_write_is_not_run(folder: Path, tmp_path: Path) -> None:
    """It is a program to run; a damaged one is no error either."""
    path = tmp_path / "spark-1.json"
    path.write_text(json.dumps({"command": [sys.executable, "-c", _JVM], "variables": {"SPARK_HOME": ""}}))
    path.chmod(0o666)
    assert KnownCommand(path, _LAUNCH, folder).start({}) is None
    path.chmod(0o644)
    path.write_text("[]")
    assert KnownCommand(path, _LAUNCH, folder).start({}) is None


def test_a_configuration_folder_or_a_variable_leaves_it_to_spark_submit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where spark-defaults.conf, spark-env.sh or java-opts may be, and where a variable could add arguments."""
    for name in [
        name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_GATEWAY", "PYSPARK_SUBMIT"))
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path))
    assert is_usual_start(str(tmp_path))
    for name in ("SPARK_CONF_DIR", "SPARK_SUBMIT_OPTS", "HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        with monkeypatch.context() as changed:
            changed.setenv(name, "x")
            assert not is_usual_start(str(tmp_path)), name
    (tmp_path / "conf").mkdir()
    assert not is_usual_start(str(tmp_path))


def test_a_jvm_that_is_starting_ends_with_the_program(folder: Path, tmp_path: Path) -> None:
    """A run that is stopped in its first seconds leaves no JVM: one without its folder would wait for ever."""
    path, told = tmp_path / "spark-1.json", tmp_path / "pid"
    slow = f"import os, time; open({str(told)!r}, 'w').write(str(os.getpid())); time.sleep(600)"
    path.write_text(json.dumps({"command": [sys.executable, "-c", slow], "variables": {}}))
    program = f"""
import os, threading, time
from pathlib import Path
from eomirror.spark.known_command import KnownCommand
known = KnownCommand(Path({str(path)!r}), {_LAUNCH!r}, Path({str(folder)!r}))
threading.Thread(target=known.start, args=({{}},), daemon=True).start()
while not os.path.exists({str(told)!r}) or not open({str(told)!r}).read():
    time.sleep(0.01)
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
    pid = int(told.read_text())
    deadline = time.monotonic() + 20
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline, "the JVM outlived the program"
        time.sleep(0.05)
