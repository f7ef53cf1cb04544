"""
How far a long step is, and two ways to show it on standard error.

On a terminal: one live bar that goes away.  Elsewhere: a plain line when a step begins and one when it
ends, because a log file keeps everything that is ever written to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO, cast

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from eomirror.log import LossyStream

__all__ = ["OnProgress", "Step", "quiet", "show_progress"]


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
        """Whether nothing is left to do."""
        return self.done >= self.total


OnProgress = Callable[[Step], None]


def quiet(_step: Step) -> None:
    """Show nothing."""


@contextmanager
def show_progress() -> Iterator[OnProgress]:
    """A callback that shows steps on standard error until the block ends; callable from any thread."""
    stream = cast("TextIO", LossyStream(sys.stderr))
    console = Console(file=stream)
    if not console.is_terminal:
        yield _Lines(stream)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bars:
        tasks: dict[str, object] = {}

        def on_step(step: Step) -> None:
            if step.name not in tasks:
                tasks[step.name] = bars.add_task(step.name, total=step.total)
            bars.update(tasks[step.name], completed=step.done, total=step.total)  # type: ignore[arg-type]

        yield on_step


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
