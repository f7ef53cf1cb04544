"""
The mirror under test, in two shapes: in a thread of this process, or the real command in processes of its own.

The first starts at once, on a Spark context that lives already; the second can be frozen and killed, driver, JVM and
workers.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import TYPE_CHECKING, Any, Protocol

import psutil
import yaml

from eomirror import Mirror, load_config
from eomirror.demo.mirror_process import ProcessTree, mirror_command
from support.traffic.worker_thread import WorkerThread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from eomirror.status.snapshot import Snapshot

__all__ = [
    "CommandMirror",
    "MemoryWatch",
    "RunningMirror",
    "ThreadMirror",
    "lane_workers",
    "memory_of",
    "running",
]

_STOP_SECONDS = 30.0


class RunningMirror(Protocol):
    """What a scene needs of a mirror."""

    def start(self) -> None:
        """Mirror from now on."""

    def check(self) -> None:
        """Raise AssertionError if it has ended on its own."""

    def stop(self) -> None:
        """End it in order; raises AssertionError if that fails.  Stopping twice is allowed."""

    def close(self) -> None:
        """End it anyhow; never raises."""

    def workers(self) -> list[psutil.Process]:
        """The processes that run its lanes."""


class ThreadMirror:
    """
    A mirror in a thread, its lanes in the workers of a Spark context that this process has already.

    Args:
        settings: The configuration, as a file would hold it.
        spark: The context.
    """

    def __init__(self, settings: Mapping[str, Any], spark: Any) -> None:
        self._mirror = Mirror(load_config(settings), spark=spark)
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Mirror from now on."""
        self._thread.start()

    def check(self) -> None:
        """Raise AssertionError if it has ended on its own."""
        if self._error is not None:
            raise AssertionError(f"the mirror ended: {self._error}") from self._error
        assert self._thread.is_alive(), "the mirror ended"

    def stop(self) -> None:
        """End it in order."""
        if self._thread.ident is None:
            return
        self._mirror.stop()
        self._thread.join(_STOP_SECONDS)
        assert not self._thread.is_alive(), "the mirror does not stop"
        if self._error is not None:
            raise AssertionError(f"the mirror ended: {self._error}") from self._error

    def wait(self, seconds: float) -> BaseException | None:
        """Wait for an end that the test expects; what was raised."""
        self._thread.join(seconds)
        assert not self._thread.is_alive(), f"the mirror does not end within {seconds:g} s"
        return self._error

    def close(self) -> None:
        """End it anyhow."""
        with contextlib.suppress(AssertionError):
            self.stop()

    def workers(self) -> list[psutil.Process]:
        """The processes that run its lanes, and those of other mirrors on the same context."""
        return lane_workers(psutil.Process())

    def _run(self) -> None:
        try:
            self._mirror.run()
        except BaseException as error:  # noqa: BLE001  raised by the thread that waits
            self._error = error


@contextlib.contextmanager
def running(mirror: Mirror, on_progress: Callable[[Snapshot], None] | None = None) -> Iterator[None]:
    """Run in a thread; what ends the run early is the test's failure."""
    ended: list[BaseException] = []

    def run() -> None:
        try:
            mirror.run(on_progress=on_progress)
        except BaseException as error:  # noqa: BLE001  raised again below
            ended.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        mirror.stop()
        thread.join(30)
    if ended:
        raise ended[0]


class CommandMirror:
    """
    ``eomirror run`` in processes of its own; may be started again after its end.

    Args:
        settings: The configuration.
        folder: For its files; made here.
        arguments: Of the command.
        command: ``run``, or another command that mirrors.
        environment: Variables besides our own.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        folder: Path,
        *arguments: str,
        command: str = "run",
        environment: Mapping[str, str] | None = None,
    ) -> None:
        (folder / "tmp").mkdir(parents=True)
        self.folder = folder
        self.log = folder / "mirror.log"
        path = folder / "mirror.yaml"
        path.write_text(yaml.safe_dump(dict(settings)))
        path.chmod(0o600)
        self._command = mirror_command(path, *arguments, command=command)
        self._environment = {
            "TMPDIR": str(folder / "tmp"),
            "SPARK_LOCAL_DIRS": str(folder / "spark"),
            **(environment or {}),
        }
        self._tree: ProcessTree | None = None
        self._frozen: list[psutil.Process] = []

    @property
    def tree(self) -> ProcessTree:
        """Its processes."""
        assert self._tree is not None, "not started"
        return self._tree

    def start(self) -> None:
        """Mirror from now on."""
        self._tree = ProcessTree(self._command, log=self.log, environment=self._environment)

    def check(self) -> None:
        """Raise AssertionError if it has ended on its own."""
        assert self.tree.exit_code is None, f"exit {self.tree.exit_code}\n{self.tree.last_lines()}"

    def stop(self, *, aborted: bool = False, code: int = 0) -> None:
        """
        Ends it in order: SIGTERM, and its exit code.

        Args:
            aborted: Accepts 128 + SIGTERM too: on a busy machine an open transaction may miss its five seconds.
            code: That of the topics that it has stopped; 0 for none.
        """
        if self._tree is not None and self._tree.exit_code is None:
            accepted = (0, 128 + signal.SIGTERM) if aborted and code == 0 else (code,)
            ended = self._tree.terminate(_STOP_SECONDS)
            assert ended in accepted, f"exit {ended}\n{self._tree.last_lines()}"

    def close(self) -> None:
        """End it anyhow, frozen or not; one that has ended leaves a watching process behind until then."""
        if self._tree is not None:
            self._tree.kill()

    def workers(self) -> list[psutil.Process]:
        """The processes that run its lanes."""
        return lane_workers(psutil.Process(self.tree.pid))

    def kill(self) -> None:
        """SIGKILL to all of it."""
        self.tree.kill()

    def freeze(self) -> None:
        """SIGSTOP to all of it."""
        self._frozen = self.tree.processes()
        self.tree.freeze(self._frozen)

    def thaw(self) -> None:
        """SIGCONT to what was frozen."""
        self.tree.thaw(self._frozen)
        self._frozen = []

    def said(self, words: str) -> int:
        """How many lines of its log contain these words."""
        return sum(words in line for line in self.log.read_text("utf-8", errors="replace").splitlines())

    def await_exit(self, seconds: float) -> int:
        """Wait for an end that the test expects; the exit code."""
        return self.tree.wait(seconds)


def lane_workers(root: psutil.Process) -> list[psutil.Process]:
    """Python workers below a process: forks of PySpark's daemon, or, before Spark is up, of the driver's server."""
    found = []
    for process in root.children(recursive=True):
        with contextlib.suppress(psutil.Error):
            parent = process.parent()
            if parent is not None and _forks(process) and _forks(parent):
                found.append(process)
    return found


def _forks(process: psutil.Process) -> bool:
    words = process.cmdline()
    return any(
        ("pyspark" in word and "daemon" in word) or "eomirror.spark.local_lanes" in word for word in words
    )


def memory_of(processes: list[psutil.Process]) -> int:
    """Bytes of memory that belong to these processes, shared pages counted in proportion (PSS)."""
    total = 0
    for process in processes:
        with contextlib.suppress(psutil.Error):
            total += process.memory_full_info().pss
    return total


class MemoryWatch(WorkerThread):
    """
    Samples the memory of processes twice a second while its block runs.

    Args:
        processes: Which ones; asked each time.

    Attributes:
        samples: Bytes, in order.
    """

    def __init__(self, processes: Callable[[], list[psutil.Process]]) -> None:
        super().__init__("memory")
        self.samples: list[int] = []
        self._processes = processes

    def work(self) -> None:
        """Sample until the block ends."""
        while not self.asked.wait(0.5):
            if size := memory_of(self._processes()):
                self.samples.append(size)

    @property
    def growth(self) -> int:
        """Bytes between the first sample and the largest."""
        return max(self.samples) - self.samples[0]
