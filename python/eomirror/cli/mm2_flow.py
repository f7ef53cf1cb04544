"""Finds the state of a MirrorMaker 2 flow by options: aliases, Connect group, connector, offsets topic."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eomirror.config import Config
    from eomirror.records.connect_offsets import Mm2Flow

__all__ = ["named_flow"]


def named_flow(
    config: Config,
    link: str | None,
    *,
    mm2_source: str | None,
    mm2_target: str | None = None,
    **given: str | None,
) -> Mm2Flow:
    """
    Returns the MM2 flow of a link: the defaults of MM2's dedicated mode, overridden by options.

    Args:
        link: Name of the link; None for the only one.
        mm2_source: MM2's alias of the source; None for the link's.
        mm2_target: MM2's alias of the target; None for the link's.
        given: Attributes of `eomirror.records.connect_offsets.Mm2Flow`; None for the default of dedicated mode.

    Raises:
        UsageError: The configuration has several links and ``link`` is None.
    """
    from eomirror.records.connect_offsets import Mm2Flow

    chosen = config.only_link(link)
    flow = Mm2Flow.dedicated(mm2_source or chosen.source, mm2_target or chosen.target)
    return replace(flow, **{name: value for name, value in given.items() if value})
