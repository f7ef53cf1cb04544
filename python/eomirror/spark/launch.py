"""
Starts and ends the JVM of an own Spark context.

Every user of a machine can read the arguments of its processes (``/proc/PID/cmdline``).  Java options and repository
addresses may contain passwords, so no user setting is passed as an argument, neither to the JVM nor to the shell
scripts that start it.  Spark reads its properties from a file, and the JVM reads the options of the driver from a
second one (``java @FILE``).  Both have mode 0600 and are removed as soon as the JVM has read them.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.errors import MirrorError, UsageError
from eomirror.jvm import archive_arguments, class_archive
from eomirror.log import relay
from eomirror.spark.known_command import KnownCommand, is_usual_start

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

__all__ = [
    "argument_file",
    "end_jvm",
    "first_line",
    "given_up",
    "java_options",
    "launch_jvm",
    "make_archive_later",
    "properties_file",
    "relay_lines",
    "spark_archive",
    "spark_home",
    "start_failure",
]

log = structlog.get_logger(__name__)

# settings that take effect only at the start of the JVM
_LAUNCH_SETTINGS = frozenset(
    {
        "spark.driver.memory",
        "spark.driver.extraClassPath",
        "spark.driver.extraLibraryPath",
        "spark.jars",
        "spark.jars.packages",
        "spark.jars.repositories",
        "spark.jars.ivy",
        "spark.jars.ivySettings",
    }
)
_JAVA_OPTIONS = ("spark.driver.defaultJavaOptions", "spark.driver.extraJavaOptions")
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"

_ARCHIVES = "EOMIRROR_CLASS_ARCHIVES"
# a program would use the JVM of `spark-submit` with them, or another master
_NOT_INHERITED = ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET", _SUBMIT_ARGUMENTS, "MASTER")
# lanes have moved by then, and what was behind is copied; a shorter run leaves it to the next one
_LATER_SECONDS = 30.0
_PROPERTIES_FILE = "--properties-file"

# Java options that Spark refuses; it does not see those in our file
_SPARKS_OWN = {
    "-Xmx": "set spark.driver.memory instead",
    "-Dspark.": "write the property itself in the spark section",
}

# messages of a starting JVM that are not logged; some of them contain the options
_NOISE = (
    b"WARNING: Using incubator modules",
    b"Picked up JAVA_TOOL_OPTIONS",
    b"Picked up _JAVA_OPTIONS",
    b"Picked up JDK_JAVA_OPTIONS",
    b"NOTE: Picked up JDK_JAVA_OPTIONS",
)
# credentials in repository addresses, which Ivy prints
_CREDENTIALS = re.compile(rb"(://)[^/\s@]+@")


def launch_jvm(settings: Mapping[str, str]) -> Any:
    """
    Starts the JVM of a context and returns the gateway to it.

    Args:
        settings: Settings of the context.

    Raises:
        UsageError: A Java option must be set through a Spark property.
        MirrorError: The JVM does not start.
    """
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    usual = is_usual_start(spark_home())
    launch = {name: settings[name] for name in sorted(_LAUNCH_SETTINGS & settings.keys())}
    java = java_options(settings)
    if not any(word.startswith(("-XX:ArchiveClassesAtExit", "-XX:SharedArchiveFile")) for word in java):
        java += archive_arguments(*spark_archive())
    # this JVM starts the workers: they must use the interpreter that has eomirror
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    reading, writing = os.pipe()
    options: dict[str, Any] = {
        "start_new_session": True,
        # tasks contain passwords, and Spark writes blocks to files when the memory for them is full
        "umask": 0o077,
        "stderr": writing,
        "stdout": subprocess.DEVNULL,
    }
    last: list[str] = []
    muted = threading.Event()
    threading.Thread(
        target=relay_lines, args=(reading, last, muted), name="spark-stderr", daemon=True
    ).start()
    try:
        with _private_files(launch, java) as folder:
            known = KnownCommand(class_archive(*spark_archive()).with_suffix(".json"), launch, folder)
            started = known.start(options) if usual else None
            if started is None:
                gateway = launch_gateway(popen_kwargs=options)
                if usual:
                    known.keep(gateway.proc.pid)
            else:
                with _variables(started.variables):
                    gateway = launch_gateway()
                gateway.proc = started.process
            gateway.muted = muted
            return gateway
    except (PySparkRuntimeError, OSError) as error:
        reason, fix = start_failure(last, first_line(error))
        raise MirrorError(f"the java virtual machine for spark does not start: {reason}", fix=fix) from error
    finally:
        os.close(writing)


def start_failure(said: Sequence[str], otherwise: str) -> tuple[str, str]:
    """
    Returns why a JVM did not start, and the fix.

    Args:
        said: Its last lines on stderr.
        otherwise: The reason if it said nothing.
    """
    # the places of a stack trace tell a user nothing, and would push the exception out
    lines = [line for line in said if line and not line.startswith(("at ", "... "))]
    reason = "; ".join(dict.fromkeys(lines[-3:])) or otherwise
    if "java.net.UnknownHostException" in reason:
        return reason, (
            "let the host name of this machine resolve to an address, as in /etc/hosts, or set SPARK_LOCAL_IP to one"
        )
    return reason, "install Java 17 or newer, and set JAVA_HOME to it or put java on the PATH"


def end_jvm(gateway: Any, patience: float = 1.0) -> None:
    """Ends a JVM that `launch_jvm` started; kills it after ``patience`` seconds."""
    from pyspark import SparkContext

    try:
        gateway.shutdown()
    except Exception as error:  # noqa: BLE001  py4j raises any kind of error after the JVM's end
        log.debug("gateway_shutdown_failed", error=str(error))
    # the next context of this process must not use an ended gateway
    if SparkContext._gateway is gateway:  # noqa: SLF001
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    # the JVM ends when this pipe is closed
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(patience)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


def make_archive_later() -> threading.Timer | None:
    """Starts `eomirror.spark.class_archive` in half a minute, if it is of use; the timer can be cancelled."""
    if os.environ.get(_ARCHIVES) == "off" or not is_usual_start(spark_home()):
        return None
    archive = class_archive(*spark_archive())
    if archive.is_file() or given_up(archive).is_file():
        return None
    timer = threading.Timer(_LATER_SECONDS, _make_in_background)
    timer.daemon = True
    timer.start()
    return timer


def spark_archive() -> tuple[str, list[Path]]:
    """Returns the arguments of `eomirror.jvm.class_archive` for Spark's driver: its name and its jars."""
    import pyspark

    return f"spark-{pyspark.__version__}", sorted(Path(spark_home(), "jars").glob("*.jar"))


def spark_home() -> str:
    """Returns the folder of the Spark that pyspark uses."""
    from pyspark.find_spark_home import _find_spark_home

    return str(_find_spark_home())


def first_line(error: BaseException) -> str:
    """Returns the first meaningful line of an error: py4j appends the Java exception with its stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith(("An error occurred while calling", "at "))]
    return (useful or lines or [type(error).__name__])[0].removeprefix(": ")[:500]


def given_up(archive: Path) -> Path:
    """Returns the file that tells that this archive could not be made."""
    return archive.with_name(f"{archive.name}.failed")


def _make_in_background() -> None:
    """Starts `eomirror.spark.class_archive` in a session of its own; never raises."""
    environment = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "eomirror.spark.class_archive", "--background"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**environment, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            cwd="/",
            start_new_session=True,
        )
    except OSError as error:
        log.debug("class_archive_not_made", reason=str(error))
        return
    # no zombie while the mirror runs
    threading.Thread(target=process.wait, name="class-archive", daemon=True).start()


# -- content of the files ------------------------------------------------------------------------


def java_options(settings: Mapping[str, str]) -> list[str]:
    """
    Returns the driver's Java options, split into words.

    Args:
        settings: Settings of the context.

    Raises:
        UsageError: A quotation is not closed, or an option must be set through a Spark property.
    """
    found = []
    for name in _JAVA_OPTIONS:
        try:
            words = shlex.split(settings.get(name, ""))
        except ValueError as error:
            raise UsageError(
                f"{name}: {str(error).lower()}", fix="close the quotation, or escape it"
            ) from None
        for word in words:
            for beginning, fix in _SPARKS_OWN.items():
                if word.startswith(beginning):
                    shown = word.partition("=")[0] if "=" in word else beginning
                    raise UsageError(f"{name}: spark does not accept {shown} as a Java option", fix=fix)
        found += words
    return found


def argument_file(options: Iterable[str]) -> str:
    """Returns the content of a file for ``java @FILE`` with these options."""
    lines = []
    for option in options:
        escaped = option.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r")
        lines.append(f'"{escaped}"\n')
    return "".join(lines)


def properties_file(properties: Mapping[str, str]) -> str:
    """Returns the content of a Java properties file with these properties."""
    lines = []
    for name, value in properties.items():
        escaped = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        if escaped.startswith((" ", "\t", "\f")):
            escaped = "\\" + escaped
        lines.append(f"{name}={escaped}\n")
    return "".join(lines)


@contextmanager
def _private_files(launch: Mapping[str, str], java: Sequence[str]) -> Iterator[Path]:
    """Writes both files, and passes their names to the ``spark-submit`` that pyspark starts; yields their folder."""
    given, theirs = _submit_arguments(os.environ.get(_SUBMIT_ARGUMENTS))
    # a folder of mode 0700, and files of mode 0600 under every umask
    with tempfile.TemporaryDirectory(prefix="eomirror-") as folder:
        # java does not expand nested @FILE
        nested = [option for option in java if option.startswith("@")]
        options = _write(
            Path(folder, "java-options"), argument_file(option for option in java if option not in nested)
        )
        properties = {**launch, _JAVA_OPTIONS[1]: shlex.join([f"@{options}", *nested])}
        path = _write(Path(folder, "spark.properties"), theirs + properties_file(properties))
        own = [_PROPERTIES_FILE, str(path), *([] if theirs else ["--load-spark-defaults"])]
        with _variables({_SUBMIT_ARGUMENTS: shlex.join([*own, *given])}):
            yield Path(folder)


@contextmanager
def _variables(values: Mapping[str, str]) -> Iterator[None]:
    """Sets variables of this process until the block ends."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _submit_arguments(given: str | None) -> tuple[list[str], str]:
    """Returns the user's arguments for ``spark-submit``, and the content of the properties file among them."""
    words = shlex.split(given or "pyspark-shell")
    for place, word in enumerate(words):
        name, _, path = word.partition("=")
        if name != _PROPERTIES_FILE:
            continue
        end = place + (1 if path else 2)
        path = path or "".join(words[place + 1 : end])
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(
                f"{_SUBMIT_ARGUMENTS} names {path}, which cannot be read: {error}", fix="correct the path"
            ) from error
        return words[:place] + words[end:], text + "\n"
    return words, ""


def _write(path: Path, text: str) -> Path:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
        stream.write(text)
    return path


# -- output of the JVM ---------------------------------------------------------------------------


def relay_lines(reading: int, last: list[str], muted: threading.Event | None = None) -> None:
    """
    Logs the stderr of a JVM or of workers, line by line, in the format of this process's log.

    Args:
        reading: Descriptor of the stream.
        last: Gets the last lines.
        muted: Lines are not logged once it is set.
    """
    with os.fdopen(reading, "rb") as lines:
        for raw in lines:
            if raw.startswith(_NOISE):
                continue
            line = _CREDENTIALS.sub(rb"\1***@", raw).decode(errors="replace").strip("\r\n")
            last.append(line.strip())
            del last[:-100]
            if muted is None or not muted.is_set():
                relay(line)
