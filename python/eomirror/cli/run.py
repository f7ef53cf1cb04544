"""``eomirror run``: mirrors until stopped, until caught up, or for a given time."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self

import click

from eomirror.cli import options
from eomirror.cli.render import human_things, print_result
from eomirror.errors import MirrorError, UsageError
from eomirror.serve.http import parse_listen
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from concurrent.futures import Future
    from types import FrameType

    from eomirror.config import Config
    from eomirror.config.changes import ConfigChanges, WatchedFile
    from eomirror.mirror import Mirror
    from eomirror.serve.endpoints import Queries
    from eomirror.serve.http import Address
    from eomirror.serve.running import RunningEndpoints
    from eomirror.status.reader import StatusReader
    from eomirror.status.snapshot import RunReport, Snapshot

__all__ = [
    "ServiceManager",
    "Signals",
    "failure_in_one_format",
    "is_ready",
    "mirror_links",
    "parse_conf",
    "parse_offsets",
    "parse_until",
    "run",
    "status_line",
]

_OFFSET = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)=(?P<offset>\d+)")


def parse_until(text: str | None) -> str | float | None:
    """
    Parses ``--until``: returns ``caught-up``, the seconds of a duration such as ``30s``, or None.

    Raises:
        UsageError: The text is neither ``caught-up`` nor a duration.
    """
    if text is None or text == "caught-up":
        return text
    from eomirror.config.values import seconds_of

    seconds = seconds_of(text)
    if seconds is None:
        raise UsageError(
            f"--until {text}: not a duration", fix="use caught-up, or a duration such as 30s, 5m, 1h"
        )
    return seconds


def parse_offsets(option: str, texts: tuple[str, ...]) -> dict[SourcePartition, int]:
    """
    Parses values of the form ``TOPIC-PARTITION=OFFSET``.

    Args:
        option: Name of the option, for the error.
        texts: Values of the option.

    Raises:
        UsageError: A value has another form.
    """
    found = {}
    for text in texts:
        parts = _OFFSET.fullmatch(text)
        if parts is None:
            raise UsageError(
                f"{option} {text}: not of the form TOPIC-PARTITION=OFFSET",
                fix="write TOPIC-PARTITION=OFFSET, for example orders-3=1200",
            )
        found[SourcePartition(parts["topic"], int(parts["partition"]))] = int(parts["offset"])
    return found


def parse_conf(texts: tuple[str, ...]) -> dict[str, str]:
    """
    Parses values of the form ``KEY=VALUE``.

    Raises:
        UsageError: A value has another form.
    """
    confs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            # a password may follow the key, after a colon or a blank: do not show it
            key = re.split(r"[:\s]", text)[0]
            raise UsageError(f"--spark-conf {key}: no value", fix="write KEY=VALUE")
        confs[name] = value
    return confs


@click.command(epilog="Example: eomirror run mirror.yaml --until caught-up")
@options.config
@click.option(
    "--until", metavar="caught-up|DURATION", help="Stop when caught up, or after a duration such as 30s."
)
@options.links
@options.master
@options.spark_conf
@options.overrides
@options.take_over
@click.option(
    "--standby",
    is_flag=True,
    help="Stand by: take each link once its owner has stopped or is dead; stand by again if another takes it.",
)
@click.option(
    "--resume-at",
    multiple=True,
    metavar="TOPIC-PARTITION=OFFSET",
    help="Resume this partition at a source offset of your choice, if its position is missing or invalid.",
)
# the name of --resume-at before 0.1.0
@click.option("--adopt", multiple=True, hidden=True)
@options.into_filled
@options.listen
@click.option(
    "--otlp",
    is_flag=True,
    help="Send metrics by OTLP/HTTP, as OTEL_EXPORTER_OTLP_ENDPOINT and other variables say (extra otel).",
)
@options.per_partition
@options.per_group
@options.output()
def run(
    config: str,
    until: str | None,
    links: tuple[str, ...],
    master: str | None,
    spark_conf: tuple[str, ...],
    overrides: tuple[str, ...],
    resume_at: tuple[str, ...],
    adopt: tuple[str, ...],
    listen: str | None,
    otlp: bool,
    metrics_per_partition: bool,
    metrics_per_group: bool,
    output: str | None,
    **ordered: bool,
) -> int:
    """
    Mirror the links of CONFIG, exactly once.

    SIGTERM or Ctrl-C commits the open transactions and exits 0.  An unreachable cluster is retried until it answers,
    also with --until caught-up; other links keep running.  Refused credentials and missing ACLs fail a link at its
    start.

    With --standby, start the same command on several machines: one mirrors, the others take over within seconds.

    --otlp sends the same metrics every minute (OTEL_METRIC_EXPORT_INTERVAL), and once more at the end.

    --listen serves a page, metrics and health, read-only; a port that is in use ends the command with code 1 before
    anything starts.

    Exit codes: 0 done, 1 failed, or a link did not start before --until DURATION passed, 4 data loss, 5 another mirror
    owns the link, 6 the link is promoted, 78 the configuration is refused.
    """
    with Signals() as signals, failure_in_one_format():
        # first, because everything below takes time: until the handlers are set, a signal kills the process
        limit = parse_until(until)
        chosen = parse_offsets("--adopt", adopt) | parse_offsets("--resume-at", resume_at)
        confs = parse_conf(spark_conf)
        address = None if listen is None else parse_listen(listen)
        every_seconds = _export_interval() if otlp else None

        from eomirror.config import load_config
        from eomirror.config.changes import WatchedFile

        watched = WatchedFile(config, overrides)
        report = mirror_links(
            load_config(config, overrides=overrides),
            signals,
            watched=watched,
            until=limit,
            links=links,
            master=master,
            spark_conf=confs,
            adopt=chosen,
            address=address,
            every_seconds=every_seconds,
            per_partition=metrics_per_partition,
            per_group=metrics_per_group,
            output=output,
            **ordered,
        )
        if report.aborted and signals.stopped_by and not report.exit_code:
            # a lane did not finish in time and its transaction was aborted: exit like a process killed by the signal
            return 128 + signals.stopped_by[0]
        return report.exit_code


def mirror_links(
    loaded: Config,
    signals: Signals,
    *,
    until: str | float | None,
    links: tuple[str, ...],
    output: str | None,
    watched: WatchedFile | None = None,
    address: Address | None = None,
    every_seconds: float | None = None,
    per_partition: bool = False,
    per_group: bool = False,
    **given: Any,
) -> RunReport:
    """
    Mirrors until the end of the run, and prints its report.

    Args:
        loaded: The configuration.
        signals: End the run.
        until: As of `Mirror.run`.
        links: Names of the links; empty for all.
        output: Format of the report.
        watched: File that the configuration came from: its changes are taken while the mirror runs, unless the run ends
            when it has caught up.  None to watch none.
        address: Serves page and metrics there; None for none.
        every_seconds: Exports metrics by OTLP; None for never.
        per_partition: Metrics of each partition too.
        per_group: Metrics of each group too.
        given: Arguments of `Mirror`.
    """
    import structlog

    from eomirror import __version__
    from eomirror.cli.progress import ProgressDisplay
    from eomirror.driver.driver import CAUGHT_UP
    from eomirror.kafka.client_factory import secret_finder
    from eomirror.mirror import Mirror
    from eomirror.serve.running import RunningEndpoints

    log = structlog.get_logger(__name__)
    display = ProgressDisplay()
    service = ServiceManager()

    endpoints = RunningEndpoints(
        loaded.chosen(links),
        version=__version__,
        readers=_readers(loaded, links) if address is not None or every_seconds is not None else {},
        per_partition=per_partition,
        per_group=per_group,
        holds_secret=secret_finder(loaded.clusters.values()),
        queries=None if address is None else _queries(loaded),
    )

    changed = None if watched is None or until == CAUGHT_UP else _ChangedFile(watched)

    def look_at_file(mirror: Mirror) -> None:
        asked = signals.take_hang_up()
        if changed is None:
            if asked:
                display.event("SIGHUP: this run takes no changed configuration; start it again")
            return
        try:
            taken = changed.look(mirror, asked=asked)
        except MirrorError as error:
            mirror.refuse_configuration(error)
            log.error("configuration_refused", reason=error.message, fix=error.fix)  # noqa: TRY400  no fault of the code
            display.event("the changed configuration is refused, and the one of before stays in force")
            return
        if taken is None:
            return
        found, changes = taken
        log.info("configuration_taken", changes=changes.texts)
        if not changes.texts:
            display.event("the configuration was read again: no link is concerned")
        endpoints.reconfigure(
            found.chosen(links),
            {} if address is None and every_seconds is None else _readers(found, links),
            holds_secret=secret_finder(found.clusters.values()),
            queries=None if address is None else _queries(found),
        )

    def show(snapshot: Snapshot) -> None:
        endpoints.update(snapshot)
        look_at_file(mirror)
        display.update(snapshot)
        service.alive(snapshot, stopping=bool(signals.stopped_by))

    with (
        _listening(address, endpoints),
        _exporting(every_seconds, endpoints, read=address is None),
        Mirror(loaded, links=links, on_event=display.event, **given) as mirror,
    ):
        signals.attach(mirror)
        with display:
            report = mirror.run(until=until, on_progress=show)
    print_result(output, report.as_dict(), lambda: display.summary(report))
    return report


class _ChangedFile:
    """
    Lets a mirror take changes of its file, in a thread: a cluster with changed properties may not answer for seconds.

    Args:
        watched: The file.
    """

    def __init__(self, watched: WatchedFile) -> None:
        self._watched = watched
        self._asked = False
        self._taking: tuple[Config, Future[ConfigChanges]] | None = None

    def look(self, mirror: Mirror, *, asked: bool) -> tuple[Config, ConfigChanges] | None:
        """
        Returns a changed configuration once the mirror has taken it, with what differs; None for none.

        Args:
            mirror: The mirror.
            asked: Read the file in any case.

        Raises:
            MirrorError: The file is refused.
        """
        self._asked = self._asked or asked
        if self._taking is None:
            found, self._asked = self._watched.look(asked=self._asked), False
            if isinstance(found, MirrorError):
                raise found
            if found is None:
                return None
            from functools import partial

            from eomirror.kafka.parallel import in_thread

            self._taking = found, in_thread(partial(mirror.reconfigure, found), name="changed-file")
        config, changes = self._taking
        if not changes.done():
            return None
        self._taking = None
        return config, changes.result()


def _queries(config: Config) -> Queries:
    """Returns what answers questions of the page."""
    from eomirror.serve.queries import LinkQueries

    return LinkQueries(config)


@contextmanager
def _listening(address: Address | None, endpoints: RunningEndpoints) -> Iterator[None]:
    """Serves the endpoints; does nothing without an address."""
    if address is None:
        yield
        return
    import structlog

    from eomirror.serve.http import HttpServer

    server = HttpServer(address, endpoints.answer)
    structlog.get_logger(__name__).info("listening", url=server.url)
    endpoints.start()
    try:
        yield
    finally:
        endpoints.close()
        server.close()


def _export_interval() -> float | None:
    """
    Returns the seconds between two exports; None if the variables OTEL_* switch the export off.

    Raises:
        UsageError: The extra is not installed, or a variable asks for what is not offered.
    """
    import os

    try:
        from eomirror.metrics.otlp import interval_seconds
    except ImportError as error:
        raise UsageError(
            f"--otlp: the module {error.name} is not installed", fix="pip install 'eomirror[otel]'"
        ) from None
    return interval_seconds(os.environ)


@contextmanager
def _exporting(every_seconds: float | None, endpoints: RunningEndpoints, *, read: bool) -> Iterator[None]:
    """Exports metrics by OTLP; does nothing without an interval.  ``read``: the endpoints do not read topics yet."""
    if every_seconds is None:
        yield
        return
    from eomirror import __version__
    from eomirror.metrics.otlp import OtlpExport
    from eomirror.serve.endpoints import process_facts

    started = process_facts(__version__).started
    export = OtlpExport(endpoints.collect, version=__version__, started=started, every_seconds=every_seconds)
    if read:
        endpoints.start()
    export.start()
    try:
        yield
    finally:
        export.close()
        if read:
            endpoints.close()


def _readers(config: Config, links: tuple[str, ...]) -> dict[str, Callable[[], StatusReader]]:
    """Returns the makers of readers of the links' topics, which the endpoints show beside the driver's counters."""
    from functools import partial

    from eomirror.status.hanging import HangingTransactions
    from eomirror.status.reader import StatusReader

    return {
        link.name: partial(
            StatusReader,
            link,
            config.clusters[link.source],
            config.clusters[link.target],
            hanging=HangingTransactions,
        )
        for link in config.chosen(links)
    }


@contextmanager
def failure_in_one_format() -> Iterator[None]:
    """Logs an error as an event if the log is JSON, so that a program can read it."""
    try:
        yield
    except MirrorError as error:
        from eomirror.log import logs_json

        if not logs_json():
            raise
        import structlog

        structlog.get_logger(__name__).error(
            "run_failed",
            error=error.message,
            fix=error.fix,
            exit_code=error.exit_code,
            **({"missing_rights": error.missing_rights} if error.missing_rights else {}),
        )
        raise click.exceptions.Exit(error.exit_code) from error


class Signals:
    """
    Records signals while the command runs.

    Handlers interrupt this thread anywhere, also while it prints or imports, so they only set flags.

    Attributes:
        stopped_by: Signals that requested a stop.
    """

    def __init__(self) -> None:
        self.stopped_by: list[int] = []
        self._hung_up: list[bool] = []
        self._mirror: Mirror | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hang_up)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def attach(self, mirror: Mirror) -> None:
        """Stops this mirror at the next signal, or at once after an earlier one."""
        self._mirror = mirror
        if self.stopped_by:
            mirror.stop()

    def take_hang_up(self) -> bool:
        """Returns True if SIGHUP came since the last call."""
        hung_up = bool(self._hung_up)
        self._hung_up.clear()
        return hung_up

    def _stop(self, number: int, _: FrameType | None) -> None:
        self.stopped_by.append(number)
        if self._mirror is not None:
            self._mirror.stop()

    def _hang_up(self, _: int, __: FrameType | None) -> None:
        self._hung_up.append(True)


#: states of a link that still does its first work
_STARTING: Final = frozenset({"preparing", "acquiring"})


def is_ready(snapshot: Snapshot) -> bool:
    """
    Returns True if every link mirrors, has ended, or waits for a cluster.

    A link whose cluster is away counts: the mirror retries it for ever, and a restart of the service would not help.
    """
    return bool(snapshot.links) and all(link.state not in _STARTING for link in snapshot.links)


def status_line(snapshot: Snapshot) -> str:
    """Returns the number of links in each state and the lag, such as ``2 running; lag 12 records``."""
    states = [link.state for link in snapshot.links]
    text = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states))
    lag = snapshot.lag_records
    return f"{text}; lag {'unknown' if lag is None else human_things(lag, 'record')}"


class ServiceManager:
    """
    Sends the state of this process to the service manager that started it.

    Args:
        environ: The environment; ``NOTIFY_SOCKET`` names the socket.
    """

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._ready = False
        self._stopping = False
        self._status = ""

    def alive(self, snapshot: Snapshot, *, stopping: bool = False) -> None:
        """
        Resets the watchdog and reports the links; once each, that the service is ready, and that it stops.

        Args:
            stopping: The mirror was asked to stop: it commits its open transactions and ends.
        """
        lines = ["WATCHDOG=1"]
        if not self._ready and is_ready(snapshot):
            self._ready = True
            lines.append("READY=1")
        if stopping and not self._stopping:
            self._stopping = True
            lines.append("STOPPING=1")
        if (status := status_line(snapshot)) != self._status:
            self._status = status
            lines.append(f"STATUS={status}")
        self._send(lines)

    def _send(self, lines: list[str]) -> None:
        if not self._address:
            return
        # an abstract socket begins with a zero byte, which the variable writes as @
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        # a service manager that is away or busy must not stop the mirror
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.settimeout(0)
            channel.sendto("\n".join(lines).encode(), address)
