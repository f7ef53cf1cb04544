"""A mirror that runs: its process, its log, its end."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, Self

import psutil

from eomirror.localkafka import orphans
from eomirror.localkafka.jars import DEFAULT_KAFKA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from bench.workloads import Workload

__all__ = ["MirrorEndedError", "MirrorProcess", "Peer", "Site"]

_STOP_SECONDS = 30.0
_LOG_LINES = 25


class MirrorEndedError(Exception):
    """A mirror ended on its own; the message holds the end of its log."""


@dataclass(frozen=True, slots=True)
class Site:
    """
    Where a mirror shall work.

    Attributes:
        source: Bootstrap servers.
        target: Bootstrap servers.
        folder: For its configuration and log; exists.
        brokers: Processes of the brokers, by the name of their cluster; none where the bench does not measure them.
        target_kafka: Release of the target.
    """

    source: str
    target: str
    folder: Path
    brokers: Mapping[str, Sequence[int]] = field(default_factory=dict)
    target_kafka: str = DEFAULT_KAFKA


class Peer(Protocol):
    """A mirror that can be put to work."""

    @property
    def name(self) -> str:
        """Short, of letters and digits: also good in an alias."""

    @property
    def title(self) -> str:
        """In reports."""

    @property
    def transactional(self) -> bool:
        """Whether its copies have to hold transaction markers."""

    def target_topic(self, workload: Workload) -> str:
        """Where it copies a workload's topic to."""

    def changes(self, workload: Workload) -> Callable[[bytes], bytes] | None:
        """Returns what it makes of a value; None if it copies."""

    def start(self, site: Site, workload: Workload) -> MirrorProcess:
        """Start it with a link of its own for this workload."""


class MirrorProcess:
    """
    A running mirror; a context manager that ends it with everything it started.

    Should the bench itself be killed, the watcher of the embedded clusters ends the mirror too.

    Args:
        name: Of the peer.
        command: What to run.
        folder: For the log.
        environment: Complete.
    """

    def __init__(
        self, name: str, command: Sequence[str], *, folder: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log_path = folder / f"{name}.log"
        with self.log_path.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                cwd=folder,
                start_new_session=True,
            )
        self._watcher = subprocess.Popen(
            [sys.executable, "-P", str(Path(orphans.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        assert self._watcher.stdin is not None
        with contextlib.suppress(psutil.Error):
            started = psutil.Process(self.pid).create_time()
            self._watcher.stdin.write(f"watch {self.pid} {started!r}\n")
            self._watcher.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """Root of its process tree."""
        return self._process.pid

    def check(self) -> None:
        """
        Do nothing while it runs.

        Raises:
            MirrorEndedError: It has ended.
        """
        code = self._process.poll()
        if code is not None:
            raise MirrorEndedError(f"{self.name} ended with {code}:\n{self.log_tail()}")

    def log_tail(self) -> str:
        """The end of its log."""
        lines = self.log_path.read_text("utf-8", errors="replace").splitlines()
        return "\n".join(lines[-_LOG_LINES:])

    def kill(self) -> None:
        """SIGKILL to it and everything it started, without a word."""
        tree: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            root = psutil.Process(self.pid)
            tree = [root, *root.children(recursive=True)]
        for process in tree:
            with contextlib.suppress(psutil.Error):
                process.kill()
        self._process.wait()
        self.stop()

    def stop(self) -> None:
        """Ask it to end, wait, then end what is left of it."""
        tree: list[psutil.Process] = []
        with contextlib.suppress(psutil.Error):
            tree = psutil.Process(self.pid).children(recursive=True)
        if self._process.poll() is None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        _, alive = psutil.wait_procs(tree, timeout=5)
        for process in alive:
            with contextlib.suppress(psutil.Error):
                process.kill()
        if self._watcher.stdin is not None and not self._watcher.stdin.closed:
            self._watcher.stdin.close()
            self._watcher.wait()
