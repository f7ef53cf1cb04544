"""Options that locate the state of a MirrorMaker 2 flow: aliases, Connect group, connector, offsets topic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

    from eomirror.config import Config
    from eomirror.records.connect_offsets import Mm2Flow

__all__ = ["flow_options", "named_flow"]

_OPTIONS = (
    click.option(
        "--mm2-source", metavar="ALIAS", help="MirrorMaker 2's alias of the source; by default the link's."
    ),
    click.option("--group", help="Group id of the Kafka Connect workers; by default ALIAS-mm2."),
    click.option("--connector", help="Name of the source connector; by default MirrorSourceConnector."),
    click.option(
        "--offsets-topic",
        help="Kafka Connect's offset.storage.topic; by default mm2-offsets.ALIAS.internal.",
    ),
)


def flow_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of `named_flow` to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def named_flow(
    config: Config, link: str | None, *, source: str | None, target: str | None = None, **given: str | None
) -> Mm2Flow:
    """
    Returns the MM2 flow of a link: the defaults of MM2's dedicated mode, overridden by options.

    Args:
        link: Name of the link; None for the only one.
        source: MM2's alias of the source; None for the link's.
        target: MM2's alias of the target; None for the link's.
        given: Attributes of `eomirror.records.connect_offsets.Mm2Flow`; None for the default of dedicated mode.

    Raises:
        UsageError: The configuration has several links and ``link`` is None.
    """
    from eomirror.records.connect_offsets import Mm2Flow

    chosen = config.only_link(link)
    flow = Mm2Flow.dedicated(source or chosen.source, target or chosen.target)
    return replace(flow, **{name: value for name, value in given.items() if value})
