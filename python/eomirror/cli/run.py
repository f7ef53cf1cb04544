"""``eomirror run``: mirror until stopped, caught up, or a time has passed."""

from __future__ import annotations

import re
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Self

import click

from eomirror.cli.render import output_option, print_structured, wants_table
from eomirror.errors import MirrorError, UsageError
from eomirror.types import SourcePartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from eomirror.driver.snapshot import Snapshot
    from eomirror.mirror import Mirror

__all__ = ["parse_conf", "parse_offsets", "parse_until", "run"]

_ADOPT = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)=(?P<offset>\d+)")
_DURATION = re.compile(r"(?P<number>\d+(?:\.\d+)?)(?P<unit>ms|s|m|h)")
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def parse_until(text: str | None) -> str | float | None:
    """
    ``caught-up``, a duration such as ``30s`` as seconds, or None for ever.

    Raises:
        UsageError: It is neither.
    """
    if text is None or text == "caught-up":
        return text
    found = _DURATION.fullmatch(text)
    if found is None:
        raise UsageError(
            f"--until {text}: not a time", fix="say caught-up, or a duration such as 30s, 5m, 1h"
        )
    return float(found["number"]) * _UNITS[found["unit"]]


def parse_offsets(option: str, texts: tuple[str, ...]) -> dict[SourcePartition, int]:
    """
    ``TOPIC-PARTITION=OFFSET`` as a mapping.

    Args:
        option: Whose values they are.
        texts: The values.

    Raises:
        UsageError: One is written otherwise.
    """
    adopted = {}
    for text in texts:
        found = _ADOPT.fullmatch(text)
        if found is None:
            raise UsageError(
                f"{option} {text}: not a partition and an offset",
                fix="write TOPIC-PARTITION=OFFSET, as in orders-3=1200",
            )
        adopted[SourcePartition(found["topic"], int(found["partition"]))] = int(found["offset"])
    return adopted


def parse_conf(texts: tuple[str, ...]) -> dict[str, str]:
    """
    ``KEY=VALUE`` as a mapping.

    Raises:
        UsageError: One is written otherwise.
    """
    confs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            # what follows the key may be a password, behind a colon or a blank
            key = re.split(r"[:\s]", text)[0]
            raise UsageError(f"--spark-conf {key}: no value", fix="write KEY=VALUE")
        confs[name] = value
    return confs


@click.command(epilog="Example: eomirror run mirror.yaml --until caught-up")
@click.argument("config", type=click.Path(dir_okay=False))
@click.option(
    "--until", metavar="caught-up|DURATION", help="Stop when caught up, or after a time such as 30s."
)
@click.option("--link", "links", multiple=True, help="Only this link; may be repeated.")
@click.option("--master", help="Spark master: spark://..., k8s://..., yarn.  [default: local]")
@click.option("--spark-conf", multiple=True, metavar="K=V", help="A Spark setting; may be repeated.")
@click.option("-s", "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a setting.")
@click.option("--take-over", is_flag=True, help="Take the link even from a living owner.")
@click.option(
    "--adopt",
    multiple=True,
    metavar="TOPIC-PARTITION=OFFSET",
    help="Go on at this source offset, for a partition whose position is missing or void.",
)
@click.option(
    "--into-filled",
    is_flag=True,
    help="Begin also where a copy holds records that no position speaks of: they stay, and records of the source "
    "follow behind them.",
)
@output_option
def run(
    config: str,
    until: str | None,
    links: tuple[str, ...],
    master: str | None,
    spark_conf: tuple[str, ...],
    overrides: tuple[str, ...],
    take_over: bool,
    adopt: tuple[str, ...],
    into_filled: bool,
    output: str | None,
) -> int:
    """
    Mirror the links of CONFIG, exactly once.

    SIGTERM or Ctrl-C finishes the open transactions and exits 0.  A cluster that is away, at the start or later, is
    tried again until it answers, also with --until caught-up; other links run meanwhile.  Refused credentials and
    missing rights fail a link at its start.  Exit codes: 0 done, 1 failed, or a link had not begun when the time of
    --until was over, 4 data was lost on the source, 5 another mirror owns the link, 78 the configuration is refused.
    """
    with _Signals() as signals, _failure_in_one_format():
        # from here on, and before anything that takes time: a stop that comes earlier than this kills the process
        limit = parse_until(until)
        adopted = parse_offsets("--adopt", adopt)
        confs = parse_conf(spark_conf)

        from eomirror.cli.progress import ProgressDisplay
        from eomirror.config import load_config
        from eomirror.mirror import Mirror

        loaded = load_config(config, overrides=overrides)
        display = ProgressDisplay()

        def show(snapshot: Snapshot) -> None:
            if signals.take_hang_up():
                display.event("SIGHUP: nothing is reloaded; restart to take up a changed configuration")
            display.update(snapshot)

        with Mirror(
            loaded,
            links=links,
            master=master,
            spark_conf=confs,
            take_over=take_over,
            adopt=adopted,
            into_filled=into_filled,
            on_event=display.event,
        ) as mirror:
            signals.stop_it(mirror)
            with display:
                report: Any = mirror.run(until=limit, on_progress=show)
        if wants_table(output):
            display.summary(report)
        else:
            print_structured(report.as_dict(), output)
        if report.aborted and signals.stopped_by:
            # a lane did not finish in time and its transaction was aborted: say so as a killed process would
            return 128 + signals.stopped_by[0]
        return int(report.exit_code)


@contextmanager
def _failure_in_one_format() -> Iterator[None]:
    """Where the log is JSON, an error ends it as an event: a program reads it."""
    try:
        yield
    except MirrorError as error:
        from eomirror.log import logs_json

        if not logs_json():
            raise
        import structlog

        structlog.get_logger(__name__).error(
            "run_failed", error=error.message, fix=error.fix, exit_code=error.exit_code
        )
        raise click.exceptions.Exit(error.exit_code) from error


class _Signals:
    """
    What signals ask for while the command runs.

    Handlers interrupt this thread anywhere, also while it prints or imports: they leave a word and print nothing.

    Attributes:
        stopped_by: Signals that asked for a stop.
    """

    def __init__(self) -> None:
        self.stopped_by: list[int] = []
        self._hung_up: list[bool] = []
        self._mirror: Mirror | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {
            number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)
        }
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            self._before[signal.SIGHUP] = signal.signal(signal.SIGHUP, self._hang_up)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop_it(self, mirror: Mirror) -> None:
        """Stop this mirror when a signal comes, or has come already."""
        self._mirror = mirror
        if self.stopped_by:
            mirror.stop()

    def take_hang_up(self) -> bool:
        """Whether the terminal hung up since the last call."""
        hung_up = bool(self._hung_up)
        self._hung_up.clear()
        return hung_up

    def _stop(self, number: int, _: FrameType | None) -> None:
        self.stopped_by.append(number)
        if self._mirror is not None:
            self._mirror.stop()

    def _hang_up(self, _: int, __: FrameType | None) -> None:
        self._hung_up.append(True)
