"""
Progress of a long step, and two ways to show it on standard error.

On a terminal: one live bar that goes away.  Elsewhere: a plain line when a step begins and one when it
ends, because a log file keeps everything that is ever written to it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO, cast

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from eomirror.log import LossyStream
from eomirror.screen import LiveFrame

__all__ = ["OnProgress", "Step", "quiet", "show_progress"]

_BAR_WIDTH = 30
_REDRAWN_EVERY_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Step:
    """
    One report about a step.

    Attributes:
        name: What is being done, such as ``fetching Apache Kafka 4.3.1``; the key of the step.
        done: Parts that are done.
        total: Parts in all; the step has ended when ``done`` has reached it.
    """

    name: str
    done: int
    total: int

    @property
    def ended(self) -> bool:
        """Returns true once nothing is left to do."""
        return self.done >= self.total


OnProgress = Callable[[Step], None]


def quiet(_step: Step) -> None:
    """Show nothing."""


@contextmanager
def show_progress() -> Iterator[OnProgress]:
    """A callback that shows steps on standard error until the block ends; callable from any thread."""
    with LiveFrame() as frame:
        if not frame.live:
            yield _Lines(cast("TextIO", LossyStream(sys.stderr)))
            return
        bars = _Bars(frame)
        try:
            yield bars
        finally:
            bars.close()


class _Bars:
    """A bar for each step, redrawn several times a second."""

    def __init__(self, frame: LiveFrame) -> None:
        self._frame = frame
        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=_BAR_WIDTH),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            auto_refresh=False,
        )
        self._tasks: dict[str, TaskID] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._redraw, name="progress-bars", daemon=True)
        self._thread.start()

    def __call__(self, step: Step) -> None:
        with self._lock:
            if step.name not in self._tasks:
                self._tasks[step.name] = self._progress.add_task(step.name, total=step.total)
            self._progress.update(self._tasks[step.name], completed=step.done, total=step.total)

    def close(self) -> None:
        """Draw no more."""
        self._ended.set()
        self._thread.join()

    def _redraw(self) -> None:
        while not self._ended.wait(_REDRAWN_EVERY_SECONDS):
            if self._tasks:
                self._frame.draw(self._progress.get_renderable())


class _Lines:
    """First and last report of each step, one line each."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._begun: set[str] = set()

    def __call__(self, step: Step) -> None:
        if step.name not in self._begun:
            self._begun.add(step.name)
            print(f"{step.name} ...", file=self._stream, flush=True)
        elif step.ended:
            print(f"{step.name}: done", file=self._stream, flush=True)
