"""
Provides the Spark context of a mirror: an own one, or the user's.

An own context has no SQL, no UI, and a JVM in its own session: a lost terminal or a SIGHUP, which the driver survives,
must not reach the JVM, because the lanes end with it.  The JVM still ends with the driver, whose end of a pipe it
watches.  Figures behind these choices: docs/adr/, "Spark is the engine".
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import structlog

from eomirror.errors import MirrorError, UsageError
from eomirror.spark.launch import end_jvm, first_line, launch_jvm, make_archive_later
from eomirror.spark.transport import (
    DEFAULT_MASTER,
    check_slots,
    check_transport,
    is_authenticated,
    is_local,
    local_transport,
)

if TYPE_CHECKING:
    import threading
    from collections.abc import Mapping

__all__ = [
    "SparkEngine",
    "channel_addresses",
    "check_settings",
    "engine_settings",
    "has_context",
    "open_engine",
    "replaced_settings",
    "submitted_settings",
]

log = structlog.get_logger(__name__)

# of names and values in Spark's UI and event log: Spark's default, other names of secrets, and passwords in URLs
_REDACTED = (
    r"(?i)secret|passw|passphrase|token|access[._-]?key|api[._-]?key|private[._-]?key|credential"
    r"|://[^/@\s]*:[^/@\s]*@"
)
# defaults that a cluster, or a user of spark-submit, may need otherwise
_CONVENIENT = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eomirror.channel.port": "0",
    # a standalone master may tell why an executor is gone, which nothing here asks; until then lanes are sent to it
    "spark.standalone.executorRemoveDelayOnDisconnection": "0s",
    # an executor only waits for its Python worker: its JVM starts with less CPU, which the others need at that time
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
_ONLY_LOCAL = {
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    # the only executor is a part of the driver
    "spark.executor.heartbeatInterval": "30s",
    # Spark has a thread for each core, of which a local master claims one for every lane that may ever run
    "spark.rpc.netty.dispatcher.numThreads": "2",
    "spark.shuffle.mapOutput.dispatcher.numThreads": "1",
    "spark.python.daemon.module": "eomirror.spark.pyspark_daemon",
}
# spark-submit sets a name itself, and the JVM has read its options when they are replaced
_ALWAYS_OURS = frozenset({"spark.app.name", "spark.driver.extraJavaOptions", "spark.master"})
_REASONS = {
    "spark.speculation": "a second copy of a lane and the first one would fence each other",
    "spark.task.maxFailures": "the driver retries lanes itself",
    "spark.authenticate": "any user of this machine could receive tasks, which contain passwords",
}
_LOG4J = Path(__file__).with_name("log4j2.properties")


def engine_settings(
    *, master: str | None, configured: Mapping[str, str], given: Mapping[str, str], version: str
) -> dict[str, str]:
    """
    Returns settings of an own context: defaults, overridden by the ``spark`` section, then by ``--spark-conf``.

    Args:
        master: ``--master``; wins over a ``spark.master`` setting.
        configured: The configuration's ``spark`` section.
        given: ``--spark-conf``.
        version: Release of eomirror.

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
        # the driver retries lanes with a new attempt number; Spark's own retries would hide failures
        "spark.task.maxFailures": "1",
        "spark.python.worker.reuse": "true",
        # a cancelled task is killed after Spark's poll of 2 s; a longer wait only lengthens the overlap
        "spark.python.task.killTimeout": "0s",
        "spark.python.worker.faulthandler.enabled": "true",
        # closures contain passwords: above this size Spark would write them to a broadcast file
        "spark.broadcast.UDFCompressionThreshold": str(64 << 20),
        "spark.redaction.regex": _REDACTED,
        "spark.eomirror.version": version,
        **_CONVENIENT,
    }
    java = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
    if is_local(chosen.get("spark.master", "")):
        settings.update(_ONLY_LOCAL)
        # a small JVM that only schedules: these options halve its start and avoid idle collector threads; its heap
        # begins small, not with a 64th of the machine's memory; and nothing reads the counters that it keeps for jstat
        java += " -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xms32m -XX:NewSize=12m -XX:MaxNewSize=24m"
        java += " -XX:-UsePerfData"
    settings["spark.driver.extraJavaOptions"] = java
    extra = chosen.pop("spark.driver.extraJavaOptions", "")
    settings.update(chosen)
    if extra:
        settings["spark.driver.extraJavaOptions"] = f"{java} {extra}"
    check_settings(settings)
    return settings


def submitted_settings(settings: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """
    Returns settings to add to those of ``spark-submit``.

    Its master wins, unless that is its default, and what it sets wins over our convenient defaults.  `engine_settings`
    did not know the master, so the defaults of a local one are left out for another: workers elsewhere could not reach
    a driver on the loopback interface.

    Args:
        settings: From `engine_settings`.
        found: Settings that ``spark-submit`` has made.
    """
    submitted = found.get("spark.master", "")
    keeps_master = submitted not in {"", "local[*]"}
    local = is_local(submitted if keeps_master else settings.get("spark.master", ""))
    added = {}
    for name, value in settings.items():
        if name == "spark.master" and keeps_master:
            continue
        default = _CONVENIENT.get(name) == value or _ONLY_LOCAL.get(name) == value
        if default and (name in found or (name in _ONLY_LOCAL and not local)):
            continue
        added[name] = value
    return added


def replaced_settings(added: Mapping[str, str], found: Mapping[str, str]) -> list[str]:
    """
    Returns names of settings of ``spark-submit`` that take another value; the mirror warns of them.

    Args:
        added: From `submitted_settings`.
        found: Settings that ``spark-submit`` has made.
    """
    return sorted(
        name
        for name, value in added.items()
        if name not in _ALWAYS_OURS and found.get(name, value).strip().lower() != value.lower()
    )


def check_settings(settings: Mapping[str, str]) -> None:
    """
    Refuses settings that would kill lanes or run them twice.

    Raises:
        UsageError: Names the setting and the fix.
    """
    if settings.get("spark.speculation", "false").lower() == "true":
        raise UsageError(
            "spark.speculation=true would run a second copy of every lane, and each copy fences the other",
            fix="set spark.speculation=false on the Spark context that runs the mirror",
        )
    idle = settings.get("spark.python.worker.idleTimeoutSeconds", "0").strip().rstrip("s") or "0"
    if idle != "0" and settings.get("spark.python.worker.killOnIdleTimeout", "false").lower() == "true":
        raise UsageError(
            "spark.python.worker.killOnIdleTimeout=true would kill lanes, which exchange no data with the JVM",
            fix="remove spark.python.worker.killOnIdleTimeout or spark.python.worker.idleTimeoutSeconds",
        )


@dataclass(slots=True)
class SparkEngine:
    """
    A running Spark context.

    Attributes:
        context: The pyspark ``SparkContext``.
        own: True if eomirror created the context and must stop it.
        gateway: Connection to the JVM, if eomirror started it too.
        used: True from the moment on at which lanes may run on it; before, errors of workers that start are not logged.
        archive: Lets the JVM's class archive be made in the background; None if it is not wanted.
    """

    context: Any
    own: bool
    gateway: Any = None
    used: bool = False
    archive: threading.Timer | None = None

    def use(self) -> None:
        """Lets lanes run on it; with a JVM of this program, its class archive is made later, unless it is there."""
        self.used = True
        if self.gateway is not None:
            self.archive = make_archive_later()

    @property
    def settings(self) -> dict[str, str]:
        """Settings of the context."""
        return dict(self.context.getConf().getAll())

    def close(self, *, patience: float = 1.0) -> None:
        """Stops an own context; kills a JVM that has not ended after ``patience`` seconds; never raises."""
        if not self.own:
            return
        if self.archive is not None:
            self.archive.cancel()
        if self.gateway is not None and not self.used:
            self.gateway.muted.set()
        try:
            self.context.stop()
        except Exception as error:  # noqa: BLE001  py4j raises any kind of error after the JVM's end
            log.debug("spark_stop_failed", error=str(error))
        if self.gateway is not None:
            end_jvm(self.gateway, patience)


def open_engine(spark: Any, settings: Mapping[str, str], *, lanes: int) -> SparkEngine:
    """
    Returns the user's context, else the active one of this process, else a new one.

    Args:
        spark: A SparkContext or SparkSession of the user, or None.
        settings: Settings of a new context, from `engine_settings`.
        lanes: Number of lanes that it must run.

    Raises:
        UsageError: The context cannot run the lanes.
        ConfigError: Its connections to other machines are not authenticated and encrypted.
        MirrorError: The JVM or the context does not start.
    """
    from pyspark import SparkContext

    found = spark if spark is not None else SparkContext._active_spark_context  # noqa: SLF001  only way not to start one
    if found is not None:
        context = getattr(found, "sparkContext", found)
        if not isinstance(context, SparkContext):
            raise UsageError(
                f"spark={type(found).__name__}: not a classic SparkContext or SparkSession",
                fix="pass a session that Spark Connect did not create, or None",
            )
        engine = SparkEngine(context, own=False)
        check_settings(engine.settings)
        if not is_local(context.master):
            check_transport(engine.settings, context.master)
        elif not is_authenticated(engine.settings):
            # it runs already, and the setting takes effect only when a context starts
            log.warning(
                "spark_not_authenticated",
                setting="spark.authenticate",
                reason="any process that reaches the ports of this context can receive its tasks, which contain the "
                "run's token and the passwords of the clusters",
                fix="create the context with spark.authenticate=true, or let the mirror create one",
            )
        check_slots(context.master, lanes)
        return engine
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        check_slots(settings.get("spark.master", os.environ.get("MASTER", "")), lanes)
    return _new_engine(settings, lanes=lanes)


def has_context() -> bool:
    """Returns True if this process has a Spark context, or ``spark-submit`` has started its JVM."""
    # another thread may be importing pyspark, which has no context then
    made = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    active = made is not None and made._active_spark_context is not None  # noqa: SLF001  see `open_engine`
    return active or "PYSPARK_GATEWAY_PORT" in os.environ


def channel_addresses(settings: Mapping[str, str], master: str) -> tuple[str, str, int]:
    """
    Returns the addresses of the lanes' channel: address to bind, host for workers, port (0 for a free one).

    Under a local master both are on the loopback interface.
    """
    port = int(settings.get("spark.eomirror.channel.port", "0"))
    if is_local(master):
        return "127.0.0.1", "127.0.0.1", port
    host = settings.get("spark.driver.host", "127.0.0.1")
    return settings.get("spark.driver.bindAddress", host), host, port


# -- inside --------------------------------------------------------------------------------------


class _WhereNumpyIs:
    """A converter of numpy values that is not asked before numpy is imported: until then there are none."""

    def __init__(self, converter: Any) -> None:
        self._converter = converter

    def can_convert(self, value: Any) -> bool:
        return "numpy" in sys.modules and self._converter.can_convert(value)

    def convert(self, value: Any, client: Any) -> Any:
        return self._converter.convert(value, client)


def _ask_late_for_numpy() -> None:
    """Replaces PySpark's converters of numpy values, whose first question imports pyarrow where it is: 25 MiB."""
    import py4j.protocol
    import pyspark.sql.types as registers_them

    numpy = registers_them.NumpyScalarConverter, registers_them.NumpyArrayConverter
    converters = py4j.protocol.INPUT_CONVERTER
    converters[:] = [_WhereNumpyIs(one) if isinstance(one, numpy) else one for one in converters]


def _new_engine(settings: Mapping[str, str], *, lanes: int) -> SparkEngine:
    from pyspark import SparkConf, SparkContext

    gateway: Any = None
    # pyspark stores the JVM in these names; an own gateway must be set before the first context
    if SparkContext._gateway is None:  # noqa: SLF001
        gateway = launch_jvm(settings)
    # a JVM that the user started must not be stopped
    started_here = gateway is not None and gateway.proc is not None
    _ask_late_for_numpy()
    try:
        SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  as above
        conf = SparkConf(_jvm=SparkContext._jvm)  # noqa: SLF001  as above
        settings = _with_found(settings, dict(conf.getAll()))
        for name, value in settings.items():
            conf.set(name, value)
        chosen = dict(conf.getAll())
        check_settings(chosen)
        check_transport(chosen, conf.get("spark.master", ""))
        check_slots(conf.get("spark.master", ""), lanes)
        context = SparkContext(conf=conf)
    except MirrorError:
        if started_here:
            end_jvm(gateway)
        raise
    except Exception as error:
        if started_here:
            end_jvm(gateway)
        raise MirrorError(
            f"the spark context does not start: {first_line(error)}",
            fix="check --master and the spark section of the configuration",
        ) from error
    return SparkEngine(context, own=True, gateway=gateway if started_here else None)


def _with_found(settings: Mapping[str, str], found: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings to make in a context for which the JVM has found these; a master is known only then."""
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if submitted:
        settings = submitted_settings(settings, found)
    settings = {**local_transport(settings.get("spark.master", found.get("spark.master", ""))), **settings}
    for name in replaced_settings(settings, found) if submitted else ():
        # Without the values: a setting may be a password.
        log.warning(
            "spark_setting_replaced",
            setting=name,
            reason=_REASONS.get(name, "the mirror sets it, or its configuration does"),
            fix="remove it from spark-submit or spark-defaults.conf; another value: in the section `spark` of "
            "the configuration, or --spark-conf",
        )
    return settings
