"""
Progress of a long step, and two ways to show it on standard error.

On a terminal: one live bar that goes away.  Elsewhere: a plain line when a step begins and one when it
ends, because a log file keeps everything that is ever written to it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from eomirror.log import print_line
from eomirror.screen import LiveOutput

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
    """Shows nothing."""


@contextmanager
def show_progress() -> Iterator[OnProgress]:
    """A callback that shows steps on standard error until the block ends; callable from any thread."""
    with LiveOutput() as output:
        steps = _Steps(output)
        try:
            yield steps
        finally:
            steps.close()


class _Steps:
    """A bar for each step, redrawn several times a second; elsewhere a line when a step begins and when it ends."""

    def __init__(self, output: LiveOutput) -> None:
        self._output = output
        self._bars = Progress(
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
        if output.frame.live:
            self._thread.start()

    def __call__(self, step: Step) -> None:
        with self._lock:
            begins = step.name not in self._tasks
            if begins:
                self._tasks[step.name] = self._bars.add_task(step.name, total=step.total)
            self._bars.update(self._tasks[step.name], completed=step.done, total=step.total)
        if not self._output.frame.live and (begins or step.ended):
            print_line(f"{step.name} ..." if begins else f"{step.name}: done")

    def close(self) -> None:
        """Draws no more."""
        self._ended.set()
        if self._thread.is_alive():
            self._thread.join()

    def _redraw(self) -> None:
        while not self._ended.wait(_REDRAWN_EVERY_SECONDS):
            if self._tasks:
                self._output.frame.draw(self._bars.get_renderable())
