"""
Spark task that runs one attempt of a lane on a worker.

`LaneTask` is pickled by reference, so eomirror must be installed for the workers' Python (``PYSPARK_PYTHON``; the docs
describe ``--archives`` for YARN and Kubernetes).  Its fields travel in the task's closure.

The closure contains the run's token and broker passwords that are written in the configuration; nothing here prints
them.  Passwords with a reference (``${env:NAME}``, ``${file:/path}``) travel as references under every master but a
local one, and the worker resolves them (`eomirror.config.carried`).  Workers of a local master are on the driver's
machine but may have another environment (a context that is older than a variable), so they get the text.
`eomirror.spark.transport` refuses a cluster whose connections are not authenticated and encrypted, and authenticates
those of a local master.

PySpark must not write the closure to a file.  It would, unencrypted, for a closure above
`spark.broadcast.UDFCompressionThreshold` (1 MiB in a user's context).  So the spec travels compressed, which leaves
room for more than 10,000 topics, and `eomirror.spark.jobs` refuses a larger one.  Spark keeps the closures of running
stages in memory and moves them to ``spark.local.dir`` only when the storage memory of the driver or an executor is
full; if that folder is not trusted, ``spark.io.encryption.enabled`` encrypts it.

PySpark forks workers from a daemon and reuses them.  So a task imports clients here and not in the daemon, reads all of
its input (a worker with unread input exits, and the next epoch takes 1.5 s for a new one), and restores the signal
handlers at the end.  If the driver or the executor dies, the task gets SIGHUP (PySpark's daemon sends it to all of its
workers) or SIGTERM, in the main thread, in which the lane runs; a cancelled task gets SIGKILL.

glibc returns freed memory to the kernel as soon as 128 KiB are free at the top of a heap, and initially takes blocks of
that size from the kernel one by one.  A lane allocates and frees fetch buffers and messages all the time, so the kernel
would clear the same pages repeatedly: 0.25 to 0.30 page faults per record of 1 kB, and 0.06 with these settings
(measured; see `mallopt(3)`).  The price: up to `_KEEP_BYTES` per heap stay allocated while a lane is idle.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import pickle
import signal
import socket
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.config.carried import CarriedCluster, carried_link, resolved_link
from eomirror.errors import AuthorizationError, ConfigError, MirrorError
from eomirror.lane.spec import Ending, LaneMailbox, LaneReport, LaneSpec

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import FrameType

__all__ = [
    "FORKED_MODULES",
    "LaneFunction",
    "LaneTask",
    "LaneTasks",
    "WarmUpTask",
    "keep_freed_memory",
    "load_forked_modules",
    "pack_spec",
    "unpack_spec",
]

# <malloc.h>
_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3

_KEEP_BYTES = 64 * 2**20
# glibc's maximum: half of a heap
_MOST_MMAP_THRESHOLD = 32 * 2**20
_PAD_BYTES = 2**20


def keep_freed_memory() -> bool:
    """Makes glibc keep freed memory for the next allocation; returns False if the C library has no such setting."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return False
    return all(
        mallopt(parameter, value) == 1
        for parameter, value in (
            (_M_MMAP_THRESHOLD, _MOST_MMAP_THRESHOLD),
            (_M_TRIM_THRESHOLD, _KEEP_BYTES),
            (_M_TOP_PAD, _PAD_BYTES),
        )
    )


LaneFunction = Callable[[LaneSpec, LaneMailbox, Clock], LaneReport]

#: Modules of a lane that a process may import before it forks: they start no thread and load no client.
FORKED_MODULES = (
    # most of what confluent_kafka imports
    "asyncio",
    "eomirror.log",
    "eomirror.spark.mailbox",
    "eomirror.spark.attempt",
    "eomirror.link.lane_state",
    "eomirror.link.background_looks",
    "eomirror.plane.native.plane",
)


def load_forked_modules() -> None:
    """Imports `FORKED_MODULES` in a process that forks workers."""
    for name in FORKED_MODULES:
        importlib.import_module(name)
    # a collection in a worker would write to every object, and each worker then has a copy of all modules
    gc.collect()
    gc.freeze()


# more objects than a batch of records with a few headers each
_COLLECT_EVERY = 200_000

_SIGNALS = (signal.SIGHUP, signal.SIGTERM)

# time to abort and close after a signal; then SIGALRM's default action ends the process
_LAST_SECONDS = 10


def pack_spec(spec: LaneSpec, *, remote: bool = False) -> bytes:
    """
    Returns the compressed spec: names and ids repeat, and the fastest level finds most repetitions.

    Args:
        spec: Spec of the attempt.
        remote: True if the worker may be on another machine: secrets are then replaced by their references.
    """
    carried: tuple[CarriedCluster, CarriedCluster] | None = None
    if remote:
        carried = (CarriedCluster.of(spec.source), CarriedCluster.of(spec.target))
        link = carried_link(spec.link)
        spec = replace(spec, link=link, source=carried[0].cluster, target=carried[1].cluster)
    return zlib.compress(pickle.dumps((spec, carried), protocol=pickle.HIGHEST_PROTOCOL), 1)


def unpack_spec(packed: bytes, environ: Mapping[str, str]) -> LaneSpec:
    """
    Returns the spec that `pack_spec` packed in the same release, with the secrets of this process.

    Args:
        packed: Result of `pack_spec`.
        environ: Environment of this process.

    Raises:
        ConfigError: A variable or a file that a secret refers to is missing here.
    """
    spec, carried = pickle.loads(zlib.decompress(packed))  # noqa: S301  in the same closure as this code's name
    if not isinstance(spec, LaneSpec):
        raise TypeError(f"the task contains {type(spec).__name__}, not a LaneSpec")
    if carried is None:
        return spec
    link = resolved_link(spec.link, environ)
    return replace(spec, link=link, source=carried[0].resolve(environ), target=carried[1].resolve(environ))


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTask:
    """
    Function of a one-partition Spark job that runs an attempt.

    Attributes:
        packed: Spec of the attempt, from `pack_spec`.
        number: Lane, epoch and attempt, for a report on a spec that cannot be unpacked.
        host: Host of the driver's channel.
        port: Port of the driver's channel.
        token: Secret of the run.
        version: Release of the driver; a worker with another release refuses the task.
        log_level: Level of the worker's log.
    """

    packed: bytes = field(repr=False)
    number: tuple[int, int, int]
    host: str
    port: int
    token: str = field(repr=False)
    version: str
    log_level: str
    lane: LaneFunction

    def __call__(self, rows: Iterable[Any]) -> Iterator[LaneReport]:
        """Runs the lane; yields one report."""
        for _ in rows:
            pass
        yield self._attempt()

    def _attempt(self) -> LaneReport:
        from eomirror.log import configure_logging
        from eomirror.spark.attempt import leave_parked
        from eomirror.spark.mailbox import ChannelMailbox, NoLineError

        if (unfit := self._unfit()) is not None:
            return unfit
        configure_logging(self.log_level)
        keep_freed_memory()
        try:
            spec = unpack_spec(self.packed, os.environ)
        except ConfigError as error:
            # the secret may be added to this worker later, or the next attempt may run on another worker
            reason = f"the worker on {socket.gethostname()} lacks a secret"
            return self._report(Ending.UNAUTHORIZED, reason, AuthorizationError(f"{reason}: {error}"))
        with _Interrupts() as interrupts, _rare_collections():
            try:
                mailbox = ChannelMailbox.connect(
                    self.host, self.port, token=self.token, spec=spec, clock=SYSTEM_CLOCK
                )
            except NoLineError as error:
                return self._report(Ending.REBUILD, str(error))
            except interrupts.kind as interrupt:
                # the parked lane of the previous epoch still mirrors
                leave_parked()
                return self._report(Ending.STOPPED, f"interrupted: {interrupt}")
            report = None
            try:
                report = self.lane(spec, mailbox, SYSTEM_CLOCK)
                if report.continues and not _outlives_its_task():
                    # after its transaction, which would otherwise stay open
                    leave_parked()
            except interrupts.kind as interrupt:
                # the signal may have come after the lane's last report
                leave_parked()
                return self._report(Ending.STOPPED, f"interrupted: {interrupt}")
            else:
                return report
            finally:
                # a lane that mirrors on keeps its connection (`eomirror.spark.handover`)
                if report is None or not report.continues:
                    mailbox.close()

    def _unfit(self) -> LaneReport | None:
        """Returns a report that refuses the lane in this process; None if it may run."""
        import eomirror

        if eomirror.__version__ != self.version:
            return self._refuse(
                f"the worker has eomirror {eomirror.__version__}, the driver {self.version}",
                "install the same release for PYSPARK_PYTHON on all workers",
            )
        if _librdkafka_in_daemon():
            return self._refuse(
                "PySpark's daemon has loaded librdkafka, whose threads do not survive the fork of a worker",
                "remove your spark.python.daemon.module, or keep confluent_kafka out of what it imports",
            )
        if _attempt_number() > 0:
            return self._report(
                Ending.REBUILD, "spark retried the task, but only the driver may retry a lane"
            )
        return None

    def _refuse(self, reason: str, fix: str) -> LaneReport:
        return self._report(Ending.FAILED, reason, MirrorError(reason, fix=fix))

    def _report(self, ending: Ending, reason: str, error: MirrorError | None = None) -> LaneReport:
        lane, epoch, attempt = self.number
        return LaneReport(lane=lane, epoch=epoch, attempt=attempt, ending=ending, reason=reason, error=error)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTasks:
    """
    Makes the tasks of a run.

    Attributes:
        host: Host of the driver's channel, as seen by workers.
        port: Port of the driver's channel.
        token: Secret of the run.
        version: Release of eomirror.
        log_level: Level of the workers' logs.
        lane: Function that runs a lane.
    """

    host: str
    port: int
    token: str = field(repr=False)
    version: str
    log_level: str
    lane: LaneFunction

    def of(self, spec: LaneSpec, *, remote: bool = False) -> LaneTask:
        """Returns the task of an attempt; ``remote`` is True if its worker may be on another machine."""
        return LaneTask(
            packed=pack_spec(spec, remote=remote),
            number=(spec.lane, spec.epoch, spec.attempt),
            host=self.host,
            port=self.port,
            token=self.token,
            version=self.version,
            log_level=self.log_level,
            lane=self.lane,
        )


@dataclass(frozen=True, slots=True)
class WarmUpTask:
    """Task that makes PySpark start its daemon and fork workers, which import the modules of a lane."""

    modules: tuple[str, ...] = FORKED_MODULES

    def __call__(self, rows: Iterable[Any]) -> Iterator[int]:
        """Imports the modules; yields the worker's process id."""
        import importlib

        for _ in rows:
            pass
        for name in self.modules:
            importlib.import_module(name)
        yield os.getpid()


@contextmanager
def _rare_collections() -> Iterator[None]:
    """
    Makes Python's cycle collector run rarely while a lane runs.

    A batch of 10,000 records is tens of thousands of objects, each freed by its reference count.  By default the
    collector visits them dozens of times per batch and finds no cycle (measured with 1 kB records: 18 % of the
    throughput, 19 % of the CPU).  It still runs once per `_COLLECT_EVERY` new objects that are not freed.
    """
    before = gc.get_threshold()
    gc.set_threshold(_COLLECT_EVERY, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Interrupts:
    """
    Turns the first SIGHUP or SIGTERM into an exception in the lane's thread, while the lane runs.

    The daemon may send a signal twice, and the second must not break the clean-up after the first, so only the first
    raises.  The handlers write nothing, because they may interrupt a write to the same buffered stream.
    """

    def __init__(self) -> None:
        from eomirror.spark.attempt import LaneInterruptedError

        self.kind: type[BaseException] = LaneInterruptedError
        self._raised = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(self, *_: object) -> None:
        # from here on a signal has its earlier effect again
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._raised:
            signal.alarm(0)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if not self._raised:
            self._raised = True
            signal.alarm(_LAST_SECONDS)
            raise self.kind(signal.Signals(number).name)


def _attempt_number() -> int:
    # loaded in each of Spark's workers; a local one (`eomirror.spark.local_lanes`) does without
    if "pyspark" not in sys.modules:
        return 0
    from pyspark import TaskContext

    context = TaskContext.get()
    return 0 if context is None else int(context.attemptNumber())


def _outlives_its_task() -> bool:
    """Returns True if this process gets further tasks; without `spark.python.worker.reuse` it ends after its report."""
    return bool(os.environ.get("SPARK_REUSE_WORKER"))


def _librdkafka_in_daemon() -> bool:
    """Returns True if the process from which this one was forked has loaded librdkafka; detected on Linux only."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return b"rdkafka" in Path(f"/proc/{os.getppid()}/maps").read_bytes()
    except OSError:
        return False
