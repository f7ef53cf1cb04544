"""Progress of the demo on standard error: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import Self, TextIO, cast

from rich.console import Console
from rich.text import Text

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.log import LossyStream
from eomirror.screen import LiveOutput

__all__ = ["DemoDisplay"]

_DRAW_SECONDS = 0.25
_LINE_SECONDS = 5.0


class DemoDisplay(LiveOutput):
    """Shows phases with their times, events, and live numbers; implements `scenario.Listener`."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        super().__init__(draw_seconds=_DRAW_SECONDS, line_seconds=_LINE_SECONDS, clock=clock)
        self._console = Console(file=cast("TextIO", LossyStream(sys.stderr)), highlight=False)
        self._began = clock.monotonic()

    def __enter__(self) -> Self:
        # the frame begins with the first numbers: until then the bars of jars and brokers have the terminal
        return self

    def phase(self, name: str) -> None:
        """Begins a phase."""
        self._line(name, "bold")

    def note(self, text: str) -> None:
        """Writes a line about an event."""
        self._line(f"  {text}", "")

    def live(self, numbers: dict[str, str]) -> None:
        """Shows present numbers."""
        if not self._frame.live:
            self._frame.__enter__()
        text = "  ".join(f"{name} {value}" for name, value in numbers.items())
        self._show(lambda: self._timed(text, "cyan"), lambda: self.note(text))

    def _line(self, text: str, style: str) -> None:
        self._console.print(self._timed(text, style), soft_wrap=True)

    def _timed(self, text: str, style: str) -> Text:
        return Text(f"{self._clock.monotonic() - self._began:6.1f} s  {text}", style=style)
