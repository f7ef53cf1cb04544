"""
The Spark context that a mirror runs on: its own, or the user's.

An own context has no SQL, no UI, and a JVM in a session of its own: a lost terminal or a SIGHUP, which ends nothing in
the driver, must not reach the JVM, because a dying JVM takes all lanes with it.  The JVM still ends with the
driver, whose end of a pipe it watches.  Numbers in reference to these choices: docs/adr/, "Spark is the engine".
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.cache import archive_arguments
from eomirror.errors import MirrorError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "DEFAULT_MASTER",
    "SparkEngine",
    "channel_addresses",
    "check_settings",
    "engine_settings",
    "open_engine",
    "spark_archive",
]

log = structlog.get_logger(__name__)

#: Slots cost nothing until used, and a local master cannot grow.
DEFAULT_MASTER = "local[256]"

# what the JVM must be told on its command line, because it is too late afterwards; nothing secret is among it
_LAUNCH_SETTINGS = frozenset(
    {
        "spark.driver.memory",
        "spark.driver.extraJavaOptions",
        "spark.driver.defaultJavaOptions",
        "spark.driver.extraClassPath",
        "spark.driver.extraLibraryPath",
        "spark.jars",
        "spark.jars.packages",
        "spark.jars.repositories",
        "spark.jars.ivy",
        "spark.jars.ivySettings",
    }
)

_LOG4J = Path(__file__).with_name("log4j2.properties")
_LOCAL = re.compile(r"local(?:\[(?P<slots>\*|\d+)(?:,\s*\d+)?\])?")

# the JVM's own words at start, of no use to anybody who runs a mirror
_NOISE = (b"WARNING: Using incubator modules", b"Picked up JAVA_TOOL_OPTIONS", b"Picked up JDK_JAVA_OPTIONS")


def engine_settings(
    *, master: str | None, configured: Mapping[str, str], given: Mapping[str, str], version: str
) -> dict[str, str]:
    """
    Settings of an own context: our defaults, then the configuration's ``spark`` section, then ``--spark-conf``.

    Args:
        master: ``--master``; wins over a ``spark.master`` setting.
        configured: The configuration's ``spark`` section.
        given: ``--spark-conf``.
        version: Our release.

    Raises:
        UsageError: A setting would break lanes.
    """
    chosen = {**configured, **given}
    if master:
        chosen["spark.master"] = master
    elif not chosen.get("spark.master") and "MASTER" not in os.environ:
        chosen["spark.master"] = DEFAULT_MASTER
    settings = {
        "spark.app.name": "eomirror",
        "spark.scheduler.mode": "FAIR",
        "spark.speculation": "false",
        # the driver repeats lanes, with a new attempt number; Spark's own repetition would hide that
        "spark.task.maxFailures": "1",
        "spark.python.worker.reuse": "true",
        # a cancelled task is killed after Spark's poll of 2 s; waiting longer only lengthens the overlap
        "spark.python.task.killTimeout": "0s",
        "spark.python.worker.faulthandler.enabled": "true",
        # closures hold passwords: above this size Spark would put them into a broadcast file
        "spark.broadcast.UDFCompressionThreshold": str(64 << 20),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.eomirror.version": version,
        "spark.eomirror.channel.port": "0",
    }
    java = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    if _is_local(chosen.get("spark.master", "")):
        settings["spark.driver.memory"] = "512m"
        settings["spark.driver.host"] = "127.0.0.1"
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        # one small JVM that only schedules: starts in half the time and keeps no idle threads for collection
        java += " -XX:+UseSerialGC -XX:TieredStopAtLevel=1"
    settings["spark.driver.extraJavaOptions"] = java
    extra = chosen.pop("spark.driver.extraJavaOptions", "")
    settings.update(chosen)
    if extra:
        settings["spark.driver.extraJavaOptions"] = f"{java} {extra}"
    check_settings(settings)
    return settings


def check_settings(settings: Mapping[str, str]) -> None:
    """
    Refuse settings under which a lane cannot live long or lives twice.

    Raises:
        UsageError: Names the setting and what to do.
    """
    if settings.get("spark.speculation", "false").lower() == "true":
        raise UsageError(
            "spark.speculation=true would run a second copy of every lane, and each copy fences the other",
            fix="set spark.speculation=false on the Spark context that runs the mirror",
        )
    idle = settings.get("spark.python.worker.idleTimeoutSeconds", "0").strip().rstrip("s") or "0"
    if idle != "0" and settings.get("spark.python.worker.killOnIdleTimeout", "false").lower() == "true":
        raise UsageError(
            "spark.python.worker.killOnIdleTimeout=true would kill lanes: they exchange nothing with the JVM",
            fix="remove spark.python.worker.killOnIdleTimeout or spark.python.worker.idleTimeoutSeconds",
        )


def check_slots(master: str, lanes: int) -> None:
    """
    Refuse a local master with fewer slots than lanes; a cluster's slots come and go.

    Raises:
        UsageError: Some lanes would never run.
    """
    found = _LOCAL.fullmatch(master)
    if found is None:
        return
    slots = found["slots"] or "1"
    count = (os.cpu_count() or 1) if slots == "*" else int(slots)
    if count < lanes:
        raise UsageError(
            f"spark.master={master} has {count} slots for {lanes} lanes, and a lane holds its slot",
            fix=f"use {DEFAULT_MASTER} (a slot costs nothing until it is used), or fewer lanes",
        )


@dataclass(slots=True)
class SparkEngine:
    """
    A running Spark context.

    Attributes:
        context: The pyspark ``SparkContext``.
        own: Whether we made it and must stop it.
        gateway: Connection to the JVM, if we started that too.
    """

    context: Any
    own: bool
    gateway: Any = None

    @property
    def settings(self) -> dict[str, str]:
        """The context's settings."""
        return dict(self.context.getConf().getAll())

    def close(self, *, patience: float = 1.0) -> None:
        """Stop what is ours, killing a JVM that has not ended after ``patience`` seconds; never raises."""
        if not self.own:
            return
        try:
            self.context.stop()
        except Exception as error:  # noqa: BLE001  py4j raises of all kinds when the JVM is gone
            log.debug("spark_stop_failed", error=str(error))
        if self.gateway is not None:
            _end_jvm(self.gateway, patience)


def open_engine(spark: Any, settings: Mapping[str, str], *, lanes: int) -> SparkEngine:
    """
    The engine to run on: the user's, one that is active in this process, or a new one.

    Args:
        spark: A SparkContext or SparkSession of the user, or None.
        settings: For a new context, from `engine_settings`.
        lanes: How many lanes it must hold.

    Raises:
        UsageError: The context cannot hold lanes.
        MirrorError: The JVM or the context does not start.
    """
    from pyspark import SparkContext

    found = spark if spark is not None else SparkContext._active_spark_context  # noqa: SLF001  only way not to start one
    if found is not None:
        context = getattr(found, "sparkContext", found)
        if not isinstance(context, SparkContext):
            raise UsageError(
                f"spark={type(found).__name__}: not a classic SparkContext or SparkSession",
                fix="pass a session that was not made by Spark Connect, or none",
            )
        engine = SparkEngine(context, own=False)
        check_settings(engine.settings)
        check_slots(context.master, lanes)
        return engine
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_slots(settings.get("spark.master", os.environ.get("MASTER", "")), lanes)
    return _new_engine(settings, lanes=lanes)


def channel_addresses(settings: Mapping[str, str], master: str) -> tuple[str, str, int]:
    """
    Where the lanes' channel listens: address to bind, host that workers connect to, port (0 = any free one).

    Under a local master all of it stays on the loopback interface.
    """
    port = int(settings.get("spark.eomirror.channel.port", "0"))
    if _is_local(master):
        return "127.0.0.1", "127.0.0.1", port
    host = settings.get("spark.driver.host", "127.0.0.1")
    return settings.get("spark.driver.bindAddress", host), host, port


def spark_archive() -> tuple[str, list[Path]]:
    """What `eomirror.cache.class_archive` is asked for Spark's driver: its name and its jars."""
    import pyspark
    from pyspark.find_spark_home import _find_spark_home

    return f"spark-{pyspark.__version__}", sorted(Path(_find_spark_home(), "jars").glob("*.jar"))


# -- inside --------------------------------------------------------------------------------------


def _new_engine(settings: Mapping[str, str], *, lanes: int) -> SparkEngine:
    from pyspark import SparkConf, SparkContext

    gateway: Any = None
    # pyspark keeps the JVM in these names; a gateway of our own goes in there before the first context
    if SparkContext._gateway is None:  # noqa: SLF001
        gateway = _launch_jvm(settings)
    # a JVM that somebody else started is theirs to stop
    started_here = gateway is not None and gateway.proc is not None
    try:
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  as above
        conf = SparkConf(_jvm=SparkContext._jvm)  # noqa: SLF001  as above
        submitted = "PYSPARK_GATEWAY_PORT" in os.environ
        for name, value in settings.items():
            # spark-submit's own master stands unless it is one that it made up
            if submitted and name == "spark.master" and conf.get(name, "") not in {"", "local[*]"}:
                continue
            conf.set(name, value)
        check_settings(dict(conf.getAll()))
        check_slots(conf.get("spark.master", ""), lanes)
        context = SparkContext(conf=conf)
    except MirrorError:
        if started_here:
            _end_jvm(gateway)
        raise
    except Exception as error:
        if started_here:
            _end_jvm(gateway)
        raise MirrorError(
            f"the spark context does not start: {_first_line(error)}",
            fix="check --master and the spark section of the configuration",
        ) from error
    return SparkEngine(context, own=True, gateway=gateway if started_here else None)


def _launch_jvm(settings: Mapping[str, str]) -> Any:
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway

    launch = SparkConf(loadDefaults=False)
    for name in sorted(_LAUNCH_SETTINGS & settings.keys()):
        launch.set(name, settings[name])
    java = settings.get("spark.driver.extraJavaOptions", "")
    if "-XX:ArchiveClassesAtExit" not in java and "-XX:SharedArchiveFile" not in java:
        launch.set("spark.driver.extraJavaOptions", " ".join([java, *archive_arguments(*spark_archive())]))
    # workers are started by this JVM: the interpreter must be the one that has eomirror
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    reading, writing = os.pipe()
    options: dict[str, Any] = {"start_new_session": True, "stderr": writing, "stdout": subprocess.DEVNULL}
    last: list[str] = []
    threading.Thread(target=_relay, args=(reading, last), name="spark-stderr", daemon=True).start()
    try:
        return launch_gateway(launch, popen_kwargs=options)
    except (PySparkRuntimeError, OSError) as error:
        said = "; ".join(last[-3:]) or _first_line(error)
        raise MirrorError(
            f"the java virtual machine for spark does not start: {said}",
            fix="install Java 17 or newer, and set JAVA_HOME to it or put java on the PATH",
        ) from error
    finally:
        os.close(writing)


def _relay(reading: int, last: list[str]) -> None:
    """Pass the JVM's and the workers' stderr on, without the noise of the start."""
    with os.fdopen(reading, "rb") as lines:
        for line in lines:
            if line.startswith(_NOISE):
                continue
            last.append(line.decode(errors="replace").strip())
            del last[:-10]
            try:
                sys.stderr.buffer.write(line)
                sys.stderr.buffer.flush()
            except (AttributeError, OSError, ValueError):
                sys.stderr.write(line.decode(errors="replace"))


def _end_jvm(gateway: Any, patience: float = 1.0) -> None:
    from pyspark import SparkContext

    try:
        gateway.shutdown()
    except Exception as error:  # noqa: BLE001  py4j raises of all kinds when the JVM is gone
        log.debug("gateway_shutdown_failed", error=str(error))
    # the next context of this process must not find a dead one
    if SparkContext._gateway is gateway:  # noqa: SLF001
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001
    # the JVM ends when this pipe does
    gateway.proc.stdin.close()
    try:
        gateway.proc.wait(patience)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


def _is_local(master: str) -> bool:
    return _LOCAL.fullmatch(master) is not None


def _first_line(error: BaseException) -> str:
    # py4j puts the Java exception and its stack behind the first line
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith(("An error occurred while calling", "at "))]
    return (useful or lines or [type(error).__name__])[0].removeprefix(": ")[:500]
