"""``eomirror demo``: kills a mirror between two local clusters in open transactions, then compares the copies."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, TextIO, cast

import click

from eomirror.cli import options
from eomirror.cli.render import print_message, print_structured, wants_table
from eomirror.cli.termination import terminable
from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.log import LossyStream

if TYPE_CHECKING:
    from rich.text import Text

    from eomirror.demo.report import DemoReport
    from eomirror.demo.scenario import Demo

__all__ = ["DemoDisplay", "demo"]

_DRAW_SECONDS = 0.25
_LINE_SECONDS = 5.0
_WIDTH = 110  # of a report that goes into a file


@click.command(epilog="Example: eomirror demo --kills 5 --rate 3000")
@click.option(
    "--kills",
    type=click.IntRange(0, 100),
    default=3,
    show_default=True,
    help="Number of kill -9 in open transactions.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=45,
    show_default=True,
    help="Minimum duration of the traffic.",
)
@click.option("--rate", type=click.FloatRange(1), default=2000, show_default=True, help="Records per second.")
@click.option(
    "--partitions",
    type=click.IntRange(1, 1000),
    default=6,
    show_default=True,
    help="Partitions of the mirrored topic.",
)
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), help="Repeat the traffic of an earlier demo.")
@click.option("--keep", is_flag=True, help="Keep both clusters running afterwards.")
@options.output()
def demo(
    kills: int,
    seconds: float,
    rate: float,
    partitions: int,
    seed: int | None,
    keep: bool,
    output: str | None,
) -> int:
    """
    Show that killing the mirror loses, duplicates, reorders and alters no record.

    Starts two Apache Kafka clusters on 127.0.0.1, writes transactional traffic to one and mirrors it to the other.
    Meanwhile kill -9 ends the whole mirror in open transactions.  Independent read_committed consumers then read
    both sides and compare them byte for byte.  The same kills also hit a copier without exactly-once, as contrast.

    Requires Java 17 or newer.  Takes about two minutes; the first demo also downloads Kafka's jars (45 MB).
    Exit codes: 0 identical, 3 differences found, 1 the demo failed.
    """
    from eomirror.clock import new_token
    from eomirror.demo.scenario import Demo, DemoOptions
    from eomirror.localkafka.progress import show_progress

    chosen = int(new_token()[:8], 16) if seed is None else seed
    wanted = DemoOptions(
        seed=chosen, kills=kills, seconds=seconds, rate=rate, partitions=partitions, keep=keep
    )
    # SIGTERM unwinds the stack, which ends mirror, traffic and clusters
    with terminable(), closing(DemoDisplay()) as display:
        display.note(f"seed {chosen}")
        with closing(Demo(wanted, display, steps=show_progress)) as played:
            report = played.run()
    drawn = wants_table(output)
    # progress went to stderr; so does the drawn report if stdout gets the structured one
    _draw(report, sys.stdout if drawn else cast("TextIO", LossyStream(sys.stderr)))
    if not drawn:
        print_structured(report.as_dict(), output)
    if keep:
        _print_next(played)
    return report.exit_code


def _draw(report: DemoReport, stream: TextIO) -> None:
    from rich.console import Console

    from eomirror.demo.report import render

    Console(file=stream, width=None if stream.isatty() else _WIDTH).print(render(report))


class DemoDisplay:
    """Shows phases with their times, events, and live numbers on stderr; implements `scenario.Listener`."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        from rich.console import Console

        from eomirror.screen import LiveOutput

        self._live = LiveOutput(draw_seconds=_DRAW_SECONDS, line_seconds=_LINE_SECONDS, clock=clock)
        self._console = Console(file=cast("TextIO", LossyStream(sys.stderr)), highlight=False)
        self._clock = clock
        self._began = clock.monotonic()

    def phase(self, name: str) -> None:
        """Begins a phase."""
        self._line(name, "bold")

    def note(self, text: str) -> None:
        """Writes a line about an event."""
        self._line(f"  {text}", "")

    def live(self, numbers: dict[str, str]) -> None:
        """Shows present numbers."""
        # the frame begins with them: until then the bars of jars and brokers have the terminal
        if not self._live.frame.live:
            self._live.__enter__()
        text = "  ".join(f"{name} {value}" for name, value in numbers.items())
        self._live.show(lambda: self._timed(text, "cyan"), lambda: self.note(text))

    def close(self) -> None:
        """Removes the live line."""
        self._live.__exit__()

    def _line(self, text: str, style: str) -> None:
        self._console.print(self._timed(text, style), soft_wrap=True)

    def _timed(self, text: str, style: str) -> Text:
        from rich.text import Text

        return Text(f"{self._clock.monotonic() - self._began:6.1f} s  {text}", style=style)


def _print_next(played: Demo) -> None:
    pids = " ".join(str(pid) for pid in played.kept)
    folders = " ".join(str(cluster.folder) for cluster in played.clusters)
    print_message(
        f"\nboth clusters are still running; next:\n"
        f"  eomirror status {played.config}\n"
        f"  eomirror run {played.config}\n"
        f"to stop them:\n"
        f"  kill {pids}; rm -r {folders}"
    )
