"""A thread that works until its block ends, and raises there what ended it early."""

from __future__ import annotations

import threading
from typing import Self

__all__ = ["WorkerThread"]


class WorkerThread(threading.Thread):
    """
    Runs `work` until asked to stop; a context manager.

    Attributes:
        asked: Set to end the thread.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.asked = threading.Event()
        self._failure: Exception | None = None

    def work(self) -> None:
        """Works until `asked` is set."""
        raise NotImplementedError

    def run(self) -> None:
        """Works; an error is raised again by `check`."""
        try:
            self.work()
        except Exception as error:  # noqa: BLE001  raised again by `check`
            self._failure = error

    def check(self) -> None:
        """Raises the error that ended the thread, if any."""
        if self._failure is not None:
            raise self._failure

    def finish(self, seconds: float | None = None) -> None:
        """Stops the thread, waits for its end, and raises the error that ended it, if any."""
        self.asked.set()
        if self.ident is not None:
            self.join(seconds)
        self.check()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()
