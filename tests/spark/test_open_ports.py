"""What another user of the machine gets from Spark's ports and files while a mirror runs."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fake_lanes
import psutil
import pyspark
import pytest
import structlog
from engine import PASSWORDS, Run, notes, settings, with_passwords
from test_processes import _is_program, driving
from test_standalone_cluster import cluster, own_settings, workers  # noqa: F401  the fixtures

from eomirror.errors import ConfigError
from support.clusters import block_thief

if TYPE_CHECKING:
    from collections.abc import Iterable

pytestmark = [pytest.mark.spark, pytest.mark.timeout(280)]

# the user without rights of most systems
_NO_RIGHTS = 65534


def stolen(processes: Iterable[psutil.Process]) -> list[bytes]:
    """What a process of another user gets from the ports of these; of the same user, if we cannot be another."""
    ports = {
        f"{_reached(connection.laddr.ip)}:{connection.laddr.port}"
        for process in processes
        for connection in process.net_connections()
        if connection.status == psutil.CONN_LISTEN
    }
    assert ports
    other = os.geteuid() == 0
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin") if other else sys.executable
    if python is None:
        pytest.skip("no Python that another user can run")
    who: dict[str, Any] = {"user": _NO_RIGHTS, "group": _NO_RIGHTS, "extra_groups": []} if other else {}
    done = subprocess.run(
        [python, "-I", "-c", Path(block_thief.__file__).read_text(), *sorted(ports)],
        capture_output=True, text=True, timeout=120, check=True, cwd="/", env={}, **who,
    )  # fmt: skip
    return [block_thief.uncovered(base64.b64decode(line)) for line in done.stdout.splitlines()]


def _reached(address: str) -> str:
    """The address of a port that is open on this one."""
    address = address.removeprefix("::ffff:")
    return "127.0.0.1" if address in {"::", "0.0.0.0"} else address  # noqa: S104  found, not bound


def below(pid: int) -> list[psutil.Process]:
    """A process and all below it."""
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def open_folders(place: Path) -> list[str]:
    """Folders of Spark's blocks below this one that others can read."""
    found = list(place.rglob("blockmgr-*"))
    assert found
    return [str(one) for one in found if one.stat().st_mode & 0o077]


def test_a_local_master_gives_nothing_to_another_user(folder: Path, tmp_path: Path) -> None:
    """Neither by a port nor by a file; the secret that Spark makes is in no setting, and lanes work."""
    own = settings(folder, spark__local__dir=str(tmp_path))
    with Run(fake_lanes.steady, spark_settings=own, clusters=with_passwords()) as run:
        run.wait_for(lambda: len(notes(folder, "begin")) == 2, 180)
        from pyspark import SparkContext

        assert stolen(below(SparkContext._gateway.proc.pid)) == []
        assert open_folders(tmp_path) == []
        conf = run.driver._engine.result().jobs._context.getConf()
        assert (conf.get("spark.authenticate"), conf.get("spark.authenticate.secret")) == ("true", None)
    assert run.error is None
    assert len(notes(folder, "stopped")) == 2


def test_an_own_context_is_not_opened(folder: Path) -> None:
    """As on a cluster, the setting is refused by name before a task is sent."""
    with Run(fake_lanes.steady, spark_settings=settings(folder, spark__authenticate="false")) as run:
        run.wait(60)
    assert isinstance(run.error, ConfigError)
    assert [fault.path for fault in run.error.faults] == ["spark.authenticate"]
    assert not notes(folder, "begin")


def test_a_program_under_spark_submit_gives_nothing_to_another_user(folder: Path) -> None:
    """Also if spark-submit says otherwise, for instance by the file spark-defaults.conf."""
    submit = f"{os.path.dirname(pyspark.__file__)}/bin/spark-submit"  # noqa: PTH120  a str for the command line
    given = ("spark.ui.enabled=false", "spark.authenticate=false")
    options = [word for setting in given for word in ("--conf", setting)]
    with driving(folder, submit, "--master", "local[4]", *options) as driver:
        processes = below(driver.process.pid)
        assert stolen(processes) == []
        (program,) = [one for one in processes if _is_program(one)]
        program.send_signal(signal.SIGTERM)
        assert driver.line("exit").split() == ["exit", "0", "False"]
        assert driver.process.wait(20) == 0
    assert len(notes(folder, "stopped")) == 2


@pytest.mark.slow
def test_a_cluster_gives_nothing_to_another_user(cluster: str, folder: Path) -> None:  # noqa: F811  the fixture
    """Neither do the ports of the driver nor those of the executors."""
    with Run(
        fake_lanes.steady, spark_settings=own_settings(folder, cluster), clusters=with_passwords()
    ) as run:
        run.wait_for(lambda: len(notes(folder, "begin")) == 2, 180)
        from pyspark import SparkContext

        # the worker of a lane is a child of PySpark's daemon, which is one of the executor
        executors = {psutil.Process(note["pid"]).parent().parent().pid for note in notes(folder, "begin")}
        processes = [one for pid in (SparkContext._gateway.proc.pid, *executors) for one in below(pid)]
        assert stolen(processes) == []
    assert run.error is None


def test_an_open_context_of_the_user_gives_the_passwords_away(user_context: Any, folder: Path) -> None:
    """
    The mirror cannot close it, and warns; this is what the tests above would find.

    The last test, because runs use the active context.
    """
    with (
        structlog.testing.capture_logs() as logs,
        Run(fake_lanes.steady, spark=user_context, clusters=with_passwords()) as run,
    ):
        run.wait_for(lambda: len(notes(folder, "begin")) == 2, 180)
        gateway = type(user_context)._gateway
        blocks = b"\n".join(stolen(below(gateway.proc.pid)))
    for password in PASSWORDS:
        assert password.encode() in blocks
    assert run.driver._engine.result().jobs._tasks.token.encode() in blocks
    (warning,) = [line for line in logs if line["event"] == "spark_not_authenticated"]
    assert (warning["log_level"], warning["setting"]) == ("warning", "spark.authenticate")
