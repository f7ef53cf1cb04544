"""Arguments and options of several commands, each a decorator; and SIGTERM as an exception."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from functools import reduce, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
import orjson

from eomirror.cli.completion import complete_groups, complete_links
from eomirror.cli.render import print_result
from eomirror.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from eomirror.config import Config

    Decorator = Callable[[Any], Any]

__all__ = [
    "LINK",
    "LinkCommand",
    "acting",
    "config",
    "flow",
    "groups",
    "into_filled",
    "link",
    "links",
    "listen",
    "master",
    "output",
    "overrides",
    "report",
    "reverse",
    "source_gone",
    "spark_conf",
    "take_over",
    "terminable",
    "write_report",
]

#: Help of ``--link`` of a command on one link.
LINK = "Link to work on; required if the configuration has several."

config = click.argument("config", type=click.Path(dir_okay=False))
links = click.option(
    "--link", "links", multiple=True, shell_complete=complete_links, help="Only this link; may be repeated."
)
overrides = click.option(
    "-s", "--set", "overrides", multiple=True, metavar="PATH=VALUE", help="Override a setting."
)
per_partition = click.option(
    "--metrics-per-partition", is_flag=True, help="Also export lag and position of each partition."
)
per_group = click.option(
    "--metrics-per-group",
    is_flag=True,
    help="Also export lag and age of the checkpoints of each group, at most 500.",
)
reverse = click.option("--reverse", is_flag=True, help="Translate from the target to the source.")
source_gone = click.option(
    "--source-gone",
    is_flag=True,
    help="Read the groups' checkpoints on the target; do not connect to the source.",
)
master = click.option("--master", help="Spark master: spark://..., k8s://..., yarn.  [default: local]")
take_over = click.option(
    "--take-over", is_flag=True, help="Take the link over from a mirror that still runs."
)
into_filled = click.option(
    "--into-filled",
    is_flag=True,
    help="Start even if target partitions hold records but the link has no position for them; the records are kept, "
    "and mirrored records are appended.",
)
listen = click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Serve a page, /metrics (Prometheus), /livez and /readyz on this address, without authentication.",
)
spark_conf = click.option(
    "--spark-conf", multiple=True, metavar="K=V", help="Spark property; may be repeated."
)


def link(text: str) -> Decorator:
    """Returns the option that names one link."""
    return click.option("--link", shell_complete=complete_links, help=text)


def output(text: str = "Output format; by default table on a terminal, else json.") -> Decorator:
    """Returns the option that chooses the output format."""
    return click.option(
        "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default=None, help=text
    )


def flow(command: Any) -> Any:
    """Adds the options that locate the state of a MirrorMaker 2 flow; see `eomirror.cli.mm2.named_flow`."""
    return _each(
        command,
        click.option(
            "--mm2-source",
            metavar="ALIAS",
            help="MirrorMaker 2's alias of the source; by default the link's.",
        ),
        click.option("--group", help="Group id of the Kafka Connect workers; by default ALIAS-mm2."),
        click.option("--connector", help="Name of the source connector; by default MirrorSourceConnector."),
        click.option(
            "--offsets-topic",
            help="Kafka Connect's offset.storage.topic; by default mm2-offsets.ALIAS.internal.",
        ),
    )


def groups(link_text: str) -> Decorator:
    """Returns the argument and options of a command on consumer groups; ``link_text`` is the help of ``--link``."""
    return lambda command: _each(
        command,
        config,
        click.option("--group", shell_complete=complete_groups, help="Only this consumer group."),
        click.option("--groups", metavar="RE", help="Only groups whose whole name matches this pattern."),
        reverse,
        source_gone,
        link(link_text),
        overrides,
        output(),
    )


def _writable(_: click.Context, __: click.Parameter, path: Path | None) -> Path | None:
    """Refuses a file that cannot be written before anything is done: a promotion is not repeated for its report."""
    if path is not None and not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{path} cannot be written")
    return path


report = click.option(
    "--report",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_writable,
    metavar="FILE",
    help="Also write the result to FILE, as JSON.",
)


@dataclass(frozen=True)
class LinkCommand:
    """
    The common part of a command that changes a link.

    Attributes:
        dry_run: Changes nothing.
        yes: Asks for no confirmation.
        report: File for the result; None for no file.
        output: Format of the result, as `options.output` gives it.
    """

    config: Config
    link: str
    dry_run: bool
    yes: bool
    report: Path | None
    output: str | None

    def confirm(self, verb: str) -> None:
        """
        Asks for the name of the link, unless ``--yes`` or ``--dry-run`` is given.

        Raises:
            UsageError: Another name was given, or stdin is no terminal.
        """
        if self.yes or self.dry_run:
            return
        if not sys.stdin.isatty():
            raise UsageError(
                f"{verb} asks for the name of the link, and stdin is no terminal", fix="add --yes"
            )
        given = click.prompt(f"{verb} of link {self.link}: type its name to go on", err=True)
        if given != self.link:
            raise UsageError(
                f"{given!r} is not {self.link!r}: nothing was changed", fix="type the name of the link"
            )

    def show(self, value: Any, draw: Callable[[], None]) -> None:
        """Writes the result to the file of ``--report``, and shows it."""
        write_report(self.report, value)
        print_result(self.output, value, draw)


def acting(command: Any) -> Any:
    """Adds the options of a command that changes a link, which it gets as a `LinkCommand`; a decorator."""

    @wraps(command)
    def act(
        *,
        config: str,
        link: str | None,
        dry_run: bool,
        yes: bool,
        report: Path | None,
        overrides: tuple[str, ...],
        output: str | None,
        **others: Any,
    ) -> Any:
        from eomirror.config import load_config

        loaded = load_config(config, overrides=overrides)
        return command(
            LinkCommand(loaded, loaded.only_link(link).name, dry_run, yes, report, output), **others
        )

    return _each(
        act,
        config,
        link(LINK),
        click.option("--dry-run", is_flag=True, help="Check everything, change nothing."),
        click.option("--yes", is_flag=True, help="Do not ask for the name of the link."),
        report,
        overrides,
        output(),
    )


def write_report(path: Path | None, value: Any) -> None:
    """Writes the result to the file of ``--report``; None for no file."""
    if path is not None:
        path.write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2, default=str) + b"\n")


def _each(command: Any, *decorators: Decorator) -> Any:
    return reduce(lambda decorated, decorator: decorator(decorated), reversed(decorators), command)


@contextmanager
def terminable() -> Iterator[None]:
    """Lets SIGTERM unwind the stack, as Ctrl-C does, in commands that must undo or record something."""

    def leave(number: int, _: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
