"""
A program in a child process whose whole tree can be frozen and killed, wherever its processes have gone.

Spark's JVM has a session of its own, Python workers are forked by a daemon that the JVM started, and any process that
loses its parent belongs to init from then on.  So processes are found in two ways: as descendants, and by a
token in the environment, which every process inherits.  Nothing is ever found by name.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from eomirror.clock import SYSTEM_CLOCK, Clock, Deadline, new_token
from eomirror.errors import MirrorError
from eomirror.localkafka import orphans
from eomirror.localkafka.broker import end_processes, has_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ["ProcessTree", "mirror_command"]

_TOKEN = "EOMIRROR_DEMO_TREE"  # noqa: S105  the name of a mark, not a secret
_PAUSE_SECONDS = 0.02
_GONE_SECONDS = 10.0
_LAST_LINES = 12


def mirror_command(config: Path, *arguments: str, command: str = "run") -> list[str]:
    """``eomirror run`` with this interpreter, as a user would start it; or another command that mirrors."""
    return [sys.executable, "-m", "eomirror", command, str(config), *arguments]


class ProcessTree:
    """
    One run of a program, and everything that it starts.

    Args:
        log: File that takes its output, after what earlier runs wrote.
        environment: Variables besides our own.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log: Path,
        environment: Mapping[str, str] | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.log = log
        self.started = clock.monotonic()
        self._clock = clock
        self._token = new_token()[:16]
        with log.open("ab") as output:
            output.write(f"--- {' '.join(command[1:])}\n".encode())
            output.flush()
            self._child = subprocess.Popen(
                list(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {}), _TOKEN: self._token},
            )
        self._root = psutil.Process(self._child.pid)
        self._watcher = self._watch()

    @property
    def pid(self) -> int:
        """Id of the program itself."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._child.poll()

    def processes(self) -> list[psutil.Process]:
        """The tree's living processes as far as they descend from the program, children first."""
        try:
            below = self._root.children(recursive=True)
        except psutil.NoSuchProcess:
            below = []
        return [*reversed(below), self._root]

    def freeze(self, processes: Sequence[psutil.Process]) -> None:
        """SIGSTOP to these processes: nothing that they have begun goes on."""
        self._each(processes, psutil.Process.suspend)

    def thaw(self, processes: Sequence[psutil.Process]) -> None:
        """Undo `freeze`."""
        self._each(processes, psutil.Process.resume)

    def kill(self, processes: Sequence[psutil.Process] | None = None) -> int:
        """
        SIGKILL to the whole tree; returns how many processes were killed, when none is left.

        Args:
            processes: The tree as it was known a moment ago, so that no time is lost; a process that is found
                later is killed as well.

        Raises:
            MirrorError: Processes are still there after 10 s.
        """
        killed: dict[int, psutil.Process] = {}
        deadline = Deadline(_GONE_SECONDS, self._clock)
        victims = list(processes) if processes is not None else self.processes()
        while True:
            self._each(victims, psutil.Process.kill)
            killed.update((process.pid, process) for process in victims)
            self._child.poll()
            left = [process for process in killed.values() if not has_ended(process)]
            # a process that was forked after the look carries the token
            victims = [process for process in self._marked() if not has_ended(process)]
            if not left and not victims:
                break
            if deadline.passed:
                pids = ", ".join(str(process.pid) for process in (*left, *victims))
                raise MirrorError(f"processes {pids} survive SIGKILL", fix="end them by hand: kill -9 PID")
            self._clock.sleep(_PAUSE_SECONDS)
        self._child.wait()
        self._release()
        return len(killed)

    def terminate(self, seconds: float = 10.0) -> int:
        """SIGTERM to the program, SIGKILL to what is left after so long; its exit code."""
        end_processes([self._root], timeout=seconds, clock=self._clock)
        code = self._child.wait()
        self.kill()
        return code

    def wait(self, seconds: float) -> int:
        """
        Wait for the program to end; its exit code.

        Raises:
            MirrorError: It has not ended after so long; the tree is killed.
        """
        try:
            code = self._child.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failed(f"the mirror has not ended after {seconds:.0f} s") from None
        self.kill()
        return code

    def failed(self, problem: str) -> MirrorError:
        """Returns an error with the end of the log."""
        return MirrorError(f"{problem}:\n{self.last_lines()}", fix=f"read {self.log}")

    def last_lines(self) -> str:
        """The end of the log."""
        lines = self.log.read_text("utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line[:300]}" for line in lines[-_LAST_LINES:])

    def _marked(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.pid != os.getpid() and process.environ().get(_TOKEN) == self._token:
                    found.append(process)
        return found

    def _watch(self) -> subprocess.Popen[str]:
        """End the program when we are gone without a word; Spark's JVM and its workers follow it."""
        watcher = subprocess.Popen(
            [sys.executable, "-P", str(Path(orphans.__file__))],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        )
        if watcher.stdin is not None:
            watcher.stdin.write(f"watch {self._root.pid} {self._root.create_time()!r}\n")
            watcher.stdin.flush()
        return watcher

    def _release(self) -> None:
        if self._watcher.stdin is not None and not self._watcher.stdin.closed:
            self._watcher.stdin.close()
        self._watcher.wait()

    @staticmethod
    def _each(processes: Sequence[psutil.Process], act: Callable[[psutil.Process], None]) -> None:
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                act(process)
