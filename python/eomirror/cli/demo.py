"""``eomirror demo``: kills a mirror between two local clusters in open transactions, then compares the copies."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING, TextIO, cast

import click

from eomirror.cli import options
from eomirror.cli.options import terminable
from eomirror.cli.render import print_message, print_structured
from eomirror.clock import SYSTEM_CLOCK, Clock
from eomirror.log import LossyStream

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from eomirror.demo.report import DemoReport, Picture
    from eomirror.demo.scenario import Demo

__all__ = ["DemoDisplay", "demo"]

_DRAW_SECONDS = 0.25


@click.command(epilog="Example: eomirror demo --kills 5 --rate 3000")
@click.option(
    "--kills",
    type=click.IntRange(0, 100),
    default=3,
    show_default=True,
    help="Number of kill -9 in open transactions; a standby takes over after the last one.",
)
@click.option(
    "--seconds",
    type=click.FloatRange(1),
    default=25,
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
@options.output("Output format; table by default, into a file as well.")
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

    Starts two Apache Kafka clusters on 127.0.0.1 and a mirror, then writes transactional traffic to one cluster.
    Meanwhile kill -9 ends the whole mirror in open transactions.  The same command is started again, and after the
    last kill a standby takes over.  Independent read_committed consumers then compare both sides byte for byte.
    A naive copier without exactly-once gets the same traffic and the same kills.

    Requires Java 17 or newer.  Takes about a minute; the first demo also downloads Kafka's jars (45 MB).
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
    drawn = output in {None, "table"}
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

    Console(file=stream, highlight=False).print(render(report))


class DemoDisplay:
    """
    Shows phases and events as lines on stderr, and on a terminal a picture below; implements `scenario.DemoListener`.

    A log gets a line for each event.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        from rich.console import Console

        from eomirror.screen import LiveOutput

        self._live = LiveOutput(draw_seconds=_DRAW_SECONDS, clock=clock)
        self._console = Console(file=cast("TextIO", LossyStream(sys.stderr)), highlight=False)
        self._clock = clock
        self._began = clock.monotonic()
        self._phase = ""

    def phase(self, name: str) -> None:
        """Begins a phase."""
        self._phase = name
        self._line(name, "bold")

    def note(self, text: str) -> None:
        """Writes a line about an event."""
        self._line(f"  {text}", "")

    def live(self, picture: Picture) -> None:
        """Draws both sides."""
        # the frame begins with them: until then the bars of jars and brokers have the terminal
        if not self._live.frame.live:
            self._live.__enter__()
        self._live.show(lambda: self._drawn(picture), lambda: None)

    def close(self) -> None:
        """Removes the picture."""
        self._live.__exit__()

    def _drawn(self, picture: Picture) -> Group:
        from rich.console import Group

        return Group("", self._timed(self._phase, "bold cyan"), picture.draw())

    def _line(self, text: str, style: str) -> None:
        if text:
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
