"""
Runs lanes under a local master before Spark is ready, in worker processes of the driver.

A link is taken about a second after the start of a run, and a JVM with a Spark context needs some seconds more.  Under
a local master all workers are processes of this machine, so a lane may begin in one that the driver starts::

    driver      link taken           Spark ready: "move"
    worker           lane: epoch 1          (mirrors on, parked)
    Spark                                   epoch 2 ... until the end of the run

The order to move ends the epoch, and the next one begins in Spark.  For the lane, its positions and the target that is
an epoch that begins on another worker (`eomirror.spark.handover`): the lane's process mirrors on until Spark's worker
has fenced it, and no rule about transactions changes.

The workers are forked from a server process, which loads the modules of a lane while the link is taken; it loads no
client and starts no thread, like PySpark's daemon.  A worker gets the same `LaneTask` as one of Spark's.  The server
ends when the driver does, by the end of their stream; a worker loses its connection to the driver then, finishes its
transaction, and ends.

On other masters, and with a context of the user's, no lane runs here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, NoReturn

import structlog

from eomirror.lane.spec import Ending, LaneReport, LaneSpec, StopReason
from eomirror.spark.handover import PARKED_SECONDS
from eomirror.spark.task import load_forked_modules

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from eomirror.spark.jobs import LaneJobs
    from eomirror.spark.task import LaneTask, LaneTasks

__all__ = ["LocalWorkers", "MovingJobs", "serve"]

log = structlog.get_logger(__name__)

_MOVE = {"type": "stop", "reason": StopReason.MOVE}

_VARIABLE = "spark.executorEnv."

# without -P the working directory would come first, and may hold modules of the names that we import
_COMMAND = (
    "-P",
    "-c",
    "import sys; from eomirror.spark.local_lanes import serve; serve(int(sys.argv[1]))",
)


class LocalWorkers:
    """
    Runs attempts in processes of their own.  Thread-safe; each attempt runs in its caller's thread.

    Args:
        tasks: Makes the tasks of the run.
        settings: Settings of the context: workers get its interpreter and its variables for executors.
        relay: Logs what the processes write to stderr, until the end of the stream of this descriptor.
    """

    def __init__(self, tasks: LaneTasks, settings: Mapping[str, str], relay: Callable[[int], None]) -> None:
        self._tasks = tasks
        self._lock = threading.Lock()
        self._workers: dict[tuple[str, int], _LaneWorker] = {}
        self._control, theirs = socket.socketpair()
        reading, writing = os.pipe()
        threading.Thread(target=relay, args=(reading,), name="lanes-stderr", daemon=True).start()
        try:
            self._server = subprocess.Popen(
                [_interpreter(settings), *_COMMAND, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=writing,
                env=_environment(settings),
                # a signal of the terminal is for the driver, which then stops the lanes
                start_new_session=True,
                umask=0o077,
            )
        finally:
            theirs.close()
            os.close(writing)

    def run(self, spec: LaneSpec) -> LaneReport:
        """Runs one attempt; blocks until it ends."""
        worker = self._worker((spec.link.name, spec.lane))
        try:
            answer = worker.ask(self._tasks.of(spec))
        except (EOFError, OSError):
            with self._lock:
                self._workers.pop((spec.link.name, spec.lane), None)
            ending = Ending.CANCELLED if worker.cancelled else Ending.WORKER_DIED
            return spec.report(ending, str(ending), damaged=spec.damaged)
        if isinstance(answer, LaneReport):
            return answer
        return spec.report(Ending.TASK_RAISED, str(answer), damaged=spec.damaged)

    def cancel(self, link: str, lane: int) -> None:
        """Kills the worker of a lane, as the last resort; the next producer aborts its open transaction."""
        with self._lock:
            worker = self._workers.get((link, lane))
        if worker is not None:
            worker.kill()

    def release(self, link: str, lane: int, *, last: bool) -> None:
        """
        Ends the worker of a lane once its parked lane has ended: its next epoch runs elsewhere.

        Args:
            link: Its link.
            lane: Its number; it may have no worker, if Spark was up before it began.
            last: True if no lane will ask for a worker any more: without workers the server ends.
        """
        with self._lock:
            worker = self._workers.pop((link, lane), None)
            ends = last and not self._workers and self._control.fileno() != -1
            if ends:
                self._control.close()
        if worker is not None or ends:
            timer = threading.Timer(PARKED_SECONDS, self._leave, (worker,))
            timer.daemon = True
            timer.start()

    def close(self) -> None:
        """Ends the server; workers end with their streams."""
        with self._lock:
            self._control.close()
            workers, self._workers = list(self._workers.values()), {}
        for worker in workers:
            worker.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._server.wait(1.0)

    def _leave(self, worker: _LaneWorker | None) -> None:
        if worker is not None:
            worker.close()
        # leaves no zombie of a server that has ended
        self._server.poll()

    def _worker(self, key: tuple[str, int]) -> _LaneWorker:
        with self._lock:
            if key not in self._workers:
                ours, theirs = socket.socketpair()
                with theirs, contextlib.suppress(OSError):
                    # without a server the stream ends, and the attempt with it
                    socket.send_fds(self._control, [b"\0"], [theirs.fileno()])
                self._workers[key] = _LaneWorker(Connection(ours.detach()))
            return self._workers[key]


class _LaneWorker:
    """A worker process, as seen by the driver."""

    def __init__(self, stream: Connection) -> None:
        self._stream = stream
        self._pid = 0
        self.cancelled = False

    def ask(self, task: LaneTask) -> Any:
        """Runs a task; returns its report, or the text of its exception."""
        if not self._pid:
            self._pid = self._stream.recv()
        self._stream.send(task)
        return self._stream.recv()

    def kill(self) -> None:
        self.cancelled = True
        if self._pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)

    def close(self) -> None:
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self._stream.fileno())) as end:
            # not a plain close: a thread that waits for an answer would not see an end of the stream
            end.shutdown(socket.SHUT_RDWR)


def _interpreter(settings: Mapping[str, str]) -> str:
    """Returns the Python of Spark's workers, as Spark chooses it."""
    return settings.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of the workers."""
    variables = {
        name.removeprefix(_VARIABLE): value for name, value in settings.items() if name.startswith(_VARIABLE)
    }
    return {
        **os.environ,
        # what this program imports, from wherever it has learned to import it
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        **variables,
        # a worker outlives its task (`eomirror.spark.task`)
        "SPARK_REUSE_WORKER": "1",
    }


class MovingJobs:
    """
    Runs attempts in local workers, and from `move` on as Spark jobs.  Thread-safe.

    Args:
        workers: Run attempts until then.
        send: Sends messages to the running attempt of a lane of a link, if it is connected.
    """

    def __init__(
        self, workers: LocalWorkers, send: Callable[[str, int, Iterable[Mapping[str, Any]]], None]
    ) -> None:
        self._workers = workers
        self._send = send
        self._lock = threading.Lock()
        self._spark: LaneJobs | None = None
        # link, lane, epoch and attempt
        self._here: set[tuple[str, int, int, int]] = set()

    def move(self, jobs: LaneJobs) -> None:
        """Runs all attempts that begin from now on as Spark jobs, and ends the epochs that run here."""
        with self._lock:
            self._spark = jobs
            here = sorted(self._here)
        for link, lane, _, _ in here:
            self._send(link, lane, [_MOVE])

    def greeting(self, attempt: tuple[str, int, int, int]) -> list[Mapping[str, Any]]:
        """Returns the first messages for an attempt that has just connected: it may have begun before the move."""
        with self._lock:
            return [_MOVE] if self._spark is not None and attempt in self._here else []

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """Returns a thread of a lane; it sets all local properties of its Spark jobs itself."""
        return threading.Thread(target=target, name=name, daemon=True)

    def run(self, spec: LaneSpec) -> LaneReport:
        """Runs one attempt; blocks until it ends."""
        attempt = (spec.link.name, spec.lane, spec.epoch, spec.attempt)
        with self._lock:
            jobs = self._spark
            if jobs is None:
                self._here.add(attempt)
            last = not self._here
        if jobs is not None:
            self._workers.release(spec.link.name, spec.lane, last=last)
            return jobs.run(spec)
        try:
            return self._workers.run(spec)
        finally:
            with self._lock:
                self._here.discard(attempt)

    def await_slot(self, link: str, lane: int) -> bool:
        """Returns True once Spark has a slot for a lane; workers of this machine have one."""
        return self._spark is None or self._spark.await_slot(link, lane)

    def cancel(self, link: str, lane: int) -> None:
        """Cancels an attempt as the last resort; never raises."""
        self._workers.cancel(link, lane)
        if self._spark is not None:
            self._spark.cancel(link, lane)

    def close(self) -> None:
        """Ends the local workers."""
        self._workers.close()


def serve(descriptor: int) -> NoReturn:
    """
    Runs the server process: loads the modules of a lane, then forks a worker for each stream that it gets.

    Args:
        descriptor: Of the socket to the driver.
    """
    # both are for the driver, and when it ends this ends
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    # a worker that has ended leaves no zombie
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    load_forked_modules()
    with socket.socket(fileno=descriptor) as control:
        while True:
            _, streams, _, _ = socket.recv_fds(control, 1, 1)
            if not streams:
                os._exit(0)
            if os.fork() == 0:
                control.close()
                signal.signal(signal.SIGTERM, signal.SIG_DFL)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                _work(Connection(streams[0]))
            os.close(streams[0])


def _work(stream: Connection) -> NoReturn:
    """Runs a worker process: attempts of one lane, until the stream ends."""
    from eomirror.spark.attempt import leave_parked

    stream.send(os.getpid())
    while True:
        try:
            task = stream.recv()
        except (EOFError, OSError):
            leave_parked()
            os._exit(0)
        try:
            (answer,) = task([None])
        except Exception as error:  # noqa: BLE001  the driver reports it, as it does one of a Spark task
            answer = f"{type(error).__name__}: {error}"
        try:
            stream.send(answer)
        except OSError:
            leave_parked()
            os._exit(0)
