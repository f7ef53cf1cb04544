"""
Ends the brokers of a program that is gone.

A cluster that a program starts as a library must not outlive it, however the program ends, SIGKILL included.
The program holds the write end of this process's standard input; when it is gone the kernel closes
that end, and we read end-of-file.  Two other ways were set aside: PR_SET_PDEATHSIG fires when the *thread* that
forked ends, so a cluster started from a worker thread would die with that thread; and Java offers nothing
that watches a pipe without code of ours in the broker.

Lines on standard input: ``watch PID STARTED``, ``forget PID``, ``remove FOLDER``, ``keep FOLDER``.
STARTED is the process's start time, so that a reused pid is left alone.

Run as a script, so that it costs a few MiB and no import of the package.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading

import psutil

__all__ = ["main"]


_GONE_PAUSE_SECONDS, _GONE_TRIES = 0.05, 100


def main() -> None:
    """Follow the lines until they end, then kill what is watched and remove what is to be removed."""
    watched: dict[int, float] = {}
    folders: set[str] = set()
    for line in sys.stdin:
        verb, _, rest = line.rstrip("\n").partition(" ")
        if verb == "watch":
            pid, started = rest.split()
            watched[int(pid)] = float(started)
        elif verb == "forget":
            watched.pop(int(rest), None)
        elif verb == "remove":
            folders.add(rest)
        elif verb == "keep":
            folders.discard(rest)
    _kill(watched)
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _kill(watched: dict[int, float]) -> None:
    victims = []
    for pid, started in watched.items():
        with contextlib.suppress(psutil.Error):
            process = psutil.Process(pid)
            if process.create_time() == started:
                process.kill()
                victims.append(process)
    pause = threading.Event()
    for _ in range(_GONE_TRIES):
        if all(map(_has_ended, victims)):
            return
        pause.wait(_GONE_PAUSE_SECONDS)


def _has_ended(process: psutil.Process) -> bool:
    # in a container no parent may reap orphans, and they stay as zombies
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


if __name__ == "__main__":
    main()
