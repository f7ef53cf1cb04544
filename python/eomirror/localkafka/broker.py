"""One broker process: started, stopped, killed, paused, and started again on the same data and ports."""

from __future__ import annotations

import contextlib
import subprocess
from typing import TYPE_CHECKING

import psutil

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline
from eomirror.errors import ClusterError
from eomirror.localkafka.ports import live_brokers
from eomirror.localkafka.spec import INTERNAL

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from eomirror.localkafka.settings import NodePorts

__all__ = ["Broker", "end_processes", "failure_lines", "has_ended"]

_POLL_SECONDS = 0.05


class Broker:
    """
    A child ``java`` process that is broker and controller.

    Attributes:
        node_id: From 1.
        ports: Of its listeners.
        folder: Of its properties, log and data.
        command: Of its next start.
    """

    def __init__(
        self,
        node_id: int,
        ports: NodePorts,
        folder: Path,
        command: list[str],
        *,
        on_started: Callable[[psutil.Process], None] = lambda _process: None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.node_id = node_id
        self.ports = ports
        self.folder = folder
        self.command = command
        self._on_started = on_started
        self._clock = clock
        self._child: subprocess.Popen[bytes] | None = None
        self._process: psutil.Process | None = None

    def __repr__(self) -> str:
        return f"Broker(node_id={self.node_id}, pid={self._process.pid if self._process else None})"

    @property
    def pid(self) -> int:
        """
        Id of the running process.

        Raises:
            ClusterError: It does not run.
        """
        return self._running().pid

    @property
    def process(self) -> psutil.Process:
        """The running process, for its CPU time and memory; raises ClusterError when it does not run."""
        return self._running()

    @property
    def running(self) -> bool:
        """Returns true while the process exists, paused or not."""
        return self._child is not None and self._child.poll() is None

    @property
    def log_path(self) -> Path:
        """File with everything that the broker printed, over all its starts."""
        return self.folder / "broker.log"

    def launch(self) -> None:
        """Start the process without waiting until it serves."""
        if self.running:
            return
        # a session of its own: Ctrl-C is for the program, which may still need its brokers to end cleanly
        with self.log_path.open("ab") as log:
            self._child = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd=self.folder,
            )
        self._process = psutil.Process(self._child.pid)
        self._on_started(self._process)

    def start(self, *, timeout: float = 60.0) -> None:
        """
        Start, or start again after `stop` or `kill`, and wait until the controller has let it in.

        Raises:
            ClusterError: It ended instead, or does not serve after ``timeout`` seconds.
        """
        self.launch()
        self.wait_ready(frozenset({self.node_id}), Deadline(timeout, self._clock))

    def wait_ready(self, nodes: frozenset[int], deadline: Deadline) -> None:
        """Wait until this broker serves and knows all ``nodes``; raises ClusterError when it does not."""
        while not nodes <= live_brokers(self.ports.bound[INTERNAL]):
            if not self.running:
                why = "ended before it served"
            elif deadline.passed:
                why = "does not serve in time"
            else:
                self._clock.sleep(_POLL_SECONDS)
                continue
            raise ClusterError(
                f"broker {self.node_id} in {self.folder} {why}:\n  {failure_lines(self.log_path)}",
                fix=f"read {self.log_path.name} there; too little memory and a wrong property are usual causes",
            )

    def kill(self) -> None:
        """SIGKILL, as a power cut; returns when the process is gone."""
        if self._child is not None:
            self._child.kill()
            self._child.wait()

    def stop(self, *, timeout: float = 20.0) -> None:
        """SIGTERM, then wait for the orderly shutdown; SIGKILL after ``timeout`` seconds."""
        if self._process is not None and self.running:
            end_processes([self._process], timeout=timeout)
        if self._child is not None:
            self._child.wait()

    def pause(self) -> None:
        """SIGSTOP: the process stands still, when this returns, while its connections stay open."""
        process = self._running()
        process.suspend()
        # the signal reaches one thread after the other; until the last has stopped the broker may still answer
        deadline = Deadline(5.0, self._clock)
        while process.status() != psutil.STATUS_STOPPED and not deadline.passed:
            self._clock.sleep(_POLL_SECONDS / 10)

    def resume(self) -> None:
        """SIGCONT: undo `pause`."""
        self._running().resume()

    def let_go(self) -> None:
        """Leave the process to itself: it outlives this program."""
        if self._child is not None:
            # Popen complains about a child that it never waited for; this one is meant to live on
            self._child.returncode = 0
            self._child = None

    def _running(self) -> psutil.Process:
        if self._process is None or not self.running:
            raise ClusterError(
                f"broker {self.node_id} in {self.folder} does not run", fix="call start() on it first"
            )
        return self._process


def end_processes(processes: list[psutil.Process], *, timeout: float, clock: Clock = SYSTEM_CLOCK) -> None:
    """
    SIGTERM to all at once, SIGKILL to those still there after ``timeout`` seconds.

    A pid that now belongs to another process is left alone: psutil compares start times.
    """
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.terminate()
            process.resume()  # a paused process would keep the signal for later
    _wait_ended(processes, Deadline(timeout, clock), clock)
    for process in processes:
        if not has_ended(process):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
    _wait_ended(processes, Deadline(10.0, clock), clock)


def has_ended(process: psutil.Process) -> bool:
    """
    Returns true if this very process is gone, or is a zombie.

    The second matters for processes that outlived their program: in a container, no parent may reap them.
    """
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _wait_ended(processes: list[psutil.Process], deadline: Deadline, clock: Clock) -> None:
    while not deadline.passed and not all(map(has_ended, processes)):
        clock.sleep(_POLL_SECONDS)


def failure_lines(log: Path) -> str:
    """Lines of a broker's log that tell why it ended, at most eight."""
    try:
        lines = log.read_text("utf-8", errors="replace").splitlines()
    except OSError:
        return "it printed nothing"
    signs = (" ERROR ", " FATAL ", "Exception", "Error:", "Unrecognized", "Invalid", "Could not")
    telling = [line for line in lines if any(sign in line for sign in signs) and not line.startswith("\tat ")]
    return "\n  ".join(line[:300] for line in (telling or lines)[-8:]) or "it printed nothing"
