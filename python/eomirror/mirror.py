"""
Library interface to a mirror::

    with Mirror(load_config("mirror.yaml")) as mirror:
        report = mirror.run(until="caught-up", on_progress=print)

or beside other work, in a notebook or a task of a scheduler::

    with Mirror(load_config("mirror.yaml")) as mirror:
        mirror.start()
        ...
        mirror.stop()
        report = mirror.wait()

The command line is a thin layer over this class.  It never exits the process and installs no signal handlers.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, wait
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from eomirror.errors import ConfigError, HandshakeError, UnreachableError, UsageError
from eomirror.types import RunOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from eomirror.config import Cluster, Config, Link
    from eomirror.config.changes import ConfigChanges
    from eomirror.driver.driver import MirrorDriver
    from eomirror.errors import MirrorError
    from eomirror.status.snapshot import RunReport, Snapshot

__all__ = ["Mirror"]


def _with_ends(config: Config, links: Sequence[Link]) -> list[tuple[Link, Cluster, Cluster]]:
    """Returns each link with its source and its target."""
    return [(link, config.clusters[link.source], config.clusters[link.target]) for link in links]


class Mirror:
    """
    Mirrors the links of a configuration, exactly once.

    Args:
        config: Configuration from `eomirror.load_config`.
        spark: SparkContext or classic SparkSession to run on; it is used as it is and never stopped.  None uses the
            active one of this process, or starts one and stops it at the end of `run`.
        links: Names of the links to run; empty for all of the configuration.
        master: Spark master of an own context; ``local[256]`` by default.
        spark_conf: Spark properties of an own context; they override the configuration's ``spark`` section.
        on_event: Called with a short text for each step; from several threads.
        options: Fields of `eomirror.types.RunOptions`, such as ``take_over``.

    Raises:
        UsageError: A link does not exist, or options contradict each other.
    """

    def __init__(
        self,
        config: Config,
        *,
        spark: Any = None,
        links: Sequence[str] = (),
        master: str | None = None,
        spark_conf: Mapping[str, str] | None = None,
        on_event: Callable[[str], None] | None = None,
        **options: Any,
    ) -> None:
        self._options = RunOptions(**options)
        self._chosen = tuple(links)
        self._links = self._links_of(config)
        if self._options.adopt and len(self._links) != 1:
            raise UsageError(
                "adopted positions apply to one link, but several would run",
                fix="name the link: --link NAME, or links=[NAME]",
            )
        if self._options.standby and (self._options.take_over or self._options.adopt):
            raise UsageError(
                "a mirror that stands by waits for the owner of a link: it takes none over, and overrules no position",
                fix="start it without --standby, or without --take-over and --resume-at",
            )
        if spark is not None and (master or spark_conf):
            raise UsageError(
                "master and settings of a given Spark context cannot be changed",
                fix="set them when you create the context",
            )
        self._config = config
        self._spark = spark
        self._master = master
        self._spark_conf = dict(spark_conf or {})
        self._on_event = on_event
        self._driver: MirrorDriver | None = None
        self._background: Future[RunReport] | None = None
        self._unseen_error = False
        self._snapshot: Snapshot | None = None
        # reentrant: `stop` may interrupt `run` in the same thread, from a signal handler
        self._lock = threading.RLock()
        self._stop_requested = False

    def run(
        self,
        until: str | float | None = None,
        on_progress: Callable[[Snapshot], None] | None = None,
    ) -> RunReport:
        """
        Mirrors; blocks until the end of the run.

        An unreachable cluster is retried without limit, at the start and later; snapshots name it.

        Each link fails alone: the others continue, and the error is raised when all have ended.  A topic that cannot be
        mirrored (data lost on the source, a record that the target refuses) stops alone: snapshots and the report name
        it, and the report of a run with ``until`` has its exit code.

        Args:
            until: ``"caught-up"``: return when the source's current last stable offsets are reached; a number: return
                after that many seconds; None: run until `stop`.
            on_progress: Called in this thread, about twice a second.

        Raises:
            UsageError: ``until`` is none of these.
            ConfigError: librdkafka does not know a property of a cluster, or refuses its value.
            SupersededError: Another mirror owns a link.
            DataLossError: A link's source lost records.
            MirrorError: Another error ended a link.
        """
        return self._end(self._begin(until), until, on_progress)

    def start(
        self,
        until: str | float | None = None,
        on_progress: Callable[[Snapshot], None] | None = None,
    ) -> None:
        """
        Begins what `run` does in a thread of its own, and returns at once.

        The thread does not keep the program alive: call `stop` and `wait` before its end, or use a ``with`` block.

        Args:
            until: As of `run`.
            on_progress: As of `run`, but called in that thread.

        Raises:
            UsageError: ``until`` has no valid value, or this mirror runs already.
            ConfigError: As of `run`; other errors are raised by `wait`.
        """
        driver = self._begin(until)
        ended: Future[RunReport] = Future()

        def run() -> None:
            try:
                report = self._end(driver, until, on_progress)
            except BaseException as error:  # noqa: BLE001  `wait` raises it
                self._unseen_error = True
                ended.set_exception(error)
            else:
                ended.set_result(report)

        self._background, self._unseen_error = ended, False
        threading.Thread(target=run, name="mirror", daemon=True).start()

    def wait(self, seconds: float | None = None) -> RunReport | None:
        """
        Waits for the end of the run that `start` began; returns its report, also when called again.

        Args:
            seconds: Returns None if the run has not ended after so many seconds; None waits without limit.

        Raises:
            UsageError: `start` was not called.
            MirrorError: The error that ended the run, as of `run`.
        """
        if self._background is None:
            raise UsageError("this mirror was not started", fix="call `start` before `wait`")
        # not the timeout of `result`: the run itself may end with that error
        if not wait([self._background], seconds).done:
            return None
        self._unseen_error = False
        return self._background.result()

    def snapshot(self) -> Snapshot | None:
        """Returns the state of the links, half a second old at most while the mirror runs; None before the first."""
        return self._snapshot

    def _begin(self, until: str | float | None) -> MirrorDriver:
        """Checks what can be checked without a cluster, and returns the driver of the run."""
        import structlog  # noqa: PLC0415  imported on use

        from eomirror import __version__  # noqa: PLC0415  imported on use
        from eomirror.driver.driver import CAUGHT_UP, DriverOptions, MirrorDriver  # noqa: PLC0415  imported on use
        from eomirror.kafka.client_check import property_faults  # noqa: PLC0415  imported on use
        from eomirror.log import configure_logging  # noqa: PLC0415  imported on use
        from eomirror.spark.context import engine_settings  # noqa: PLC0415  imported on use
        from eomirror.topics.rights import with_all_missing  # noqa: PLC0415  imported on use

        if isinstance(until, str) and until != CAUGHT_UP:
            raise UsageError(
                f"until={until!r}: not a valid value", fix='use "caught-up", or a number of seconds'
            )
        if until == CAUGHT_UP and self._options.standby:
            raise UsageError(
                "a mirror that stands by may wait for ever, and would not catch up",
                fix="use no `until`, or seconds",
            )
        faults = property_faults(self._clusters(self._config, self._links))
        if faults:
            raise ConfigError(faults, source=self._config.origin)
        if not structlog.is_configured():
            # structlog's default prints the local variables of a traceback, some of which contain passwords
            configure_logging()
        for warning in self._config.warnings:
            structlog.get_logger(__name__).warning("configuration", warning=str(warning))
        driver = MirrorDriver(
            _with_ends(self._config, self._links),
            DriverOptions(
                version=__version__,
                settings={}
                if self._spark is not None
                else engine_settings(
                    master=self._master,
                    configured=self._config.spark,
                    given=self._spark_conf,
                    version=__version__,
                ),
                spark=self._spark,
                ordered=self._options,
                on_event=self._on_event,
                clusters=self._config.clusters,
                all_missing=partial(with_all_missing, self._config),
            ),
        )
        with self._lock:
            if self._driver is not None:
                raise UsageError(
                    "this mirror is already running",
                    fix="call `stop` and wait for its end (`wait`, or the return of `run`), or create another Mirror",
                )
            self._driver = driver
            if self._stop_requested:
                driver.request_stop()
        return driver

    def _end(
        self,
        driver: MirrorDriver,
        until: str | float | None,
        on_progress: Callable[[Snapshot], None] | None,
    ) -> RunReport:
        """Runs the driver until its end."""

        def show(snapshot: Snapshot) -> None:
            self._snapshot = snapshot
            if on_progress is not None:
                on_progress(snapshot)

        try:
            return driver.run(until, show)
        finally:
            with self._lock:
                self._driver = None
                self._stop_requested = False

    def reconfigure(self, config: Config) -> ConfigChanges:
        """
        Takes a changed configuration while the mirror runs, or before.

        Links that only differ in settings of `eomirror.config.changes.LIVE` go on, and their lanes too.  Links that
        differ otherwise end and begin again; new ones begin, and those that are gone end.  The others are not touched.
        Returns at once; snapshots show the links that end and begin.

        Args:
            config: The configuration that replaces the one in force.

        Returns:
            What differs.

        Raises:
            ConfigError: librdkafka refuses a property of a cluster.
            UsageError: A link that was asked for is gone, or Spark has too few slots.
            ClusterError: A cluster whose properties have changed refuses them, such as a wrong password.  In all cases
                the configuration of before stays in force.
        """
        from eomirror.config.changes import changes_of  # noqa: PLC0415  imported on use
        from eomirror.kafka.client_check import property_faults  # noqa: PLC0415  imported on use
        from eomirror.topics.rights import with_all_missing  # noqa: PLC0415  imported on use

        changes = changes_of(self._config, config, self._chosen)
        links = self._links_of(config)
        if faults := property_faults(self._clusters(config, links)):
            raise ConfigError(faults, source=config.origin)
        if self._driver is not None:
            self._refuse_logins(config, links)
        with self._lock:
            if self._driver is not None:
                self._driver.reconfigure(
                    _with_ends(config, links),
                    changes,
                    clusters=config.clusters,
                    all_missing=partial(with_all_missing, config),
                )
                self._driver.refuse_configuration("")
            self._config, self._links = config, links
        return changes

    def _refuse_logins(self, config: Config, links: Sequence[Link]) -> None:
        """
        Raises the error of a cluster that refuses its changed properties, or does not answer with them.

        One that answers neither with those of before is waited for: it may be what the change mends.
        """
        from eomirror.kafka.reachability import unreachable_clusters  # noqa: PLC0415  imported on use

        changed = [
            cluster
            for cluster in self._clusters(config, links)
            if cluster != self._config.clusters.get(cluster.alias)
        ]
        if not (errors := unreachable_clusters(changed)):
            return
        away = unreachable_clusters(
            self._config.clusters[alias] for alias in errors if alias in self._config.clusters
        )
        for alias, error in errors.items():
            refused = isinstance(error, HandshakeError) or not isinstance(error, UnreachableError)
            if refused or (alias in self._config.clusters and alias not in away):
                raise error

    def refuse_configuration(self, error: MirrorError) -> None:
        """Shows a changed configuration as refused, in the state of each link, until one is taken."""
        with self._lock:
            if self._driver is not None:
                self._driver.refuse_configuration(str(error))

    def _links_of(self, config: Config) -> list[Link]:
        """Returns the links to run, each once."""
        return list(dict.fromkeys(config.chosen(self._chosen)))

    @staticmethod
    def _clusters(config: Config, links: Sequence[Link]) -> list[Cluster]:
        used = {alias for link in links for alias in (link.source, link.target, *(link.origins or ()))}
        return [cluster for alias, cluster in config.clusters.items() if alias in used]

    def stop(self) -> None:
        """
        Requests that the run commits the open transactions and ends within 5 s; returns at once.

        May be called from any thread and from a signal handler.  Before `run` or `start`, it makes the next run end at
        once.
        """
        self._stop_requested = True
        driver = self._driver
        if driver is not None:
            driver.request_stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self._background is not None:
            wait([self._background])
        self._stop_requested = False
        if self._unseen_error and error is None:
            self.wait()
