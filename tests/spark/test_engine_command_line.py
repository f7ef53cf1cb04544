"""The JVM of an own context: what other users of the machine see of its options, and what it prints."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from eomirror import __version__
from eomirror.errors import MirrorError, UsageError
from eomirror.spark.context import engine_settings
from eomirror.spark.launch import end_jvm, launch_jvm

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = [pytest.mark.spark, pytest.mark.timeout(120)]

_SECRET = "quite-a-secret"  # noqa: S105  no real secret


def sight(pid: int) -> list[str]:
    """The arguments of a process and all below it, as any user of the machine reads them."""
    found: list[str] = []
    processes: list[psutil.Process] = []
    # one that has ended meanwhile shows nothing: the launcher ends on its own between two looks
    with contextlib.suppress(psutil.Error):
        processes.append(psutil.Process(pid))
        processes += processes[0].children(recursive=True)
    for process in processes:
        with contextlib.suppress(psutil.Error):
            found.append(" ".join(process.cmdline()))
    return found


def settings(**given: str) -> Mapping[str, str]:
    """Settings of an own local context."""
    named = {name.replace("__", "."): value for name, value in given.items()}
    return engine_settings(master="local[1]", configured={}, given=named, version=__version__)


@pytest.mark.parametrize(
    "submitted", [None, "--conf spark.app.name=theirs pyspark-shell", "--properties-file {} pyspark-shell"]
)
def test_no_secret_is_an_argument_of_the_jvm_or_of_what_starts_it(
    submitted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM has option and property; no process shows them at any time; the files are gone when it runs."""
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    theirs = tmp_path / "theirs.properties"
    theirs.write_text("spark.theirs=1\nspark.jars.ivy=/theirs\n")
    if submitted is not None:
        monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", submitted.format(theirs))
    popen, seen, files = subprocess.Popen, [], []

    def noted(command: Any, **options: Any) -> Any:
        process = popen(command, **options)
        seen.append(process)
        folder = Path(next(word for word in command if word.endswith("spark.properties"))).parent
        files.extend([folder, *folder.iterdir()])
        modes.extend(path.stat().st_mode & 0o777 for path in files)
        return process

    modes: list[int] = []
    monkeypatch.setattr("pyspark.java_gateway.Popen", noted)
    shown: list[str] = []
    # every look of the gateway for its JVM is ours too
    monkeypatch.setattr("pyspark.java_gateway.time.sleep", lambda _: shown.extend(sight(seen[0].pid)))

    given = settings(
        spark__driver__extraJavaOptions=f"-Dtheir.keyStorePassword={_SECRET} -Dblank='a b'",
        spark__jars__repositories=f"https://user:{_SECRET}@repository.invalid/maven",
        spark__jars__ivy=str(tmp_path),
    )
    gateway = launch_jvm(given)
    try:
        shown += sight(gateway.proc.pid)
        system = gateway.jvm.java.lang.System
        assert system.getProperty("their.keyStorePassword") == _SECRET
        assert system.getProperty("blank") == "a b"
        assert _SECRET in system.getProperty("spark.jars.repositories")
        assert system.getProperty("spark.jars.ivy") == str(tmp_path)
        assert (system.getProperty("spark.theirs") == "1") == ("{}" in str(submitted))
    finally:
        end_jvm(gateway)

    assert any("launcher.Main" in line or "SparkSubmit" in line for line in shown)
    assert not [line for line in shown if _SECRET in line]
    assert modes == [0o700, 0o600, 0o600]
    assert not any(path.exists() for path in files)


def test_the_second_start_runs_the_jvm_itself_and_shows_no_secret_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No ``spark-submit`` and no launcher; a context on it runs a job, with a worker that finds PySpark."""
    monkeypatch.delenv("PYSPARK_SUBMIT_ARGS", raising=False)
    monkeypatch.setenv("EOMIRROR_CACHE", str(tmp_path / "a cache"))
    seen: list[list[str]] = []
    popen = subprocess.Popen

    def noted(command: Any, **options: Any) -> Any:
        seen.append(list(command))
        return popen(command, **options)

    monkeypatch.setattr("pyspark.java_gateway.Popen", noted)
    monkeypatch.setattr("eomirror.spark.known_command.subprocess.Popen", noted)
    given = settings(spark__driver__extraJavaOptions=f"-Dtheir.keyStorePassword={_SECRET} -Dblank='a b'")
    for _ in range(2):
        gateway = launch_jvm(given)
        try:
            shown = sight(gateway.proc.pid)
            system = gateway.jvm.java.lang.System
            assert system.getProperty("their.keyStorePassword") == _SECRET
            assert system.getProperty("blank") == "a b"
        finally:
            end_jvm(gateway)
        assert not [line for line in shown if _SECRET in line]
    assert [Path(command[0]).name for command in seen] == ["spark-submit", "java"]
    (kept,) = (tmp_path / "a cache").iterdir()
    assert _SECRET not in kept.read_text("utf-8")
    program = (
        "from eomirror.spark.context import engine_settings, open_engine; "
        "engine = open_engine(None, engine_settings(master='local[1]', configured={}, given={}, version='1'), "
        "lanes=1); print(engine.context.parallelize([1]).map(lambda n: n + 41).collect()); engine.close()"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[42]\n"


def test_a_properties_file_of_the_users_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Instead of a JVM that does not start."""
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file=/nowhere pyspark-shell")
    with pytest.raises(UsageError, match="/nowhere"):
        launch_jvm(settings())


def test_what_the_jvm_says_at_start_shows_no_password(
    monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """Ivy prints addresses of repositories, and Java the options that it takes from the environment."""
    monkeypatch.setenv("JDK_JAVA_OPTIONS", f"-Dx.password={_SECRET}")
    given = settings(
        spark__jars__repositories=f"https://user:{_SECRET}@127.0.0.1:1/maven",
        spark__jars__packages="no.such:thing:1",
        spark__jars__ivySettings="/no/such/file.xml",
    )
    popen, started = subprocess.Popen, []

    def noted(*arguments: Any, **options: Any) -> Any:
        started.append(popen(*arguments, **options))
        return started[-1]

    monkeypatch.setattr("pyspark.java_gateway.Popen", noted)
    with pytest.raises(MirrorError) as caught:
        launch_jvm(given)
    # pyspark leaves the pipe to a JVM that did not start open
    started[0].stdin.close()
    assert _SECRET not in str(caught.value)
    assert _SECRET.encode() not in capfdbinary.readouterr().err
