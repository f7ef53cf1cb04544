"""Arguments and options that several commands have, each a decorator of the command."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from eomirror.cli.completion import complete_groups, complete_links

if TYPE_CHECKING:
    from collections.abc import Callable

    Decorator = Callable[[Any], Any]

__all__ = [
    "config",
    "flow",
    "groups",
    "link",
    "links",
    "output",
    "overrides",
    "reverse",
    "source_gone",
    "spark_conf",
]

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


def _each(command: Any, *decorators: Decorator) -> Any:
    return reduce(lambda decorated, decorator: decorator(decorated), reversed(decorators), command)
