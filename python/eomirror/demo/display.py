"""Progress of the demo on standard error: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self, TextIO, cast

from rich.console import Console
from rich.text import Text

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.log import LossyStream, is_dumb
from eomirror.screen import LiveFrame

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["DemoDisplay"]

_DRAW_SECONDS = 0.25
_LINE_SECONDS = 5.0


class DemoDisplay:
    """Shows phases with their times, what happened, and live numbers; implements `scenario.Listener`."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._stream = cast("TextIO", LossyStream(sys.stderr))
        self._console = Console(file=self._stream, highlight=False)
        self._frame = LiveFrame()
        self._clock = clock
        self._began = clock.monotonic()
        self._drawn = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._frame.__exit__(kind, error, trace)

    def phase(self, name: str) -> None:
        """Something new begins."""
        self._line(name, "bold")

    def note(self, text: str) -> None:
        """Something worth a line has happened."""
        self._line(f"  {text}", "")

    def live(self, numbers: dict[str, str]) -> None:
        """Present numbers."""
        now = self._clock.monotonic()
        text = "  ".join(f"{name} {value}" for name, value in numbers.items())
        if is_dumb(self._stream):
            if now - self._drawn >= _LINE_SECONDS:
                self._drawn = now
                self._line(f"  {text}", "")
            return
        if now - self._drawn < _DRAW_SECONDS:
            return
        self._drawn = now
        if not self._frame.live:
            # only from here on: until the traffic runs, the bars of jars and brokers have the terminal
            self._frame.__enter__()
        self._frame.draw(Text(f"{now - self._began:6.1f} s  {text}", style="cyan"))

    def _line(self, text: str, style: str) -> None:
        self._console.print(
            Text(f"{self._clock.monotonic() - self._began:6.1f} s  {text}", style=style), soft_wrap=True
        )
