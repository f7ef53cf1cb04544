"""Options that say where one flow of MirrorMaker 2 keeps what it knows, where a link meets one."""

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
        "--mm2-source", metavar="ALIAS", help="What MirrorMaker 2 calls the source; by default as we do."
    ),
    click.option("--group", help="Group of its Connect workers; by default ALIAS-mm2."),
    click.option("--connector", help="Its source connector; by default MirrorSourceConnector."),
    click.option(
        "--offsets-topic", help="Connect's offset.storage.topic; by default mm2-offsets.ALIAS.internal."
    ),
)


def flow_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options whose values `named_flow` takes."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def named_flow(
    config: Config, link: str | None, *, source: str | None, target: str | None = None, **told: str | None
) -> Mm2Flow:
    """
    The flow of MM2 that belongs to a link: as its dedicated mode has it, but for what the options name.

    Args:
        config: The configuration.
        link: Name of the link; None for the only one.
        source: MM2's alias of the source; None for ours.
        target: MM2's alias of the target; None for ours.
        told: Attributes of `eomirror.records.connect_offsets.Mm2Flow`; None for what dedicated mode has.

    Raises:
        UsageError: There are several links, and none was named.
    """
    from eomirror.records.connect_offsets import Mm2Flow

    chosen = config.only_link(link)
    flow = Mm2Flow.dedicated(source or chosen.source, target or chosen.target)
    return replace(flow, **{name: value for name, value in told.items() if value})
