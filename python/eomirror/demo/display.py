"""How the demo goes, on standard error: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self, TextIO, cast

from rich.console import Console
from rich.live import Live
from rich.text import Text

from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.log import LossyStream

if TYPE_CHECKING:
    from types import TracebackType

__all__ = ["DemoDisplay"]

_DRAW_SECONDS = 0.25
_LINE_SECONDS = 5.0


class DemoDisplay:
    """Shows phases with their times, what happened, and live numbers; implements `scenario.Listener`."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._console = Console(file=cast("TextIO", LossyStream(sys.stderr)), highlight=False)
        self._clock = clock
        self._began = clock.monotonic()
        self._drawn = float("-inf")
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

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
        if not self._console.is_terminal:
            if now - self._drawn >= _LINE_SECONDS:
                self._drawn = now
                self._line(f"  {text}", "")
            return
        if now - self._drawn < _DRAW_SECONDS:
            return
        self._drawn = now
        if self._live is None:
            # only from here on: until the traffic runs, the bars of jars and brokers have the terminal
            self._live = Live(console=self._console, auto_refresh=False, transient=True)
            self._live.start()
        self._live.update(Text(f"{now - self._began:6.1f} s  {text}", style="cyan"), refresh=True)

    def _line(self, text: str, style: str) -> None:
        self._console.print(
            Text(f"{self._clock.monotonic() - self._began:6.1f} s  {text}", style=style), soft_wrap=True
        )
