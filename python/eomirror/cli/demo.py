"""``eomirror demo``: kills a mirror between two local clusters in open transactions, then compares the copies."""

from __future__ import annotations

import signal
import sys
from contextlib import closing
from typing import TYPE_CHECKING, NoReturn, TextIO, cast

import click

from eomirror.cli import options
from eomirror.cli.render import print_message, print_structured, wants_table
from eomirror.log import LossyStream

if TYPE_CHECKING:
    from types import FrameType

    from eomirror.demo.report import DemoReport
    from eomirror.demo.scenario import Demo

__all__ = ["demo"]

_SIGNAL_EXIT = 128
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
    from eomirror.demo.display import DemoDisplay
    from eomirror.demo.scenario import Demo, DemoOptions
    from eomirror.localkafka.progress import show_progress

    chosen = int(new_token()[:8], 16) if seed is None else seed
    wanted = DemoOptions(
        seed=chosen, kills=kills, seconds=seconds, rate=rate, partitions=partitions, keep=keep
    )
    before = signal.signal(signal.SIGTERM, _leave)
    try:
        with DemoDisplay() as display:
            display.note(f"seed {chosen}")
            with closing(Demo(wanted, display, steps=show_progress)) as played:
                report = played.run()
    finally:
        signal.signal(signal.SIGTERM, before)
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


def _leave(number: int, _: FrameType | None) -> NoReturn:
    # unwinds the stack, which ends mirror, traffic and clusters
    sys.exit(_SIGNAL_EXIT + number)


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
